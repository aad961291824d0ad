#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/checks.hpp"
#include "stash/pool.hpp"

namespace stash::gpu {
namespace {

using test::generator;

const execution_context device = device_context();

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

const char* name_of(dtype type) {
  return type == dtype::f32 ? "f32" : type == dtype::f16 ? "f16" : "bf16";
}

/// A layer's shapes. No window reaches behind x, so that the last cell of each lies in it.
struct pool_geometry {
  pool_window window;
  shape x, y;
};

/// Half of the layers are pooled by two or by three overlapping, as networks do; in half of those that have
/// channels last these come in eights.
pool_geometry random_geometry(generator& random) {
  const auto any = [&](std::uint32_t low, std::uint32_t high) {
    return static_cast<std::int32_t>(low + random.below(high - low + 1));
  };
  for (;;) {
    pool_geometry g;
    pool_window& w = g.window;
    const bool deep = any(0, 3) == 0;
    const bool usual = any(0, 1) == 0;
    if (usual && any(0, 1) == 0) w = {3, 3, 2, 2, 1, 1};
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
    const std::int64_t in[] = {deep ? any(1, 6) : 1, any(1, 18), usual ? 4 * any(1, 10) : any(1, 30)};
    const std::int32_t kernel[] = {w.kernel_d, w.kernel_h, w.kernel_w};
    const std::int32_t stride[] = {w.stride_d, w.stride_h, w.stride_w};
    const std::int32_t pad[] = {w.pad_front, w.pad_top, w.pad_left};
    const std::int32_t dilation[] = {w.dilation_d, w.dilation_h, w.dilation_w};
    std::int64_t out[3];
    bool fits = true;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t reach = std::int64_t{kernel[axis] - 1} * dilation[axis];
      const std::int64_t room = in[axis] + pad[axis] - reach - 1;
      fits = fits && pad[axis] <= reach && room >= 0;
      out[axis] = room < 0 ? 0 : room / stride[axis] + 1;
    }
    if (!fits) continue;
    const bool last = w.layout == pool_layout::channels_last;
    const auto dims = [&](const std::int64_t* of) -> shape {
      if (deep) return last ? shape{n, of[0], of[1], of[2], c} : shape{n, c, of[0], of[1], of[2]};
      return last ? shape{n, of[1], of[2], c} : shape{n, c, of[1], of[2]};
    };
    g.x = dims(in);
    g.y = dims(out);
    return g;
  }
}

/// Values of which some are equal, and all kinds of special ones.
test::tensor random_map(dtype type, std::int64_t count, generator& random) {
  test::tensor t = random.make(type, count);
  for (std::uint32_t& bits : t.bits) {
    if (random.below(4) == 0) bits = type == dtype::f32 ? 0x3f800000 : type == dtype::f16 ? 0x3c00 : 0x3f80;
  }
  return t;
}

/// Gradients whose sums have the same bits on every processor. All NaN are one, because which of two a sum
/// keeps is up to the processor; and large values are positive, so that no sum makes a NaN of its own.
test::tensor random_gradients(dtype type, std::int64_t count, generator& random) {
  struct special {
    std::uint32_t sign, infinity, large, nan;
  };
  const special s = type == dtype::f32   ? special{0x80000000, 0x7f800000, 0x7a000000, 0x7fc01234}
                    : type == dtype::f16 ? special{0x8000, 0x7c00, 0x7c00, 0x7e05}
                                         : special{0x8000, 0x7f80, 0x7a00, 0x7fc5};
  test::tensor t = random_map(type, count, random);
  for (std::uint32_t& bits : t.bits) {
    const std::uint32_t magnitude = bits & ~s.sign;
    if (magnitude >= s.large) bits = magnitude > s.infinity ? s.nan : magnitude;
  }
  return t;
}

/// A map of a layer, on both sides. Where channels come last, pixels may have gaps between them.
struct pool_map {
  shape dims;
  tensor_pair pair;

  pool_map(buffer_mode mode, dtype type, const shape& of, std::int64_t gap)
      : dims(of), pair(mode, type, of.elements(), {of.inner(), gap, 0}) {}
  tensor_view on_host() const { return with_dims(pair.on_host()); }
  tensor_view on_device() const { return with_dims(pair.on_device()); }
  tensor_view with_dims(tensor_view view) const {
    view.dims = dims;
    return view;
  }
};

/// Encoded bytes on both sides.
struct coded {
  test::buffer host;
  device_buffer there;
  encode_report host_report{};
  device_report report;

  coded(buffer_mode mode, std::size_t bytes) : host(bytes), there(mode, bytes), report(mode) {}
  encoded_view host_out() { return {host.data(), host.size(), nullptr, &host_report}; }
  encoded_view device_out() const { return {there.data(), there.size(), nullptr, report.data()}; }
  const_encoded_view host_in() { return {host.data(), host.size(), nullptr, &host_report}; }
  const_encoded_view device_in() const { return {there.data(), there.size(), nullptr, report.data()}; }
  std::vector<std::uint8_t> host_bytes() const { return {host.data(), host.data() + host.size()}; }

  void expect_same(const std::string& what) const {
    expect_same_bytes(there.read(), host_bytes(), what);
    there.expect_guards(what);
    expect_same_report(what);
  }
  void expect_same_report(const std::string& what) const {
    const encode_report found = report.read();
    expect_equal(found.status, host_report.status, "status of " + what);
    expect_equal(found.slot_bytes, host_report.slot_bytes, "slot_bytes of " + what);
  }
  /// The device gets the host's bytes, some of them changed.
  void damage(generator& random, bool really) {
    for (std::uint32_t changes = really ? random.below(10) : 0; changes > 0 && host.size() > 0; --changes)
      host.data()[random.below(host.size())] = static_cast<std::uint8_t>(random.below(256));
    there.write(host_bytes());
    host_report.status = status_ok;
    report.write(host_report);
  }
};

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
  const auto cells = static_cast<std::uint16_t>(w.cells());
  const std::int64_t pooled_values = g.y.elements();
  coded index(mode, encoded_bytes_bound({.kind = encoding_kind::window_index, .window_cells = cells}, type,
                                        pooled_values));
  const bool has_code = relu && cells <= 15;
  coded code(mode, has_code ? encoded_bytes_bound({.kind = encoding_kind::relu_pool, .window_cells = cells},
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
  code.damage(random, damaged);
  if (!relu) {
    max_pool_backward(dy.on_host(), index.host_in(), dx.on_host(), w, {});
    max_pool_backward(dy.on_device(), index.device_in(), dx.on_device(), w, device);
    dx.pair.expect_same("dx from window_index");
    index.expect_same_report("window_index");
    max_pool_backward(dy.on_host(), x.on_host(), dx.on_host(), w, rule, {});
    max_pool_backward(dy.on_device(), x.on_device(), dx.on_device(), w, rule, device);
    dx.pair.expect_same("dx from x");
    return;
  }
  if (has_code) {
    relu_max_pool_backward(dy.on_host(), code.host_in(), dx.on_host(), w, {});
    relu_max_pool_backward(dy.on_device(), code.device_in(), dx.on_device(), w, device);
    dx.pair.expect_same("dx from relu_pool");
    code.expect_same_report("relu_pool");
  }
  relu_max_pool_backward(dy.on_host(), x.on_host(), dx.on_host(), w, rule, {});
  relu_max_pool_backward(dy.on_device(), x.on_device(), dx.on_device(), w, rule, device);
  dx.pair.expect_same("dx from x");
  relu_max_pool_backward(dy.on_host(), index.host_in(), y.on_host(), dx.on_host(), w, rule, {});
  relu_max_pool_backward(dy.on_device(), index.device_in(), y.on_device(), dx.on_device(), w, rule, device);
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
    relu_max_pool_backward(dy.on_host(), index.host_in(), e, stash.host_in(), dx.on_host(), w, rule, {});
    relu_max_pool_backward(dy.on_device(), index.device_in(), e, stash.device_in(), dx.on_device(), w, rule,
                           device);
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
