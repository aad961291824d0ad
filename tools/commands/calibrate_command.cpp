// SPDX-License-Identifier: Apache-2.0
// calibrate.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/copy.hpp"
#include "bench/cases/machine.hpp"
#include "bench/cases/timing.hpp"
#include "commands.hpp"
#include "data/dataset.hpp"
#include "executor/kernels/kernel.hpp"
#include "executor/kernels/product_rate.hpp"
#include "executor/measured_ops.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "models/models.hpp"
#include "planner/graph/machine.hpp"
#include "planner/json/json.hpp"
#include "stash/cpu.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct calibrate_options {
  std::string name = "this_machine", output;
  std::string network, graph;  ///< whose ops are measured too, and where they go
  std::int64_t batch = 64;
  int threads = 0;
  double seconds = 20;
};

constexpr std::int64_t copied_bytes = std::int64_t{64} << 20;

// The cases whose shares of a copy stand for a kind of work, on maps with half of the values zero.
struct kind_of_work {
  const char* name;
  double planner::machine::*share;
  std::vector<std::string> cases;
};
std::vector<kind_of_work> kinds() {
  using m = planner::machine;
  return {{"masks", &m::mask_share, {"encode/sign_mask", "relu_backward/sign_mask"}},
          {"bitmap", &m::sparse_share, {"encode/bitmap", "decode/bitmap"}},
          {"fp16", &m::cast_share, {"encode/fp16", "decode/fp16"}},
          {"elementwise ops", &m::elementwise_share, {"relu_forward/no_stash", "relu_backward/y"}}};
}

// The least share among the cases: a plan must not count on the faster direction.
double least_share(const kind_of_work& kind, const execution_context& context, double seconds) {
  constexpr std::size_t least_rounds = 3;
  double least = 1e6;
  for (const bench::bench_line& line : bench::selected_lines()) {
    const std::string name = line.name();
    const bool listed = std::any_of(kind.cases.begin(), kind.cases.end(), [&](const std::string& case_name) {
      return name == case_name + "/iid_0.5/64MiB";
    });
    if (!listed) continue;
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::duration<double>(seconds / static_cast<double>(kind.cases.size()));
    const bench::prepared_call call = line.prepare(context);
    bench::interleaved_timing timing(context.parallel_for == nullptr);
    const std::size_t work = timing.add(call.run);
    const std::size_t copy = timing.add(bench::copy_call(call.moved_bytes, context));
    do {
      timing.round();
    } while (timing.rounds() < least_rounds || std::chrono::steady_clock::now() < end);
    least = std::min(least, timing.median_speed(work, copy));
  }
  return least;
}

// Bytes read and written per second.
double copy_rate(const execution_context& context, double seconds) {
  bench::interleaved_timing timing(context.parallel_for == nullptr);
  const std::size_t copy = timing.add(bench::copy_call(copied_bytes, context));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  do {
    timing.round();
  } while (timing.rounds() < 3 || std::chrono::steady_clock::now() < end);
  return static_cast<double>(copied_bytes) / timing.median_seconds(copy);
}

std::int64_t memory_of_this_machine() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
}

// The graph of a network, every op with what it takes here when nothing is encoded or moved.
planner::graph measured_graph(const calibrate_options& o, int threads, double seconds) {
  const models::model_info& info = models::find(o.network);
  const models::input_shape s = info.default_input;
  constexpr std::int64_t classes = 10;
  planner::graph g = planner::make_training_graph(info.build(s, classes), o.batch);
  const std::string machine = executor::annotate_workspaces(g, {threads, framework_rule::tensorflow});
  const data::dataset images = data::generate(s.height, s.width, s.channels, classes, o.batch, 1, 1).train;
  executor::measure_ops(g, threads, machine, {}, images.images, images.labels, {3, seconds});
  return g;
}

void report_ops(const planner::graph& g) {
  double forward = 0, backward = 0, update = 0;
  for (const planner::op& op : g.ops) {
    double& part = op.stage == planner::op_stage::forward    ? forward
                   : op.stage == planner::op_stage::backward ? backward
                                                             : update;
    part += op.seconds.value_or(0.0);
  }
  fmt::print("{:<18}{:>10.2f} ms forward, {:.2f} ms backward, {:.2f} ms update\n", g.name, 1e3 * forward,
             1e3 * backward, 1e3 * update);
}

int run(const calibrate_options& o, int threads) {
  check_distinct({{"-o", o.output}, {"--graph", o.graph}});
  check_writable(o.output);
  check_writable(o.graph);
  if (!o.network.empty() && !models::find(o.network).trainable) {
    throw error(errc::invalid_argument,
                fmt::format("--network: expected one that trains on the CPU (see `stash networks`), got {}",
                            o.network));
  }
  const execution_context context = threads > 1 ? executor::openmp_context(threads) : execution_context{};
  const std::vector<kind_of_work> work = kinds();
  const double part = o.seconds / static_cast<double>(work.size() + (o.network.empty() ? 2 : 3));
  planner::machine m;
  m.name = o.name;
  m.description = fmt::format("measured: {}, {}, {} thread{}, commit {}", bench::processor_model(),
                              cpu_target(), threads, threads == 1 ? "" : "s", bench::source_commit());
  m.memory_bytes = memory_of_this_machine();
  m.host_bytes = m.memory_bytes;
  fmt::print("{}; about {:.3g} s\n\n", m.description, o.seconds);
  m.flops_per_second = executor::convolution_rate(threads, part);
  fmt::print("{:<18}{:>10.1f} GFLOP/s\n", "convolution", m.flops_per_second / 1e9);
  m.memory_bytes_per_second = copy_rate(context, part);
  fmt::print("{:<18}{:>10.2f} GB/s read and written\n", "memory", m.memory_bytes_per_second / 1e9);
  for (const kind_of_work& kind : work) {
    m.*kind.share = least_share(kind, context, part);
    fmt::print("{:<18}{:>10.0f} % of a copy\n", kind.name, 100 * m.*kind.share);
  }
  // Here the host is the same memory: a byte that moves is read and written once, and both directions share
  // the processor.
  m.out_bytes_per_second = m.in_bytes_per_second = m.memory_bytes_per_second / 2;
  m.contention = 0.5;
  fmt::print("{:<18}{:>10.2f} GB/s each way (a copy in the same memory)\n", "link",
             m.out_bytes_per_second / 1e9);
  std::optional<planner::graph> g;
  if (!o.network.empty()) {
    g = measured_graph(o, threads, part);
    report_ops(*g);
  }
  if (g && !o.graph.empty()) {
    write_file(o.graph, planner::to_json(*g) + "\n");
    fmt::print("\ngraph with measured times: {}\n", o.graph);
  }
  if (!o.output.empty()) {
    write_file(o.output, planner::to_json(m) + "\n");
    fmt::print("\nmachine: {}\n", o.output);
  }
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, action& chosen) {
  CLI::App* const command =
      app.add_subcommand("calibrate", "Measure this machine (its CPU) for plans that are made for speed");
  const auto o = std::make_shared<calibrate_options>();
  command->add_option("-o,--output", o->output, "write machine.json, for --machine")
      ->type_name("FILE")
      ->check(some_text());
  command->add_option("--name", o->name, "name of the machine")
      ->type_name("NAME")
      ->capture_default_str()
      ->check(some_text());
  CLI::Option* const network =
      command->add_option("--network", o->network, "measure the ops of this network's training step, too")
          ->type_name("NAME")
          ->check(some_text());
  command->add_option("--batch", o->batch, "samples per step of that network")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 65536))
      ->needs(network);
  command
      ->add_option("--graph", o->graph,
                   "write that network's graph with the times of its ops, for `stash plan`")
      ->type_name("FILE")
      ->check(some_text())
      ->needs(network);
  command->add_option("--threads", o->threads, "threads (default: all processors)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command
      ->add_option("--seconds", o->seconds, "for all measurements together; each takes three rounds at least")
      ->type_name("S")
      ->capture_default_str()
      ->check(number(0.0, 86400.0));
  command->callback([o, &chosen] {
    chosen = [o] {
      graph_source all;
      all.threads = o->threads;
      return run(*o, all.thread_count());
    };
  });
}

}  // namespace stash::tools
