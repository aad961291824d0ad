// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Rows of a halo tile (pool_halo_tiles.hpp) as threads meet them: which windows are looked at, where a
/// thread begins, and what its windows have of a row.

#include <cstdint>

#include "pool/nchw/pool_halo_tiles.hpp"
#include "pool/nchw/pool_vec16.hpp"

namespace stash::kernels {

/// Some windows of y, row after row from the first one's row on.
struct halo_windows {
  std::int64_t first;  ///< window
  std::uint32_t count;
  std::uint64_t plane;        ///< of the first window
  std::uint32_t row, column;  ///< in its plane
};

/// What a thread's windows have of a row of x; and of dy, what a thread's elements have of a row of windows.
/// f32: one element in a word. 16 bits: two.
template <class Bits, unsigned Kernel, unsigned Stride>
struct halo_row {
  static constexpr unsigned elements = (halo_columns - 1) * Stride + Kernel;
  static constexpr unsigned words = sizeof(Bits) == 4 ? elements : (elements + 1) / 2;
  std::uint32_t word[words];

  /// `element`: of the first element in the halo tile.
  STASH_DEVICE void load(const vector16* halo, std::uint32_t element) {
    const auto* const from = reinterpret_cast<const std::uint32_t*>(halo);
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        word[i] = from[element + i];
    } else {
      std::uint32_t whole[words + 1];
      STASH_UNROLL
      for (unsigned i = 0; i < words + 1; ++i)
        whole[i] = from[element / 2 + i];
      STASH_UNROLL
      for (unsigned i = 0; i < words; ++i)
        word[i] = funnel_right(whole[i], whole[i + 1], element % 2 * 16);
    }
  }
  /// Tap `k` of a row of the windows in word `w`.
  STASH_DEVICE std::uint32_t tap(unsigned w, unsigned k) const {
    if constexpr (sizeof(Bits) == 4) {
      return word[w * Stride + k];
    } else if constexpr (Stride == 1) {
      return k == 1 ? pick_bytes(word[w], word[w + 1], 0x5432) : word[w + k / 2];
    } else {
      const unsigned at = 2 * w + k / 2;
      return pick_bytes(word[at], word[at + 1 < words ? at + 1 : at], k == 1 ? 0x7632 : 0x5410);
    }
  }
};

/// Element `i` of a thread's in words.
template <class T>
STASH_DEVICE T element_of_words(const std::uint32_t (&words)[halo_words<T>], unsigned i) {
  constexpr unsigned bits = 8 * sizeof(T), per_word = 32 / bits;
  return static_cast<T>(words[i / per_word] >> (bits * (i % per_word)));
}

/// Where a thread begins.
struct halo_position {
  std::uint32_t at;       ///< of its first window among those that are needed; very large before them
  std::uint32_t column;   ///< of that window
  std::uint32_t columns;  ///< of a row from there on: those after them are not its own
  std::uint32_t rows;
  std::uint32_t plane, row;  ///< planes from the first window's; the row in its plane

  STASH_DEVICE halo_position(const halo_walk& walk, const halo_windows& windows, const divisor& width,
                             const divisor& height, std::uint32_t unit) {
    const auto length = static_cast<std::uint32_t>(width.value);
    std::uint32_t segment, group;
    walk.find(unit, segment, group);
    column = group * halo_columns;
    const std::uint32_t first_row = segment * walk.rows;
    at = first_row * length + column - windows.column;
    columns = length - column;
    const std::uint32_t all = small_quotient(windows.column + windows.count + length - 1, width);
    rows = first_row >= all ? 0 : all - first_row < walk.rows ? all - first_row : walk.rows;
    plane = windows.row + first_row;
    row = take_small_digit(plane, height);
  }
};

/// Lets the elements of a word compete with those before them, unless there are none; they win where there
/// are none before them.
template <class Bits>
STASH_DEVICE void compete_in_order(bool first, bool none, std::uint32_t word, std::uint32_t tap,
                                   std::uint32_t& best, std::uint32_t& best_tap) {
  if constexpr (sizeof(Bits) == 4) {
    const bool more = (as_float(word) > as_float(best) && !none) || first;
    best = more ? word : best;
    best_tap = more ? tap : best_tap;
  } else {
    const std::uint32_t more =
        (greater_masks(word, best) & (none ? 0 : 0xffffffffU)) | (first ? 0xffffffffU : 0);
    best = select_bits(more, word, best);
    best_tap = select_bits(more, tap, best_tap);
  }
}

}  // namespace stash::kernels
