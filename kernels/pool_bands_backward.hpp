#pragma once
/// \file
/// Backward max pooling of bands (pool_bands.hpp): dy and a byte for each window around it lie in shared
/// memory, the bytes from codes or found again in x. A thread goes down its columns as the stacks do; where a
/// window chose a cell is the same for all of them, and no window chose one outside of x.

#include <cstdint>
#include <type_traits>

#include "pool_bands.hpp"
#include "pool_bands_forward.hpp"
#include "pool_stacks_backward.hpp"

namespace stash::kernels {

/// A window's byte is its cell; this is added where no gradient goes there, or no such window exists.
inline constexpr std::uint32_t band_blocked = 16;

/// The bytes of the windows that a stretch needs: a row and a value more than it has, on either side.
struct band_cells {
  std::int64_t first;       ///< window of byte 0: a multiple of 8; before the map if negative
  std::int64_t begin, end;  ///< windows of the map that are needed
  std::uint32_t groups;     ///< of eight bytes

  STASH_DEVICE band_cells(const band_grid& grid, const band_stretch& stretch) {
    const std::int64_t before = std::int64_t{stretch.width} + 1;
    const auto stretch_first = static_cast<std::int64_t>(stretch.first);
    const std::int64_t wanted = stretch_first - before, behind = stretch_first + stretch.count + before;
    first = wanted >> 3 << 3;
    begin = wanted > 0 ? wanted : 0;
    end = behind < static_cast<std::int64_t>(grid.values) ? behind : static_cast<std::int64_t>(grid.values);
    // Four columns are read at once.
    groups = static_cast<std::uint32_t>(behind + 4 - first + 7) / group_elements;
  }
  STASH_DEVICE std::uint32_t place_of(std::int64_t window) const {
    return static_cast<std::uint32_t>(window - first);
  }
};

/// Of eight windows from `first` on: the gradients of which do not pass, a bit each. All of them are in the
/// map.
template <class Bits>
STASH_DEVICE std::uint32_t blocked_bits(const pool_job& job, const encoded_winners& source,
                                        std::uint64_t first, std::uint32_t count) {
  std::uint32_t bits = 0;
  switch (source.passing) {
    case pass_source::always:
    case pass_source::code:  // no_gradient is no cell
      break;
    case pass_source::plane:
      bits = ~std::uint32_t{source.plane[first / group_elements]};
      break;
    case pass_source::dense:
      STASH_NO_UNROLL
      for (std::uint32_t i = 0; i < count; ++i)
        bits |= (passes(static_cast<const Bits*>(source.y)[first + i], job.type, job.nan_wins) ? 0U : 1U)
                << i;
      break;
    case pass_source::cast:
      STASH_NO_UNROLL
      for (std::uint32_t i = 0; i < count; ++i)
        bits |= (cast_passes(job, source, first + i) ? 0U : 1U) << i;
      break;
  }
  return bits;
}

/// Four bits as the lowest ones of bytes.
STASH_DEVICE std::uint32_t bytes_of_bits(std::uint32_t bits) {
  return (bits & 15) * 0x00204081U & 0x01010101U;
}

/// Takes codes apart; whether one is the number of no cell. All threads come.
template <class Bits>
STASH_DEVICE bool load_band_cells(const pool_job& job, const band_grid& grid, const encoded_winners& source,
                                  const band_cells& cells, vector16* to) {
  bool corrupt = false;
  STASH_NO_UNROLL
  for (std::uint32_t group = thread_rank(); group < cells.groups; group += band_threads) {
    const std::int64_t first = cells.first + group * std::int64_t{group_elements};
    std::uint32_t codes = 0, blocked = 0xff;
    if (first >= 0 && first < static_cast<std::int64_t>(grid.values)) {
      const auto window = static_cast<std::uint64_t>(first);
      const unsigned count = group_length(grid.values, window / group_elements);
      codes = reinterpret_cast<const std::uint32_t*>(source.cells)[window / group_elements];
      blocked = blocked_bits<Bits>(job, source, window, count) | 0xff << count;
      const std::uint32_t known = count < group_elements ? (1U << 4 * count) - 1 : 0xffffffffU;
      corrupt = corrupt || any_beyond_cells(codes, source.passing, known);
    }
    const std::uint32_t even = codes & 0x0f0f0f0fU, odd = codes >> 4 & 0x0f0f0f0fU;
    vector8 bytes = {{pick_bytes(even, odd, 0x5140), pick_bytes(even, odd, 0x7362)}};
    if ((blocked & 0xff) != 0) {
      STASH_UNROLL
      for (unsigned i = 0; i < 2; ++i)
        bytes.word[i] |= bytes_of_bits(blocked >> 4 * i) * band_blocked;
    }
    reinterpret_cast<vector8*>(to)[group] = bytes;
  }
  return corrupt;
}

/// Whether a window at a border of x has the number of a cell outside of it. All threads come.
STASH_DEVICE bool any_band_cell_outside(const pool_job& job, const band_stretch& stretch,
                                        const band_cells& cells, const vector16* bytes) {
  const auto width = static_cast<std::int32_t>(stretch.width);
  const auto threads = static_cast<std::int32_t>(band_threads);
  const auto rank = static_cast<std::int32_t>(thread_rank());
  // Windows are counted from the stretch's first one.
  const auto at = [&](std::int64_t window) {
    return static_cast<std::int32_t>(window - static_cast<std::int64_t>(stretch.first));
  };
  const std::int32_t first = at(cells.first), begin = at(cells.begin), end = at(cells.end);
  const auto outside = [&](std::int32_t window, std::uint32_t outer_cells) {
    if (window < begin || window >= end) return false;
    const std::uint32_t cell = reinterpret_cast<const std::uint8_t*>(bytes)[window - first] & 15U;
    return (outer_cells >> cell & 1) != 0;
  };
  bool any = false;
  // The first and the last window of each row, from two rows above the stretch on.
  const auto rows =
      static_cast<std::int32_t>(small_quotient(static_cast<std::uint32_t>(end), job.columns.by_in)) + 4;
  STASH_NO_UNROLL
  for (std::int32_t k = rank; k < 2 * rows; k += threads) {
    const std::int32_t row = (k / 2 - 2) * width - static_cast<std::int32_t>(stretch.column);
    const std::int32_t window = row + k % 2 * (width - 1);
    any = outside(window, 0x49U << k % 2 * 2) || any;
  }
  // The last row of a plane and the first one of the next.
  const auto into_plane = static_cast<std::int32_t>(stretch.row * stretch.width + stretch.column);
  const auto planes_of = [&](std::int32_t windows) {
    return static_cast<std::int32_t>(small_quotient(
        small_quotient(static_cast<std::uint32_t>(windows), job.columns.by_in), job.rows.by_in));
  };
  const std::int32_t plane = static_cast<std::int32_t>(stretch.height) * width;
  const std::int32_t ahead = into_plane - 2 * width - 1;
  const std::int32_t begin_plane = ahead >= 0 ? 1 : -planes_of(-ahead - 1);
  const std::int32_t end_plane = planes_of(end + width + into_plane) + 1;
  STASH_NO_UNROLL
  for (std::int32_t k = rank; k < (end_plane - begin_plane) * 2 * width; k += threads) {
    const auto p =
        static_cast<std::int32_t>(small_quotient(static_cast<std::uint32_t>(k) / 2, job.columns.by_in));
    const std::int32_t window = k - p * 2 * width;
    any = outside((begin_plane + p) * plane - into_plane - width + window, window < width ? 0x1c0 : 7) || any;
  }
  return any;
}

/// The windows that winners have to be found for.
STASH_DEVICE band_rows searched_rows(const band_stretch& stretch, const band_cells& cells) {
  const auto count = static_cast<std::uint32_t>(cells.end - cells.begin);
  if (cells.begin == 0) return {count, 0, 0};
  // The first one lies a row and a value before the stretch.
  const bool carry = stretch.column == 0;
  return {count, stretch.row + 2 * stretch.height - (carry ? 2 : 1),
          carry ? stretch.width - 1 : stretch.column - 1};
}

/// Finds winners in a band of x, where the element of the first window is at `first`. All threads come.
template <class Bits>
STASH_DEVICE void find_band_cells(const pool_job& job, const band_grid& grid, bool relu,
                                  const band_stretch& stretch, const band_cells& cells,
                                  const band_rows& wanted, const vector16* band, std::uint32_t first,
                                  vector16* to) {
  using search_type = band_search<Bits>;
  constexpr unsigned per_word = 4 / sizeof(Bits);
  const std::uint32_t skipped = cells.place_of(cells.begin);
  auto* const all = reinterpret_cast<std::uint8_t*>(to);
  STASH_NO_UNROLL
  for (std::uint32_t i = thread_rank(); i < cells.groups * group_elements; i += band_threads) {
    if (i < skipped || i >= skipped + wanted.count) all[i] = band_blocked;
  }
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < grid.search.units; unit += band_threads) {
    const band_place<Bits> place(job, grid.search, stretch, wanted, unit);
    if (place.rows == 0) return;
    auto at = static_cast<std::uint32_t>(place.at);
    search_type search(band, first + at, place, stretch);
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < place.rows; row += 3) {
      STASH_UNROLL
      for (unsigned k = 0; k < 3; ++k) {
        if (row + k >= place.rows) break;
        typename search_type::row_maxima found;
        search.find(k, found);
        if (relu) {
          STASH_UNROLL
          for (unsigned w = 0; w < 2; ++w)
            found.cell[w] =
                select_bits(positive_masks<Bits>(found.value[w]), found.cell[w], found.number(band_blocked));
        }
        STASH_UNROLL
        for (unsigned i = 0; i < band_columns<Bits>; ++i) {
          // Before the first window numbers are very large.
          if (at + i >= wanted.count || i >= place.columns) continue;
          all[skipped + at + i] =
              static_cast<std::uint8_t>(found.cell[i / per_word] >> (8 * sizeof(Bits) * (i % per_word)));
        }
        at += stretch.width;
      }
    }
  }
}

/// What the windows of a thread's columns chose, and of one on either side, in a row.
template <class Bits>
STASH_DEVICE auto band_choices_at(const vector16* bytes, std::uint32_t place) {
  constexpr unsigned pairs = band_columns<Bits> / 2;
  stack_choices<band_columns<Bits>, 0x10001> chosen;
  const auto* const from = reinterpret_cast<const std::uint32_t*>(bytes) + place / 4;
  std::uint32_t word[pairs + 1];
  STASH_UNROLL
  for (unsigned i = 0; i < pairs + 1; ++i)
    word[i] = from[i];
  STASH_UNROLL
  for (unsigned i = 0; i < pairs; ++i)
    word[i] = funnel_right(word[i], word[i + 1], place % 4 * 8);
  chosen.word[0] = pick_bytes(word[0], 0, 0x4140);
  chosen.aligned[0] = pick_bytes(word[0], 0, 0x4241);
  chosen.word[1] = pick_bytes(word[0], 0, 0x4342);
  if constexpr (pairs == 2) {
    chosen.aligned[1] = pick_bytes(funnel_right(word[0], word[1], 24), 0, 0x4140);
    chosen.word[2] = pick_bytes(word[1], 0, 0x4140);
  }
  return chosen;
}

/// Gradients of a row of windows, exact but for NaN, whose sign may be lost.
template <class Bits>
STASH_DEVICE void floats_of_row(const band_row<Bits>& row, const element_type& type,
                                float (&values)[band_columns<Bits> + 2]) {
  STASH_UNROLL
  for (unsigned i = 0; i < band_row<Bits>::words; ++i) {
    if constexpr (sizeof(Bits) == 4) {
      values[i] = as_float(row.word[i]);
    } else if (type.bf16) {
      values[2 * i] = as_float(row.word[i] << 16);
      values[2 * i + 1] = as_float(row.word[i] & 0xffff0000U);
    } else {
      halves_to_floats(row.word[i], values + 2 * i);
    }
  }
}
/// Sums, none of which is NaN, as elements.
template <class Bits>
STASH_DEVICE vector8 words_of_sums(const float (&sums)[band_columns<Bits>], const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    return {{as_bits(sums[0]), as_bits(sums[1])}};
  } else if (type.bf16) {
    return {{floats_to_bfloats(sums[0], sums[1]), floats_to_bfloats(sums[2], sums[3])}};
  } else {
    return {{floats_to_halves(sums[0], sums[1]), floats_to_halves(sums[2], sums[3])}};
  }
}

/// Leaves the gradients of a block's stretch. Whether one has to be summed with care.
template <class Bits>
STASH_DEVICE bool gather_band(const pool_job& job, const band_grid& grid, const band_stretch& stretch,
                              const vector16* dy, std::uint32_t dy_first, const vector16* bytes,
                              std::uint32_t first_byte, vector16* to) {
  constexpr unsigned columns = band_columns<Bits>;
  std::uint32_t all = 0;
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < grid.sum.units; unit += band_threads) {
    std::uint32_t strip = unit;
    const std::uint32_t behind = take_small_digit(strip, grid.sum.groups) * columns;
    const std::uint32_t own_columns = stretch.width - behind;
    // Of the row above the row of windows.
    std::uint32_t at = behind + strip * grid.sum.rows * stretch.width;
    if (at >= stretch.count) break;
    std::uint32_t from_dy = dy_first + at - stretch.width - 1,
                  from_bytes = first_byte + at - stretch.width - 1;
    float open[2][columns] = {};
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < grid.sum.rows + 2; row += 2) {
      STASH_UNROLL
      for (unsigned r = 0; r < 2; ++r) {
        const std::uint32_t seen = row + r;
        if (seen >= grid.sum.rows + 2 || at >= stretch.count) break;
        band_row<Bits> gradients;
        gradients.load(dy, from_dy);
        float gradient[columns + 2];
        floats_of_row(gradients, job.type, gradient);
        const auto chosen = band_choices_at<Bits>(bytes, from_bytes);
        from_dy += stretch.width;
        from_bytes += stretch.width;
        chosen.add(1, gradient, open[1 - r]);
        if (seen >= 2) {
          chosen.add(0, gradient, open[r]);
          const vector8 sums = words_of_sums<Bits>(open[r], job.type);
          all = sum_of_words<Bits>(sum_of_words<Bits>(all, sums.word[0]), sums.word[1]);
          STASH_UNROLL
          for (unsigned i = 0; i < columns; ++i) {
            if (i >= own_columns) break;
            constexpr unsigned per_word = 4 / sizeof(Bits);
            reinterpret_cast<Bits*>(to)[at + i] =
                static_cast<Bits>(sums.word[i / per_word] >> (8 * sizeof(Bits) * (i % per_word)));
          }
          at += stretch.width;
        }
        STASH_UNROLL
        for (unsigned i = 0; i < columns; ++i)
          open[r][i] = 0;
        chosen.add(2, gradient, open[r]);
      }
    }
  }
  return is_nan_sum<Bits>(all);
}

/// The same by the way that keeps the bits of NaN.
template <class Bits, class Source>
STASH_DEVICE void gather_band_with_care(const pool_job& job, const band_stretch& stretch, const void* dy,
                                        const Source& source, vector16* to) {
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank(); at < stretch.count; at += band_threads) {
    const auto e = place_in_map<1, std::int32_t>(job, stretch.first + at, job.depth.by_in, job.rows.by_in,
                                                 job.columns.by_in);
    float sum[1] = {};
    gather<Bits, 1>(job, dy, source, e, sum);
    reinterpret_cast<Bits*>(to)[at] = result_from_f32<Bits>(sum[0], job.type);
  }
}

/// pool_backward() for windows of 3 x 3 one apart, a row and a column of padding on every side. Grid: blocks
/// for all stretches of dx.
template <class Bits, class Source>
STASH_KERNEL(band_threads, tuning::band_blocks)
pool_backward_bands(pool_job job, band_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr bool searched = std::is_same_v<Source, searched_winners>;
  STASH_SHARED(vector16, gradients, band_pieces + slack_pieces);
  STASH_SHARED(vector16, bytes, most_band_values<Bits> / 16 + slack_pieces);
  // Where x was, when winners have been found in it.
  STASH_SHARED(vector16, results, (searched ? band_pieces : stretch_pieces) + slack_pieces);
  STASH_SHARED(std::uint32_t, notes, band_threads / warp_lanes);
  const band_stretch stretch(job, grid);
  const band_cells cells(grid, stretch);
  const auto first = static_cast<std::int64_t>(stretch.first);
  const std::uint32_t before = stretch.width + 1;
  const shared_band around = shared_band::of<Bits>(first - before, stretch.count + 2 * before);
  bool careful = false;
  if constexpr (searched) {
    const band_rows wanted = searched_rows(stretch, cells);
    const shared_band x =
        shared_band::of<Bits>(cells.begin - wanted.before(stretch), wanted.needed(job, stretch));
    careful = is_nan_sum<Bits>(x.load<Bits>(source.x, grid.values, results));
    around.load<Bits>(dy, grid.values, gradients);
    sync_block();
    find_band_cells<Bits>(job, grid, source.relu, stretch, cells, wanted, results,
                          x.place_of<Bits>(cells.begin), bytes);
    sync_block();
  } else {
    careful = load_band_cells<Bits>(job, grid, source, cells, bytes);
    around.load<Bits>(dy, grid.values, gradients);
    sync_block();
    careful = any_band_cell_outside(job, stretch, cells, bytes) || careful;
    if (careful) atomic_or(&source.report->status, status_corrupt);
  }
  careful = gather_band<Bits>(job, grid, stretch, gradients, around.place_of<Bits>(first), bytes,
                              cells.place_of(first), results) ||
            careful;
  note_care(notes, careful);
  sync_block();
  if (any_care(notes)) {
    gather_band_with_care<Bits>(job, stretch, dy, source, results);
    sync_block();
  }
  store_band<Bits>(stretch, results, dx);
}

}  // namespace stash::kernels
