// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// "Does the gradient pass?" answered from any stash of a map that keeps the sign (ReLU), or from one that
/// keeps the value (clipping).

#include <cstdint>
#include <string_view>

#include "encoders/overlap_check.hpp"
#include "stash/encoding.hpp"

namespace stash::detail {

/// Bits of one tile, from a stash. The members outlive the calls.
struct map_stash {
  const encoding& how;
  const const_encoded_view& stash;
  dtype type;  ///< of the encoded tensor
  std::int64_t elements;
  framework_rule rule;
};

/// Checks that the stash can serve the sign of its values: sign_mask, bitmap, csr, raw, or cast with
/// keep_nonzero, with its report and at least the bytes of its fixed part.
void check_sign_source(std::string_view function, const map_stash& source,
                       memory_space where = memory_space::host);

/// What reading the checked stash reads and writes.
call_memory& add_stash(call_memory& memory, const map_stash& source);

/// The bits of tile `tile` of `length` elements: bit i is set where the gradient passes under the rule. They
/// lie in the stash or in `buffer` (tile_elements / 8 bytes); bits past the last element mean nothing.
/// Corrupt tiles set the report's status and pass nothing.
const std::uint8_t* read_pass_bits(const map_stash& source, std::int64_t tile, std::int64_t length,
                                   std::uint8_t* buffer);

/// Checks that the stash can say which values lie between two bounds: range_mask, or raw, bitmap or csr with
/// source values.
void check_range_source(std::string_view function, const map_stash& source,
                        memory_space where = memory_space::host);

/// As read_pass_bits(): bit i is set where lower < value i < upper, a NaN by the rule.
const std::uint8_t* read_range_bits(const map_stash& source, float lower, float upper, std::int64_t tile,
                                    std::int64_t length, std::uint8_t* buffer);

}  // namespace stash::detail
