// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Files that show a plan: the options that `stash plan` and `stash report` share (docs/reports.md).

#include <string>
#include <vector>

#include "files/files.hpp"
#include "planner/plan.hpp"

namespace CLI {
class App;
}

namespace stash::tools {

struct plan_outputs {
  std::string html, chrome_trace, memory_viz, layout;
  std::string sweep;  ///< input: rows of `stash sweep --json` for the HTML page

  void declare(CLI::App& command);
  bool any() const { return !(html.empty() && chrome_trace.empty() && memory_viz.empty() && layout.empty()); }

  /// Before long work: throws error(invalid_argument) or error(io_failure) where an output cannot be written,
  /// is named twice or is one of the files that the command writes or reads besides these.
  void check(const std::vector<named_file>& other_outputs, const std::vector<named_file>& inputs) const;

  /// Throws error(invalid_argument) if an output shows offsets: for plans that have none.
  void check_without_offsets() const;

  /// Makes all texts, then writes them: where one cannot be made, no file changes.
  void write(const planner::plan& p) const;
};

}  // namespace stash::tools
