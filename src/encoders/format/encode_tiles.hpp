// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The loops that encode the tiles of bitmap and csr, by one thread or by several.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "encoders/detail.hpp"
#include "encoders/format/look_back.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/tile_container.hpp"

namespace stash::encoders {

/// What encode_tiles() is given, for a tile: count(tile) and both(tile, payload).
template <class Count, class Both>
struct tile_steps {
  const Count& count;
  const Both& both;
};

/// The part of one thread in encoding a tensor by batches. A batch whose offset is known is encoded there.
/// Else it is encoded into a buffer on the stack, which tells how long it is, and is copied when the batches
/// before it have said so, too. Meanwhile the thread goes on with others. Where those before do not say so
/// for long, their threads have no processor, and this one counts for them.
template <class Steps>
class batch_worker {
 public:
  batch_worker(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
               const tile_placer& placer, look_back& order, const Steps& steps) noexcept
      : layout_(layout),
        input_(input),
        slot_(static_cast<std::uint8_t*>(output.data)),
        table_(placer.table()),
        order_(order),
        steps_(steps),
        copied_to_(destination_of_smaller(layout.elements)),
        bytes_of_batch_(look_back::tiles_of_batch * size_of_tile(tile_elements) + write_slack),
        most_waiting_(std::min(ring_.size(), sizeof payloads_ / bytes_of_batch_)) {}

  /// Takes batches until none is left. Returns the non-zeros of those that were placed.
  std::uint64_t run() noexcept {
    for (std::int64_t number = order_.take(); number < order_.batches(); number = order_.take())
      encode(number);
    while (waiting_ != 0)
      copy_oldest(true);
    finish_streams(copied_to_);
    return nonzeros_;
  }

 private:
  struct waiting_batch {
    std::int64_t number;
    std::uint64_t bytes;
    std::array<std::uint16_t, look_back::tiles_of_batch> nonzeros;
  };
  /// Two batches of csr's f32 values, or more of what is smaller.
  static constexpr std::size_t payload_capacity =
      2 * (look_back::tiles_of_batch * most_payload_bytes + write_slack);

  std::uint64_t size_of_tile(std::int64_t nonzeros) const noexcept {
    return pad16(layout_.payload_bytes(nonzeros));
  }
  std::uint8_t* payloads_of(std::size_t index) noexcept { return payloads_ + index * bytes_of_batch_; }

  void encode(std::int64_t number) noexcept {
    const look_back::found start = order_.find(number);
    if (start.what == look_back::found::state::full) return count(number, start);
    if (start.what == look_back::found::state::known && has_space(start.begin)) {
      encode_in_place(number, start);
    } else {
      encode_buffered(number);
    }
    while (waiting_ != 0 && copy_oldest(false)) {
    }
    if (waiting_ == most_waiting_) copy_oldest(true);
  }

  /// Where the slot is full only the fixed part is made now.
  void count(std::int64_t number, const look_back::found& start) noexcept {
    order_.publish_end(number, start, 0);
    for (std::int64_t tile = order_.first_tile(number); tile < order_.end_tile(number); ++tile)
      steps_.count(tile);
  }

  /// For any batch.
  bool has_space(std::uint64_t begin) const noexcept {
    return begin <= order_.slot_end() && order_.slot_end() - begin >= bytes_of_batch_;
  }
  /// Tile by tile. Where the next batch begins may become known to others before this one ends, so that
  /// nothing may be written past its end, as both() does: the last tile is copied there, and all are where
  /// the last one may be shorter than what is written past the others.
  void encode_in_place(std::int64_t number, const look_back::found& start) noexcept {
    const std::int64_t last = order_.end_tile(number) - 1;
    const bool others_in_place = is_long(last);
    std::uint8_t* const buffer = payloads_of((oldest_ + waiting_) % most_waiting_);
    std::uint64_t at = start.begin;
    for (std::int64_t tile = order_.first_tile(number); tile <= last; ++tile) {
      const bool in_place = tile != last && others_in_place;
      const std::int64_t nonzeros = steps_.both(tile, in_place ? slot_ + at : buffer);
      const std::size_t size = size_of_tile(nonzeros);
      if (!in_place) std::memcpy(slot_ + at, buffer, size);
      note_offset(tile, number, at);
      at += size;
      nonzeros_ += static_cast<std::uint64_t>(nonzeros);
    }
    order_.publish_end(number, start, at - start.begin);
  }
  /// A look at its first values is enough where they are not few.
  bool is_long(std::int64_t tile) const noexcept {
    const std::int64_t some = std::min<std::int64_t>(layout_.length(tile), tile_elements / 4);
    return size_of_tile(count_values(input_, tile * tile_elements, some)) >= write_slack;
  }

  void encode_buffered(std::int64_t number) noexcept {
    const std::size_t index = (oldest_ + waiting_) % most_waiting_;
    waiting_batch& batch = ring_[index];
    std::uint8_t* const payloads = payloads_of(index);
    ++waiting_;
    batch.number = number;
    batch.bytes = 0;
    const std::int64_t first = order_.first_tile(number);
    for (std::int64_t tile = first; tile < order_.end_tile(number); ++tile) {
      const std::int64_t nonzeros = steps_.both(tile, payloads + batch.bytes);
      batch.nonzeros[static_cast<std::size_t>(tile - first)] = static_cast<std::uint16_t>(nonzeros);
      batch.bytes += size_of_tile(nonzeros);
    }
    order_.publish_size(number, batch.bytes);
  }

  /// Returns false if its offset is not known yet, unless it has to be found.
  bool copy_oldest(bool has_to_be_found) noexcept {
    const waiting_batch& batch = ring_[oldest_];
    look_back::found start = order_.find(batch.number);
    while (start.what == look_back::found::state::missing) {
      if (!has_to_be_found) return false;
      order_.publish_size(start.missing, measure(start.missing));
      start = order_.find(batch.number);
    }
    if (order_.publish_end(batch.number, start, batch.bytes)) copy(batch, payloads_of(oldest_), start.begin);
    oldest_ = (oldest_ + 1) % most_waiting_;
    --waiting_;
    return true;
  }

  /// Only looks at the input: whoever has taken the batch may be at it.
  std::uint64_t measure(std::int64_t number) const noexcept {
    std::uint64_t bytes = 0;
    for (std::int64_t tile = order_.first_tile(number); tile < order_.end_tile(number); ++tile)
      bytes += size_of_tile(count_values(input_, tile * tile_elements, layout_.length(tile)));
    return bytes;
  }

  void copy(const waiting_batch& batch, const std::uint8_t* payloads, std::uint64_t begin) noexcept {
    std::uint64_t at = begin;
    const std::int64_t first = order_.first_tile(batch.number);
    for (std::int64_t tile = first; tile < order_.end_tile(batch.number); ++tile) {
      const std::uint16_t nonzeros = batch.nonzeros[static_cast<std::size_t>(tile - first)];
      note_offset(tile, batch.number, at);
      at += size_of_tile(nonzeros);
      nonzeros_ += nonzeros;
    }
    loops().copy(payloads, static_cast<std::int64_t>(batch.bytes), slot_ + begin, copied_to_);
  }

  /// The entry of a batch's first tile is where the batch before it says the same.
  void note_offset(std::int64_t tile, std::int64_t number, std::uint64_t at) noexcept {
    if (tile == 0 || tile != order_.first_tile(number)) table_[tile] = make_entry(tile_location::slot, at);
  }

  const tile_layout& layout_;
  const const_tensor_view& input_;
  std::uint8_t* slot_;
  std::uint32_t* table_;
  look_back& order_;
  const Steps& steps_;
  destination copied_to_;
  std::uint64_t bytes_of_batch_;
  std::uint64_t nonzeros_ = 0;
  std::size_t oldest_ = 0, waiting_ = 0;
  std::array<waiting_batch, 8> ring_;
  alignas(run_alignment) std::uint8_t payloads_[payload_capacity];
  std::size_t most_waiting_;
};

/// encode_tiles() by several threads. Returns the first of the tiles that are placed, but not written.
template <class Steps>
std::int64_t encode_batches(const tile_layout& layout, const const_tensor_view& input,
                            const encoded_view& output, tile_placer& placer, const execution_context& context,
                            const Steps& steps) {
  const std::int64_t tiles = layout.tiles();
  look_back order(placer.table(), tiles, placer.cursor(), placer.slot_end());
  std::atomic<std::uint64_t> nonzeros{0};
  // Whichever range comes first goes on until no batch is left: a thread ends once, not with each range.
  parallel_for(context, order.batches(), 8, [&](std::int64_t, std::int64_t) {
    batch_worker<Steps> worker(layout, input, output, placer, order, steps);
    nonzeros.fetch_add(worker.run(), std::memory_order_relaxed);
  });
  placer.placed(order.cursor(), nonzeros.load());
  const std::int64_t left = order.left();
  if (left == tiles) return left;
  const const_encoded_view counted{output.data, output.bytes, output.overflow, output.report};
  parallel_for(context, tiles - left, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = left + begin; tile < left + end; ++tile)
      placer.table()[tile] = static_cast<std::uint32_t>(count_tile(layout, counted, tile).count);
  });
  placer.place(left, tiles);
  return left;
}

/// encode_tiles() by the caller's thread. Where the slot is nearly full, tiles are encoded into a buffer on
/// the stack, so that nothing is written past them.
template <class Both>
void encode_alone(const tile_layout& layout, const encoded_view& output, tile_placer& placer,
                  const Both& both) {
  alignas(run_alignment) std::uint8_t buffer[most_payload_bytes + write_slack];
  auto* const slot = static_cast<std::uint8_t*>(output.data);
  const std::uint64_t most = pad16(layout.payload_bytes(tile_elements)) + write_slack;
  for (std::int64_t tile = 0; tile < layout.tiles(); ++tile) {
    const std::uint64_t begin = placer.cursor();
    const bool in_place = placer.slot_end() - begin >= most;
    placer.table()[tile] = static_cast<std::uint32_t>(both(tile, in_place ? slot + begin : buffer));
    placer.place(tile, tile + 1);
    if (!in_place) std::memcpy(slot + begin, buffer, placer.cursor() - begin);
  }
}

/// Encodes all tiles. count(tile, first, length) fills the tile's share of the fixed part and returns the
/// number of its non-zeros; write(tile, first, length, payload) writes the payload of a tile that was
/// counted, and pads it. both(tile, first, length, payload) does the two at once, and may write write_slack
/// more. All run concurrently for different tiles.
template <class Count, class Write, class Both>
void encode_tiles(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                  const execution_context& context, const Count& count, const Write& write,
                  const Both& both) {
  const std::int64_t tiles = layout.tiles();
  tile_placer placer(layout, output);
  const auto call = [&](const auto& body) {
    return [&](std::int64_t tile, auto... to) {
      return body(tile, tile * tile_elements, layout.length(tile), to...);
    };
  };
  const auto count_one = call(count);
  const auto write_one = call(write);
  const auto both_one = call(both);
  std::int64_t left = tiles;
  if (context.parallel_for == nullptr || tiles <= look_back::tiles_of_batch) {
    in_default_rounding([&] { encode_alone(layout, output, placer, both_one); });
  } else {
    const tile_steps<decltype(count_one), decltype(both_one)> steps{count_one, both_one};
    left = encode_batches(layout, input, output, placer, context, steps);
  }
  if (placer.place_overflow() || left < tiles) {
    parallel_for(context, tiles, 32, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t tile = from; tile < to; ++tile) {
        if (tile < left && placer.in_slot(tile)) continue;
        if (std::uint8_t* const payload = placer.payload(tile); payload != nullptr) write_one(tile, payload);
      }
    });
  }
  placer.report();
}

}  // namespace stash::encoders
