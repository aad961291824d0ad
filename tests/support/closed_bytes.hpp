// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory that nobody may touch. Guards and slack lie in one block with what they guard, where a sanitizer by
/// itself sees neither reads nor writes of them. Knows no test framework.

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace stash_test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool bounds_are_watched = true;
#elif defined(__has_feature)
inline constexpr bool bounds_are_watched = __has_feature(address_sanitizer);
#else
inline constexpr bool bounds_are_watched = false;
#endif

/// Under the address sanitizer, reading or writing these bytes is an error while this lives. It watches whole
/// granules of eight bytes: where the data after them begin within one, that granule stays open.
class closed_bytes {
 public:
  closed_bytes(const void* begin, const void* end)
      : begin_(static_cast<const std::uint8_t*>(begin)), end_(static_cast<const std::uint8_t*>(end)) {
    close();
  }
  closed_bytes(closed_bytes&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), end_(std::exchange(other.end_, nullptr)) {}
  closed_bytes(const closed_bytes&) = delete;
  closed_bytes& operator=(const closed_bytes&) = delete;
  ~closed_bytes() { open(); }

  /// True if every byte has this value.
  bool are(std::uint8_t value) const {
    open();
    const bool all = std::all_of(begin_, end_, [value](std::uint8_t byte) { return byte == value; });
    close();
    return all;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  // Without the sanitizer both do nothing.
  void close() const { ASAN_POISON_MEMORY_REGION(begin_, size()); }
  void open() const { ASAN_UNPOISON_MEMORY_REGION(begin_, size()); }

  const std::uint8_t *begin_, *end_;
};

}  // namespace stash_test
