// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Where batches of tiles begin in a slot while several threads encode them, without any wait: the "decoupled
/// look-back" of Merrill and Garland (NVIDIA technical report NVR-2016-002). A thread publishes the size of
/// its own batch and adds up what the batches before it have published. What is missing there it can measure
/// itself, so a thread that has lost its processor holds up nobody.
///
/// A batch publishes in the table entry of the tile that follows it, whose offset is where the batch ends: in
/// the end the entry has the value that belongs there, and no other memory is needed.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "encoders/format/tile_entry.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {

class look_back {
 public:
  static constexpr std::int64_t tiles_of_batch = 8;

  /// Where a batch begins, if that can be said.
  struct found {
    enum class state : std::uint8_t { known, missing, full } what;
    std::uint64_t begin;   ///< where known: a byte of the slot, or beyond its end
    std::int64_t missing;  ///< the batch whose size has to be published first
  };

  /// Payloads take bytes [begin, end) of the slot.
  look_back(std::uint32_t* table, std::int64_t tiles, std::uint64_t begin, std::uint64_t end) noexcept
      : table_(table),
        tiles_(tiles),
        begin_(begin),
        // An end at the reach itself has no entry: that batch is left.
        end_(std::min(end, entry_reach - encoded_alignment)),
        left_(begin <= end_ ? tiles : 0),
        cursor_(begin) {
    for (std::int64_t number = 0; number + 1 < batches(); ++number)
      word(number).store(nothing, std::memory_order_relaxed);
  }

  std::int64_t batches() const noexcept { return (tiles_ + tiles_of_batch - 1) / tiles_of_batch; }
  std::int64_t first_tile(std::int64_t number) const noexcept { return number * tiles_of_batch; }
  std::int64_t end_tile(std::int64_t number) const noexcept {
    return std::min(tiles_, first_tile(number) + tiles_of_batch);
  }
  std::uint64_t slot_end() const noexcept { return end_; }

  /// The number of a batch for this thread; batches() or more if none is left.
  std::int64_t take() noexcept { return next_.fetch_add(1, std::memory_order_relaxed); }

  // Words say where things lie, and nothing that other threads have written there: relaxed order is enough.

  found find(std::int64_t number) const noexcept {
    std::uint64_t between = 0;
    for (std::int64_t before = number - 1; before >= 0; --before) {
      const std::uint32_t said = word(before).load(std::memory_order_relaxed);
      if (kind_of(said) == end_known) return {found::state::known, offset_of(said) + between, 0};
      if (kind_of(said) == beyond_slot) return {found::state::full, 0, 0};
      if (kind_of(said) != size_known) return {found::state::missing, 0, before};
      between += offset_of(said);
    }
    return {found::state::known, begin_ + between, 0};
  }

  /// Says how long a batch is. Any thread may, any number of times.
  void publish_size(std::int64_t number, std::uint64_t bytes) noexcept {
    if (number + 1 >= batches()) return;
    std::uint32_t expected = nothing;
    word(number).compare_exchange_strong(expected, make_entry(size_known, bytes), std::memory_order_relaxed);
  }
  /// Says where a batch ends, by the thread that took it. Returns false if that is beyond the slot's end: its
  /// tiles, and those of all later batches, are not placed here.
  bool publish_end(std::int64_t number, const found& start, std::uint64_t bytes) noexcept {
    const bool last = number + 1 == batches();
    const std::uint64_t end = start.begin + bytes;
    const bool fits = start.what == found::state::known && end <= end_;
    if (!last) {
      word(number).store(fits ? make_entry(end_known, end) : make_entry(beyond_slot, 0),
                         std::memory_order_relaxed);
    }
    if (fits && last) {
      cursor_ = end;
    } else if (!fits && start.what == found::state::known && start.begin <= end_) {
      left_ = first_tile(number);
      cursor_ = start.begin;
    }
    return fits;
  }

  // When all threads are done.

  /// The first tile that was not placed, or the count of tiles.
  std::int64_t left() const noexcept { return left_; }
  /// Where those before it end.
  std::uint64_t cursor() const noexcept { return cursor_; }

 private:
  // What a batch has published.
  static constexpr tile_location end_known = tile_location::slot;
  static constexpr tile_location beyond_slot = tile_location::arena;
  static constexpr tile_location size_known = tile_location::host;
  static constexpr std::uint32_t nothing = make_entry(tile_location::never_stored, 0);

  std::atomic_ref<std::uint32_t> word(std::int64_t number) const noexcept {
    return std::atomic_ref(table_[first_tile(number + 1)]);
  }

  std::uint32_t* table_;
  std::int64_t tiles_;
  std::uint64_t begin_, end_;
  // Written by the one thread whose batch is the last in the slot, or the first beyond it.
  std::int64_t left_;
  std::uint64_t cursor_;
  alignas(64) std::atomic<std::int64_t> next_{0};
};

}  // namespace stash::encoders
