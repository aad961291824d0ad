// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The subcommands of `stash`. Each function declares its options on the application; the work runs from
/// main() after parsing.

#include <functional>
#include <stdexcept>

namespace CLI {
class App;
}

namespace stash::tools {

/// What main() runs; returns the exit code.
using action = std::function<int()>;

void add_networks(CLI::App& app, action& chosen);
void add_graph(CLI::App& app, action& chosen);
void add_plan(CLI::App& app, action& chosen);
void add_explain(CLI::App& app, action& chosen);
void add_report(CLI::App& app, action& chosen);
void add_verify(CLI::App& app, action& chosen);
void add_sweep(CLI::App& app, action& chosen);
void add_max_batch(CLI::App& app, action& chosen);
void add_reproduce(CLI::App& app, action& chosen);
void add_train(CLI::App& app, action& chosen);
void add_compare(CLI::App& app, action& chosen);
void add_bench(CLI::App& app, action& chosen);
void add_calibrate(CLI::App& app, action& chosen);
void add_layout(CLI::App& app, action& chosen);

/// Failures after the work has begun (exit code 1), as opposed to wrong arguments and files (exit code 2).
struct failed_while_running : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// While one of these lives, Ctrl-C does not end the process at once but is reported by interrupted(), so
/// that training stops after the current step. A second Ctrl-C ends it at once.
class stops_between_steps {
 public:
  stops_between_steps() noexcept;
  ~stops_between_steps();
  stops_between_steps(const stops_between_steps&) = delete;
  stops_between_steps& operator=(const stops_between_steps&) = delete;
};
bool interrupted() noexcept;

}  // namespace stash::tools
