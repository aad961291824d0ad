// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Non-overlapping windows of 2 x 2 x 2 in volumes in NCHW where rows of x are whole vec16s (16 bytes). As in
/// pool_pairs.hpp a thread has half a vec16 of y at each of its steps; here with a vec16 of four rows of x,
/// two of one slice and two of the next. Codes have four bits, those of a step one or two bytes.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_pairs.hpp"

namespace stash::kernels {

/// As many loads are in flight as with pairs.
inline constexpr unsigned cube_steps = 2;
/// Rows of a window's slices: two bits of a tap's number. The third one is the column.
inline constexpr unsigned cube_rows = 4;
/// Codes of a step.
template <class Bits>
using cube_codes = std::conditional_t<sizeof(Bits) == 4, std::uint8_t, std::uint16_t>;
/// The highest bit of each code: set in numbers that no tap has.
inline constexpr std::uint32_t beyond_cubes = 0x8888;

/// Where a thread's windows lie in x.
template <class Bits>
class cube_positions : public step_positions<Bits, cube_steps> {
 public:
  STASH_DEVICE explicit cube_positions(const pool_job& job)
      : step_positions<Bits, cube_steps>(job), job_(job), row_(this->first()) {
    column_ = static_cast<std::uint32_t>(take_digit(row_, job.columns.by_out));
    std::uint64_t slice = row_;
    row_of_slice_ = static_cast<std::uint32_t>(take_digit(slice, job.rows.by_out));
  }

  /// The first tap of a step. The other rows of its windows follow it.
  template <class T>
  STASH_DEVICE T* in_x(T* x, unsigned step) const {
    std::uint32_t row = column_ + this->readable(step);
    const std::uint32_t column = take_small_digit(row, job_.columns.by_out);
    std::uint32_t slice = row_of_slice_ + row;
    const std::uint32_t row_of_slice = take_small_digit(slice, job_.rows.by_out);
    // A slice of windows is two slices of x, of twice as many rows each.
    const std::uint64_t rows = 4 * (row_ + row) - 2 * row_of_slice;
    return x + rows * static_cast<std::uint64_t>(job_.columns.in) + 2 * column;
  }
  STASH_DEVICE std::uint64_t row_offset(unsigned row) const {
    return (row / 2 * static_cast<std::uint64_t>(job_.rows.in) + row % 2) *
           static_cast<std::uint64_t>(job_.columns.in);
  }
  /// The byte of a step's codes in a plane, also where the step does not exist.
  STASH_DEVICE std::uint64_t byte_of_codes(unsigned step) const {
    return (block_rank() * this->block_windows + this->index(step)) / 2;
  }

 private:
  const pool_job& job_;
  std::uint64_t row_;                    ///< of the block's first window in y
  std::uint32_t column_, row_of_slice_;  ///< likewise
};

/// A vec16 of each row of x.
struct cube_vec16s {
  vector16 row[cube_rows];
};
template <class Bits>
STASH_DEVICE cube_vec16s load_cubes(const void* x, const cube_positions<Bits>& positions, unsigned step) {
  const Bits* const from = positions.in_x(static_cast<const Bits*>(x), step);
  cube_vec16s vec16s;
  STASH_UNROLL
  for (unsigned r = 0; r < cube_rows; ++r)
    vec16s.row[r] = load_once(reinterpret_cast<const vector16*>(from + positions.row_offset(r)));
  return vec16s;
}

/// What a search finds in a step: maxima, taps four bits each, and the same of those that pass, else
/// no_gradient.
struct cube_values {
  vector8 y;
  std::uint32_t taps, codes;
};

/// Half a vec16 of a row's taps in one of the windows' columns.
template <class Bits>
STASH_DEVICE std::uint32_t taps_of_column(const vector16& row, unsigned half, unsigned column) {
  if constexpr (sizeof(Bits) == 4) {
    return row.word[2 * half + column];
  } else {
    return pick_bytes(row.word[2 * half], row.word[2 * half + 1], column == 0 ? 0x5410 : 0x7632);
  }
}
/// Numbers of four bits in words of elements become neighbours.
template <class Bits>
STASH_DEVICE std::uint32_t packed_numbers(const std::uint32_t (&words)[2]) {
  if constexpr (sizeof(Bits) == 4) return words[0] | words[1] << 4;
  const auto byte = [](std::uint32_t word) { return (word | word >> 12) & 0xff; };
  return byte(words[0]) | byte(words[1]) << 8;
}

/// Maxima of a step among numbers. `noted` becomes a NaN, as is_nan_sum() sees it, where there is one in x.
template <class Bits>
STASH_DEVICE cube_values find_cubes(bool relu, const cube_vec16s& vec16s, std::uint32_t& noted) {
  cube_values found;
  std::uint32_t taps[2], codes[2];
  STASH_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    std::uint32_t best = 0, tap = 0;
    STASH_UNROLL
    for (unsigned c = 0; c < 2 * cube_rows; ++c) {
      const std::uint32_t candidate = taps_of_column<Bits>(vec16s.row[c / 2], half, c % 2);
      noted = sizeof(Bits) == 4 ? sum_of_words<Bits>(noted, candidate) : note_nan(noted, candidate);
      if (c == 0) {
        best = candidate;
      } else {
        compete_words<Bits>(candidate, number_search<Bits>::number(c), best, tap);
      }
    }
    std::uint32_t code = tap;
    if (relu) {
      const std::uint32_t kept = positive_masks<Bits>(best);
      best &= kept;
      tap &= kept;
      code = select_bits(kept, tap, number_search<Bits>::number(no_gradient));
    }
    found.y.word[half] = best;
    taps[half] = tap;
    codes[half] = code;
  }
  found.taps = packed_numbers<Bits>(taps);
  found.codes = packed_numbers<Bits>(codes);
  return found;
}

/// The same by a search that knows every rule.
template <class Bits>
STASH_DEVICE cube_values find_cubes_with_care(const pool_job& job, bool relu, const cube_vec16s& vec16s) {
  constexpr unsigned windows = pair_windows<Bits>, per_word = 4 / sizeof(Bits);
  maxima<windows> best;
  STASH_NO_UNROLL
  for (unsigned r = 0; r < cube_rows; ++r) {
    const vector16 row = r < 2    ? r == 0 ? vec16s.row[0] : vec16s.row[1]
                            : r == 2 ? vec16s.row[2]
                                  : vec16s.row[3];
    STASH_UNROLL
    for (unsigned column = 0; column < 2; ++column) {
      const lanes<Bits, windows> taps = taps_in_pairs<Bits>(row, column);
      STASH_UNROLL
      for (unsigned i = 0; i < windows && r + column == 0; ++i) {
        best.rank[i] = rank_of(taps.value[i]);
        best.tap[i] = 0;
      }
      // The first one meets itself, which changes nothing.
      compete(job, taps, 2 * r + column, best);
    }
  }
  if (relu) rectify_maxima<Bits>(job, 0, best);
  cube_values found = {};
  STASH_UNROLL
  for (unsigned i = 0; i < windows; ++i) {
    const Bits value = element_of<Bits>(best.rank[i]);
    const bool kept = !relu || passes(value, job.type, job.nan_wins);
    found.y.word[i / per_word] |= static_cast<std::uint32_t>(value) << (8 * sizeof(Bits) * (i % per_word));
    found.taps |= best.tap[i] << (4 * i);
    found.codes |= (kept ? best.tap[i] : no_gradient) << (4 * i);
  }
  return found;
}

/// Of all steps of a thread.
template <class Bits>
STASH_DEVICE void find_all_cubes(const pool_job& job, bool relu, const void* x,
                                 const cube_positions<Bits>& positions, cube_values (&found)[cube_steps]) {
  cube_vec16s vec16s[cube_steps];
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step)
    vec16s[step] = load_cubes<Bits>(x, positions, step);
  std::uint32_t noted = 0;
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step)
    found[step] = find_cubes<Bits>(relu, vec16s[step], noted);
  if (!is_nan_sum<Bits>(noted)) return;
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step)
    found[step] = find_cubes_with_care<Bits>(job, relu, load_cubes<Bits>(x, positions, step));
}

/// y and the planes that are asked for. Grid: blocks of all values of y, and of the planes' padding.
template <class Bits>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward_cubes(pool_job job, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  const cube_positions<Bits> positions(job);
  cube_values found[cube_steps];
  find_all_cubes<Bits>(job, relu, x, positions, found);
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step) {
    const bool exists = positions.exists(step);
    if (exists) *reinterpret_cast<vector8*>(positions.in_y(static_cast<Bits*>(y), step)) = found[step].y;
    const auto store = [&](const code_plane& plane, std::uint32_t codes) {
      const std::uint64_t byte = positions.byte_of_codes(step);
      if (plane.data == nullptr || byte >= plane.bytes) return;
      *reinterpret_cast<cube_codes<Bits>*>(plane.data + byte) =
          static_cast<cube_codes<Bits>>(exists ? codes : 0);
    };
    store(planes.index, found[step].taps);
    store(planes.code, found[step].codes);
  }
  if (block_rank() == 0 && thread_rank() == 0) report_planes(planes);
}

/// Codes of all steps; those whose gradient does not pass are beyond the taps. Whether one is corrupt.
template <class Bits>
STASH_DEVICE bool load_cube_codes(const pool_job& job, const encoded_argmaxes& from,
                                  const cube_positions<Bits>& positions, std::uint32_t (&codes)[cube_steps]) {
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step)
    codes[step] = *reinterpret_cast<const cube_codes<Bits>*>(from.taps + positions.number(step) / 2);
  const std::uint32_t passes = passing_of_steps<Bits>(job, from, positions);
  bool corrupt = false;
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step) {
    const std::uint32_t c = codes[step];
    // A bit each becomes the highest one of a code.
    std::uint32_t passing = passes >> (8 * step) & 15;
    passing = (passing | passing << 6) & 0x0303;
    passing = (passing | passing << 3) << 3 & beyond_cubes;
    // All four bits of no_gradient are set.
    if (from.passing == pass_source::code) passing &= ~(c & c << 1 & c << 2 & c << 3);
    corrupt = corrupt || (c & beyond_cubes & (from.tap_needs_pass ? passing : ~0U)) != 0;
    codes[step] |= ~passing & beyond_cubes;
  }
  return corrupt;
}
template <class Bits>
STASH_DEVICE bool load_cube_codes(const pool_job& job, const searched_argmaxes& from,
                                  const cube_positions<Bits>& positions, std::uint32_t (&codes)[cube_steps]) {
  cube_values found[cube_steps];
  find_all_cubes<Bits>(job, from.relu, from.x, positions, found);
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step)
    codes[step] = found[step].codes;
  return false;
}

/// What gradients of a step become in x.
STASH_DEVICE cube_vec16s spread_cubes(const element_type& type, const vector8& dy, std::uint32_t codes,
                                      std::uint32_t) {
  cube_vec16s out;
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t share = arriving(type, dy.word[i], std::uint32_t{});
    const std::uint32_t code = codes >> (4 * i) & 15;
    STASH_UNROLL
    for (unsigned tap = 0; tap < 2 * cube_rows; ++tap)
      out.row[tap / 2].word[2 * i + tap % 2] = code == tap ? share : 0;
  }
  return out;
}
STASH_DEVICE cube_vec16s spread_cubes(const element_type& type, const vector8& dy, std::uint32_t codes,
                                      std::uint16_t) {
  cube_vec16s out;
  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t shares = arriving(type, dy.word[i / 2], std::uint16_t{});
    // Bytes of a code: its column, row and slice, and whether it is beyond the taps.
    const std::uint32_t signs = spread_signs(codes >> (4 * i));
    const std::uint32_t column = signs_of_bytes<0x8888>(signs), row = signs_of_bytes<0x9999>(signs);
    const std::uint32_t slice = signs_of_bytes<0xaaaa>(signs), beyond = signs_of_bytes<0xbbbb>(signs);
    const std::uint32_t both = pick_bytes(shares, 0, i % 2 == 0 ? 0x1010 : 0x3232);
    const std::uint32_t in_column = both & (column ^ 0x0000ffffU) & ~beyond;
    out.row[0].word[i] = in_column & ~row & ~slice;
    out.row[1].word[i] = in_column & row & ~slice;
    out.row[2].word[i] = in_column & ~row & slice;
    out.row[3].word[i] = in_column & row & slice;
  }
  return out;
}

/// dx. Grid: blocks of all values of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_backward_cubes(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  const cube_positions<Bits> positions(job);
  vector8 gradients[cube_steps];
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step)
    gradients[step] = *reinterpret_cast<const vector8*>(positions.in_y(static_cast<const Bits*>(dy), step));
  std::uint32_t codes[cube_steps];
  const bool corrupt = load_cube_codes<Bits>(job, source, positions, codes);
  STASH_UNROLL
  for (unsigned step = 0; step < cube_steps; ++step) {
    const cube_vec16s out = spread_cubes(job.type, gradients[step], codes[step], Bits{});
    if (!positions.exists(step)) continue;
    Bits* const to = positions.in_x(static_cast<Bits*>(dx), step);
    STASH_UNROLL
    for (unsigned r = 0; r < cube_rows; ++r)
      store_vector(reinterpret_cast<vector16*>(to + positions.row_offset(r)), out.row[r]);
  }
  if constexpr (std::is_same_v<Source, encoded_argmaxes>) {
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
}

}  // namespace stash::kernels
