// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/deferred_free.hpp"

#include <exception>
#include <utility>

#include "runtime/memory/quiet_waits.hpp"
#include "runtime/memory/stash_access.hpp"
#include "stash/error.hpp"

namespace stash::runtime {
namespace {

void deallocate(const kept_block& block, void* stream) noexcept {
  block.from->deallocate(block.data, block.bytes, stash_access::alignment, stream);
}

}  // namespace

deferred_free::~deferred_free() {
  while (!parts_.empty())
    drop_first();
}

bool deferred_free::add(const kept_block& block, std::size_t bytes, void* stream) noexcept {
  try {
    parts_.push_back({block, bytes, stream, nullptr});
    try {
      parts_.back().last_use = device::record_event(stream);
    } catch (...) {
      parts_.pop_back();
      throw;
    }
  } catch (const std::exception&) {
    return false;
  }
  bytes_ += bytes;
  kept_bytes_ += block.bytes;
  return true;
}

void deferred_free::keep(const kept_block& block, void* stream) noexcept {
  if (!add(block, block.bytes, stream)) deallocate(block, stream);
}

void deferred_free::note(std::size_t bytes, void* stream) noexcept {
  add({}, bytes, stream);
}

void deferred_free::release_until(std::size_t bytes, void* stream) {
  while (!parts_.empty() && (bytes_ > bytes || has_been_reached(parts_.front().last_use))) {
    part& first = parts_.front();
    device::wait_in_stream(stream, first.last_use);
    if (first.block.data != nullptr) free_part(first, stream);
    drop_first();
  }
}

void deferred_free::free_in(void* stream) noexcept {
  for (part& p : parts_) {
    if (p.block.data == nullptr) continue;
    try {
      if (p.stream != stream) device::wait_in_stream(stream, p.last_use);
      free_part(p, stream);
      const device::event last_use = device::record_event(stream);
      device::destroy_event(std::exchange(p.last_use, last_use));
      p.stream = stream;
    } catch (const std::exception&) {
      // Not ordered by the device, so by the host.
      if (p.block.data == nullptr) continue;
      wait_quietly_for(p.last_use);
      free_part(p, stream);
    }
  }
}

void deferred_free::free_part(part& p, void* stream) noexcept {
  const kept_block block = std::exchange(p.block, {});
  kept_bytes_ -= block.bytes;
  deallocate(block, stream);
}

void deferred_free::drop_first() noexcept {
  device::destroy_event(parts_.front().last_use);
  bytes_ -= parts_.front().bytes;
  parts_.pop_front();
}

}  // namespace stash::runtime
