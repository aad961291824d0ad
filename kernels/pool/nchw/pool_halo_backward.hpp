// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling in halo tiles (pool_halo_tiles.hpp): dy and a byte for each window that covers the
/// tile lie in shared memory, the bytes from codes or found again in x. Of windows with stride 1 a thread
/// goes down its columns as in column tiles; where a window chose a tap is the same for all of them, and no
/// window chose one outside of x. Of windows with stride 2 it makes squares of two rows and two columns of
/// dx, which begin where windows do.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_column_backward.hpp"
#include "pool/nchw/pool_halo_taps.hpp"

namespace stash::kernels {

// Windows of 3 x 3 around each element: window number i is the one around element number i, and what is to
// the left, to the right, above and below lies 1 or a row's length away, across the ends of rows and planes.

/// What the windows of a thread's columns chose, and of one on either side, in a row.
STASH_DEVICE tap_choices<halo_columns, 0x10001> halo_choices_at(const vector16* bytes, std::uint32_t offset) {
  static_assert(halo_columns == 4);
  const auto* const from = reinterpret_cast<const std::uint32_t*>(bytes) + offset / 4;
  const std::uint32_t whole[3] = {from[0], from[1], from[2]};
  const std::uint32_t skipped = offset % 4 * 8;
  const std::uint32_t first = funnel_right(whole[0], whole[1], skipped);
  const std::uint32_t last = funnel_right(whole[1], whole[2], skipped);
  return {{pick_bytes(first, 0, 0x4140), pick_bytes(first, 0, 0x4342), pick_bytes(last, 0, 0x4140)},
          {pick_bytes(first, 0, 0x4241), pick_bytes(funnel_right(first, last, 24), 0, 0x4140)}};
}

/// Sums, none of which is NaN, as elements.
template <class Bits>
STASH_DEVICE void words_of_sums(const float (&sums)[halo_columns], const element_type& type,
                                std::uint32_t (&words)[halo_words<Bits>]) {
  STASH_UNROLL
  for (unsigned w = 0; w < halo_words<Bits>; ++w) {
    if constexpr (sizeof(Bits) == 4) {
      words[w] = as_bits(sums[w]);
    } else {
      words[w] = type.bf16 ? floats_to_bfloats(sums[2 * w], sums[2 * w + 1])
                           : floats_to_halves(sums[2 * w], sums[2 * w + 1]);
    }
  }
}
template <class Bits>
STASH_DEVICE std::uint32_t sum_of_all(std::uint32_t sum, const std::uint32_t (&words)[halo_words<Bits>]) {
  STASH_UNROLL
  for (unsigned w = 0; w < halo_words<Bits>; ++w)
    sum = sum_of_words<Bits>(sum, words[w]);
  return sum;
}

/// Where the windows of a tile are.
struct halo_maps {
  const vector16* dy;
  const vector16* bytes;
  std::uint32_t first_dy, first_byte;  ///< of the window that is number 0 of the tile's first plane
};

/// Leaves the gradients of a block's tile, whose windows lie around each element. Whether one has to be
/// summed with care.
template <class Bits>
STASH_DEVICE bool gather_around(const pool_job& job, const halo_grid& grid, const out_tile& tile,
                                const halo_maps& maps, Bits* to) {
  constexpr unsigned columns = halo_columns;
  const auto width = static_cast<std::uint32_t>(job.columns.in);
  const std::uint32_t rows = grid.sum.rows + 2;
  const std::uint32_t into_plane = tile.row * width + tile.column;
  std::uint32_t all = 0;
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < grid.sum.units; unit += halo_threads) {
    std::uint32_t segment, group;
    grid.sum.find(unit, segment, group);
    const std::uint32_t column = group * columns;
    std::uint32_t at = column + segment * grid.sum.rows * width;
    // From the window above and to the left.
    std::uint32_t window = into_plane + at - width - 1;
    float open[2][columns] = {};  // of rows that are not complete
    STASH_NO_UNROLL
    for (std::uint32_t row = 0; row < rows && at < tile.count; row += 2) {
      STASH_UNROLL
      for (unsigned r = 0; r < 2; ++r) {
        if (row + r >= rows || at >= tile.count) break;
        halo_row<Bits, 3, 1> gradients;
        gradients.load(maps.dy, maps.first_dy + window);
        float gradient[columns + 2];
        floats_of_words<Bits>(gradients.word, job.type, gradient);
        const auto chosen = halo_choices_at(maps.bytes, maps.first_byte + window);
        window += width;
        chosen.add(1, gradient, open[1 - r]);
        if (row + r >= 2) {
          chosen.add(0, gradient, open[r]);
          std::uint32_t words[halo_words<Bits>];
          words_of_sums<Bits>(open[r], job.type, words);
          all = sum_of_all<Bits>(all, words);
          STASH_UNROLL
          for (unsigned i = 0; i < columns; ++i) {
            if (column + i >= width) break;
            to[at + i] = element_of_words<Bits>(words, i);
          }
          at += width;
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

/// A row of three neighbouring windows: what the first and the second chose, and the second and the third, in
/// the halves of words, and their gradients. Each pair is two squares': in each of them one has its
/// position.
struct square_windows {
  std::uint32_t earlier = both(halo_blocked), later = both(halo_blocked);
  float gradient[3] = {};

  /// Adds gradients to a value of each square, where the windows of a pair chose this tap.
  STASH_DEVICE void add_earlier(std::uint32_t tap, float& first, float& second) const {
    add_if_equal(first, second, gradient[0], gradient[1], earlier, both(tap));
  }
  STASH_DEVICE void add_later(std::uint32_t tap, float& first, float& second) const {
    add_if_equal(first, second, gradient[1], gradient[2], later, both(tap));
  }
};

/// Where windows do not overlap, a square has one: what two neighbours bring to the rows of theirs.
template <class Bits>
class lone_windows {
 public:
  /// Nothing where a window chose no tap, or is not there. A gradient at its position is what its sum with 0
  /// is, unless it is NaN, which `sum` tells.
  STASH_DEVICE void bring(unsigned n, std::uint32_t tap, std::uint32_t gradient, std::uint32_t& sum) {
    sum = sum_of_words<Bits>(sum, gradient);
    tap_[n] = tap;
    if constexpr (sizeof(Bits) == 4) {
      gradient_[n] = as_bits(0.0F + as_float(gradient));
    } else {
      gradient_[n] = (gradient & nonzero_masks(gradient)) << (tap % 2 * 16);
    }
  }
  STASH_DEVICE void row_of_squares(unsigned y, std::uint32_t (&words)[halo_words<Bits>]) const {
    STASH_UNROLL
    for (unsigned n = 0; n < 2; ++n) {
      if constexpr (sizeof(Bits) == 4) {
        words[2 * n] = tap_[n] == 2 * y ? gradient_[n] : 0;
        words[2 * n + 1] = tap_[n] == 2 * y + 1 ? gradient_[n] : 0;
      } else {
        words[n] = tap_[n] / 2 == y ? gradient_[n] : 0;
      }
    }
  }

 private:
  std::uint32_t tap_[2] = {halo_blocked, halo_blocked};
  std::uint32_t gradient_[2] = {};  ///< of 16 bits at the position of its column
};

/// gather_around() for windows with stride 2: two neighbouring squares, of two rows and two columns, of which
/// each begins where a window does.
template <class Bits, unsigned Kernel>
STASH_DEVICE bool gather_squares(const pool_job& job, const halo_grid& grid, const out_tile& tile,
                                 const halo_maps& maps, Bits* to) {
  constexpr unsigned columns = halo_columns;
  const auto width = static_cast<std::int32_t>(job.columns.in),
             height = static_cast<std::int32_t>(job.rows.in);
  const auto out_width = static_cast<std::int32_t>(job.columns.out);
  const auto out_height = static_cast<std::int32_t>(job.rows.out);
  const auto pad_top = static_cast<std::int32_t>(job.rows.pad),
             pad_left = static_cast<std::int32_t>(job.columns.pad);
  const auto plane_squares = static_cast<std::int32_t>(grid.squares.value);
  const auto* const gradients = reinterpret_cast<const Bits*>(maps.dy);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(maps.bytes);
  // Rows of squares from the one of the tile's first value to that of its last one.
  std::uint32_t last_plane = tile.last_row(job.columns.by_in);
  const std::uint32_t last_row = take_small_digit(last_plane, job.rows.by_in);
  const auto row_of = [&](std::uint32_t row) { return (row + static_cast<std::uint32_t>(pad_top)) / 2; };
  const std::uint32_t first_square = row_of(tile.row);
  const std::uint32_t squares =
      last_plane * static_cast<std::uint32_t>(plane_squares) + row_of(last_row) + 1 - first_square;
  std::uint32_t all = 0;
  STASH_NO_UNROLL
  for (std::uint32_t unit = thread_rank(); unit < grid.sum.units; unit += halo_threads) {
    std::uint32_t segment, group;
    grid.sum.find(unit, segment, group);
    const auto i = static_cast<std::int32_t>(group * (columns / 2));
    const std::uint32_t first = segment * grid.sum.rows;
    if (first >= squares) continue;
    std::uint32_t left = squares - first < grid.sum.rows ? squares - first : grid.sum.rows;
    std::uint32_t plane = first_square + first;
    auto j = static_cast<std::int32_t>(take_small_digit(plane, grid.squares));
    // The window before the one that begins where the first square does, and that square's first value. Both
    // may be elsewhere, where numbers are very large.
    auto window =
        static_cast<std::uint32_t>((static_cast<std::int32_t>(plane) * out_height + j) * out_width + i - 1);
    const std::int32_t column = 2 * i - pad_left;
    auto at = static_cast<std::uint32_t>(
        (static_cast<std::int32_t>(plane) * height + 2 * j - pad_top - static_cast<std::int32_t>(tile.row)) *
            width +
        column - static_cast<std::int32_t>(tile.column));
    // Columns that are not there have no rows of windows, and no values.
    std::int32_t rows_of_window[3];
    STASH_UNROLL
    for (std::int32_t n = 0; n < 3; ++n)
      rows_of_window[n] = i + n > 0 && i + n <= out_width ? out_height : 0;
    std::uint32_t is_column[columns];
    STASH_UNROLL
    for (unsigned x = 0; x < columns; ++x) {
      const std::int32_t own = column + static_cast<std::int32_t>(x);
      is_column[x] = anew(own >= 0 && own < width ? 1 : 0);
    }
    // Before and after the tile there is space for a row of squares.
    const auto store_row = [&](bool is_row, const std::uint32_t(&words)[halo_words<Bits>]) {
      constexpr unsigned before = columns - 1;
      store_selected(to + static_cast<std::int32_t>(at), words, is_column, at + before,
                     is_row ? tile.count + before : 0);
      at += static_cast<std::uint32_t>(width);
    };
    const auto windows_of = [&](std::int32_t row, std::uint32_t number) {
      square_windows windows;
      std::uint32_t tap[3];
      STASH_UNROLL
      for (unsigned n = 0; n < 3; ++n) {
        tap[n] = halo_blocked;
        if (row >= rows_of_window[n]) continue;
        tap[n] = bytes[maps.first_byte + number + n];
        windows.gradient[n] = float_of<Bits>(gradients[maps.first_dy + number + n], job.type);
      }
      windows.earlier = tap[0] | tap[1] << 16;
      windows.later = tap[1] | tap[2] << 16;
      return windows;
    };
    square_windows above;
    if (Kernel == 3 && j > 0) above = windows_of(j - 1, window - static_cast<std::uint32_t>(out_width));
    STASH_NO_UNROLL
    for (; left > 0; --left) {
      const std::int32_t top = 2 * j - pad_top;
      const bool is_row[2] = {top >= 0, top + 1 < height};
      if constexpr (Kernel == 2) {
        lone_windows<Bits> own;
        STASH_UNROLL
        for (unsigned n = 0; n < 2; ++n) {
          if (j >= rows_of_window[n + 1]) continue;
          own.bring(n, bytes[maps.first_byte + window + n + 1], gradients[maps.first_dy + window + n + 1],
                    all);
        }
        STASH_UNROLL
        for (unsigned y = 0; y < 2; ++y) {
          std::uint32_t words[halo_words<Bits>];
          own.row_of_squares(y, words);
          store_row(is_row[y], words);
        }
      } else {
        const square_windows own = windows_of(j, window);
        float sums[2][columns] = {};
        above.add_earlier(8, sums[0][0], sums[0][2]);
        above.add_later(6, sums[0][0], sums[0][2]);
        above.add_later(7, sums[0][1], sums[0][3]);
        own.add_earlier(2, sums[0][0], sums[0][2]);
        own.add_earlier(5, sums[1][0], sums[1][2]);
        above = own;
        STASH_UNROLL
        for (unsigned y = 0; y < 2; ++y) {
          STASH_UNROLL
          for (unsigned x = 0; x < 2; ++x)
            own.add_later(y * Kernel + x, sums[y][x], sums[y][x + 2]);
        }
        STASH_UNROLL
        for (unsigned y = 0; y < 2; ++y) {
          std::uint32_t words[halo_words<Bits>];
          words_of_sums<Bits>(sums[y], job.type, words);
          all = sum_of_all<Bits>(all, words);
          store_row(is_row[y], words);
        }
      }
      window += static_cast<std::uint32_t>(out_width);
      ++j;
      if (j == plane_squares) {
        at += static_cast<std::uint32_t>((height - 2 * j) * width);
        window += static_cast<std::uint32_t>((out_height - j) * out_width);
        j = 0;
        above = {};
      }
    }
  }
  return is_nan_sum<Bits>(all);
}

/// Gradients of a block's tile by the way that keeps the bits of NaN.
template <class Bits, class Source>
STASH_DEVICE void gather_tile_with_care(const pool_job& job, const out_tile& tile, const void* dy,
                                        const Source& source, Bits* to) {
  STASH_NO_UNROLL
  for (std::uint32_t at = thread_rank(); at < tile.count; at += halo_threads) {
    const auto e = position_in_map<1, std::int32_t>(job, tile.first + at, job.depth.by_in, job.rows.by_in,
                                                    job.columns.by_in);
    float sum[1] = {};
    gather<Bits, 1>(job, dy, source, e, sum);
    to[at] = result_from_f32<Bits>(sum[0], job.type);
  }
}

/// pool_backward() for windows of Kernel x Kernel: around each element, or with stride 2. Grid: blocks for
/// all tiles of dx.
template <class Bits, unsigned Kernel, unsigned Stride, class Source>
STASH_KERNEL(halo_threads, tuning::halo_blocks)
pool_backward_halo_tiles(pool_job job, halo_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr bool searched = std::is_same_v<Source, searched_argmaxes>, around = Stride == 1;
  constexpr halo_capacity capacity = backward_halo<Stride>;
  STASH_SHARED(vector16, gradients, capacity.read);
  STASH_SHARED(vector16, bytes, capacity.read / sizeof(Bits));
  // Rows of squares may also begin before the tile.
  constexpr unsigned before = around ? 0 : slack_vec16s;
  // Where x was, when argmaxes have been found in it.
  STASH_SHARED(vector16, made, before + (searched ? capacity.searched : capacity.made) + slack_vec16s);
  STASH_SHARED(std::uint32_t, notes, halo_threads / warp_lanes);
  auto* const values = reinterpret_cast<Bits*>(made + before);
  const out_tile tile(grid, job.columns.by_in, job.rows.by_in);
  const auto taps = halo_taps::covering<Kernel, Stride>(job, grid, tile);
  const halo_windows& windows = taps.windows;
  const shared_halo in_halo = shared_halo::holding<Bits>(
      taps.needed - 1, static_cast<std::uint32_t>(taps.needed_end - taps.needed) + 1);
  bool careful = false, corrupt = false;
  if constexpr (searched) {
    using search_type = halo_search<Bits, Kernel, Stride>;
    if (windows.count > 0) {
      const shared_halo of_x = search_type::halo_of(job, windows);
      careful = is_nan_sum<Bits>(of_x.load<Bits, capacity.searched>(source.x, grid.values, made));
      in_halo.load<Bits, capacity.read>(dy, grid.read_values, gradients);
      sync_block();
      find_halo_taps<search_type>(job, grid.search, source.relu, taps, made, of_x,
                                  reinterpret_cast<std::uint8_t*>(bytes));
    }
  } else {
    corrupt = load_halo_taps<Bits, square_tap_bits<Kernel>>(job, source, taps, bytes);
    in_halo.load<Bits, capacity.read>(dy, grid.read_values, gradients);
  }
  sync_block();
  const std::int64_t plane = static_cast<std::int64_t>(tile.plane) * job.rows.out * job.columns.out;
  const halo_maps maps{gradients, bytes, in_halo.index_of<Bits>(plane), taps.index_of(plane)};
  if constexpr (!searched) {
    corrupt =
        any_halo_tap_outside<Kernel>(job, taps, reinterpret_cast<const std::uint8_t*>(bytes)) || corrupt;
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
  if constexpr (around) {
    // There a tap outside of x would be one of another row or plane.
    careful = careful || corrupt;
    careful = gather_around<Bits>(job, grid, tile, maps, values) || careful;
  } else {
    careful = gather_squares<Bits, Kernel>(job, grid, tile, maps, values) || careful;
  }
  note_care(notes, careful);
  sync_block();
  if (any_care(notes)) {
    gather_tile_with_care<Bits>(job, tile, dy, source, values);
    sync_block();
  }
  store_out_tile<Bits, capacity.made>(tile, made + before, dx);
}

}  // namespace stash::kernels
