// SPDX-License-Identifier: Apache-2.0
// layout: offsets for the blocks of a CSV file.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "commands.hpp"
#include "files/file_kind.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "planner/layout/layout.hpp"
#include "planner/layout/layout_checker.hpp"
#include "planner/layout/layout_csv.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct layout_options {
  std::string input, output;
  std::int64_t capacity = -1;
  double seconds = 10;
};

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

/// "a, b, c and 7 more"
std::string listed(const std::vector<std::size_t>& blocks, const std::vector<std::string>& ids) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(blocks.size(), most); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ids[blocks[i]]);
  return blocks.size() <= most ? text : fmt::format("{} and {} more", text, blocks.size() - most);
}

[[noreturn]] void refuse_capacity(const layout_options& o, const planner::layout_table& table,
                                  const planner::layout_peak& peak, const planner::layout_solution& found) {
  if (peak.bytes > o.capacity) {
    throw error(
        errc::infeasible_budget,
        fmt::format("{}: impossible: expected a capacity of at least max-live = {} bytes (at time {}, "
                    "blocks {}), got {}",
                    o.input, peak.bytes, peak.time, listed(peak.blocks, table.ids), o.capacity));
  }
  if (found.status == planner::layout_status::impossible) {
    throw error(
        errc::infeasible_budget,
        fmt::format("{}: impossible: expected a capacity of at least {} bytes (no layout is lower), got "
                    "{}",
                    o.input, found.bound, o.capacity));
  }
  throw error(errc::infeasible_budget,
              fmt::format("{}: not found within the limit: no layout of capacity {} in {:g} s (lowest: {}, "
                          "max-live: {}); more --seconds may find one",
                          o.input, o.capacity, o.seconds, found.height, peak.bytes));
}

void print_summary(const planner::layout_table& table, const planner::layout_peak& peak,
                   const planner::layout_solution& found, double seconds) {
  fmt::print("blocks          {}\n", table.blocks.size());
  fmt::print("max-live        {} bytes at time {}\n", peak.bytes, peak.time);
  fmt::print("height          {} bytes\n", found.height);
  if (peak.bytes > 0) {
    fmt::print("above max-live  {:.4f} %\n",
               100.0 * static_cast<double>(found.height - peak.bytes) / static_cast<double>(peak.bytes));
  }
  if (found.proven_optimal) {
    fmt::print("proven optimal  yes\n");
  } else {
    fmt::print("proven optimal  no (bound {} bytes)\n", found.bound);
  }
  fmt::print("search nodes    {}\n", found.nodes);
  fmt::print("time            {:.3f} s\n", seconds);
}

planner::layout_table read_blocks(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return planner::read_layout_csv(text, path);
  } catch (const error& e) {
    throw error(e.code(), fmt::format("{}{}", e.what(), what_to_do(path, text, planner::text_kind::unknown)));
  }
}

int solve(const layout_options& o) {
  planner::layout_table table = read_blocks(o.input);
  planner::layout_problem problem{table.blocks, 1, {}};
  if (o.capacity >= 0) problem.capacity = o.capacity;
  const clock::time_point start = clock::now();
  const stops_between_steps on_interrupt;
  planner::layout_limits limits;
  limits.work = std::int64_t{1} << 60;
  limits.stop = [&] { return interrupted() || seconds_since(start) >= o.seconds; };
  const planner::layout_solution found = planner::solve_layout(problem, limits);
  const double seconds = seconds_since(start);
  const planner::layout_peak peak = planner::peak_of(problem);
  if (found.status != planner::layout_status::fits) refuse_capacity(o, table, peak, found);
  if (const auto wrong = planner::check_layout(problem, found.offsets); !wrong.empty()) {
    throw error(errc::internal, fmt::format("{}: the layout is wrong: {}", o.input, wrong.front()));
  }
  print_summary(table, peak, found, seconds);
  table.offsets = found.offsets;
  if (!o.output.empty()) write_file(o.output, planner::write_layout_csv(table));
  return 0;
}

int run_layout(const layout_options& o) {
  check_distinct({{"-o", o.output}}, {{"the blocks", o.input}});
  check_writable(o.output);
  try {
    return solve(o);
  } catch (const error& e) {
    // What only all blocks together show: two fixed ones on one address, sizes that overflow.
    if (e.code() != errc::invalid_argument) throw;
    throw error(e.code(), fmt::format("{}: {} (blocks are counted from 0)", o.input, e.what()));
  }
}

}  // namespace

void add_layout(CLI::App& app, action& chosen) {
  CLI::App* const command =
      app.add_subcommand("layout", "Place memory blocks with known lifetimes as low as possible");
  const auto o = std::make_shared<layout_options>();
  command->add_option("blocks", o->input, "blocks.csv (docs/layout.md)")->type_name("FILE")->required();
  command->add_option("--capacity", o->capacity, "bytes that must suffice (default: as few as possible)")
      ->type_name("N")
      ->check(whole_number(0, std::int64_t{1} << 62));
  command->add_option("--seconds", o->seconds, "time for the search; Ctrl-C ends it, too")
      ->type_name("S")
      ->check(number(0, 1e9))
      ->capture_default_str();
  command->add_option("-o,--output", o->output, "write the blocks with their offsets")
      ->type_name("FILE")
      ->check(some_text());
  command->callback([&chosen, o] { chosen = [o] { return run_layout(*o); }; });
}

}  // namespace stash::tools
