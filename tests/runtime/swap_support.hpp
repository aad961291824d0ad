// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Copies that are watched, held up or made to fail, and memory that runs out.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "runtime/swap/swap_core.hpp"
#include "stash/error.hpp"
#include "stash/swap.hpp"

namespace stash_test {

/// Sees every chunk that is copied.
class watcher {
 public:
  struct seen {
    bool out;
    std::string name;
    std::size_t offset, bytes;
    friend bool operator==(const seen&, const seen&) = default;
  };

  stash::runtime::swap_hook hook() { return {&watcher::before, this}; }

  /// Copies wait from now on, until open().
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  /// Until this many chunks have been seen since the start.
  void wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return chunks_.size() >= count; });
  }
  /// The chunk with this number from now on, from 0, fails.
  void fail_after(std::int64_t count) {
    const std::lock_guard lock(mutex_);
    left_ = count;
    failed_ = false;
  }
  bool failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }
  std::vector<seen> chunks() const {
    const std::lock_guard lock(mutex_);
    return chunks_;
  }
  /// Names of the tensors in one direction, in the order of their last chunks' beginning.
  std::vector<std::string> names(bool out) const {
    std::vector<std::string> all;
    for (const seen& chunk : chunks()) {
      if (chunk.out != out) continue;
      all.erase(std::remove(all.begin(), all.end(), chunk.name), all.end());
      all.push_back(chunk.name);
    }
    return all;
  }

 private:
  static void before(void* user, const stash::runtime::swap_chunk& chunk) {
    auto& self = *static_cast<watcher*>(user);
    std::unique_lock lock(self.mutex_);
    self.chunks_.push_back({chunk.out, std::string(chunk.name), chunk.offset, chunk.bytes});
    self.changed_.notify_all();
    self.changed_.wait(lock, [&] { return self.open_; });
    if (self.left_ >= 0 && self.left_-- == 0) {
      self.failed_ = true;
      throw stash::error(stash::errc::device_failure, "told to fail");
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<seen> chunks_;
  std::int64_t left_ = -1;
  bool open_ = true, failed_ = false;
};

/// Host memory of which the n-th block is not there.
class failing_memory final : public stash::memory_resource {
 public:
  explicit failing_memory(stash::memory_space space = stash::memory_space::host) : space_(space) {}
  void fail_after(std::int64_t count) {
    left_ = count;
    failed_ = false;
  }
  bool failed() const { return failed_; }
  std::size_t blocks_in_use() const { return blocks_; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment, void* /*stream*/) override {
    if (left_ >= 0 && left_-- == 0) {
      failed_ = true;
      return nullptr;
    }
    ++blocks_;
    return ::operator new (bytes, std::align_val_t{alignment});
  }
  void do_deallocate(void* data, std::size_t /*bytes*/, std::size_t alignment,
                     void* /*stream*/) noexcept override {
    --blocks_;
    ::operator delete (data, std::align_val_t{alignment});
  }
  stash::memory_space do_space() const noexcept override { return space_; }

  stash::memory_space space_;
  std::atomic<std::int64_t> left_{-1};
  std::atomic<bool> failed_{false};
  std::atomic<std::size_t> blocks_{0};
};

/// Bytes that differ from tensor to tensor and from position to position.
inline std::vector<std::uint8_t> make_bytes(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint8_t> bytes(count);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::uint8_t& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return bytes;
}

inline bool same_bytes(const void* data, const std::vector<std::uint8_t>& bytes) {
  return bytes.empty() || std::memcmp(data, bytes.data(), bytes.size()) == 0;
}

}  // namespace stash_test
