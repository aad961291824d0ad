// SPDX-License-Identifier: Apache-2.0
// What planning costs in time: one training step of the CPU executor without a plan and under each policy,
// in turn within one process, so that a slow moment of the machine meets all of them. Ratios are medians of
// the ratios of neighbouring steps. A second unplanned run shows how much two equal runs differ.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cases/machine.hpp"
#include "data/dataset.hpp"
#include "executor/trainer.hpp"
#include "models/models.hpp"
#include "stash/error.hpp"
#include "stash/version.hpp"

namespace stash {
namespace {

using json = nlohmann::ordered_json;
using planner::step_kind;

struct settings {
  std::vector<std::string> networks{"lenet", "vgg_small", "resnet20"};
  std::int64_t steps = 60, batch = 64;
  std::vector<int> threads{static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
  std::string file;
};

constexpr std::int64_t warm_up_steps = 5;
constexpr std::int64_t batches = 8;  // that the steps go through again and again
constexpr std::uint64_t seed = 1;
constexpr executor::sgd_settings sgd{.learning_rate = 0.02F};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Processor time of all threads: where waiting threads sleep (OMP_WAIT_POLICY=passive), other work on the
/// machine does not count.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Copies at full speed on the same threads as the kernels.
class copier {
 public:
  explicit copier(int threads) : threads_(threads), from_(pool_bytes, 1), to_(pool_bytes, 2) {}

  /// Seconds in which a copy reads and writes `moved` bytes together.
  double seconds(std::int64_t moved) {
    const auto size = static_cast<std::size_t>(moved / 2);
    if (const auto found = known_.find(size); found != known_.end()) return found->second;
    std::vector<double> tries;
    for (int i = 0; i < 15; ++i) {
      const double start = now();
      copy(size);
      tries.push_back(now() - start);
    }
    return known_[size] = median(tries);
  }

 private:
  static constexpr std::size_t pool_bytes = std::size_t{64} << 20;

  void copy(std::size_t size) {
    const execution_context context = executor::openmp_context(threads_);
    for (std::size_t done = 0; done < size; done += pool_bytes) {
      const auto part = static_cast<std::int64_t>(std::min(pool_bytes, size - done));
      const auto body = [](void* state, std::int64_t begin, std::int64_t end) {
        auto& self = *static_cast<copier*>(state);
        std::memcpy(self.to_.data() + begin, self.from_.data() + begin,
                    static_cast<std::size_t>(end - begin));
      };
      context.parallel_for(context.user, part, 128 << 10, body, this);
    }
  }

  int threads_;
  std::vector<unsigned char> from_, to_;
  std::map<std::size_t, double> known_;
};

/// One policy on its way through the steps.
struct run {
  std::string label;
  std::unique_ptr<executor::trainer> trainer;
  std::vector<double> seconds, processor, encode, decode, recompute;
  std::vector<std::vector<double>> by_plan_step;  ///< of the present plan

  void step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels) {
    const std::int64_t reruns = trainer->reruns();
    const double start = now(), processor_start = processor_seconds();
    trainer->step(images, labels, sgd);
    seconds.push_back(now() - start);
    processor.push_back(processor_seconds() - processor_start);
    executor::executor& e = trainer->current();
    encode.push_back(e.times().encode);
    decode.push_back(e.times().decode);
    recompute.push_back(e.times().recompute);
    if (trainer->reruns() != reruns) by_plan_step.clear();
    by_plan_step.resize(e.measured().size());
    for (std::size_t i = 0; i < by_plan_step.size(); ++i)
      by_plan_step[i].push_back(e.measured()[i].end - e.measured()[i].begin);
  }

  void forget() {
    for (std::vector<double>* record : {&seconds, &processor, &encode, &decode, &recompute})
      record->clear();
    by_plan_step.clear();
  }

  const planner::plan& plan() const { return trainer->current().current_plan(); }
};

/// Median seconds of every op of the graph that this plan runs.
std::map<planner::op_id, double> seconds_per_op(const run& r) {
  std::map<planner::op_id, double> result;
  for (std::size_t i = 0; i < r.plan().steps.size(); ++i) {
    const planner::step& s = r.plan().steps[i];
    if (s.kind == step_kind::run) result[s.op] = median(r.by_plan_step[i]);
  }
  return result;
}

/// Bytes that a codec step has to move: what it reads and what it writes, each once.
std::int64_t moved_bytes(const planner::plan& p, const planner::step& s) {
  std::int64_t bytes = 0;
  for (const auto* operands : {&s.inputs, &s.outputs}) {
    for (const planner::buffer_id b : *operands)
      bytes += p.buffers[b].bytes;
  }
  return bytes;
}

/// What makes the difference between an unplanned step and one under a plan: an op or a codec step.
struct difference {
  std::string name;
  double before = 0, after = 0;
  double more() const { return after - before; }
};

std::vector<difference> differences(const run& base, const run& r) {
  std::vector<difference> result;
  const std::map<planner::op_id, double> before = seconds_per_op(base);
  for (const auto& [op, seconds] : seconds_per_op(r)) {
    result.push_back({r.plan().network.op_at(op).name, before.at(op), seconds});
  }
  for (std::size_t i = 0; i < r.plan().steps.size(); ++i) {
    const planner::step& s = r.plan().steps[i];
    if (s.kind == step_kind::run) continue;
    const planner::stash_choice& choice = r.plan().choices[s.storage];
    result.push_back({fmt::format("{} {} ({})", planner::to_string(s.kind),
                                  r.plan().network.at(s.storage).name, to_string(choice.stored)),
                      0.0, median(r.by_plan_step[i])});
  }
  std::sort(result.begin(), result.end(),
            [](const difference& a, const difference& b) { return a.more() > b.more(); });
  return result;
}

double median_ratio(const std::vector<double>& values, const std::vector<double>& base) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < values.size(); ++i)
    ratios.push_back(values[i] / base[i]);
  return median(ratios);
}

json report(const run& base, const run& r, copier& copies) {
  double copying = 0;
  std::int64_t moved = 0;
  for (const planner::step& s : r.plan().steps) {
    if (s.kind == step_kind::run) continue;
    const std::int64_t bytes = moved_bytes(r.plan(), s);
    moved += bytes;
    copying += copies.seconds(bytes);
  }
  json j;
  j["policy"] = r.label;
  j["step_ms_median"] = 1e3 * median(r.seconds);
  j["ratio_median"] = median_ratio(r.seconds, base.seconds);
  j["processor_ms_median"] = 1e3 * median(r.processor);
  j["processor_ratio_median"] = median_ratio(r.processor, base.processor);
  j["encode_ms"] = 1e3 * median(r.encode);
  j["decode_ms"] = 1e3 * median(r.decode);
  j["recompute_ms"] = 1e3 * median(r.recompute);
  j["codec_bytes_moved"] = moved;
  j["codec_bytes_at_memcpy_ms"] = 1e3 * copying;
  j["planned_peak_bytes"] = r.plan().sizes.planned_peak;
  j["reruns"] = r.trainer->reruns();
  if (&r == &base) return j;
  json& list = j["largest_differences"] = json::array();
  for (const difference& d : differences(base, r)) {
    if (list.size() == 5) break;
    list.push_back({{"step", d.name}, {"unplanned_ms", 1e3 * d.before}, {"planned_ms", 1e3 * d.after}});
  }
  return j;
}

void print(const json& j) {
  const double step = j["step_ms_median"], encode = j["encode_ms"], decode = j["decode_ms"],
               recompute = j["recompute_ms"], copying = j["codec_bytes_at_memcpy_ms"];
  const double codecs = encode + decode + recompute;
  fmt::print(
      "{:<12}{:>9.2f} ms{:>8.3f}x (processor {:.3f}x)   codecs {:5.1f} % (encode {:.2f}, decode {:.2f}, "
      "recompute {:.2f} ms; "
      "at memcpy speed {:.2f} ms)\n",
      j["policy"].get<std::string>(), step, j["ratio_median"].get<double>(),
      j["processor_ratio_median"].get<double>(), 100 * codecs / step, encode, decode, recompute, copying);
  if (!j.contains("largest_differences")) return;
  for (const json& d : j["largest_differences"]) {
    const double before = d["unplanned_ms"], after = d["planned_ms"];
    fmt::print("    {:+8.3f} ms  {} ({:.3f} -> {:.3f})\n", after - before, d["step"].get<std::string>(),
               before, after);
  }
}

json measure(const std::string& name, const settings& o, int threads, copier& copies, std::string& machine) {
  const models::model_info& info = models::find(name);
  if (!info.trainable) throw error(errc::invalid_argument, fmt::format("--network: {} does not train", name));
  const models::input_shape in = info.default_input;
  const data::dataset images =
      data::generate(in.height, in.width, in.channels, info.default_classes, o.batch * batches, 1, seed)
          .train;
  const auto batch_at = [&](std::int64_t i) {
    const std::int64_t first = i % batches * o.batch;
    const auto image_bytes = static_cast<std::size_t>(images.image_bytes());
    const auto begin = static_cast<std::size_t>(first), count = static_cast<std::size_t>(o.batch);
    return std::pair(std::span(images.images).subspan(begin * image_bytes, count * image_bytes),
                     std::span(images.labels).subspan(begin, count));
  };
  planner::graph g = planner::make_training_graph(info.build(in, info.default_classes), o.batch);
  machine = executor::annotate_workspaces(g, {threads, framework_rule::tensorflow});

  std::vector<run> runs;
  for (const char* const label : {"none", "none again", "lossless", "fp16", "fp8"}) {
    const std::string policy = std::string(label).substr(0, std::string_view(label).find(' '));
    executor::trainer_options options;
    options.seed = seed;
    options.plan.chosen_policy = planner::parse_policy(policy);
    options.plan.threads = threads;
    options.plan.machine = machine;
    const auto [pixels, labels] = batch_at(0);
    runs.push_back(
        {label, std::make_unique<executor::trainer>(g, options, pixels, labels), {}, {}, {}, {}, {}, {}});
  }
  for (std::int64_t i = 0; i < warm_up_steps + o.steps; ++i) {
    if (i == warm_up_steps) {
      for (run& r : runs)
        r.forget();
    }
    const auto [pixels, labels] = batch_at(i);
    // Everybody goes first, second, ... equally often.
    for (std::size_t k = 0; k < runs.size(); ++k)
      runs[(k + static_cast<std::size_t>(i)) % runs.size()].step(pixels, labels);
  }

  json j;
  j["network"] = name;
  j["threads"] = threads;
  j["batch"] = o.batch;
  j["steps"] = o.steps;
  j["baseline_peak_bytes"] = runs.front().plan().sizes.planned_peak;
  fmt::print("\n{}, batch {}, {} threads, {} steps\n", name, o.batch, threads, o.steps);
  for (const run& r : runs) {
    j["policies"].push_back(report(runs.front(), r, copies));
    print(j["policies"].back());
  }
  return j;
}

int measure_all(const settings& o, const std::string& command) {
  std::string machine;
  json runs = json::array();
  for (const int threads : o.threads) {
    copier copies(threads);
    for (const std::string& name : o.networks)
      runs.push_back(measure(name, o, threads, copies, machine));
  }
  if (o.file.empty()) return 0;
  json j;
  j["command"] = command;
  j["commit"] = bench::source_commit();
  j["stash"] = STASH_VERSION_STRING;
  j["machine"] = machine;
  j["compiler"] = bench::compiler();
  j["runs"] = std::move(runs);
  std::ofstream file(o.file);
  file << j.dump(2) << '\n';
  if (!file.flush()) throw error(errc::io_failure, fmt::format("--json: cannot write {}", o.file));
  return 0;
}

int main_checked(int argc, char** argv) {
  settings o;
  CLI::App app("Step time of the CPU executor under each policy, compared with an unplanned run",
               "step_bench");
  app.add_option("--network", o.networks, "networks that train, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--steps", o.steps, "measured steps")->capture_default_str()->check(CLI::Range(1, 100'000));
  app.add_option("--batch", o.batch, "samples per step")->capture_default_str()->check(CLI::Range(1, 65536));
  app.add_option("--threads", o.threads, "thread counts, separated by commas")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--json", o.file, "write the figures");
  CLI11_PARSE(app, argc, argv);
  const char* const waiting = std::getenv("OMP_WAIT_POLICY");
  const std::string program =
      waiting == nullptr ? "step_bench" : fmt::format("OMP_WAIT_POLICY={} step_bench", waiting);
  try {
    return measure_all(o, bench::command_line(program, argc, argv));
  } catch (const error& e) {
    fmt::print(stderr, "step_bench: {}\n", e.what());
    return 2;
  }
}

}  // namespace
}  // namespace stash

int main(int argc, char** argv) {
  return stash::main_checked(argc, argv);
}
