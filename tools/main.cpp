// SPDX-License-Identifier: Apache-2.0
// The `stash` command. Exit codes: 0 done, 1 failed while running, 2 wrong arguments, files or budgets,
// 130 interrupted.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "commands.hpp"
#include "encoders/message.hpp"
#include "planner/explain_names.hpp"
#include "stash/error.hpp"
#include "stash/version.hpp"

namespace stash::tools {
namespace {

constexpr int exit_interrupted = 130;

volatile std::sig_atomic_t stop_requested = 0, waits_for_step = 0;

void request_stop(int) {
  if (waits_for_step == 0 || stop_requested != 0) ::_exit(exit_interrupted);
  stop_requested = 1;
}

int fail(int code, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "stash: {}\n", planner::printable(message));
  return code;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Trains deep networks with their feature maps kept in encoded form, and plans the memory for it.");
  app.name("stash");
  app.set_version_flag("--version", STASH_VERSION_STRING);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help for all subcommands");
  action chosen;
  add_networks(app, chosen);
  add_graph(app, chosen);
  add_plan(app, chosen);
  add_explain(app, chosen);
  add_report(app, chosen);
  add_verify(app, chosen);
  add_sweep(app, chosen);
  add_max_batch(app, chosen);
  add_reproduce(app, chosen);
  add_train(app, chosen);
  add_compare(app, chosen);
  add_bench(app, chosen);
  add_calibrate(app, chosen);
  add_layout(app, chosen);
  std::signal(SIGINT, request_stop);
  // Writing beyond the limit on file sizes then fails as on a full disk, and the part is removed.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      app.exit(e);
      return std::cout.flush() ? 0 : fail(1, "writing to standard output failed");
    }
    const auto used = app.get_subcommands();
    if (used.empty() && argc > 1) {
      return fail(2,
                  fmt::format("expected a command (stash --help lists them), got '{}'", shortened(argv[1])));
    }
    return fail(2, fmt::format("{} (see stash {}--help)", e.what(),
                               used.empty() ? "" : used.front()->get_name() + " "));
  }
  try {
    const int code = chosen();
    if (std::fflush(stdout) != 0) return fail(1, "writing to standard output failed");
    return code;
  } catch (const failed_while_running& e) {
    return fail(1, e.what());
  } catch (const error& e) {
    if (e.code() == errc::interrupted) return fail(exit_interrupted, e.what());
    return fail(e.code() == errc::internal || e.code() == errc::out_of_memory ? 1 : 2, e.what());
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory");
  } catch (const std::exception& e) {
    return fail(1, e.what());
  }
}

}  // namespace

stops_between_steps::stops_between_steps() noexcept {
  waits_for_step = 1;
}

stops_between_steps::~stops_between_steps() {
  waits_for_step = 0;
}

bool interrupted() noexcept {
  return stop_requested != 0;
}

}  // namespace stash::tools

int main(int argc, char** argv) {
  try {
    return stash::tools::run(argc, argv);
  } catch (...) {
    return 1;  // not even the message about a failure could be written
  }
}
