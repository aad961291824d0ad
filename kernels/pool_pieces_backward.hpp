#pragma once
/// \file
/// Backward max pooling of pieces (pool_pieces.hpp). A thread's pair of rows begins with the first row of
/// windows, so which cells of a window its elements are is known when this is compiled. Codes lie in words,
/// of four bits each, in the order of windows; winners in x are found for every window that the thread needs.

#include <cstdint>
#include <type_traits>

#include "pool_backward.hpp"
#include "pool_pieces.hpp"
#include "pool_runs_backward.hpp"

namespace stash::kernels {

/// Windows of a row that cover a piece: those that begin in it, and one more, which comes before them without
/// padding and behind them with it.
template <class Bits>
inline constexpr unsigned covering_piece = piece_windows<Bits> + 1;

/// Two rows of them.
struct piece_window_rows {
  std::int32_t row[2], column;  ///< of the first window; there may be none
  std::uint64_t at[2];          ///< the windows that begin in the piece among all of y
  std::int32_t beside;          ///< from there to the one more, or to any other if there is none
  std::uint32_t there[2];       ///< all bits of four for each window that exists
};
template <class Bits, unsigned Pad>
STASH_DEVICE piece_window_rows rows_around(const pool_job& job, const row_piece& place) {
  constexpr auto count = static_cast<std::int32_t>(piece_windows<Bits>);
  constexpr std::uint32_t all = (1U << 4 * covering_piece<Bits>)-1;
  constexpr std::uint32_t more = Pad == 0 ? 0xfU : 0xfU << 4 * piece_windows<Bits>;
  const bool any_more = Pad == 0 ? place.left : place.right;
  piece_window_rows rows;
  rows.column = place.piece * count - (Pad == 0 ? 1 : 0);
  rows.beside = any_more ? (Pad == 0 ? -1 : count) : 0;
  const std::int32_t row = (place.row + static_cast<std::int32_t>(job.rows.pad)) / 2;
  STASH_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    rows.row[r] = row - 1 + static_cast<std::int32_t>(r);
    const std::int32_t nearest = nearest_row(rows.row[r], job.rows.out);
    rows.at[r] =
        (place.plane * static_cast<std::uint64_t>(job.rows.out) + static_cast<std::uint64_t>(nearest)) *
            static_cast<std::uint64_t>(job.columns.out) +
        static_cast<std::uint64_t>(place.piece * count);
    rows.there[r] = rows.row[r] == nearest ? (any_more ? all : all & ~more) : 0;
  }
  return rows;
}

/// Windows that begin in the piece and the one more, in their order, of `Width` bits each.
template <class Bits, unsigned Pad, unsigned Width>
STASH_DEVICE std::uint32_t in_order(std::uint32_t begin, std::uint32_t more) {
  return Pad == 0 ? more | begin << Width : begin | more << (Width * piece_windows<Bits>);
}

/// Gradients of a row of windows as they lie in memory.
template <class Bits>
struct piece_gradients {
  vector8 begin;
  Bits more;

  STASH_DEVICE void load(const Bits* from, std::int32_t beside) {
    begin = *reinterpret_cast<const vector8*>(from);
    more = from[beside];
  }
  /// In the order of windows, exact but for NaN, whose sign may be lost.
  template <unsigned Pad>
  STASH_DEVICE void to_f32s(const element_type& type, float* values) const {
    constexpr unsigned first = Pad == 0 ? 1 : 0, last = Pad == 0 ? 0 : piece_windows<Bits>;
    if constexpr (sizeof(Bits) == 4) {
      values[first] = as_float(begin.word[0]);
      values[first + 1] = as_float(begin.word[1]);
      values[last] = as_float(more);
    } else if (type.bf16) {
      STASH_UNROLL
      for (unsigned w = 0; w < 2; ++w) {
        values[first + 2 * w] = as_float(begin.word[w] << 16);
        values[first + 2 * w + 1] = as_float(begin.word[w] & 0xffff0000U);
      }
      values[last] = as_float(std::uint32_t{more} << 16);
    } else {
      STASH_UNROLL
      for (unsigned w = 0; w < 2; ++w)
        halves_to_floats(begin.word[w], values + first + 2 * w);
      values[last] = half_to_float(more);
    }
  }
};

/// Codes of two rows of windows.
template <class Bits, unsigned Pad>
struct piece_codes {
  std::uint32_t word[2];  ///< as they are in memory

  STASH_DEVICE void load(const encoded_winners& source, const piece_window_rows& rows) {
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      const std::uint8_t* const from = source.cells + rows.at[r] / 2;
      // Two codes in a byte: the one before is in its upper half, the one behind in its lower half.
      std::uint32_t begin;
      if constexpr (piece_windows<Bits> == 2) {
        begin = *from;
      } else {
        begin = *reinterpret_cast<const std::uint16_t*>(from);
      }
      const std::uint32_t pair = from[rows.beside >> 1];
      word[r] = in_order<Bits, Pad, 4>(begin, Pad == 0 ? pair >> 4 : pair & 0xf);
    }
  }
};

/// Bits of a row of windows from a plane, in their order.
template <class Bits, unsigned Pad>
STASH_DEVICE std::uint32_t bits_of_windows(const std::uint8_t* plane, std::uint64_t at, std::int32_t beside) {
  const std::uint64_t other = at + static_cast<std::uint64_t>(static_cast<std::int64_t>(beside));
  const std::uint32_t begin = plane[at / 8] >> (at % 8) & ((1U << piece_windows<Bits>)-1);
  return in_order<Bits, Pad, 1>(begin, plane[other / 8] >> (other % 8) & 1);
}
/// A bit of each of eight becomes four.
STASH_DEVICE std::uint32_t four_times(std::uint32_t bits) {
  bits = (bits | bits << 12) & 0x000f000fU;
  bits = (bits | bits << 6) & 0x03030303U;
  return ((bits | bits << 3) & 0x11111111U) * 15;
}

/// Looks for codes that name no cell of their window in x, in row `r`.
template <class Bits, unsigned Pad>
STASH_DEVICE bool corrupt_row(const pool_job& job, const encoded_winners& source,
                              const piece_window_rows& rows, unsigned r, std::uint32_t codes,
                              const row_piece& place) {
  const std::uint32_t looked_at = codes & rows.there[r];
  const std::int32_t top = 2 * rows.row[r] - static_cast<std::int32_t>(job.rows.pad);
  // Without padding the last window of a row reaches out of x by a column, with it the first one.
  constexpr unsigned outermost = Pad == 0 ? piece_windows<Bits> : 0;
  constexpr std::uint32_t outside = Pad == 0 ? 0x124 : 0x49;
  const bool reaches_out = Pad == 0 ? !place.right : !place.left;
  const bool suspect = any_beyond_cells(looked_at, source.passing) ||
                       (reaches_out && (outside >> (looked_at >> (4 * outermost) & 0xf) & 1) != 0) ||
                       top < 0 || top + 3 > static_cast<std::int32_t>(job.rows.in);
  if (!suspect || rows.there[r] == 0) return false;
  constexpr unsigned count = covering_piece<Bits>;
  std::uint32_t inside = 0;
  STASH_UNROLL
  for (unsigned i = 0; i < count; ++i)
    inside |= (rows.there[r] >> (4 * i) & 1) << i;
  std::uint32_t pass = inside;
  if (source.passing == pass_source::plane)
    pass &= bits_of_windows<Bits, Pad>(source.plane, rows.at[r], rows.beside);
  const window_row row{0, rows.row[r], rows.column, 0, inside};
  return any_corrupt<3, 2, 4, count>(job, source, row, looked_at, pass);
}

/// Codes of two rows of windows; 15, which is no cell, where there is no window or the gradient does not
/// pass. False if they have to be looked for in another way.
template <class Bits, unsigned Pad>
STASH_DEVICE bool passing_codes(const pool_job& job, const encoded_winners& source,
                                const piece_window_rows& rows, const row_piece& place, std::int32_t first_row,
                                std::uint32_t (&codes)[2]) {
  piece_codes<Bits, Pad> loaded;
  loaded.load(source, rows);
  bool corrupt = false;
  STASH_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    // The thread of a window's first row looks for codes that none takes.
    if (r == 1 || place.row == first_row)
      corrupt = corrupt || corrupt_row<Bits, Pad>(job, source, rows, r, loaded.word[r], place);
    codes[r] = loaded.word[r] | ~rows.there[r];
    if (source.passing == pass_source::plane)
      codes[r] |= ~four_times(bits_of_windows<Bits, Pad>(source.plane, rows.at[r], rows.beside));
  }
  if (corrupt) atomic_or(&source.report->status, status_corrupt);
  return true;
}
template <class Bits, unsigned Pad>
STASH_DEVICE bool passing_codes(const pool_job& job, const searched_winners& source,
                                const piece_window_rows& rows, const row_piece& place, std::int32_t,
                                std::uint32_t (&codes)[2]) {
  constexpr unsigned count = covering_piece<Bits>;
  const std::int32_t top = 2 * rows.row[0] - static_cast<std::int32_t>(job.rows.pad);
  piece_search<Bits, Pad, count> search(job, source.x, place, top);
  if (!search.numbers) return false;
  STASH_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    piece_maxima<Bits, count>& found = search.found[r];
    if (source.relu) {
      STASH_UNROLL
      for (unsigned w = 0; w < piece_maxima<Bits, count>::words; ++w)
        found.cell[w] = select_bits(found.positive(w), found.cell[w], found.number(15));
    }
    codes[r] = found.codes() | ~rows.there[r];
  }
  return true;
}

/// Sums, none of which is NaN, as a piece.
template <class Bits>
STASH_DEVICE vector16 piece_of_sums(const float (&sums)[piece_elements<Bits>], const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    return {{as_bits(sums[0]), as_bits(sums[1]), as_bits(sums[2]), as_bits(sums[3])}};
  } else {
    vector16 out[1];
    pieces_of_floats<Bits>(sums, type, out);
    return out[0];
  }
}

/// Where rows of windows are found again, registers hold five rows of x.
template <class Source>
inline constexpr unsigned pool_blocks_of_pieces =
    std::is_base_of_v<encoded_winners, Source> ? tuning::pool_blocks_of_pieces
                                               : tuning::pool_blocks_searching;

/// pool_backward() for windows of 3 x 3 two apart, `Pad` columns before x. Grid: threads for all pieces of
/// dx, in two rows.
template <class Bits, unsigned Pad, class Source>
STASH_KERNEL(pool_threads, pool_blocks_of_pieces<Source>)
pool_backward_pieces(pool_job job, piece_grid grid, const void* dy, Source source, void* dx) {
  constexpr unsigned length = piece_elements<Bits>, count = covering_piece<Bits>;
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  if (unit >= grid.units) return;
  const row_piece place = place_of_piece(grid, unit);
  const piece_window_rows rows = rows_around<Bits, Pad>(job, place);
  piece_gradients<Bits> gradients[2];
  STASH_UNROLL
  for (unsigned r = 0; r < 2; ++r)
    gradients[r].load(static_cast<const Bits*>(dy) + rows.at[r], rows.beside);
  std::uint32_t codes[2];
  const bool known = passing_codes<Bits, Pad>(job, source, rows, place, grid.first_row, codes);

  float sums[2][length] = {};
  STASH_UNROLL
  for (unsigned r = 0; r < 2; ++r) {
    float gradient[count];
    gradients[r].template to_f32s<Pad>(job.type, gradient);
    STASH_UNROLL
    for (unsigned p = 0; p < 2; ++p) {
      // Unsigned: a row or a column that there is not is above all others.
      const unsigned ky = p + 2 - 2 * r;
      if (ky >= 3) continue;
      // The last cells first: theirs are the windows that come first.
      STASH_UNROLL
      for (unsigned back = 0; back < 3; ++back) {
        const unsigned kx = 2 - back;
        const std::uint32_t other = codes[r] ^ (ky * 3 + kx) * 0x11111111U;
        STASH_UNROLL
        for (unsigned c = 0; c < count; ++c) {
          const unsigned i = kx + 2 * c - (Pad == 0 ? 2 : 1);
          if (i < length) add_unless(sums[p][i], gradient[c], other & 0xfU << (4 * c));
        }
      }
    }
  }
  // NaN keeps its bits only in gather(). Where one is among the sums, it is their sum, too.
  float sum_of_all = 0;
  STASH_UNROLL
  for (unsigned p = 0; p < 2; ++p) {
    STASH_UNROLL
    for (unsigned i = 0; i < length; ++i)
      sum_of_all += sums[p][i];
  }
  const auto in_map = [&](std::int32_t row) { return row >= 0 && row < job.rows.in; };
  const std::int64_t plane = static_cast<std::int64_t>(place.plane) * job.rows.in;
  const std::int32_t column = place.piece * static_cast<std::int32_t>(length);
  Bits* const to = static_cast<Bits*>(dx) + ((plane + place.row) * job.columns.in + column);
  if (known && sum_of_all == sum_of_all) {
    STASH_UNROLL
    for (unsigned p = 0; p < 2; ++p) {
      const vector16 out = piece_of_sums<Bits>(sums[p], job.type);
      if (!in_map(place.row + static_cast<std::int32_t>(p))) continue;
      store_vector(reinterpret_cast<vector16*>(to + p * job.columns.in), out);
    }
    return;
  }
  STASH_NO_UNROLL
  for (unsigned p = 0; p < 2; ++p) {
    const std::int32_t row = place.row + static_cast<std::int32_t>(p);
    if (!in_map(row)) continue;
    STASH_NO_UNROLL
    for (unsigned i = 0; i < length; ++i) {
      const map_place<std::int32_t> e{place.plane, 0, 0, 0, row, column + static_cast<std::int32_t>(i)};
      float sum[1] = {};
      gather<Bits, 1>(job, dy, source, e, sum);
      to[p * job.columns.in + i] = result_from_f32<Bits>(sum[0], job.type);
    }
  }
}

}  // namespace stash::kernels
