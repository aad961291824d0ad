// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Files that may be packed, as traces are passed around: plain, gz, or a tar with the file in it.

#include <cstddef>
#include <string>

namespace stash::tools {

/// What an unpacked file may hold at most: a few kilobytes of gz can claim to be terabytes.
inline constexpr std::size_t most_unpacked_bytes = std::size_t{2} << 30;

/// The content of a file, unpacked if it is gz; of a tar, packed or not, that of the first file in it whose
/// name ends in .json, without what macOS adds ("._NAME.json", the folder __MACOSX). Throws error(io_failure)
/// if it cannot be read, error(bad_format) if it is damaged, has no such file or holds more than `limit`
/// bytes; both name the path.
std::string read_packed_file(const std::string& path, std::size_t limit = most_unpacked_bytes);

}  // namespace stash::tools
