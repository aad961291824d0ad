#pragma once
/// \file
/// Device memory that is given back in the order of some streams and taken again in that of others. The host,
/// which enqueues both, is far ahead of the device; memory is free for another stream only behind the work
/// that uses it last.

#include <cstddef>
#include <deque>

#include "encoders/device_memory.hpp"

namespace stash::detail {

/// Not thread-safe.
class given_back {
 public:
  given_back() = default;
  ~given_back();
  given_back(const given_back&) = delete;
  given_back& operator=(const given_back&) = delete;

  /// So much was given back behind the work that `stream` has now. Where that cannot be noted, nobody will
  /// wait for it.
  void add(std::size_t bytes, void* stream) noexcept;

  /// Puts the work of `stream` from now on behind what was given back first, until at most `bytes` are left
  /// behind which it may not be. Throws error(device_failure), having put it behind some.
  void keep_within(std::size_t bytes, void* stream);

  /// Forgets what has been reached.
  void look() noexcept;

 private:
  struct part {
    std::size_t bytes;
    device::event behind;
  };
  void drop_first() noexcept;

  std::deque<part> parts_;
  std::size_t bytes_ = 0;
};

}  // namespace stash::detail
