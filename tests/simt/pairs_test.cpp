// SPDX-License-Identifier: Apache-2.0
// Kernels treat 16-bit elements two at a time. Every element, in both halves of a word, gives what the CPU
// gives, for bounds and slopes at which something changes.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "stash/relu.hpp"

namespace stash {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::size_t count = (1U << 16) + 5;  // with a group that is not whole

/// All elements, one after the other or in the order of another step.
struct map {
  explicit map(std::uint32_t step = 1) : values(count) {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<std::uint16_t>(i * step);
  }
  tensor_view view(dtype type, memory_space space) {
    return {values.data(), type, space, {static_cast<std::int64_t>(count)}, 0};
  }
  std::vector<std::uint16_t> values;
};

constexpr std::size_t mask_bytes = (count + 127) / 128 * 16;

/// layer(x, y, mask, context) on the host and under the emulator.
template <class Layer>
void expect_same(dtype type, const Layer& layer) {
  // An odd factor gives every element both halves.
  for (const std::uint32_t step : {1U, 0x6b43U}) {
    map x(step), host(0), device(0);
    std::vector<std::uint8_t> host_mask(mask_bytes), device_mask(mask_bytes);
    encode_report host_report{}, device_report{};
    layer(x.view(type, memory_space::host), host.view(type, memory_space::host),
          encoded_view{host_mask.data(), mask_bytes, nullptr, &host_report}, execution_context{});
    layer(x.view(type, memory_space::device), device.view(type, memory_space::device),
          encoded_view{device_mask.data(), mask_bytes, nullptr, &device_report},
          execution_context{memory_space::device});
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(device.values[i], host.values[i]) << std::hex << x.values[i];
    ASSERT_EQ(device_mask, host_mask);
  }
}

/// layer(dy, x, dx, context): every gradient, next to other values.
template <class Layer>
void expect_same_gradients(dtype type, const Layer& layer) {
  for (const std::uint32_t step : {0x6b43U, 0x1235U}) {
    map x(step), dy, host(0), device(0);
    layer(dy.view(type, memory_space::host), x.view(type, memory_space::host),
          host.view(type, memory_space::host), execution_context{});
    layer(dy.view(type, memory_space::device), x.view(type, memory_space::device),
          device.view(type, memory_space::device), execution_context{memory_space::device});
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(device.values[i], host.values[i]) << std::hex << dy.values[i] << ' ' << x.values[i];
  }
}

constexpr dtype types[] = {dtype::f16, dtype::bf16};
constexpr framework_rule rules[] = {framework_rule::tensorflow, framework_rule::pytorch};

struct bounds {
  float lower, upper;
};
constexpr bounds all_bounds[] = {
    {0.0F, 6.0F},   {-0.0F, 6.0F},   {-1.0F, 1.0F},      {-6.0F, 0.0F},     {-6.0F, -0.0F},
    {0.5F, 1.0F},   {-2.0F, -0.5F},  {-infinity, 1.0F},  {-1.0F, infinity}, {-infinity, infinity},
    {0.0F, 1e-40F}, {-1e-40F, 0.0F}, {1.0F, 1.0000001F}, {-6e-8F, 6e-8F},   {-1e6F, 1e6F},
    {1e5F, 1e6F},   {-1e6F, -1e5F},  {0.0F, infinity},   {-infinity, 0.0F}, {6e-8F, 65504.0F},
};

TEST(device_pairs, are_rectified) {
  for (const dtype type : types) {
    for (const framework_rule rule : rules) {
      expect_same(type, [&](const tensor_view& x, const tensor_view& y, const encoded_view& mask,
                            const execution_context& c) { relu_forward(x, y, mask, rule, c); });
      expect_same_gradients(type, [&](const tensor_view& dy, const tensor_view& x, const tensor_view& dx,
                                      const execution_context& c) { relu_backward(dy, x, dx, rule, c); });
    }
  }
}

TEST(device_pairs, leak) {
  for (const dtype type : types) {
    for (const float slope : {0.01F, -0.3F, 1.0F, 2.0F, 0.0F, -0.0F, 1e-8F, -3e38F}) {
      SCOPED_TRACE(slope);
      expect_same(type, [&](const tensor_view& x, const tensor_view& y, const encoded_view& mask,
                            const execution_context& c) { leaky_relu_forward(x, y, mask, slope, c); });
      expect_same_gradients(type,
                            [&](const tensor_view& dy, const tensor_view& x, const tensor_view& dx,
                                const execution_context& c) { leaky_relu_backward(dy, x, dx, slope, c); });
    }
  }
}

TEST(device_pairs, are_clipped) {
  for (const dtype type : types) {
    for (const framework_rule rule : rules) {
      for (const bounds& each : all_bounds) {
        const float lower = each.lower, upper = each.upper;
        SCOPED_TRACE(lower);
        SCOPED_TRACE(upper);
        expect_same(type,
                    [&](const tensor_view& x, const tensor_view& y, const encoded_view& mask,
                        const execution_context& c) { clip_forward(x, y, mask, lower, upper, rule, c); });
        expect_same_gradients(
            type, [&](const tensor_view& dy, const tensor_view& x, const tensor_view& dx,
                      const execution_context& c) { clip_backward(dy, x, dx, lower, upper, rule, c); });
      }
    }
  }
}

}  // namespace
}  // namespace stash
