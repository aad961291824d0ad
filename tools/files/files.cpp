// SPDX-License-Identifier: Apache-2.0
#include "files/files.hpp"

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
#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

namespace fs = std::filesystem;

struct target_paths {
  fs::path first;  ///< what is written
  fs::path last;   ///< what it becomes once it is whole
};

/// Where a path leads over all links, also where nothing is there yet; empty if that cannot be found.
fs::path end_of(const std::string& path) {
  constexpr int most_links = 40;  // as in the kernel
  std::error_code failed;
  fs::path at = fs::absolute(path, failed);
  for (int i = 0; i < most_links && !failed; ++i) {
    if (!fs::is_symlink(fs::symlink_status(at, failed))) return fs::weakly_canonical(at, failed);
    at = at.parent_path() / fs::read_symlink(at, failed);
  }
  return {};
}

/// A file is written next to the one that it replaces, which stays as it is until then; a device or a pipe
/// is written itself, also where /dev/stdout leads to a file.
target_paths target_of(const std::string& path) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  const bool is_special = fs::exists(there) && !fs::is_regular_file(there);
  if (is_special || path.starts_with("/dev/")) return {path, path};
  fs::path last = end_of(path);  // a link stays a link
  if (last.empty()) last = path;
  return {last.parent_path() / fmt::format(".stash.{}.part", ::getpid()), last};
}

bool can_be_shared(const std::string& path) {
  // What lies in /dev/shm is ordinary files.
  return path.empty() || path == "-" || (path.starts_with("/dev/") && !path.starts_with("/dev/shm/"));
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (fs::exists(a, ignored) && fs::exists(b, ignored)) return fs::equivalent(a, b, ignored);
  return a == b || (!end_of(a).empty() && end_of(a) == end_of(b));
}

void check_other_files(const named_file& output, const std::vector<named_file>& others) {
  if (can_be_shared(output.path)) return;
  for (const named_file& other : others) {
    if (can_be_shared(other.path) || !same_file(output.path, other.path)) continue;
    throw error(errc::invalid_argument, fmt::format("{} {}: expected a file of its own, got that of {} {}",
                                                    output.by, output.path, other.by, other.path));
  }
}

}  // namespace

std::string read_file(const std::string& path) {
  const auto fail = [&path](const char* got) {
    throw error(errc::io_failure,
                fmt::format("{}: expected a readable file, got: {}", shortened(path, 1024), got));
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
  const target_paths to = target_of(path);
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

void check_distinct(const std::vector<named_file>& outputs, const std::vector<named_file>& inputs) {
  std::vector<named_file> taken = inputs;
  for (const named_file& output : outputs) {
    check_other_files(output, taken);
    taken.push_back(output);
  }
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    throw error(errc::io_failure, "-: expected a file's name; standard output is /dev/stdout");
  }
  const auto expect = [&path](bool can_be_written) {
    if (can_be_written) return;
    throw error(errc::io_failure, fmt::format("{}: expected a path that can be written, got: {}",
                                              shortened(path, 1024), std::strerror(errno)));
  };
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (fs::exists(there) && !fs::is_regular_file(there) && !fs::is_directory(there)) {
    // Whoever reads a pipe takes it for ended once it was opened and closed on trial.
    expect(::access(path.c_str(), W_OK) == 0);
    return;
  }
  const target_paths to = target_of(path);
  for (const fs::path& file : {to.last, to.first}) {
    const bool existed = fs::exists(file, ignored);
    std::ofstream out(file, std::ios::binary | std::ios::app);
    expect(out.is_open());
    out.close();
    if (!existed) fs::remove(file, ignored);
  }
}

}  // namespace stash::tools
