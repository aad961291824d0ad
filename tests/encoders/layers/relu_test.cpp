// SPDX-License-Identifier: Apache-2.0
// ReLU forward and backward under both framework rules, from every stash that keeps the sign.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "encoders/reference.hpp"
#include "stash/batch.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace {

using namespace stash;
using namespace stash_test;

const framework_rule rules[] = {framework_rule::tensorflow, framework_rule::pytorch};
const std::int64_t counts[] = {0, 1, 7, 8, 9, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 4000};

std::vector<float> reference_forward(const std::vector<float>& x) {
  std::vector<float> y = x;
  for (float& value : y) {
    if (value <= 0) value = 0.0f;
  }
  return y;
}

std::vector<float> reference_backward(const std::vector<float>& dy, const std::vector<float>& y,
                                      framework_rule rule) {
  std::vector<float> dx = dy;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!reference_passes(y[i], rule)) dx[i] = 0.0f;
  }
  return dx;
}

std::vector<float> gradients(std::size_t count) {
  return make_values(static_cast<std::int64_t>(count), 0.95, flavour::special, 1234);
}

TEST(relu_forward, values_and_mask_match_the_reference) {
  for (const framework_rule rule : rules) {
    for (const std::int64_t count : counts) {
      const std::vector<float> x =
          make_values(count, 0.9, flavour::special, static_cast<std::uint32_t>(count) + 1);
      const std::vector<float> expected = reference_forward(x);
      const std::vector<std::uint8_t> expected_mask = reference_sign_mask(expected, rule);
      std::vector<float> y(x.size(), -3.0f);
      guarded_buffer mask(encoded_bytes_bound(parse_encoding("sign_mask"), dtype::f32, count));
      encode_report report;
      relu_forward(view_of(x), view_of(y), {mask.data(), mask.size(), nullptr, &report}, rule, {});
      ASSERT_EQ(bits_of(y), bits_of(expected)) << count;
      ASSERT_EQ(mask.copy(), expected_mask) << count;
      EXPECT_TRUE(mask.guards_intact());
      EXPECT_EQ(report.slot_bytes, mask.size());

      std::vector<float> in_place = x;
      relu_forward(view_of(in_place), view_of(in_place), {}, rule, {});
      ASSERT_EQ(bits_of(in_place), bits_of(expected)) << count;
    }
  }
}

TEST(relu_forward, pitched_and_in_place_in_a_channel_slice) {
  const std::vector<float> x = make_values(5 * 700, 0.9, flavour::special, 2);
  const std::vector<float> expected = reference_forward(x);
  pitched_map source(x, 5, 8, 1);
  pitched_map target(x, 5, 11, 6);
  relu_forward(source.view(), target.view(), {}, framework_rule::tensorflow, {});
  EXPECT_EQ(bits_of(target.values()), bits_of(expected));
  EXPECT_TRUE(target.neighbours_intact());
  EXPECT_EQ(bits_of(source.values()), bits_of(x));
  relu_forward(source.view(), source.view(), {}, framework_rule::tensorflow, {});
  EXPECT_EQ(bits_of(source.values()), bits_of(expected));
  EXPECT_TRUE(source.neighbours_intact());
}

/// Calls body(begin, end) for ranges that overlap in time, on threads of their own.
void on_threads(void*, std::int64_t count, std::int64_t, range_function body, void* state) {
  std::vector<std::thread> threads;
  for (std::int64_t part = 0; part < 3; ++part)
    threads.emplace_back(body, state, count * part / 3, count * (part + 1) / 3);
  for (std::thread& thread : threads)
    thread.join();
}

// Maps of 32 MiB and more take another way into memory.
TEST(relu, large_maps_are_as_their_parts) {
  constexpr std::int64_t large = std::int64_t{8} << 20;
  execution_context threads;
  threads.parallel_for = on_threads;
  for (const std::int64_t count : {large, large + 1025 + 7}) {
    for (const std::int64_t past : {0, 5}) {
      const auto size = static_cast<std::size_t>(count);
      std::vector<float> x = make_values(1031, 0.9, flavour::special, 7);
      x.resize(size);
      for (std::size_t i = 1031; i < size; ++i)
        x[i] = x[i - 1031];
      const auto half_of = [&](std::vector<float>& map, bool second) {
        const std::int64_t first = second ? large / 2 : 0;
        const std::int64_t length = second ? count - large / 2 : large / 2;
        return tensor_view{map.data() + first, dtype::f32, memory_space::host, shape{length}, 0};
      };
      std::vector<float> expected(size), expected_dx(size);
      std::vector<std::uint8_t> expected_mask(
          encoded_bytes_bound(make_encoding("sign_mask"), dtype::f32, count));
      for (const bool second : {false, true}) {
        encode_report report;
        const std::size_t at = second ? large / 16 : 0;
        const encoded_view mask{expected_mask.data() + at, expected_mask.size() - at, nullptr, &report};
        const tensor_view from = half_of(x, second);
        relu_forward(from, half_of(expected, second), mask, framework_rule::tensorflow, {});
        relu_backward(from,
                      {make_encoding("sign_mask"), from.type, from.dims,
                       const_encoded_view{mask.data, mask.bytes, nullptr, &report}},
                      half_of(expected_dx, second), framework_rule::tensorflow, {});
      }
      for (const execution_context& context : {execution_context{}, threads}) {
        std::vector<float> y(size + 32, -3.0F);
        // So many values past the start of a line.
        const auto start =
            static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y.data()) / sizeof(float) % 16);
        const std::int64_t offset = 16 - start + past;
        const tensor_view inside{y.data() + offset, dtype::f32, memory_space::host, shape{count}, 0};
        std::vector<std::uint8_t> mask(expected_mask.size());
        encode_report report;
        const encoded_view stash{mask.data(), mask.size(), nullptr, &report};
        relu_forward(view_of(x), inside, stash, framework_rule::tensorflow, context);
        const auto first = y.begin() + offset;
        ASSERT_TRUE(bits_of({first, first + count}) == bits_of(expected)) << count << ' ' << offset;
        ASSERT_TRUE(mask == expected_mask) << count << ' ' << offset;
        std::copy(x.begin(), x.end(), first);
        relu_backward(inside,
                      {make_encoding("sign_mask"), inside.type, inside.dims,
                       const_encoded_view{mask.data(), mask.size(), nullptr, &report}},
                      inside, framework_rule::tensorflow, context);
        ASSERT_TRUE(bits_of({first, first + count}) == bits_of(expected_dx)) << count << ' ' << offset;
        const auto untouched = [](float value) { return value == -3.0F; };
        EXPECT_TRUE(std::all_of(y.begin(), first, untouched));
        EXPECT_TRUE(std::all_of(first + count, y.end(), untouched));
      }
    }
  }
}

TEST(relu_backward, from_dense_and_from_every_stash) {
  std::vector<encoding> stashes{make_encoding("sign_mask"),
                                make_encoding("bitmap"),
                                make_encoding("bitmap_fp16"),
                                make_encoding("bitmap_fp8"),
                                make_encoding("bitmap_fp8", underflow_rule::keep_nonzero),
                                make_encoding("fp16", underflow_rule::keep_nonzero),
                                make_encoding("fp8", underflow_rule::keep_nonzero),
                                make_encoding("raw")};
  for (const framework_rule rule : rules) {
    for (const std::int64_t count : counts) {
      // `special` has NaN, -0 and negative values, so the bitmap's flag is set; `positive` leaves it clear.
      for (const flavour kind : {flavour::positive, flavour::special}) {
        const std::vector<float> y = make_values(count, 0.6, kind, static_cast<std::uint32_t>(count) + 5);
        const std::vector<float> dy = gradients(y.size());
        const std::vector<std::uint32_t> expected = bits_of(reference_backward(dy, y, rule));
        std::vector<float> dx(y.size(), 5.0f);
        relu_backward(view_of(dy), view_of(y), view_of(dx), rule, {});
        ASSERT_EQ(bits_of(dx), expected);
        for (encoding e : stashes) {
          e.rule = rule;
          guarded_buffer slot(encoded_bytes_exact(e, view_of(y), {}));
          encode_report report;
          encode(e, view_of(y), {slot.data(), slot.size(), nullptr, &report}, {}, {});
          dx.assign(y.size(), 5.0f);
          relu_backward(view_of(dy),
                        {e, view_of(dy).type, view_of(dy).dims, {slot.data(), slot.size(), nullptr, &report}},
                        view_of(dx), rule, {});
          ASSERT_EQ(bits_of(dx), expected) << to_string(e) << ' ' << count;
          std::vector<float> in_place = dy;
          relu_backward(view_of(in_place),
                        {e,
                         view_of(in_place).type,
                         view_of(in_place).dims,
                         {slot.data(), slot.size(), nullptr, &report}},
                        view_of(in_place), rule, {});
          ASSERT_EQ(bits_of(in_place), expected) << to_string(e) << ' ' << count;
          EXPECT_EQ(report.status, status_ok);
        }
      }
    }
  }
}

/// The gradients of values of which some have become NaN.
std::vector<float> expected_next_to_nan(const std::vector<float>& dy, std::vector<float> y, bool sparse,
                                        framework_rule rule) {
  // Groups are of 32 values, in bitmap and csr of those that are not zero.
  std::vector<std::size_t> stored;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!sparse || to_bits(y[i]) != 0) stored.push_back(i);
  }
  for (std::size_t begin = 0; begin < stored.size(); begin += 32) {
    const std::vector<std::size_t> group(
        stored.begin() + static_cast<std::ptrdiff_t>(begin),
        stored.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 32, stored.size())));
    const bool any = std::any_of(group.begin(), group.end(), [&](std::size_t i) { return std::isnan(y[i]); });
    for (const std::size_t i : group) {
      if (any) y[i] = NAN;
    }
  }
  return reference_backward(dy, y, rule);
}

TEST(relu_backward, a_nan_takes_its_group_of_6_and_4_bit_mx_values_along) {
  std::vector<float> y;
  for (int i = 0; i < 200; ++i)
    y.push_back(i % 5 == 0 ? 0.0F : i % 3 == 0 ? -1.0F : 0.01F * static_cast<float>(i));
  y[70] = y[151] = NAN;
  const std::vector<float> dy(y.size(), 1.5F);
  for (const framework_rule rule : rules) {
    for (const std::string format : {"mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1", "mxfp8_e4m3", "mxfp8_e5m2"}) {
      for (const std::string prefix : {"", "bitmap_", "csr_"}) {
        const std::string name = prefix + format;
        const encoding e = make_encoding(name.c_str(), underflow_rule::keep_nonzero);
        guarded_buffer slot(encoded_bytes_exact(e, view_of(y), {}));
        encode_report report;
        encode(e, view_of(y), {slot.data(), slot.size(), nullptr, &report}, {}, {});
        const std::vector<float> expected = format.starts_with("mxfp8")
                                                ? reference_backward(dy, y, rule)
                                                : expected_next_to_nan(dy, y, !prefix.empty(), rule);
        const const_encoded_view stash{slot.data(), slot.size(), nullptr, &report};
        std::vector<float> dx(y.size(), 5.0F);
        relu_backward(view_of(dy), {e, view_of(dy).type, view_of(dy).dims, stash}, view_of(dx), rule, {});
        EXPECT_EQ(dx, expected) << name;

        // Pooling by windows of one tap.
        const shape pixels{1, 1, static_cast<std::int64_t>(y.size()), 1};
        const pool_window window{.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
        guarded_buffer taps(encoded_bytes_bound({.kind = encoding_kind::window_index, .window_taps = 1},
                                                dtype::f32, pixels.elements()),
                            0);
        encode_report index;
        dx.assign(y.size(), 5.0F);
        relu_max_pool_backward(const_tensor_view{dy.data(), dtype::f32, memory_space::host, pixels},
                               {window_index_of(window), dtype::f32, pixels,
                                const_encoded_view{taps.data(), taps.size(), nullptr, &index}},
                               {e, dtype::f32, pixels, stash},
                               tensor_view{dx.data(), dtype::f32, memory_space::host, pixels}, window, rule,
                               {});
        EXPECT_EQ(dx, expected) << name;
      }
    }
  }
}

TEST(relu_backward, pitched_gradients) {
  const std::vector<float> y = make_values(3 * 900, 0.5, flavour::special, 8);
  const std::vector<float> dy = gradients(y.size());
  const encoding e = make_encoding("bitmap");
  guarded_buffer slot(encoded_bytes_exact(e, view_of(y), {}));
  encode_report report;
  encode(e, view_of(y), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  pitched_map in(dy, 3, 7, 0);
  pitched_map out(dy, 3, 5, 2);
  relu_backward(in.view(), {e, in.view().type, in.view().dims, {slot.data(), slot.size(), nullptr, &report}},
                out.view(), framework_rule::pytorch, {});
  EXPECT_EQ(bits_of(out.values()), bits_of(reference_backward(dy, y, framework_rule::pytorch)));
  EXPECT_TRUE(out.neighbours_intact());
}

// The mask alone serves the sign while the flag is clear: flipping one of its bits changes the gradient, and
// the payloads are not read.
TEST(relu_backward, uses_the_stored_bits) {
  const std::vector<float> y = make_values(2000, 0.5, flavour::positive, 9);
  const std::vector<float> dy(y.size(), 1.0f);
  for (const encoding& e : {make_encoding("sign_mask"), make_encoding("bitmap"),
                            make_encoding("fp16", underflow_rule::keep_nonzero)}) {
    guarded_buffer slot(encoded_bytes_exact(e, view_of(y), {}));
    encode_report report;
    encode(e, view_of(y), {slot.data(), slot.size(), nullptr, &report}, {}, {});
    std::vector<float> before(y.size());
    relu_backward(view_of(dy),
                  {e, view_of(dy).type, view_of(dy).dims, {slot.data(), slot.size(), nullptr, &report}},
                  view_of(before), e.rule, {});
    slot.data()[e.kind == encoding_kind::cast ? 2 * 8 * 17 + 1 : 17] ^=
        e.kind == encoding_kind::cast ? 0x80 : 0x01;
    if (e.kind == encoding_kind::cast && y[8 * 17] == 0) slot.data()[2 * 8 * 17 + 1] = 0x3c;
    std::vector<float> after(y.size());
    relu_backward(view_of(dy),
                  {e, view_of(dy).type, view_of(dy).dims, {slot.data(), slot.size(), nullptr, &report}},
                  view_of(after), e.rule, {});
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(before[i] != after[i], i == 8 * 17) << to_string(e) << ' ' << i;
    }
  }
}

TEST(relu_backward, an_unreadable_tile_passes_nothing_and_is_reported) {
  std::vector<float> y = make_values(2048, 0.5, flavour::positive, 10);
  y[1500] = -1.0f;  // sets the flag, so that payloads are read
  const std::vector<float> dy(y.size(), 1.0f);
  const encoding e = make_encoding("bitmap");
  guarded_buffer slot(encoded_bytes_exact(e, view_of(y), {}));
  encode_report report;
  encode(e, view_of(y), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  const std::uint32_t bad = 0x3fffffff;
  std::memcpy(slot.data() + 256, &bad, 4);
  std::vector<float> dx(y.size());
  relu_backward(view_of(dy),
                {e, view_of(dy).type, view_of(dy).dims, {slot.data(), slot.size(), nullptr, &report}},
                view_of(dx), e.rule, {});
  EXPECT_EQ(report.status, status_corrupt);
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_EQ(dx[i], i >= 1024 && y[i] > 0 ? 1.0f : 0.0f) << i;
}

/// A value of 16 bits, and its product with a slope.
struct scaled_case {
  dtype type;
  float slope;
  std::uint16_t value, product;
};

// What rounds beyond the largest number is infinite, as in other arithmetic: whoever scales losses looks for
// infinities. f16 ends at 65504, and half a step above it is 65520.
const scaled_case scaled_cases[] = {
    {dtype::f16, 2.0F, 0xf800, 0xfc00},           // -32768
    {dtype::f16, 2.0F, 0xf7ff, 0xfbff},           // -32752
    {dtype::f16, -3.0F, 0xf800, 0x7c00},          // 98304
    {dtype::f16, 0x1.ffcp+0F, 0xf800, 0xfbff},    // 65504
    {dtype::f16, 0x1.ffdep+0F, 0xf800, 0xfbff},   // 65519
    {dtype::f16, 0x1.ffep+0F, 0xf800, 0xfc00},    // 65520
    {dtype::f16, 2.0F, 0xfc00, 0xfc00},           // an infinity
    {dtype::bf16, 2.0F, 0xff00, 0xff80},          // -2^127, beyond f32
    {dtype::bf16, 0x1.fep+0F, 0xff00, 0xff7f},    // the largest
    {dtype::bf16, 0x1.fefep+0F, 0xff00, 0xff7f},  // below half a step
    {dtype::bf16, 0x1.ffp+0F, 0xff00, 0xff80},    // half a step
};

TEST(leaky_relu, products_that_are_too_large_are_infinite) {
  for (const scaled_case& c : scaled_cases) {
    SCOPED_TRACE(testing::Message() << int(c.type) << ' ' << c.slope << ' ' << c.value);
    std::uint16_t y = 1, dx = 1;
    const std::uint16_t negative = 0xbc00;
    const auto view = [&](std::uint16_t& v) { return tensor_view{&v, c.type, memory_space::host, {1}}; };
    const auto const_view = [&](const std::uint16_t& v) {
      return const_tensor_view{&v, c.type, memory_space::host, {1}};
    };
    leaky_relu_forward(const_view(c.value), view(y), {}, c.slope, {});
    EXPECT_EQ(y, c.product);
    leaky_relu_backward(const_view(c.value), const_view(negative), view(dx), c.slope, {});
    EXPECT_EQ(dx, c.product);
  }
}

/// A clipping of 16-bit values whose bounds the type does not have.
struct clip_case {
  dtype type;
  float lower, upper;
  std::vector<std::uint16_t> x, y;
  std::vector<int> inside;
};

// f16 rounds 0.1 to 2E66 and -0.3 to B4CD, bf16 to 3DCD and BE9A; f16 has nothing above 65504 but infinity.
const clip_case clip_cases[] = {
    {dtype::f16,
     0.0F,
     0.1F,
     {0x4500, 0x2e67, 0x2e66, 0x2e65, 0x0001, 0x0000, 0x8000, 0xc500, 0x7c00},
     {0x2e66, 0x2e66, 0x2e66, 0x2e65, 0x0001, 0x0000, 0x8000, 0x0000, 0x2e66},
     {0, 0, 0, 1, 1, 0, 0, 0, 0}},
    {dtype::f16,
     -0.3F,
     1e6F,
     {0xb4ce, 0xb4cd, 0xb4cc, 0xc500, 0x7c00, 0x7bff, 0x7bfe},
     {0xb4cd, 0xb4cd, 0xb4cc, 0xb4cd, 0x7bff, 0x7bff, 0x7bfe},
     {0, 0, 1, 0, 0, 0, 1}},
    {dtype::bf16,
     -0.3F,
     0.1F,
     {0x40a0, 0x3dce, 0x3dcd, 0x3dcc, 0xbe99, 0xbe9a, 0xbe9b, 0xc0a0},
     {0x3dcd, 0x3dcd, 0x3dcd, 0x3dcc, 0xbe99, 0xbe9a, 0xbe9a, 0xbe9a},
     {0, 0, 0, 1, 1, 0, 0, 0}},
    // Both bounds become 1, and nothing lies between.
    {dtype::bf16, 1.0F, 1.0001F, {0x3f7f, 0x3f80, 0x3f81}, {0x3f80, 0x3f80, 0x3f80}, {0, 0, 0}},
};

TEST(clip, bounds_are_those_of_the_type_wherever_the_gradient_is_read_from) {
  for (const clip_case& c : clip_cases) {
    SCOPED_TRACE(testing::Message() << int(c.type) << ' ' << c.lower << ' ' << c.upper);
    const auto n = static_cast<std::int64_t>(c.x.size());
    const auto view = [&](const std::vector<std::uint16_t>& v) {
      return const_tensor_view{v.data(), c.type, memory_space::host, {n}};
    };
    const auto target = [&](std::vector<std::uint16_t>& v) {
      return tensor_view{v.data(), c.type, memory_space::host, {n}};
    };
    const std::vector<std::uint16_t> dy(c.x.size(), 0x3c01);
    std::vector<std::uint16_t> expected;
    std::vector<bool> bits;
    for (const int inside : c.inside) {
      expected.push_back(inside != 0 ? 0x3c01 : 0);
      bits.push_back(inside != 0);
    }
    const std::vector<std::uint8_t> plane = reference_plane(bits);
    for (const framework_rule rule : rules) {
      encoding range = make_encoding("range_mask");
      range.rule = rule;
      range.lower = c.lower;
      range.upper = c.upper;
      guarded_buffer mask(plane.size());
      encode_report report;
      std::vector<std::uint16_t> y(c.x.size());
      clip_forward(view(c.x), target(y), {mask.data(), mask.size(), nullptr, &report}, c.lower, c.upper, rule,
                   {});
      EXPECT_EQ(y, c.y);
      EXPECT_EQ(mask.copy(), plane);

      for (const std::vector<std::uint16_t>* map : {&c.x, &c.y}) {
        std::vector<std::uint16_t> dx(c.x.size(), 7);
        clip_backward(view(dy), view(*map), target(dx), c.lower, c.upper, rule, {});
        EXPECT_EQ(dx, expected);
        for (const char* name : {"range_mask", "raw", "bitmap", "csr"}) {
          encoding e = make_encoding(name);
          if (e.kind == encoding_kind::range_mask) e = range;
          guarded_buffer single(encoded_bytes_bound(e, c.type, n)), batch(single.size());
          encode_report reports[2];
          encode(e, view(*map), {single.data(), single.size(), nullptr, &reports[0]}, {}, {});
          const encode_item item{e, view(*map), {batch.data(), batch.size(), nullptr, &reports[1]}};
          encode_batch({&item, 1}, {}, {});
          for (guarded_buffer* stash : {&single, &batch}) {
            dx.assign(c.x.size(), 7);
            clip_backward(
                view(dy),
                {e, view(dy).type, view(dy).dims, {stash->data(), stash->size(), nullptr, &reports[0]}},
                target(dx), c.lower, c.upper, rule, {});
            EXPECT_EQ(dx, expected) << name;
          }
        }
      }
    }
  }
}

TEST(clip, denormal_bounds_are_in_order_whatever_the_mode) {
  const std::vector<float> x{-1.0F, 0.0F, 1e-40F, 1e-39F, 1.0F};
  const float upper = 1e-39F;
  const encoding range{.kind = encoding_kind::range_mask, .lower = 0.0F, .upper = upper};
  std::vector<float> y(x.size()), dx(x.size());
  guarded_buffer mask(16);
  encode_report report;
  const errc found[] = {
      [&] {
        const denormals_are_zero mode;
        return code_of([&] { clip_forward(view_of(x), view_of(y), {}, 0.0F, upper, rules[0], {}); });
      }(),
      [&] {
        const denormals_are_zero mode;
        return code_of([&] {
          encode(range, view_of(x), {mask.data(), mask.size(), nullptr, &report}, {}, {});
        });
      }(),
      code_of([&] { clip_forward(view_of(x), view_of(dx), {}, upper, upper, rules[0], {}); }),
      code_of([&] { clip_forward(view_of(x), view_of(dx), {}, NAN, upper, rules[0], {}); }),
      code_of([&] { clip_forward(view_of(x), view_of(dx), {}, 0.0F, NAN, rules[0], {}); })};
  EXPECT_EQ(found[0], errc::ok);
  EXPECT_EQ(found[1], errc::ok);
  for (const errc refused : {found[2], found[3], found[4]})
    EXPECT_EQ(refused, errc::invalid_argument);
  EXPECT_EQ(bits_of(y), bits_of({0.0F, 0.0F, 1e-40F, 1e-39F, 1e-39F}));
  EXPECT_EQ(mask.data()[0], 0x04);
}

TEST(denormals, only_the_product_of_leaky_relu_depends_on_the_mode) {
  if (!denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  const std::vector<float> x = {0x1p-140F, -0x1p-140F, -0x1p-126F, -2.0F};
  std::vector<float> y(4), in_mode(4);
  guarded_buffer mask(16), mask_in_mode(16);
  encode_report report;
  const auto out = [&](guarded_buffer& to) { return encoded_view{to.data(), 16, nullptr, &report}; };
  leaky_relu_forward(view_of(x), view_of(y), out(mask), 0.25F, {});
  {
    const denormals_are_zero mode;
    leaky_relu_forward(view_of(x), view_of(in_mode), out(mask_in_mode), 0.25F, {});
  }
  EXPECT_EQ(bits_of(y), bits_of({0x1p-140F, -0x1p-142F, -0x1p-128F, -0.5F}));
  EXPECT_EQ(bits_of(in_mode), bits_of({0x1p-140F, -0.0F, -0.0F, -0.5F}));
  EXPECT_EQ(mask.copy(), mask_in_mode.copy());
}

}  // namespace
