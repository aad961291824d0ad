// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

namespace stash::ptx {
namespace {

constexpr std::size_t gib = std::size_t{1} << 30, capacity = 8 * gib;
/// No address is given out twice, so that memory that was freed is not taken for other memory.
constexpr std::size_t address_space = 1024 * gib;
constexpr std::size_t alignment = 256, gap = 256;
/// As much as this is filled at either end of a block; more would make pages that nobody looks at.
constexpr std::size_t filled = std::size_t{1} << 20;
constexpr int pattern = 0xc3;

std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

/// Pages of the host, with one after them that nobody may touch.
class pages {
 public:
  explicit pages(std::size_t bytes) {
    if (bytes > address_space) return;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = round_up(bytes, page);
    void* const made = mmap(nullptr, usable + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return;
    if (usable > 0 && mprotect(made, usable, PROT_READ | PROT_WRITE) != 0) {
      munmap(made, usable + page);
      return;
    }
    begin_ = made;
    size_ = usable + page;
  }
  pages(pages&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  pages& operator=(pages&&) = delete;
  ~pages() {
    if (begin_ != nullptr) munmap(begin_, size_);
  }
  std::byte* data() const { return static_cast<std::byte*>(begin_); }

 private:
  void* begin_ = nullptr;
  std::size_t size_ = 0;
};

void fill(std::byte* data, std::size_t bytes) {
  const std::size_t part = std::min(bytes, filled);
  std::memset(data, pattern, part);
  std::memset(data + bytes - part, pattern, part);
}

struct block {
  pages backing;
  std::size_t bytes;
};

class memory {
 public:
  memory() {
    void* const made =
        mmap(nullptr, address_space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) throw std::runtime_error("the PTX machine: no space for addresses of the device");
    first_ = reinterpret_cast<std::uint64_t>(made);
    next_ = first_ + gap;
  }

  std::uint64_t allocate_device(std::size_t bytes) {
    const std::unique_lock lock(mutex_);
    const std::uint64_t address = next_;
    if (bytes > capacity - used_ || bytes + gap > first_ + address_space - address) return 0;
    if (!add(address, pages(bytes), bytes)) return 0;
    next_ = address + round_up(bytes + gap, alignment);
    used_ += bytes;
    return address;
  }

  std::uint64_t allocate_pinned(std::size_t bytes) {
    pages made(bytes);
    const auto address = reinterpret_cast<std::uint64_t>(made.data());
    const std::unique_lock lock(mutex_);
    return add(address, std::move(made), bytes) ? address : 0;
  }

  bool release(std::uint64_t begin) {
    const std::unique_lock lock(mutex_);
    const auto at = live_.find(begin);
    if (at == live_.end()) return false;
    if (is_device_address(begin)) used_ -= at->second.bytes;
    live_.erase(at);
    return true;
  }

  region find(std::uint64_t address) const {
    const std::shared_lock lock(mutex_);
    auto at = live_.upper_bound(address);
    if (at == live_.begin()) return {};
    --at;
    const region found{at->first, at->second.bytes, at->second.backing.data()};
    return address - found.address < found.bytes ? found : region{};
  }

  bool is_device_address(std::uint64_t address) const noexcept {
    return address >= first_ && address - first_ < address_space;
  }

  memory_in_use in_use() const {
    const std::shared_lock lock(mutex_);
    return {capacity - used_, capacity};
  }

 private:
  bool add(std::uint64_t address, pages backing, std::size_t bytes) {
    if (backing.data() == nullptr) return false;
    fill(backing.data(), bytes);
    live_.emplace(address, block{std::move(backing), bytes});
    return true;
  }

  mutable std::shared_mutex mutex_;
  std::uint64_t first_ = 0, next_ = 0;
  std::size_t used_ = 0;
  std::map<std::uint64_t, block> live_;
};

/// Never destroyed: static objects of a program may give memory back when it ends.
memory& all() {
  static auto& made = *new memory;
  return made;
}

}  // namespace

void* allocate_device(std::size_t bytes) {
  return reinterpret_cast<void*>(all().allocate_device(bytes));
}
void* allocate_pinned(std::size_t bytes) {
  return reinterpret_cast<void*>(all().allocate_pinned(bytes));
}
void fill_with_pattern(void* begin) noexcept {
  const auto address = reinterpret_cast<std::uint64_t>(begin);
  const region found = all().find(address);
  if (found.host != nullptr && found.address == address) fill(found.host, found.bytes);
}
bool release(void* begin) noexcept {
  return all().release(reinterpret_cast<std::uint64_t>(begin));
}
region region_of(std::uint64_t address) noexcept {
  return all().find(address);
}
bool is_device_address(std::uint64_t address) noexcept {
  return all().is_device_address(address);
}
memory_in_use device_memory_in_use() noexcept {
  return all().in_use();
}

}  // namespace stash::ptx
