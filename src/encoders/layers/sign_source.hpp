// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// "Does the gradient pass?" answered from any stash of a map that keeps the sign (ReLU), or from one that
/// keeps the value (clipping).

#include <cstdint>
#include <string_view>

#include "encoders/overlap_check.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {

/// A stash of a map that has been checked: what every tile would find out again. The tensor outlives it.
struct checked_stash {
  const encoded_tensor& tensor;
  std::int64_t elements;
  std::size_t most_bytes;  ///< that the encoding can use
  framework_rule rule;
};

/// Checks that the stash can serve the sign of the values of a map like `dense`: sign_mask, bitmap, csr, raw,
/// or cast with keep_nonzero, with its report and at least the bytes of its fixed part.
checked_stash check_sign_source(std::string_view function, std::string_view argument,
                                const encoded_tensor& stash, std::string_view dense_name,
                                const const_tensor_view& dense, framework_rule rule, memory_space where);

/// The same for a stash that can say which values lie between two bounds: range_mask, or raw, bitmap or csr
/// with source values.
checked_stash check_range_source(std::string_view function, std::string_view argument,
                                 const encoded_tensor& stash, std::string_view dense_name,
                                 const const_tensor_view& dense, framework_rule rule, memory_space where);

/// What reading the checked stash reads and writes.
call_memory& add_stash(call_memory& memory, const char* argument, const checked_stash& source);

/// The bits of tile `tile` of `length` elements: bit i is set where the gradient passes under the rule. They
/// lie in the stash or in `buffer` (tile_elements / 8 bytes); bits past the last element mean nothing.
/// Corrupt tiles set the report's status and pass nothing.
const std::uint8_t* read_pass_bits(const checked_stash& source, std::int64_t tile, std::int64_t length,
                                   std::uint8_t* buffer);

/// As read_pass_bits(): bit i is set where lower < value i < upper, a NaN by the rule.
const std::uint8_t* read_range_bits(const checked_stash& source, float lower, float upper, std::int64_t tile,
                                    std::int64_t length, std::uint8_t* buffer);

}  // namespace stash::encoders
