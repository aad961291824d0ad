// SPDX-License-Identifier: Apache-2.0
// Dropout against the reference of docs/format.md: random tensors, and every 16-bit value, of every type and
// by every instruction set. STASH_RANDOM_TENSORS sets how many tensors are tried.

#include "stash/dropout.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "format/tensor_generator.hpp"
#include "format/two_threads.hpp"
#include "stash/cpu.hpp"

namespace stash {
namespace {

using namespace test;

/// Runs body() once by each instruction set.
template <class Body>
void for_each_target(const Body& body) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    SCOPED_TRACE(target);
    set_cpu_target(target);
    body();
  }
  set_cpu_target(before);
}

class format_dropout : public testing::TestWithParam<dtype> {};

std::string type_name(const testing::TestParamInfo<dtype>& tested) {
  return tested.param == dtype::f32 ? "f32" : tested.param == dtype::f16 ? "f16" : "bf16";
}

INSTANTIATE_TEST_SUITE_P(types, format_dropout, testing::Values(dtype::f32, dtype::f16, dtype::bf16),
                         type_name);

/// A tensor of the given elements with its own pitch and alignment.
struct form {
  std::int64_t inner, gap;
  std::size_t offset;

  placed hold(const tensor& t) const {
    placed memory(t.type, t.count(), inner, gap, offset);
    memory.put(t);
    return memory;
  }
};

/// Forward with and without a mask, backward from the mask and from the key; out of place and in place.
void expect_reference(const tensor& t, float probability, const dropout_key& key, const form& from,
                      const form& to, const execution_context& context) {
  const reference::dropped expected = reference::drop(t, probability, key);
  const tensor zeros{t.type, std::vector<std::uint32_t>(t.bits.size())};
  const placed in = from.hold(t);
  const const_tensor_view x = in.view(t.type);
  const auto expect = [&](const char* how, const auto& call) {
    const placed separate = to.hold(zeros), same = from.hold(t);
    call(x, separate.view(t.type));
    ASSERT_EQ(separate.take(t.type, t.count()), expected.values.bits) << how;
    ASSERT_TRUE(separate.memory.guard_is_whole()) << how;
    call(same.view(t.type), same.view(t.type));
    ASSERT_EQ(same.take(t.type, t.count()), expected.values.bits) << how << " in place";
  };
  const buffer mask(expected.mask.size());
  encode_report report{};
  expect("forward with a mask", [&](const const_tensor_view& from_x, const tensor_view& y) {
    std::memset(mask.data(), 0xcd, mask.size());
    dropout_forward(from_x, y, {mask.data(), mask.size(), nullptr, &report}, probability, key, context);
    ASSERT_EQ(std::memcmp(mask.data(), expected.mask.data(), mask.size()), 0);
  });
  ASSERT_TRUE(mask.guard_is_whole());
  expect("forward", [&](const const_tensor_view& from_x, const tensor_view& y) {
    dropout_forward(from_x, y, {}, probability, key, context);
  });
  expect("backward from the mask", [&](const const_tensor_view& dy, const tensor_view& dx) {
    dropout_backward(
        dy,
        {{.kind = encoding_kind::sign_mask}, dy.type, dy.dims, {mask.data(), mask.size(), nullptr, &report}},
        dx, probability, context);
  });
  expect("backward from the key", [&](const const_tensor_view& dy, const tensor_view& dx) {
    dropout_backward(dy, dx, probability, key, context);
  });
}

TEST_P(format_dropout, is_the_one_of_the_reference) {
  for_each_target([&] {
    for (int k = 0; k < tensors_per_pair(); ++k) {
      SCOPED_TRACE(k);
      generator random(static_cast<std::uint32_t>(k));
      const std::int64_t n = random.size();
      const tensor t = random.make(GetParam(), n);
      const auto any_form = [&] {
        return form{divisor(n, random), random.below(2) == 0 ? 0 : random.below(9),
                    width(t.type) * random.below(16)};
      };
      const form from = any_form(), to = any_form();
      const auto word = [&] { return std::uint64_t{random.below(1U << 31)} * 0x9E3779B97F4A7C15; };
      const dropout_key key{word(), word(), static_cast<std::uint32_t>(word() >> 32)};
      static constexpr float often[] = {0, 0.1F, 0.5F, 0.9F};
      const float probability = random.below(2) == 0
                                    ? often[random.below(std::size(often))]
                                    : static_cast<float>(random.below(1U << 24)) / (1U << 24);
      execution_context context;
      if (k % 4 == 3) context.parallel_for = two_threads;
      ASSERT_NO_FATAL_FAILURE(expect_reference(t, probability, key, from, to, context));
    }
  });
}

/// Kept or dropped, every 16-bit value: NaN, infinities, denormals, and what the factor makes too large.
TEST_P(format_dropout, of_every_value_of_16_bits) {
  if (GetParam() == dtype::f32) GTEST_SKIP() << "too many";
  tensor t;
  t.type = GetParam();
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits)
    t.bits.push_back(bits);
  const form dense{t.count(), 0, 0};
  for_each_target([&] {
    for (const float probability : {0.0F, 0.1F, 0.5F, 0.999F})
      ASSERT_NO_FATAL_FAILURE(expect_reference(t, probability, {1, 2, 3}, dense, dense, {}));
  });
}

/// What docs/format.md says of values at the edges, in numbers: of these two elements the second is kept, as
/// its golden mask says, and times 1.5.
TEST(format_dropout_values, are_scaled_and_rounded_once) {
  struct edge {
    dtype type;
    std::uint16_t x, y;
  };
  // A tie goes to even; what is too large is infinite; a NaN is the one that rounding writes.
  for (const edge& e :
       {edge{dtype::f16, 0x3c01, 0x3e02}, edge{dtype::f16, 0x3c03, 0x3e04}, edge{dtype::f16, 0x8001, 0x8002},
        edge{dtype::f16, 0x7bff, 0x7c00}, edge{dtype::f16, 0xfbff, 0xfc00}, edge{dtype::f16, 0x7c00, 0x7c00},
        edge{dtype::f16, 0x7c01, 0x7e00}, edge{dtype::f16, 0xfd23, 0xfe00}, edge{dtype::bf16, 0x3f81, 0x3fc2},
        edge{dtype::bf16, 0x8000, 0x8000}, edge{dtype::bf16, 0x7f2a, 0x7f7f},
        edge{dtype::bf16, 0x7f7f, 0x7f80}, edge{dtype::bf16, 0xff81, 0xffc0},
        edge{dtype::bf16, 0x7fc1, 0x7fc0}}) {
    const std::uint16_t x[] = {0xffff, e.x};
    std::uint16_t y[2] = {7, 7};
    dropout_forward({x, e.type, memory_space::host, {2}}, {y, e.type, memory_space::host, {2}}, {}, 1 / 3.0F,
                    {}, {});
    EXPECT_EQ(y[1], e.y) << std::hex << e.x;
    dropout_forward({x, e.type, memory_space::host, {2}}, {y, e.type, memory_space::host, {2}}, {}, 0.5F, {},
                    {});
    EXPECT_EQ(y[0], 0) << "dropped";
  }
}

}  // namespace
}  // namespace stash
