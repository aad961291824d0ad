#include "pool_general.hpp"

#include <fmt/format.h>

#include "sign.hpp"

namespace stash::detail {
namespace {

void check_general_axis(std::string_view function, std::string_view name, const general_axis& axis) {
  const auto bad = [&](std::string_view expected) {
    fail(errc::invalid_argument, function, "window", fmt::format("{} with {}", name, expected),
         fmt::format("kernel {}, stride {}, padding {}, dilation {} for {} -> {}", axis.kernel, axis.stride,
                     axis.pad, axis.dilation, axis.in, axis.out));
  };
  if (axis.kernel < 1 || axis.stride < 1 || axis.pad < 0 || axis.dilation < 1)
    bad("kernel, stride and dilation above 0 and padding not below 0");
  if (axis.out == 0) return;
  // Divided where a product may overflow.
  const bool too_many = axis.in == 0 || axis.out - 1 > (axis.in - 1 + axis.pad) / axis.stride;
  const auto reaches = [&](std::int64_t window) {
    for (std::int64_t k = 0; k < axis.kernel; ++k) {
      if (axis.inside(window, k)) return true;
    }
    return false;
  };
  // Windows in the padding's shadow are few: those that start before x, and those that end behind it.
  bool all_reach = !too_many && axis.kernel <= 256;
  for (std::int64_t w = 0; all_reach && w < axis.out && axis.position(w, 0) < 0; ++w)
    all_reach = reaches(w);
  if (!all_reach) bad("at least one cell of x in every window, and at most 256 cells");
}

/// Elements [0, count) at `from` and every `step` of them, as f32.
void gather(const const_tensor_view& x, std::int64_t from, std::int64_t step, std::int64_t count,
            float* to) noexcept {
  if (x.type == dtype::f32) {
    const float* data = x.as<float>() + from;
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = data[i * step];
    return;
  }
  std::uint16_t narrow[general_run];
  const std::uint16_t* data = x.as<std::uint16_t>() + from;
  for (std::int64_t i = 0; i < count; ++i)
    narrow[i] = data[i * step];
  widen_exactly(x.type, narrow, count, to);
}

}  // namespace

bool is_general(const pool_window& w, const const_tensor_view& x) noexcept {
  return x.type != dtype::f32 || x.dims.rank() != 4 || w.layout != pool_layout::channels_last ||
         w.kernel_d != 1 || w.stride_d != 1 || w.pad_front != 0 || w.dilation_d != 1 || w.dilation_h != 1 ||
         w.dilation_w != 1;
}

general_shape check_general_pool(std::string_view function, std::string_view x_name,
                                 const const_tensor_view& x, std::string_view y_name,
                                 const const_tensor_view& y, const pool_window& window) {
  check_float_view(function, x_name, x);
  check_view(function, y_name, y, x.type);
  const int rank = x.dims.rank();
  if (rank != 4 && rank != 5) {
    fail(errc::invalid_argument, function, x_name, "4 or 5 dimensions", fmt::format("{}", rank));
  }
  if (y.dims.rank() != rank) {
    fail(errc::invalid_argument, function, y_name, fmt::format("{} dimensions as {}", rank, x_name),
         fmt::format("{}", y.dims.rank()));
  }
  if (window.layout != pool_layout::channels_last && window.layout != pool_layout::channels_first) {
    fail(errc::invalid_argument, function, "window", "a known layout",
         fmt::format("{}", static_cast<unsigned>(window.layout)));
  }
  const bool first = window.layout == pool_layout::channels_first;
  if (first && (!x.dense() || !y.dense())) {
    fail(errc::invalid_argument, function, "window", "dense maps with channels first", "a pixel pitch");
  }
  if (rank == 4 && (window.kernel_d != 1 || window.stride_d != 1 || window.pad_front != 0)) {
    fail(errc::invalid_argument, function, "window", "no depth with 4 dimensions",
         fmt::format("kernel {}, stride {}, padding {}", window.kernel_d, window.stride_d, window.pad_front));
  }
  const int channel = first ? 1 : rank - 1;
  const int space = first ? 2 : 1;
  if (x.dims[0] != y.dims[0] || x.dims[channel] != y.dims[channel]) {
    fail(errc::invalid_argument, function, y_name,
         fmt::format("{} samples and {} channels as in {}", x.dims[0], x.dims[channel], x_name),
         fmt::format("{} and {}", y.dims[0], y.dims[channel]));
  }
  general_shape s;
  s.samples = x.dims[0];
  s.channels = x.dims[channel];
  s.channels_first = first;
  const int rows = space + (rank == 5 ? 1 : 0);
  if (rank == 5) {
    s.depth = {x.dims[space],   y.dims[space],    window.kernel_d,
               window.stride_d, window.pad_front, window.dilation_d};
  }
  s.rows = {x.dims[rows], y.dims[rows], window.kernel_h, window.stride_h, window.pad_top, window.dilation_h};
  s.columns = {x.dims[rows + 1], y.dims[rows + 1], window.kernel_w,
               window.stride_w,  window.pad_left,  window.dilation_w};
  check_general_axis(function, "depth", s.depth);
  check_general_axis(function, "height", s.rows);
  check_general_axis(function, "width", s.columns);
  if (s.cells() > 256) {
    fail(errc::unsupported, function, "window", "at most 256 cells", fmt::format("{}", s.cells()));
  }
  return s;
}

general_place place_of(const general_shape& s, std::int64_t i, std::int64_t depth, std::int64_t rows,
                       std::int64_t columns) noexcept {
  general_place at{};
  if (!s.channels_first) {
    at.channel = i % s.channels;
    i /= s.channels;
  }
  at.x = i % columns;
  i /= columns;
  at.y = i % rows;
  i /= rows;
  at.z = i % depth;
  i /= depth;
  if (s.channels_first) {
    at.channel = i % s.channels;
    i /= s.channels;
  }
  at.sample = i;
  return at;
}

std::int64_t element_at(const general_shape& s, const general_place& at, std::int64_t depth,
                        std::int64_t rows, std::int64_t columns) noexcept {
  const std::int64_t plane = s.channels_first ? at.sample * s.channels + at.channel : at.sample;
  const std::int64_t pixel = ((plane * depth + at.z) * rows + at.y) * columns + at.x;
  return s.channels_first ? pixel : pixel * s.channels + at.channel;
}

void find_winners(const general_shape& s, const const_tensor_view& x, bool relu, framework_rule rule,
                  std::int64_t first, std::int64_t count, float* best, std::uint8_t* cells) noexcept {
  const general_axis &d = s.depth, &r = s.rows, &c = s.columns;
  const general_place at = place_of(s, first, d.out, r.out, c.out);
  const bool nan_wins = rule == framework_rule::pytorch;
  std::int32_t winner[general_run];
  std::fill_n(winner, count, -1);
  for (std::int64_t kz = 0; kz < d.kernel; ++kz) {
    if (!d.inside(at.z, kz)) continue;
    for (std::int64_t ky = 0; ky < r.kernel; ++ky) {
      if (!r.inside(at.y, ky)) continue;
      for (std::int64_t kx = 0; kx < c.kernel; ++kx) {
        // The run's elements whose cell lies in x: all or none, or a stretch of the row.
        std::int64_t begin = 0, end = count;
        general_place from{at.sample, at.channel, d.position(at.z, kz), r.position(at.y, ky), 0};
        if (s.channels_first) {
          begin = std::max<std::int64_t>(0, c.first_window(kx, 0) - at.x);
          end = std::min(count, c.first_window(kx, c.in) - at.x);
        } else if (!c.inside(at.x, kx)) {
          continue;
        }
        if (begin >= end) continue;
        from.x = c.position(at.x + (s.channels_first ? begin : 0), kx);
        std::int64_t offset = element_at(s, from, d.in, r.in, c.in);
        if (!s.channels_first) offset = offset / s.channels * x.pitch() + at.channel;
        float values[general_run];
        gather(x, offset, s.channels_first ? c.stride : 1, end - begin, values);
        const auto cell = static_cast<std::int32_t>((kz * r.kernel + ky) * c.kernel + kx);
        for (std::int64_t i = begin; i < end; ++i) {
          float value = values[i - begin];
          if (relu && !passes<framework_rule::pytorch>(value)) value = 0.0F;
          const bool take = winner[i] < 0 || value > best[i] || (nan_wins && is_nan(value));
          best[i] = take ? value : best[i];
          winner[i] = take ? cell : winner[i];
        }
      }
    }
  }
  for (std::int64_t i = 0; i < count; ++i)
    cells[i] = static_cast<std::uint8_t>(winner[i]);
}

void general_pool_forward(bool relu, const general_shape& s, const const_tensor_view& x, const tensor_view& y,
                          const pool_planes& planes, framework_rule rule, const execution_context& context) {
  const std::int64_t elements = y.elements();
  if (elements == 0) return;
  const bool wants_cells = planes.index != nullptr || planes.code != nullptr;
  if (planes.index != nullptr) clear_tail(planes.index, elements, planes.index_bits);
  if (planes.code != nullptr) clear_tail(planes.code, elements, planes.code_bits);
  if (planes.gradient != nullptr) clear_tail(planes.gradient, elements, 1);
  // Ranges are cut at whole bytes of every plane.
  constexpr std::int64_t group = cell_stage::group_elements;
  parallel_for(context, (elements + group - 1) / group, 16 * run_elements / group,
               [&](std::int64_t begin, std::int64_t end) {
                 cell_stage stage(planes, y, rule, begin * group);
                 for_each_general_run(begin * group, std::min(elements, end * group), y.dims.inner(),
                                      [&](std::int64_t first, std::int64_t count) {
                                        float best[general_run];
                                        std::uint8_t unwanted[general_run];
                                        std::uint8_t* cells = wants_cells ? stage.cells(count) : unwanted;
                                        find_winners(s, x, relu, rule, first, count, best, cells);
                                        float* target = value_target(y, first, best);
                                        if (target != best)
                                          std::memcpy(target, best,
                                                      static_cast<std::size_t>(count) * sizeof(float));
                                        write_values(y, first, count, best, rounding::exact);
                                        if (wants_cells) stage.advance(count);
                                      });
                 if (wants_cells) stage.finish();
               });
}

bool any_cell_outside(const general_shape& s, const run_cells& winners, std::int64_t first,
                      std::int64_t count) noexcept {
  const general_axis &d = s.depth, &r = s.rows, &c = s.columns;
  const general_place at = place_of(s, first, d.out, r.out, c.out);
  for (std::int64_t i = 0; i < count; ++i) {
    if (winners.cell_needs_pass && winners.passes[i] == 0) continue;
    const std::int64_t cell = winners.cells[i];
    const std::int64_t ox = at.x + (s.channels_first ? i : 0);
    const bool inside = cell < s.cells() && d.inside(at.z, cell / c.kernel / r.kernel) &&
                        r.inside(at.y, cell / c.kernel % r.kernel) && c.inside(ox, cell % c.kernel);
    if (!inside) return true;
  }
  return false;
}

}  // namespace stash::detail
