// SPDX-License-Identifier: Apache-2.0
// Conversions: every narrow pattern, every midpoint between two of them, and a sample of all f32.

#include <gtest/gtest.h>

#include "encoders/reference.hpp"
#include "support/test_depth.hpp"

namespace {

using namespace stash;
using namespace stash_test;

struct format_case {
  const char* name;
  narrow_format reference;
  std::uint32_t patterns;
};

const format_case formats[] = {{"fp16", reference_fp16, 1u << 16}, {"fp8", reference_fp8, 1u << 8}};

std::vector<std::uint32_t> narrow_by_library(const format_case& format, underflow_rule underflow,
                                             const std::vector<float>& values) {
  const encoding e = make_encoding(format.name, underflow);
  guarded_buffer buffer(encoded_bytes_bound(e, dtype::f32, static_cast<std::int64_t>(values.size())));
  encode_report report;
  encode(e, view_of(values), {buffer.data(), buffer.size(), nullptr, &report}, {}, {});
  EXPECT_TRUE(buffer.guards_intact());
  std::vector<std::uint32_t> stored;
  stored.reserve(values.size());
  const int width = format.reference.bytes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    stored.push_back(get(buffer.data() + i * static_cast<std::size_t>(width), width));
  }
  return stored;
}

std::vector<float> widen_by_library(const format_case& format, const std::vector<std::uint32_t>& stored) {
  std::vector<std::uint8_t> bytes;
  for (const std::uint32_t value : stored)
    put(bytes, value, format.reference.bytes);
  pad(bytes);
  guarded_buffer buffer(bytes.size());
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  std::vector<float> values(stored.size());
  encode_report report;
  decode({make_encoding(format.name),
          view_of(values).type,
          view_of(values).dims,
          {buffer.data(), buffer.size(), nullptr, &report}},
         view_of(values), {}, {});
  return values;
}

/// Compares both underflow rules with the reference; returns the number of differences (first one shown).
std::size_t differences(const format_case& format, const std::vector<float>& values) {
  const auto flushed = narrow_by_library(format, underflow_rule::to_zero, values);
  const auto kept = narrow_by_library(format, underflow_rule::keep_nonzero, values);
  const std::uint32_t magnitude_mask = format.reference.sign_bit() - 1;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t expected = reference_narrow(format.reference, values[i], false);
    const bool lost = (expected & magnitude_mask) == 0 && (to_bits(values[i]) << 1) != 0;
    const std::uint32_t expected_kept = lost ? expected | 1 : expected;
    if (flushed[i] == expected && kept[i] == expected_kept) continue;
    if (wrong++ == 0) {
      ADD_FAILURE() << format.name << " of " << std::hex << to_bits(values[i]) << ": " << flushed[i] << ", "
                    << kept[i] << " instead of " << expected << ", " << expected_kept;
    }
  }
  return wrong;
}

TEST(widen, is_exact_for_every_pattern_and_narrows_back) {
  for (const format_case& format : formats) {
    std::vector<std::uint32_t> patterns;
    for (std::uint32_t p = 0; p < format.patterns; ++p)
      patterns.push_back(p);
    const std::vector<float> values = widen_by_library(format, patterns);
    for (const std::uint32_t p : patterns) {
      ASSERT_EQ(to_bits(values[p]), reference_widen(format.reference, p)) << format.name << ' ' << p;
    }
    for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
      const auto back = narrow_by_library(format, underflow, values);
      for (const std::uint32_t p : patterns) {
        const std::uint32_t canonical = format.reference.nan | (p & format.reference.sign_bit());
        ASSERT_EQ(back[p], std::isnan(values[p]) ? canonical : p) << format.name << ' ' << p;
      }
    }
  }
}

TEST(narrow, rounds_ties_to_even_around_every_midpoint) {
  for (const format_case& format : formats) {
    std::vector<float> values;
    for (std::uint32_t p = 0; p + 1 < format.reference.nan; ++p) {
      const float low = from_bits(reference_widen(format.reference, p));
      const float high = from_bits(reference_widen(format.reference, p + 1));
      if (!std::isfinite(high)) break;
      const float middle = low + (high - low) / 2;
      for (const float value : {low, middle}) {
        for (std::uint32_t step = 0; step < 5; ++step) {
          const std::uint32_t bits = to_bits(value) + step - 2;
          values.push_back(from_bits(bits));
          values.push_back(from_bits(bits ^ 0x80000000));
        }
      }
    }
    EXPECT_EQ(differences(format, values), 0u);
  }
}

TEST(narrow, matches_the_reference_on_a_sample_of_all_floats) {
  const std::uint64_t stride = stash_test::only_part() ? 2503 : 251;
  constexpr std::size_t chunk = 1 << 20;
  std::uint64_t tested = 0;
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += stride) {
    values.push_back(from_bits(static_cast<std::uint32_t>(bits)));
    if (values.size() < chunk && bits + stride <= 0xffffffff) continue;
    for (const format_case& format : formats)
      ASSERT_EQ(differences(format, values), 0u);
    tested += values.size();
    values.clear();
  }
  EXPECT_GE(tested, (std::uint64_t{1} << 32) / stride);
}

TEST(narrow, overflow_infinity_and_nan) {
  const std::vector<float> values{65504,
                                  65519.99f,
                                  65520,
                                  1e30f,
                                  from_bits(0x7f800000),
                                  from_bits(0xff800000),
                                  from_bits(0x7f800001),
                                  from_bits(0xffffffff),
                                  448,
                                  464,
                                  465,
                                  -480};
  EXPECT_EQ(narrow_by_library(formats[0], underflow_rule::to_zero, values),
            (std::vector<std::uint32_t>{0x7bff, 0x7bff, 0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0xfe00,
                                        0x5f00, 0x5f40, 0x5f44, 0xdf80}));
  EXPECT_EQ(
      narrow_by_library(formats[1], underflow_rule::to_zero, values),
      (std::vector<std::uint32_t>{0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0xfe, 0x7f, 0xff, 0x7e, 0x7e, 0x7e, 0xfe}));
}

// Values that plain e4m3 loses: activations scaled into 2^-12 .. 2^-9.
TEST(keep_nonzero, never_loses_a_sign) {
  std::vector<float> values;
  for (int exponent = -149; exponent <= -9; ++exponent) {
    for (const float factor : {1.0f, 1.25f, 1.5f, 1.99f}) {
      const float value = std::ldexp(factor, exponent);
      values.push_back(value);
      values.push_back(-value);
    }
  }
  for (const format_case& format : formats) {
    const auto stored = narrow_by_library(format, underflow_rule::keep_nonzero, values);
    const auto flushed = narrow_by_library(format, underflow_rule::to_zero, values);
    bool some_were_lost = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NE(stored[i] & (format.reference.sign_bit() - 1), 0u) << values[i];
      EXPECT_EQ((stored[i] & format.reference.sign_bit()) != 0, std::signbit(values[i]));
      some_were_lost |= (flushed[i] & (format.reference.sign_bit() - 1)) == 0;
    }
    EXPECT_TRUE(some_were_lost) << "the test has no value that the other rule loses";
  }
  const std::vector<float> zeros{0.0f, -0.0f};
  EXPECT_EQ(narrow_by_library(formats[1], underflow_rule::keep_nonzero, zeros),
            (std::vector<std::uint32_t>{0, 0x80}));
}

}  // namespace
