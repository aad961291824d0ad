#pragma once
/// \file
/// Backward max pooling of stacks (pool_stacks.hpp). A row of windows is done with once its gradients are
/// added: to the row of dx that it completes, which leaves, and to the two below it, whose sums stay in
/// registers.

#include <cstdint>
#include <type_traits>

#include "pool_pieces_backward.hpp"
#include "pool_stacks.hpp"

namespace stash::kernels {

/// Windows that cover a piece: its own, and one on either side.
template <class Bits>
inline constexpr unsigned covering_stack = piece_elements<Bits> + 2;

/// Gradients of a row of windows as they lie in memory.
template <class Bits>
struct stack_gradients {
  vector16 piece;
  Bits left, right;

  STASH_DEVICE void load(const stack_map<Bits, 1>& map, std::int32_t row) {
    piece = *reinterpret_cast<const vector16*>(map.piece + row);
    left = map.piece[row + map.left];
    right = map.piece[row + map.right];
  }
  /// Exact but for NaN, whose sign may be lost.
  STASH_DEVICE void to_f32s(const element_type& type, float (&values)[covering_stack<Bits>]) const {
    constexpr unsigned last = covering_stack<Bits> - 1;
    floats_of_piece<Bits>(piece, type, values + 1);
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

/// Cells that a row of windows chose, where they are compared. f32: one in a word. 16 bits: of two windows,
/// one in each half, `aligned` ones from a piece's first window on, the others from the one before it.
/// `Unit`: what cell 1 is in the word of each.
template <class Bits, std::uint32_t Unit, std::uint32_t AlignedUnit>
struct stack_choices {
  static constexpr unsigned words = sizeof(Bits) == 4 ? covering_stack<Bits> : covering_stack<Bits> / 2;
  std::uint32_t word[words], aligned[4];

  /// Adds gradients to the row of dx that has cells `ky` of the windows.
  STASH_DEVICE void add(unsigned ky, const float (&gradient)[covering_stack<Bits>],
                        float (&sums)[piece_elements<Bits>]) const {
    // The last cells first: theirs are the windows that come first.
    STASH_UNROLL
    for (unsigned back = 0; back < 3; ++back) {
      const std::uint32_t cell = ky * 3 + 2 - back;
      if constexpr (sizeof(Bits) == 4) {
        STASH_UNROLL
        for (unsigned i = 0; i < 4; ++i)
          add_if_equal(sums[i], gradient[i + back], word[i + back], cell);
      } else {
        STASH_UNROLL
        for (unsigned i = 0; i < 4; ++i) {
          const float(&of)[covering_stack<Bits>] = gradient;
          const std::uint32_t chosen = back == 1 ? aligned[i] : word[i + back / 2];
          add_if_equal(sums[2 * i], sums[2 * i + 1], of[2 * i + back], of[2 * i + back + 1], chosen,
                       cell * (back == 1 ? AlignedUnit : Unit));
        }
      }
    }
  }
};

/// Of a row of windows: whether it exists.
STASH_DEVICE bool row_exists(const pool_job& job, std::int32_t top) {
  const std::int32_t row = top + static_cast<std::int32_t>(job.rows.pad);
  return row >= 0 && row < static_cast<std::int32_t>(job.rows.out);
}

/// Winners of two rows of windows after the other two, from x.
template <class Bits, class Source>
class stack_winners {
 public:
  using choices = stack_choices<Bits, sizeof(Bits) == 4 ? 1 : 0x10001, 0x10001>;

  STASH_DEVICE stack_winners(const pool_job& job, const stack_grid& grid, const searched_winners& source,
                             const row_piece& place, std::int32_t top, std::int32_t end)
      : job_(job), place_(place), relu_(source.relu), search_(job, grid, source.x, place, top, end + 2) {}

  /// Goes on to the windows whose first rows are `top` and the next.
  STASH_DEVICE void find(std::int32_t top) {
    typename search::row_maxima found[2];
    search_.find(top, {row_exists(job_, top) ? 0 : hidden, row_exists(job_, top + 1) ? 0 : hidden}, found);
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      STASH_UNROLL
      for (unsigned w = 0; w < choices::words; ++w) {
        const std::uint32_t passing = relu_ ? positive_masks<Bits>(found[r].value[w]) : 0xffffffffU;
        cells_[r][w] = select_bits(passing, found[r].cell[w], hidden);
      }
      cells_[r][0] |= place_.left ? 0 : hidden & 0xffff;
      cells_[r][choices::words - 1] |= place_.right ? 0 : sizeof(Bits) == 4 ? hidden : hidden & 0xffff0000U;
    }
  }
  /// Those of the first or of the second row.
  STASH_DEVICE choices chosen(std::int32_t, unsigned r) {
    choices of;
    STASH_UNROLL
    for (unsigned w = 0; w < choices::words; ++w)
      of.word[w] = cells_[r][w];
    if constexpr (sizeof(Bits) == 2) {
      STASH_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        of.aligned[i] = pick_bytes(of.word[i], of.word[i + 1], 0x5432);
    }
    return of;
  }
  /// Whether a window that covers the row of dx of the last but `r` windows has to be searched with care.
  STASH_DEVICE bool needs_care(unsigned r) const { return search_.needs_care(1 - r, 5); }
  STASH_DEVICE void report() const {}

 private:
  using search = stack_search<Bits, covering_stack<Bits>>;
  static constexpr std::uint32_t hidden = sizeof(Bits) == 4 ? 16 : both(16);  ///< what is no cell's number
  const pool_job& job_;
  const row_piece& place_;
  bool relu_;
  search search_;
  std::uint32_t cells_[2][choices::words];
};

/// The same from codes, passing by them or by a plane.
template <class Bits>
class stack_winners<Bits, encoded_winners> {
 public:
  using choices = stack_choices<Bits, sizeof(Bits) == 4 ? 1 : 0x100001, 0x100001>;

  STASH_DEVICE stack_winners(const pool_job& job, const stack_grid& grid, const encoded_winners& source,
                             const row_piece& place, std::int32_t top, std::int32_t end)
      : job_(job),
        source_(source),
        place_(place),
        width_(static_cast<std::uint32_t>(job.columns.out)),
        end_(end),
        first_(std::uint64_t{place.plane} * grid.y_plane + static_cast<std::uint32_t>(place.piece) * length) {
    outside_left_ = place.left ? 0 : column;
    outside_right_ = place.right ? 0 : column << 2;
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
  STASH_DEVICE void report() const {
    if (corrupt_) atomic_or(&source_.report->status, status_corrupt);
  }

 private:
  static constexpr unsigned length = piece_elements<Bits>;
  static constexpr std::uint32_t column = 0x49;  ///< cells of a window, a bit each
  using own_codes = std::conditional_t<length == 4, std::uint16_t, std::uint32_t>;
  struct row_codes {
    own_codes piece;
    std::uint8_t left, right;  ///< bytes, whose upper or lower half is meant
  };

  const pool_job& job_;
  const encoded_winners& source_;
  const row_piece& place_;
  std::uint32_t width_;
  std::int32_t end_;
  std::uint64_t first_;  ///< the piece's first window in its plane's first row, among all of y
  std::uint32_t outside_left_, outside_right_;  ///< cells not in x of the outermost windows
  row_codes ahead_[2];
  bool corrupt_ = false;

  STASH_DEVICE std::uint64_t value_at(std::int32_t top) const {
    const std::int32_t row = nearest_in((top < end_ ? top : end_ - 1) + static_cast<std::int32_t>(job_.rows.pad),
                                        static_cast<std::int32_t>(job_.rows.out));
    return first_ + static_cast<std::uint32_t>(row) * width_;
  }
  STASH_DEVICE void load_ahead(std::int32_t top, unsigned r) {
    const std::uint8_t* const at = source_.cells + value_at(top) / 2;
    ahead_[r].piece = *reinterpret_cast<const own_codes*>(at);
    ahead_[r].left = *(at - (place_.left ? 1 : 0));
    ahead_[r].right = at[place_.right ? length / 2 : 0];
  }

  /// Whether one of the piece's own codes names no cell of its window in x.
  STASH_DEVICE bool any_outside(std::int32_t top, std::uint32_t codes) const {
    std::uint32_t rows = 0;
    STASH_UNROLL
    for (unsigned ky = 0; ky < 3; ++ky) {
      const std::int32_t row = top + static_cast<std::int32_t>(ky);
      rows |= row >= 0 && row < static_cast<std::int32_t>(job_.rows.in) ? 7U << 3 * ky : 0;
    }
    const std::uint32_t none = source_.passing == pass_source::code ? 1U << no_gradient : 0;
    bool any = false;
    STASH_NO_UNROLL
    for (unsigned i = 0; i < length; ++i) {
      const std::uint32_t outside = (i == 0 ? outside_left_ : 0) | (i + 1 == length ? outside_right_ : 0);
      any = any || (((rows & ~outside) | none) >> (codes >> 4 * i & 0xf) & 1) == 0;
    }
    return any;
  }

  STASH_DEVICE choices choose(std::int32_t top, const row_codes& codes) {
    choices chosen;
    std::uint32_t piece = codes.piece;
    const bool there = row_exists(job_, top);
    // The thread of a window's first row in x looks for codes that none takes.
    if (there && (top >= place_.row || place_.row == 0)) {
      const bool suspect = top < 0 || top + 3 > static_cast<std::int32_t>(job_.rows.in) ||
                           ((outside_left_ >> (piece & 0xf) | outside_right_ >> (piece >> 4 * (length - 1))) & 1) != 0 ||
                           any_beyond_cells(piece, source_.passing);
      if (suspect) corrupt_ = any_outside(top, piece) || corrupt_;
    }
    std::uint32_t left = codes.left >> 4, right = codes.right & 0xfU;
    if (source_.passing == pass_source::plane) {
      const std::uint64_t at = value_at(top), before = at - (place_.left ? 1 : 0),
                          behind = at + (place_.right ? length : 0);
      const std::uint32_t bits = source_.plane[at / 8] >> at % 8 & ((1U << length) - 1);
      piece |= ~four_times(bits);
      left |= (source_.plane[before / 8] >> before % 8 & 1) != 0 ? 0 : 0xf;
      right |= (source_.plane[behind / 8] >> behind % 8 & 1) != 0 ? 0 : 0xf;
    }
    piece |= there ? 0 : 0xffffffffU;
    left |= there && place_.left ? 0 : 0xf;
    right |= there && place_.right ? 0 : 0xf;
    if constexpr (sizeof(Bits) == 4) {
      chosen.word[0] = left;
      STASH_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        chosen.word[i + 1] = piece >> 4 * i & 0xf;
      chosen.word[5] = right;
    } else {
      // Two codes of a byte, one in each half, the second sixteen times as large.
      const std::uint32_t earlier = piece << 4 | left;
      STASH_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        chosen.word[i] = pick_bytes(earlier, 0, 0x4040 + 0x101 * i) & 0x00f0000fU;
        chosen.aligned[i] = pick_bytes(piece, 0, 0x4040 + 0x101 * i) & 0x00f0000fU;
      }
      chosen.word[4] = piece >> 28 | right << 20;
    }
    return chosen;
  }
};

/// Rows of a stack whose bit is set, by the way that keeps the bits of NaN. This is apart from the rest so
/// that nothing is held for it.
template <class Bits, class Source>
STASH_DEVICE void gather_stack(const pool_job& job, const stack_grid& grid, const void* dy,
                               const Source& source, void* dx, std::uint32_t unit, std::uint32_t careful) {
  constexpr unsigned length = piece_elements<Bits>;
  const row_piece place = place_of_stack(grid, unit);
  Bits* const plane = static_cast<Bits*>(dx) + std::uint64_t{place.plane} * grid.x_plane;
  map_place<std::int32_t> e{place.plane, 0, 0, 0, place.row, 0};
  STASH_NO_UNROLL
  for (; careful != 0; ++e.y, careful >>= 1) {
    if ((careful & 1) == 0) continue;
    e.x = place.piece * static_cast<std::int32_t>(length);
    STASH_NO_UNROLL
    for (unsigned i = 0; i < length; ++i, ++e.x) {
      float sum[1] = {};
      gather<Bits, 1>(job, dy, source, e, sum);
      plane[e.y * static_cast<std::int32_t>(job.columns.in) + e.x] = result_from_f32<Bits>(sum[0], job.type);
    }
  }
}

/// Where windows are found again, registers hold rows of x.
template <class Source>
inline constexpr unsigned pool_blocks_of_stacks =
    std::is_base_of_v<encoded_winners, Source> ? tuning::pool_blocks : tuning::pool_blocks_of_three_rows;

/// pool_backward() for windows of 3 x 3 one apart, a column of padding before x. Grid: threads for all stacks
/// of dx.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, pool_blocks_of_stacks<Source>)
pool_backward_stacks(pool_job job, stack_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned length = piece_elements<Bits>;
  using winners_type = stack_winners<Bits, Source>;
  const std::uint32_t unit = piece_unit();
  if (unit >= grid.units) return;
  const row_piece place = place_of_stack(grid, unit);
  const auto in = static_cast<std::int32_t>(job.rows.in), out = static_cast<std::int32_t>(job.rows.out);
  const auto pad = static_cast<std::int32_t>(job.rows.pad);
  const auto width = static_cast<std::uint32_t>(job.columns.in);
  const std::int32_t below = place.row + static_cast<std::int32_t>(grid.rows);
  const std::int32_t end = below < in ? below : in;
  const stack_map<Bits, 1> y(dy, grid.y_plane, width, place);
  stack_gradients<Bits> ahead[2];
  const auto load_ahead = [&](std::int32_t top, unsigned r) {
    ahead[r].load(y, y.row(nearest_in((top < end ? top : end - 1) + pad, out)));
  };
  std::int32_t top = place.row - 2;
  load_ahead(top, 0);
  load_ahead(top + 1, 1);
  winners_type winners(job, grid, source, place, top, end);
  Bits* const to = static_cast<Bits*>(dx) + std::uint64_t{place.plane} * grid.x_plane +
                   static_cast<std::uint32_t>(place.piece) * length;
  float open[2][length] = {};  // rows of dx that the windows so far have not completed
  std::uint32_t careful = 0;   // rows that need more than sums, a bit each
  STASH_NO_UNROLL
  for (; top < end; top += 2) {
    winners.find(top);
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      const std::int32_t own = top + static_cast<std::int32_t>(r);
      float gradient[covering_stack<Bits>];
      ahead[r].to_f32s(job.type, gradient);
      load_ahead(own + 2, r);
      const auto chosen = winners.chosen(top, r);
      chosen.add(0, gradient, open[r]);
      chosen.add(1, gradient, open[1 - r]);
      const vector16 row = piece_of_sums<Bits>(open[r], job.type);
      // NaN keeps its bits only in gather(). Where one is among the sums, it is their sum, too.
      std::uint32_t sum = row.word[0];
      STASH_UNROLL
      for (unsigned w = 1; w < 4; ++w)
        sum = sum_of_words<Bits>(sum, row.word[w]);
      STASH_UNROLL
      for (unsigned i = 0; i < length; ++i)
        open[r][i] = 0;
      chosen.add(2, gradient, open[r]);
      if (own < place.row || own >= end) continue;
      const bool numbers = !is_nan_sum<Bits>(sum) && !winners.needs_care(r);
      careful |= numbers ? 0 : 1U << (own - place.row);
      if (numbers) store_vector(reinterpret_cast<vector16*>(to + static_cast<std::uint32_t>(own) * width), row);
    }
  }
  winners.report();
  if (careful != 0) gather_stack<Bits>(job, grid, dy, source, dx, anew(unit), careful);
}

}  // namespace stash::kernels
