#include "files.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "stash/error.hpp"

namespace stash::tools {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || std::filesystem::is_directory(path) || !(text << in.rdbuf())) {
    throw error(errc::io_failure, fmt::format("{}: expected a readable file, got: {}", path,
                                              errno != 0 ? std::strerror(errno) : "nothing to read"));
  }
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw error(errc::io_failure, fmt::format("{}: writing failed: {}", path, std::strerror(errno)));
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  const bool existed = std::filesystem::exists(path);
  std::ofstream out(path, std::ios::binary | std::ios::app);
  if (!out) {
    throw error(errc::io_failure,
                fmt::format("{}: expected a path that can be written, got: {}", path, std::strerror(errno)));
  }
  out.close();
  if (!existed) std::filesystem::remove(path);
}

}  // namespace stash::tools
