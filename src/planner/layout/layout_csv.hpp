// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Layout problems and layouts as CSV, with the columns of MiniMalloc. docs/layout.md has the format.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/layout/layout.hpp"

namespace stash::planner {

struct layout_table {
  std::vector<std::string> ids;  ///< one per block; the row's number from 0 where the file has no such column
  std::vector<layout_block> blocks;
  std::vector<std::int64_t> offsets;  ///< one per block, or empty where a row has none
};

/// Reads any text without crashing. Throws error(bad_format) naming `name`, the line and the column. Checks
/// the text only: whether blocks are well-formed is said by solve_layout().
layout_table read_layout_csv(std::string_view text, std::string_view name);

/// Text that read_layout_csv() turns into the same table. Columns that say nothing are left out.
std::string write_layout_csv(const layout_table& table);

}  // namespace stash::planner
