// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Where pixel tiles of pixels lie, and the search for the argmaxes of their windows of 3 x 3 with
/// stride 1 or 2, in NHWC. A pixel tile is one or two columns of x, from top to bottom or a part of
/// that; it is made row after row, and a thread has a vec16 (16 bytes) of its channels. It finds the argmaxes
/// of the windows that cover the pixel tile row by row; the maxima of rows of x that the next row of
/// windows has, too, stay in registers. So a row is searched once, but for those around a pixel tile's
/// ends. Columns are searched by every thread that has a window there, two or three. That costs less than to
/// wait for the argmaxes of another thread in shared memory, and takes any number of channels.

#include <cstdint>
#include <type_traits>

#include "common/divisor.hpp"
#include "common/elements.hpp"
#include "pool/nhwc/pool_pixel_shape.hpp"
#include "pool/pool_backward.hpp"
#include "pool/pool_codes.hpp"

namespace stash::kernels {

/// Columns of a pixel tile.
template <class Bits, unsigned Stride>
inline constexpr unsigned pixel_tile_columns = searched_tile_columns(sizeof(Bits), Stride);
/// Windows of a row that cover a pixel tile.
template <class Bits, unsigned Stride>
inline constexpr unsigned pixel_tile_windows =
    covering_windows<3, Stride, pixel_tile_columns<Bits, Stride>>::columns;
/// Windows that begin before a pixel tile's first pixel and cover it, along an axis.
template <unsigned Stride>
inline constexpr unsigned windows_before = 2 / Stride;

/// A map that pixel tiles are of.
struct pixel_tile_map {
  std::uint32_t step, row;  ///< bytes from pixel to pixel, and from row to row
};

/// How dx is cut into pixel tiles. All numbers of pixels and threads have 31 bits.
struct pixel_tile_grid {
  divisor vec16s;                        ///< of a pixel, those of neighbouring threads
  divisor tiles;                         ///< next to each other
  divisor parts;                         ///< of a pixel, of so many vec16s
  divisor groups;                        ///< pixel tiles below each other
  std::int32_t first_row, first_column;  ///< pixel_blocks
  std::uint32_t steps;                   ///< rows of windows that begin in a pixel tile: up to 32
  std::uint32_t units;                   ///< threads
  pixel_tile_map x, dx, y;
};

/// Where a pixel tile lies.
struct pixel_tile_position {
  std::uint32_t sample, vec16;
  std::int32_t row, column;  ///< the first tap of a window, which may be before x
};
template <unsigned Columns, unsigned Stride>
STASH_DEVICE pixel_tile_position position_of_pixel_tile(const pixel_tile_grid& grid, std::uint32_t unit) {
  pixel_tile_position position;
  position.sample = unit;
  position.vec16 = take_small_digit(position.sample, grid.vec16s);
  const std::uint32_t tile = take_small_digit(position.sample, grid.tiles);
  position.vec16 +=
      take_small_digit(position.sample, grid.parts) * static_cast<std::uint32_t>(grid.vec16s.value);
  const std::uint32_t group = take_small_digit(position.sample, grid.groups);
  position.column = static_cast<std::int32_t>(tile * Columns) + grid.first_column;
  position.row = static_cast<std::int32_t>(group * grid.steps * Stride) + grid.first_row;
  return position;
}

/// A pixel tile's vec16 of the pixels of a map. Rows and columns are kept as numbers of 32 bits: as
/// addresses, they would take the registers that windows need.
template <class Vector>
class pixel_tile_vec16s {
 public:
  STASH_DEVICE pixel_tile_vec16s(Vector* map, const pixel_tile_map& layout, std::int64_t rows,
                                 const pixel_tile_position& position)
      : map_(map),
        layout_(layout),
        first_(position.sample * static_cast<std::uint32_t>(rows)),
        vec16_(position.vec16 * static_cast<std::uint32_t>(sizeof(Vector))) {}

  /// Bytes from the start of a row.
  STASH_DEVICE std::uint32_t in_row(std::int32_t column) const {
    return static_cast<std::uint32_t>(column) * layout_.step + vec16_;
  }
  STASH_DEVICE Vector* at(std::int32_t row, std::uint32_t bytes) const {
    using byte = std::conditional_t<std::is_const_v<Vector>, const std::uint8_t, std::uint8_t>;
    auto* const start =
        reinterpret_cast<byte*>(map_) + wide_product(first_ + static_cast<std::uint32_t>(row), layout_.row);
    return reinterpret_cast<Vector*>(start + wide_product(bytes, 1));
  }

 private:
  Vector* map_;
  const pixel_tile_map& layout_;
  std::uint32_t first_, vec16_;
};

/// All bits of the elements of a word that are above those of another one, without NaN.
template <class Bits>
STASH_DEVICE std::uint32_t masks_above(std::uint32_t a, std::uint32_t b) {
  return sizeof(Bits) == 4 ? greater_mask(a, b) : greater_masks(a, b);
}

/// The same number in all bytes of a word.
STASH_DEVICE std::uint32_t in_all_bytes(std::uint32_t number) {
  return number * 0x01010101U;
}

/// Maxima of a vec16, whose taps have a number in a byte each.
template <class Bits>
struct pixel_tile_maxima {
  static constexpr unsigned tap_words = vec16_elements<Bits> / 4;
  std::uint32_t best[4], taps[tap_words];

  /// Bytes of all bits where those of the elements are set.
  STASH_DEVICE static void masks_of_taps(const std::uint32_t (&elements)[4],
                                         std::uint32_t (&masks)[tap_words]) {
    if constexpr (sizeof(Bits) == 4) {
      masks[0] = pick_bytes(pick_bytes(elements[0], elements[1], 0x4040),
                            pick_bytes(elements[2], elements[3], 0x4040), 0x5410);
    } else {
      STASH_UNROLL
      for (unsigned c = 0; c < tap_words; ++c)
        masks[c] = pick_bytes(elements[2 * c], elements[2 * c + 1], 0x6420);
    }
  }

  STASH_DEVICE void begin(const vector16& vec16, std::uint32_t number) {
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      best[w] = vec16.word[w];
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c)
      taps[c] = number;
  }
  /// Lets elements compete.
  STASH_DEVICE void compete(const std::uint32_t (&words)[4], const std::uint32_t (&numbers)[tap_words]) {
    std::uint32_t more[4], masks[tap_words];
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w) {
      more[w] = masks_above<Bits>(words[w], best[w]);
      best[w] = select_bits(more[w], words[w], best[w]);
    }
    masks_of_taps(more, masks);
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c)
      taps[c] = select_bits(masks[c], numbers[c], taps[c]);
  }
  /// All of them have the same number.
  STASH_DEVICE void compete(const vector16& vec16, std::uint32_t number) {
    std::uint32_t numbers[tap_words];
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c)
      numbers[c] = number;
    compete(vec16.word, numbers);
  }
  /// Other maxima, whose numbers become larger by `more`.
  STASH_DEVICE void compete(const pixel_tile_maxima& other, std::uint32_t more) {
    std::uint32_t numbers[tap_words];
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c)
      numbers[c] = other.taps[c] + more;
    compete(other.best, numbers);
  }

  /// Elements that are not positive have no tap.
  STASH_DEVICE void rectify() {
    std::uint32_t positive[4], masks[tap_words];
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w)
      positive[w] = masks_above<Bits>(best[w], 0);
    masks_of_taps(positive, masks);
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c)
      taps[c] = select_bits(masks[c], taps[c], in_all_bytes(no_gradient));
  }

  /// Taps in four bits each.
  STASH_DEVICE std::uint32_t codes() const {
    std::uint32_t pairs[2] = {};
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c)
      pairs[c] = taps[c] | taps[c] >> 4;
    return pick_bytes(pairs[0], pairs[1], 0x6420);
  }
};

/// Argmaxes of one row of windows after the other.
template <class Bits, unsigned Stride>
class pixel_tile_search {
 public:
  static constexpr unsigned windows = pixel_tile_windows<Bits, Stride>, before = windows_before<Stride>;
  /// From the first tap on: those of a row of windows, and of windows one below the other that cover a
  /// pixel.
  static constexpr unsigned columns = (windows - 1) * Stride + 3, rows = before * Stride + 3;

  /// `top`: the first row of x of the first windows that cover a pixel of the pixel tile.
  STASH_DEVICE pixel_tile_search(const pool_job& job, const pixel_tile_map& x,
                                 const searched_argmaxes& source, const pixel_tile_position& position,
                                 std::int32_t top)
      : x_(static_cast<const vector16*>(source.x), x, job.rows.in, position),
        rows_(static_cast<std::int32_t>(job.rows.in)),
        relu_(source.relu) {
    const std::int32_t start = position.column - static_cast<std::int32_t>(before * Stride);
    padded_ = in_all_bytes(start < 0 ? static_cast<std::uint32_t>(-start) : 0);
    STASH_UNROLL
    for (unsigned k = 0; k < columns; ++k) {
      const std::int32_t column = start + static_cast<std::int32_t>(k);
      column_[k] = x_.in_row(nearest_in(column, static_cast<std::int32_t>(job.columns.in)));
    }
    find_in_row(top, [&](unsigned c, const maxima& row) { last_[c] = row; });
    if constexpr (Stride == 1) {
      find_in_row(top + 1, [&](unsigned c, const maxima& row) { next_row(top, c, row); });
    }
  }

  /// Finds the argmaxes of the next row of windows, as codes of four bits each; 15, which is no tap, where
  /// the gradient does not pass.
  STASH_DEVICE void find(std::int32_t top, std::uint32_t (&codes)[windows]) {
    if constexpr (Stride == 1) {
      find_in_row(top + 2, [&](unsigned c, const maxima& row) {
        maxima found = pair_[c];
        found.compete(row, in_all_bytes(6) - of_window(c));
        codes[c] = codes_of(found);
        next_row(top + 1, c, row);
      });
    } else {
      maxima found[windows];
      STASH_UNROLL
      for (unsigned c = 0; c < windows; ++c)
        found[c] = first_row(top, c);
      // Both rows at once would want more registers than there are.
      STASH_NO_UNROLL
      for (std::int32_t ky = 1; ky < 3; ++ky) {
        const std::uint32_t number = number_of_row(top, ky);
        find_in_row(top + ky, [&](unsigned c, const maxima& row) {
          found[c].compete(row, number - of_window(c));
          last_[c] = row;
        });
      }
      STASH_UNROLL
      for (unsigned c = 0; c < windows; ++c)
        codes[c] = codes_of(found[c]);
    }
  }

  /// Whether nothing is found, because one of the windows that cover the pixels of the last row of windows
  /// has a NaN, or in bf16 a number that is NaN of f16. That it may be infinities as well costs nothing but
  /// time.
  STASH_DEVICE bool needs_care() const { return (nan_rows_ & ((1U << rows) - 1)) != 0; }

 private:
  using maxima = pixel_tile_maxima<Bits>;

  pixel_tile_vec16s<const vector16> x_;
  std::int32_t rows_;
  bool relu_;
  std::uint32_t padded_;  ///< columns before x, in all bytes
  std::uint32_t column_[columns];
  std::uint32_t nan_rows_ = 0;  ///< a bit for each row that was read, the last one the lowest
  maxima pair_[windows];        ///< windows with stride 1: of the first two rows of the next windows
  maxima last_[windows];        ///< of the last row, whose taps are numbers of columns

  // A row or a column outside of x is replaced by the nearest one inside, which is one of each window's, too.
  // That stands first and has its own number where it stands for others before it. What replaces others after
  // it is never above it, whatever its number.

  /// The number of column `k`, in all bytes. Windows have no more columns than Stride before x, if there are
  /// such windows.
  STASH_DEVICE std::uint32_t number_of(unsigned k) const {
    const std::uint32_t number = in_all_bytes(k);
    return k <= Stride && number < padded_ ? padded_ : number;
  }
  /// The number of the first column of window `c`, which numbers of taps do not count.
  STASH_DEVICE static std::uint32_t of_window(unsigned c) { return in_all_bytes(c * Stride); }

  /// The number of the first tap in row `ky` of the windows, in all bytes.
  STASH_DEVICE static std::uint32_t number_of_row(std::int32_t top, std::int32_t ky) {
    return in_all_bytes(static_cast<std::uint32_t>(3 * (top + ky < 0 ? -top : ky)));
  }
  /// The last row as the first one of window `c`.
  STASH_DEVICE maxima first_row(std::int32_t top, unsigned c) const {
    maxima m = last_[c];
    STASH_UNROLL
    for (unsigned i = 0; i < maxima::tap_words; ++i)
      m.taps[i] += number_of_row(top, 0) - of_window(c);
    return m;
  }
  /// Makes the pair of rows of window `c` of the last one and the next.
  STASH_DEVICE void next_row(std::int32_t top, unsigned c, const maxima& row) {
    pair_[c] = first_row(top, c);
    pair_[c].compete(row, number_of_row(top, 1) - of_window(c));
    last_[c] = row;
  }
  STASH_DEVICE std::uint32_t codes_of(maxima& found) const {
    if (relu_) found.rectify();
    return found.codes();
  }

  /// Calls found(c, its maxima among the three taps of a row of x) for each window.
  template <class Found>
  STASH_DEVICE void find_in_row(std::int32_t at, const Found& found) {
    vector16 row[columns];
    STASH_UNROLL
    for (unsigned k = 0; k < columns; ++k)
      row[k] = *x_.at(nearest_in(at, rows_), column_[k]);
    std::uint32_t sum = 0;
    STASH_UNROLL
    for (unsigned k = 0; k < columns; ++k) {
      STASH_UNROLL
      for (unsigned w = 0; w < 4; ++w)
        sum = sum_of_words<Bits>(sum, row[k].word[w]);
    }
    nan_rows_ = nan_rows_ << 1 | (is_nan_sum<Bits>(sum) ? 1U : 0U);
    if constexpr (Stride == 1) {
      // Two neighbouring columns are the last ones of a window and the first ones of the next.
      STASH_UNROLL
      for (unsigned c = 0; c < windows; c += 2) {
        maxima shared, own;
        shared.begin(row[c + 1], number_of(c + 1));
        shared.compete(row[c + 2], number_of(c + 2));
        own.begin(row[c], number_of(c));
        own.compete(shared, 0);
        found(c, own);
        if (c + 1 == windows) break;
        shared.compete(row[c + 3], number_of(c + 3));
        found(c + 1, shared);
      }
    } else {
      STASH_UNROLL
      for (unsigned c = 0; c < windows; ++c) {
        maxima own;
        own.begin(row[c * Stride], number_of(c * Stride));
        own.compete(row[c * Stride + 1], number_of(c * Stride + 1));
        own.compete(row[c * Stride + 2], number_of(c * Stride + 2));
        found(c, own);
      }
    }
  }
};

}  // namespace stash::kernels
