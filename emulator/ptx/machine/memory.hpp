// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Loads, stores and atomic operations. Operands: the values, then the address, whose offset is the
/// immediate.

#include "ptx/machine/lanewise.hpp"

namespace stash::ptx {

enum class space : std::uint8_t { generic, global, shared, parameter };

/// Of ld and st: values of `bytes` bytes, signed or not, in registers of `register_bytes`. Where `values` is
/// more than one, they lie one after the other, aligned to all of them.
struct access {
  space where = space::generic;
  std::uint8_t bytes = 4, register_bytes = 4, values = 1;
  bool is_signed = false;
};
handler load_handler(const access& a);
handler store_handler(const access& a);

/// atom.add.u32 and its kin, red being those without a result: operands are result, address, value, and for
/// cas another value. Null if it is not known.
form atomic_form(std::string_view operation, std::string_view type, space where);

}  // namespace stash::ptx
