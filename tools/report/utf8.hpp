// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Names of plans in formats that take nothing but UTF-8.

#include <string>
#include <string_view>

namespace stash::tools {

/// `text` with U+FFFD in place of bytes that are no UTF-8.
std::string valid_utf8(std::string_view text);

}  // namespace stash::tools
