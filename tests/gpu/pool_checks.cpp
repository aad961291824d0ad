// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "gpu/checks.hpp"
#include "gpu/pool_maps.hpp"
#include "stash/pool.hpp"

namespace stash::gpu {
namespace {

using test::generator;

const execution_context device = device_context();

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

const char* name_of(dtype type) {
  return type == dtype::f32 ? "f32" : type == dtype::f16 ? "f16" : "bf16";
}

/// A layer's shapes. Only windows around each value reach past x, by a tap.
struct pool_geometry {
  pool_window window;
  shape x, y;
};

/// Half of the layers are pooled by two, by three overlapping or by three around each value, as networks do,
/// and have rows of whole vec16s (16 bytes) or of any length; in half of those that have NHWC these come in
/// eights.
pool_geometry random_geometry(generator& random) {
  const auto any = [&](std::uint32_t low, std::uint32_t high) {
    return static_cast<std::int32_t>(low + random.below(high - low + 1));
  };
  for (;;) {
    pool_geometry g;
    pool_window& w = g.window;
    const bool deep = any(0, 3) == 0;
    const bool usual = any(0, 1) == 0;
    std::int64_t pad_after = 0;
    if (usual) {
      const std::int32_t kind = any(0, 2);
      if (kind == 1) w = {3, 3, 2, 2, 1, 1};
      if (kind == 2) w = {3, 3, 1, 1, 1, 1};
      pad_after = w.stride_h == 1 ? 1 : 0;
    }
    if (!usual) {
      w = {any(1, 5), any(1, 5), any(1, 3), any(1, 3), any(0, 2), any(0, 2)};
      w.dilation_h = any(1, 2);
      w.dilation_w = any(1, 2);
      if (deep) {
        w.kernel_d = any(1, 3);
        w.stride_d = any(1, 2);
        w.pad_front = any(0, 1);
      }
    }
    w.layout = any(0, 1) == 0 ? pool_layout::channels_last : pool_layout::channels_first;
    const std::int64_t n = any(1, 3), c = any(0, 1) == 0 ? 8 * any(1, 5) : any(1, 20);
    const std::int64_t width = usual && any(0, 1) == 0 ? 4 * any(1, 10) : any(1, usual ? 60 : 30);
    const std::int64_t in[] = {deep ? any(1, 6) : 1, any(1, 18), width};
    const std::int32_t kernel[] = {w.kernel_d, w.kernel_h, w.kernel_w};
    const std::int32_t stride[] = {w.stride_d, w.stride_h, w.stride_w};
    const std::int32_t pad[] = {w.pad_front, w.pad_top, w.pad_left};
    const std::int32_t dilation[] = {w.dilation_d, w.dilation_h, w.dilation_w};
    std::int64_t out[3];
    bool fits = true;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t reach = std::int64_t{kernel[axis] - 1} * dilation[axis];
      const std::int64_t steps = in[axis] + pad[axis] + (axis > 0 ? pad_after : 0) - reach - 1;
      fits = fits && pad[axis] <= reach && steps >= 0;
      out[axis] = steps < 0 ? 0 : steps / stride[axis] + 1;
    }
    if (!fits) continue;
    const bool last = w.layout == pool_layout::channels_last;
    const auto dims = [&](const std::int64_t* axis_sizes) -> shape {
      if (deep)
        return last ? shape{n, axis_sizes[0], axis_sizes[1], axis_sizes[2], c}
                    : shape{n, c, axis_sizes[0], axis_sizes[1], axis_sizes[2]};
      return last ? shape{n, axis_sizes[1], axis_sizes[2], c} : shape{n, c, axis_sizes[1], axis_sizes[2]};
    };
    g.x = dims(in);
    g.y = dims(out);
    return g;
  }
}

/// Positions of argmaxes from an index, damaged or not, and the index that they give.
void positions(const pool_geometry& g, coded& index, buffer_mode mode) {
  const auto count = static_cast<std::size_t>(g.y.elements());
  std::vector<std::int64_t> on_host(count);
  const device_buffer on_device(mode, count * sizeof(std::int64_t));
  auto* const flat = reinterpret_cast<std::int64_t*>(on_device.data());
  decode_window_index({window_index_of(g.window), dtype::f32, g.y, index.host_in()}, g.x, g.window,
                      on_host.data(), {});
  decode_window_index({window_index_of(g.window), dtype::f32, g.y, index.device_in()}, g.x, g.window, flat,
                      device);
  std::vector<std::uint8_t> expected(count * sizeof(std::int64_t));
  std::memcpy(expected.data(), on_host.data(), expected.size());
  expect_same_bytes(on_device.read(), expected, "positions");
  on_device.expect_guards("positions");
  index.expect_same_report("window_index");
  coded again(mode, encoded_bytes_bound({.kind = encoding_kind::window_index,
                                         .window_taps = static_cast<std::uint16_t>(g.window.taps())},
                                        dtype::f32, g.y.elements()));
  encode_window_index(on_host.data(), g.y, g.x, g.window, again.host_out(), {});
  encode_window_index(flat, g.y, g.x, g.window, again.device_out(), device);
  again.expect_same("window_index of positions");
}

/// Forward, then backward from everything that can be kept; for odd seeds from damaged bytes.
void pooled(dtype type, bool relu, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 1234);
  const pool_geometry g = random_geometry(random);
  const pool_window& w = g.window;
  const auto rule = static_cast<framework_rule>(random.below(2));
  const bool last = w.layout == pool_layout::channels_last;
  const std::int64_t gap = last && random.below(2) == 0 ? 8 * random.below(2) + random.below(2) : 0;
  pool_map x(mode, type, g.x, gap), dy(mode, type, g.y, gap);
  const pool_map y(mode, type, g.y, gap), dx(mode, type, g.x, gap);
  x.pair.set(random_map(type, g.x.elements(), random));
  dy.pair.set(random_gradients(type, g.y.elements(), random));
  const auto taps = static_cast<std::uint16_t>(w.taps());
  const std::int64_t pooled_values = g.y.elements();
  coded index(mode, encoded_bytes_bound({.kind = encoding_kind::window_index, .window_taps = taps}, type,
                                        pooled_values));
  const bool has_code = relu && taps <= 15;
  coded code(mode, has_code ? encoded_bytes_bound({.kind = encoding_kind::relu_pool, .window_taps = taps},
                                                  type, pooled_values)
                            : 0);
  if (relu) {
    relu_max_pool_forward(x.on_host(), y.on_host(), w, has_code ? code.host_out() : encoded_view{},
                          index.host_out(), rule, {});
    relu_max_pool_forward(x.on_device(), y.on_device(), w, has_code ? code.device_out() : encoded_view{},
                          index.device_out(), rule, device);
  } else {
    max_pool_forward(x.on_host(), y.on_host(), w, index.host_out(), rule, {});
    max_pool_forward(x.on_device(), y.on_device(), w, index.device_out(), rule, device);
  }
  y.pair.expect_same("y");
  index.expect_same("window_index");
  code.expect_same("relu_pool");

  const bool damaged = seed % 2 == 1;
  index.damage(random, damaged);
  positions(g, index, mode);
  code.damage(random, damaged);
  if (!relu) {
    max_pool_backward(dy.on_host(),
                      {window_index_of(w), dy.on_host().type, dy.on_host().dims, index.host_in()},
                      dx.on_host(), w, {});
    max_pool_backward(dy.on_device(),
                      {window_index_of(w), dy.on_device().type, dy.on_device().dims, index.device_in()},
                      dx.on_device(), w, device);
    dx.pair.expect_same("dx from window_index");
    index.expect_same_report("window_index");
    max_pool_backward(dy.on_host(), x.on_host(), dx.on_host(), w, rule, {});
    max_pool_backward(dy.on_device(), x.on_device(), dx.on_device(), w, rule, device);
    dx.pair.expect_same("dx from x");
    return;
  }
  if (has_code) {
    relu_max_pool_backward(dy.on_host(),
                           {relu_pool_of(w), dy.on_host().type, dy.on_host().dims, code.host_in()},
                           dx.on_host(), w, {});
    relu_max_pool_backward(dy.on_device(),
                           {relu_pool_of(w), dy.on_device().type, dy.on_device().dims, code.device_in()},
                           dx.on_device(), w, device);
    dx.pair.expect_same("dx from relu_pool");
    code.expect_same_report("relu_pool");
  }
  relu_max_pool_backward(dy.on_host(), x.on_host(), dx.on_host(), w, rule, {});
  relu_max_pool_backward(dy.on_device(), x.on_device(), dx.on_device(), w, rule, device);
  dx.pair.expect_same("dx from x");
  relu_max_pool_backward(dy.on_host(),
                         {window_index_of(w), dy.on_host().type, dy.on_host().dims, index.host_in()},
                         y.on_host(), dx.on_host(), w, rule, {});
  relu_max_pool_backward(dy.on_device(),
                         {window_index_of(w), dy.on_device().type, dy.on_device().dims, index.device_in()},
                         y.on_device(), dx.on_device(), w, rule, device);
  dx.pair.expect_same("dx from window_index and y");
  const char* const narrow[] = {"fp8", "fp10", "fp8_e5m2", "mxfp8_e4m3", "mxfp6_e3m2", "mxfp4_e2m1"};
  const std::string format = narrow[random.below(std::size(narrow))];
  for (const std::string& name : {std::string("sign_mask"), std::string("raw"), format, std::string("bitmap"),
                                  "bitmap_" + format, std::string("csr"), "csr_" + format}) {
    encoding e = parse_encoding(name);
    e.rule = rule;
    e.underflow = underflow_rule::keep_nonzero;
    coded stash(mode, encoded_bytes_bound(e, type, pooled_values));
    encode(e, y.on_host(), stash.host_out(), {}, {});
    // Columns of csr in another order mean nothing that the page says.
    stash.damage(random, damaged && e.kind != encoding_kind::csr);
    relu_max_pool_backward(
        dy.on_host(), {window_index_of(w), dy.on_host().type, dy.on_host().dims, index.host_in()},
        {e, dy.on_host().type, dy.on_host().dims, stash.host_in()}, dx.on_host(), w, rule, {});
    relu_max_pool_backward(
        dy.on_device(), {window_index_of(w), dy.on_device().type, dy.on_device().dims, index.device_in()},
        {e, dy.on_device().type, dy.on_device().dims, stash.device_in()}, dx.on_device(), w, rule, device);
    dx.pair.expect_same("dx from window_index and " + name);
    stash.expect_same_report(name);
  }
  index.expect_same_report("window_index");
}

}  // namespace

std::vector<named_check> pool_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  for (const bool relu : {false, true}) {
    for (const dtype type : types) {
      checks.push_back(repeated(fmt::format("{}/{}", relu ? "relu_max_pool" : "max_pool", name_of(type)),
                                2 * setup.tensors,
                                [=](std::uint32_t seed) { pooled(type, relu, mode, seed); }));
    }
  }
  return checks;
}

}  // namespace stash::gpu
