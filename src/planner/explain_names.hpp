// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Names as a terminal may show them.

#include <string>
#include <string_view>

namespace stash::planner {

/// `text` on one line: control characters (bytes below 0x20, 0x7f, and U+0080 to U+009F, which some terminals
/// obey as well) become \xNN; everything else, UTF-8 included, stays. Names come from files of anybody.
std::string printable(std::string_view text);

}  // namespace stash::planner
