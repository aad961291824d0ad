// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::runtime {
namespace {

constexpr std::size_t word_bytes = sizeof(std::uint64_t);

/// The pattern's word at a position. No byte of it is zero: zeros are what memory that was never filled holds
/// and what kernels write most often, so they always show.
std::uint64_t pattern_word(std::size_t index) noexcept {
  const std::uint64_t hashed = (std::uint64_t{index} + 1) * 0x9E3779B97F4A7C15U;
  return (hashed ^ (hashed >> 32)) | 0x0101010101010101U;
}

}  // namespace

arena::arena(std::size_t bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    const std::error_code reason(errno, std::generic_category());
    throw error(errc::out_of_memory,
                fmt::format("arena: bytes: expected memory for {} bytes, got: {}", bytes, reason.message()));
  }
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  // Kernels walk through all of it again and again: with large pages their addresses are found faster.
  // Systems that have none, or not now, go on with small ones.
  static_cast<void>(madvise(mapped, bytes, MADV_HUGEPAGE));
}

arena arena::in_file(const std::string& folder, std::size_t bytes) {
  arena result;
  if (bytes == 0) return result;
  const auto reason = [](int code) { return std::error_code(code, std::generic_category()).message(); };
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) {
    throw error(errc::io_failure,
                fmt::format("arena: folder: expected one that files can be made in, got {} ({})",
                            shortened(folder, 1024), reason(errno)));
  }
  // Space is reserved now: a page that finds none later would end the process.
  const int refused = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* mapped = MAP_FAILED;
  if (refused == 0) mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int code = refused != 0 ? refused : errno;
  close(file);
  if (mapped == MAP_FAILED) {
    throw error(errc::out_of_memory, fmt::format("arena: bytes: expected memory for {} bytes in {}, got: {}",
                                                 bytes, folder, reason(code)));
  }
  result.data_ = static_cast<std::byte*>(mapped);
  result.bytes_ = bytes;
  return result;
}

arena::arena(arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

arena& arena::operator=(arena&& other) noexcept {
  arena taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

arena::~arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void fill_pattern(std::byte* begin, std::byte* end) noexcept {
  const auto bytes = static_cast<std::size_t>(end - begin);
  const std::size_t words = bytes / word_bytes;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = pattern_word(i);
    std::memcpy(begin + i * word_bytes, &word, word_bytes);
  }
  const std::uint64_t last = pattern_word(words);
  if (bytes % word_bytes != 0) std::memcpy(begin + words * word_bytes, &last, bytes % word_bytes);
}

std::size_t touched_bytes(const std::byte* begin, const std::byte* end) noexcept {
  const auto bytes = static_cast<std::size_t>(end - begin);
  // Highest differing byte of the word at `index`, of which `present` bytes belong to the block; 0 if none
  // differs.
  const auto touched_in_word = [&](std::size_t index, std::size_t present) -> std::size_t {
    const std::uint64_t expected = pattern_word(index);
    std::uint64_t found = expected;
    std::memcpy(&found, begin + index * word_bytes, present);
    if (found == expected) return 0;
    std::byte a[word_bytes], b[word_bytes];
    std::memcpy(a, &expected, word_bytes);
    std::memcpy(b, &found, word_bytes);
    std::size_t highest = word_bytes;
    while (a[highest - 1] == b[highest - 1])
      --highest;
    return highest;
  };

  std::size_t index = bytes / word_bytes;
  if (const std::size_t rest = bytes % word_bytes; rest != 0) {
    if (const std::size_t touched = touched_in_word(index, rest); touched != 0)
      return index * word_bytes + touched;
  }
  while (index > 0) {
    --index;
    if (const std::size_t touched = touched_in_word(index, word_bytes); touched != 0) {
      return index * word_bytes + touched;
    }
  }
  return 0;
}

void poison(std::byte* begin, std::byte* end) noexcept {
  constexpr std::uint32_t signalling_nan = 0x7FA5A5A5;
  std::byte nan[sizeof signalling_nan];
  std::memcpy(nan, &signalling_nan, sizeof nan);
  // In step with the address, not with `begin`: any float aligned in memory then reads as the NaN.
  const auto aligned = [](const std::byte* p) {
    return reinterpret_cast<std::uintptr_t>(p) % sizeof nan == 0;
  };
  const auto poison_byte = [&](std::byte* p) { *p = nan[reinterpret_cast<std::uintptr_t>(p) % sizeof nan]; };
  while (begin != end && !aligned(begin))
    poison_byte(begin++);
  for (; end - begin >= static_cast<std::ptrdiff_t>(sizeof nan); begin += sizeof nan) {
    std::memcpy(begin, nan, sizeof nan);
  }
  while (begin != end)
    poison_byte(begin++);
}

}  // namespace stash::runtime
