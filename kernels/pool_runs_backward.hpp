#pragma once
/// \file
/// Backward max pooling of runs (pool_runs.hpp), from codes. A run's first element is the first cell of a
/// window, so the windows that cover its elements, and the columns of their cells, are known when this is
/// compiled.

#include <cstdint>

#include "pool_backward.hpp"
#include "pool_runs.hpp"

namespace stash::kernels {

/// Fields of `Width` bits of a plane, for the pooled values `first` and behind: at most 64 bits.
template <unsigned Width, unsigned Count>
struct field_run {
  static constexpr unsigned bits = Width * Count;
  static constexpr unsigned words = (bits + 32 - Width + 31) / 32;
  std::uint32_t word[words];

  /// Loads them out of a plane for `values`. What lies outside of it is anything.
  STASH_DEVICE void load(const std::uint8_t* plane, std::int64_t first, std::uint64_t values) {
    const auto last = static_cast<std::int64_t>((values * Width + 127) / 128 * 4 - 1);
    const std::int64_t at = first * static_cast<std::int64_t>(Width) >> 5;
    STASH_UNROLL
    for (unsigned i = 0; i < words; ++i) {
      const std::int64_t wanted = at + i < last ? at + i : last;
      word[i] = reinterpret_cast<const std::uint32_t*>(plane)[wanted > 0 ? wanted : 0];
    }
  }

  /// Those from value `first` on.
  STASH_DEVICE std::uint64_t from(std::int64_t first) const {
    const unsigned skipped = static_cast<std::uint32_t>(first) * Width % 32;
    const std::uint32_t low = funnel_right(word[0], words > 1 ? word[1] : 0, skipped);
    if constexpr (bits <= 32) {
      return low;
    } else {
      return low | std::uint64_t{funnel_right(word[1], words > 2 ? word[2] : 0, skipped)} << 32;
    }
  }
};

/// Windows that may cover a run of `Run` elements.
template <unsigned Kernel, unsigned Stride, unsigned Run>
struct covering_windows {
  /// Windows of a row, or of a column, that begin before the one of the first element and cover it too.
  static constexpr unsigned before = (Kernel - 1) / Stride;
  static constexpr unsigned rows = before + 1;
  static constexpr unsigned columns = before + (Run - 1) / Stride + 1;
};

/// One row of them.
struct window_row {
  std::int64_t first;    ///< its first window among all of y
  std::int32_t y, x;     ///< of that window
  std::uint32_t cell;    ///< the first cell in the elements' row
  std::uint32_t inside;  ///< a bit for each window: whether it exists and covers the elements' row
};

/// Signs by `source` of the windows of a row; a bit each.
template <class Bits, unsigned Count>
STASH_DEVICE std::uint32_t passing_bits(const pool_job& job, const run_grid& grid,
                                        const encoded_winners& source, const window_row& row) {
  constexpr std::uint32_t all = (1U << Count) - 1;
  std::uint32_t bits = 0;
  switch (source.passing) {
    case pass_source::always:
    case pass_source::code:  // no_gradient is no cell
      bits = all;
      break;
    case pass_source::plane: {
      field_run<1, Count> plane;
      plane.load(source.plane, row.first, grid.read_values);
      bits = static_cast<std::uint32_t>(plane.from(row.first));
      break;
    }
    case pass_source::dense:
      STASH_UNROLL
      for (unsigned i = 0; i < Count; ++i) {
        if ((row.inside >> i & 1) == 0) continue;
        const Bits y = static_cast<const Bits*>(source.y)[row.first + i];
        bits |= (passes(y, job.type, job.nan_wins) ? 1U : 0U) << i;
      }
      break;
    case pass_source::cast:
      for (unsigned i = 0; i < Count; ++i) {
        if ((row.inside >> i & 1) == 0) continue;
        bits |= (cast_passes(job, source, static_cast<std::uint64_t>(row.first + i)) ? 1U : 0U) << i;
      }
      break;
  }
  return bits & row.inside;
}

/// Whether a code of a row names no cell of its window in x. `pass` has a bit for each window.
template <unsigned Kernel, unsigned Stride, unsigned Width, unsigned Count>
STASH_DEVICE bool any_corrupt(const pool_job& job, const encoded_winners& source, const window_row& row,
                              std::uint64_t codes, std::uint32_t pass) {
  const std::int32_t top =
      row.y * static_cast<std::int32_t>(Stride) - static_cast<std::int32_t>(job.rows.pad);
  const std::int32_t left =
      row.x * static_cast<std::int32_t>(Stride) - static_cast<std::int32_t>(job.columns.pad);
  bool any = false;
  for (unsigned i = 0; i < Count; ++i) {
    const std::uint32_t code = static_cast<std::uint32_t>(codes >> (i * Width)) & ((1U << Width) - 1);
    const bool no_code = Width == 4 && source.passing == pass_source::code && code == no_gradient;
    const bool counts =
        source.cell_needs_pass ? (pass >> i & 1) != 0 && !no_code : (row.inside >> i & 1) != 0;
    const std::uint32_t ky = code / Kernel;
    const auto y = static_cast<std::uint32_t>(top) + ky;
    const auto x = static_cast<std::uint32_t>(left) + i * Stride + (code - ky * Kernel);
    any = any || (counts && (code >= Kernel * Kernel || y >= static_cast<std::uint32_t>(job.rows.in) ||
                             x >= static_cast<std::uint32_t>(job.columns.in)));
  }
  return any;
}

/// A bit of each of eight becomes four.
STASH_DEVICE std::uint32_t four_times(std::uint32_t bits) {
  bits = (bits | bits << 12) & 0x000f000fU;
  bits = (bits | bits << 6) & 0x03030303U;
  return ((bits | bits << 3) & 0x11111111U) * 15;
}

/// Whether one of codes of four bits is no cell of windows of 3 x 3: of those with the bit for 8, those that
/// have another one too, but not 15 where it stands for no gradient. `known`: the bits that are codes.
template <class Codes>
STASH_DEVICE bool any_beyond_cells(Codes codes, pass_source passing, Codes known = ~Codes{0}) {
  constexpr auto sevens = static_cast<Codes>(0x7777777777777777U);
  // Three low bits that are not zero carry into the high one, and with one more those that are all set.
  const Codes low = codes & sevens;
  const Codes none = low + (passing == pass_source::code ? sevens / 7 : 0);
  return ((low + sevens) & ~none & codes & known & ~sevens) != 0;
}

/// Whether any_corrupt() has to look: a window of the row reaches out of x, or a code is no cell of any
/// window.
template <unsigned Kernel, unsigned Stride, unsigned Width, unsigned Count>
STASH_DEVICE bool may_be_corrupt(const pool_job& job, const encoded_winners& source, const window_row& row,
                                 std::uint64_t codes) {
  constexpr auto stride = static_cast<std::int32_t>(Stride);
  constexpr auto kernel = static_cast<std::int32_t>(Kernel);
  const std::int32_t top = row.y * stride - static_cast<std::int32_t>(job.rows.pad);
  const std::int32_t left = row.x * stride - static_cast<std::int32_t>(job.columns.pad);
  const std::int32_t right = left + static_cast<std::int32_t>((Count - 1) * Stride) + kernel;
  const bool reaches_out = top < 0 || left < 0 || top + kernel > static_cast<std::int32_t>(job.rows.in) ||
                           right > static_cast<std::int32_t>(job.columns.in);
  if constexpr (Width == 2) {
    return reaches_out;
  } else {
    constexpr std::uint64_t known = (std::uint64_t{1} << Width * Count) - 1;
    return reaches_out || any_beyond_cells(codes, source.passing, known);
  }
}

/// The gradients of a row of windows, as f32.
template <class Bits, unsigned Count>
STASH_DEVICE void to_f32s(const element_run<Bits, Count>& run, const element_type& type,
                          float (&values)[Count]) {
  if (sizeof(Bits) == 2 && type.bf16) {
    STASH_UNROLL
    for (unsigned i = 0; i < Count; ++i)
      values[i] = run.rank(i);
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < Count; ++i)
      values[i] = to_f32(run.element(i), type);
  }
}

/// pool_backward() for windows of Kernel x Kernel that lie Stride apart. Grid: blocks for all stretches of
/// dx.
template <class Bits, unsigned Kernel, unsigned Stride>
STASH_KERNEL(pool_threads, Stride == 1 ? tuning::pool_blocks_of_three_rows : tuning::pool_blocks)
pool_backward_runs(pool_job job, run_grid grid, const void* dy, encoded_winners source, void* dx) {
  begin_kernel();
  constexpr unsigned run = backward_run<Bits, Stride>;
  using windows = covering_windows<Kernel, Stride, run>;
  constexpr unsigned width = run_cell_bits<Kernel>;
  constexpr auto stride = static_cast<std::int32_t>(Stride);
  constexpr unsigned pieces = pool_threads * run / piece_elements<Bits>;
  STASH_SHARED(vector16, staged, pieces);
  const auto pad = static_cast<std::int32_t>(job.columns.pad);
  const run_place place = place_of_run<run>(grid, job.columns.by_in, job.rows.by_in, pad % stride);
  if (place.any) {
    const staged_part part = staged_part_of(grid, place, static_cast<std::int32_t>(job.columns.in), run);
    const auto y_rows = static_cast<std::int32_t>(job.rows.out);
    const auto y_columns = static_cast<std::int32_t>(job.columns.out);
    const std::int32_t padded = place.row + static_cast<std::int32_t>(job.rows.pad);
    const std::int32_t column = (place.column + pad) / stride - static_cast<std::int32_t>(windows::before);
    std::uint32_t columns = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < windows::columns; ++i) {
      const std::int32_t at = column + static_cast<std::int32_t>(i);
      columns |= (at >= 0 && at < y_columns ? 1U : 0U) << i;
    }

    window_row rows[windows::rows];
    element_run<Bits, windows::columns> gradients[windows::rows];
    field_run<width, windows::columns> cells[windows::rows];
    std::int64_t behind = 0;
    STASH_UNROLL
    for (unsigned r = 0; r < windows::rows; ++r) {
      const auto back = static_cast<std::int32_t>(windows::before - r);
      const std::int32_t y = padded / stride - back;
      const std::int32_t ky = padded % stride + back * stride;
      const std::int32_t low = y < y_rows ? y : y_rows - 1;
      const std::int32_t inside = low > 0 ? low : 0;
      const std::int64_t start = static_cast<std::int64_t>(place.plane * static_cast<std::uint64_t>(y_rows) +
                                                           static_cast<std::uint64_t>(inside)) *
                                 y_columns;
      const bool covers = y == inside && ky < static_cast<std::int32_t>(Kernel);
      rows[r] = {start + column, y, column, static_cast<std::uint32_t>(ky) * Kernel, covers ? columns : 0};
      behind = start + y_columns;
      gradients[r].load(dy, rows[r].first, grid.read_pieces);
      cells[r].load(source.cells, rows[r].first, grid.read_values);
    }

    std::uint32_t pass[windows::rows];
    STASH_UNROLL
    for (unsigned r = 0; r < windows::rows; ++r)
      pass[r] = passing_bits<Bits, windows::columns>(job, grid, source, rows[r]);

    float sums[run] = {};
    bool corrupt = false;
    STASH_UNROLL
    for (unsigned r = 0; r < windows::rows; ++r) {
      gradients[r].move(rows[r].first);
      float gradient[windows::columns];
      to_f32s(gradients[r], job.type, gradient);
      const std::uint64_t codes = cells[r].from(rows[r].first);
      std::uint32_t cell[windows::columns];  // counted from the first one in the elements' row
      STASH_UNROLL
      for (unsigned i = 0; i < windows::columns; ++i) {
        const std::uint32_t code = static_cast<std::uint32_t>(codes >> (i * width)) & ((1U << width) - 1);
        cell[i] = (pass[r] >> i & 1) != 0 ? code - rows[r].cell : Kernel;
      }
      STASH_UNROLL
      for (unsigned i = 0; i < run; ++i) {
        STASH_UNROLL
        for (unsigned c = 0; c < windows::columns; ++c) {
          // Unsigned: a column that the window does not have is above all others.
          const unsigned kx = i + windows::before * Stride - c * Stride;
          if (kx < Kernel) sums[i] += cell[c] == kx ? gradient[c] : 0.0F;
        }
      }
      // The threads of each window's first row in x look for codes that none takes.
      if ((rows[r].cell == 0 || place.row == 0) &&
          may_be_corrupt<Kernel, Stride, width, windows::columns>(job, source, rows[r], codes)) {
        corrupt = corrupt ||
                  any_corrupt<Kernel, Stride, width, windows::columns>(job, source, rows[r], codes, pass[r]);
      }
    }
    // NaN keeps its bits only in gather().
    bool whole = behind <= std::int64_t{grid.read_pieces} * piece_elements<Bits>;
    STASH_UNROLL
    for (unsigned i = 0; i < run; ++i)
      whole = whole && sums[i] == sums[i];
    if (whole) {
      Bits value[run];
      results_from_f32s(sums, job.type, value);
      stage_run(staged, place.at, part, value);
    } else {
      corrupt = false;
      for (std::int32_t i = part.begin; i < part.end; ++i) {
        const map_place<std::int32_t> e{place.plane, 0, 0, 0, place.row, place.column + i};
        float sum[1] = {};
        corrupt = gather<Bits, 1>(job, dy, source, e, sum) || corrupt;
        reinterpret_cast<Bits*>(staged)[place.at + i] = result_from_f32<Bits>(sum[0], job.type);
      }
    }
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
  sync_block();
  store_stretch<Bits>(grid, staged, pieces, dx);
}

}  // namespace stash::kernels
