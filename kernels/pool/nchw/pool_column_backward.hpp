// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling in column tiles (pool_column_tiles.hpp). A row of windows is done with once its
/// gradients are added: to the row of dx that it completes, which leaves, and to the two below it, whose sums
/// stay in registers.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_column_tiles.hpp"
#include "pool/nchw/pool_vec16_backward.hpp"

namespace stash::kernels {

/// Windows that cover a vec16: its own, and one on either side.
template <class Bits>
inline constexpr unsigned covering_column_tile = vec16_elements<Bits> + 2;

/// Gradients of a row of windows as they lie in memory.
template <class Bits>
struct column_tile_gradients {
  vector16 vec16;
  Bits left, right;

  STASH_DEVICE void load(const column_tile_map<Bits, 1>& map, std::int32_t row) {
    vec16 = *reinterpret_cast<const vector16*>(map.at(row, map.vec16));
    left = *map.at(row, map.left);
    right = *map.at(row, map.right);
  }
  /// Exact but for NaN, whose sign may be lost.
  STASH_DEVICE void to_f32s(const element_type& type, float (&values)[covering_column_tile<Bits>]) const {
    constexpr unsigned last = covering_column_tile<Bits> - 1;
    floats_of_vec16<Bits>(vec16, type, values + 1);
    if constexpr (sizeof(Bits) == 4) {
      values[0] = as_float(left);
      values[last] = as_float(right);
    } else if (type.bf16) {
      values[0] = as_float(std::uint32_t{left} << 16);
      values[last] = as_float(std::uint32_t{right} << 16);
    } else {
      values[0] = half_to_float(left);
      values[last] = half_to_float(right);
    }
  }
};

/// Taps that a row of windows chose, of two windows in a word, one in each half: `aligned` ones from a
/// thread's first column on, the others from the window before it. `Columns`: of dx. `Unit`: tap 1 of both.
template <unsigned Columns, std::uint32_t Unit>
struct tap_choices {
  static constexpr unsigned pairs = Columns / 2;
  std::uint32_t word[pairs + 1], aligned[pairs];

  /// Adds gradients to the row of dx that has taps `ky` of the windows.
  STASH_DEVICE void add(unsigned ky, const float (&gradient)[Columns + 2], float (&sums)[Columns]) const {
    // The last taps first: theirs are the windows that come first.
    STASH_UNROLL
    for (unsigned back = 0; back < 3; ++back) {
      const std::uint32_t tap = ky * 3 + 2 - back;
      STASH_UNROLL
      for (unsigned i = 0; i < pairs; ++i) {
        add_if_equal(sums[2 * i], sums[2 * i + 1], gradient[2 * i + back], gradient[2 * i + back + 1],
                     back == 1 ? aligned[i] : word[i + back / 2], tap * Unit);
      }
    }
  }
};

/// Of a row of windows: whether it exists.
STASH_DEVICE bool row_exists(const pool_job& job, std::int32_t top) {
  const std::int32_t row = top + static_cast<std::int32_t>(job.rows.pad);
  return row >= 0 && row < static_cast<std::int32_t>(job.rows.out);
}

/// Rows of windows that begin before a column tile and cover it.
inline constexpr std::int32_t rows_before_tile = 2;
static_assert(tuning::long_pool_tile_rows <= 32);

/// Taps of the first window of a vec16, and of the last one, that are not in x, a bit each.
STASH_DEVICE std::uint32_t taps_left_of(const row_vec16& position) {
  return position.left ? 0 : 0x49;
}
STASH_DEVICE std::uint32_t taps_right_of(const row_vec16& position) {
  return position.right ? 0 : 0x49 << 2;
}

/// Codes of a vec16's own windows.
template <class Bits>
using column_tile_codes = std::conditional_t<sizeof(Bits) == 4, std::uint16_t, std::uint32_t>;

/// Argmaxes of two rows of windows after the other two, from x.
template <class Bits, class Source>
class column_tile_argmaxes {
 public:
  using choices = tap_choices<vec16_elements<Bits>, 0x10001>;

  STASH_DEVICE column_tile_argmaxes(const pool_job& job, const column_tile_grid& grid,
                                    const searched_argmaxes& source, const row_vec16& position,
                                    std::int32_t top, std::int32_t end)
      : job_(job),
        position_(position),
        relu_(source.relu),
        search_(job, grid, source.x, position, top, end + 2) {}

  /// Goes on to the windows whose first rows are `top` and the next.
  STASH_DEVICE void find(std::int32_t top) {
    typename search::row_maxima found[2];
    search_.find(top, {row_exists(job_, top) ? 0 : hidden, row_exists(job_, top + 1) ? 0 : hidden}, found);
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      if (relu_) {
        STASH_UNROLL
        for (unsigned w = 0; w < search::row_maxima::words; ++w)
          found[r].tap[w] = select_bits(positive_masks<Bits>(found[r].value[w]), found[r].tap[w], hidden);
      }
      STASH_UNROLL
      for (unsigned i = 0; i < pairs + 1; ++i) {
        if constexpr (sizeof(Bits) == 4) {
          taps_[r][i] = pick_bytes(found[r].tap[2 * i], found[r].tap[2 * i + 1], 0x5410);
        } else {
          taps_[r][i] = found[r].tap[i];
        }
      }
      taps_[r][0] |= position_.left ? 0 : both(16) & 0xffff;
      taps_[r][pairs] |= position_.right ? 0 : both(16) & 0xffff0000U;
    }
  }
  /// Those of the first or of the second row.
  STASH_DEVICE choices chosen(std::int32_t, unsigned r) {
    choices found;
    STASH_UNROLL
    for (unsigned i = 0; i < pairs + 1; ++i)
      found.word[i] = taps_[r][i];
    STASH_UNROLL
    for (unsigned i = 0; i < pairs; ++i)
      found.aligned[i] = pick_bytes(found.word[i], found.word[i + 1], 0x5432);
    return found;
  }
  /// Whether a window that covers the row of dx of the last but `r` windows has to be searched with care.
  STASH_DEVICE bool needs_care(unsigned r) const { return search_.needs_care(1 - r, 5); }
  STASH_DEVICE std::uint32_t suspects() const { return 0; }

 private:
  using search = column_tile_search<Bits, covering_column_tile<Bits>>;
  static constexpr unsigned pairs = choices::pairs;
  static constexpr std::uint32_t hidden = sizeof(Bits) == 4 ? 16 : both(16);  ///< what is no tap's number
  const pool_job& job_;
  const row_vec16& position_;
  bool relu_;
  search search_;
  std::uint32_t taps_[2][pairs + 1];
};

/// The same from codes.
template <class Bits>
class column_tile_argmaxes<Bits, encoded_argmaxes> {
 public:
  using choices = tap_choices<vec16_elements<Bits>, 0x100001>;

  STASH_DEVICE column_tile_argmaxes(const pool_job& job, const column_tile_grid& grid,
                                    const encoded_argmaxes& source, const row_vec16& position,
                                    std::int32_t top, std::int32_t end)
      : job_(job),
        source_(source),
        position_(position),
        end_(end),
        taps_(anew(source.taps + (std::uint64_t{position.plane} * grid.y_plane +
                                  static_cast<std::uint32_t>(position.vec16) * length) /
                                     2)) {
    outside_left_ = taps_left_of(position);
    outside_right_ = taps_right_of(position);
    load_ahead(top, 0);
    load_ahead(top + 1, 1);
  }

  STASH_DEVICE void find(std::int32_t) {}
  STASH_DEVICE choices chosen(std::int32_t top, unsigned r) {
    const row_codes codes = ahead_[r];
    const std::int32_t own = top + static_cast<std::int32_t>(r);
    load_ahead(own + 2, r);
    return choose(own, codes);
  }
  STASH_DEVICE bool needs_care(unsigned) const { return false; }
  STASH_DEVICE std::uint32_t suspects() const { return suspects_; }

 private:
  static constexpr unsigned length = vec16_elements<Bits>;
  struct row_codes {
    std::uint32_t vec16, left, right;  ///< next to the vec16's bytes, whose upper or lower half is meant
  };

  const pool_job& job_;
  const encoded_argmaxes& source_;
  const row_vec16& position_;
  std::int32_t end_;
  const std::uint8_t* taps_;  ///< codes of the vec16's windows in the first row of its plane
  std::uint32_t outside_left_, outside_right_;  ///< taps not in x of the outermost windows
  row_codes ahead_[2];
  std::uint32_t suspects_ = 0;  ///< pairs of rows of windows whose codes are to be looked at, a bit each

  /// Codes of the vec16's own windows whose first row is `top`, or of any.
  STASH_DEVICE const std::uint8_t* codes_at(std::int32_t top) const {
    const std::int32_t row =
        nearest_in((top < end_ ? top : end_ - 1) + static_cast<std::int32_t>(job_.rows.pad),
                   static_cast<std::int32_t>(job_.rows.out));
    return row_below(taps_, row, static_cast<std::uint32_t>(job_.columns.out) / 2);
  }
  STASH_DEVICE void load_ahead(std::int32_t top, unsigned r) {
    const std::uint8_t* const at = codes_at(top);
    ahead_[r].vec16 = *reinterpret_cast<const column_tile_codes<Bits>*>(at);
    ahead_[r].left = *(at - (position_.left ? 1 : 0));
    ahead_[r].right = at[position_.right ? length / 2 : 0];
  }

  STASH_DEVICE choices choose(std::int32_t top, const row_codes& codes) {
    choices chosen;
    std::uint32_t vec16 = codes.vec16;
    const bool there = row_exists(job_, top);
    // The thread of a window's first row in x looks for codes that none takes.
    const std::uint32_t outermost =
        outside_left_ >> (vec16 & 0xf) | outside_right_ >> (vec16 >> 4 * (length - 1));
    const bool suspect = top < 0 || top + 3 > static_cast<std::int32_t>(job_.rows.in) ||
                         (outermost & 1) != 0 || any_beyond_taps(vec16, source_.passing);
    suspects_ |= suspect && there && (top >= position_.row || position_.row == 0)
                     ? 1U << (top - position_.row + rows_before_tile) / 2
                     : 0;
    vec16 |= there ? 0 : 0xffffffffU;
    const std::uint32_t left = there && position_.left ? codes.left >> 4 : 0xf;
    const std::uint32_t right = there && position_.right ? codes.right & 0xfU : 0xf;
    // Two codes of a byte, one in each half, the second sixteen times as large.
    const std::uint32_t earlier = vec16 << 4 | left;
    STASH_UNROLL
    for (unsigned i = 0; i < choices::pairs; ++i) {
      chosen.word[i] = pick_bytes(earlier, 0, 0x4040 + 0x101 * i) & 0x00f0000fU;
      chosen.aligned[i] = pick_bytes(vec16, 0, 0x4040 + 0x101 * i) & 0x00f0000fU;
    }
    chosen.word[choices::pairs] = (vec16 >> 4 * (length - 1) & 0xf) | right << 20;
    return chosen;
  }
};

/// Rows of a column tile whose bit is set (their number % 32), by the way that keeps the bits of NaN. It is a
/// function of its own so that nothing is held for it.
template <class Bits, class Source>
STASH_DEVICE void gather_column_tile(const pool_job& job, const column_tile_grid& grid, const void* dy,
                                     const Source& source, void* dx, std::uint32_t unit,
                                     std::uint32_t careful) {
  constexpr unsigned length = vec16_elements<Bits>;
  const row_vec16 position = column_tile_position(grid, unit);
  Bits* const plane = static_cast<Bits*>(dx) + std::uint64_t{position.plane} * grid.x_plane;
  map_position<std::int32_t> e{position.plane, 0, 0, 0, position.row, 0};
  STASH_NO_UNROLL
  for (; careful != 0; ++e.y) {
    const std::uint32_t bit = 1U << e.y % 32;
    if ((careful & bit) == 0) continue;
    careful &= ~bit;
    e.x = position.vec16 * static_cast<std::int32_t>(length);
    STASH_NO_UNROLL
    for (unsigned i = 0; i < length; ++i, ++e.x) {
      float sum[1] = {};
      gather<Bits, 1>(job, dy, source, e, sum);
      plane[e.y * static_cast<std::int32_t>(job.columns.in) + e.x] = result_from_f32<Bits>(sum[0], job.type);
    }
  }
}

/// Looks at codes in pairs of rows of windows whose bit is set, the lowest one the first before the column
/// tile: whether one names no tap of its window in x. It is a function of its own so that nothing is held for
/// it.
template <class Bits>
STASH_DEVICE void report_corrupt(const pool_job& job, const column_tile_grid& grid,
                                 const encoded_argmaxes& source, std::uint32_t unit, std::uint32_t suspects) {
  constexpr unsigned length = vec16_elements<Bits>;
  const row_vec16 position = column_tile_position(grid, unit);
  const std::uint8_t* const first = source.taps + (std::uint64_t{position.plane} * grid.y_plane +
                                                   static_cast<std::uint32_t>(position.vec16) * length) /
                                                      2;
  const std::uint32_t left = taps_left_of(position), right = taps_right_of(position);
  const std::uint32_t none = source.passing == pass_source::code ? 1U << no_gradient : 0;
  std::uint32_t all = 1;
  STASH_NO_UNROLL
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(tuning::long_pool_tile_rows) + rows_before_tile;
       ++k) {
    const std::int32_t top = position.row - rows_before_tile + k;
    const bool looks = row_exists(job, top) && (top >= position.row || position.row == 0);
    if (!looks || (suspects >> k / 2 & 1) == 0) continue;
    std::uint32_t rows = 0;  // taps that are in x, but for columns
    STASH_UNROLL
    for (unsigned ky = 0; ky < 3; ++ky) {
      const std::int32_t row = top + static_cast<std::int32_t>(ky);
      rows |= row >= 0 && row < static_cast<std::int32_t>(job.rows.in) ? 7U << 3 * ky : 0;
    }
    const std::int32_t row = top + static_cast<std::int32_t>(job.rows.pad);
    const std::uint32_t codes = *reinterpret_cast<const column_tile_codes<Bits>*>(
        row_below(first, row, static_cast<std::uint32_t>(job.columns.out) / 2));
    STASH_UNROLL
    for (unsigned i = 0; i < length; ++i) {
      const std::uint32_t outside = i == 0 ? left : i + 1 == length ? right : 0;
      all &= ((rows & ~outside) | none) >> (codes >> 4 * i & 0xf);
    }
  }
  if (all == 0) atomic_or(&source.report->status, status_corrupt);
}
template <class Bits>
STASH_DEVICE void report_corrupt(const pool_job&, const column_tile_grid&, const searched_argmaxes&,
                                 std::uint32_t, std::uint32_t) {}

/// pool_backward() for windows of 3 x 3 with stride 1, a column of padding before x. Grid: threads for all
/// column tiles of dx.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, tuning::pool_blocks_of_three_rows)
pool_backward_column_tiles(pool_job job, column_tile_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned length = vec16_elements<Bits>;
  using argmaxes_type = column_tile_argmaxes<Bits, Source>;
  const std::uint32_t unit = thread_unit();
  if (unit >= grid.units) return;
  const row_vec16 position = column_tile_position(grid, unit);
  const auto in = static_cast<std::int32_t>(job.rows.in), out = static_cast<std::int32_t>(job.rows.out);
  const auto pad = static_cast<std::int32_t>(job.rows.pad);
  const auto width = static_cast<std::uint32_t>(job.columns.in);
  const auto row_bytes = width * static_cast<std::uint32_t>(sizeof(Bits));
  const std::int32_t below = position.row + static_cast<std::int32_t>(grid.rows);
  const std::int32_t end = below < in ? below : in;
  const column_tile_map<Bits, 1> y(dy, grid.y_plane, width, position);
  column_tile_gradients<Bits> ahead[2];
  const auto load_ahead = [&](std::int32_t top, unsigned r) {
    ahead[r].load(y, nearest_in((top < end ? top : end - 1) + pad, out));
  };
  std::int32_t top = position.row - 2;
  load_ahead(top, 0);
  load_ahead(top + 1, 1);
  argmaxes_type argmaxes(job, grid, source, position, top, end);
  Bits* const to = anew(static_cast<Bits*>(dx) + std::uint64_t{position.plane} * grid.x_plane +
                        static_cast<std::uint32_t>(position.vec16) * length);
  float open[2][length] = {};  // rows of dx that the windows so far have not completed
  std::uint32_t careful = 0;   // rows that need more than sums, a bit each: number % 32
  STASH_NO_UNROLL
  for (; top < end; top += 2) {
    argmaxes.find(top);
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      const std::int32_t own = top + static_cast<std::int32_t>(r);
      float gradient[covering_column_tile<Bits>];
      ahead[r].to_f32s(job.type, gradient);
      load_ahead(own + 2, r);
      const auto chosen = argmaxes.chosen(top, r);
      chosen.add(0, gradient, open[r]);
      chosen.add(1, gradient, open[1 - r]);
      const vector16 row = vec16_of_sums<Bits>(open[r], job.type);
      // NaN keeps its bits only in gather(). Where one is among the sums, it is their sum, too.
      std::uint32_t sum = row.word[0];
      STASH_UNROLL
      for (unsigned w = 1; w < 4; ++w)
        sum = sum_of_words<Bits>(sum, row.word[w]);
      STASH_UNROLL
      for (unsigned i = 0; i < length; ++i)
        open[r][i] = 0;
      chosen.add(2, gradient, open[r]);
      const bool inside = own >= position.row && own < end;
      const bool numbers = !is_nan_sum<Bits>(sum) && !argmaxes.needs_care(r);
      careful |= inside && !numbers ? 1U << own % 32 : 0;
      if (inside && numbers) {
        store_vector(reinterpret_cast<vector16*>(row_below(to, own, row_bytes)), row);
      }
    }
  }
  if (argmaxes.suspects() != 0) report_corrupt<Bits>(job, grid, source, anew(unit), argmaxes.suspects());
  if (careful != 0) gather_column_tile<Bits>(job, grid, dy, source, dx, anew(unit), careful);
}

}  // namespace stash::kernels
