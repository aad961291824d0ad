// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Going backward, the windows that cover a tile of dx (pool_halo_tiles.hpp): a byte each in shared memory,
/// from codes or found again in x.

#include <cstdint>
#include <type_traits>

#include "pool/nchw/pool_halo_search.hpp"
#include "pool/pool_codes.hpp"

namespace stash::kernels {

/// A window's byte is its tap; this is added where no gradient goes there, or no such window exists.
inline constexpr std::uint32_t halo_blocked = 16;

/// The windows that cover a tile of dx, as whole rows, and their bytes.
struct halo_taps {
  halo_windows windows;  ///< those in the map
  std::int64_t needed,
      needed_end;       ///< numbers of the first one and of the one after the last; also outside of the map
  std::int64_t first;   ///< of byte 0: a multiple of 8
  std::uint32_t bytes;  ///< a multiple of 8

  template <unsigned Kernel, unsigned Stride>
  STASH_DEVICE static halo_taps covering(const pool_job& job, const halo_grid& grid, const out_tile& tile) {
    constexpr auto kernel = static_cast<std::int32_t>(Kernel), stride = static_cast<std::int32_t>(Stride);
    const auto width = static_cast<std::int32_t>(job.columns.out),
               height = static_cast<std::int32_t>(job.rows.out);
    const auto pad = static_cast<std::int32_t>(job.rows.pad);
    std::uint32_t plane = tile.last_row(job.columns.by_in);
    const auto last = static_cast<std::int32_t>(take_small_digit(plane, job.rows.by_in));
    const std::int32_t last_plane = static_cast<std::int32_t>(plane) * height;
    // Rows of windows, counted from the first plane's first one.
    std::int32_t begin, end;
    if constexpr (Stride == 1) {
      begin = static_cast<std::int32_t>(tile.row) - 1;
      end = last_plane + last + 2;
    } else {
      // Those of the first square, also where the tile has its second row only.
      const std::int32_t first = (static_cast<std::int32_t>(tile.row) + pad) / stride - (kernel - stride);
      const std::int32_t covering = (last + pad) / stride + 1;
      begin = first < 0 ? 0 : first < height ? first : height;
      end = last_plane + (covering < height ? covering : height);
    }
    const std::int64_t first_row = static_cast<std::int64_t>(tile.plane) * height;
    halo_taps taps;
    taps.needed = (first_row + begin) * width;
    taps.needed_end = (first_row + end) * width;
    // The one in front of them is read, too.
    taps.first = (taps.needed - 1) >> 3 << 3;
    // Some are read at once.
    taps.bytes =
        static_cast<std::uint32_t>(taps.needed_end + 4 - taps.first + 7) / group_elements * group_elements;
    const auto values = static_cast<std::int64_t>(grid.read_values);
    halo_windows& windows = taps.windows;
    windows.first = taps.needed > 0 ? taps.needed : 0;
    windows.count =
        static_cast<std::uint32_t>((taps.needed_end < values ? taps.needed_end : values) - windows.first);
    windows.column = 0;
    windows.plane = tile.plane;
    windows.row = static_cast<std::uint32_t>(begin > 0 ? begin : 0);
    if (begin < 0 && taps.needed >= 0) {
      --windows.plane;
      windows.row = static_cast<std::uint32_t>(height - 1);
    } else if (begin == height) {
      ++windows.plane;
      windows.row = 0;
    }
    return taps;
  }
  STASH_DEVICE std::uint32_t index_of(std::int64_t window) const {
    return static_cast<std::uint32_t>(window - first);
  }
};

/// Of eight windows from `first` on: the gradients of which do not pass, a bit each. All of them are in the
/// map.
template <class Bits>
STASH_DEVICE std::uint32_t blocked_bits(const pool_job& job, const encoded_argmaxes& source,
                                        std::uint64_t first, std::uint32_t count) {
  std::uint32_t bits = 0;
  switch (source.passing) {
    case pass_source::always:
    case pass_source::code:  // no_gradient is no tap
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

/// Four codes of two bits as bytes.
STASH_DEVICE std::uint32_t bytes_of_codes(std::uint32_t codes) {
  const std::uint32_t pairs = (codes | codes << 12) & 0x000f000fU;
  return (pairs | pairs << 6) & 0x03030303U;
}

/// Splits codes of `Width` bits; whether one is the number of no tap. All threads come.
template <class Bits, unsigned Width>
STASH_DEVICE bool load_halo_taps(const pool_job& job, const encoded_argmaxes& source, const halo_taps& taps,
                                 vector16* to) {
  constexpr auto eight = static_cast<std::int32_t>(group_elements);
  using code_word = std::conditional_t<Width == 4, std::uint32_t, std::uint16_t>;
  const auto* const words = reinterpret_cast<const code_word*>(source.taps) + taps.first / eight;
  const auto all = static_cast<std::int32_t>(taps.bytes);
  const auto begin = static_cast<std::int32_t>(taps.index_of(taps.windows.first));
  const std::int32_t end = begin + static_cast<std::int32_t>(taps.windows.count);
  const bool looks = source.passing != pass_source::always && source.passing != pass_source::code;
  bool corrupt = false;
  STASH_NO_UNROLL
  for (auto at = static_cast<std::int32_t>(thread_rank()) * eight; at < all;
       at += static_cast<std::int32_t>(halo_threads) * eight) {
    std::uint32_t codes = 0, blocked = 0xff;
    if (at + eight > begin && at < end) {
      const std::uint32_t skipped = at < begin ? static_cast<std::uint32_t>(begin - at) : 0;
      const std::uint32_t count = end - at < eight ? static_cast<std::uint32_t>(end - at) : group_elements;
      codes = words[at / eight];
      blocked = 0xffU << count | ((1U << skipped) - 1);
      if constexpr (Width == 4) {
        const std::uint32_t known = ~four_times(blocked & 0xff);
        corrupt = any_beyond_taps(codes, source.passing, known) || corrupt;
      }
      if (looks)
        blocked |= blocked_bits<Bits>(job, source, static_cast<std::uint64_t>(taps.first + at), count);
    }
    vector8 bytes;
    if constexpr (Width == 4) {
      const std::uint32_t even = codes & 0x0f0f0f0fU, odd = codes >> 4 & 0x0f0f0f0fU;
      bytes = {{pick_bytes(even, odd, 0x5140), pick_bytes(even, odd, 0x7362)}};
    } else {
      bytes = {{bytes_of_codes(codes), bytes_of_codes(codes >> 8)}};
    }
    if ((blocked & 0xff) != 0) {
      // Where the tap means nothing, it is not looked at.
      const std::uint32_t byte = source.tap_needs_pass ? halo_blocked | 15 : halo_blocked;
      STASH_UNROLL
      for (unsigned i = 0; i < 2; ++i)
        bytes.word[i] |= bytes_of_bits(blocked >> 4 * i) * byte;
    }
    reinterpret_cast<vector8*>(to)[at / eight] = bytes;
  }
  return corrupt;
}

/// Finds the bytes of windows, which are whole rows, in a halo tile of x. All threads come.
template <class Search>
STASH_DEVICE void find_halo_taps(const pool_job& job, const halo_walk& walk, bool relu, const halo_taps& taps,
                                 const vector16* halo, const shared_halo& in_halo, std::uint8_t* to) {
  const std::uint32_t skipped = taps.index_of(taps.windows.first);
  STASH_NO_UNROLL
  for (std::uint32_t i = thread_rank(); i < taps.bytes; i += halo_threads) {
    if (i < skipped || i >= skipped + taps.windows.count) to[i] = halo_blocked;
  }
  search_halo<Search>(
      job, walk, taps.windows, halo, in_halo,
      [&](std::uint32_t at, std::uint32_t columns, const Search&, typename Search::row_maxima& found) {
        if (relu) {
          STASH_UNROLL
          for (unsigned w = 0; w < halo_words<typename Search::bits>; ++w)
            found.tap[w] = select_bits(positive_masks<typename Search::bits>(found.value[w]), found.tap[w],
                                       found.number(halo_blocked));
        }
        STASH_UNROLL
        for (unsigned i = 0; i < halo_columns; ++i) {
          if (i >= columns) continue;
          to[skipped + at + i] =
              static_cast<std::uint8_t>(element_of_words<typename Search::bits>(found.tap, i));
        }
      });
}

/// Whether a window has the number of a tap outside of x. Only the first and the last one of a row or of a
/// column have such taps. All threads come.
template <unsigned Kernel>
STASH_DEVICE bool any_halo_tap_outside(const pool_job& job, const halo_taps& taps,
                                       const std::uint8_t* bytes) {
  const auto width = static_cast<std::uint32_t>(job.columns.out);
  const auto height = static_cast<std::uint32_t>(job.rows.out);
  // Taps outside of x, a bit each, of the first windows in the low half, of the last ones in the high half.
  const auto outer_taps = [](const window_axis& axis, std::uint32_t first_taps, unsigned distance) {
    const auto last = static_cast<std::int32_t>((axis.out - 1) * axis.stride - axis.pad);
    std::uint32_t outer = axis.pad > 0 ? first_taps : 0;
    STASH_UNROLL
    for (unsigned k = 0; k < Kernel; ++k)
      outer |= last + static_cast<std::int32_t>(k) >= axis.in ? first_taps << (16 + k * distance) : 0;
    return outer;
  };
  const std::uint32_t of_columns = outer_taps(job.columns, Kernel == 3 ? 0x49 : 5, 1);
  const std::uint32_t of_rows = outer_taps(job.rows, (1U << Kernel) - 1, Kernel);
  // Windows are numbers of their bytes.
  const halo_windows& windows = taps.windows;
  const std::uint32_t begin = taps.index_of(windows.first);
  const std::uint32_t rows = small_quotient(windows.count, job.columns.by_out);
  std::uint32_t any = 0;
  const auto look = [&](std::uint32_t window, std::uint32_t outer) { any |= outer >> (bytes[window] & 15U); };
  if (of_columns != 0) {
    STASH_NO_UNROLL
    for (std::uint32_t k = thread_rank(); k < 2 * rows; k += halo_threads)
      look(begin + k / 2 * width + (k % 2 == 0 ? 0 : width - 1), of_columns >> k % 2 * 16 & 0xffff);
  }
  if (of_rows != 0) {
    // The last row of a plane and the first one of the next.
    const std::uint32_t pair_row = height - 1 - windows.row - (windows.row == 0 ? height : 0);
    const std::uint32_t pairs = small_quotient(rows + height - 1 - pair_row, job.rows.by_out);
    STASH_NO_UNROLL
    for (std::uint32_t k = thread_rank(); k < pairs * 2 * width; k += halo_threads) {
      const std::uint32_t pair = small_quotient(k / 2, job.columns.by_out), window = k - pair * 2 * width;
      const std::uint32_t at = (pair_row + pair * height) * width + window;
      if (at < windows.count) look(begin + at, window < width ? of_rows >> 16 : of_rows & 0xffff);
    }
  }
  return (any & 1) != 0;
}

}  // namespace stash::kernels
