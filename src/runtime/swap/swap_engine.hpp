// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Runs swap programs on the CPU: in threads, for use, or one step of work at a time in an order that a
/// schedule chooses, for tests (swap_orders.hpp).
///
/// A run is all or nothing for the memory that it does not touch: whatever fails, all lanes have come to
/// rest when run() throws, and the next run starts afresh. Blocks are then undefined.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/swap/swap_program.hpp"

namespace stash::runtime {

class swap_schedule;
class swap_threads;
struct swap_work;

/// Where the blocks of a program lie.
struct swap_memory {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  std::byte* begin(const swap_block& b) const noexcept {
    return (b.side == swap_side::device ? device : host) + b.offset;
  }
};

/// What the engine is about to do, for those who want it to fail.
enum class swap_action : std::uint8_t {
  copy,    ///< a chunk of a copy
  signal,  ///< telling other lanes that a task has ended
  wait,    ///< waiting for a task of another lane
};
std::string_view to_string(swap_action action) noexcept;

struct swap_settings {
  /// Copies are made in chunks of this many bytes, between which a lane looks whether it should stop.
  std::int64_t chunk_bytes = std::int64_t{4} << 20;
  /// Blocks are overwritten with signalling NaNs when the last task that touches them has ended.
  bool poison = false;
  /// Called before an action, on the lane's thread; what it throws is a failure of that action.
  std::function<void(swap_action action, std::int32_t task)> before;
  /// Edges to leave out, to see what comes of it: asks for a schedule.
  std::vector<swap_edge> without;
  /// Null: threads. Else the next step of work is the one that this chooses; must outlive the engine.
  swap_schedule* schedule = nullptr;
};

/// When a task ran, in seconds from the begin of the run. A copy begins when nothing keeps it from it.
struct swap_time {
  double begin = 0, end = 0;
};

/// Not thread-safe: one run at a time. Owns two threads if it has copies to run and no schedule.
class swap_engine {
 public:
  /// `memory` must hold all blocks and stay where it is. Throws as check_program() and find_races(), and
  /// error(verification_failed) naming two tasks if the edges leave a conflict unordered: with a schedule
  /// they may, to see what comes of it.
  swap_engine(swap_program program, const swap_memory& memory, swap_settings settings = {});
  ~swap_engine();
  swap_engine(const swap_engine&) = delete;
  swap_engine& operator=(const swap_engine&) = delete;

  /// Runs all tasks. `compute` is called with each task of the compute lane in turn, on the caller's thread;
  /// false ends the run before the next task. Returns whether all tasks have run.
  /// Throws what `compute` throws, or what a copy, signal or wait failed with: an error keeps its code and
  /// says which task it was.
  bool run(const std::function<bool(std::int32_t task)>& compute);

  const swap_program& program() const noexcept;
  /// Of the last run; tasks that did not run have the times of an earlier one.
  std::span<const swap_time> times() const noexcept;
  /// Bytes copied in the last run, both ways together.
  std::int64_t copied_bytes() const noexcept;

 private:
  std::unique_ptr<swap_work> work_;
  std::unique_ptr<swap_threads> threads_;             ///< without a schedule
  std::vector<std::vector<std::int32_t>> conflicts_;  ///< with one
};

}  // namespace stash::runtime
