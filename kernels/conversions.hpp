// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From value formats to what kernels take: constants as parameters, the size of a code as a template
/// argument.

#include <type_traits>

#include "common/stored_values.hpp"

namespace stash::kernels {

inline value_conversion conversion_of(value_format format, underflow_rule underflow) {
  value_conversion conversion{};
  encoders::with_stored_format(format, [&](auto form) {
    conversion = conversion_of<decltype(form)>(underflow == underflow_rule::keep_nonzero);
  });
  return conversion;
}

template <unsigned Bits>
using code_size = std::integral_constant<unsigned, Bits>;

/// Calls body(code_size<bits>, bool_constant<scaled>); does nothing for source values. Formats of one size
/// share a kernel.
template <class Body>
void with_code_size(value_format format, const Body& body) {
  encoders::with_stored_format(format, [&](auto form) {
    using stored_as = decltype(form);
    body(code_size<stored_as::bits>{}, std::bool_constant<stored_as::scaled>{});
  });
}

}  // namespace stash::kernels
