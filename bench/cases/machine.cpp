// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/machine.hpp"

#include <fstream>
#include <regex>

namespace stash::bench {

std::string processor_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string command_line(const std::string& program, int argc, const char* const* argv) {
  static const std::regex absolute_path("(^|=)/(?:.*/)?([^/]+)/*$");
  std::string line = program;
  for (int i = 1; i < argc; ++i)
    line.append(1, ' ').append(std::regex_replace(argv[i], absolute_path, "$1$2"));
  return line;
}

}  // namespace stash::bench
