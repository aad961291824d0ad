// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The inside of the swap engine: what a run works on, and its two ways of running.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/swap/swap_engine.hpp"
#include "stash/error.hpp"

namespace stash::runtime {

/// A program made ready to run. Members below the line change in a run; those of a task only by its lane.
struct swap_work {
  swap_work(swap_program p, const swap_memory& m, swap_settings s, bool allow_races);

  void begin();
  double seconds() const;
  /// Takes an action `count` times, settings.before first; errors get the task's name.
  template <class Take>
  void on(swap_action action, std::int32_t task, std::size_t count, Take take) const {
    try {
      for (std::size_t i = 0; i < count; ++i) {
        if (settings.before != nullptr) settings.before(action, task);
        take(i);
      }
    } catch (const error& e) {
      throw failed(action, task, e);
    }
  }
  void announce(swap_action action, std::int32_t task, std::size_t count = 1) const {
    on(action, task, count, [](std::size_t) {});
  }
  error failed(swap_action action, std::int32_t task, const error& e) const;
  /// Where the block of an access begins.
  std::byte* block(std::int32_t task, std::size_t access) const;
  std::int64_t bytes_to_copy(std::int32_t task) const;
  /// The next chunk of `total` bytes.
  void copy_chunk(std::int32_t task, std::int64_t total);
  /// Takes the time; poisons blocks that nobody needs any more.
  void end_of(std::int32_t task);

  swap_program program;
  swap_memory memory;
  swap_settings settings;
  std::array<std::vector<std::int32_t>, swap_lanes> order;  ///< tasks of each lane
  std::vector<std::vector<std::int32_t>> waits;             ///< per task: others that must have ended
  std::vector<char> signals;                                ///< per task: somebody waits for it
  std::vector<std::vector<std::int32_t>> blocks_of;         ///< per task, each block once
  std::vector<std::int32_t> uses;                           ///< per block

  // ---
  std::vector<swap_time> times;
  std::vector<std::int64_t> copied;
  std::unique_ptr<std::atomic<std::int32_t>[]> uses_left;
  std::chrono::steady_clock::time_point started;
};

/// Lanes of copies are threads of their own, which sleep between runs and while they wait.
class swap_threads {
 public:
  explicit swap_threads(swap_work& work);
  ~swap_threads();
  swap_threads(const swap_threads&) = delete;
  swap_threads& operator=(const swap_threads&) = delete;

  bool run(const std::function<bool(std::int32_t)>& compute);

 private:
  void serve(swap_lane lane);
  /// Runs the lane's tasks until its end, or until the run stops.
  template <class Execute>
  void run_lane(swap_lane lane, Execute execute);
  bool wait_for(const std::vector<std::int32_t>& tasks);
  void stop(std::exception_ptr failure);
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  swap_work& work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> ended_;  ///< per task that signals
  std::atomic<bool> stopping_ = false;
  std::exception_ptr failure_;
  std::uint64_t run_ = 0;  ///< number of the run
  int busy_ = 0;           ///< lanes of copies that have not come to rest
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

/// One step of work at a time, as settings.schedule chooses.
bool run_in_order(swap_work& work, const std::vector<std::vector<std::int32_t>>& conflicts,
                  const std::function<bool(std::int32_t)>& compute);

}  // namespace stash::runtime
