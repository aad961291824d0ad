// SPDX-License-Identifier: Apache-2.0
// gpu_bench: how fast encodings and layers run on a GPU, compared with copies and what libraries offer.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/cases/machine.hpp"
#include "bench/gpu/baselines/cudnn_properties.hpp"
#include "bench/gpu/measure.hpp"
#include "bench/gpu/records.hpp"

namespace stash::gpu {
namespace {

constexpr int exit_failed = 1, exit_no_device = 77;

struct arguments {
  selection lines = selection::usual;
  std::string filter, json;
  double seconds = 0;  // of the whole run; 0: no limit
  bool list = false;
};

std::vector<line> chosen_lines(const arguments& options) {
  std::vector<measured_case> cases = baseline_cases();
  for (const auto& more : {stash_cases, swap_cases}) {
    for (measured_case& c : more())
      cases.push_back(std::move(c));
  }
  std::vector<line> lines = lines_of(options.lines, cases);
  // Names of rows end other names: a whole one means its own.
  const bool whole =
      std::any_of(lines.begin(), lines.end(), [&](const line& l) { return l.name() == options.filter; });
  std::erase_if(lines, [&](const line& l) {
    const std::string name = l.name();
    return whole ? name != options.filter : name.find(options.filter) == std::string::npos;
  });
  return lines;
}

row not_run(const line& l, const std::string& why) {
  row r;
  r.name = l.name();
  r.why_not_run = why;
  return r;
}

/// Adds a row for each line and calls `report` after each. False if the device was lost.
bool measured(const std::vector<line>& lines, const arguments& options, std::vector<row>& rows,
              const std::function<void()>& report) {
  const auto begin = std::chrono::steady_clock::now();
  const effort e = options.lines == selection::smoke ? effort{0, 1, 1} : effort{};
  measurer measure(e);
  map_source maps;
  bool device_lost = false;
  std::string stopped;
  fmt::print("{}\n", heading_of_table());
  for (const line& l : lines) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (stopped.empty() && options.seconds > 0 && passed.count() > options.seconds)
      stopped = fmt::format("the {} seconds of --seconds were over", options.seconds);
    if (stopped.empty()) {
      try {
        rows.push_back(measure.measure(l, maps));
      } catch (const failure& problem) {
        device_lost = true;
        stopped = fmt::format("the device was lost in {}: {}", l.name(), problem.what());
      }
    }
    if (!stopped.empty()) rows.push_back(not_run(l, stopped));
    fmt::print("{}\n", line_of(rows.back()));
    std::fflush(stdout);
    report();
  }
  return !device_lost;
}

/// Null, and why, where there are none.
void add_cudnn_properties(nlohmann::ordered_json& record, std::string why_not) {
  nlohmann::ordered_json& properties = record["cudnn_device_properties"];
  if (why_not.empty()) {
    try {
      properties = nlohmann::ordered_json::parse(cudnn_device_properties());
    } catch (const std::exception& problem) {
      why_not = problem.what();
    }
  }
  if (!why_not.empty()) record["why_no_cudnn_device_properties"] = why_not;
}

int run(const arguments& options, const std::string& command) {
  const std::vector<line> lines = chosen_lines(options);
  if (options.list) {
    for (const line& l : lines)
      fmt::print("{}\n", l.name());
    return 0;
  }
  const std::string reason = why_no_device();
  // Asked now: after its loss a device answers no more.
  const device_facts device = reason.empty() ? facts() : device_facts{};
  nlohmann::ordered_json start = record_start("stash.gpu_bench", command);
  if (reason.empty()) start["device"] = json_of(device);
  add_cudnn_properties(start, reason);
  std::vector<row> rows;
  // After every row: a kernel that hangs takes the program with it, but not what was measured before.
  const auto write = [&] {
    const std::string running = rows.size() < lines.size() ? lines[rows.size()].name() : "";
    write_results(options.json, start, "rows", json_of(rows), running);
  };
  bool device_lost = false;
  if (reason.empty()) {
    fmt::print("{}\n", text_of(device));
    write();
    device_lost = !measured(lines, options, rows, write);
  } else {
    fmt::print("{}: {} rows are not run\n", reason, lines.size());
    for (const line& l : lines)
      rows.push_back(not_run(l, reason));
    write();
  }
  if (!reason.empty()) return exit_no_device;
  return device_lost ? exit_failed : 0;
}

}  // namespace
}  // namespace stash::gpu

int main(int argc, char** argv) {
  stash::gpu::arguments options;
  CLI::App app("Times encodings and layers on a GPU. Ends with 77 without a device.");
  const std::map<std::string, stash::gpu::selection> selections{{"smoke", stash::gpu::selection::smoke},
                                                                {"quick", stash::gpu::selection::quick},
                                                                {"usual", stash::gpu::selection::usual},
                                                                {"all", stash::gpu::selection::all}};
  std::string lines = "usual";
  app.add_option("--lines", lines, "smoke, quick, usual (default) or all")
      ->check(CLI::IsMember({"smoke", "quick", "usual", "all"}));
  app.add_option("--filter", options.filter,
                 "only rows with this text in their name, or the one with this name");
  app.add_option("--seconds", options.seconds, "start no row after so many seconds")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--json", options.json, "file to write the results to");
  app.add_flag("--list", options.list, "only print the names of the rows");
  CLI11_PARSE(app, argc, argv);
  options.lines = selections.at(lines);
  try {
    return stash::gpu::run(options, stash::bench::command_line("gpu_bench", argc, argv));
  } catch (const std::exception& problem) {
    fmt::print(stderr, "gpu_bench: {}\n", problem.what());
    return stash::gpu::exit_failed;
  }
}
