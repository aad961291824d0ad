// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// PTX as statements. Only what nvcc writes is understood; comments and debug information are passed over.

#include <cstdint>
#include <string_view>
#include <vector>

namespace stash::ptx {

/// Operands are split at commas outside of braces and brackets, without blanks around them.
struct statement {
  enum class sort : std::uint8_t { instruction, directive, label, open, close };
  sort what = sort::instruction;
  std::uint32_t line = 0;
  std::string_view guard;  ///< "%p1" or "there"; empty if there is none
  bool guard_negated = false;
  std::string_view name;  ///< opcode, directive with its point, or label
  std::vector<std::string_view> operands;
};

/// Where an entry stands in a text.
struct entry_text {
  std::string_view name, parameters, directives, body;
  std::uint32_t line = 0;  ///< of the body's first character
};

/// All entries of a module. `outside` becomes what stands between them.
std::vector<entry_text> entries_of(std::string_view text, std::vector<std::string_view>& outside);

std::vector<statement> statements_of(std::string_view body, std::uint32_t line);

std::vector<std::string_view> split(std::string_view list, char separator);
std::string_view trimmed(std::string_view text);

}  // namespace stash::ptx
