// SPDX-License-Identifier: Apache-2.0
// Decoding and encoding again: docs/format.md, "Encoding what was decoded".

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "encoders/encoded.hpp"
#include "stash/encoding.hpp"
#include "support/format_names.hpp"

namespace stash {
namespace {

const std::vector<std::string> formats = stash_test::format_names();

/// Numbers over many powers of two, about half of them zero, and some that are none.
std::vector<float> wide_values(std::int64_t count, double powers, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> power(-powers, powers);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const std::uint32_t kind = random() % 64;
    if (kind < 30) continue;
    const auto magnitude = static_cast<float>(std::exp2(power(random)));
    value = kind == 30          ? -0.0F
            : kind == 31        ? NAN
            : kind == 32        ? -INFINITY
            : random() % 2 != 0 ? magnitude
                                : -magnitude;
  }
  return values;
}

std::vector<float> round_trip(const encoding& e, const std::vector<float>& values) {
  const shape dims{static_cast<std::int64_t>(values.size())};
  test::encoded stored(encoded_bytes_bound(e, dtype::f32, dims.elements()));
  std::vector<float> result(values.size());
  encode(e, {values.data(), dtype::f32, memory_space::host, dims, 0}, stored.out(), {}, {});
  decode({e, dtype::f32, dims, stored.in()}, {result.data(), dtype::f32, memory_space::host, dims, 0}, {},
         {});
  return result;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}

/// A stored value that is no longer.
bool lost(const std::vector<float>& before, const std::vector<float>& after) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!same_bits(before[i], 0.0F) && same_bits(after[i], 0.0F)) return true;
  }
  return false;
}

TEST(encoding_twice, moves_nothing_where_no_positive_value_became_zero) {
  int tried = 0, moved = 0;
  for (const std::string& form : std::vector<std::string>{"", "bitmap_", "csr_"}) {
    for (const std::string& format : formats) {
      for (const underflow_rule rule : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        encoding e = parse_encoding(form + format);
        e.underflow = rule;
        const bool may_move =
            !form.empty() && std::string(format).starts_with("mx") && rule == underflow_rule::to_zero;
        for (const double powers : {0.5, 4.0, 30.0, 100.0}) {
          SCOPED_TRACE(form + format +
                       (rule == underflow_rule::to_zero ? ", to_zero, " : ", keep_nonzero, ") +
                       std::to_string(powers));
          const std::vector<float> x = wide_values(2500, powers, 7);
          const std::vector<float> once = round_trip(e, x), twice = round_trip(e, once);
          if (rule == underflow_rule::keep_nonzero) {
            EXPECT_FALSE(lost(x, once));
          }
          if (may_move && lost(x, once)) {
            moved += same_bits(once, twice) ? 0 : 1;
            continue;
          }
          ++tried;
          EXPECT_TRUE(same_bits(once, twice));
        }
      }
    }
  }
  EXPECT_GT(tried, 200);
  EXPECT_GT(moved, 10) << "what the page says of sparse MX values";
}

TEST(encoding_twice, ends_where_nothing_moves) {
  for (const char* const name : {"bitmap_mxfp8_e4m3", "csr_mxfp8_e4m3"}) {
    const encoding e = parse_encoding(name);
    std::vector<float> x = wide_values(2500, 30.0, 11);
    std::vector<float> next = round_trip(e, x);
    // Each round but the last loses a value.
    for (std::size_t rounds = 0; !same_bits(x, next) && rounds < x.size(); ++rounds)
      x = std::exchange(next, round_trip(e, next));
    EXPECT_TRUE(same_bits(x, next));
  }
}

// The smallest case: 33 values, of which the second becomes zero, so that the last one joins the first group.
TEST(encoding_twice, values_after_a_lost_one_join_another_group) {
  const encoding e = parse_encoding("bitmap_mxfp4_e2m1");
  std::vector<float> x(33, 1024.0F);
  x[1] = 0.001F;
  x[32] = 0.3F;
  const std::vector<float> once = round_trip(e, x), twice = round_trip(e, once);
  EXPECT_EQ(once[1], 0.0F);
  EXPECT_NEAR(once[32], 0.3F, 0.1F) << "alone in its group";
  EXPECT_EQ(twice[32], 0.0F) << "next to 1024";
  EXPECT_TRUE(same_bits(twice, round_trip(e, twice)));
}

}  // namespace
}  // namespace stash
