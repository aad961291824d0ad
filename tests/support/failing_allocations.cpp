// SPDX-License-Identifier: Apache-2.0
#include "support/failing_allocations.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace {

std::atomic<std::int64_t> live{0};
thread_local std::int64_t until_failure = -1;
thread_local std::int64_t failures_left = 0;
thread_local bool has_failed = false;
thread_local std::int64_t calls = 0;

void* allocate_or_null(std::size_t bytes, std::size_t alignment) noexcept {
  ++calls;
  if (until_failure == 0 && failures_left > 0) {
    has_failed = true;
    --failures_left;
    return nullptr;
  }
  if (until_failure > 0) --until_failure;
  void* block = nullptr;
  if (posix_memalign(&block, std::max(alignment, sizeof(void*)), std::max<std::size_t>(bytes, 1)) != 0) {
    return nullptr;
  }
  live.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* block = allocate_or_null(bytes, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void release(void* block) noexcept {
  if (block != nullptr) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(block);
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__)
// The solver of linear programs loses memory where an allocation fails in it, and its objects are given up
// then (relaxation_clp.cpp).
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libClp.so\nleak:libCoinUtils.so\n";
}
#endif

// All of them: a sanitizer's runtime has its own of each, which must not meet ours.

void* operator new(std::size_t bytes) {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new[](std::size_t bytes) {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate_or_null(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept {
  release(block);
}
void operator delete[](void* block) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  release(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::align_val_t) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}
void operator delete(void* block, const std::nothrow_t&) noexcept {
  release(block);
}
void operator delete[](void* block, const std::nothrow_t&) noexcept {
  release(block);
}

namespace stash_test {

failing_allocation::failing_allocation(std::int64_t failing, std::int64_t count) {
  until_failure = failing;
  failures_left = count;
  has_failed = false;
}

failing_allocation::~failing_allocation() {
  until_failure = -1;
}

bool failing_allocation::failed() const {
  return has_failed;
}

std::int64_t allocations() {
  return calls;
}

std::int64_t live_blocks() {
  return live.load(std::memory_order_relaxed);
}

}  // namespace stash_test
