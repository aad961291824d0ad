// SPDX-License-Identifier: Apache-2.0
#include "stash/dropout.hpp"

#include "encoders/format/philox.hpp"
#include "encoders/pooling/pool_reference.hpp"
#include "encoders/support.hpp"

namespace stash::test {
namespace {

constexpr execution_context serial;

const dropout_key some_key{0x0123456789abcdef, 0x0000000200000007, 3};

/// The decision as docs/format.md states it, one element at a time.
bool keeps(const dropout_key& key, float probability, std::int64_t element) {
  const auto block = static_cast<std::uint64_t>(element / 4);
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v & 0xffffffff); };
  const encoders::philox_counter words =
      encoders::philox4x32_10({low(block), low(block >> 32), key.layer, low(key.step)},
                              {low(key.seed), low(key.seed >> 32) ^ low(key.step >> 32)});
  const double threshold = std::floor(static_cast<double>(probability) * 4294967296.0);
  return static_cast<double>(words[static_cast<std::size_t>(element % 4)]) >= threshold;
}

TEST(philox, known_answers) {
  using encoders::philox4x32_10;
  using encoders::philox_counter;
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (philox_counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (philox_counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (philox_counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(dropout, golden_masks_of_the_format_document) {
  const auto mask_of = [](const dropout_key& key, float probability) {
    tensor x(shape{20}), y(shape{20});
    encoded mask(16);
    dropout_forward(x.view(), y.view(), mask.out(), probability, key, serial);
    return mask.all();
  };
  std::vector<std::uint8_t> expected(16, 0);
  expected[0] = 0x5e, expected[1] = 0x50, expected[2] = 0x0f;
  EXPECT_EQ(mask_of({}, 0.5F), expected);
  expected[0] = 0xaf, expected[1] = 0x5d, expected[2] = 0x0e;
  EXPECT_EQ(mask_of(some_key, 0.25F), expected);
}

/// Forward with and without mask, backward from mask and from the key.
void check(const shape& dims, std::int64_t gap, float probability, const execution_context& context) {
  SCOPED_TRACE(testing::Message() << dims.elements() << " elements, gap " << gap << ", p " << probability);
  tensor x(dims, gap), y(dims, gap), maskless(dims), dx(dims, gap), rerun(dims);
  fill_special(x, 4);
  const auto scale = static_cast<float>(1.0 / (1.0 - static_cast<double>(probability)));
  tensor expected(dims);
  std::vector<int> kept;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    kept.push_back(keeps(some_key, probability, i) ? 1 : 0);
    expected[i] = kept.back() != 0 ? x[i] * scale : 0.0F;
  }
  const std::vector<std::uint8_t> plane = reference_plane(kept, 1);
  encoded mask(plane.size());
  dropout_forward(x.view(), y.view(), mask.out(), probability, some_key, context);
  ASSERT_EQ(y.bits(), expected.bits());
  ASSERT_TRUE(y.gaps_intact());
  ASSERT_EQ(mask.all(), plane);
  ASSERT_TRUE(mask.guard_intact());
  ASSERT_EQ(mask.report.slot_bytes, plane.size());
  dropout_forward(x.view(), maskless.view(), {}, probability, some_key, context);
  ASSERT_EQ(maskless.bits(), expected.bits());

  dropout_backward(x.view(), {{.kind = encoding_kind::sign_mask}, x.view().type, x.view().dims, mask.in()},
                   dx.view(), probability, context);
  ASSERT_EQ(dx.bits(), expected.bits());
  ASSERT_TRUE(dx.gaps_intact());
  dropout_backward(x.view(), rerun.view(), probability, some_key, context);
  ASSERT_EQ(rerun.bits(), expected.bits());

  dropout_backward(x.view(), x.view(), probability, some_key, context);
  ASSERT_EQ(x.bits(), expected.bits()) << "in place";
}

TEST(dropout, matches_the_reference_at_every_size) {
  for (const std::int64_t n : {0,   1,   3,   4,   5,   7,    8,    9,    31,   32,   33,  127,
                               128, 129, 255, 256, 257, 1023, 1024, 1025, 2047, 2049, 5000}) {
    check(shape{n}, 0, 0.5F, serial);
    check(shape{n}, 0, 0.9F, threads());
  }
}

TEST(dropout, pitched_views) {
  for (const std::int64_t channels : {1, 3, 31, 32, 33, 1023, 1025}) {
    check(shape{2, 3, 5, channels}, 3, 0.3F, serial);
    check(shape{2, 3, 5, channels}, 1, 0.3F, threads());
  }
}

TEST(dropout, extreme_probabilities) {
  const float below_one = std::nextafter(1.0F, 0.0F);
  check(shape{3000}, 0, 0.0F, serial);
  check(shape{3000}, 0, 1e-9F, serial);
  check(shape{3000}, 0, below_one, serial);
  tensor x(shape{3000}), y(shape{3000});
  fill_uniform(x, 1);
  dropout_forward(x.view(), y.view(), {}, 0.0F, some_key, serial);
  EXPECT_EQ(y.bits(), x.bits());
}

TEST(dropout, every_part_of_the_key_matters_and_the_rate_is_right) {
  const auto mask_of = [](const dropout_key& key) {
    tensor x(shape{100000}), y(shape{100000});
    encoded mask(12512);
    dropout_forward(x.view(), y.view(), mask.out(), 0.3F, key, serial);
    return mask.all();
  };
  const std::vector<std::uint8_t> base = mask_of({5, 6, 7});
  EXPECT_EQ(mask_of({5, 6, 7}), base);
  for (const dropout_key& other :
       {dropout_key{4, 6, 7}, dropout_key{5 + (std::uint64_t{1} << 32), 6, 7}, dropout_key{5, 7, 7},
        dropout_key{5, 6 + (std::uint64_t{1} << 32), 7}, dropout_key{5, 6, 8}}) {
    EXPECT_NE(mask_of(other), base);
  }
  int kept = 0;
  for (const std::uint8_t byte : base)
    kept += std::popcount(byte);
  // Six standard deviations of a binomial distribution.
  EXPECT_NEAR(kept, 70000, 870);
}

TEST(dropout, wrong_arguments) {
  tensor x(shape{200}), y(shape{200}), other(shape{201});
  encoded mask(32);
  const auto forward = [&](const const_tensor_view& in, const tensor_view& out, const encoded_view& m,
                           float p) {
    return code_of([&] { dropout_forward(in, out, m, p, some_key, serial); });
  };
  EXPECT_EQ(forward(x.view(), y.view(), mask.out(), 0.5F), errc::ok);
  for (const float p :
       {-0.1F, 1.0F, 2.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(forward(x.view(), y.view(), {}, p), errc::invalid_argument);
  }
  EXPECT_EQ(forward(x.view(), other.view(), {}, 0.5F), errc::invalid_argument);
  const_tensor_view bytes = x.view();
  bytes.type = dtype::u8;
  EXPECT_EQ(forward(bytes, y.view(), {}, 0.5F), errc::invalid_argument);
  const_tensor_view halves = x.view();
  halves.type = dtype::f16;
  try {
    dropout_forward(halves, y.view(), {}, 0.5F, some_key, serial);
    ADD_FAILURE() << "f16 and f32";
  } catch (const error& e) {
    EXPECT_STREQ(e.what(), "dropout_forward: y: expected f16, got f32");
  }
  EXPECT_EQ(code_of([&] {
              dropout_backward(halves,
                               {{.kind = encoding_kind::sign_mask}, halves.type, halves.dims, mask.in()},
                               y.view(), 0.5F, serial);
            }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] { dropout_backward(halves, y.view(), 0.5F, some_key, serial); }),
            errc::invalid_argument);
  encoded_view bad = mask.out();
  bad.bytes = 31;
  EXPECT_EQ(forward(x.view(), y.view(), bad, 0.5F), errc::capacity_exceeded);
  bad = mask.out();
  bad.report = nullptr;
  EXPECT_EQ(forward(x.view(), y.view(), bad, 0.5F), errc::invalid_argument);
  const auto backward = [&](const const_encoded_view& m, float p) {
    return code_of([&] {
      dropout_backward(x.view(), {{.kind = encoding_kind::sign_mask}, dtype::f32, x.view().dims, m}, y.view(),
                       p, serial);
    });
  };
  EXPECT_EQ(backward(mask.in(), 0.5F), errc::ok);
  EXPECT_EQ(backward({}, 0.5F), errc::invalid_argument);
  EXPECT_EQ(backward(mask.in(), 1.0F), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { dropout_backward(x.view(), y.view(), -1.0F, some_key, serial); }),
            errc::invalid_argument);
  execution_context device;
  device.space = memory_space::device;
  EXPECT_EQ(code_of([&] { dropout_backward(x.view(), y.view(), 0.5F, some_key, device); }),
            errc::unsupported);
}

TEST(dropout, kept_denormals_are_zeros_where_the_thread_says_so) {
  if (!stash_test::denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  const std::vector<float> x = {1e-40F, -1e-40F, -2e-38F, 3.0F};
  std::vector<float> y(4), in_mode(4);
  encoded mask(16), mask_in_mode(16);
  dropout_forward(stash_test::view_of(x), stash_test::view_of(y), mask.out(), 0.0F, some_key, serial);
  {
    const stash_test::denormals_are_zero mode;
    dropout_forward(stash_test::view_of(x), stash_test::view_of(in_mode), mask_in_mode.out(), 0.0F, some_key,
                    serial);
  }
  EXPECT_EQ(stash_test::bits_of(y), stash_test::bits_of(x));
  EXPECT_EQ(stash_test::bits_of(in_mode), stash_test::bits_of({0.0F, -0.0F, -2e-38F, 3.0F}));
  EXPECT_EQ(mask.all(), mask_in_mode.all());
}

}  // namespace
}  // namespace stash::test
