#pragma once
/// \file
/// Layers whose windows lie side by side and cover x. Every element of dx has one window, so the thread of
/// the window writes it, and dy and the codes are read once. Where channels come first, windows of 2 x 2 have
/// kernels of their own (pool_pairs.hpp).

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

/// Where a thread writes a group in dx, and whether it does: of elements with halves two places, the first of
/// them for the half of the group of the even lane (shared_halves()).
template <class Bits>
struct group_places {
  Bits* to[group_vectors<Bits>];
  bool exists[group_vectors<Bits>];
};
/// `own` is the place of the lane's group. Lanes of a warp come together if there are halves.
template <class Bits>
STASH_DEVICE group_places<Bits> share_places(const pool_job& job, std::uint64_t unit, void* dx,
                                             std::uint64_t own) {
  if constexpr (!has_halves<Bits>) {
    return {{static_cast<Bits*>(dx) + own}, {true}};
  } else {
    constexpr unsigned half = group_elements / 2;
    const bool odd = unit % 2 != 0;
    const std::uint64_t got = shuffle_xor(all_lanes, odd ? own : own + half, 1);
    Bits* const base = static_cast<Bits*>(dx);
    return {{base + (odd ? got : own), base + (odd ? own + half : got)},
            {unit - unit % 2 < job.y_units, unit + 1 - unit % 2 < job.y_units}};
  }
}
template <class Bits>
STASH_DEVICE void store_at(const group_places<Bits>& places, std::uint64_t offset, const group<Bits>& g) {
  if constexpr (!has_halves<Bits>) {
    store_group(places.to[0] + offset, g);
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      const Bits* const own = g.value + group_elements / 2 * i;
      if (places.exists[i])
        store_vector(reinterpret_cast<vector16*>(places.to[i] + offset), {{own[0], own[1], own[2], own[3]}});
    }
  }
}

/// dx where channels come last. Grid: threads for all units of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, Source::resident_blocks)
pool_backward_disjoint(pool_job job, const void* dy, Source source, void* dx) {
  constexpr unsigned width = group_elements;
  const std::uint64_t own = block_rank() * pool_threads + thread_rank();
  // Lanes that share halves all stay; those behind the last unit do as it does, and write nothing.
  if (!has_halves<Bits> && own >= job.y_units) return;
  const std::uint64_t unit = own < job.y_units ? own : job.y_units - 1;
  const auto o =
      place_in_map<width, std::int32_t>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
  const auto gradient =
      load_lanes<Bits, width>(static_cast<const Bits*>(dy) + o.pixel * job.y_pitch + o.channel);
  winners<width> w = load_winners<Bits, width>(job, source, o);
  const auto kernel_d = static_cast<std::uint32_t>(job.depth.kernel);
  const auto kernel_h = static_cast<std::uint32_t>(job.rows.kernel);
  const auto kernel_w = static_cast<std::uint32_t>(job.columns.kernel);
  drop_cells(kernel_d * kernel_h * kernel_w, source, w);
  const lanes<Bits, width> arrived = arriving(job, gradient);
  group<Bits> share;
  group<std::uint32_t> cells;
  STASH_UNROLL
  for (unsigned i = 0; i < width; ++i) {
    share.value[i] = arrived.value[i];
    cells.value[i] = w.cell[i];
  }
  if constexpr (has_halves<Bits>) {
    share = shared_halves(own, share);
    cells = shared_halves(own, cells);
  }

  const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t y_step = length(job.columns.in) * job.x_pitch;
  const std::uint64_t z_step = length(job.rows.in) * y_step;
  const auto places = share_places<Bits>(
      job, own, dx,
      o.sample * length(job.depth.in) * z_step + length(o.z) * kernel_d * z_step +
          length(o.y) * kernel_h * y_step + length(o.x) * kernel_w * job.x_pitch + o.channel);
  std::uint64_t slice = 0;
  std::uint32_t cell = 0;
  for (std::uint32_t kz = 0; kz < kernel_d; ++kz, slice += z_step) {
    std::uint64_t row = slice;
    for (std::uint32_t ky = 0; ky < kernel_h; ++ky, row += y_step) {
      std::uint64_t offset = row;
      for (std::uint32_t kx = 0; kx < kernel_w; ++kx, offset += job.x_pitch, ++cell) {
        group<Bits> out;
        STASH_UNROLL
        for (unsigned i = 0; i < width; ++i)
          out.value[i] = cells.value[i] == cell ? share.value[i] : Bits{0};
        store_at(places, offset, out);
      }
    }
  }
}

}  // namespace stash::kernels
