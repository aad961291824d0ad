// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Device memory that the host cannot reach, and a count of what the host allocates between launches.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "simt/simt.hpp"
#include "support/failing_allocations.hpp"

namespace stash_test {

/// Memory that only kernels and its own calls can touch: anything else that follows a pointer into it dies at
/// once, as it would with a GPU. One at a time.
class closed_memory {
 public:
  closed_memory() {
    void* start = ::mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::uint8_t*>(start);
    current = this;
    simt::around_launches([] { current->enter(); }, [] { current->leave(); });
  }
  ~closed_memory() {
    simt::around_launches(nullptr, nullptr);
    current = nullptr;
    ::munmap(start_, capacity);
  }
  closed_memory(const closed_memory&) = delete;
  closed_memory& operator=(const closed_memory&) = delete;

  /// Zeros at a multiple of 256.
  std::uint8_t* take(std::size_t bytes) {
    const std::size_t begin = (used_ + 255) / 256 * 256;
    if (bytes > capacity - begin) throw std::bad_alloc();
    used_ = begin + bytes;
    return start_ + begin;
  }
  void write(void* to, const void* from, std::size_t bytes) {
    protect(PROT_READ | PROT_WRITE);
    std::memcpy(to, from, bytes);
    protect(PROT_NONE);
  }
  void clear(void* to, std::size_t bytes) {
    protect(PROT_READ | PROT_WRITE);
    std::memset(to, 0, bytes);
    protect(PROT_NONE);
  }
  template <class T>
  T read(const T* from) {
    protect(PROT_READ);
    const T value = *from;
    protect(PROT_NONE);
    return value;
  }

  void read(void* to, const void* from, std::size_t bytes) {
    protect(PROT_READ);
    std::memcpy(to, from, bytes);
    protect(PROT_NONE);
  }

  /// Calls of operator new in this thread so far, those of the emulator while a kernel runs left out.
  std::int64_t host_allocations() const { return allocations() - of_emulator_; }

 private:
  static constexpr std::size_t capacity = std::size_t{1} << 26;
  static inline closed_memory* current = nullptr;

  void enter() {
    protect(PROT_READ | PROT_WRITE);
    at_launch_ = allocations();
  }
  void leave() {
    of_emulator_ += allocations() - at_launch_;
    protect(PROT_NONE);
  }
  void protect(int how) { ::mprotect(start_, used_, how); }

  std::uint8_t* start_ = nullptr;
  std::size_t used_ = 0;
  std::int64_t at_launch_ = 0, of_emulator_ = 0;
};

}  // namespace stash_test
