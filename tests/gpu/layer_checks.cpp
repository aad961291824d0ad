// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "gpu/checks.hpp"
#include "stash/relu.hpp"

namespace stash::gpu {
namespace {

using test::generator;

const execution_context device = device_context();

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

const char* name_of(dtype type) {
  return type == dtype::f32 ? "f32" : type == dtype::f16 ? "f16" : "bf16";
}

/// A layer with one bit per element to keep: forward, and backward from a stash and from a dense map.
struct layer {
  const char* name;
  encoding mask;
  std::function<void(const const_tensor_view&, const tensor_view&, const encoded_view&, framework_rule,
                     const execution_context&)>
      forward;
  std::function<void(const const_tensor_view&, const encoding&, const const_encoded_view&, const tensor_view&,
                     framework_rule, const execution_context&)>
      backward;
  std::function<void(const const_tensor_view&, const const_tensor_view&, const tensor_view&, framework_rule,
                     const execution_context&)>
      dense_backward;
  std::function<bool(const encoding&)> reads;  ///< can backward read a stash so encoded
};

bool keeps_sign(const encoding& e) {
  return e.kind != encoding_kind::range_mask;
}

layer leaky(const char* name, float slope) {
  return {name,
          {.kind = encoding_kind::sign_mask},
          [slope](const auto& x, const auto& y, const auto& mask, auto, const auto& c) {
            leaky_relu_forward(x, y, mask, slope, c);
          },
          [slope](const auto& dy, const auto& e, const auto& stash, const auto& dx, auto, const auto& c) {
            leaky_relu_backward(dy, {e, dy.type, dy.dims, stash}, dx, slope, c);
          },
          [slope](const auto& dy, const auto& x, const auto& dx, auto, const auto& c) {
            leaky_relu_backward(dy, x, dx, slope, c);
          },
          keeps_sign};
}

std::vector<layer> layers() {
  // In 16 bits they become -1 and 6, which are among the values.
  constexpr float lower = -0.9999F, upper = 6.0001F;
  const auto keeps_range = [](const encoding& e) {
    return e.kind == encoding_kind::range_mask ||
           (e.values == value_format::source && e.kind != encoding_kind::sign_mask);
  };
  return {
      {"relu",
       {.kind = encoding_kind::sign_mask},
       relu_forward,
       [](const auto& dy, const auto& e, const auto& stash, const auto& dx, auto rule, const auto& c) {
         relu_backward(dy, {e, dy.type, dy.dims, stash}, dx, rule, c);
       },
       [](const auto& dy, const auto& y, const auto& dx, auto rule, const auto& c) {
         relu_backward(dy, y, dx, rule, c);
       },
       keeps_sign},
      leaky("leaky_relu", 0.1F),
      {"clip",
       {.kind = encoding_kind::range_mask, .lower = lower, .upper = upper},
       [](const auto& x, const auto& y, const auto& mask, auto rule, const auto& c) {
         clip_forward(x, y, mask, lower, upper, rule, c);
       },
       [](const auto& dy, const auto& e, const auto& stash, const auto& dx, auto rule, const auto& c) {
         clip_backward(dy, {e, dy.type, dy.dims, stash}, dx, lower, upper, rule, c);
       },
       [](const auto& dy, const auto& x, const auto& dx, auto rule, const auto& c) {
         clip_backward(dy, x, dx, lower, upper, rule, c);
       },
       keeps_range},
  };
}

void forward(const layer& l, dtype type, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 31);
  const std::int64_t n = random.size();
  const test::tensor t = random.make(type, n);
  const tensor_pair x(mode, t, random_placement(n, test::width(type), random));
  const bool in_place = random.below(3) == 0;
  const tensor_pair elsewhere(mode, type, n, random_placement(n, test::width(type), random));
  const tensor_pair& y = in_place ? x : elsewhere;
  const auto rule = static_cast<framework_rule>(random.below(2));
  const bool with_mask = random.below(4) != 0;
  const std::size_t bytes = with_mask ? encoded_bytes_bound(l.mask, type, n) : 0;
  test::buffer expected(bytes);
  encode_report host_report{};
  const device_buffer mask(mode, bytes);
  const device_report report(mode);
  encoded_view host_view, device_view;
  if (with_mask) {
    host_view = {expected.data(), bytes, nullptr, &host_report};
    device_view = {mask.data(), bytes, nullptr, report.data()};
  }
  l.forward(x.on_host(), y.on_host(), host_view, rule, {});
  l.forward(x.on_device(), y.on_device(), device_view, rule, device);
  y.expect_same("y");
  x.expect_same("x");
  expect_same_bytes(mask.read(), {expected.data(), expected.data() + bytes}, "mask");
  mask.expect_guards("mask");
  const encode_report found = report.read();
  expect_equal(found.status, host_report.status, "status");
  expect_equal(found.slot_bytes, host_report.slot_bytes, "slot_bytes");
}

/// From valid and from damaged bytes.
void backward(const layer& l, const test::pair_under_test& tested, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 97);
  const dtype type = tested.type;
  encoding e = random_form(tested, random);
  e.underflow = underflow_rule::keep_nonzero;  // without it a narrow value may have lost its sign
  const std::int64_t n = random.size();
  const test::tensor map = random.make(type, n);
  const reference::encoded encoded = reference::encode(e, map);
  std::vector<std::uint8_t> bytes = encoded.bytes;
  for (std::uint32_t changes = seed % 2 == 0 ? 0 : random.below(20); changes > 0 && !bytes.empty(); --changes)
    bytes[random.below(bytes.size())] = static_cast<std::uint8_t>(random.below(256));
  test::buffer host(bytes.size());
  std::copy(bytes.begin(), bytes.end(), host.data());
  const device_buffer stored(mode, bytes);
  encode_report host_report{};
  if (encoded.mask_is_not_sign || random.below(4) == 0) host_report.flags = flag_mask_is_not_sign;
  const device_report report(mode, host_report);

  const tensor_pair dy(mode, random.make(type, n), random_placement(n, test::width(type), random));
  const tensor_pair elsewhere(mode, type, n, random_placement(n, test::width(type), random));
  const tensor_pair& dx = random.below(3) == 0 ? dy : elsewhere;
  const auto rule = static_cast<framework_rule>(random.below(2));
  l.backward(dy.on_host(), e, {host.data(), host.size(), nullptr, &host_report}, dx.on_host(), rule, {});
  l.backward(dy.on_device(), e, {stored.data(), stored.size(), nullptr, report.data()}, dx.on_device(), rule,
             device);
  dx.expect_same("dx");
  dy.expect_same("dy");
  expect_equal(report.read().status, host_report.status, "status");
}

void dense_backward(const layer& l, dtype type, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 53);
  const std::int64_t n = random.size();
  const tensor_pair map(mode, random.make(type, n), random_placement(n, test::width(type), random));
  const tensor_pair dy(mode, random.make(type, n), random_placement(n, test::width(type), random));
  const tensor_pair dx(mode, type, n, random_placement(n, test::width(type), random));
  const auto rule = static_cast<framework_rule>(random.below(2));
  l.dense_backward(dy.on_host(), map.on_host(), dx.on_host(), rule, {});
  l.dense_backward(dy.on_device(), map.on_device(), dx.on_device(), rule, device);
  dx.expect_same("dx");
}

}  // namespace

std::vector<named_check> layer_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  const auto add = [&](std::string name, const std::function<void(std::uint32_t)>& attempt) {
    checks.push_back(repeated(std::move(name), setup.tensors, attempt));
  };
  for (const layer& l : layers()) {
    for (const dtype type : types) {
      add(fmt::format("{}_forward/{}", l.name, name_of(type)),
          [=](std::uint32_t seed) { forward(l, type, mode, seed); });
      add(fmt::format("{}_backward/dense_{}", l.name, name_of(type)),
          [=](std::uint32_t seed) { dense_backward(l, type, mode, seed); });
    }
    for (const test::pair_under_test& tested : test::pairs()) {
      if (!l.reads(parse_encoding(tested.name))) continue;
      add(fmt::format("{}_backward/{}", l.name, test::name_of(tested)),
          [=](std::uint32_t seed) { backward(l, tested, mode, seed); });
    }
  }
  return checks;
}

}  // namespace stash::gpu
