// SPDX-License-Identifier: Apache-2.0
#include "data/gz.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::data {
namespace {

constexpr std::size_t block_bytes = 65536;

bool starts_as_gz(const std::uint8_t* bytes, std::size_t count) {
  return count >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

/// Owns the state of one zlib inflation in gz format.
class inflater {
 public:
  inflater() {
    constexpr int window_bits_gz = 15 + 16;
    if (inflateInit2(&stream_, window_bits_gz) != Z_OK) {
      throw error(errc::out_of_memory, "unzip: expected memory for zlib, got none");
    }
  }
  inflater(const inflater&) = delete;
  inflater& operator=(const inflater&) = delete;
  ~inflater() { inflateEnd(&stream_); }

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

[[noreturn]] void fail(const std::string& source, const std::string& expected_and_got) {
  throw error(errc::bad_format, fmt::format("unzip: {}: expected {}", source, expected_and_got));
}

/// Appends the content of the gz member at `offset` and returns the offset just past its end.
std::size_t unzip_member(const std::vector<std::uint8_t>& gz, std::size_t offset, const std::string& source,
                         std::size_t limit, std::vector<std::uint8_t>& content) {
  inflater state;
  z_stream& stream = state.stream();
  std::array<std::uint8_t, block_bytes> block;
  for (;;) {
    // zlib counts in 32 bits, so it is fed block by block.
    const std::size_t offered = std::min(gz.size() - offset, block_bytes);
    // zlib does not write to its input; its interface is older than const.
    stream.next_in = const_cast<Bytef*>(gz.data() + offset);
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = block.data();
    stream.avail_out = static_cast<uInt>(block.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    offset += offered - stream.avail_in;

    const std::size_t produced = block.size() - stream.avail_out;
    if (produced > limit - content.size())
      fail(source, fmt::format("at most {} unzipped bytes, got more", limit));
    content.insert(content.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(produced));

    if (result == Z_STREAM_END) return offset;
    if (result == Z_MEM_ERROR) throw error(errc::out_of_memory, "unzip: expected memory for zlib, got none");
    if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(source, fmt::format("intact gz data and checksum, got '{}' before byte {} of {}",
                               stream.msg != nullptr ? stream.msg : "unknown damage", offset, gz.size()));
    }
    // The checksum follows all content, so a member whose input is used up before it ended is cut off.
    if (offset == gz.size()) {
      fail(source, fmt::format("a whole gz member, got a truncated one of {} bytes ({} unzipped)", gz.size(),
                               content.size()));
    }
  }
}

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  std::ifstream file;
  if (!failure) file.open(path, std::ios::binary);
  if (failure || !file) {
    throw error(errc::io_failure,
                fmt::format("read: {}: expected a readable file, got {}", shortened(path, 1024),
                            failure ? failure.message() : "no permission"));
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(file.gcount()) != size) {
    throw error(errc::io_failure, fmt::format("read: {}: expected {} bytes, got {}", shortened(path, 1024),
                                              size, file.gcount()));
  }
  return bytes;
}

}  // namespace

std::vector<std::uint8_t> unzip_if_gz(std::vector<std::uint8_t> bytes, const std::string& source,
                                      std::size_t limit) {
  if (!starts_as_gz(bytes.data(), bytes.size())) return bytes;
  std::vector<std::uint8_t> content;
  std::size_t offset = 0;
  while (starts_as_gz(bytes.data() + offset, bytes.size() - offset)) {
    offset = unzip_member(bytes, offset, source, limit, content);
  }
  if (offset != bytes.size()) {
    fail(source,
         fmt::format("the file to end with its gz data, got {} trailing bytes", bytes.size() - offset));
  }
  return content;
}

std::vector<std::uint8_t> read_maybe_gz(const std::string& path) {
  return unzip_if_gz(read_bytes(path), path);
}

}  // namespace stash::data
