// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Where a figure comes from.

#include <string>

namespace stash::bench {

/// Short hash of the commit that was built, with " and changes" after it if the sources differed; "unknown"
/// outside a git checkout.
const char* source_commit() noexcept;

/// Model name of the processor, "unknown" if the system does not tell.
std::string processor_model();

/// "g++ 12.2.0" or "clang 14.0.6".
std::string compiler();

/// The program and its arguments as they were given; files that were named by absolute paths, alone or as
/// --name=/path, keep only their names.
std::string command_line(const std::string& program, int argc, const char* const* argv);

}  // namespace stash::bench
