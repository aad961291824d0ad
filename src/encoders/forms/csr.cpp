// SPDX-License-Identifier: Apache-2.0
#include "stash/csr.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "encoders/device/backend.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/encode_tiles.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/values.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/public_call.hpp"

namespace stash::encoders {
namespace {

constexpr std::int64_t rows_per_tile = tile_elements / csr_row_elements;
constexpr std::int64_t row_mask_bytes = csr_row_elements / 8;

/// The row ends of one tile, checked.
struct tile_rows {
  std::int64_t rows = 0;
  std::array<std::int64_t, rows_per_tile> end{};
  bool legal = true;

  std::int64_t count() const noexcept { return end[static_cast<std::size_t>(rows - 1)]; }
};

tile_rows read_rows(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile) noexcept {
  const auto* ends = static_cast<const std::uint8_t*>(input.data) + tile * rows_per_tile * 2;
  const std::int64_t length = layout.length(tile);
  tile_rows result;
  result.rows = (length + csr_row_elements - 1) / csr_row_elements;
  std::int64_t begin = 0;
  for (std::int64_t row = 0; row < result.rows; ++row) {
    std::uint16_t end;
    std::memcpy(&end, ends + row * 2, 2);
    const std::int64_t most = std::min(csr_row_elements, length - row * csr_row_elements);
    if (end < begin || end - begin > most) result.legal = false;
    result.end[static_cast<std::size_t>(row)] = begin = end;
  }
  return result;
}

/// True if a column lies beyond the end of its row, as it can in the last, shorter one.
bool any_column_past_row(const std::uint8_t* columns, std::int64_t count, std::int64_t row_length) noexcept {
  if (row_length == csr_row_elements) return false;
  return std::any_of(columns, columns + count, [=](std::uint8_t column) { return column >= row_length; });
}

/// How far ahead of a tile's values and of its rows to fetch, in elements.
struct row_distances {
  std::ptrdiff_t packed, row;
};

/// Puts the values of a row at their columns, and +0 elsewhere. One by one, at two stores a cycle, that is
/// faster than to make a mask of the columns and to spread the values over it; but not past the caches, where
/// reading the row back would have to wait for what waits for memory.
void fill_row(const float* packed, const std::uint8_t* columns, std::int64_t count, float* row,
              std::int64_t row_length, const row_distances& ahead) noexcept {
  constexpr std::int64_t step = 16;  // a line of values
  for (std::int64_t i = 0; i < row_length; i += step)
    fetch_line_to_write(row + ahead.row + i);
  for (std::int64_t i = 0; i < count; i += 64)
    fetch_line(columns + prefetch_distance + i);
  std::fill_n(row, row_length, 0.0F);
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    fetch_line(packed + ahead.packed + i);
    for (std::int64_t j = i; j < i + step; j += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, columns + j, sizeof eight);
      for (std::int64_t k = 0; k < 8; ++k)
        row[eight >> (8 * k) & 0xff] = packed[j + k];
    }
  }
  for (; i < count; ++i)
    row[columns[i]] = packed[i];
}

/// Fetches the columns of a tile that is decoded soon. Where nobody reads the values between them, processors
/// do not see what comes next.
void fetch_columns(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile) noexcept {
  if (tile >= layout.tiles()) return;
  const tile_contents contents = count_csr_tile(layout, input, tile);
  if (contents.count == 0) return;
  std::uint32_t unused = status_ok;
  const std::uint8_t* payload = find_payload(layout, input, tile, contents.count, unused);
  if (payload == nullptr) return;
  const std::uint8_t* columns = payload + layout.values.bytes(contents.count);
  for (std::int64_t i = 0; i < contents.count; i += 64)
    fetch_line(columns + i);
}

}  // namespace

std::size_t csr_row_end_bytes(std::int64_t elements) noexcept {
  return pad16(static_cast<std::size_t>((elements + csr_row_elements - 1) / csr_row_elements) * 2);
}

void encode_csr(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                const execution_context& context) {
  auto* row_ends = reinterpret_cast<std::uint16_t*>(output.data);
  const std::int64_t rows = (layout.elements + csr_row_elements - 1) / csr_row_elements;
  std::memset(row_ends + rows, 0, layout.table_offset - static_cast<std::size_t>(rows) * 2);

  const run_loops& fast = loops();
  const auto flag = [&](nonzero_bits found) {
    if (found.any_not_positive) or_bits(output.report->flags, flag_mask_is_not_sign);
  };
  const auto count = [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float buffer[tile_elements];
    std::uint8_t bits[tile_elements / 8];
    const nonzero_bits found = fast.find_nonzero(read_values(input, first, length, buffer), length, bits);
    flag(found);
    std::int64_t end = 0;
    for (std::int64_t row = 0; row * csr_row_elements < length; ++row) {
      end += fast.count_bits(bits + row * row_mask_bytes,
                             std::min(csr_row_elements, length - row * csr_row_elements));
      row_ends[tile * rows_per_tile + row] = static_cast<std::uint16_t>(end);
    }
    return found.count;
  };
  const bool as_they_are = layout.values.format == value_format::source && layout.values.source == dtype::f32;
  const auto fill = [&](std::int64_t tile, std::int64_t first, std::int64_t length, std::uint8_t* payload,
                        bool may_write_past) {
    alignas(run_alignment) float buffer[tile_elements];
    alignas(run_alignment) float packed[tile_elements + packed_slack];
    alignas(run_alignment) std::uint8_t columns[tile_elements + packed_slack];
    const bool in_place = as_they_are && may_write_past;
    const nonzero_bits found = fast.find_and_list(read_values(input, first, length, buffer), length,
                                                  in_place ? reinterpret_cast<float*>(payload) : packed,
                                                  columns, row_ends + tile * rows_per_tile);
    flag(found);
    if (found.count == 0) return found.count;
    if (!in_place) layout.values.store(packed, found.count, payload);
    std::memcpy(payload + layout.values.bytes(found.count), columns, static_cast<std::size_t>(found.count));
    pad_payload(payload, layout.payload_bytes(found.count));
    return found.count;
  };
  const auto write = [&](std::int64_t tile, std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    fill(tile, first, length, payload, false);
  };
  const auto both = [&](std::int64_t tile, std::int64_t first, std::int64_t length, std::uint8_t* payload) {
    return fill(tile, first, length, payload, true);
  };
  encode_tiles(layout, input, output, context, count, write, both);
}

tile_contents count_csr_tile(const tile_layout& layout, const const_encoded_view& input,
                             std::int64_t tile) noexcept {
  const tile_rows rows = read_rows(layout, input, tile);
  if (!rows.legal) return {0, status_corrupt};
  return {rows.count(), status_ok};
}

tile_contents decode_csr_tile(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile,
                              float* values, std::uint8_t* present) noexcept {
  const std::int64_t length = layout.length(tile);
  tile_contents contents{0, status_ok};
  const auto nothing = [&](std::uint32_t status) {
    if (values != nullptr) std::memset(values, 0, static_cast<std::size_t>(length) * sizeof(float));
    if (present != nullptr) std::memset(present, 0, static_cast<std::size_t>((length + 7) / 8));
    return tile_contents{0, status};
  };
  if (values == nullptr) fetch_columns(layout, input, tile + 4);
  const tile_rows rows = read_rows(layout, input, tile);
  if (!rows.legal) return nothing(status_corrupt);
  const std::int64_t count = rows.count();
  if (count == 0) return nothing(status_ok);
  const std::uint8_t* payload = find_payload(layout, input, tile, count, contents.status);
  if (payload == nullptr) return nothing(contents.status);

  const run_loops& fast = loops();
  const std::uint8_t* columns = payload + layout.values.bytes(count);
  alignas(run_alignment) float buffer[tile_elements + packed_slack];
  const float* packed = values == nullptr ? nullptr : packed_values(layout, input, payload, count, buffer);
  constexpr auto size = static_cast<std::ptrdiff_t>(sizeof(float));
  const row_distances ahead{fetch_distance(packed) / size, fetch_distance(values) / size};
  std::int64_t begin = 0;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const std::int64_t first = row * csr_row_elements;
    const std::int64_t row_length = std::min(csr_row_elements, length - first);
    const std::int64_t in_row = rows.end[static_cast<std::size_t>(row)] - begin;
    if (any_column_past_row(columns + begin, in_row, row_length)) return nothing(status_corrupt);
    // What a row with columns out of order says is nowhere written, but all back ends make the same of it.
    const bool in_order = values == nullptr || fast.columns_rise(columns + begin, in_row);
    std::uint8_t unused[row_mask_bytes];
    std::uint8_t* const row_bits = present == nullptr ? unused : present + row * row_mask_bytes;
    if (present != nullptr || !in_order) fast.mark_columns(columns + begin, in_row, row_bits);
    if (!in_order) {
      fast.expand(packed + begin, row_bits, row_length, values + first, destination::caches);
    } else if (values != nullptr) {
      fill_row(packed + begin, columns + begin, in_row, values + first, row_length, ahead);
    }
    begin += in_row;
  }
  contents.count = count;
  return contents;
}

}  // namespace stash::encoders

namespace stash {

namespace {

/// Entries past the last element are not written.
void check_export_overlap(std::string_view function, const encoded_tensor& input, const csr32_view& output) {
  using namespace encoders;
  const std::int64_t elements = input.elements();
  const auto entries = static_cast<std::size_t>(std::clamp<std::int64_t>(output.capacity, 0, elements));
  const auto rows = static_cast<std::size_t>((elements + csr_row_elements - 1) / csr_row_elements);
  call_memory memory(function);
  accesses_of_stored("input", input.how, output.type, elements, input.bytes, use::read, use::read,
                     [&memory](const memory_access& p) { memory.add(p); });
  memory.writes("output.row_offsets", output.row_offsets, (rows + 1) * sizeof(std::uint32_t))
      .writes("output.columns", output.columns, entries * sizeof(std::uint32_t))
      .writes("output.values", output.values, entries * size_of(output.type));
}

/// How many entries the row ends tell; fails if they fall, or if there is no memory for so many. How many lie
/// before each tile is known only from the row ends, so they are looked at first.
std::int64_t counted_entries(std::string_view function, const encoders::tile_layout& layout,
                             const const_encoded_view& input, const csr32_view& output) {
  using namespace encoders;
  std::int64_t total = 0;
  for (std::int64_t tile = 0; tile < layout.tiles(); ++tile) {
    const tile_contents contents = count_csr_tile(layout, input, tile);
    if (contents.status != status_ok) {
      fail(errc::corrupt_data, function, "input", "row ends that do not fall",
           fmt::format("others in tile {}", tile));
    }
    total += contents.count;
  }
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  if (total > output.capacity || total > most) {
    fail(errc::capacity_exceeded, function, "output.capacity",
         fmt::format("at least {} entries, and at most {} in all", total, most),
         fmt::format("{}", output.capacity));
  }
  if (total != 0 && (output.columns == nullptr || output.values == nullptr)) {
    fail(errc::invalid_argument, function, "output", "arrays of columns and values", "a null pointer");
  }
  return total;
}

/// Row offsets, columns and values of one tile, which has so many entries before it; returns its own.
std::int64_t export_tile(const encoders::tile_layout& layout, const const_encoded_view& input,
                         std::int64_t tile, std::int64_t before, const csr32_view& output) {
  using namespace encoders;
  alignas(run_alignment) float values[tile_elements];
  std::uint8_t present[tile_elements / 8];
  const tile_rows rows = read_rows(layout, input, tile);
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    output.row_offsets[tile * rows_per_tile + row + 1] =
        static_cast<std::uint32_t>(before + rows.end[static_cast<std::size_t>(row)]);
  }
  const tile_contents contents = decode_csr_tile(layout, input, tile, values, present);
  or_bits(input.report->status, contents.status);
  // What cannot be read, or came twice, leaves zeros.
  const std::int64_t count = rows.count();
  if (count == 0) return 0;
  const tensor_view target{
      static_cast<std::uint8_t*>(output.values) + static_cast<std::size_t>(before) * size_of(output.type),
      output.type, memory_space::host, shape{count}, 0};
  alignas(run_alignment) float buffer[tile_elements];
  float* kept = value_target(target, 0, buffer);
  std::int64_t at = 0;
  const auto put = [&](std::int64_t column, float value) {
    output.columns[before + at] = static_cast<std::uint32_t>(column);
    kept[at++] = value;
  };
  for (std::int64_t i = 0; contents.status == status_ok && i < layout.length(tile) && at < count; ++i) {
    if ((present[i / 8] >> (i % 8) & 1) != 0) put(i % csr_row_elements, values[i]);
  }
  while (at < count)
    put(0, 0.0F);
  write_values(target, 0, count, kept,
               layout.values.format == value_format::source ? rounding::exact : rounding::stored);
  return count;
}

}  // namespace

std::int64_t csr_export32(const encoded_tensor& tensor, const csr32_view& output,
                          const execution_context& context) try {
  using namespace encoders;
  constexpr std::string_view function = "csr_export32";
  check_context(function, context);
  const encoding& e = tensor.how;
  const const_encoded_view& input = tensor.bytes;
  const std::int64_t elements = tensor.elements();
  check_known(function, e);
  if (e.kind != encoding_kind::csr) fail(errc::invalid_argument, function, "encoding", "csr", to_string(e));
  checked_bytes_bound(function, "output.type", e, output.type, elements);
  if (tensor.type != output.type) {
    fail(errc::invalid_argument, function, "output.type", type_name(tensor.type), type_name(output.type));
  }
  const tile_layout layout = layout_of(e, output.type, elements);
  check_encoded(function, "input", input, elements == 0 ? 0 : layout.fixed_bytes());
  check_arena(function, "input", input.overflow, context.space);
  if (output.row_offsets == nullptr) {
    fail(errc::invalid_argument, function, "output.row_offsets", "an array", "a null pointer");
  }
  check_export_overlap(function, tensor, output);
  if (on_device(context)) {
    if (output.capacity < 0 ||
        (output.capacity > 0 && (output.columns == nullptr || output.values == nullptr))) {
      fail(errc::invalid_argument, function, "output", "capacity for at least 0 entries, with arrays",
           fmt::format("capacity {}", output.capacity));
    }
    device::kernels().csr_export32(tensor, output, context);
    return -1;
  }

  const std::int64_t total = counted_entries(function, layout, input, output);
  output.row_offsets[0] = 0;
  in_default_rounding([&] {
    std::int64_t before = 0;
    for (std::int64_t tile = 0; tile < layout.tiles(); ++tile)
      before += export_tile(layout, input, tile, before, output);
  });
  return total;
} catch (...) {
  encoders::rethrow("csr_export32");
}

}  // namespace stash
