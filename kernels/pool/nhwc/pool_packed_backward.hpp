// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// pool_backward_pixels() for 16-bit elements and windows with stride 2, two elements at a time. A block of 2
/// x 2 pixels begins with the first tap of a window, its own; three more reach into it. Of its pixels one has
/// four windows, whose gradients are added as f32, and the others have two or one: a sum of two 16-bit
/// elements that is rounded to one of them is the f32 sum that is rounded so.

#include <cstdint>

#include "pool/nhwc/pool_last_backward.hpp"
#include "pool/nhwc/pool_last_forward.hpp"

namespace stash::kernels {

/// How a map is cut into blocks of pixels. All numbers of pixels have 31 bits.
struct packed_blocks {
  divisor vec16s;                        ///< of a pixel: groups of channels
  divisor rows, columns;                 ///< of blocks
  std::int32_t first_row, first_column;  ///< pixel_blocks
  std::uint32_t units;                   ///< threads
  std::uint32_t x_step, y_step;          ///< bytes from pixel to pixel
};

/// Sums of elements, two at once.
template <bool Bf16>
STASH_DEVICE std::uint32_t add_elements(std::uint32_t a, std::uint32_t b) {
  return Bf16 ? add_bfloats(a, b) : add_halves(a, b);
}

/// Gradients of a block's windows, the own one last, and their codes: 15 is no tap.
struct block_windows {
  vector16 gradient[4];
  std::uint32_t codes[4];
};

/// Word `w` of the block's four pixels.
template <bool Bf16>
STASH_DEVICE void sum_of_windows(const block_windows& windows, unsigned w, std::uint32_t (&pixels)[4]) {
  std::uint32_t gradient[4], codes[4];
  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    // -0 becomes what it is as a sum.
    gradient[i] = add_elements<Bf16>(windows.gradient[i].word[w], 0);
    // Two codes of a byte, one in each half, the second sixteen times as large.
    codes[i] = pick_bytes(windows.codes[i], 0, 0x4040 + 0x101 * w) & 0x00f0000fU;
  }
  const auto chosen = [&](unsigned window, std::uint32_t tap) {
    return gradient[window] & equal_masks(codes[window], tap * 0x00100001U);
  };
  const std::uint32_t corner[4] = {chosen(0, 8), chosen(1, 6), chosen(2, 2), chosen(3, 0)};
  float sums[2] = {}, more[2] = {};
  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (Bf16) {
      more[0] = as_float(corner[i] << 16);
      more[1] = as_float(corner[i] & 0xffff0000U);
    } else {
      halves_to_floats(corner[i], more);
    }
    sums[0] = i == 0 ? more[0] : sums[0] + more[0];
    sums[1] = i == 0 ? more[1] : sums[1] + more[1];
  }
  pixels[0] = Bf16 ? floats_to_bfloats(sums[0], sums[1]) : floats_to_halves(sums[0], sums[1]);
  pixels[1] = add_elements<Bf16>(chosen(1, 7), chosen(3, 1));
  pixels[2] = add_elements<Bf16>(chosen(2, 5), chosen(3, 3));
  pixels[3] = chosen(3, 4);
}

/// All pixels of the block; false if one of them may be NaN.
template <bool Bf16>
STASH_DEVICE bool sum_block(const block_windows& windows, vector16 (&pixels)[4]) {
  std::uint32_t sum = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    std::uint32_t words[4];
    sum_of_windows<Bf16>(windows, w, words);
    STASH_UNROLL
    for (unsigned p = 0; p < 4; ++p) {
      pixels[p].word[w] = words[p];
      sum = add_elements<Bf16>(sum, words[p]);
    }
  }
  constexpr std::uint32_t infinity = Bf16 ? 0x7f80 : 0x7c00;
  return (sum & 0x7fff) <= infinity && (sum >> 16 & 0x7fff) <= infinity;
}

/// Of the windows before the own one and of that, along an axis: whether they are there, and their numbers,
/// or others of the pooled map.
struct window_numbers {
  std::uint32_t at[2];
  bool there[2];
};
STASH_DEVICE window_numbers window_numbers_at(const window_axis& a, std::int32_t start) {
  const std::int32_t before = (start + static_cast<std::int32_t>(a.pad)) / 2 - 1;
  window_numbers numbers;
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    const std::int32_t number = before + static_cast<std::int32_t>(i);
    const std::int32_t at = nearest_in(number, static_cast<std::int32_t>(a.out));
    numbers.at[i] = static_cast<std::uint32_t>(at);
    numbers.there[i] = at == number;
  }
  return numbers;
}

/// Whether a code of window `i` is no tap in x, if this block is the one that looks for it.
STASH_DEVICE bool is_corrupt(const pool_job& job, const packed_blocks& blocks, std::int32_t row,
                             std::int32_t column, unsigned i, std::uint32_t codes, pass_source passing) {
  const bool first = (i / 2 == 1 || row == blocks.first_row) && (i % 2 == 1 || column == blocks.first_column);
  const window_position y = window_at(job.rows, row, i / 2), x = window_at(job.columns, column, i % 2);
  return first && y.there && x.there && any_illegal(job, y, x, codes, passing);
}

/// Grid: threads for all groups of channels of all blocks.
STASH_KERNEL(pool_threads, tuning::pool_blocks_packed)
pool_backward_packed(pool_job job, packed_blocks blocks, const void* dy, encoded_argmaxes source, void* dx) {
  begin_kernel();
  const auto unit = static_cast<std::uint32_t>(block_rank() * pool_threads + thread_rank());
  if (unit >= blocks.units) return;
  const auto rows_in = static_cast<std::int32_t>(job.rows.in);
  const auto columns_in = static_cast<std::int32_t>(job.columns.in);
  std::uint32_t sample = unit;
  const std::uint32_t vec16 = take_small_digit(sample, blocks.vec16s);
  const std::int32_t column =
      static_cast<std::int32_t>(2 * take_small_digit(sample, blocks.columns)) + blocks.first_column;
  const std::int32_t row =
      static_cast<std::int32_t>(2 * take_small_digit(sample, blocks.rows)) + blocks.first_row;
  const window_numbers y = window_numbers_at(job.rows, row), x = window_numbers_at(job.columns, column);

  block_windows windows;
  const auto pooled_pixel = [&](unsigned i) {
    return (sample * static_cast<std::uint32_t>(job.rows.out) + y.at[i / 2]) *
               static_cast<std::uint32_t>(job.columns.out) +
           x.at[i % 2];
  };
  const auto group = [&](unsigned i) {
    return pooled_pixel(i) * static_cast<std::uint32_t>(blocks.vec16s.value) + vec16;
  };
  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const auto* const from =
        stepped(static_cast<const vector16*>(dy) + vec16, pooled_pixel(i), blocks.y_step);
    windows.gradient[i] = *from;
    windows.codes[i] = reinterpret_cast<const std::uint32_t*>(source.taps)[group(i)];
  }

  // The other windows are own ones of other blocks, unless padding has space for one more.
  const bool reaches_out = row < 0 || column < 0 || row + 3 > rows_in || column + 3 > columns_in;
  bool corrupt = false;
  if (reaches_out || any_beyond_taps(windows.codes[3], source.passing))
    corrupt = is_corrupt(job, blocks, row, column, 3, windows.codes[3], source.passing);
  if ((job.rows.pad == 2 && row == blocks.first_row) ||
      (job.columns.pad == 2 && column == blocks.first_column)) {
    STASH_UNROLL
    for (unsigned i = 0; i < 3; ++i)
      corrupt = corrupt || is_corrupt(job, blocks, row, column, i, windows.codes[i], source.passing);
  }
  if (corrupt) atomic_or(&source.report->status, status_corrupt);

  STASH_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if (source.passing == pass_source::plane)
      windows.codes[i] = passing_codes(source, std::uint64_t{group(i)} * group_elements, windows.codes[i]);
    windows.codes[i] = y.there[i / 2] && x.there[i % 2] ? windows.codes[i] : 0xffffffffU;
  }
  vector16 pixels[4];
  const bool numbers = job.type.bf16 ? sum_block<true>(windows, pixels) : sum_block<false>(windows, pixels);

  const std::uint32_t corner =
      (sample * static_cast<std::uint32_t>(rows_in) + static_cast<std::uint32_t>(row)) *
          static_cast<std::uint32_t>(columns_in) +
      static_cast<std::uint32_t>(column);
  auto* const first_vec16 = static_cast<vector16*>(dx) + vec16;
  if (numbers) {
    STASH_UNROLL
    for (unsigned p = 0; p < 4; ++p) {
      const std::int32_t at_y = row + static_cast<std::int32_t>(p / 2);
      const std::int32_t at_x = column + static_cast<std::int32_t>(p % 2);
      if (at_y < 0 || at_x < 0 || at_y >= rows_in || at_x >= columns_in) continue;
      const std::uint32_t pixel = corner + p / 2 * static_cast<std::uint32_t>(columns_in) + p % 2;
      const std::uint32_t(&word)[4] = pixels[p].word;
      store_vector(stepped(first_vec16, pixel, blocks.x_step), {{word[0], word[1], word[2], word[3]}});
    }
    return;
  }
  // NaN keeps its bits only in gather().
  STASH_NO_UNROLL
  for (unsigned p = 0; p < 4; ++p) {
    map_position<std::int32_t> e{sample, 0, std::uint64_t{vec16} * group_elements, 0, 0, 0};
    e.y = row + static_cast<std::int32_t>(p / 2);
    e.x = column + static_cast<std::int32_t>(p % 2);
    if (e.y < 0 || e.x < 0 || e.y >= rows_in || e.x >= columns_in) continue;
    const std::uint32_t pixel = corner + p / 2 * static_cast<std::uint32_t>(columns_in) + p % 2;
    auto* const to = reinterpret_cast<std::uint16_t*>(stepped(first_vec16, pixel, blocks.x_step));
    STASH_NO_UNROLL
    for (unsigned i = 0; i < group_elements; ++i, ++e.channel) {
      float sum[1] = {};
      gather<std::uint16_t>(job, dy, source, e, sum);
      to[i] = result_from_f32<std::uint16_t>(sum[0], job.type);
    }
  }
}

}  // namespace stash::kernels
