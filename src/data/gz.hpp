// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Files read whole, unzipped where they are gz.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stash::data {

/// What an unzipped file may hold at most: a few kilobytes of gz can claim to be terabytes.
inline constexpr std::size_t max_unzipped_bytes = std::size_t{4} << 30;

/// Returns plain bytes as they are and gz content (recognised by its first two bytes) unzipped; several gz
/// members in a row are joined. Any bytes are safe. Throws error(bad_format) for damaged or truncated gz, a
/// wrong checksum, bytes after the last member, and more than `limit` bytes of content.
std::vector<std::uint8_t> unzip_if_gz(std::vector<std::uint8_t> bytes, const std::string& source,
                                      std::size_t limit = max_unzipped_bytes);

/// The content of a file, unzipped if it is gz. Throws error(io_failure) if it cannot be read, and as
/// unzip_if_gz.
std::vector<std::uint8_t> read_maybe_gz(const std::string& path);

}  // namespace stash::data
