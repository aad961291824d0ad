#include "files.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "commands.hpp"
#include "stash/error.hpp"

namespace stash::tools {

std::string read_file(const std::string& path) {
  const auto fail = [&path](const char* got) {
    throw error(errc::io_failure, fmt::format("{}: expected a readable file, got: {}", path, got));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("a directory");
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(std::strerror(errno));
  std::ostringstream text;
  if (!(text << in.rdbuf())) fail("an empty file");
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return;
  const std::string reason = std::strerror(errno);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
  throw failed_while_running(fmt::format("{}: writing failed: {}", path, reason));
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  std::ofstream out(path, std::ios::binary | std::ios::app);
  if (!out) {
    throw error(errc::io_failure,
                fmt::format("{}: expected a path that can be written, got: {}", path, std::strerror(errno)));
  }
  out.close();
  if (!existed) std::filesystem::remove(path, ignored);
}

}  // namespace stash::tools
