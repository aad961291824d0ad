#pragma once
/// \file
/// Forward max pooling of runs (pool_runs.hpp).

#include <cstdint>

#include "pool_forward.hpp"
#include "pool_runs.hpp"

namespace stash::kernels {

/// The first cell in x of a run's windows.
template <unsigned Kernel, unsigned Stride>
struct first_cells {
  std::int32_t row, outside;  ///< the row's number; columns of the first window that lie before x

  STASH_DEVICE std::uint32_t of(unsigned window) const {
    const std::int32_t column = outside - static_cast<std::int32_t>(window * Stride);
    return static_cast<std::uint32_t>(row * static_cast<std::int32_t>(Kernel) + (column > 0 ? column : 0));
  }
};

/// The rows that a run's windows have. In place of one outside of x stands the next one inside, which the
/// windows have too: met twice, it changes nothing.
template <class Bits, unsigned Kernel, unsigned Stride>
struct window_rows {
  static constexpr unsigned count = (forward_run<Bits> - 1) * Stride + Kernel;
  element_run<Bits, count> row[Kernel];
  std::int64_t first[Kernel];
  std::uint32_t cell[Kernel];  ///< the first cell of each
  std::int32_t begin, end;     ///< elements in x
  bool whole;                  ///< all of them lie in whole pieces

  STASH_DEVICE window_rows(const pool_job& job, const run_grid& grid, const void* x, const run_place& place) {
    const auto width = static_cast<std::int32_t>(job.columns.in);
    const auto height = static_cast<std::int32_t>(job.rows.in);
    const auto stride = static_cast<std::int32_t>(Stride);
    const std::int32_t column = place.column * stride - static_cast<std::int32_t>(job.columns.pad);
    const std::int32_t top = place.row * stride - static_cast<std::int32_t>(job.rows.pad);
    const auto rows_before = static_cast<std::int64_t>(place.plane * static_cast<std::uint64_t>(height));
    begin = -column;
    end = width - column;
    std::int64_t behind = 0;
    STASH_UNROLL
    for (unsigned k = 0; k < Kernel; ++k) {
      const std::int32_t y = top + static_cast<std::int32_t>(k);
      const std::int32_t inside = nearest_in(y, height);
      const std::int64_t start = (rows_before + inside) * width;
      first[k] = start + column;
      cell[k] = static_cast<std::uint32_t>(inside - top) * Kernel;
      behind = start + width;
      row[k].load(x, first[k], grid.read_pieces);
    }
    whole = behind <= std::int64_t{grid.read_pieces} * piece_elements<Bits>;
  }
};

/// Whether one of the elements of a run is a NaN, or one beside it.
template <class Bits, unsigned Count>
STASH_DEVICE bool any_nan(const element_run<Bits, Count>& run, const element_type& type) {
  if constexpr (sizeof(Bits) == 4) {
    std::uint32_t most = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < Count; ++i) {
      const std::uint32_t magnitude = run.word[i] & type.magnitudes;
      most = magnitude > most ? magnitude : most;
    }
    return most > type.infinity;
  } else {
    // What is above infinity carries into the sign, of both elements of a word.
    constexpr std::uint32_t both = 0x10001U;
    const std::uint32_t magnitudes = type.magnitudes * both;
    const std::uint32_t carry = (type.magnitudes - type.infinity) * both;
    std::uint32_t bits = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < run_words<Bits, Count>; ++i)
      bits |= (run.word[i] & magnitudes) + carry;
    return (bits & ~magnitudes) != 0;
  }
}

/// Maxima of a run's windows; false where they have to be looked for in another way.
template <class Bits, unsigned Kernel, unsigned Stride, unsigned Run>
STASH_DEVICE bool find_run_maxima(const pool_job& job, window_rows<Bits, Kernel, Stride>& rows,
                                  const first_cells<Kernel, Stride>& first, maxima<Run>& best) {
  constexpr unsigned count = window_rows<Bits, Kernel, Stride>::count;
  // Nothing is below -infinity, so it stands for what is not in x.
  const float lowest = -as_float(job.type.infinity << rank_shift<Bits>);
  STASH_UNROLL
  for (unsigned i = 0; i < Run; ++i) {
    best.rank[i] = lowest;
    best.cell[i] = first.of(i);
  }
  bool nan = false;
  STASH_UNROLL
  for (unsigned k = 0; k < Kernel; ++k) {
    rows.row[k].move(rows.first[k]);
    nan = any_nan(rows.row[k], job.type) || nan;
    float rank[count];
    STASH_UNROLL
    for (unsigned i = 0; i < count; ++i) {
      const auto at = static_cast<std::int32_t>(i);
      // Padding is narrower than a window.
      const bool inside = at < rows.end && (i + 1 >= Kernel || at >= rows.begin);
      rank[i] = inside ? rows.row[k].rank(i) : lowest;
    }
    STASH_UNROLL
    for (unsigned i = 0; i < Run; ++i) {
      STASH_UNROLL
      for (unsigned c = 0; c < Kernel; ++c) {
        const float candidate = rank[i * Stride + c];
        const bool more = candidate > best.rank[i];
        best.rank[i] = more ? candidate : best.rank[i];
        best.cell[i] = more ? rows.cell[k] + c : best.cell[i];
      }
    }
  }
  return rows.whole && !nan;
}

/// A staged code: the cell, and whether the gradient passes.
inline constexpr std::uint32_t staged_pass = 16;
template <class Bits>
STASH_DEVICE std::uint8_t staged_code(const pool_job& job, float rank, std::uint32_t cell) {
  const bool pass = passes(element_of<Bits>(rank), job.type, job.nan_wins);
  return static_cast<std::uint8_t>(cell + (pass ? staged_pass : 0U));
}

/// The low `Width` bits of the bytes of two words, one behind the other.
template <unsigned Width>
STASH_DEVICE std::uint32_t packed_bytes(std::uint32_t low, std::uint32_t high) {
  const auto packed = [](std::uint32_t word) {
    const std::uint32_t pairs = word | word >> (8 - Width);
    return (pairs & ((1U << 2 * Width) - 1)) |
           (pairs >> (16 - 2 * Width) & (((1U << 2 * Width) - 1) << 2 * Width));
  };
  constexpr std::uint32_t fields = ((1U << Width) - 1) * 0x01010101U;
  return packed(low & fields) | packed(high & fields) << (4 * Width % 32);
}

/// Eight codes of a stretch, of windows with codes of `Width` bits, and zeros behind the last one. `staged`:
/// a byte each. `first`: the number of the first one, of `values` in all.
template <unsigned Width>
STASH_DEVICE void store_staged_codes(std::uint64_t values, const pool_planes& planes, std::uint64_t first,
                                     const std::uint32_t* staged) {
  const std::uint64_t group = first / group_elements;
  const unsigned length = group_length(values, group);
  std::uint32_t cells[2], passing[2], chosen[2];
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned left = length < 4 * i ? 0 : length - 4 * i;
    const std::uint32_t there = left >= 4 ? 0xffffffffU : (1U << 8 * left) - 1;
    const std::uint32_t word = staged[i] & there;
    passing[i] = word / staged_pass & 0x01010101U;
    cells[i] = word & 0x0f0f0f0fU;
    // All bits of the codes that pass.
    const std::uint32_t kept = passing[i] * no_gradient;
    chosen[i] = Width == 4 ? cells[i] | (~kept & 0x0f0f0f0fU & there) : cells[i] & kept;
  }
  if (planes.index.data != nullptr) store_word(planes.index, group, packed_bytes<Width>(cells[0], cells[1]));
  if (planes.code.data != nullptr) store_word(planes.code, group, packed_bytes<Width>(chosen[0], chosen[1]));
  if (planes.gradient.data != nullptr)
    store_word(planes.gradient, group, packed_bytes<1>(passing[0], passing[1]));
  if (group == 0) report_planes(planes);
}

/// The codes of the block's stretch.
template <unsigned Width>
STASH_DEVICE void store_stretch_codes(const run_grid& grid, const pool_planes& planes,
                                      const vector16* codes) {
  const std::uint32_t value = thread_rank() * group_elements;
  if (value >= grid.block_values) return;
  store_staged_codes<Width>(grid.values, planes, block_rank() * grid.block_values + value,
                            reinterpret_cast<const std::uint32_t*>(codes) + value / 4);
}

/// pool_forward() for windows of Kernel x Kernel that lie Stride apart. Grid: blocks for all stretches of y,
/// and for the padding of the planes.
template <class Bits, unsigned Kernel, unsigned Stride>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward_runs(pool_job job, run_grid grid, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  constexpr unsigned run = forward_run<Bits>;
  STASH_SHARED(vector16, values, pool_threads);
  STASH_SHARED(vector16, codes, pool_threads * run / 16);
  const run_place place = place_of_run<run>(grid, job.columns.by_out, job.rows.by_out, 0);
  if (place.any) {
    window_rows<Bits, Kernel, Stride> rows(job, grid, x, place);
    const auto width = static_cast<std::int32_t>(job.columns.out);
    const staged_part part = staged_part_of(grid, place, width, run);
    const auto above =
        static_cast<std::int32_t>(job.rows.pad) - place.row * static_cast<std::int32_t>(Stride);
    const first_cells<Kernel, Stride> first{above > 0 ? above : 0, rows.begin};
    maxima<run> best;
    if (find_run_maxima(job, rows, first, best)) {
      Bits value[run];
      std::uint8_t code[run];
      STASH_UNROLL
      for (unsigned i = 0; i < run; ++i) {
        if (relu) rectify_maximum<Bits>(job, first.of(i), best.rank[i], best.cell[i]);
        value[i] = element_of<Bits>(best.rank[i]);
        code[i] = staged_code<Bits>(job, best.rank[i], best.cell[i]);
      }
      stage_run(values, place.at, part, value);
      stage_run(codes, place.at, part, code);
    } else {
      for (std::int32_t i = part.begin; i < part.end; ++i) {
        const map_place<std::int32_t> o{place.plane, 0, 0, 0, place.row, place.column + i};
        maxima<1> one;
        const std::uint32_t first_cell = find_maxima<Bits, 1>(job, x, 1, o, one);
        if (relu) rectify_maxima<Bits, 1>(job, first_cell, one);
        reinterpret_cast<Bits*>(values)[place.at + i] = element_of<Bits>(one.rank[0]);
        reinterpret_cast<std::uint8_t*>(codes)[place.at + i] =
            staged_code<Bits>(job, one.rank[0], one.cell[0]);
      }
    }
  }
  sync_block();
  store_stretch<Bits>(grid, values, pool_threads, y);
  store_stretch_codes<run_cell_bits<Kernel>>(grid, planes, codes);
}

}  // namespace stash::kernels
