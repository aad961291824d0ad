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

/// For tile `tile` of `length` elements writes flags[i] = 1 where the gradient passes under `rule`, else 0.
/// `elements` is the count of the whole tensor. Corrupt tiles set the report's status and pass nothing.
/// The arguments were checked by check_sign_source.
void read_pass_flags(const encoding& e, const const_encoded_view& stash, std::int64_t elements,
                     framework_rule rule, std::int64_t tile, std::int64_t length, std::uint8_t* flags);

}  // namespace stash::detail
