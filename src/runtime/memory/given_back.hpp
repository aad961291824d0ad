// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Device memory whose last use is in the order of some streams, and which the work of others takes next. The
/// host, which enqueues both, is ahead of the device; memory is free for another stream only behind the work
/// that uses it last.
///
/// A pool is sure to use memory again for the stream in which it was given back. Whether it does so for
/// others is a matter of policies: it may grow although the free memory has long been reached. So memory is
/// kept here until it is known which stream takes it, and given back in the order of that.

#include <cstddef>
#include <deque>

#include "encoders/device/device_memory.hpp"
#include "stash/memory.hpp"

namespace stash::detail {

/// Memory of a resource, aligned as blocks of stashed tensors are. Empty if `data` is null.
struct kept_block {
  memory_resource* from = nullptr;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Not thread-safe.
class given_back {
 public:
  given_back() = default;
  /// Nothing may be left to give back.
  ~given_back();
  given_back(const given_back&) = delete;
  given_back& operator=(const given_back&) = delete;

  /// Keeps a block that the work which `stream` has now uses last. Where that cannot be noted, it is given
  /// back in that stream at once.
  void keep(const kept_block& block, void* stream) noexcept;
  /// So much was given back in `stream`, or is going to be. Where that cannot be noted, nobody will wait for
  /// it.
  void note(std::size_t bytes, void* stream) noexcept;

  /// Puts the work of `stream` from now on behind what has been reached, and behind the oldest of the others
  /// until at most `bytes` are left behind which it may not be; gives back in `stream` what is kept of those.
  /// Throws error(device_failure), having done so for some.
  void make_room(std::size_t bytes, void* stream);
  /// Gives back in `stream` all that is kept, behind its last use. What others have to be behind stays known.
  void give_back_in(void* stream) noexcept;

  std::size_t kept_bytes() const noexcept { return kept_bytes_; }

 private:
  struct part {
    kept_block block;  ///< empty if only the order matters
    std::size_t bytes;
    void* stream;  ///< of the last use
    device::event behind;
  };
  bool add(const kept_block& block, std::size_t bytes, void* stream) noexcept;
  void give(part& p, void* stream) noexcept;
  void drop_first() noexcept;

  std::deque<part> parts_;
  std::size_t bytes_ = 0, kept_bytes_ = 0;
};

}  // namespace stash::detail
