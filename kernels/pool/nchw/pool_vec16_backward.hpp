// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward max pooling of vec16s (pool_vec16.hpp). A thread's rows begin with the first row of windows, so
/// which taps of a window its elements are is known when this is compiled. Codes lie in words, of four bits
/// each, in the order of windows; argmaxes in x are found for every window that the thread needs.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_vec16.hpp"
#include "pool/pool_backward.hpp"
#include "pool/pool_codes.hpp"

namespace stash::kernels {

/// Windows of a row that cover a vec16: those that begin in it, and one more, which comes before them without
/// padding and after them with it.
template <class Bits>
inline constexpr unsigned covering_vec16 = vec16_windows<Bits> + 1;

/// Rows of them: those that begin in a thread's rows, and the one before.
template <unsigned Count>
struct covering_rows {
  std::uint64_t plane;         ///< its first window among all of y
  std::int32_t to_more;        ///< from a vec16's windows to the one more, or to any if there is none
  std::int32_t top[Count];     ///< the first row in x
  std::uint32_t at[Count];     ///< the windows that begin in the vec16, in the plane
  std::uint32_t there[Count];  ///< all bits of four for each window that exists
};
template <class Bits, unsigned Pad, unsigned Count>
STASH_DEVICE covering_rows<Count> rows_around(const pool_job& job, const vec16_grid& grid,
                                              const row_vec16& position) {
  constexpr auto count = static_cast<std::int32_t>(vec16_windows<Bits>);
  constexpr std::uint32_t all = (1U << 4 * covering_vec16<Bits>)-1;
  constexpr std::uint32_t more = Pad == 0 ? 0xfU : 0xfU << 4 * vec16_windows<Bits>;
  const bool any_more = Pad == 0 ? position.left : position.right;
  const std::uint32_t columns = any_more ? all : all & ~more;
  covering_rows<Count> rows;
  rows.plane = std::uint64_t{position.plane} * grid.y_plane;
  rows.to_more = any_more ? (Pad == 0 ? -1 : count) : 0;
  const std::int32_t before = ((position.row + static_cast<std::int32_t>(job.rows.pad)) >> 1) - 1;
  STASH_UNROLL
  for (unsigned r = 0; r < Count; ++r) {
    const std::int32_t row = before + static_cast<std::int32_t>(r);
    const std::int32_t nearest = nearest_in(row, static_cast<std::int32_t>(job.rows.out));
    rows.top[r] = position.row + 2 * (static_cast<std::int32_t>(r) - 1);
    rows.at[r] = static_cast<std::uint32_t>(nearest * static_cast<std::int32_t>(job.columns.out) +
                                            position.vec16 * count);
    rows.there[r] = row == nearest ? columns : 0;
  }
  return rows;
}

/// Windows that begin in the vec16 and the one more, in their order, of `Width` bits each.
template <class Bits, unsigned Pad, unsigned Width>
STASH_DEVICE std::uint32_t in_order(std::uint32_t begin, std::uint32_t more) {
  return Pad == 0 ? more | begin << Width : begin | more << (Width * vec16_windows<Bits>);
}

/// Gradients of a row of windows as they lie in memory.
template <class Bits>
struct vec16_gradients {
  vector8 begin;
  Bits more;

  STASH_DEVICE void load(const Bits* from, std::int32_t to_more) {
    begin = *reinterpret_cast<const vector8*>(from);
    more = from[to_more];
  }
  /// In the order of windows, exact but for NaN, whose sign may be lost.
  template <unsigned Pad>
  STASH_DEVICE void to_f32s(const element_type& type, float* values) const {
    constexpr unsigned first = Pad == 0 ? 1 : 0, last = Pad == 0 ? 0 : vec16_windows<Bits>;
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

/// Codes of a row of windows, as they are in memory.
template <class Bits, unsigned Pad>
STASH_DEVICE std::uint32_t load_row_codes(const std::uint8_t* taps, std::int32_t to_more) {
  std::uint32_t begin;
  if constexpr (vec16_windows<Bits> == 2) {
    begin = *taps;
  } else {
    begin = *reinterpret_cast<const std::uint16_t*>(taps);
  }
  // Two codes in a byte: the one before is in its upper half, the one after in its lower half.
  const std::uint32_t pair = taps[to_more >> 1];
  return in_order<Bits, Pad, 4>(begin, Pad == 0 ? pair >> 4 : pair & 0xf);
}

/// Argmaxes whose gradients pass by a plane.
struct plane_argmaxes : encoded_argmaxes {};

/// Bits of a row of windows from a plane, in their order.
template <class Bits, unsigned Pad>
STASH_DEVICE std::uint32_t bits_of_windows(const std::uint8_t* plane, std::uint64_t at,
                                           std::int32_t to_more) {
  const std::uint64_t other = at + static_cast<std::uint64_t>(static_cast<std::int64_t>(to_more));
  const std::uint32_t begin = plane[at / 8] >> (at % 8) & ((1U << vec16_windows<Bits>)-1);
  return in_order<Bits, Pad, 1>(begin, plane[other / 8] >> (other % 8) & 1);
}

/// Without padding the last window of a row reaches out of x by a column, with it the first one does.
template <class Bits, unsigned Pad>
inline constexpr unsigned outermost_window = Pad == 0 ? vec16_windows<Bits> : 0;
/// The taps that it does not have in x, a bit each, if it is one of a vec16's windows.
template <unsigned Pad>
STASH_DEVICE std::uint32_t taps_outside(const row_vec16& position) {
  constexpr std::uint32_t column = 0x49;
  return Pad == 0 ? (position.right ? 0 : column << 2) : position.left ? 0 : column;
}

/// Whether one of the codes of windows that exist is no tap of any window, or of the outermost one.
template <class Bits, unsigned Pad>
STASH_DEVICE bool beyond_taps(pass_source passing, const row_vec16& position, std::uint32_t codes) {
  const std::uint32_t outermost = codes >> 4 * outermost_window<Bits, Pad> & 0xf;
  return any_beyond_taps(codes, passing) || (taps_outside<Pad>(position) >> outermost & 1) != 0;
}
/// Whether a code of a row names no tap of its window in x.
template <class Bits, unsigned Pad>
STASH_DEVICE bool any_corrupt(const pool_job& job, pass_source passing, const row_vec16& position,
                              std::int32_t top, std::uint32_t there, std::uint32_t codes) {
  std::uint32_t legal = 0;
  STASH_UNROLL
  for (unsigned ky = 0; ky < 3; ++ky) {
    const std::int32_t row = top + static_cast<std::int32_t>(ky);
    legal |= row >= 0 && row < static_cast<std::int32_t>(job.rows.in) ? 7U << 3 * ky : 0;
  }
  const std::uint32_t none = passing == pass_source::code ? 1U << no_gradient : 0;
  std::uint32_t wrong = 0;
  STASH_UNROLL
  for (unsigned c = 0; c < covering_vec16<Bits>; ++c) {
    const std::uint32_t outside = c == outermost_window<Bits, Pad> ? taps_outside<Pad>(position) : 0;
    wrong |= ~((legal & ~outside) | none) >> (codes >> 4 * c & 0xf) & there >> 4 * c;
  }
  return (wrong & 1) != 0;
}

/// Codes of rows of windows; 15, which is no tap, where there is no window or the gradient does not pass.
/// False if they have to be looked for in another way.
template <class Bits, unsigned Pad, unsigned Count, class Source>
STASH_DEVICE bool passing_codes(const pool_job& job, const vec16_grid&, const Source& source,
                                const covering_rows<Count>& rows, const row_vec16& position,
                                std::uint32_t (&codes)[Count]) {
  const std::uint8_t* const taps = source.taps + rows.plane / 2;
  std::uint32_t known[Count];  // codes of windows that exist
  STASH_UNROLL
  for (unsigned r = 0; r < Count; ++r)
    known[r] = load_row_codes<Bits, Pad>(taps + rows.at[r] / 2, rows.to_more) & rows.there[r];
  // The thread of a window's first row looks for codes that none takes. There is no row before the first
  // thread's: padding is a row at most.
  bool suspect = rows.top[1] < 0 || rows.top[Count - 1] + 3 > static_cast<std::int32_t>(job.rows.in);
  STASH_UNROLL
  for (unsigned r = 1; r < Count; ++r)
    suspect = suspect || beyond_taps<Bits, Pad>(source.passing, position, known[r]);
  if (suspect) {
    bool corrupt = false;
    STASH_UNROLL
    for (unsigned r = 1; r < Count; ++r) {
      corrupt = any_corrupt<Bits, Pad>(job, source.passing, position, rows.top[r], rows.there[r], known[r]) ||
                corrupt;
    }
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
  STASH_UNROLL
  for (unsigned r = 0; r < Count; ++r) {
    codes[r] = known[r] | ~rows.there[r];
    if constexpr (std::is_same_v<Source, plane_argmaxes>)
      codes[r] |=
          ~four_times(bits_of_windows<Bits, Pad>(source.plane, rows.plane + rows.at[r], rows.to_more));
  }
  return true;
}
template <class Bits, unsigned Pad, unsigned Count>
STASH_DEVICE bool passing_codes(const pool_job& job, const vec16_grid& grid, const searched_argmaxes& source,
                                const covering_rows<Count>& rows, const row_vec16& position,
                                std::uint32_t (&codes)[Count]) {
  constexpr unsigned count = covering_vec16<Bits>;
  vec16_search<Bits, Pad, count, Count> search(job, grid, source.x, position, rows.top[0]);
  if (!search.numbers) return false;
  STASH_UNROLL
  for (unsigned r = 0; r < Count; ++r) {
    vec16_maxima<Bits, count>& found = search.found[r];
    if (source.relu) {
      STASH_UNROLL
      for (unsigned w = 0; w < vec16_maxima<Bits, count>::words; ++w)
        found.tap[w] = select_bits(positive_masks<Bits>(found.value[w]), found.tap[w], found.number(15));
    }
    codes[r] = found.codes() | ~rows.there[r];
  }
  return true;
}

/// Sums, none of which is NaN, as a vec16.
template <class Bits>
STASH_DEVICE vector16 vec16_of_sums(const float (&sums)[vec16_elements<Bits>], const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    return {{as_bits(sums[0]), as_bits(sums[1]), as_bits(sums[2]), as_bits(sums[3])}};
  } else {
    vector16 out[1];
    vec16s_of_floats<Bits>(sums, type, out);
    return out[0];
  }
}

/// Where windows are found again, registers hold rows of x.
template <class Source>
inline constexpr unsigned pool_blocks_of_vec16 =
    std::is_base_of_v<encoded_argmaxes, Source> ? tuning::pool_blocks_of_vec16
                                                : tuning::pool_blocks_of_searched_vec16;
/// Rows of a thread, in pairs.
inline constexpr unsigned vec16_row_pairs = 2;

/// pool_backward() for windows of 3 x 3 with stride 2, `Pad` columns before x. Grid: threads for all vec16s
/// of dx.
template <class Bits, unsigned Pad, class Source>
STASH_KERNEL(pool_threads, pool_blocks_of_vec16<Source>)
pool_backward_vec16(pool_job job, vec16_grid grid, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned length = vec16_elements<Bits>, count = covering_vec16<Bits>;
  constexpr unsigned pairs = vec16_row_pairs;
  const std::uint32_t unit = thread_unit();
  if (unit >= grid.units) return;
  const row_vec16 position = position_of_vec16<2 * pairs>(grid, unit);
  const covering_rows<pairs + 1> rows = rows_around<Bits, Pad, pairs + 1>(job, grid, position);
  vec16_gradients<Bits> gradients[pairs + 1];
  STASH_UNROLL
  for (unsigned r = 0; r < pairs + 1; ++r)
    gradients[r].load(static_cast<const Bits*>(dy) + rows.plane + rows.at[r], rows.to_more);
  std::uint32_t codes[pairs + 1] = {};
  const bool known = passing_codes<Bits, Pad>(job, grid, source, rows, position, codes);
  float gradient[pairs + 1][count];
  STASH_UNROLL
  for (unsigned r = 0; r < pairs + 1; ++r)
    gradients[r].template to_f32s<Pad>(job.type, gradient[r]);

  const auto in_map = [&](std::int32_t row) { return row >= 0 && row < job.rows.in; };
  const auto width = static_cast<std::int32_t>(job.columns.in);
  const std::int32_t column = position.vec16 * static_cast<std::int32_t>(length);
  Bits* const to =
      static_cast<Bits*>(dx) + std::uint64_t{position.plane} * grid.x_plane + (position.row * width + column);
  std::uint32_t careful = 0;  // pairs of rows that need more than sums, a bit each
  STASH_UNROLL
  for (unsigned pair = 0; pair < pairs; ++pair) {
    float sums[2][length] = {};
    STASH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      STASH_UNROLL
      for (unsigned p = 0; p < 2; ++p) {
        // Unsigned: a row or a column that there is not is above all others.
        const unsigned ky = p + 2 - 2 * r;
        if (ky >= 3) continue;
        // The last taps first: theirs are the windows that come first.
        STASH_UNROLL
        for (unsigned back = 0; back < 3; ++back) {
          const unsigned kx = 2 - back;
          const std::uint32_t other = codes[pair + r] ^ (ky * 3 + kx) * 0x11111111U;
          STASH_UNROLL
          for (unsigned c = 0; c < count; ++c) {
            const unsigned i = kx + 2 * c - (Pad == 0 ? 2 : 1);
            if (i < length) add_unless(sums[p][i], gradient[pair + r][c], other & 0xfU << (4 * c));
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
    const bool numbers = known && sum_of_all == sum_of_all;
    careful |= numbers ? 0 : 1U << pair;
    STASH_UNROLL
    for (unsigned p = 0; p < 2; ++p) {
      const auto row = static_cast<std::int32_t>(2 * pair + p);
      const vector16 out = vec16_of_sums<Bits>(sums[p], job.type);
      if (numbers && in_map(position.row + row))
        store_vector(reinterpret_cast<vector16*>(to + row * width), out);
    }
  }
  if (careful == 0) return;
  STASH_NO_UNROLL
  for (unsigned p = 0; p < 2 * pairs; ++p) {
    const auto row = static_cast<std::int32_t>(p);
    if ((careful >> p / 2 & 1) == 0 || !in_map(position.row + row)) continue;
    STASH_NO_UNROLL
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(length); ++i) {
      const map_position<std::int32_t> e{position.plane, 0, 0, 0, position.row + row, column + i};
      float sum[1] = {};
      gather<Bits, 1>(job, dy, source, e, sum);
      to[row * width + i] = result_from_f32<Bits>(sum[0], job.type);
    }
  }
}

}  // namespace stash::kernels
