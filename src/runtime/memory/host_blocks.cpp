// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/host_blocks.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include "stash/error.hpp"

namespace stash::runtime {
namespace {

constexpr std::size_t alignment = 64;

}  // namespace

host_blocks::~host_blocks() {
  release_kept();
}

std::size_t host_blocks::rounded(std::size_t bytes) noexcept {
  // Sizes that nobody has are refused as they are.
  if (bytes > SIZE_MAX / 4) return bytes;
  const std::size_t step = std::max(alignment, std::bit_floor(bytes) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

host_block host_blocks::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (size > limit_ || in_use_ > limit_ - size) return {};
    kept_.reserve(kept_.size() + blocks_ + 1);
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const host_block& block) { return block.bytes == size; });
    in_use_ += size;
    ++blocks_;
    peak_ = std::max(peak_, in_use_);
    if (found != kept_.end()) {
      const host_block block = *found;
      *found = kept_.back();
      kept_.pop_back();
      kept_bytes_ -= size;
      return block;
    }
    if (kept_bytes_ > limit_ - in_use_) release_kept();
  }
  const auto allocated = [&]() -> unsigned char* {
    try {
      return static_cast<unsigned char*>(memory_->allocate(size, alignment));
    } catch (const error& e) {
      if (e.code() != errc::out_of_memory) throw;
      return nullptr;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  };
  host_block block{nullptr, size};
  try {
    block.data = allocated();
    if (block.data == nullptr) {
      {
        const std::lock_guard lock(mutex_);
        release_kept();
      }
      block.data = allocated();
    }
  } catch (...) {
    forget(size);
    throw;
  }
  if (block.data == nullptr) {
    forget(size);
    return {};
  }
  return block;
}

void host_blocks::forget(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
  --blocks_;
}

void host_blocks::give(host_block block) noexcept {
  if (block.data == nullptr) return;
  const std::lock_guard lock(mutex_);
  in_use_ -= block.bytes;
  --blocks_;
  kept_.push_back(block);
  kept_bytes_ += block.bytes;
}

std::size_t host_blocks::bytes_in_use() const noexcept {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::size_t host_blocks::peak_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void host_blocks::release_kept() noexcept {
  for (const host_block& block : kept_)
    memory_->deallocate(block.data, block.bytes, alignment);
  kept_.clear();
  kept_bytes_ = 0;
}

}  // namespace stash::runtime
