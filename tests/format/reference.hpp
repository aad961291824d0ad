// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A second implementation of docs/format.md, written from that page alone: slow, in whole tensors, double
/// arithmetic, tables of all values of a format, and bit strings. It shares no code with the library.

#include <cstdint>
#include <optional>
#include <vector>

#include "stash/dropout.hpp"
#include "stash/encoding.hpp"

namespace stash::reference {

/// A tensor as its bits: 32 or, for f16 and bf16, 16 per element.
struct tensor {
  dtype type = dtype::f32;
  std::vector<std::uint32_t> bits;
  std::int64_t count() const { return static_cast<std::int64_t>(bits.size()); }
};

struct encoded {
  std::vector<std::uint8_t> bytes;  ///< canonical
  std::uint64_t nonzeros = 0;       ///< bitmap and csr
  bool mask_is_not_sign = false;    ///< bitmap and csr
};

/// raw, shape_only, sign_mask, range_mask, cast, bitmap or csr.
encoded encode(const encoding& e, const tensor& t);
/// What decoding the bytes of encode() gives; for masks, 0 or 1.
tensor decode(const encoding& e, const tensor& t);
/// The same of type `to`, which is t's but for masks.
tensor decode(const encoding& e, const tensor& t, dtype to);

/// A region of memory besides the slot, and how much of it has been claimed.
struct region {
  std::vector<std::uint8_t> bytes;
  std::uint64_t claimed = 0;
};

/// A bitmap or csr wherever its tiles lie.
struct stored {
  std::vector<std::uint8_t> slot;
  std::optional<region> arena, host;
  std::uint32_t status = 0;
  std::uint64_t slot_bytes = 0, overflow_bytes = 0;
};

/// Places a bitmap or csr in memory as it is in `before`, whose slot holds at least the fixed part.
stored place(const encoding& e, const tensor& t, const stored& before);

/// What the bytes of a bitmap or csr say, whoever wrote them.
struct reading {
  tensor values;
  std::vector<bool> open;  ///< elements whose value the page leaves open
  std::uint32_t status = 0;
};
reading read(const encoding& e, dtype type, std::size_t elements, const stored& bytes);

/// What dropout makes of a tensor, and its mask.
struct dropped {
  tensor values;
  std::vector<std::uint8_t> mask;
};
dropped drop(const tensor& t, float probability, const dropout_key& key);

/// Bits of a stored code of a narrow format, sign included.
int code_bits(value_format format);
/// The exponent of the largest number of an MX format's elements.
int emax_of(value_format format);

/// The f32 bits of a stored code, and the code of f32 bits, of a format that stands alone (not an MX one).
std::uint32_t widen(value_format format, std::uint32_t code);
std::uint32_t narrow(value_format format, underflow_rule underflow, std::uint32_t f32_bits);
/// The bits of a result of arithmetic in a tensor of the type.
std::uint32_t result_in_type(dtype type, std::uint32_t f32_bits);

}  // namespace stash::reference
