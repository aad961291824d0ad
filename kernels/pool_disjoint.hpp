#pragma once
/// \file
/// Layers whose windows lie side by side and cover x. Every element of dx has one window, so the thread of
/// the window writes it, and dy and the codes are read once. Where channels come first, windows of 2 x 2 have
/// kernels of their own (pool_pairs.hpp).

#include <cstdint>

#include "common/pairs.hpp"
#include "pool_backward.hpp"
#include "pool_forward.hpp"

namespace stash::kernels {

/// What gradients become in x, as add_gradient() makes it of them and 0: NaN becomes the type's or quiet, -0
/// becomes +0. A word is one or two of them.
STASH_DEVICE std::uint32_t arriving(const element_type&, std::uint32_t word, std::uint32_t) {
  constexpr std::uint32_t quiet = 0x400000;
  const float gradient = as_float(word);
  return gradient == gradient ? as_bits(0.0F + gradient) : word | quiet;
}
STASH_DEVICE std::uint32_t arriving(const element_type& type, std::uint32_t word, std::uint16_t) {
  const std::uint32_t nan = sign_masks(nan_flags(word, type));
  return select_bits(nan, (word & pair_signs) | both(type.nan), word & nonzero_masks(word));
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

/// The 16-byte pieces that a thread moves where its own group lies at `own`: of f32 half of it, and half of
/// its neighbour's (shared_halves()). Then all lanes of a warp come.
template <class Bits, class T>
STASH_DEVICE void share_places(std::uint64_t unit, T* map, std::uint64_t own,
                               T* (&pieces)[group_vectors<Bits>]) {
  if constexpr (!has_halves<Bits>) {
    pieces[0] = map + own;
  } else {
    constexpr unsigned half = group_elements / 2;
    const bool odd = unit % 2 != 0;
    const std::uint64_t got = shuffle_xor(all_lanes, odd ? own : own + half, 1);
    pieces[0] = map + (odd ? got : own);
    pieces[1] = map + (odd ? own + half : got);
  }
}

/// dx where channels come last. Grid: threads for all units of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, Source::resident_blocks)
pool_backward_disjoint(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  constexpr unsigned width = group_elements, pieces = group_vectors<Bits>;
  const std::uint64_t own = block_rank() * pool_threads + thread_rank();
  // Lanes that share halves all stay. Those behind the last unit take that one: a half of it is written twice
  // by its lane where the neighbour has none of its own.
  if (!has_halves<Bits> && own >= job.y_units) return;
  const std::uint64_t unit = own < job.y_units ? own : job.y_units - 1;
  const auto o =
      place_in_map<width, std::int32_t>(job, unit, job.depth.by_out, job.rows.by_out, job.columns.by_out);
  const Bits* from[pieces];
  share_places<Bits>(own, static_cast<const Bits*>(dy), o.pixel * job.y_pitch + o.channel, from);
  vector16 gradients[pieces];
  STASH_UNROLL
  for (unsigned p = 0; p < pieces; ++p)
    gradients[p] = *reinterpret_cast<const vector16*>(from[p]);
  winners<width> w = load_winners<Bits, width>(job, source, o);
  const auto kernel_d = static_cast<std::uint32_t>(job.depth.kernel);
  const auto kernel_h = static_cast<std::uint32_t>(job.rows.kernel);
  const auto kernel_w = static_cast<std::uint32_t>(job.columns.kernel);
  drop_cells(kernel_d * kernel_h * kernel_w, source, w);
  group<std::uint32_t> cells;
  STASH_UNROLL
  for (unsigned i = 0; i < width; ++i)
    cells.value[i] = w.cell[i];
  if constexpr (has_halves<Bits>) cells = shared_halves<neighbours>(own, cells);
  STASH_UNROLL
  for (vector16& piece : gradients) {
    STASH_UNROLL
    for (std::uint32_t& word : piece.word)
      word = arriving(job.type, word, Bits{});
  }
  const group<Bits> share = unpacked<Bits>(gradients);

  const auto length = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  const std::uint64_t y_step = length(job.columns.in) * job.x_pitch;
  const std::uint64_t z_step = length(job.rows.in) * y_step;
  Bits* to[pieces];
  share_places<Bits>(own, static_cast<Bits*>(dx),
                     o.sample * length(job.depth.in) * z_step + length(o.z) * kernel_d * z_step +
                         length(o.y) * kernel_h * y_step + length(o.x) * kernel_w * job.x_pitch + o.channel,
                     to);
  if (own - own % pieces >= job.y_units) return;
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
        vector16 v[pieces];
        pack(out, v);
        STASH_UNROLL
        for (unsigned p = 0; p < pieces; ++p)
          store_vector(reinterpret_cast<vector16*>(to[p] + offset), v[p]);
      }
    }
  }
}

}  // namespace stash::kernels
