#pragma once
/// \file
/// "Does the gradient pass?" answered from any stash of a ReLU output that keeps the sign.

#include <cstdint>
#include <string_view>

#include "stash/encoding.hpp"

namespace stash::detail {

/// Checks that `stash` can serve the sign of `elements` f32 values: sign_mask, bitmap, or cast with
/// keep_nonzero, with its report and at least the bytes of its fixed part.
void check_sign_source(std::string_view function, const encoding& e, const const_encoded_view& stash,
                       std::int64_t elements);

/// The bits of tile `tile` of `length` elements: bit i is set where the gradient passes under `rule`. They
/// lie in the stash or in `buffer` (tile_elements / 8 bytes); bits behind the last element mean nothing.
/// `elements` is the count of the whole tensor. Corrupt tiles set the report's status and pass nothing.
/// The arguments were checked by check_sign_source.
const std::uint8_t* read_pass_bits(const encoding& e, const const_encoded_view& stash, std::int64_t elements,
                                   framework_rule rule, std::int64_t tile, std::int64_t length,
                                   std::uint8_t* buffer);

}  // namespace stash::detail
