// SPDX-License-Identifier: Apache-2.0
// Casts, csr, ReLU and pooling of maps whose element numbers need more than 32 bits. Kernels run on the whole
// map; the host sets and compares its beginning and its end, each with what it makes of that part alone.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gpu/checks.hpp"
#include "gpu/pool_maps.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace stash::gpu {
namespace {

using test::generator;

/// Whole blocks of every kernel, whole vec16s (16 bytes) in every encoding.
constexpr std::int64_t part_elements = 24576;

/// Part of a map: its beginning or its end.
struct part {
  std::int64_t first, count;
};

/// Of `units` units; what lies between them is a multiple of `whole` units.
std::vector<part> parts_of(std::int64_t units, std::int64_t whole) {
  const std::int64_t end = (units / whole - 1) * whole;
  return {{0, whole}, {end, units - end}};
}

std::vector<std::uint8_t> read(const device_buffer& from, std::uint64_t at, std::size_t bytes) {
  std::vector<std::uint8_t> found(bytes);
  download(found.data(), from.data() + at, bytes);
  return found;
}

std::vector<std::uint8_t> bytes_of(const test::buffer& b) {
  return {b.data(), b.data() + b.size()};
}

/// The elements of a part as a map of their own on the host.
test::buffer random_part(dtype type, std::int64_t count, std::uint32_t seed, bool gradients) {
  generator random(seed);
  test::placed dense(type, count, count, 0, 0);
  dense.put(gradients ? random_gradients(type, count, random) : random_map(type, count, random));
  return std::move(dense.memory);
}

/// A map of zeros whose parts have values.
struct long_map {
  long_map(buffer_mode mode, dtype t, std::int64_t n, const std::vector<part>& parts_of_map,
           std::uint32_t seed, bool gradients = false)
      : type(t), elements(n), there(mode, static_cast<std::size_t>(n) * size_of(t)) {
    fill(there.data(), 0, there.size(), nullptr);
    for (const part& p : parts_of_map) {
      parts.push_back(random_part(type, p.count, seed++, gradients));
      upload(there.data() + offset(p), parts.back().data(), parts.back().size());
    }
  }
  std::uint64_t offset(const part& p) const { return static_cast<std::uint64_t>(p.first) * size_of(type); }
  tensor_view on_device(const shape& dims) const {
    return {there.data(), type, memory_space::device, dims, 0};
  }
  tensor_view on_host(std::size_t p, const shape& dims) const {
    return {parts[p].data(), type, memory_space::host, dims, 0};
  }
  void expect_same(const part& p, const test::buffer& expected, const char* what) const {
    expect_same_bytes(read(there, offset(p), expected.size()), bytes_of(expected), what);
    there.expect_guards(what);
  }

  dtype type;
  std::int64_t elements;
  device_buffer there;
  std::vector<test::buffer> parts;
};

/// Encoded bytes of the map, one plane of so many bits for each element, and those of its parts on the host.
struct long_plane {
  long_plane(buffer_mode mode, const encoding& e, dtype type, std::int64_t n,
             const std::vector<part>& parts_of_map)
      : there(mode, encoded_bytes_bound(e, type, n)), report(mode) {
    for (const part& p : parts_of_map) {
      parts.emplace_back(encoded_bytes_bound(e, type, p.count));
      reports.emplace_back();
    }
    bytes_of_whole = encoded_bytes_bound(e, type, part_elements);
  }
  encoded_view on_device() const { return {there.data(), there.size(), nullptr, report.data()}; }
  encoded_view on_host(std::size_t p) { return {parts[p].data(), parts[p].size(), nullptr, &reports[p]}; }
  void expect_same(const part& p, std::size_t number, const char* what) const {
    // The beginning of the map is whole: what is padded is the end.
    const std::uint64_t at = static_cast<std::uint64_t>(p.first) / part_elements * bytes_of_whole;
    expect_same_bytes(read(there, at, parts[number].size()), bytes_of(parts[number]), what);
    expect_equal(report.read().status, status_ok, std::string("status parts_of_map ") + what);
    there.expect_guards(what);
  }

  device_buffer there;
  device_report report;
  std::vector<test::buffer> parts;
  std::vector<encode_report> reports;
  std::uint64_t bytes_of_whole = 0;
};

const_encoded_view readable(const encoded_view& v) {
  return {v.data, v.bytes, v.overflow, v.report};
}

/// What a call of several maps needs besides them.
constexpr std::size_t margin = std::size_t{256} << 20;

void cast(const char* name, dtype type, std::int64_t n, buffer_mode mode) {
  const encoding e = parse_encoding(name);
  const shape dims{n};
  need_memory(static_cast<std::size_t>(n) * size_of(type) + encoded_bytes_bound(e, type, n) + margin);
  const std::vector<part> parts = parts_of(n, part_elements);
  const long_map x(mode, type, n, parts, 61);
  long_plane stored(mode, e, type, n, parts);
  encode(e, x.on_device(dims), stored.on_device(), {}, device_context());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    encode(e, x.on_host(p, {parts[p].count}), stored.on_host(p), {}, {});
    stored.expect_same(parts[p], p, "codes");
  }
  fill(x.there.data(), 0xff, x.there.size(), nullptr);
  decode({e, x.on_device(dims).type, x.on_device(dims).dims, readable(stored.on_device())}, x.on_device(dims),
         {}, device_context());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    decode({e, x.on_host(p, {parts[p].count}).type, x.on_host(p, {parts[p].count}).dims,
            readable(stored.on_host(p))},
           x.on_host(p, {parts[p].count}), {}, {});
    x.expect_same(parts[p], x.parts[p], "decoded values");
  }
}

void csr(dtype type, std::int64_t n, buffer_mode mode) {
  const encoding e = parse_encoding("csr");
  const shape dims{n};
  const std::vector<part> parts = parts_of(n, part_elements);
  std::size_t bytes = encoded_bytes_at_density(e, type, n, 0);
  for (const part& p : parts)
    bytes += encoded_bytes_bound(e, type, p.count);
  need_memory(static_cast<std::size_t>(n) * size_of(type) + bytes + margin);
  const long_map x(mode, type, n, parts, 67);
  const device_buffer stored(mode, bytes);
  const device_report report(mode);
  const encoded_view out{stored.data(), stored.size(), nullptr, report.data()};
  encode(e, x.on_device(dims), out, {}, device_context());
  std::uint64_t nonzeros = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const test::buffer alone(encoded_bytes_bound(e, type, parts[p].count));
    encode_report host_report{};
    encode(e, x.on_host(p, {parts[p].count}), {alone.data(), alone.size(), nullptr, &host_report}, {}, {});
    nonzeros += host_report.nonzeros;
  }
  expect_equal(report.read().nonzeros, nonzeros, "nonzeros");
  fill(x.there.data(), 0xff, x.there.size(), nullptr);
  decode({e, x.on_device(dims).type, x.on_device(dims).dims, readable(out)}, x.on_device(dims), {},
         device_context());
  expect_equal(report.read().status, status_ok, "status");
  stored.expect_guards("encoded bytes");
  for (std::size_t p = 0; p < parts.size(); ++p)
    x.expect_same(parts[p], x.parts[p], "decoded values");
}

void relu(dtype type, std::int64_t n, buffer_mode mode) {
  constexpr framework_rule rule = framework_rule::pytorch;
  const encoding e{.kind = encoding_kind::sign_mask};
  const shape dims{n};
  need_memory(2 * static_cast<std::size_t>(n) * size_of(type) + encoded_bytes_bound(e, type, n) + margin);
  const std::vector<part> parts = parts_of(n, part_elements);
  const long_map x(mode, type, n, parts, 71), y(mode, type, n, parts, 73);
  long_plane mask(mode, e, type, n, parts);
  relu_forward(x.on_device(dims), y.on_device(dims), mask.on_device(), rule, device_context());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const shape own{parts[p].count};
    relu_forward(x.on_host(p, own), y.on_host(p, own), mask.on_host(p), rule, {});
    y.expect_same(parts[p], y.parts[p], "y");
    mask.expect_same(parts[p], p, "mask");
  }
  // x serves as dy.
  relu_backward(x.on_device(dims),
                {e, x.on_device(dims).type, x.on_device(dims).dims, readable(mask.on_device())},
                y.on_device(dims), rule, device_context());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const shape own{parts[p].count};
    relu_backward(x.on_host(p, own),
                  {e, x.on_host(p, own).type, x.on_host(p, own).dims, readable(mask.on_host(p))},
                  y.on_host(p, own), rule, {});
    y.expect_same(parts[p], y.parts[p], "dx");
  }
}

/// Samples of side x side pixels and eight channels, pooled to 2 x 2 or one pixel.
void pool(const pool_window& w, std::int64_t side, dtype type, std::int64_t n, buffer_mode mode) {
  constexpr framework_rule rule = framework_rule::tensorflow;
  constexpr std::int64_t channels = 8;
  const std::int64_t pooled = side / 2, of_x = side * side * channels, of_y = pooled * pooled * channels;
  const std::int64_t samples = (n + of_x - 1) / of_x;
  const encoding e{.kind = encoding_kind::window_index, .window_taps = static_cast<std::uint16_t>(w.taps())};
  const std::size_t x_bytes = static_cast<std::size_t>(samples * of_x) * size_of(type);
  const std::size_t y_bytes = static_cast<std::size_t>(samples * of_y) * size_of(type);
  need_memory(2 * x_bytes + 2 * y_bytes + encoded_bytes_bound(e, type, samples * of_y) + margin);
  // Parts of y have whole part_elements, so that codes do; those of x are the same samples.
  const std::int64_t whole = part_elements / of_y;
  std::vector<part> x_parts, y_parts;
  for (const part& p : samples >= 2 * whole ? parts_of(samples, whole) : std::vector<part>{{0, samples}}) {
    x_parts.push_back({p.first * of_x, p.count * of_x});
    y_parts.push_back({p.first * of_y, p.count * of_y});
  }
  const auto x_dims = [&](std::int64_t count) { return shape{count / of_x, side, side, channels}; };
  const auto y_dims = [&](std::int64_t count) { return shape{count / of_y, pooled, pooled, channels}; };
  const shape x_all = x_dims(samples * of_x), y_all = y_dims(samples * of_y);
  const long_map x(mode, type, samples * of_x, x_parts, 79), dx(mode, type, samples * of_x, x_parts, 83);
  const long_map y(mode, type, samples * of_y, y_parts, 89),
      dy(mode, type, samples * of_y, y_parts, 97, true);
  long_plane index(mode, e, type, samples * of_y, y_parts);
  max_pool_forward(x.on_device(x_all), y.on_device(y_all), w, index.on_device(), rule, device_context());
  max_pool_backward(
      dy.on_device(y_all),
      {window_index_of(w), dy.on_device(y_all).type, dy.on_device(y_all).dims, readable(index.on_device())},
      dx.on_device(x_all), w, device_context());
  for (std::size_t p = 0; p < x_parts.size(); ++p) {
    const shape own_x = x_dims(x_parts[p].count), own_y = y_dims(y_parts[p].count);
    max_pool_forward(x.on_host(p, own_x), y.on_host(p, own_y), w, index.on_host(p), rule, {});
    y.expect_same(y_parts[p], y.parts[p], "y");
    index.expect_same(y_parts[p], p, "window_index");
    max_pool_backward(dy.on_host(p, own_y),
                      {window_index_of(w), dy.on_host(p, own_y).type, dy.on_host(p, own_y).dims,
                       readable(index.on_host(p))},
                      dx.on_host(p, own_x), w, {});
    dx.expect_same(x_parts[p], dx.parts[p], "dx");
  }
}

}  // namespace

std::vector<named_check> large_call_checks(const check_setup& setup) {
  const std::int64_t n = setup.large_elements;
  if (n == 0) return {};
  const buffer_mode mode = setup.mode;
  std::vector<named_check> checks;
  const auto add = [&](const char* name, const std::function<void()>& call) {
    checks.push_back(
        repeated(fmt::format("large/{}, {} elements", name, n), 1, [call](std::uint32_t) { call(); }));
  };
  add("fp8_of_f32", [=] { cast("fp8", dtype::f32, n, mode); });
  add("fp8_of_f16", [=] { cast("fp8", dtype::f16, n, mode); });
  add("fp10_of_f32", [=] { cast("fp10", dtype::f32, n, mode); });
  add("fp10_of_f16", [=] { cast("fp10", dtype::f16, n, mode); });
  add("csr_of_f32", [=] { csr(dtype::f32, n, mode); });
  add("csr_of_f16", [=] { csr(dtype::f16, n, mode); });
  add("relu_of_f32", [=] { relu(dtype::f32, n, mode); });
  add("relu_of_f16", [=] { relu(dtype::f16, n, mode); });
  add("pool_halves_of_f16", [=] { pool({}, 2, dtype::f16, n, mode); });
  add("pool_overlapping_of_f16", [=] { pool({3, 3, 2, 2, 1, 1}, 4, dtype::f16, n, mode); });
  return checks;
}

}  // namespace stash::gpu
