#pragma once
/// \file
/// Max pooling in every layout, rank and type: depth, dilation, channels first, 16-bit. Two-dimensional
/// undilated channels-last f32 has faster loops of its own (pool_loops.hpp) with the same results.
///
/// Forward takes runs of pooled values, backward runs of dx; a run lies in one row of the innermost
/// dimension. Backward asks for every element which windows cover it, so nobody else writes it and 16-bit
/// sums are rounded once.

#include <array>
#include <cstdint>
#include <cstring>

#include "pool_loops.hpp"
#include "values.hpp"

namespace stash::detail {

struct general_axis {
  std::int64_t in = 1, out = 1;
  std::int64_t kernel = 1, stride = 1, pad = 0, dilation = 1;

  std::int64_t position(std::int64_t window, std::int64_t cell) const noexcept {
    return window * stride - pad + cell * dilation;
  }
  bool inside(std::int64_t window, std::int64_t cell) const noexcept {
    const std::int64_t at = position(window, cell);
    return at >= 0 && at < in;
  }
  /// First window whose cell `cell` lies at `from` or behind.
  std::int64_t first_window(std::int64_t cell, std::int64_t from) const noexcept {
    const std::int64_t distance = from + pad - cell * dilation;
    return distance <= 0 ? 0 : (distance + stride - 1) / stride;
  }
  /// The window whose cell `cell` lies at `at`, or -1.
  std::int64_t window_at(std::int64_t cell, std::int64_t at) const noexcept {
    const std::int64_t distance = at + pad - cell * dilation;
    if (distance < 0 || distance % stride != 0 || distance / stride >= out) return -1;
    return distance / stride;
  }
};

struct general_shape {
  std::int64_t samples = 0, channels = 0;
  bool channels_first = false;
  general_axis depth, rows, columns;

  std::int64_t cells() const noexcept { return depth.kernel * rows.kernel * columns.kernel; }
};

/// Most elements of a run.
inline constexpr std::int64_t general_run = 256;

/// True if the call is for the loops of this file.
bool is_general(const pool_window& window, const const_tensor_view& x) noexcept;

/// Checks both views and the window, as check_pool().
general_shape check_general_pool(std::string_view function, std::string_view x_name,
                                 const const_tensor_view& x, std::string_view y_name,
                                 const const_tensor_view& y, const pool_window& window);

/// Pooled elements [first, first + count), all in one row: their maximum and winning cell.
void find_winners(const general_shape& s, const const_tensor_view& x, bool relu, framework_rule rule,
                  std::int64_t first, std::int64_t count, float* best, std::uint8_t* cells) noexcept;

void general_pool_forward(bool relu, const general_shape& s, const const_tensor_view& x, const tensor_view& y,
                          const pool_planes& planes, framework_rule rule, const execution_context& context);

/// Winners found again in the dense x.
class general_search_source {
 public:
  general_search_source(const general_shape& s, const const_tensor_view& x, framework_rule rule, bool relu)
      : shape_(&s), x_(x), rule_(rule), relu_(relu) {}
  run_cells load(const pooled_run& run, run_buffers& buffers) noexcept {
    find_winners(*shape_, x_, relu_, rule_, run.first, run.count(), buffers.values.data(),
                 buffers.cells.data());
    if (!relu_) return {buffers.cells.data()};
    pass_flags(buffers.values.data(), run.count(), rule_, buffers.passes.data());
    return {buffers.cells.data(), buffers.passes.data()};
  }

 private:
  const general_shape* shape_;
  const_tensor_view x_;
  framework_rule rule_;
  bool relu_;
};

/// Winners from window_index, signs from the dense pooled output.
class general_dense_source {
 public:
  general_dense_source(const index_source& index, const const_tensor_view& y, framework_rule rule)
      : index_(index), y_(y), rule_(rule) {}
  run_cells load(const pooled_run& run, run_buffers& buffers) noexcept {
    run_cells winners = index_.load(run, buffers);
    const float* values = read_values(y_, run.first, run.count(), buffers.values.data());
    pass_flags(values, run.count(), rule_, buffers.passes.data());
    winners.passes = buffers.passes.data();
    return winners;
  }

 private:
  index_source index_;
  const_tensor_view y_;
  framework_rule rule_;
};

/// Where a run of pooled elements lies. `column` is the first channel (channels last) or window of a row.
struct general_place {
  std::int64_t sample, channel, z, y, x;
};

/// Coordinates of element `i` of a map with these extents.
general_place place_of(const general_shape& s, std::int64_t i, std::int64_t depth, std::int64_t rows,
                       std::int64_t columns) noexcept;
/// Inverse of place_of().
std::int64_t element_at(const general_shape& s, const general_place& at, std::int64_t depth,
                        std::int64_t rows, std::int64_t columns) noexcept;

/// True if a cell of a run of pooled elements is none of the window's, or lies outside x.
bool any_cell_outside(const general_shape& s, const run_cells& winners, std::int64_t first,
                      std::int64_t count) noexcept;

/// Adds to sums[i] what one run of windows sends to it: sums[begin + k * step] += gradient k, where `cell`
/// won.
template <class Source>
void add_run(const const_tensor_view& dy, Source& source, std::int64_t first, std::int64_t count,
             std::uint8_t cell, float* sums, std::int64_t step, run_buffers& buffers) noexcept {
  pooled_run run{0, 0, 0, 0, 1, count, first};
  const run_cells winners = source.load(run, buffers);
  float copy[run_elements];
  const float* gradient = read_values(dy, first, count, copy);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool wins = winners.cells[i] == cell && (winners.passes == nullptr || winners.passes[i] != 0);
    sums[i * step] += wins ? gradient[i] : 0.0F;
  }
}

/// The sums of dx elements [first, first + count), all in one row.
template <class Source>
void sum_windows(const general_shape& s, const const_tensor_view& dy, Source& source, std::int64_t first,
                 std::int64_t count, float* sums, run_buffers& buffers) noexcept {
  const general_axis &d = s.depth, &r = s.rows, &c = s.columns;
  const general_place at = place_of(s, first, d.in, r.in, c.in);
  std::fill_n(sums, count, 0.0F);
  // Windows in row-major order have falling cells along each axis.
  for (std::int64_t kz = d.kernel - 1; kz >= 0; --kz) {
    const std::int64_t oz = d.window_at(kz, at.z);
    if (oz < 0) continue;
    for (std::int64_t ky = r.kernel - 1; ky >= 0; --ky) {
      const std::int64_t oy = r.window_at(ky, at.y);
      if (oy < 0) continue;
      for (std::int64_t kx = c.kernel - 1; kx >= 0; --kx) {
        const auto cell = static_cast<std::uint8_t>((kz * r.kernel + ky) * c.kernel + kx);
        general_place window{at.sample, at.channel, oz, oy, 0};
        if (!s.channels_first) {
          window.x = c.window_at(kx, at.x);
          if (window.x < 0) continue;
          add_run(dy, source, element_at(s, window, d.out, r.out, c.out), count, cell, sums, 1, buffers);
          continue;
        }
        window.x = c.first_window(kx, at.x);
        const std::int64_t begin = c.position(window.x, kx) - at.x;
        if (begin >= count || window.x >= c.out) continue;
        const std::int64_t windows = std::min((count - 1 - begin) / c.stride + 1, c.out - window.x);
        add_run(dy, source, element_at(s, window, d.out, r.out, c.out), windows, cell, sums + begin, c.stride,
                buffers);
      }
    }
  }
}

/// Runs body(first, count) over runs of elements that lie in one row of `inner` elements.
template <class Body>
void for_each_general_run(std::int64_t begin, std::int64_t end, std::int64_t inner, const Body& body) {
  while (begin < end) {
    const std::int64_t count = std::min({inner - begin % inner, general_run, end - begin});
    body(begin, count);
    begin += count;
  }
}

template <class Source>
void general_pool_backward(const general_shape& s, const const_tensor_view& dy, const Source& source,
                           const tensor_view& dx, std::uint32_t& status, const execution_context& context) {
  constexpr std::int64_t grain = 16 * run_elements;
  // First, whether all codes are possible: a cell outside x belongs to no element below.
  parallel_for(context, dy.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    Source own = source;
    run_buffers buffers;
    bool outside = false;
    for_each_general_run(begin, end, dy.dims.inner(), [&](std::int64_t first, std::int64_t count) {
      const run_cells winners = own.load(pooled_run{0, 0, 0, 0, 1, count, first}, buffers);
      outside |= any_cell_outside(s, winners, first, count);
    });
    if (outside) or_bits(status, status_corrupt);
  });
  parallel_for(context, dx.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
    Source own = source;
    run_buffers buffers;
    for_each_general_run(begin, end, dx.dims.inner(), [&](std::int64_t first, std::int64_t count) {
      float sums[general_run];
      sum_windows(s, dy, own, first, count, sums, buffers);
      float* target = value_target(dx, first, sums);
      if (target != sums) std::memcpy(target, sums, static_cast<std::size_t>(count) * sizeof(float));
      write_values(dx, first, count, sums, rounding::nearest);
    });
  });
}

}  // namespace stash::detail
