// SPDX-License-Identifier: Apache-2.0
#include "files/packed_file.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "data/gz.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct close_archive {
  void operator()(archive* a) const { archive_read_free(a); }
};

/// What macOS adds to archives: "._NAME" holds attributes of NAME (AppleDouble), next to it or in a folder of
/// its own.
bool is_from_macos(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  return name.starts_with("._") || path.starts_with("__MACOSX/") ||
         path.find("/__MACOSX/") != std::string_view::npos;
}

class packed_file {
 public:
  /// `content` is that of the file, and must outlive this.
  packed_file(const std::string& path, const std::vector<std::uint8_t>& content)
      : path_(path), archive_(archive_read_new()) {
    if (!archive_)
      throw error(errc::out_of_memory, "read_packed_file: expected memory for libarchive, got none");
    archive_read_support_format_tar(archive_.get());
    archive_read_support_format_raw(archive_.get());
    archive_read_support_format_empty(archive_.get());
    if (archive_read_open_memory(archive_.get(), content.data(), content.size()) != ARCHIVE_OK)
      fail("an intact file");
  }

  std::string read(std::size_t limit) {
    archive_entry* entry = nullptr;
    for (;;) {
      const int status = archive_read_next_header(archive_.get(), &entry);
      if (status == ARCHIVE_EOF) break;
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) fail("an intact file");
      const bool raw = archive_format(archive_.get()) == ARCHIVE_FORMAT_RAW;
      const char* const name = archive_entry_pathname(entry);
      const bool is_json =
          name != nullptr && std::string_view(name).ends_with(".json") && !is_from_macos(name);
      if (raw || (is_json && archive_entry_filetype(entry) == AE_IFREG)) return content(limit);
    }
    throw error(errc::bad_format,
                fmt::format("{}: expected a .json file or an archive with one, got neither", path_));
  }

 private:
  [[noreturn]] void fail(std::string_view expected) {
    const char* const reason = archive_error_string(archive_.get());
    throw error(errc::bad_format, fmt::format("{}: expected {}, got: {}", path_, expected,
                                              reason != nullptr ? reason : "unknown damage"));
  }

  std::string content(std::size_t limit) {
    std::string text;
    std::array<char, 65536> block;
    for (;;) {
      const la_ssize_t got = archive_read_data(archive_.get(), block.data(), block.size());
      if (got < 0) fail("intact content");
      if (got == 0) return text;
      if (static_cast<std::size_t>(got) > limit - text.size()) {
        throw error(errc::bad_format,
                    fmt::format("{}: expected at most {} unpacked bytes, got more", path_, limit));
      }
      text.append(block.data(), static_cast<std::size_t>(got));
    }
  }

  const std::string& path_;
  std::unique_ptr<archive, close_archive> archive_;
};

std::vector<std::uint8_t> read_bytes(const std::string& path, std::size_t limit) {
  const auto fail = [&path](const char* got) {
    throw error(errc::io_failure, fmt::format("{}: expected a readable file, got: {}", path, got));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("a directory");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(std::strerror(errno));
  std::vector<std::uint8_t> bytes;
  std::array<char, 65536> block;
  do {
    in.read(block.data(), block.size());
    if (static_cast<std::size_t>(in.gcount()) > limit - bytes.size()) {
      throw error(errc::bad_format, fmt::format("{}: expected at most {} bytes, got more", path, limit));
    }
    bytes.insert(bytes.end(), block.begin(), block.begin() + in.gcount());
  } while (in);
  if (in.bad()) fail("an error while reading");
  return bytes;
}

}  // namespace

std::string read_packed_file(const std::string& path, std::size_t limit) {
  // libarchive takes a gz file whose checksum, length or end is wrong.
  const std::vector<std::uint8_t> bytes = data::unzip_if_gz(read_bytes(path, limit), path, limit);
  return packed_file(path, bytes).read(limit);
}

}  // namespace stash::tools
