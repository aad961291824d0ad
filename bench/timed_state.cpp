// SPDX-License-Identifier: Apache-2.0
#include "bench/timed_state.hpp"

#include <exception>
#include <memory>
#include <utility>

#include "bench/cases/copy.hpp"
#include "bench/cases/timing.hpp"

namespace stash::bench {
namespace {

// What the benchmark that runs now has prepared.
class running_work {
 public:
  running_work(std::string name, const std::function<timed_work()>& prepare)
      : name_(std::move(name)), work_(prepare()), timing_(true) {
    timing_.add(work_.call.run);
    timing_.add(copy_call(work_.call.moved_bytes, {}));
    if (work_.rival.run) timing_.add(work_.rival.run);
  }

  const std::string& name() const noexcept { return name_; }

  void run(benchmark::State& state) {
    const std::int64_t repetitions = timing_.repetitions(0);
    while (state.KeepRunningBatch(repetitions)) {
      timing_.round();
      state.SetIterationTime(timing_.last_seconds(0) * static_cast<double>(repetitions));
    }
    state.SetBytesProcessed(state.iterations() * work_.dense_bytes);
    state.counters["copy_share"] = timing_.median_speed(0, 1);
    if (work_.call.encoded_bytes > 0) {
      state.counters["ratio"] =
          static_cast<double>(work_.dense_bytes) / static_cast<double>(work_.call.encoded_bytes);
    }
    if (work_.rival.run) state.counters[work_.rival.name] = timing_.median_speed(0, 2);
  }

 private:
  std::string name_;
  timed_work work_;
  interleaved_timing timing_;
};

}  // namespace

void register_work(const std::string& name, std::function<timed_work()> prepare) {
  static std::unique_ptr<running_work> running;
  const auto run = [name, prepare = std::move(prepare)](benchmark::State& state) {
    try {
      if (running == nullptr || running->name() != name) {
        running.reset();  // its memory, before the next one's
        running = std::make_unique<running_work>(name, prepare);
      }
      running->run(state);
    } catch (const std::exception& e) {
      state.SkipWithError(e.what());
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime();
}

}  // namespace stash::bench
