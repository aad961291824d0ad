// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Device memory whose last use is in the order of some streams, and which the work of others takes next. The
/// host, which enqueues both, is ahead of the device; memory is free for another stream only after the work
/// that uses it last.
///
/// A pool is sure to use memory again for the stream in which it was freed. Whether it does so for
/// others is a matter of policies: it may grow although the free memory has long been reached. So memory is
/// kept here until it is known which stream takes it, and freed in the order of that stream.

#include <cstddef>
#include <deque>

#include "encoders/device/device_memory.hpp"
#include "stash/memory.hpp"

namespace stash::runtime {

namespace device = encoders::device;

/// Memory of a resource, aligned as blocks of stashed tensors are. Empty if `data` is null.
struct kept_block {
  memory_resource* from = nullptr;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Not thread-safe.
class deferred_free {
 public:
  deferred_free() = default;
  /// Nothing may be left to free.
  ~deferred_free();
  deferred_free(const deferred_free&) = delete;
  deferred_free& operator=(const deferred_free&) = delete;

  /// Keeps a block that the work which `stream` has now uses last. Where that cannot be noted, it is freed
  /// in that stream at once.
  void keep(const kept_block& block, void* stream) noexcept;
  /// So much was freed in `stream`, or is going to be. Where that cannot be noted, nobody will wait for
  /// it.
  void note(std::size_t bytes, void* stream) noexcept;

  /// Orders the work of `stream` from now on after what has been reached, and after the oldest of the others
  /// until at most `bytes` are left that it is not ordered after. Frees in `stream` what is kept of those.
  /// Throws error(device_failure), having done so for some.
  void release_until(std::size_t bytes, void* stream);
  /// Frees in `stream` all that is kept, after its last use. What others have to wait for stays known.
  void free_in(void* stream) noexcept;

  std::size_t kept_bytes() const noexcept { return kept_bytes_; }

 private:
  struct part {
    kept_block block;  ///< empty if only the order matters
    std::size_t bytes;
    void* stream;  ///< of the last use
    device::event last_use;
  };
  bool add(const kept_block& block, std::size_t bytes, void* stream) noexcept;
  void free_part(part& p, void* stream) noexcept;
  void drop_first() noexcept;

  std::deque<part> parts_;
  std::size_t bytes_ = 0, kept_bytes_ = 0;
};

}  // namespace stash::runtime
