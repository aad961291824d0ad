// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From value formats to what kernels take: constants as parameters, the size of a code as a template
/// argument.

#include <type_traits>

#include "common/stored_values.hpp"

namespace stash::kernels {

inline value_conversion conversion_of(value_format format, underflow_rule underflow) {
  const bool keep = underflow == underflow_rule::keep_nonzero;
  switch (format) {
    case value_format::fp16:
      return conversion_of<detail::fp16_format>(keep);
    case value_format::bf16:
      return conversion_of<detail::bf16_format>(keep);
    case value_format::fp10:
      return conversion_of<detail::fp10_format>(keep);
    case value_format::fp8_e4m3:
      return conversion_of<detail::fp8_e4m3_format>(keep);
    case value_format::fp8_e5m2:
      return conversion_of<detail::fp8_e5m2_format>(keep);
    case value_format::mxfp8_e4m3:
      return conversion_of<detail::e4m3_elements>(keep, detail::e4m3_elements::emax);
    case value_format::mxfp8_e5m2:
      return conversion_of<detail::e5m2_elements>(keep, detail::e5m2_elements::emax);
    case value_format::mxfp6_e2m3:
      return conversion_of<detail::e2m3_elements>(keep, detail::e2m3_elements::emax);
    case value_format::mxfp6_e3m2:
      return conversion_of<detail::e3m2_elements>(keep, detail::e3m2_elements::emax);
    case value_format::mxfp4_e2m1:
      return conversion_of<detail::e2m1_elements>(keep, detail::e2m1_elements::emax);
    case value_format::source:
      break;
  }
  return {};
}

template <unsigned Bits>
using code_size = std::integral_constant<unsigned, Bits>;

/// Calls body(code_size<bits>, bool_constant<scaled>); does nothing for source values.
template <class Body>
void with_code_size(value_format format, const Body& body) {
  switch (format) {
    case value_format::fp16:
    case value_format::bf16:
      return body(code_size<16>{}, std::false_type{});
    case value_format::fp10:
      return body(code_size<10>{}, std::false_type{});
    case value_format::fp8_e4m3:
    case value_format::fp8_e5m2:
      return body(code_size<8>{}, std::false_type{});
    case value_format::mxfp8_e4m3:
    case value_format::mxfp8_e5m2:
      return body(code_size<8>{}, std::true_type{});
    case value_format::mxfp6_e2m3:
    case value_format::mxfp6_e3m2:
      return body(code_size<6>{}, std::true_type{});
    case value_format::mxfp4_e2m1:
      return body(code_size<4>{}, std::true_type{});
    case value_format::source:
      return;
  }
}

}  // namespace stash::kernels
