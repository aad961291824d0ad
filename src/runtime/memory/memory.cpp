// SPDX-License-Identifier: Apache-2.0
#include "stash/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>
#include <utility>

#include "encoders/detail.hpp"
#include "encoders/device/device_memory.hpp"
#include "encoders/public_call.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

/// What implementations see: blocks of 0 bytes have an address of their own too.
std::size_t real_size(std::size_t bytes) {
  return std::max<std::size_t>(bytes, 1);
}

class new_memory final : public memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment, void* /*stream*/) override {
    return ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
  }
  void do_deallocate(void* data, std::size_t /*bytes*/, std::size_t alignment,
                     void* /*stream*/) noexcept override {
    ::operator delete (data, std::align_val_t{alignment});
  }
};

class device_resource final : public memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/, void* stream) override {
    return encoders::device::allocate(bytes, stream);
  }
  void do_deallocate(void* data, std::size_t /*bytes*/, std::size_t /*alignment*/,
                     void* stream) noexcept override {
    encoders::device::deallocate(data, stream);
  }
  memory_space do_space() const noexcept override { return memory_space::device; }
};

class pinned_resource final : public memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/, void* /*stream*/) override {
    return encoders::device::allocate_pinned(bytes);
  }
  void do_deallocate(void* data, std::size_t /*bytes*/, std::size_t /*alignment*/,
                     void* /*stream*/) noexcept override {
    encoders::device::deallocate_pinned(data);
  }
  memory_space do_space() const noexcept override { return memory_space::pinned_host; }
};

/// Never destroyed: handles may outlive everything that is.
template <class Resource>
memory_resource& immortal() noexcept {
  alignas(Resource) static unsigned char storage[sizeof(Resource)];
  static auto* const resource = new (storage) Resource;
  return *resource;
}

}  // namespace

memory_resource::~memory_resource() = default;

void* memory_resource::allocate(std::size_t bytes, std::size_t alignment, void* stream) try {
  if (!std::has_single_bit(alignment)) {
    throw error(
        errc::invalid_argument,
        fmt::format("memory_resource::allocate: alignment: expected a power of two, got {}", alignment));
  }
  const auto fail = [&](std::string_view got) {
    throw error(errc::out_of_memory,
                fmt::format("memory_resource::allocate: bytes: expected memory for {} bytes "
                            "aligned to {}, got {}",
                            bytes, alignment, got));
  };
  // No allocator has such a block, but some round sizes up, past the largest number.
  constexpr std::size_t most = PTRDIFF_MAX;
  if (alignment > most || bytes > most - alignment) fail("none");
  void* data = nullptr;
  try {
    data = do_allocate(real_size(bytes), alignment, stream);
  } catch (const std::bad_alloc&) {
    data = nullptr;
  }
  if (data == nullptr) fail("none");
  // A caller's allocator that ignores the alignment would otherwise show as a crash in some vector loop.
  if (const std::size_t off = reinterpret_cast<std::uintptr_t>(data) % alignment; off != 0) {
    do_deallocate(data, real_size(bytes), alignment, stream);
    fail(fmt::format("a block {} bytes off", off));
  }
  return data;
} catch (...) {
  encoders::rethrow("memory_resource::allocate");
}

void memory_resource::deallocate(void* data, std::size_t bytes, std::size_t alignment,
                                 void* stream) noexcept {
  do_deallocate(data, real_size(bytes), alignment, stream);
}

memory_space memory_resource::space() const noexcept {
  return do_space();
}

memory_resource& host_memory() noexcept {
  return immortal<new_memory>();
}

memory_resource& device_memory() noexcept {
  return immortal<device_resource>();
}

memory_resource& pinned_memory() noexcept {
  return immortal<pinned_resource>();
}

void* pmr_memory::do_allocate(std::size_t bytes, std::size_t alignment, void* /*stream*/) {
  return upstream_->allocate(bytes, alignment);
}

void pmr_memory::do_deallocate(void* data, std::size_t bytes, std::size_t alignment,
                               void* /*stream*/) noexcept {
  upstream_->deallocate(data, bytes, alignment);
}

callback_memory::callback_memory(const memory_callbacks& callbacks) try : callbacks_(callbacks) {
  if (callbacks.allocate == nullptr || callbacks.deallocate == nullptr) {
    throw error(errc::invalid_argument,
                fmt::format("callback_memory: callbacks: expected two functions, got a null {}",
                            callbacks.allocate == nullptr ? "allocate" : "deallocate"));
  }
  if (!encoders::is_known(callbacks.space)) {
    throw error(
        errc::invalid_argument,
        fmt::format("callback_memory: callbacks.space: expected memory of the host or of a device, got "
                    "memory space {}",
                    static_cast<unsigned>(callbacks.space)));
  }
} catch (...) {
  encoders::rethrow("callback_memory");
}

void* callback_memory::do_allocate(std::size_t bytes, std::size_t alignment, void* stream) {
  return callbacks_.allocate(callbacks_.user, bytes, alignment, stream);
}

void callback_memory::do_deallocate(void* data, std::size_t bytes, std::size_t alignment,
                                    void* stream) noexcept {
  callbacks_.deallocate(callbacks_.user, data, bytes, alignment, stream);
}

std::size_t counting_memory::bytes_in_use() const noexcept {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t counting_memory::peak_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::size_t counting_memory::blocks_in_use() const noexcept {
  const std::lock_guard lock(mutex_);
  return blocks_;
}

void* counting_memory::do_allocate(std::size_t bytes, std::size_t alignment, void* stream) {
  const std::size_t before = [&] {
    const std::lock_guard lock(mutex_);
    if (bytes > limit_ || bytes_ > limit_ - bytes) throw std::bad_alloc();
    // Reserved before the call, so that two threads cannot pass the limit together.
    return std::exchange(bytes_, bytes_ + bytes);
  }();
  void* data = nullptr;
  try {
    data = upstream_->allocate(bytes, alignment, stream);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    bytes_ -= bytes;
    throw;
  }
  const std::lock_guard lock(mutex_);
  ++blocks_;
  peak_ = std::max(peak_, before + bytes);
  return data;
}

void counting_memory::do_deallocate(void* data, std::size_t bytes, std::size_t alignment,
                                    void* stream) noexcept {
  upstream_->deallocate(data, bytes, alignment, stream);
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  --blocks_;
}

}  // namespace stash
