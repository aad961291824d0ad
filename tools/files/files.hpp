// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Files of the command line: read whole, checked before long work, written in one go.

#include <string>
#include <vector>

namespace stash::tools {

/// What standard input holds for "-". Throws error(io_failure) naming the path.
std::string read_file(const std::string& path);
/// Throws failed_while_running; a file that was there stays as it was until the new one is whole.
void write_file(const std::string& path, const std::string& text);

/// A file that a command reads or writes, and what names it on the command line: "--json", "the graph".
struct named_file {
  std::string by;
  std::string path;  ///< empty: not set
};

/// Before long work: throws error(invalid_argument) where an output is also another output or an input,
/// however the two are spelled. Standard input and devices ("-", /dev/stdout) may be named more than once.
void check_distinct(const std::vector<named_file>& outputs, const std::vector<named_file>& inputs = {});

/// Throws error(io_failure) unless a file at `path` could be written; leaves an existing file as it is and
/// nothing where there was none. An empty path is fine.
void check_writable(const std::string& path);

}  // namespace stash::tools
