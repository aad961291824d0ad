// SPDX-License-Identifier: Apache-2.0
// Every encoding and every layer that reads or writes one, on one thread, compared with a copy of the bytes
// that have to move; and with feature maps of trained networks, encodings compared with general compressors.
// What the counters mean: timed_state.hpp, activation_lines.hpp. What is measured: cases/cases.hpp.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/activation_lines.hpp"
#include "bench/cases/machine.hpp"
#include "bench/timed_state.hpp"
#include "stash/cpu.hpp"
#include "stash/error.hpp"
#include "stash/version.hpp"

namespace stash::bench {
namespace {

constexpr const char* usage =
    "encoders_bench [--large] [--activations FOLDER] [--by-layer] [options of Google Benchmark]\n"
    "  --large               maps of 256 MiB and 1 GiB in place of 64 KiB to 64 MiB; takes up to 7 GiB of "
    "memory\n"
    "  --activations FOLDER  feature maps made by scripts/dump_activations (default: STASH_ACTIVATIONS)\n"
    "  --by-layer            each of these maps alone, too\n";

struct settings {
  bool large = false, by_layer = false;
  std::string activations;
};

// Takes the options of this program out of the arguments (nothing: help was asked for); what is left is for
// Google Benchmark. Its default time for a line would make a run of all lines take an hour.
std::optional<settings> parse(std::vector<char*>& arguments) {
  static char shorter_default[] = "--benchmark_min_time=0.05", large_default[] = "--benchmark_min_time=1";
  settings s;
  if (const char* const variable = std::getenv("STASH_ACTIVATIONS"); variable != nullptr)
    s.activations = variable;
  std::vector<char*> left = {arguments.front(), shorter_default};
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--large") {
      s.large = true;
      left[1] = large_default;
    } else if (argument == "--by-layer") {
      s.by_layer = true;
    } else if (argument == "--activations" && i + 1 < arguments.size()) {
      s.activations = arguments[++i];
    } else if (argument == "--activations") {
      throw error(errc::invalid_argument, "--activations: expected a folder after it, got nothing");
    } else if (argument == "--help") {
      return std::nullopt;
    } else {
      left.push_back(arguments[i]);
    }
  }
  arguments = left;
  return s;
}

void register_lines(const settings& s) {
  for (const bench_line& line : all_lines(s.large)) {
    register_work(line.name(), [line] {
      timed_work work{line.prepare({}), line.bytes};
      if (work.call.one_call) work.rival = {"one_call_speedup", work.call.one_call};
      return work;
    });
  }
  if (s.activations.empty()) {
    fmt::print(stderr,
               "encoders_bench: neither --activations nor STASH_ACTIVATIONS: no comparison with lz4, zstd "
               "and zfp on "
               "feature maps of trained networks (scripts/dump_activations makes them)\n");
  } else {
    register_activations(read_activations(s.activations), s.by_layer);
  }
}

int run(int argc, char** argv) {
  const std::string command = command_line("encoders_bench", argc, argv);
  std::vector<char*> arguments(argv, argv + argc);
  const std::optional<settings> s = parse(arguments);
  if (!s) {
    fmt::print("{}", usage);
    return 0;
  }
  int left = static_cast<int>(arguments.size());
  benchmark::Initialize(&left, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(left, arguments.data())) return 2;
  register_lines(*s);
  benchmark::AddCustomContext("command", command);
  benchmark::AddCustomContext("commit", source_commit());
  benchmark::AddCustomContext("compiler", compiler());
  benchmark::AddCustomContext("cpu_target", cpu_target());
  benchmark::AddCustomContext("processor", processor_model());
  benchmark::AddCustomContext("stash", STASH_VERSION_STRING);
  const bool any = benchmark::RunSpecifiedBenchmarks() > 0;
  benchmark::Shutdown();
  return any ? 0 : 2;
}

}  // namespace
}  // namespace stash::bench

int main(int argc, char** argv) {
  try {
    return stash::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "encoders_bench: %s\n", e.what());
    return 2;
  }
}
