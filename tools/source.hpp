#pragma once
/// \file
/// Options that several commands share: which network, which batch, which plan.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "models/models.hpp"
#include "planner/plan.hpp"

namespace stash::tools {

/// Which graph: a network by name or a graph file, and the sizes that belong to it.
struct graph_source {
  std::string name;  ///< network or file
  std::int64_t batch = 64;
  bool batch_given = false;
  std::string input;         ///< HxWxC, empty: the network's own
  std::int64_t classes = 0;  ///< 0: the network's own
  double density = 0.5;      ///< assumed after ReLU
  int threads = 0;           ///< 0: all processors

  void declare(CLI::App& command, bool file_allowed);
  /// Threads to use; throws error(invalid_argument) for a negative number.
  int thread_count() const;
  /// The training graph with the workspaces of this machine. `machine` receives their description.
  planner::graph make(std::string& machine) const;
};

/// "HxWxC". Throws error(invalid_argument).
models::input_shape parse_input_shape(const std::string& text);

struct plan_source {
  std::string policy = "lossless";
  std::string budget;
  std::string force;

  void declare(CLI::App& command);
  /// Options of the planner for `g`; a budget that is a share needs the baseline, which is planned for it.
  planner::plan_options make(const planner::graph& g, int threads, const std::string& machine) const;
};

/// Name of a stored form as reports show it: "raw", "bitmap_fp8", "recompute", "recompute+sign_mask".
std::string form_name(const planner::stash_choice& c);

}  // namespace stash::tools
