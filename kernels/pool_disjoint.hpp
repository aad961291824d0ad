#pragma once
/// \file
/// Layers whose windows lie side by side and cover x. Every element of dx has one window, so the thread of
/// the window writes it, and dy and the codes are read once.
///
/// Where channels come first, windows of 2 x 2 have kernels of their own: a thread has eight pooled values in
/// a row, and each 16-byte piece of x holds the cells of a few of them.

#include <cstdint>

#include "pool_backward.hpp"
#include "pool_forward.hpp"

namespace stash::kernels {

/// What a pooled value's gradient becomes in x.
template <class Bits, unsigned Width>
STASH_DEVICE lanes<Bits, Width> arriving(const pool_job& job, const lanes<Bits, Width>& dy) {
  lanes<Bits, Width> out;
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i)
    out.value[i] = result_from_f32<Bits>(add_gradient(0.0F, to_f32(dy.value[i], job.type)), job.type);
  return out;
}

/// Gives cells whose gradient does not pass a number that no cell has. A code that counts and is none of the
/// window's cells is corrupt.
template <unsigned Width, class Source>
STASH_DEVICE void drop_cells(std::uint32_t cells, const Source& source, winners<Width>& w) {
  bool corrupt = false;
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i) {
    const bool pass = (w.pass >> i & 1) != 0;
    corrupt = corrupt || (w.cell[i] >= cells && (pass || !source.cell_needs_pass));
    if (!pass) w.cell[i] = 0xffffffffU;
  }
  if constexpr (std::is_base_of_v<encoded_winners, Source>) {
    if (corrupt) atomic_or(&source.report->status, status_corrupt);
  }
}

/// dx where channels come last. Grid: threads for all units of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, Source::resident_blocks)
pool_backward_disjoint(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned width = group_elements;
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  if (unit >= job.y_units) return;
  const auto o =
      place_in_map<width, std::int32_t>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
  const auto gradient =
      load_lanes<Bits, width>(static_cast<const Bits*>(dy) + o.pixel * job.y_pitch + o.channel);
  winners<width> w = load_winners<Bits, width>(job, source, o);
  const auto kernel_d = static_cast<std::uint32_t>(job.depth.kernel);
  const auto kernel_h = static_cast<std::uint32_t>(job.rows.kernel);
  const auto kernel_w = static_cast<std::uint32_t>(job.columns.kernel);
  drop_cells(kernel_d * kernel_h * kernel_w, source, w);
  const lanes<Bits, width> share = arriving(job, gradient);

  const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t y_step = length(job.columns.in) * job.x_pitch;
  const std::uint64_t z_step = length(job.rows.in) * y_step;
  Bits* slice = static_cast<Bits*>(dx) + o.sample * length(job.depth.in) * z_step +
                length(o.z) * kernel_d * z_step + length(o.y) * kernel_h * y_step +
                length(o.x) * kernel_w * job.x_pitch + o.channel;
  std::uint32_t cell = 0;
  for (std::uint32_t kz = 0; kz < kernel_d; ++kz, slice += z_step) {
    Bits* row = slice;
    for (std::uint32_t ky = 0; ky < kernel_h; ++ky, row += y_step) {
      Bits* to = row;
      for (std::uint32_t kx = 0; kx < kernel_w; ++kx, to += job.x_pitch, ++cell) {
        lanes<Bits, width> out;
        STASH_UNROLL
        for (unsigned i = 0; i < width; ++i)
          out.value[i] = w.cell[i] == cell ? share.value[i] : Bits{0};
        store_lanes(to, out);
      }
    }
  }
}

/// Where a piece of x with the upper cells of some pooled values of unit `unit` lies; the lower ones lie
/// one row behind.
template <class Bits>
STASH_DEVICE std::uint64_t piece_place(const pool_job& job, std::uint64_t unit, unsigned piece) {
  constexpr unsigned values = group_elements / group_vectors<Bits> / 2;
  std::uint64_t channel = unit * group_elements + piece * values;
  const std::uint64_t column = take_digit(channel, job.columns.by_out);
  const std::uint64_t y = take_digit(channel, job.rows.by_out);
  const auto height = static_cast<std::uint64_t>(job.rows.in);
  return (channel * height + 2 * y) * static_cast<std::uint64_t>(job.columns.in) + 2 * column;
}

/// Pieces of x in a row of cells of eight pooled values.
template <class Bits>
inline constexpr unsigned row_pieces = 2 * group_vectors<Bits>;

/// Maxima of eight windows of 2 x 2.
template <class Bits>
STASH_DEVICE void find_pair_maxima(const pool_job& job, const void* x, std::uint64_t unit,
                                   maxima<group_elements>& best) {
  constexpr unsigned half = group_vectors<Bits>;
  vector16 rows[2][row_pieces<Bits>];
  STASH_UNROLL
  for (unsigned p = 0; p < row_pieces<Bits>; ++p) {
    const Bits* from = static_cast<const Bits*>(x) + piece_place<Bits>(job, unit, p);
    rows[0][p] = load_once(reinterpret_cast<const vector16*>(from));
    rows[1][p] = load_once(reinterpret_cast<const vector16*>(from + job.columns.in));
  }
  STASH_UNROLL
  for (unsigned ky = 0; ky < 2; ++ky) {
    lanes<Bits, group_elements> left, right;
    STASH_UNROLL
    for (unsigned h = 0; h < 2; ++h) {
      vector16 pieces[half];
      STASH_UNROLL
      for (unsigned p = 0; p < half; ++p)
        pieces[p] = rows[ky][h * half + p];
      const group<Bits> g = unpacked<Bits>(pieces);
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements / 2; ++i) {
        left.value[h * (group_elements / 2) + i] = g.value[2 * i];
        right.value[h * (group_elements / 2) + i] = g.value[2 * i + 1];
      }
    }
    if (ky == 0) {
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i) {
        best.rank[i] = rank_of(left.value[i]);
        best.cell[i] = 0;
      }
    } else {
      compete(job, left, 2, best);
    }
    compete(job, right, 2 * ky + 1, best);
  }
}

/// Forward where channels come first. Grid: threads for all units of y, and for the padding of the planes.
template <class Bits>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward_pairs(pool_job job, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  constexpr unsigned width = group_elements;
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  pooled_values<Bits, width> v;
  if (unit < job.y_units) {
    maxima<width> best;
    find_pair_maxima<Bits>(job, x, unit, best);
    if (relu) rectify_maxima<Bits, width>(job, 0, best);
    v = values_of<Bits, width>(job, best, planes);
    store_lanes(static_cast<Bits*>(y) + unit * width, v.y);
  }
  store_planes(planes, unit, v);
}

/// The winners of eight windows of 2 x 2.
template <class Bits>
STASH_DEVICE winners<group_elements> load_pair_winners(const pool_job& job, const encoded_winners& from,
                                                       std::uint64_t unit) {
  map_place<std::int32_t> o{};
  o.pixel = unit * group_elements;
  return load_winners<Bits, group_elements>(job, from, o);
}
template <class Bits>
STASH_DEVICE winners<group_elements> load_pair_winners(const pool_job& job, const searched_winners& from,
                                                       std::uint64_t unit) {
  maxima<group_elements> best;
  find_pair_maxima<Bits>(job, from.x, unit, best);
  return winners_of<Bits>(job, from, 0, best);
}

/// dx where channels come first. Every code of two bits is a cell. Grid: threads for all units of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_backward_pairs(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned width = group_elements;
  const std::uint64_t unit = block_rank() * pool_threads + thread_rank();
  if (unit >= job.y_units) return;
  const auto gradient = load_lanes<Bits, width>(static_cast<const Bits*>(dy) + unit * width);
  winners<width> w = load_pair_winners<Bits>(job, source, unit);
  drop_cells(4, source, w);
  const lanes<Bits, width> share = arriving(job, gradient);
  constexpr unsigned values = width / row_pieces<Bits>;
  constexpr unsigned per_word = 4 / sizeof(Bits);
  STASH_UNROLL
  for (unsigned p = 0; p < row_pieces<Bits>; ++p) {
    Bits* to = static_cast<Bits*>(dx) + piece_place<Bits>(job, unit, p);
    STASH_UNROLL
    for (unsigned ky = 0; ky < 2; ++ky) {
      vector16 out = {};
      STASH_UNROLL
      for (unsigned i = 0; i < 2 * values; ++i) {
        const unsigned value = p * values + i / 2;
        const Bits bits = w.cell[value] == 2 * ky + i % 2 ? share.value[value] : Bits{0};
        out.word[i / per_word] |= static_cast<std::uint32_t>(bits) << (8 * sizeof(Bits) * (i % per_word));
      }
      store_vector(reinterpret_cast<vector16*>(to + static_cast<std::uint64_t>(ky) *
                                                        static_cast<std::uint64_t>(job.columns.in)),
                   out);
    }
  }
}

}  // namespace stash::kernels
