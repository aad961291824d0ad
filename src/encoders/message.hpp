// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Texts of callers in messages.

#include <cstddef>
#include <string>
#include <string_view>

namespace stash {

/// A name or another text of a caller, as a message shows it: unchanged up to `most` bytes, else its first
/// `most` bytes at most (whole characters of UTF-8) and how long it is, "abc... (1000000 bytes)".
std::string shortened(std::string_view text, std::size_t most = 160);

}  // namespace stash
