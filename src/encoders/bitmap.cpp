#include <cmath>

#include "codecs.hpp"
#include "convert.hpp"
#include "detail.hpp"
#include "run_loops.hpp"

namespace stash::detail {
namespace {

// Bits 31..30 of a table entry; bits 29..0 are an offset in units of 16 bytes.
enum class place : std::uint32_t { slot = 0, arena = 1, host = 2, never_stored = 3 };

constexpr std::uint32_t offset_mask = (1u << 30) - 1;
constexpr std::uint64_t reach = std::uint64_t{1} << 34;  // what 30 bits of 16-byte units can address

constexpr std::uint32_t make_entry(place where, std::uint64_t bytes) noexcept {
  return (static_cast<std::uint32_t>(where) << 30) | static_cast<std::uint32_t>(bytes / 16);
}
constexpr place place_of(std::uint32_t entry) noexcept {
  return static_cast<place>(entry >> 30);
}
constexpr std::uint64_t offset_of(std::uint32_t entry) noexcept {
  return std::uint64_t{entry & offset_mask} * 16;
}

/// The part of a buffer that payloads can use.
constexpr std::uint64_t usable(std::uint64_t bytes) noexcept {
  return std::min(bytes / 16 * 16, reach);
}

std::size_t mask_bytes(std::int64_t elements) noexcept {
  return plane_bytes(elements, 1);
}
std::size_t table_bytes(std::int64_t elements) noexcept {
  return pad16(static_cast<std::size_t>(tile_count(elements)) * 4);
}

/// First pass: mask plane, flag, and every tile's count into its table entry.
void write_masks(const const_tensor_view& input, std::uint8_t* mask, std::uint32_t* table,
                 encode_report& report, const execution_context& context) {
  const run_loops& loops = fastest_loops();
  for_each_tile(context, input.elements(), [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    float buffer[tile_elements];
    const nonzero_bits found =
        loops.find_nonzero(read_run(input, first, length, buffer), length, mask + first / 8);
    table[tile] = found.count;
    if (found.any_not_positive) or_bits(report.flags, flag_mask_is_not_sign);
  });
}

/// Second pass: replaces the counts by places, in tile order.
void place_tiles(std::size_t width, std::int64_t tiles, std::size_t fixed_bytes, const encoded_view& output,
                 std::uint32_t* table) {
  const std::uint64_t slot_end = std::max<std::uint64_t>(usable(output.bytes), fixed_bytes);
  std::uint64_t nonzeros = 0;
  std::uint64_t cursor = fixed_bytes;
  std::uint64_t overflow = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::uint64_t size = pad16(table[tile] * width);
    nonzeros += table[tile];
    if (size <= slot_end - cursor) {
      table[tile] = make_entry(place::slot, cursor);
      cursor += size;
    } else {
      // The piece of the arena is claimed below, when its length is known: until then the entry carries
      // the tile's padded size, in the same units.
      table[tile] = make_entry(place::arena, size);
      overflow += size;
    }
  }
  encode_report& report = *output.report;
  add(report.nonzeros, nonzeros);
  add(report.slot_bytes, cursor);
  if (overflow == 0) return;

  const overflow_arena* arena = output.overflow;
  std::uint64_t end = 0;
  std::uint64_t limit = 0;
  if (arena != nullptr) {
    end = std::atomic_ref<std::uint64_t>(*arena->claimed).fetch_add(overflow, std::memory_order_relaxed);
    limit = usable(arena->bytes);
    add(report.overflow_bytes, overflow);
  }
  bool lost = false;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    if (place_of(table[tile]) != place::arena) continue;
    const std::uint64_t begin = end;
    end += offset_of(table[tile]);
    const bool fits = end <= limit;
    table[tile] = fits ? make_entry(place::arena, begin) : make_entry(place::never_stored, 0);
    lost |= !fits;
  }
  if (lost) or_bits(report.status, status_capacity);
}

/// Third pass: the payloads.
void write_payloads(const encoding& e, const const_tensor_view& input, const encoded_view& output,
                    const std::uint8_t* mask, const std::uint32_t* table, const execution_context& context) {
  const run_loops& loops = fastest_loops();
  auto* slot = static_cast<std::uint8_t*>(output.data);
  auto* arena = output.overflow == nullptr ? nullptr : static_cast<std::uint8_t*>(output.overflow->data);
  const std::size_t width = value_bytes(e.values);
  for_each_tile(context, input.elements(), [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    const place where = place_of(table[tile]);
    if (where == place::never_stored) return;
    const std::uint8_t* bits = mask + first / 8;
    const std::int64_t kept = loops.count_bits(bits, length);
    if (kept == 0) return;
    float buffer[tile_elements];
    float packed[tile_elements + packed_slack];
    loops.compact(read_run(input, first, length, buffer), bits, length, packed);
    std::uint8_t* payload = (where == place::slot ? slot : arena) + offset_of(table[tile]);
    store_values(packed, kept, e.values, e.underflow, payload);
    const std::size_t size = static_cast<std::size_t>(kept) * width;
    std::memset(payload + size, 0, pad16(size) - size);
  });
}

/// The payload of a tile with `size` > 0 padded bytes, or null and the reason in `status`.
const std::uint8_t* find_payload(const const_encoded_view& input, std::size_t fixed_bytes,
                                 std::uint32_t entry, std::size_t size, std::uint32_t& status) noexcept {
  const std::uint64_t offset = offset_of(entry);
  const std::uint8_t* base = nullptr;
  std::uint64_t limit = 0;
  switch (place_of(entry)) {
    case place::slot:
      base = static_cast<const std::uint8_t*>(input.data);
      limit = offset < fixed_bytes ? 0 : usable(input.bytes);
      break;
    case place::arena:
      if (input.overflow == nullptr) break;
      base = static_cast<const std::uint8_t*>(input.overflow->data);
      limit = usable(input.overflow->bytes);
      break;
    case place::host:
      break;
    case place::never_stored:
      status = status_capacity;
      return nullptr;
  }
  if (offset + size > limit) {
    status = status_corrupt;
    return nullptr;
  }
  return base + offset;
}

}  // namespace

std::size_t bitmap_fixed_bytes(std::int64_t elements) noexcept {
  return mask_bytes(elements) + table_bytes(elements);
}

std::size_t bitmap_bytes_bound(value_format values, std::int64_t elements) noexcept {
  // Full tiles are multiples of 16 bytes in every value format, so only the last one is padded.
  return bitmap_fixed_bytes(elements) + pad16(static_cast<std::size_t>(elements) * value_bytes(values));
}

std::size_t bitmap_bytes_at_density(value_format values, std::int64_t elements, double density) noexcept {
  const std::size_t width = value_bytes(values);
  const auto count =
      std::min(elements, static_cast<std::int64_t>(std::ceil(static_cast<double>(elements) * density)));
  // The worst spread: as many tiles as possible whose payload wastes all that padding can waste.
  const auto padded = static_cast<std::size_t>(std::min(count, tile_count(elements)));
  const std::size_t payloads = pad16(static_cast<std::size_t>(count) * width + padded * (16 - width));
  return std::min(bitmap_fixed_bytes(elements) + payloads, bitmap_bytes_bound(values, elements));
}

std::size_t bitmap_bytes_exact(value_format values, const const_tensor_view& input,
                               const execution_context& context) {
  const std::size_t width = value_bytes(values);
  std::atomic<std::size_t> payloads{0};
  for_each_tile(context, input.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    float buffer[tile_elements];
    const float* run = read_run(input, first, length, buffer);
    std::uint32_t count = 0;
    for (std::int64_t i = 0; i < length; ++i)
      count += std::bit_cast<std::uint32_t>(run[i]) != 0 ? 1U : 0U;
    payloads.fetch_add(pad16(count * width), std::memory_order_relaxed);
  });
  return bitmap_fixed_bytes(input.elements()) + payloads.load();
}

void encode_bitmap(const encoding& e, const const_tensor_view& input, const encoded_view& output,
                   const execution_context& context) {
  const std::int64_t elements = input.elements();
  const std::int64_t tiles = tile_count(elements);
  if (elements == 0) return;
  auto* mask = static_cast<std::uint8_t*>(output.data);
  auto* table = reinterpret_cast<std::uint32_t*>(mask + mask_bytes(elements));
  const std::size_t fixed_bytes = bitmap_fixed_bytes(elements);

  const auto mask_end = static_cast<std::size_t>((elements + 7) / 8);
  std::memset(mask + mask_end, 0, mask_bytes(elements) - mask_end);
  std::memset(table + tiles, 0, table_bytes(elements) - static_cast<std::size_t>(tiles) * 4);
  write_masks(input, mask, table, *output.report, context);
  place_tiles(value_bytes(e.values), tiles, fixed_bytes, output, table);
  write_payloads(e, input, output, mask, table, context);
}

std::uint32_t decode_bitmap_tile(value_format format, const const_encoded_view& input, std::int64_t elements,
                                 std::int64_t tile, std::int64_t length, float* values) noexcept {
  const auto* mask = static_cast<const std::uint8_t*>(input.data);
  const auto* tile_mask = mask + tile * (tile_elements / 8);
  const run_loops& loops = fastest_loops();
  const std::int64_t count = loops.count_bits(tile_mask, length);
  std::uint32_t status = status_ok;
  const std::uint8_t* payload = nullptr;
  if (count != 0) {
    std::uint32_t entry;
    std::memcpy(&entry, mask + mask_bytes(elements) + tile * 4, 4);
    const std::size_t size = pad16(static_cast<std::size_t>(count) * value_bytes(format));
    payload = find_payload(input, bitmap_fixed_bytes(elements), entry, size, status);
  }
  if (payload == nullptr) {
    std::memset(values, 0, static_cast<std::size_t>(length) * sizeof(float));
    return status;
  }
  float packed[tile_elements + packed_slack];
  load_values(payload, count, format, packed);
  std::fill_n(packed + count, packed_slack, 0.0F);
  loops.expand(packed, tile_mask, length, values);
  return status_ok;
}

void decode_bitmap(const encoding& e, const const_encoded_view& input, const tensor_view& output,
                   const execution_context& context) {
  const std::int64_t elements = output.elements();
  for_each_tile(context, elements, [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    float buffer[tile_elements];
    float* values = write_target(output, first, buffer);
    or_bits(input.report->status, decode_bitmap_tile(e.values, input, elements, tile, length, values));
    write_run(output, first, length, values);
  });
}

}  // namespace stash::detail
