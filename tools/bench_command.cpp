// bench.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <regex>

#include "bench/cases/cases.hpp"
#include "bench/cases/copy.hpp"
#include "bench/cases/machine.hpp"
#include "bench/cases/timing.hpp"
#include "bench_record.hpp"
#include "commands.hpp"
#include "executor/kernel.hpp"
#include "files.hpp"
#include "source.hpp"
#include "stash/cpu.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using clock = std::chrono::steady_clock;

// A median needs a middle.
constexpr std::size_t least_rounds = 3;

struct bench_options {
  std::string filter, json, svg;
  bool all = false;
  int threads = 1;
  double seconds = 60;
};

std::vector<bench::bench_line> lines_of(const bench_options& o) {
  std::vector<bench::bench_line> lines = o.all ? bench::all_lines(false) : bench::selected_lines();
  try {
    const std::regex wanted(o.filter);
    std::erase_if(lines,
                  [&](const bench::bench_line& line) { return !std::regex_search(line.name(), wanted); });
  } catch (const std::regex_error& e) {
    throw error(errc::invalid_argument,
                fmt::format("--filter: expected a regular expression, got '{}' ({})", o.filter, e.what()));
  }
  if (lines.empty()) {
    throw error(
        errc::invalid_argument,
        fmt::format(
            "--filter: expected a part of the name of a line such as encode/bitmap/iid_0.5/32MiB, got "
            "'{}', which fits none{}",
            o.filter, o.all ? "" : " (without --all)"));
  }
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
  } while (timing.rounds() < least_rounds || clock::now() < end);
  bench_figures f;
  f.name = line.name();
  f.dense_bytes = line.bytes;
  f.seconds = timing.median_seconds(work);
  f.copy_share = timing.median_speed(work, copy);
  if (call.encoded_bytes > 0)
    f.ratio = static_cast<double>(line.bytes) / static_cast<double>(call.encoded_bytes);
  if (call.one_call) f.one_call_speed = timing.median_speed(work, one_call);
  f.rounds = timing.rounds();
  return f;
}

void print(const bench_figures& f, std::size_t name_width) {
  const std::size_t size = f.name.rfind('/');
  fmt::print("{:<{}}{:>8}{:>9.2f}{:>9.0f} %{:>10}{}\n", f.name.substr(0, size), name_width,
             f.name.substr(size + 1), f.gigabytes_per_second(), 100 * f.copy_share,
             f.ratio > 0 ? fmt::format("{:.2f}", f.ratio) : "-",
             f.one_call_speed > 0 ? fmt::format("   {:.2f} x one call", f.one_call_speed) : "");
  std::fflush(stdout);
}

std::string command_of(const bench_options& o) {
  return fmt::format("stash bench --threads {} --seconds {}{}{}", o.threads, o.seconds, o.all ? " --all" : "",
                     o.filter.empty() ? "" : fmt::format(" --filter '{}'", o.filter));
}

int run_bench(const bench_options& o) {
  check_writable(o.json);
  check_writable(o.svg);
  const std::vector<bench::bench_line> lines = lines_of(o);
  const execution_context context = o.threads > 1 ? executor::openmp_context(o.threads) : execution_context{};
  fmt::print("{}, {}, {} thread{}, commit {}; {} lines in about {:.3g} s\n\n", bench::processor_model(),
             cpu_target(), o.threads, o.threads == 1 ? "" : "s", bench::source_commit(), lines.size(),
             o.seconds);
  std::size_t name_width = 0;
  for (const bench::bench_line& line : lines)
    name_width = std::max(name_width, line.name().rfind('/') + 2);
  fmt::print("{:<{}}{:>8}{:>9}{:>11}{:>10}\n", "case and input", name_width, "size", "GB/s", "of copy",
             "ratio");
  bench_record record{command_of(o), o.threads, {}};
  for (const bench::bench_line& line : lines) {
    record.lines.push_back(measure(line, context, o.seconds / static_cast<double>(lines.size())));
    print(record.lines.back(), name_width);
  }
  fmt::print(
      "\nGB/s: 10^9 bytes of the dense map per second. of copy: speed beside a copy of the bytes that have "
      "to move, "
      "timed in turn.\nratio: dense bytes / encoded bytes. Medians.\n");
  if (!o.json.empty()) write_file(o.json, bench_json(record).dump(2) + "\n");
  if (!o.svg.empty()) {
    write_file(o.svg, bench_svg(record));
    fmt::print("picture: {}\n", o.svg);
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "bench", "Measure encodings and layers on this machine, beside a copy of their bytes");
  const auto o = std::make_shared<bench_options>();
  command->add_option("--filter", o->filter, "only lines whose name has a match of this regular expression")
      ->type_name("REGEX")
      ->check(some_text());
  command->add_flag("--all", o->all, "every case on every input and size, not a selection");
  command->add_option("--threads", o->threads, "threads")
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
