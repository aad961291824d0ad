// SPDX-License-Identifier: Apache-2.0
// The layout solver on generated problems: how many rectangles that were cut at random are put together
// again within a time, and how far above max-live the steps of large models end. The time is that of this
// thread, so that other work on the machine does not count.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/cases/layout_cases.hpp"
#include "planner/layout/layout.hpp"
#include "planner/layout/layout_checker.hpp"
#include "planner/layout/layout_csv.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

struct settings {
  std::string kind = "cuts", folder;
  std::int64_t first = 0, count = 100;
  double seconds = 5;
};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct named_problem {
  std::string name;
  planner::layout_problem problem;
};

named_problem cut(std::int64_t number) {
  const bench::cut_settings s = bench::cut_number(number);
  return {fmt::format("cut_{:02}", number), {bench::cut_rectangle(s), 1, s.capacity}};
}

named_problem step(std::int64_t number) {
  return {fmt::format("step_{:02}", number), {bench::model_step(bench::step_number(number)), 1, {}}};
}

void write(const std::string& folder, const named_problem& p) {
  planner::layout_table table;
  table.blocks = p.problem.blocks;
  for (std::size_t i = 0; i < table.blocks.size(); ++i)
    table.ids.push_back(std::to_string(i));
  const std::filesystem::path path = std::filesystem::path(folder) / (p.name + ".csv");
  std::ofstream out(path, std::ios::binary);
  out << planner::write_layout_csv(table);
  if (!out.flush())
    throw error(errc::io_failure, fmt::format("layout_bench: {}: could not be written", path.string()));
}

int run(const settings& s) {
  std::int64_t solved = 0;
  double most_above = 0;
  for (std::int64_t number = s.first; number < s.first + s.count; ++number) {
    const named_problem p = s.kind == "cuts" ? cut(number) : step(number);
    if (!s.folder.empty()) {
      write(s.folder, p);
      continue;
    }
    const double start = thread_seconds();
    planner::layout_limits limits;
    limits.work = std::int64_t{1} << 60;
    limits.stop = [&] { return thread_seconds() - start >= s.seconds; };
    const planner::layout_solution found = planner::solve_layout(p.problem, limits);
    const double taken = thread_seconds() - start;
    planner::layout_problem unlimited = p.problem;
    unlimited.capacity.reset();
    if (const auto wrong = planner::check_layout(unlimited, found.offsets); !wrong.empty())
      throw error(errc::internal, fmt::format("layout_bench: {}: {}", p.name, wrong.front()));
    const auto live = static_cast<double>(planner::max_live(p.problem.blocks, 1));
    const double above = 100.0 * (static_cast<double>(found.height) - live) / live;
    const bool fits = found.height <= p.problem.capacity.value_or(planner::max_live(p.problem.blocks, 1));
    solved += fits ? 1 : 0;
    most_above = std::max(most_above, above);
    fmt::print("{} {} blocks, {:.4f} % above max-live, {} nodes, {:.3f} s{}\n", p.name,
               p.problem.blocks.size(), above, found.nodes, taken, fits ? "" : ", not solved");
    std::fflush(stdout);
  }
  if (s.folder.empty())
    fmt::print("solved {} of {}; at most {:.4f} % above max-live\n", solved, s.count, most_above);
  return 0;
}

}  // namespace
}  // namespace stash

int main(int argc, char** argv) {
  stash::settings s;
  CLI::App app("Place generated blocks (docs/layout.md)");
  app.add_option("kind", s.kind, "cuts: rectangles to put together again; steps: of large models")
      ->check(CLI::IsMember({"cuts", "steps"}));
  app.add_option("--first", s.first, "number of the first problem")->check(CLI::NonNegativeNumber);
  app.add_option("--count", s.count, "how many problems")->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", s.seconds, "processor time for each")->check(CLI::NonNegativeNumber);
  app.add_option("--write", s.folder, "write the problems there instead, for stash layout")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  try {
    return stash::run(s);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
