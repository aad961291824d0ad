// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Names of encodings with narrow values: those of all formats of stash/value_format.hpp, so that a new
/// format is tested wherever the others are.

#include <string>
#include <vector>

#include "stash/value_format.hpp"

namespace stash_test {

/// "fp16", "fp8" ...; with a container's name and "_" before each.
inline std::vector<std::string> format_names(const std::string& prefix = "") {
  std::vector<std::string> names;
  for (const stash::value_format_info& row : stash::value_formats)
    names.push_back(prefix + std::string(row.name));
  return names;
}

/// The formats whose groups of values share a scale, or all others.
inline std::vector<stash::value_format> formats_with_scale(bool scaled) {
  std::vector<stash::value_format> formats;
  for (const stash::value_format_info& row : stash::value_formats)
    if (row.scaled == scaled) formats.push_back(row.format);
  return formats;
}

/// `fixed`, then every format alone, in a bitmap and in csr.
inline std::vector<std::string> names_of_all_values(std::vector<std::string> fixed) {
  for (const std::string& format : format_names()) {
    for (const char* prefix : {"", "bitmap_", "csr_"})
      fixed.push_back(prefix + format);
  }
  return fixed;
}

}  // namespace stash_test
