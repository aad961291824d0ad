// SPDX-License-Identifier: Apache-2.0
// bench --device cuda.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/cases/machine.hpp"
#include "bench/gpu/measure.hpp"
#include "bench/gpu/records.hpp"
#include "commands.hpp"
#include "commands/bench_command.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

std::vector<gpu::line> lines_of(const bench_options& o) {
  std::vector<gpu::measured_case> cases = gpu::baseline_cases();
  for (gpu::measured_case& c : gpu::stash_cases())
    cases.push_back(std::move(c));
  std::vector<gpu::line> all = gpu::lines_of(o.all ? gpu::selection::all : gpu::selection::readable, cases);
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const gpu::line& l : all)
    names.push_back(l.name());
  std::vector<gpu::line> chosen;
  for (const std::size_t i : matching(o, names, "encode/bitmap/f32/iid_0.5/256MiB"))
    chosen.push_back(std::move(all[i]));
  return chosen;
}

std::string command_of(const bench_options& o) {
  return fmt::format("stash bench --device cuda --seconds {}{}{}", o.seconds, o.all ? " --all" : "",
                     o.filter.empty() ? "" : fmt::format(" --filter '{}'", o.filter));
}

bench_figures figures_of(const gpu::row& r) {
  bench_figures f;
  f.name = r.name;
  f.dense_bytes = static_cast<std::int64_t>(r.dense_bytes);
  f.seconds = r.time.median;
  f.copy_share = r.copy_share();
  f.ratio = r.ratio();
  f.rounds = static_cast<std::size_t>(r.time.repetitions);
  return f;
}

}  // namespace

int run_device_bench(const bench_options& o) {
  if (const std::string missing = gpu::why_no_device(); !missing.empty()) {
    throw error(errc::unsupported,
                fmt::format("--device cuda: expected a build with CUDA, its driver and a GPU, got none ({})",
                            missing));
  }
  if (o.threads != 1) {
    throw error(errc::invalid_argument,
                fmt::format("--threads: expected 1 with --device cuda, got {}", o.threads));
  }
  const std::vector<gpu::line> lines = lines_of(o);
  const gpu::device_facts facts = gpu::facts();
  bench_record record;
  record.command = command_of(o);
  record.device = facts.name;
  record.device_facts = gpu::json_of(facts).dump();
  fmt::print("{}, commit {}; {} lines in about {:.3g} s\n\n", gpu::text_of(facts), bench::source_commit(),
             lines.size(), o.seconds);
  std::vector<std::string> names;
  names.reserve(lines.size());
  for (const gpu::line& l : lines)
    names.push_back(l.name());
  const bench_table table(names);
  gpu::measurer measure({o.seconds / static_cast<double>(lines.size()), least_rounds, most_rounds});
  gpu::map_source maps;
  for (const gpu::line& l : lines) {
    gpu::row r;
    try {
      r = measure.measure(l, maps);
    } catch (const gpu::failure& lost) {
      throw failed_while_running(fmt::format("the device was lost in {}: {}", l.name(), lost.what()));
    }
    if (r.why_not_run.empty()) {
      record.lines.push_back(figures_of(r));
      table.print(record.lines.back());
    } else {
      record.not_run.emplace_back(r.name, r.why_not_run);
      table.print_not_run(r.name, r.why_not_run);
    }
  }
  return finish(o, record);
}

}  // namespace stash::tools
