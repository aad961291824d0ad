#pragma once
/// \file
/// Files of the command line: read whole, checked before long work, written in one go.

#include <string>

namespace stash::tools {

/// What standard input holds for "-". Throws error(io_failure) naming the path.
std::string read_file(const std::string& path);
/// Throws failed_while_running; a file that was there stays as it was until the new one is whole.
void write_file(const std::string& path, const std::string& text);

/// Throws error(io_failure) unless a file at `path` could be written; leaves an existing file as it is and
/// nothing behind where there was none. An empty path is fine.
void check_writable(const std::string& path);

}  // namespace stash::tools
