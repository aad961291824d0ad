// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Forward max pooling in NHWC, for windows that are small squares. A thread has a vec16 (16 bytes) of the
/// channels of two windows, one above the other: all that it reads are whole vec16s, and those of its
/// neighbours follow. First it finds the maximum of each row of three or two taps, which both windows may
/// have, then that of the rows. 16-bit elements stay two to a word throughout.

#include <cstdint>
#include <type_traits>

#include "common/packed.hpp"
#include "pool/pool_codes.hpp"
#include "pool/pool_forward.hpp"

namespace stash::kernels {

/// How the pooled map is cut into vec16s of two pixels, one above the other. All numbers of pixels have 31
/// bits.
struct pixel_pairs {
  divisor vec16s;                ///< of a pixel
  divisor rows;                  ///< pairs of them
  std::uint32_t units;           ///< threads
  std::uint32_t groups;          ///< of a pixel
  std::uint32_t x_step, y_step;  ///< bytes from pixel to pixel
};

/// Pixels of a thread.
inline constexpr unsigned paired = 2;

/// Tap `k` of those from `start` on, or the next one in x: it stands for one outside of x, and as the window
/// has it too, it is met twice, which changes nothing.
STASH_DEVICE std::int32_t tap_inside(const window_axis& a, std::int32_t start, unsigned k) {
  const auto tap = static_cast<std::int32_t>(k), last = static_cast<std::int32_t>(a.in) - 1 - start;
  const std::int32_t low = tap < last ? tap : last;
  return low > -start ? low : -start;
}

/// `from`, `count` steps of `step` bytes further on.
template <class Vector>
STASH_DEVICE Vector* stepped(Vector* from, std::uint32_t count, std::uint32_t step) {
  using byte = std::conditional_t<std::is_const_v<Vector>, const std::uint8_t, std::uint8_t>;
  return reinterpret_cast<Vector*>(reinterpret_cast<byte*>(from) + std::uint64_t{count} * step);
}

/// Elements whose numbers of taps share a word: where an element is half a word, a number is a byte.
template <class Bits>
inline constexpr unsigned taps_of_word = sizeof(Bits) == 4 ? 1 : 4;

/// The same number for all of those.
template <class Bits>
STASH_DEVICE std::uint32_t tap_word(std::int32_t tap) {
  return static_cast<std::uint32_t>(tap) * (sizeof(Bits) == 4 ? 1U : 0x01010101U);
}

/// Maxima of a vec16, in words.
template <class Bits>
struct pixel_maxima {
  static constexpr unsigned tap_words = vec16_elements<Bits> / taps_of_word<Bits>;
  std::uint32_t best[4], taps[tap_words];

  /// Masks of numbers of taps, from those of the elements.
  STASH_DEVICE static void masks_of_taps(const std::uint32_t (&elements)[4],
                                         std::uint32_t (&masks)[tap_words]) {
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c) {
      if constexpr (sizeof(Bits) == 4) {
        masks[c] = elements[c];
      } else {
        masks[c] = pick_bytes(elements[2 * c], elements[2 * c + 1], 0x6420);
      }
    }
  }

  /// Lets elements compete, whose taps are `at`, and `first` more.
  STASH_DEVICE void compete(const std::uint32_t (&words)[4], const std::uint32_t (&at)[tap_words],
                            std::uint32_t first) {
    if constexpr (sizeof(Bits) == 4) {
      STASH_UNROLL
      for (unsigned w = 0; w < 4; ++w)
        compete_words<Bits>(words[w], at[w] + first, best[w], taps[w]);
    } else {
      std::uint32_t more[4], masks[tap_words];
      STASH_UNROLL
      for (unsigned w = 0; w < 4; ++w) {
        more[w] = greater_masks(words[w], best[w]);
        best[w] = select_bits(more[w], words[w], best[w]);
      }
      masks_of_taps(more, masks);
      STASH_UNROLL
      for (unsigned c = 0; c < tap_words; ++c)
        taps[c] = select_bits(masks[c], at[c] + first, taps[c]);
    }
  }
};

/// Codes of `Width` bits, one after the other, from the words that they are in. Of 16-bit elements two bits
/// each, what is above them is anything.
template <class Bits, unsigned Width>
STASH_DEVICE std::uint32_t packed_codes(const std::uint32_t (&words)[pixel_maxima<Bits>::tap_words]) {
  if constexpr (sizeof(Bits) == 4) {
    const std::uint32_t low = words[0] + (words[1] << Width), high = words[2] + (words[3] << Width);
    return low + (high << 2 * Width);
  } else if constexpr (Width == 1) {
    return bits_of_bytes(words[0], words[1]);
  } else if constexpr (Width == 2) {
    // Each code comes to its position in the highest byte by one of the factor's four ones (bits_of_bytes()).
    constexpr std::uint32_t factor = 0x01041040;
    return pick_bytes(words[0] * factor, words[1] * factor, 0x73);
  } else {
    return pick_bytes(words[0] | words[0] >> 4, words[1] | words[1] >> 4, 0x6420);
  }
}

/// What the planes get of a vec16: codes one after the other.
struct pixel_codes {
  std::uint32_t index = 0, code = 0, gradient = 0;
};

/// The codes of maxima that a ReLU may come before, whose taps it changes as it does the maxima.
template <class Bits, unsigned Kernel>
STASH_DEVICE pixel_codes pixel_codes_of(const pool_planes& planes, bool relu, std::uint32_t first_tap,
                                        pixel_maxima<Bits>& m) {
  constexpr unsigned bits = square_tap_bits<Kernel>, tap_words = pixel_maxima<Bits>::tap_words;
  pixel_codes codes;
  if (relu) {
    std::uint32_t positive[4], passing[tap_words], chosen[tap_words];
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w) {
      positive[w] = positive_masks<Bits>(m.best[w]);
      m.best[w] &= positive[w];
    }
    m.masks_of_taps(positive, passing);
    STASH_UNROLL
    for (unsigned c = 0; c < tap_words; ++c) {
      m.taps[c] = select_bits(passing[c], m.taps[c], first_tap);
      chosen[c] = select_bits(passing[c], m.taps[c], bits == 4 ? tap_word<Bits>(no_gradient) : 0);
      passing[c] &= tap_word<Bits>(1);
    }
    if (planes.code.data != nullptr) codes.code = packed_codes<Bits, bits>(chosen);
    if (bits == 2 && planes.gradient.data != nullptr) codes.gradient = packed_codes<Bits, 1>(passing);
  }
  if (planes.index.data != nullptr) codes.index = packed_codes<Bits, bits>(m.taps);
  return codes;
}

/// Searches window `o` with care, one channel of the vec16 after the other, writes what is found to `y`, and
/// gives its codes.
template <class Bits, unsigned Kernel>
STASH_DEVICE pixel_codes pool_with_care(const pool_job& job, bool relu, const void* x, Bits* y,
                                        const pool_planes& planes, map_position<std::int32_t> o) {
  pixel_codes codes;
  STASH_NO_UNROLL
  for (unsigned i = 0; i < vec16_elements<Bits>; ++i, ++o.channel) {
    maxima<1> best;
    const std::uint32_t first_tap = find_maxima<Bits, 1>(job, x, job.x_pitch, o, best);
    if (relu) rectify_maxima<Bits, 1>(job, first_tap, best);
    const auto v = values_of<Bits, 1>(job, best, planes);
    y[i] = v.y.value[0];
    codes.index |= v.taps[0] << (i * square_tap_bits<Kernel>);
    codes.code |= v.codes[0] << (i * square_tap_bits<Kernel>);
    codes.gradient |= v.gradients[0] << i;
  }
  return codes;
}

/// Writes a vec16's codes of `Width` bits, of f32 those of two lanes together. All lanes of a warp come;
/// those that are not `there` write nothing.
template <class Bits, unsigned Width>
STASH_DEVICE void store_pixel_codes(const code_plane& plane, std::uint64_t group, bool there,
                                    std::uint32_t codes) {
  if (plane.data == nullptr) return;
  if constexpr (sizeof(Bits) == 4) {
    codes |= shuffle_xor(all_lanes, codes, 1) << (vec16_elements<Bits> * Width);
    there = there && thread_rank() % 2 == 0;
  }
  if (there) store_word({plane.data, plane.bytes, Width}, group, codes);
}

/// pool_forward() for windows of Kernel x Kernel with stride Stride, of groups of eight channels. Grid:
/// threads for all pairs, and for the padding of the planes.
template <class Bits, unsigned Kernel, unsigned Stride>
STASH_KERNEL(pool_threads, Kernel == 2 ? tuning::pool_blocks_of_small_pairs : tuning::pool_blocks)
pool_forward_pixels(pool_job job, pixel_pairs pairs, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  constexpr unsigned rows = (paired - 1) * Stride + Kernel, tap_words = pixel_maxima<Bits>::tap_words;
  constexpr auto kernel = static_cast<std::int32_t>(Kernel), stride = static_cast<std::int32_t>(Stride);
  constexpr unsigned bits = square_tap_bits<Kernel>, vec16s_of_group = group_vectors<Bits>;
  const auto unit = static_cast<std::uint32_t>(block_rank() * pool_threads + thread_rank());
  // After the pairs come groups of zeros.
  std::uint32_t group[paired] = {static_cast<std::uint32_t>(job.y_units) +
                                 (unit - pairs.units) / vec16s_of_group};
  bool there[paired] = {true};
  pixel_codes codes[paired];
  if (unit < pairs.units) {
    std::uint32_t rest = unit;
    const std::uint32_t vec16 = take_small_digit(rest, pairs.vec16s);
    const auto column = static_cast<std::int32_t>(take_small_digit(rest, job.columns.by_out));
    const auto row = static_cast<std::int32_t>(take_small_digit(rest, pairs.rows) * paired);
    const std::int32_t left = column * stride - static_cast<std::int32_t>(job.columns.pad);
    const std::int32_t top = row * stride - static_cast<std::int32_t>(job.rows.pad);

    std::int32_t column_tap[Kernel], row_tap[rows];
    vector16 loaded[rows][Kernel];
    const auto* const first_vec16 = static_cast<const vector16*>(x) + vec16;
    STASH_UNROLL
    for (unsigned k = 0; k < Kernel; ++k)
      column_tap[k] = tap_inside(job.columns, left, k);
    STASH_UNROLL
    for (unsigned r = 0; r < rows; ++r) {
      row_tap[r] = tap_inside(job.rows, top, r);
      const std::uint32_t first =
          (rest * static_cast<std::uint32_t>(job.rows.in) + static_cast<std::uint32_t>(top + row_tap[r])) *
              static_cast<std::uint32_t>(job.columns.in) +
          static_cast<std::uint32_t>(left);
      STASH_UNROLL
      for (unsigned k = 0; k < Kernel; ++k)
        loaded[r][k] = *stepped(first_vec16, first + static_cast<std::uint32_t>(column_tap[k]), pairs.x_step);
    }

    pixel_maxima<Bits> found[paired];
    std::uint32_t sum = 0;
    const std::uint32_t first_column = tap_word<Bits>(column_tap[0]);
    STASH_UNROLL
    for (unsigned r = 0; r < rows; ++r) {
      pixel_maxima<Bits> of_row;
      STASH_UNROLL
      for (unsigned w = 0; w < 4; ++w)
        of_row.best[w] = loaded[r][0].word[w];
      STASH_UNROLL
      for (unsigned c = 0; c < tap_words; ++c)
        of_row.taps[c] = first_column;
      STASH_UNROLL
      for (unsigned k = 0; k < Kernel; ++k) {
        STASH_UNROLL
        for (unsigned w = 0; w < 4; ++w)
          sum = sum_of_words<Bits>(sum, loaded[r][k].word[w]);
        std::uint32_t at[tap_words];
        STASH_UNROLL
        for (unsigned c = 0; c < tap_words; ++c)
          at[c] = tap_word<Bits>(column_tap[k]);
        if (k > 0) of_row.compete(loaded[r][k].word, at, 0);
      }
      STASH_UNROLL
      for (unsigned p = 0; p < paired; ++p) {
        if (r < p * Stride || r >= p * Stride + Kernel) continue;
        const std::uint32_t taps =
            tap_word<Bits>((row_tap[r] - static_cast<std::int32_t>(p) * stride) * kernel);
        if (r > p * Stride) {
          found[p].compete(of_row.best, of_row.taps, taps);
        } else {
          found[p] = of_row;
          STASH_UNROLL
          for (unsigned c = 0; c < tap_words; ++c)
            found[p].taps[c] += taps;
        }
      }
    }

    const bool care = is_nan_sum<Bits>(sum);
    auto* const first_pooled = static_cast<vector16*>(y) + vec16;
    const std::uint32_t pixel =
        (rest * static_cast<std::uint32_t>(job.rows.out) + static_cast<std::uint32_t>(row)) *
            static_cast<std::uint32_t>(job.columns.out) +
        static_cast<std::uint32_t>(column);
    STASH_UNROLL
    for (unsigned p = 0; p < paired; ++p) {
      const auto own = static_cast<std::int32_t>(p);
      const std::uint32_t first_tap =
          tap_word<Bits>((row_tap[p * Stride] - own * stride) * kernel) + first_column;
      codes[p] = pixel_codes_of<Bits, Kernel>(planes, relu, first_tap, found[p]);
      const std::uint32_t at = pixel + p * static_cast<std::uint32_t>(job.columns.out);
      group[p] = at * pairs.groups + vec16 / vec16s_of_group;
      there[p] = row + own < static_cast<std::int32_t>(job.rows.out);
      const std::uint32_t(&best)[4] = found[p].best;
      if (there[p] && !care)
        store_vector(stepped(first_pooled, at, pairs.y_step), {{best[0], best[1], best[2], best[3]}});
    }
    if (care) {
      map_position<std::int32_t> o{rest, 0, std::uint64_t{vec16} * vec16_elements<Bits>, 0, row, column};
      STASH_NO_UNROLL
      for (unsigned p = 0; p < paired && o.y < job.rows.out; ++p, ++o.y) {
        auto* const to =
            stepped(first_pooled, pixel + p * static_cast<std::uint32_t>(job.columns.out), pairs.y_step);
        const pixel_codes careful =
            pool_with_care<Bits, Kernel>(job, relu, x, reinterpret_cast<Bits*>(to), planes, o);
        STASH_UNROLL
        for (unsigned i = 0; i < paired; ++i)
          codes[i] = i == p ? careful : codes[i];
      }
    }
  }
  STASH_UNROLL
  for (unsigned p = 0; p < paired; ++p) {
    store_pixel_codes<Bits, bits>(planes.index, group[p], there[p], codes[p].index);
    store_pixel_codes<Bits, bits>(planes.code, group[p], there[p], codes[p].code);
    if constexpr (bits == 2)
      store_pixel_codes<Bits, 1>(planes.gradient, group[p], there[p], codes[p].gradient);
  }
  if (unit == 0) report_planes(planes);
}

}  // namespace stash::kernels
