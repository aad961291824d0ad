// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One block of host memory for everything a planned step touches, and the means to see which part of it was
/// really touched: the block is filled with a pattern, and the highest byte that differs is looked for later
/// by code that knows nothing of plans.

#include <cstddef>
#include <cstdint>
#include <string>

namespace stash::runtime {

/// Move-only. The start is 64-byte aligned (page aligned in fact).
class arena {
 public:
  arena() = default;
  /// Maps `bytes` of zeroed memory; zero bytes make an empty arena with data() == nullptr. Throws
  /// error(out_of_memory) with the size.
  explicit arena(std::size_t bytes);
  /// The same over a file without a name in `folder`, which goes when the arena does. The system may write
  /// its pages out, and they do not count as data of the process (RLIMIT_DATA). Throws error(io_failure)
  /// naming the folder, or error(out_of_memory) if the file system has no space for `bytes`.
  static arena in_file(const std::string& folder, std::size_t bytes);
  arena(arena&& other) noexcept;
  arena& operator=(arena&& other) noexcept;
  ~arena();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Writes the pattern over [begin, end). It depends on the position relative to `begin` and holds no zero
/// byte.
void fill_pattern(std::byte* begin, std::byte* end) noexcept;

/// Number of bytes from `begin` up to and including the highest byte of [begin, end) that no longer holds
/// the pattern; 0 if all do. `begin` is that of fill_pattern. A byte that was overwritten with the value it
/// had is not seen.
std::size_t touched_bytes(const std::byte* begin, const std::byte* end) noexcept;

/// Overwrites [begin, end) with signalling NaNs (0x7FA5A5A5), so that a read of freed memory shows in
/// results. Any alignment: every float at an aligned address inside reads as the NaN.
void poison(std::byte* begin, std::byte* end) noexcept;

}  // namespace stash::runtime
