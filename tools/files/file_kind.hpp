// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A file of another kind than expected: what it is, and what takes it.

#include <string>
#include <string_view>

#include "planner/json/text_kind.hpp"

namespace stash::tools {

/// To stand after the message of a reader of `expected` (unknown: of something else) that refused `text`, the
/// content of the file: ": give it to --trace". Says also what is in a packed file. Empty where the kind of
/// file is right or not known.
std::string what_to_do(const std::string& path, std::string_view text, planner::text_kind expected);

/// Throws error(invalid_argument) if `name` is a file: "EXPECTED, got the file NAME, a plan ('stash.plan'):
/// give it to stash verify, explain or report".
void refuse_file(const std::string& name, std::string_view expected);

}  // namespace stash::tools
