// SPDX-License-Identifier: Apache-2.0
#include "encoders/pooling/pool_shape.hpp"

#include <fmt/format.h>

#include "encoders/format/tap_planes.hpp"

namespace stash::encoders {
namespace {

void check_rank(std::string_view function, std::string_view argument, const const_tensor_view& view) {
  if (view.dims.rank() == 4) return;
  fail(errc::invalid_argument, function, argument, "4 dimensions (N, H, W, C)",
       fmt::format("{}", view.dims.rank()));
}

void check_axis(std::string_view function, std::string_view name, const pool_axis& axis) {
  const auto bad = [&](std::string_view expected) {
    fail(errc::invalid_argument, function, "window", fmt::format("{} with {}", name, expected),
         fmt::format("kernel {}, stride {}, padding {} for {} -> {}", axis.kernel, axis.stride, axis.pad,
                     axis.in, axis.out));
  };
  if (axis.kernel < 1 || axis.stride < 1 || axis.pad < 0)
    bad("kernel and stride above 0 and padding not below 0");
  if (axis.out == 0) return;
  // The first and the last window have the fewest taps in x. Divided, because the product may overflow.
  if (axis.pad >= axis.kernel || axis.in == 0 || axis.out - 1 > (axis.in - 1 + axis.pad) / axis.stride) {
    bad("at least one tap of x in every window");
  }
}

}  // namespace

pool_shape check_pool(std::string_view function, std::string_view x_name, const const_tensor_view& x,
                      std::string_view y_name, const const_tensor_view& y, const pool_window& window) {
  check_view(function, x_name, x, dtype::f32);
  check_view(function, y_name, y, dtype::f32);
  check_rank(function, x_name, x);
  check_rank(function, y_name, y);
  if (x.dims[0] != y.dims[0] || x.dims[3] != y.dims[3]) {
    fail(errc::invalid_argument, function, y_name,
         fmt::format("{} samples and {} channels as in {}", x.dims[0], x.dims[3], x_name),
         fmt::format("{} and {}", y.dims[0], y.dims[3]));
  }
  const pool_shape s{x.dims[0],
                     x.dims[3],
                     {x.dims[1], y.dims[1], window.kernel_h, window.stride_h, window.pad_top},
                     {x.dims[2], y.dims[2], window.kernel_w, window.stride_w, window.pad_left}};
  check_axis(function, "height", s.rows);
  check_axis(function, "width", s.columns);
  return s;
}

void check_pool_pitch(std::string_view function, std::string_view name, const const_tensor_view& view,
                      const pool_window& window) {
  if (window.layout != pool_layout::channels_first || view.dense()) return;
  fail(errc::invalid_argument, function, name, "a dense map where channels come first",
       fmt::format("a pixel pitch of {}", view.pitch()));
}

void check_same_shape(std::string_view function, std::string_view name, const const_tensor_view& view,
                      std::string_view like_name, const const_tensor_view& like, const pool_window& window,
                      memory_space where) {
  check_view(function, name, view, like.type, where);
  check_pool_pitch(function, name, view, window);
  if (view.dims == like.dims) return;
  fail(errc::invalid_argument, function, name, fmt::format("the shape of {}", like_name), "another one");
}

int checked_index_bits(std::string_view function, std::int64_t taps) {
  constexpr std::int64_t most = 256;
  if (taps > most) {
    fail(errc::unsupported, function, "window", fmt::format("at most {} taps", most),
         fmt::format("{}", taps));
  }
  return tap_bits(taps);
}

}  // namespace stash::encoders
