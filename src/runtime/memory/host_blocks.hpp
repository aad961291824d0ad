// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Blocks of host memory for tensors that come and go, kept for reuse: making pinned memory is slow and may
/// wait for the device, and new pages of any memory cost a fault each. Sizes are rounded up by at most an
/// eighth, so that tensors whose sizes change a little from step to step share blocks.

#include <cstddef>
#include <mutex>
#include <vector>

#include "stash/memory.hpp"

namespace stash::runtime {

/// Empty if `data` is null.
struct host_block {
  unsigned char* data = nullptr;
  std::size_t bytes = 0;
};

/// May be used by several threads at once.
class host_blocks {
 public:
  /// `memory` must outlive this. `limit`: bytes of all blocks, those that are kept for reuse included.
  host_blocks(memory_resource& memory, std::size_t limit) noexcept : memory_(&memory), limit_(limit) {}
  ~host_blocks();
  host_blocks(const host_blocks&) = delete;
  host_blocks& operator=(const host_blocks&) = delete;

  /// At least `bytes` bytes, aligned to 64. Blocks that are kept are given up before there is none; then the
  /// block is empty. Throws what the memory resource throws besides error(out_of_memory).
  host_block take(std::size_t bytes);
  /// Takes back what take() returned.
  void give(host_block block) noexcept;

  std::size_t limit() const noexcept { return limit_; }
  std::size_t bytes_in_use() const noexcept;  ///< of blocks that are taken
  std::size_t peak_bytes() const noexcept;    ///< the most of that
  static std::size_t rounded(std::size_t bytes) noexcept;

 private:
  void release_kept() noexcept;
  void forget(std::size_t bytes) noexcept;  ///< a block that was counted and is not there

  memory_resource* memory_;
  std::size_t limit_;
  mutable std::mutex mutex_;
  std::vector<host_block> kept_;  ///< has capacity for every block that is taken
  std::size_t kept_bytes_ = 0, in_use_ = 0, blocks_ = 0, peak_ = 0;
};

}  // namespace stash::runtime
