#include "packed_file.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct close_archive {
  void operator()(archive* a) const { archive_read_free(a); }
};

class packed_file {
 public:
  explicit packed_file(const std::string& path) : path_(path), archive_(archive_read_new()) {
    if (!archive_)
      throw error(errc::out_of_memory, "read_packed_file: expected memory for libarchive, got none");
    archive_read_support_filter_gzip(archive_.get());
    archive_read_support_format_tar(archive_.get());
    archive_read_support_format_raw(archive_.get());
    archive_read_support_format_empty(archive_.get());
    constexpr std::size_t block = 65536;
    if (archive_read_open_filename(archive_.get(), path.c_str(), block) != ARCHIVE_OK) fail("an intact file");
  }

  std::string read(std::size_t limit) {
    archive_entry* entry = nullptr;
    for (;;) {
      const int status = archive_read_next_header(archive_.get(), &entry);
      if (status == ARCHIVE_EOF) break;
      if (status != ARCHIVE_OK && status != ARCHIVE_WARN) fail("an intact file");
      const bool raw = archive_format(archive_.get()) == ARCHIVE_FORMAT_RAW;
      const char* const name = archive_entry_pathname(entry);
      const bool wanted = name != nullptr && std::string_view(name).ends_with(".json");
      if (raw || (wanted && archive_entry_filetype(entry) == AE_IFREG)) return content(limit);
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

}  // namespace

std::string read_packed_file(const std::string& path, std::size_t limit) {
  const auto fail = [&path](const char* got) {
    throw error(errc::io_failure, fmt::format("{}: expected a readable file, got: {}", path, got));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("a directory");
  if (!std::ifstream(path, std::ios::binary)) fail(std::strerror(errno));
  return packed_file(path).read(limit);
}

}  // namespace stash::tools
