// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Enqueues swap programs on a device: computation in the caller's stream, copies in two streams of its own,
/// ordered by events. The host waits for nothing, so that a whole step can be recorded as a CUDA graph.

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/swap/swap_engine.hpp"

namespace stash::runtime {

struct device_swap_settings {
  /// Copies are enqueued in chunks of this many bytes, so that the work of other streams comes in between.
  std::int64_t chunk_bytes = std::int64_t{64} << 20;
  /// swap_task::used can be read by the host when the copy is enqueued. Not so while a graph is recorded, or
  /// where the encoder's report has not come back: whole slots are copied then.
  bool sizes_are_known = false;
  /// Take a program whose edges leave a conflict unordered, to see what comes of it.
  bool allow_races = false;
  /// Called before an action; what it throws is a failure of that action.
  std::function<void(swap_action action, std::int32_t task)> before;
};

/// Not thread-safe. The device that is current when it is made must be current in every call.
class device_swap_engine {
 public:
  /// `memory.device` is device memory, `memory.host` pinned; both hold all blocks and stay where they are.
  /// Throws as swap_engine; error(device_failure), without a device error(unsupported).
  device_swap_engine(swap_program program, const swap_memory& memory, device_swap_settings settings = {});
  /// Waits for the copies.
  ~device_swap_engine();
  device_swap_engine(const device_swap_engine&) = delete;
  device_swap_engine& operator=(const device_swap_engine&) = delete;

  /// Enqueues a run after the work of `stream`; work that is enqueued in `stream` later finds all copies
  /// done. `compute` is called with each task of the compute lane in turn and enqueues its work in `stream`.
  /// Throws what `compute` throws, or what an action failed with, the error's text beginning with the task;
  /// the copies' streams are then joined with `stream`, and the next run starts afresh.
  void enqueue(void* stream, const std::function<void(std::int32_t task)>& compute);

  const swap_program& program() const noexcept;

 private:
  struct streams;
  void lane(void* stream, const std::function<void(std::int32_t task)>& compute);

  std::unique_ptr<swap_work> work_;
  device_swap_settings settings_;
  std::unique_ptr<streams> streams_;
};

}  // namespace stash::runtime
