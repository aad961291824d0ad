// SPDX-License-Identifier: Apache-2.0
#include "gpu/checks.hpp"
#include "stash/dropout.hpp"

namespace stash::gpu {
namespace {

using test::generator;

const execution_context device = device_context();

/// Forward with and without a mask; backward from the mask and from the key.
void dropped(buffer_mode mode, dtype type, std::uint32_t seed) {
  generator random(seed + 4321);
  const std::int64_t n = random.size();
  const auto placement_of_map = [&] { return random_placement(n, size_of(type), random); };
  const tensor_pair x(mode, random.make(type, n), placement_of_map());
  const tensor_pair dy(mode, random.make(type, n), placement_of_map());
  const tensor_pair elsewhere(mode, type, n, placement_of_map()), dx(mode, type, n, placement_of_map());
  const tensor_pair& y = random.below(3) == 0 ? x : elsewhere;
  const dropout_key key{0x0123456789abcdefU + seed, 0x0000000200000007U * (seed + 1), seed};
  const float probability = static_cast<float>(random.below(11)) / 11;
  const bool with_mask = random.below(4) != 0;
  const std::size_t bytes = encoded_bytes_bound({.kind = encoding_kind::sign_mask}, type, n);
  test::buffer expected(bytes);
  encode_report host_report{};
  const device_buffer mask(mode, bytes);
  const device_report report(mode);
  encoded_view host_view, device_view;
  if (with_mask) {
    host_view = {expected.data(), bytes, nullptr, &host_report};
    device_view = {mask.data(), bytes, nullptr, report.data()};
  }
  dropout_forward(x.on_host(), y.on_host(), host_view, probability, key, {});
  dropout_forward(x.on_device(), y.on_device(), device_view, probability, key, device);
  y.expect_same("y");
  expect_same_bytes(mask.read(), {expected.data(), expected.data() + bytes}, "mask");
  mask.expect_guards("mask");
  expect_equal(report.read().slot_bytes, host_report.slot_bytes, "slot_bytes");

  dropout_backward(dy.on_host(), dx.on_host(), probability, key, {});
  dropout_backward(dy.on_device(), dx.on_device(), probability, key, device);
  dx.expect_same("dx from the key");
  if (!with_mask) return;
  dropout_backward(dy.on_host(),
                   {{.kind = encoding_kind::sign_mask},
                    dy.on_host().type,
                    dy.on_host().dims,
                    {expected.data(), bytes, nullptr, &host_report}},
                   dx.on_host(), probability, {});
  dropout_backward(dy.on_device(),
                   {{.kind = encoding_kind::sign_mask},
                    dy.on_device().type,
                    dy.on_device().dims,
                    {mask.data(), bytes, nullptr, report.data()}},
                   dx.on_device(), probability, device);
  dx.expect_same("dx from the mask");
}

}  // namespace

std::vector<named_check> dropout_checks(const check_setup& setup) {
  const buffer_mode mode = setup.mode;
  std::vector<named_check> checks;
  for (const auto& [name, type] :
       {std::pair("f32", dtype::f32), std::pair("f16", dtype::f16), std::pair("bf16", dtype::bf16)}) {
    checks.push_back(repeated(std::string("dropout/") + name, 4 * setup.tensors,
                              [=, element = type](std::uint32_t seed) { dropped(mode, element, seed); }));
  }
  return checks;
}

}  // namespace stash::gpu
