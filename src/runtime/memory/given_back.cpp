// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/given_back.hpp"

#include <exception>
#include <utility>

#include "runtime/memory/quiet_waits.hpp"
#include "runtime/memory/stash_access.hpp"
#include "stash/error.hpp"

namespace stash::detail {
namespace {

void deallocate(const kept_block& block, void* stream) noexcept {
  block.from->deallocate(block.data, block.bytes, stash_access::alignment, stream);
}

}  // namespace

given_back::~given_back() {
  while (!parts_.empty())
    drop_first();
}

bool given_back::add(const kept_block& block, std::size_t bytes, void* stream) noexcept {
  try {
    parts_.push_back({block, bytes, stream, nullptr});
    try {
      parts_.back().behind = device::record_event(stream);
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

void given_back::keep(const kept_block& block, void* stream) noexcept {
  if (!add(block, block.bytes, stream)) deallocate(block, stream);
}

void given_back::note(std::size_t bytes, void* stream) noexcept {
  add({}, bytes, stream);
}

void given_back::make_room(std::size_t bytes, void* stream) {
  while (!parts_.empty() && (bytes_ > bytes || has_been_reached(parts_.front().behind))) {
    part& first = parts_.front();
    device::wait_in_stream(stream, first.behind);
    if (first.block.data != nullptr) give(first, stream);
    drop_first();
  }
}

void given_back::give_back_in(void* stream) noexcept {
  for (part& p : parts_) {
    if (p.block.data == nullptr) continue;
    try {
      if (p.stream != stream) device::wait_in_stream(stream, p.behind);
      give(p, stream);
      const device::event behind = device::record_event(stream);
      device::destroy_event(std::exchange(p.behind, behind));
      p.stream = stream;
    } catch (const std::exception&) {
      // Not ordered by the device, so by the host.
      if (p.block.data == nullptr) continue;
      wait_quietly_for(p.behind);
      give(p, stream);
    }
  }
}

void given_back::give(part& p, void* stream) noexcept {
  const kept_block block = std::exchange(p.block, {});
  kept_bytes_ -= block.bytes;
  deallocate(block, stream);
}

void given_back::drop_first() noexcept {
  device::destroy_event(parts_.front().behind);
  bytes_ -= parts_.front().bytes;
  parts_.pop_front();
}

}  // namespace stash::detail
