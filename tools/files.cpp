#include "files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>

#include "commands.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

namespace fs = std::filesystem;

struct place {
  fs::path first;  ///< what is written
  fs::path last;   ///< what it becomes once it is whole
};

/// A file is written beside the one whose place it takes, which stays as it is until then; a device or a pipe
/// is written itself, also where /dev/stdout leads to a file.
place place_of(const std::string& path) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  const bool is_special = fs::exists(there) && !fs::is_regular_file(there);
  if (is_special || path.starts_with("/dev/")) return {path, path};
  fs::path last = fs::weakly_canonical(path, ignored);  // a link stays a link
  if (last.empty()) last = path;
  return {last.parent_path() / fmt::format(".stash.{}.part", ::getpid()), last};
}

}  // namespace

std::string read_file(const std::string& path) {
  const auto fail = [&path](const char* got) {
    throw error(errc::io_failure, fmt::format("{}: expected a readable file, got: {}", path, got));
  };
  if (path == "-") {
    std::ostringstream text;
    text << std::cin.rdbuf();
    if (text.str().empty()) fail("nothing on standard input");
    return text.str();
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("a directory");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(std::strerror(errno));
  std::ostringstream text;
  if (!(text << in.rdbuf())) fail("an empty file");
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  const place to = place_of(path);
  std::ofstream out(to.first, std::ios::binary);
  out << text;
  out.close();
  std::error_code failed, ignored;
  if (!out) {
    failed.assign(errno, std::generic_category());
  } else if (to.first != to.last) {
    const fs::file_status replaced = fs::status(to.last, ignored);
    if (fs::exists(replaced)) fs::permissions(to.first, replaced.permissions(), ignored);
    fs::rename(to.first, to.last, failed);
  }
  if (!failed) return;
  if (to.first != to.last) fs::remove(to.first, ignored);
  throw failed_while_running(fmt::format("{}: writing failed: {}", path, failed.message()));
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    throw error(errc::io_failure, "-: expected a file's name; standard output is /dev/stdout");
  }
  const place to = place_of(path);
  for (const fs::path& file : {to.last, to.first}) {
    std::error_code ignored;
    const bool existed = fs::exists(file, ignored);
    std::ofstream out(file, std::ios::binary | std::ios::app);
    if (!out) {
      throw error(errc::io_failure, fmt::format("{}: expected a path that can be written, got: {}", path,
                                                std::strerror(errno)));
    }
    out.close();
    if (!existed) fs::remove(file, ignored);
  }
}

}  // namespace stash::tools
