// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a swapper knows of a tensor, and the hook with which tests watch and break copies.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "encoders/device/device_memory.hpp"
#include "runtime/memory/host_blocks.hpp"
#include "stash/error.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/swap.hpp"

namespace stash::runtime {

namespace device = encoders::device;

/// A chunk that is about to be copied.
struct swap_chunk {
  bool out = false;
  std::string_view name;
  std::size_t offset = 0, bytes = 0;
};

/// Called before each chunk is copied, by the thread that copies; on a device before it is enqueued, with the
/// swapper's lock. May throw, which makes the copy fail. The default does nothing.
struct swap_hook {
  void (*before)(void* user, const swap_chunk& chunk) = nullptr;
  void* user = nullptr;

  void operator()(const swap_chunk& chunk) const {
    if (before != nullptr) before(user, chunk);
  }
};

/// A failure that no call was waiting for. Copying it needs no memory.
struct swap_failure {
  errc code = errc::ok;
  std::array<char, 256> cause{};
};

enum class swap_stage : std::uint8_t { none, queued, ended, failed };

/// Everything after the first group is guarded by the mutex of the core.
struct swap_record {
  std::string name;
  std::size_t bytes = 0;  ///< copied, each way
  std::int32_t priority = 0;
  std::int64_t needed_at = swap_request::unknown;
  /// What the bytes are: nothing more is known, a dense tensor, or encoded bytes and their report.
  enum class form : std::uint8_t { bytes, tensor, encoded } what = form::bytes;
  encoding how;
  dtype type = dtype::f32;
  shape dims;
  std::size_t encoded_bytes = 0;

  /// The source: one run, or two that become one on the host.
  std::array<const unsigned char*, 2> from{};
  std::size_t first_run = 0;
  host_block host;
  std::uint64_t number = 0;  ///< grows with every tensor of the swapper

  struct outgoing {
    swap_stage stage = swap_stage::none;
    bool urgent = false, told = false;  ///< told: somebody heard of the failure
    std::size_t done = 0;
    swap_failure failure;
    stashed_tensor owned;           ///< the source, if it is to be freed
    bool lent = false;              ///< on a device: the caller has not been told yet that the source is free
    device::event event = nullptr;  ///< after the copy
  } out;

  struct incoming {
    swap_stage stage = swap_stage::none;
    bool asked = false;      ///< somebody will call wait_in()
    bool urgent = false;     ///< somebody does
    bool elsewhere = false;  ///< goes to `to`, which is the caller's
    bool begun = false;      ///< has its memory
    bool late = false;       ///< somebody waits, and it was not there
    bool served = false;     ///< was used in this round
    bool given_up = false;   ///< could not be brought back ahead of use
    bool handed = false;     ///< wait_in() has said where `here` is; leave() gives it back
    bool forwarded = false;  ///< goes on from `here` to `to`, since it was on its way when `to` was named
    std::size_t done = 0;
    swap_failure failure;
    unsigned char* here = nullptr;  ///< memory of the swapper
    unsigned char* to = nullptr;
    void* stream = nullptr;         ///< in which `here` is freed
    device::event event = nullptr;  ///< after the copy
    bool read = false;              ///< on a device: `event` is after a copy from `here`, too
  } in;

  bool busy_out = false, busy_in = false;  ///< a thread copies a chunk, without the lock
  bool forgotten = false;                  ///< somebody waits until no thread does
};

}  // namespace stash::runtime
