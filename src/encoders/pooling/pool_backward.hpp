// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Backward of pool_loops.hpp. It walks the rows of dx and the windows that reach them.

#include <algorithm>
#include <array>
#include <cstdint>

#include "encoders/pooling/pool_gather.hpp"
#include "encoders/pooling/pool_loops.hpp"

namespace stash::encoders {

/// Writes +0 to those pixels of row `iy` of one sample that no window reaches.
inline void clear_unreached(const pool_shape& s, std::int64_t iy, float* row,
                            const tensor_view& dx) noexcept {
  const auto clear = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t ix = begin; ix < end; ++ix) {
      std::fill_n(row + ix * dx.pitch(), s.channels, 0.0F);
    }
  };
  if (s.rows.first_window(iy) >= s.rows.last_window(iy)) {
    clear(0, s.columns.in);
    return;
  }
  std::int64_t reached = 0;
  for (std::int64_t ox = 0; ox < s.columns.out; ++ox) {
    clear(reached, s.columns.origin(ox));
    reached = s.columns.origin(ox) + s.columns.kernel;
  }
  clear(reached, s.columns.in);
}

/// Rows [row_begin, row_end) of dx of one sample. Windows that reach beyond them are looked at by the owner
/// of the other rows as well, so every element is summed by one thread in row-major order of the windows.
template <class Source>
void pool_backward_rows(const pool_shape& s, const const_tensor_view& dy, Source& source,
                        const tensor_view& dx, std::int64_t sample, std::int64_t row_begin,
                        std::int64_t row_end, destination where, std::uint32_t& status) {
  float* base = dx.as<float>();
  for (std::int64_t iy = row_begin; iy < row_end; ++iy) {
    clear_unreached(s, iy, base + (sample * s.rows.in + iy) * s.columns.in * dx.pitch(), dx);
  }
  const std::int64_t run_pixels = pixels_of_run(s);
  const auto scatter_run = loops().scatter;
  run_buffers buffers;
  const auto scatter = [&](const pooled_run& run) {
    const run_taps argmaxes = source.load(run, buffers);
    const float* gradient = dy.as<float>() + run.pixel(s) * dy.pitch() + run.channel;
    std::int64_t gradient_pitch = dy.pitch();
    std::array<float, run_elements> passing;
    if (argmaxes.passes != nullptr) {
      const float* all = read_values(dy, run.first, run.count(), passing.data());
      loops().keep(all, argmaxes.passes, run.count(), passing.data(), destination::caches);
      gradient = passing.data();
      gradient_pitch = run.channels;
    }
    if (any_wrong(s, run, argmaxes)) status |= status_corrupt;
    for (std::int64_t p = 0; p < run.pixels;) {
      const std::int64_t ox = run.ox + p;
      const std::int64_t at = p * run.channels;
      const window_row row = windows_like(s, run.oy, ox, run.pixels - p, dx.pitch(), gradient_pitch);
      window_taps w = clipped_window(s, run.oy, ox, dx.pitch());
      const std::int64_t origin = s.rows.origin(run.oy);
      w.y_begin = std::max(w.y_begin, row_begin - origin);
      w.y_end = std::min(w.y_end, row_end - origin);
      scatter_run(gradient + p * gradient_pitch, argmaxes.taps + at, run.channels, w, row,
                  base + run.channel + window_offset(s, w, sample, run.oy, ox, dx.pitch()), where);
      p += row.windows;
    }
  };
  for (std::int64_t oy = s.rows.first_window(row_begin); oy < s.rows.last_window(row_end - 1); ++oy) {
    for (std::int64_t ox = 0; ox < s.columns.out; ox += run_pixels) {
      const std::int64_t pixels = std::min(run_pixels, s.columns.out - ox);
      for (std::int64_t c = 0; c < s.channels; c += run_elements) {
        pooled_run run{sample, oy, ox, c, pixels, std::min(run_elements, s.channels - c), 0};
        run.first = run.pixel(s) * s.channels + c;
        scatter(run);
      }
    }
  }
}

enum class backward_way : std::uint8_t { scatter, gather };

/// The faster way. A pixel that gathers looks at every window over it, so there should be few, and what is
/// summed in registers pays where it is then written past the caches, in whole lines.
inline backward_way backward_way_of(const pool_shape& s, const tensor_view& dx,
                                    const execution_context& context) noexcept {
  constexpr std::int64_t most_windows = 4, line = 64 / sizeof(float), least_channels = 2 * line;
  const std::int64_t windows =
      ((s.rows.kernel - 1) / s.rows.stride + 1) * ((s.columns.kernel - 1) / s.columns.stride + 1);
  const bool whole_lines =
      s.channels % line == 0 && dx.pitch() % line == 0 && reinterpret_cast<std::uintptr_t>(dx.data) % 64 == 0;
  return loops().gather != nullptr && windows > 1 && windows <= most_windows &&
                 s.channels >= least_channels && whole_lines &&
                 destination_of(dx.elements(), context) == destination::memory
             ? backward_way::gather
             : backward_way::scatter;
}

/// Backward with argmaxes from `source`, which is copied for every range. Windows have at most 256 taps.
/// Status bits go to `status`, which other calls may share. Both ways give the same.
template <class Source>
void pool_backward(const pool_shape& s, const const_tensor_view& dy, const Source& source,
                   const tensor_view& dx, std::uint32_t& status, const execution_context& context,
                   backward_way way) {
  if (dx.elements() == 0) return;
  // Cuts cost the windows across them a second look, so ranges are long in terms of the kernel.
  const std::int64_t row_elements = s.columns.in * s.channels;
  const std::int64_t grain = std::max(16 * s.rows.kernel, 64 * run_elements / row_elements);
  const bool disjoint = s.rows.stride >= s.rows.kernel && s.columns.stride >= s.columns.kernel;
  const bool written_once = disjoint || way == backward_way::gather;
  const destination where = written_once ? destination_of(dx.elements(), context) : destination::caches;
  parallel_for(context, s.samples * s.rows.in, grain, [&](std::int64_t begin, std::int64_t end) {
    Source own = source;
    std::uint32_t found = 0;
    const auto write = [&](const auto& write_rows) {
      while (begin < end) {
        const std::int64_t sample = begin / s.rows.in;
        const std::int64_t row = begin % s.rows.in;
        const std::int64_t rows = std::min(s.rows.in - row, end - begin);
        write_rows(sample, row, row + rows);
        begin += rows;
      }
    };
    if (way == backward_way::scatter) {
      write([&](std::int64_t sample, std::int64_t row_begin, std::int64_t row_end) {
        pool_backward_rows(s, dy, own, dx, sample, row_begin, row_end, where, found);
      });
    } else {
      gathered_gradient gradient(s, dy, dx, where);
      write([&](std::int64_t sample, std::int64_t row_begin, std::int64_t row_end) {
        gradient.write(sample, row_begin, row_end, own, found);
      });
    }
    finish_streams(where);
    or_bits(status, found);
  });
}

template <class Source>
void pool_backward(const pool_shape& s, const const_tensor_view& dy, const Source& source,
                   const tensor_view& dx, std::uint32_t& status, const execution_context& context) {
  pool_backward(s, dy, source, dx, status, context, backward_way_of(s, dx, context));
}

}  // namespace stash::encoders
