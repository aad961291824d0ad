// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/report_slots.hpp"

#include <cstddef>
#include <memory>
#include <mutex>

#include "stash/memory.hpp"

namespace stash::detail {
namespace {

/// Before a report is in its place, and after: the next place that is free.
union place {
  place* next;
  encode_report report;
};
constexpr std::size_t page_bytes = 4096;

std::mutex mutex;
place* free_places = nullptr;

}  // namespace

report_slot::report_slot() {
  const std::lock_guard lock(mutex);
  if (free_places == nullptr) {
    void* page = pinned_memory().allocate(page_bytes, alignof(place));
    for (std::size_t i = 0; i < page_bytes / sizeof(place); ++i) {
      free_places = std::construct_at(static_cast<place*>(page) + i, place{.next = free_places});
    }
  }
  place* taken = free_places;
  free_places = taken->next;
  report_ = std::construct_at(&taken->report);
}

report_slot::~report_slot() {
  const std::lock_guard lock(mutex);
  free_places = std::construct_at(reinterpret_cast<place*>(report_), place{.next = free_places});
}

}  // namespace stash::detail
