// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory budgets as people write them.

#include <cstdint>
#include <string>

namespace stash::tools {

/// "123456" bytes; "512KiB", "64MiB", "1.5GiB"; "0.5" or "50%" of `baseline_total`. The result is at least 1.
/// A baseline of 0: there is none, and shares are refused, too.
/// Throws error(invalid_argument) for anything else, zero and negative values included.
std::int64_t parse_budget(const std::string& text, std::int64_t baseline_total,
                          const char* option = "--budget");

}  // namespace stash::tools
