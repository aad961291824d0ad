// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/report_slots.hpp"

#include <cstddef>
#include <memory>
#include <mutex>

#include "stash/memory.hpp"

namespace stash::runtime {
namespace {

/// Holds a report while it is in use; otherwise the next free slot.
union slot {
  slot* next;
  encode_report report;
};
constexpr std::size_t page_bytes = 4096;

std::mutex mutex;
slot* free_slots = nullptr;

}  // namespace

report_slot::report_slot() {
  const std::lock_guard lock(mutex);
  if (free_slots == nullptr) {
    void* page = pinned_memory().allocate(page_bytes, alignof(slot));
    for (std::size_t i = 0; i < page_bytes / sizeof(slot); ++i) {
      free_slots = std::construct_at(static_cast<slot*>(page) + i, slot{.next = free_slots});
    }
  }
  slot* taken = free_slots;
  free_slots = taken->next;
  report_ = std::construct_at(&taken->report);
}

report_slot::~report_slot() {
  const std::lock_guard lock(mutex);
  free_slots = std::construct_at(reinterpret_cast<slot*>(report_), slot{.next = free_slots});
}

}  // namespace stash::runtime
