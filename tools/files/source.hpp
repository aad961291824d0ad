// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Options that several commands share: which network, which batch, which plan.

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "files/files.hpp"
#include "models/models.hpp"
#include "planner/plan.hpp"
#include "planner/trace/trace.hpp"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace stash::tools {

/// Which graph: a network by name, a graph file or a trace, and the sizes that belong to it.
struct graph_source {
  std::string name;  ///< network or file; empty: a trace
  std::int64_t batch = 64;
  std::string input;                ///< HxWxC, empty: the network's own
  std::int64_t classes = 0;         ///< 0: the network's own
  std::int64_t side = 0;            ///< of a cubic image, 0: the network's own
  std::int64_t steps = 0;           ///< of a sequence, 0: the network's own
  std::int64_t loss_chunk = 0;      ///< positions whose logits exist at once, 0: all
  bool fused_update = false;        ///< weights are updated layer by layer in the backward pass
  double density = 0.5;             ///< assumed after ReLU
  std::string recompute = "cheap";  ///< or "none": the graph's recipes are left out
  int threads = 0;                  ///< 0: all processors
  std::string trace;                ///< execution trace of PyTorch, instead of a name
  std::string kineto;               ///< profile recorded with it, empty: none
  std::int64_t iteration = 0;
  int repeat = 1;  ///< copies of the network in a row

  /// The application must outlive this.
  void declare(CLI::App& command, bool file_allowed);
  /// Threads to use; throws error(invalid_argument) for a negative number.
  int thread_count() const;
  /// The training graph with the workspaces of this machine. `machine` receives their description.
  planner::graph make(std::string& machine) const;
  /// What is read for it.
  std::vector<named_file> files() const;

 private:
  planner::graph read() const;
  planner::graph named() const;
  void check_sizes(const planner::graph& g) const;
  void refuse(std::initializer_list<const char*> options, const std::string& why) const;
  planner::graph read_trace() const;
  void add_times(planner::trace& t, const planner::trace_options& options) const;

  const CLI::App* command_ = nullptr;
};

/// Throw error(io_failure) or error(bad_format) naming the file.
planner::graph read_graph(const std::string& path);
planner::plan read_plan(const std::string& path);

/// Checks of options: a whole number or a number in [least, most], and a text that is not empty.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator number(double least, double most);
CLI::Validator some_text();

/// A machine by name, or from a JSON file. Throws error(invalid_argument), error(bad_format) or
/// error(io_failure).
planner::machine read_machine(const std::string& name_or_file);

/// "HxWxC". Throws error(invalid_argument).
models::input_shape parse_input_shape(const std::string& text);

struct plan_source {
  std::string policy = "lossless";
  std::string budget;
  std::string force;
  std::string machine;                   ///< name or file; empty: no model
  std::vector<std::string> values;       ///< narrower formats that auto and gist may use
  std::vector<std::string> allow, deny;  ///< "PATTERN=FORM[,FORM...]"
  std::string order = "keep";            ///< or "memory"
  bool no_swap = false, swap_all = false;
  std::int32_t evaluations = 12000;
  std::uint64_t seed = 1;

  /// The application must outlive this.
  void declare(CLI::App& command);
  /// In addition --order, for commands that make one plan.
  void declare_order(CLI::App& command);
  /// The options without a budget.
  planner::plan_options options(int threads, const std::string& machine_note) const;
  /// Throws error(invalid_argument) for an unknown policy or encoding, a malformed budget, or options that
  /// only a plan for a machine has a use for where there is none.
  void check() const;
  /// What is read for it.
  std::vector<named_file> files() const;
  /// Throws error(invalid_argument) for options that neither the policy nor a tensor of `g` has a use for.
  void check_use(const planner::plan_options& o, const planner::graph& g) const;
  /// Options of the planner for `g`, whose use is checked; a budget that is a share needs the baseline, which
  /// is planned for it.
  planner::plan_options make(const planner::graph& g, int threads, const std::string& machine) const;

 private:
  const CLI::App* command_ = nullptr;  ///< null: not declared
};

/// Name of a stored form as reports show it: "raw", "bitmap_fp8", "recompute", "recompute+sign_mask".
std::string form_name(const planner::stash_choice& c);

}  // namespace stash::tools
