// SPDX-License-Identifier: Apache-2.0
// bench, and its measurements on this processor.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/cases/cases.hpp"
#include "bench/cases/copy.hpp"
#include "bench/cases/machine.hpp"
#include "bench/cases/timing.hpp"
#include "commands.hpp"
#include "commands/bench_command.hpp"
#include "encoders/message.hpp"
#include "executor/kernels/kernel.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "stash/cpu.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using clock = std::chrono::steady_clock;

std::vector<std::string> names_of(const std::vector<bench::bench_line>& lines) {
  std::vector<std::string> names;
  names.reserve(lines.size());
  for (const bench::bench_line& line : lines)
    names.push_back(line.name());
  return names;
}

std::vector<bench::bench_line> lines_of(const bench_options& o) {
  const std::vector<bench::bench_line> all = o.all ? bench::all_lines(false) : bench::selected_lines();
  std::vector<bench::bench_line> lines;
  for (const std::size_t i : matching(o, names_of(all), "encode/bitmap/iid_0.5/64MiB"))
    lines.push_back(all[i]);
  return lines;
}

bench_figures measure(const bench::bench_line& line, const execution_context& context, double seconds) {
  const auto end = clock::now() + std::chrono::duration<double>(seconds);
  const bench::prepared_call call = line.prepare(context);
  bench::interleaved_timing timing(context.parallel_for == nullptr);
  const std::size_t work = timing.add(call.run);
  const std::size_t copy = timing.add(bench::copy_call(call.moved_bytes, context));
  const std::size_t one_call = call.one_call ? timing.add(call.one_call) : work;
  do {
    timing.round();
  } while (timing.rounds() < std::size_t{least_rounds} || clock::now() < end);
  bench_figures f;
  f.name = line.name();
  f.dense_bytes = line.bytes;
  f.seconds = timing.median_seconds(work);
  f.copy_share = timing.median_speed(work, copy);
  f.copy_share_low = timing.quantile_speed(work, copy, 0.25);
  f.copy_share_high = timing.quantile_speed(work, copy, 0.75);
  f.copy_variation = timing.variation(copy);
  if (call.encoded_bytes > 0)
    f.ratio = static_cast<double>(line.bytes) / static_cast<double>(call.encoded_bytes);
  if (call.one_call) f.one_call_speed = timing.median_speed(work, one_call);
  f.rounds = timing.rounds();
  return f;
}

std::string command_of(const bench_options& o) {
  return fmt::format("stash bench --threads {} --seconds {}{}{}", o.threads, o.seconds, o.all ? " --all" : "",
                     o.filter.empty() ? "" : fmt::format(" --filter '{}'", o.filter));
}

int run_bench(const bench_options& o) {
  check_distinct({{"--json", o.json}, {"--svg", o.svg}});
  check_writable(o.json);
  check_writable(o.svg);
  if (o.device == "cuda") return run_device_bench(o);
  const std::vector<bench::bench_line> lines = lines_of(o);
  const execution_context context = o.threads > 1 ? executor::openmp_context(o.threads) : execution_context{};
  fmt::print("{}, {}, {} thread{}, commit {}; {} lines in about {:.3g} s\n\n", bench::processor_model(),
             cpu_target(), o.threads, o.threads == 1 ? "" : "s", bench::source_commit(), lines.size(),
             o.seconds);
  const bench_table table(names_of(lines));
  bench_record record;
  record.command = command_of(o);
  record.threads = o.threads;
  for (const bench::bench_line& line : lines) {
    record.lines.push_back(measure(line, context, o.seconds / static_cast<double>(lines.size())));
    table.print(record.lines.back());
  }
  return finish(o, record);
}

}  // namespace

std::vector<std::size_t> matching(const bench_options& o, const std::vector<std::string>& names,
                                  const std::string& example) {
  std::vector<std::size_t> found;
  try {
    const std::regex pattern(o.filter);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (std::regex_search(names[i], pattern)) found.push_back(i);
    }
  } catch (const std::regex_error& e) {
    throw error(errc::invalid_argument, fmt::format("--filter: expected a regular expression, got '{}' ({})",
                                                    shortened(o.filter), e.what()));
  }
  if (found.empty()) {
    throw error(
        errc::invalid_argument,
        fmt::format("--filter: expected a part of the name of a line such as {}, got '{}', which fits "
                    "none{}",
                    example, shortened(o.filter), o.all ? "" : " (without --all)"));
  }
  return found;
}

bench_table::bench_table(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    name_width_ = std::max(name_width_, name.rfind('/') + 2);
  fmt::print("{:<{}}{:>8}{:>9}{:>10}{:>13}{:>10}\n", "case and input", name_width_, "size", "GB/s", "of copy",
             "half within", "ratio");
}

void bench_table::print(const bench_figures& f) const {
  const std::size_t size = f.name.rfind('/');
  fmt::print("{:<{}}{:>8}{:>9.2f}{:>10}{:>13}{:>10}{}{}\n", f.name.substr(0, size), name_width_,
             f.name.substr(size + 1), f.gigabytes_per_second(),
             f.copy_share > 0 ? fmt::format("{:.0f} %", 100 * f.copy_share) : "-",
             f.copy_share_low > 0
                 ? fmt::format("{:.0f}-{:.0f} %", 100 * f.copy_share_low, 100 * f.copy_share_high)
                 : "-",
             f.ratio > 0 ? fmt::format("{:.2f}", f.ratio) : "-",
             f.one_call_speed > 0 ? fmt::format("   {:.2f} x one call", f.one_call_speed) : "",
             f.noisy() ? "   busy" : "");
  std::fflush(stdout);
}

void bench_table::print_not_run(const std::string& name, const std::string& why) const {
  const std::size_t size = name.rfind('/');
  fmt::print("{:<{}}{:>8}  not run: {}\n", name.substr(0, size), name_width_, name.substr(size + 1), why);
  std::fflush(stdout);
}

int finish(const bench_options& o, const bench_record& record) {
  fmt::print(
      "\nGB/s: 10^9 bytes of the dense map per second. of copy: speed compared with a copy of the bytes that "
      "have "
      "to move, "
      "timed in turn;\nhalf of the rounds lie within the next column. ratio: dense bytes / encoded bytes. "
      "Medians.\n");
  const auto busy = std::count_if(record.lines.begin(), record.lines.end(),
                                  [](const bench_figures& f) { return f.noisy(); });
  if (busy > 0) {
    fmt::print(
        "busy: {} of {} lines; there the copy itself took a tenth and more longer in some rounds than in "
        "others. The machine has other work: run it again when it is quiet, or with more --seconds.\n",
        busy, record.lines.size());
  }
  if (!o.json.empty()) write_file(o.json, bench_json(record).dump(2) + "\n");
  if (!o.svg.empty()) {
    write_file(o.svg, bench_svg(record));
    fmt::print("picture: {}\n", o.svg);
  }
  return 0;
}

void add_bench(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "bench",
      "Measure encodings and layers on this processor or a GPU, compared with a copy of their bytes");
  const auto o = std::make_shared<bench_options>();
  command->add_option("--filter", o->filter, "only lines whose name has a match of this regular expression")
      ->type_name("REGEX")
      ->check(some_text());
  command->add_flag("--all", o->all, "every case on every input and size, not a selection");
  command->add_option("--device", o->device, "cpu or cuda: where to measure")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--threads", o->threads, "threads of this processor")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 1024));
  command->add_option("--seconds", o->seconds, "for all lines together; a line takes at least three rounds")
      ->type_name("S")
      ->capture_default_str()
      ->check(number(0.0, 86'400.0));
  command->add_option("--json", o->json, "write the figures (bench/compare reads them)")
      ->type_name("FILE")
      ->check(some_text());
  command->add_option("--svg", o->svg, "draw the shares of a copy")->type_name("FILE")->check(some_text());
  command->callback([&chosen, o] { chosen = [o] { return run_bench(*o); }; });
}

}  // namespace stash::tools
