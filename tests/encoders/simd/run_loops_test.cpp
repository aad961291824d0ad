// SPDX-License-Identifier: Apache-2.0
// Every version of the inner loops gives the same bits; the general version is held against the definitions
// by the tests of the encodings.

#include "encoders/format/run_loops.hpp"
#include "encoders/format/value_codec.hpp"
#include "encoders/simd/simd_loops.hpp"
#include "support/format_names.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace stash::encoders {
namespace {

constexpr std::uint32_t telling[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000,
                                     0x33000000, 0x33000001, 0x38800000, 0x3a800000, 0x3f800000, 0xbf800000,
                                     0x43e00000, 0x43f00001, 0x477fe000, 0x477fefff, 0x477ff000, 0x7f7fffff,
                                     0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffc12345, 0xffffffff};

const std::vector<value_format> plain_formats = stash_test::formats_with_scale(false);
const std::vector<value_format> mx_formats = stash_test::formats_with_scale(true);

class run_loops_test : public ::testing::TestWithParam<simd_target> {
 protected:
  /// Values that meet every special case, with runs of zeros in between.
  std::vector<float> values(std::int64_t count) {
    std::vector<float> v(static_cast<std::size_t>(count));
    for (float& value : v) {
      const auto r = static_cast<std::uint32_t>(random_());
      auto bits = static_cast<std::uint32_t>(random_());
      if (r % 4 == 0) bits = telling[r / 4 % std::size(telling)];
      if (r % 4 == 1) bits = 0;
      if (r % 4 == 2) bits = std::bit_cast<std::uint32_t>(static_cast<float>(r % 1000) / 100 - 3);
      value = std::bit_cast<float>(bits);
    }
    return v;
  }
  std::vector<std::uint8_t> bytes(std::int64_t count, unsigned below = 256) {
    std::vector<std::uint8_t> b(static_cast<std::size_t>(count));
    for (std::uint8_t& byte : b)
      byte = static_cast<std::uint8_t>(random_() % below);
    return b;
  }
  static std::vector<std::uint32_t> bits_of(const std::vector<float>& v) {
    std::vector<std::uint32_t> b(v.size());
    if (!v.empty()) std::memcpy(b.data(), v.data(), v.size() * sizeof(float));
    return b;
  }

  std::mt19937 random_{11};
  const run_loops* fast_ = GetParam().version;
  const run_loops& plain_ = scalar_loops;
  const std::vector<std::int64_t> counts_{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 1023, 1024};
};

// A processor may run none but the general version.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(run_loops_test);
INSTANTIATE_TEST_SUITE_P(targets, run_loops_test,
                         ::testing::ValuesIn(simd_targets().begin(), simd_targets().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

// What goes past the caches is what goes through them, and nothing past it is touched. `y` may be `x`.
TEST_P(run_loops_test, written_past_the_caches) {
  for (const std::int64_t n : {1, 7, 12, 15, 16, 17, 63, 127, 128, 129, 144, 255, 257, 1000, 1023, 1024}) {
    const std::vector<float> x = values(n);
    const std::vector<std::uint8_t> bits = bytes(128);
    const auto check = [&](const char* loop, const auto& run) {
      std::vector<float> expected(x.size());
      run(plain_, x.data(), expected.data(), destination::caches);
      for (const run_loops* version : {&plain_, fast_}) {
        for (const std::int64_t shift : {0, 1, 4, 8, 15}) {
          for (const bool in_place : {false, true}) {
            alignas(run_alignment) float all[1100];
            std::fill(std::begin(all), std::end(all), 5.0F);
            float* const to = all + 16 + shift;
            if (in_place) std::copy(x.begin(), x.end(), to);
            run(*version, in_place ? to : x.data(), to, destination::memory);
            finish_streams();
            const auto is_untouched = [](float value) { return value == 5.0F; };
            EXPECT_EQ(bits_of({to, to + n}), bits_of(expected))
                << loop << ' ' << n << ' ' << shift << in_place;
            EXPECT_TRUE(std::all_of(all, to, is_untouched)) << loop << ' ' << n << ' ' << shift;
            EXPECT_TRUE(std::all_of(to + n, std::end(all), is_untouched)) << loop << ' ' << n << ' ' << shift;
          }
        }
      }
    };
    check("rectify", [&](const run_loops& version, const float* from, float* to, destination where) {
      version.rectify(from, n, to, where);
    });
    check("keep", [&](const run_loops& version, const float* from, float* to, destination where) {
      version.keep(from, bits.data(), n, to, where);
    });
    check("clip", [&](const run_loops& version, const float* from, float* to, destination where) {
      version.clip(from, n, -1, 1.5F, to, where);
    });
    check("keep_or_scale", [&](const run_loops& version, const float* from, float* to, destination where) {
      version.keep_or_scale(from, bits.data(), n, 0.25F, to, where);
    });
    check("scale_kept", [&](const run_loops& version, const float* from, float* to, destination where) {
      version.scale_kept(from, bits.data(), n, 1.25F, to, where);
    });
    const std::vector<float> packed = values(n + packed_slack);
    check("expand", [&](const run_loops& version, const float*, float* to, destination where) {
      version.expand(packed.data(), bits.data(), n, to, where);
    });
    const std::vector<std::uint8_t> stored = bytes(2 * n + 8), scales = bytes(40);
    for (const value_format format : plain_formats) {
      check("widen", [&](const run_loops& version, const float*, float* to, destination where) {
        version.widen(stored.data(), n, format, to, where);
      });
    }
    for (const value_format format : mx_formats) {
      check("widen_mx", [&](const run_loops& version, const float*, float* to, destination where) {
        version.widen_mx(scales.data(), stored.data(), n, format, to, where);
      });
    }
    for (const framework_rule rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
      std::vector<std::uint8_t> expected(130, 0xee);
      plain_.pass_bits(x.data(), n, rule, expected.data());
      check("rectify_with_bits",
            [&](const run_loops& version, const float* from, float* to, destination where) {
              std::vector<std::uint8_t> got(130, 0xee);
              version.rectify_with_bits(from, n, rule, to, got.data(), where);
              EXPECT_EQ(got, expected) << n;
            });
    }
    std::vector<std::uint8_t> expected(130, 0xee);
    plain_.pass_bits(x.data(), n, framework_rule::tensorflow, expected.data());
    check("scale_with_bits", [&](const run_loops& version, const float* from, float* to, destination where) {
      std::vector<std::uint8_t> got(130, 0xee);
      version.scale_with_bits(from, n, 0.01F, to, got.data(), where);
      EXPECT_EQ(got, expected) << n;
    });
  }
}

// The same for what is stored, which starts anywhere in a line; values that saturate are among them.
TEST_P(run_loops_test, stored_past_the_caches) {
  const auto check = [&](std::size_t size, std::int64_t n, const auto& run) {
    std::vector<std::uint8_t> expected(size + 1, 0xee);
    run(plain_, expected.data(), destination::caches);
    for (const run_loops* version : {&plain_, fast_}) {
      for (const std::size_t shift : {0U, 4U, 16U, 32U, 48U, 60U}) {
        alignas(run_alignment) std::uint8_t all[4096];
        std::memset(all, 0xee, sizeof all);
        run(*version, all + run_alignment + shift, destination::memory);
        finish_streams();
        const auto is_untouched = [](std::uint8_t byte) { return byte == 0xee; };
        std::uint8_t* const begin = all + run_alignment + shift;
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << n << ' ' << shift;
        ASSERT_TRUE(std::all_of(all, begin, is_untouched)) << n << ' ' << shift;
        ASSERT_TRUE(std::all_of(begin + size, std::end(all), is_untouched)) << n << ' ' << shift;
      }
    }
  };
  for (const std::int64_t n : {1, 15, 16, 33, 95, 96, 127, 128, 129, 255, 256, 257, 640, 960, 1023, 1024}) {
    for (const bool saturates : {false, true}) {
      std::vector<float> x = values(n);
      if (!saturates)
        for (float& value : x)
          if (!(std::abs(value) < 400)) value = 0.75F;
      for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        for (const value_format format : plain_formats) {
          const value_codec codec{format, underflow, dtype::f32};
          check(codec.element_bytes(n), n,
                [&](const run_loops& version, std::uint8_t* to, destination where) {
                  version.narrow(x.data(), n, format, underflow, to, where);
                });
        }
        for (const value_format format : mx_formats) {
          const value_codec codec{format, underflow, dtype::f32};
          std::vector<std::uint8_t> scales(33, 0xee);
          plain_.narrow_mx(x.data(), n, format, underflow, scales.data(),
                           std::vector<std::uint8_t>(2048).data());
          check(codec.element_bytes(n), n, [&](const run_loops& version, std::uint8_t* to, destination) {
            std::vector<std::uint8_t> got(33, 0xee);
            version.narrow_mx(x.data(), n, format, underflow, got.data(), to);
            EXPECT_EQ(got, scales) << n;
          });
        }
      }
    }
  }
}

// Spread while they are widened, or left alone: codes of every kind, and such without infinities and NaN.
// Bytes before and after a copy stay as they are, wherever in a line it begins.
TEST_P(run_loops_test, copies) {
  constexpr std::int64_t most = 1000, buffer_bytes = most + 3 * 64;
  for (const destination where : {destination::caches, destination::memory}) {
    for (std::int64_t begin = 64; begin < 128; ++begin) {
      for (const std::int64_t count : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 1000}) {
        const std::vector<std::uint8_t> from = bytes(count);
        alignas(run_alignment) std::uint8_t to[buffer_bytes];
        std::memset(to, 0xa5, buffer_bytes);
        fast_->copy(from.data(), count, to + begin, where);
        finish_streams(where);
        std::vector<std::uint8_t> expected(buffer_bytes, 0xa5);
        std::copy(from.begin(), from.end(), expected.begin() + begin);
        ASSERT_EQ(std::vector<std::uint8_t>(to, to + buffer_bytes), expected) << begin << " " << count;
      }
    }
  }
}

TEST_P(run_loops_test, expand_stored) {
  for (const value_format format : plain_formats) {
    const value_codec codec{format, underflow_rule::to_zero, dtype::f32};
    const bool knows = std::string_view(GetParam().name) == "AVX3" &&
                       (format == value_format::fp16 || format == value_format::fp8_e4m3 ||
                        format == value_format::fp8_e5m2);
    for (const std::int64_t n : counts_) {
      for (const std::uint8_t kept_bits : {std::uint8_t{0xff}, std::uint8_t{0xb5}}) {
        const std::vector<std::uint8_t> bits = bytes((n + 7) / 8);
        const std::int64_t packed = plain_.count_bits(bits.data(), n);
        std::vector<std::uint8_t> stored = bytes(static_cast<std::int64_t>(codec.bytes(n + packed_slack)));
        for (std::uint8_t& byte : stored)
          byte &= kept_bits;
        std::vector<float> widened(static_cast<std::size_t>(n + packed_slack));
        if (packed != 0) plain_.widen(stored.data(), packed, format, widened.data(), destination::caches);
        std::vector<float> expected(static_cast<std::size_t>(n));
        plain_.expand(widened.data(), bits.data(), n, expected.data(), destination::caches);
        for (const destination where : {destination::caches, destination::memory}) {
          for (const std::int64_t shift : {0, 1}) {
            alignas(run_alignment) float all[1100];
            std::fill(std::begin(all), std::end(all), 5.0F);
            float* const to = all + 16 + shift;
            const bool done = fast_->expand_stored(stored.data(), format, bits.data(), n, to, where);
            finish_streams();
            // Of the bytes that keep all bits, some are NaN.
            if (!knows || n % 16 != 0 || kept_bits != 0xff) {
              EXPECT_EQ(done, knows && n % 16 == 0) << static_cast<int>(format) << ' ' << n;
            }
            if (done) {
              EXPECT_EQ(bits_of({to, to + n}), bits_of(expected)) << static_cast<int>(format) << ' ' << n;
            }
            EXPECT_EQ(to[-1], 5.0F);
            EXPECT_EQ(to[n], 5.0F);
          }
        }
      }
    }
  }
}

TEST_P(run_loops_test, relu) {
  for (const std::int64_t n : counts_) {
    const std::vector<float> x = values(n);
    std::vector<float> expected(x.size()), got(x.size(), 5.0F), in_place = x, plain_in_place = x;
    plain_.rectify(x.data(), n, expected.data(), destination::caches);
    fast_->rectify(x.data(), n, got.data(), destination::caches);
    fast_->rectify(in_place.data(), n, in_place.data(), destination::caches);
    plain_.rectify(plain_in_place.data(), n, plain_in_place.data(), destination::caches);
    EXPECT_EQ(bits_of(got), bits_of(expected)) << n;
    EXPECT_EQ(bits_of(in_place), bits_of(expected)) << n;
    EXPECT_EQ(bits_of(plain_in_place), bits_of(expected)) << n;
  }
}

TEST_P(run_loops_test, relu_with_bits) {
  for (const std::int64_t n : counts_) {
    const std::vector<float> x = values(n);
    for (const framework_rule rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
      std::vector<float> expected(x.size());
      std::vector<std::uint8_t> expected_bits(130, 0xee);
      plain_.rectify(x.data(), n, expected.data(), destination::caches);
      plain_.pass_bits(x.data(), n, rule, expected_bits.data());
      for (const run_loops* tested : {&plain_, static_cast<const run_loops*>(fast_)}) {
        std::vector<float> y(x.size(), 5.0F), in_place = x;
        std::vector<std::uint8_t> bits(130, 0xee), bits_in_place(130, 0xee);
        tested->rectify_with_bits(x.data(), n, rule, y.data(), bits.data(), destination::caches);
        tested->rectify_with_bits(in_place.data(), n, rule, in_place.data(), bits_in_place.data(),
                                  destination::caches);
        EXPECT_EQ(bits_of(y), bits_of(expected)) << n;
        EXPECT_EQ(bits_of(in_place), bits_of(expected)) << n;
        EXPECT_EQ(bits, expected_bits) << n;
        EXPECT_EQ(bits_in_place, expected_bits) << n;
      }
    }
  }
}

TEST_P(run_loops_test, leaky_relu_with_bits) {
  for (const std::int64_t n : counts_) {
    const std::vector<float> x = values(n);
    std::vector<float> expected(x.size());
    std::vector<std::uint8_t> expected_bits(130, 0xee);
    plain_.pass_bits(x.data(), n, framework_rule::tensorflow, expected_bits.data());
    plain_.keep_or_scale(x.data(), expected_bits.data(), n, 0.01F, expected.data(), destination::caches);
    for (const run_loops* tested : {&plain_, static_cast<const run_loops*>(fast_)}) {
      std::vector<float> y(x.size(), 5.0F), in_place = x;
      std::vector<std::uint8_t> bits(130, 0xee), bits_in_place(130, 0xee);
      tested->scale_with_bits(x.data(), n, 0.01F, y.data(), bits.data(), destination::caches);
      tested->scale_with_bits(in_place.data(), n, 0.01F, in_place.data(), bits_in_place.data(),
                              destination::caches);
      EXPECT_EQ(bits_of(y), bits_of(expected)) << n;
      EXPECT_EQ(bits_of(in_place), bits_of(expected)) << n;
      EXPECT_EQ(bits, expected_bits) << n;
      EXPECT_EQ(bits_in_place, expected_bits) << n;
    }
  }
}

TEST_P(run_loops_test, bits_and_what_they_keep) {
  for (const std::int64_t n : counts_) {
    const std::vector<float> x = values(n);
    for (const framework_rule rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
      std::vector<std::uint8_t> expected(130, 0xee), got(130, 0xee);
      plain_.pass_bits(x.data(), n, rule, expected.data());
      fast_->pass_bits(x.data(), n, rule, got.data());
      EXPECT_EQ(got, expected) << n;
    }
    const std::vector<std::uint8_t> bits = bytes(130);
    std::vector<float> expected(x.size()), got(x.size(), 5.0F), in_place = x, plain_in_place = x;
    plain_.keep(x.data(), bits.data(), n, expected.data(), destination::caches);
    fast_->keep(x.data(), bits.data(), n, got.data(), destination::caches);
    fast_->keep(in_place.data(), bits.data(), n, in_place.data(), destination::caches);
    plain_.keep(plain_in_place.data(), bits.data(), n, plain_in_place.data(), destination::caches);
    EXPECT_EQ(bits_of(got), bits_of(expected)) << n;
    EXPECT_EQ(bits_of(in_place), bits_of(expected)) << n;
    EXPECT_EQ(bits_of(plain_in_place), bits_of(expected)) << n;
  }
}

TEST_P(run_loops_test, nonzero_values) {
  for (const std::int64_t n : counts_) {
    for (const bool positive : {false, true}) {
      std::vector<float> x = values(n);
      if (positive) plain_.rectify(x.data(), n, x.data(), destination::caches);
      std::vector<std::uint8_t> expected(130, 0xee), got(130, 0xee);
      const nonzero_bits plain = plain_.find_nonzero(x.data(), n, expected.data());
      const nonzero_bits fast = fast_->find_nonzero(x.data(), n, got.data());
      EXPECT_EQ(got, expected) << n;
      EXPECT_EQ(fast.count, plain.count) << n;
      EXPECT_EQ(fast.any_not_positive, plain.any_not_positive) << n;
      EXPECT_EQ(fast_->count_bits(got.data(), n), plain.count) << n;
      EXPECT_EQ(plain_.count_bits(got.data(), n), plain.count) << n;

      std::vector<float> packed(x.size() + packed_slack), fast_packed(packed.size());
      plain_.compact(x.data(), got.data(), n, packed.data(), plain.count);
      fast_->compact(x.data(), got.data(), n, fast_packed.data(), plain.count);
      // Nothing is written past the last value.
      EXPECT_EQ(bits_of(fast_packed), bits_of(packed)) << n;

      std::vector<float> at_once(x.size() + packed_slack);
      std::vector<std::uint8_t> bits_at_once(130, 0xee);
      const nonzero_bits together = fast_->find_and_compact(x.data(), n, bits_at_once.data(), at_once.data());
      EXPECT_EQ(together.count, plain.count) << n;
      EXPECT_EQ(together.any_not_positive, plain.any_not_positive) << n;
      EXPECT_EQ(bits_at_once, expected) << n;
      at_once.resize(plain.count);
      packed.resize(plain.count);
      EXPECT_EQ(bits_of(at_once), bits_of(packed)) << n;

      // What lies past the last packed value must not show.
      packed.resize(x.size() + packed_slack, 7.0F);
      std::vector<float> expanded(x.size(), 5.0F), fast_expanded(x.size(), 5.0F);
      plain_.expand(packed.data(), got.data(), n, expanded.data(), destination::caches);
      fast_->expand(packed.data(), got.data(), n, fast_expanded.data(), destination::caches);
      EXPECT_EQ(bits_of(expanded), bits_of(x)) << n;
      EXPECT_EQ(bits_of(fast_expanded), bits_of(x)) << n;
    }
  }
}

TEST_P(run_loops_test, columns_in_order) {
  for (std::int64_t n = 0; n <= 256; ++n) {
    // Of 256 columns the n first ones, or n with gaps.
    std::vector<std::uint8_t> columns(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < columns.size(); ++i)
      columns[i] = static_cast<std::uint8_t>(n % 2 == 0 ? i : i * 255 / columns.size());
    EXPECT_TRUE(plain_.columns_rise(columns.data(), n)) << n;
    EXPECT_TRUE(fast_->columns_rise(columns.data(), n)) << n;
    for (std::size_t i = 1; i < columns.size(); ++i) {
      std::vector<std::uint8_t> twice = columns, swapped = columns;
      twice[i] = twice[i - 1];
      std::swap(swapped[i], swapped[i - 1]);
      for (const run_loops* version : {&plain_, fast_}) {
        ASSERT_FALSE(version->columns_rise(twice.data(), n)) << n << ' ' << i;
        ASSERT_FALSE(version->columns_rise(swapped.data(), n)) << n << ' ' << i;
      }
    }
  }
}

TEST_P(run_loops_test, one_nonzero_value_or_sign_anywhere) {
  constexpr std::int64_t n = 40;
  for (std::size_t i = 0; i < n; ++i) {
    for (const std::uint32_t special : telling) {
      std::vector<float> x(n, 0.0F);
      x[i] = std::bit_cast<float>(special);
      std::vector<std::uint8_t> expected(5), got(5);
      const nonzero_bits plain = plain_.find_nonzero(x.data(), n, expected.data());
      const nonzero_bits fast = fast_->find_nonzero(x.data(), n, got.data());
      ASSERT_EQ(got, expected) << i << ' ' << special;
      ASSERT_EQ(fast.any_not_positive, plain.any_not_positive) << i << ' ' << special;
      ASSERT_EQ(plain.any_not_positive, special > 0x7f800000U) << i << ' ' << special;
    }
  }
}

TEST_P(run_loops_test, narrow_values) {
  for (const value_format format : plain_formats) {
    for (const std::int64_t n : counts_) {
      const std::vector<float> x = values(n);
      for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        std::vector<std::uint8_t> expected(2 * x.size() + 8, 0xee);
        plain_.narrow(x.data(), n, format, underflow, expected.data(), destination::caches);
        for (const destination to : {destination::caches, destination::memory}) {
          // A cache line long more than needed, so that what is stored may begin with one.
          std::vector<std::uint8_t> got(expected.size() + run_alignment, 0xee);
          void* aligned = got.data();
          std::size_t space = got.size();
          std::align(run_alignment, expected.size(), aligned, space);
          auto* const stored = static_cast<std::uint8_t*>(aligned);
          fast_->narrow(x.data(), n, format, underflow, stored, to);
          finish_streams();
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), stored)) << n;
        }
      }
      const std::vector<std::uint8_t> stored = bytes(2 * n + 8);
      std::vector<float> expected(x.size()), got(x.size());
      plain_.widen(stored.data(), n, format, expected.data(), destination::caches);
      fast_->widen(stored.data(), n, format, got.data(), destination::caches);
      EXPECT_EQ(bits_of(got), bits_of(expected)) << n;
    }
  }
}

// Alone among numbers, so that no other code takes it to the general form, at every position of a block, and
// next to codes that do.
TEST_P(run_loops_test, every_code) {
  constexpr std::int64_t n = 192;  // of whole words
  for (const value_format format : plain_formats) {
    const int bits = value_bits(format, dtype::f32);
    const unsigned codes = 1U << bits;
    for (unsigned first = 0; first < codes; first += in_words(format) ? 1U : unsigned{n}) {
      std::vector<std::uint8_t> stored(2 * n);
      for (unsigned i = 0; i < n; ++i) {
        const unsigned code = (first + i) % codes;
        if (in_words(format)) {
          std::uint32_t word;
          std::memcpy(&word, stored.data() + i / 3 * 4, 4);
          // This one at one position of every block, zeros elsewhere.
          word |= (i % 24 == first % 24 ? first : 0) << (i % 3 * 10);
          std::memcpy(stored.data() + i / 3 * 4, &word, 4);
        } else {
          for (int b = 0; b < bits; ++b) {
            const std::size_t at = i * static_cast<std::size_t>(bits) + static_cast<std::size_t>(b);
            stored[at / 8] = static_cast<std::uint8_t>(stored[at / 8] | (code >> b & 1) << at % 8);
          }
        }
      }
      std::vector<float> expected(n), got(n);
      plain_.widen(stored.data(), n, format, expected.data(), destination::caches);
      fast_->widen(stored.data(), n, format, got.data(), destination::caches);
      ASSERT_EQ(bits_of(got), bits_of(expected)) << static_cast<int>(format) << ' ' << first;
      if (codes != 1U << 8) continue;
      for (unsigned code = 0; code < codes; ++code) {
        std::vector<std::uint8_t> alone(n);
        alone[code % n] = static_cast<std::uint8_t>(code);
        plain_.widen(alone.data(), n, format, expected.data(), destination::caches);
        fast_->widen(alone.data(), n, format, got.data(), destination::caches);
        ASSERT_EQ(bits_of(got), bits_of(expected)) << static_cast<int>(format) << ' ' << code;
      }
    }
  }
}

TEST_P(run_loops_test, values_that_were_wide) {
  for (const dtype type : {dtype::f16, dtype::bf16}) {
    const value_format format = type == dtype::f16 ? value_format::fp16 : value_format::bf16;
    std::vector<std::uint16_t> all(1 << 16), got(run_elements);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<std::uint16_t>(i);
    for (std::size_t i = 0; i < all.size(); i += run_elements) {
      std::vector<float> wide(run_elements);
      plain_.widen(reinterpret_cast<const std::uint8_t*>(all.data() + i), run_elements, format, wide.data(),
                   destination::caches);
      for (const run_loops* version : {&plain_, fast_}) {
        version->narrow_exactly(wide.data(), run_elements, type, got.data());
        ASSERT_TRUE(std::equal(got.begin(), got.end(), all.data() + i)) << i;
      }
    }
  }
}

TEST_P(run_loops_test, groups_with_a_scale) {
  for (const value_format format : mx_formats) {
    const int f = static_cast<int>(format);
    for (const std::int64_t n : counts_) {
      std::vector<float> x = values(n);
      for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        // Every other group without NaN, so that the formats that have none show values.
        for (std::size_t i = 0; i < x.size(); ++i)
          if (i / 32 % 2 == 0 && std::isnan(x[i])) x[i] = 0.75F;
        std::vector<std::uint8_t> scales(40, 0xee), got_scales(scales), elements(x.size() + 8, 0xee),
            got_elements(elements);
        plain_.narrow_mx(x.data(), n, format, underflow, scales.data(), elements.data());
        fast_->narrow_mx(x.data(), n, format, underflow, got_scales.data(), got_elements.data());
        ASSERT_EQ(got_scales, scales) << f << ' ' << n;
        ASSERT_EQ(got_elements, elements) << f << ' ' << n;
      }
      const std::vector<std::uint8_t> stored = bytes(n + 8), scales = bytes(40);
      std::vector<float> expected(x.size()), got(x.size());
      plain_.widen_mx(scales.data(), stored.data(), n, format, expected.data(), destination::caches);
      fast_->widen_mx(scales.data(), stored.data(), n, format, got.data(), destination::caches);
      ASSERT_EQ(bits_of(got), bits_of(expected)) << f << ' ' << n;
    }
  }
}

// Numbers of every distance from the largest of their group, which has every exponent.
TEST_P(run_loops_test, groups_of_every_magnitude) {
  constexpr std::int64_t n = 70;  // two groups and a short one
  for (const value_format format : mx_formats) {
    const int f = static_cast<int>(format);
    for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
      std::vector<float> x(n);
      for (float& value : x) {
        const auto r = static_cast<std::uint32_t>(random_());
        const std::uint32_t below = r % 32;
        std::uint32_t bits = (below > exponent ? 0 : exponent - below) << 23;
        // Also zeros, powers of two, and the last number before the next one.
        if (r / 32 % 8 == 0) bits = 0;
        if (r / 32 % 8 > 1) bits |= static_cast<std::uint32_t>(random_()) & 0x7fffffU;
        if (r / 32 % 8 == 2) bits |= 0x7fffffU;
        value = std::bit_cast<float>(bits | (r & 0x80000000U));
      }
      for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        std::vector<std::uint8_t> scales(4, 0xee), got_scales(scales), elements(n + 8, 0xee),
            got_elements(elements);
        plain_.narrow_mx(x.data(), n, format, underflow, scales.data(), elements.data());
        fast_->narrow_mx(x.data(), n, format, underflow, got_scales.data(), got_elements.data());
        ASSERT_EQ(got_scales, scales) << f << ' ' << exponent;
        ASSERT_EQ(got_elements, elements) << f << ' ' << exponent;
        std::vector<float> expected(x.size()), got(x.size());
        plain_.widen_mx(scales.data(), elements.data(), n, format, expected.data(), destination::caches);
        fast_->widen_mx(scales.data(), elements.data(), n, format, got.data(), destination::caches);
        ASSERT_EQ(bits_of(got), bits_of(expected)) << f << ' ' << exponent;
      }
    }
  }
}

// What becomes of a group that the loops leave to the general form must not reach its neighbours.
TEST_P(run_loops_test, groups_next_to_rare_ones) {
  constexpr std::int64_t n = 256;
  for (const value_format format : mx_formats) {
    const int f = static_cast<int>(format);
    for (int round = 0; round < 200; ++round) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto r = static_cast<std::uint32_t>(random_());
        const bool rare = i / 32 % 2 == static_cast<std::size_t>(round % 2);
        // NaN of every payload, next to the zeros and small numbers in which a wrong bit shows.
        x[i] = rare ? std::bit_cast<float>(r | 0x7f800000U) : static_cast<float>(r % 64) / -16;
      }
      for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
        std::vector<std::uint8_t> scales(8, 0xee), got_scales(scales), elements(n, 0xee),
            got_elements(elements);
        plain_.narrow_mx(x.data(), n, format, underflow, scales.data(), elements.data());
        fast_->narrow_mx(x.data(), n, format, underflow, got_scales.data(), got_elements.data());
        ASSERT_EQ(got_scales, scales) << f;
        ASSERT_EQ(got_elements, elements) << f;
      }
    }
  }
}

TEST_P(run_loops_test, every_code_with_every_scale) {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(i);
  for (const value_format format : mx_formats) {
    const int f = static_cast<int>(format);
    for (int scale = 0; scale < 256; ++scale) {
      const std::vector<std::uint8_t> scales(8, static_cast<std::uint8_t>(scale));
      std::vector<float> expected(256), got(256);
      plain_.widen_mx(scales.data(), codes.data(), 256, format, expected.data(), destination::caches);
      fast_->widen_mx(scales.data(), codes.data(), 256, format, got.data(), destination::caches);
      ASSERT_EQ(bits_of(got), bits_of(expected)) << f << ' ' << scale;
    }
  }
}

TEST_P(run_loops_test, ranges) {
  for (const std::int64_t n : counts_) {
    const std::vector<float> x = values(n);
    for (const auto& [lower, upper] :
         {std::pair{0.0F, 6.0F}, {-0.0F, 1e-40F}, {0.5F, INFINITY}, {-INFINITY, 0.0F}, {-1.0F, INFINITY}}) {
      for (const framework_rule rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
        std::vector<std::uint8_t> expected(130, 0xee), got(130, 0xee);
        plain_.range_bits(x.data(), n, lower, upper, rule, expected.data());
        fast_->range_bits(x.data(), n, lower, upper, rule, got.data());
        ASSERT_EQ(got, expected) << n << ' ' << lower;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool inside =
              std::isnan(x[i]) ? rule == framework_rule::pytorch : x[i] > lower && x[i] < upper;
          ASSERT_EQ((got[i / 8] >> (i % 8) & 1) != 0, inside) << x[i];
        }
      }
      std::vector<float> expected(x.size()), got(x.size());
      plain_.clip(x.data(), n, lower, upper, expected.data(), destination::caches);
      fast_->clip(x.data(), n, lower, upper, got.data(), destination::caches);
      ASSERT_EQ(bits_of(got), bits_of(expected)) << n << ' ' << lower;
    }
    const std::vector<std::uint8_t> bits = bytes(130);
    std::vector<float> expected(x.size()), got(x.size());
    plain_.keep_or_scale(x.data(), bits.data(), n, 0.01F, expected.data(), destination::caches);
    fast_->keep_or_scale(x.data(), bits.data(), n, 0.01F, got.data(), destination::caches);
    ASSERT_EQ(bits_of(got), bits_of(expected)) << n;
  }
}

TEST_P(run_loops_test, columns) {
  for (const std::int64_t n : counts_) {
    const std::vector<float> x = values(n);
    std::vector<std::uint8_t> bits(130), expected;
    std::vector<std::uint16_t> expected_ends;
    std::vector<float> expected_packed(x.size() + packed_slack);
    const nonzero_bits found = plain_.find_and_compact(x.data(), n, bits.data(), expected_packed.data());
    expected_packed.resize(found.count);
    for (std::int64_t i = 0; i < n; ++i) {
      if ((bits[static_cast<std::size_t>(i / 8)] >> (i % 8) & 1) != 0)
        expected.push_back(static_cast<std::uint8_t>(i));
      if (i % 256 == 255 || i == n - 1) expected_ends.push_back(static_cast<std::uint16_t>(expected.size()));
    }
    for (const run_loops* version : {&plain_, fast_}) {
      std::vector<float> packed(x.size() + packed_slack);
      std::vector<std::uint8_t> got(expected.size() + packed_slack + 1, 0xee);
      std::vector<std::uint16_t> ends(expected_ends.size() + 1, 0xeeee);
      const nonzero_bits listed = version->find_and_list(x.data(), n, packed.data(), got.data(), ends.data());
      EXPECT_EQ(listed.count, found.count) << n;
      EXPECT_EQ(listed.any_not_positive, found.any_not_positive) << n;
      EXPECT_EQ(got.back(), 0xee) << n;
      got.resize(expected.size());
      EXPECT_EQ(got, expected) << n;
      EXPECT_EQ(ends.back(), 0xeeee) << n;
      ends.pop_back();
      EXPECT_EQ(ends, expected_ends) << n;
      packed.resize(found.count);
      EXPECT_EQ(bits_of(packed), bits_of(expected_packed)) << n;
    }
  }
}

TEST_P(run_loops_test, bits_of_columns) {
  for (const std::int64_t n : {0, 1, 2, 7, 8, 9, 16, 100, 255, 256}) {
    // In no order, some of them twice.
    const std::vector<std::uint8_t> columns = bytes(n);
    std::vector<std::uint8_t> expected(40, 0xee);
    std::fill_n(expected.begin(), 32, std::uint8_t{0});
    for (const std::uint8_t column : columns)
      expected[column / 8] |= static_cast<std::uint8_t>(1U << (column % 8));
    for (const run_loops* version : {&plain_, fast_}) {
      std::vector<std::uint8_t> got(40, 0xee);
      version->mark_columns(columns.data(), n, got.data());
      EXPECT_EQ(got, expected) << n;
    }
  }
}

TEST_P(run_loops_test, draws) {
  const philox_stream stream{{0x243f6a88, 0x85a308d3}, {7, 0x13198a2e}};
  for (const std::int64_t count : counts_) {
    const std::vector<float> some = values(count);
    // The second block number carries into the counter's next word.
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{0xfffffffe}, ~std::uint64_t{1}, std::uint64_t{0x2300000005}}) {
      for (const std::uint32_t threshold : {0U, 1U, 0x40000000U, 0x80000000U, 0xffffffffU}) {
        const auto bytes_used = static_cast<std::size_t>((count + 7) / 8);
        std::vector<std::uint8_t> expected(bytes_used, 0), plain(bytes_used + 1, 0xee),
            got(bytes_used + 1, 0xee);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto block = first + static_cast<std::uint64_t>(i / 4);
          const philox_counter drawn = philox4x32_10(
              {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 7, 0x13198a2e},
              {0x243f6a88, 0x85a308d3});
          if (drawn[static_cast<std::size_t>(i % 4)] >= threshold)
            expected[static_cast<std::size_t>(i / 8)] |= static_cast<std::uint8_t>(1U << (i % 8));
        }
        expected.push_back(0xee);
        plain_.draw_bits(stream, first, count, threshold, some.data(), some.data(), plain.data());
        fast_->draw_bits(stream, first, count, threshold, some.data(), nullptr, got.data());
        EXPECT_EQ(plain, expected) << count << ' ' << first << ' ' << threshold;
        EXPECT_EQ(got, expected) << count << ' ' << first << ' ' << threshold;
      }
    }
  }
}

TEST_P(run_loops_test, scaling_what_is_kept) {
  for (const std::int64_t count : counts_) {
    const std::vector<float> from = values(count);
    const std::vector<std::uint8_t> bits = bytes((count + 7) / 8);
    for (const float scale : {1.0F, 1.25F, 1e30F}) {
      std::vector<float> expected(from.size()), got(from.size()), in_place = from;
      plain_.scale_kept(from.data(), bits.data(), count, scale, expected.data(), destination::caches);
      fast_->scale_kept(from.data(), bits.data(), count, scale, got.data(), destination::caches);
      fast_->scale_kept(in_place.data(), bits.data(), count, scale, in_place.data(), destination::caches);
      for (std::size_t i = 0; i < from.size(); ++i) {
        const bool kept = (bits[i / 8] >> i % 8 & 1) != 0;
        EXPECT_TRUE(kept || std::bit_cast<std::uint32_t>(expected[i]) == 0) << i;
      }
      EXPECT_EQ(bits_of(got), bits_of(expected)) << count << ' ' << scale;
      EXPECT_EQ(bits_of(in_place), bits_of(expected)) << count << ' ' << scale;
    }
  }
}

TEST_P(run_loops_test, windows) {
  const window_row one_window{1, 0, 0, {0, 0}};
  constexpr std::int64_t pixels = 4;  // per row, of which windows see up to three by three
  for (const std::int64_t channels : {1, 3, 6, 8, 16, 20, 64, 1024}) {
    for (const window_taps w : {window_taps{0, 2, 0, 2, 2, pixels * channels, channels},
                                window_taps{0, 3, 0, 3, 3, pixels * channels, channels},
                                window_taps{1, 3, 0, 2, 3, pixels * channels, channels}}) {
      const std::vector<float> x = values(pixels * pixels * channels);
      const auto c = static_cast<std::size_t>(channels);
      std::vector<std::uint8_t> last;
      for (int variant = 0; variant < 8; ++variant) {
        std::vector<float> expected(c), got(c);
        std::vector<std::uint8_t> expected_taps(c, 0xee), got_taps(c, 0xee);
        const auto rule = static_cast<std::size_t>(variant / 4),
                   relu = static_cast<std::size_t>(variant / 2 % 2),
                   taps = static_cast<std::size_t>(variant % 2);
        plain_.maximum[rule][relu][taps](x.data(), w, one_window, channels, expected.data(),
                                         expected_taps.data(), destination::caches);
        fast_->maximum[rule][relu][taps](x.data(), w, one_window, channels, got.data(), got_taps.data(),
                                         destination::caches);
        EXPECT_EQ(bits_of(got), bits_of(expected)) << channels << ' ' << variant;
        EXPECT_EQ(got_taps, expected_taps) << channels << ' ' << variant;
        if (taps == 1) last = got_taps;
      }
      for (const framework_rule rule : {framework_rule::tensorflow, framework_rule::pytorch}) {
        const auto r = static_cast<std::size_t>(rule == framework_rule::pytorch ? 1 : 0);
        std::vector<float> expected(c);
        std::vector<std::uint8_t> taps(c), pass_bits((c + 7) / 8);
        plain_.maximum[r][1][1](x.data(), w, one_window, channels, expected.data(), taps.data(),
                                destination::caches);
        plain_.pass_bits(expected.data(), channels, rule, pass_bits.data());
        for (std::size_t i = 0; i < c; ++i) {
          if ((pass_bits[i / 8] >> i % 8 & 1) == 0) taps[i] = no_gradient_code;
        }
        for (const run_loops* version : {&plain_, fast_}) {
          std::vector<float> got(c);
          std::vector<std::uint8_t> codes(c, 0xee);
          version->maximum_with_codes[r](x.data(), w, one_window, channels, got.data(), codes.data(),
                                         destination::caches);
          EXPECT_EQ(bits_of(got), bits_of(expected)) << channels << ' ' << r;
          EXPECT_EQ(codes, taps) << channels << ' ' << r;
        }
      }
      const std::vector<float> gradient = values(channels);
      for (const first_visits visits : {first_visits{0, 0}, first_visits{1, 0}, first_visits{1, 1}}) {
        std::vector<float> expected = values(pixels * pixels * channels), got = expected;
        plain_.scatter(gradient.data(), last.data(), channels, w, {1, 0, 0, visits}, expected.data(),
                       destination::caches);
        fast_->scatter(gradient.data(), last.data(), channels, w, {1, 0, 0, visits}, got.data(),
                       destination::caches);
        for (std::size_t i = 0; i < got.size(); ++i) {
          // Which of two NaNs a sum hands on is the processor's business.
          if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
          ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
        }
      }
    }
  }
}

// Pixels sum what their windows send them, in the order of the windows.
TEST_P(run_loops_test, gathered_pixels) {
  if (fast_->gather == nullptr) GTEST_SKIP() << "these vectors scatter";
  constexpr std::int64_t steps = 3;
  for (const std::int64_t channels : {1, 3, 8, 16, 20, 64, 129, 256}) {
    const std::int64_t gradient_step = channels + 5, pixel_pitch = (channels + 15) / 16 * 16;
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{2}, std::vector<std::int64_t>{1, 0, 4}}) {
      const auto phases = static_cast<std::int64_t>(counts.size());
      const std::vector<float> gradient = values(steps * gradient_step + 8);
      std::vector<std::uint8_t> taps(static_cast<std::size_t>(steps * channels));
      for (std::size_t i = 0; i < taps.size(); ++i)
        taps[i] = static_cast<std::uint8_t>(i * 7 % 5 == 0 ? 255 : i % 3);
      std::vector<float> listed(taps.size());
      fast_->list_taps(taps.data(), std::ssize(taps), listed.data());
      for (std::size_t i = 0; i < taps.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::int32_t>(listed[i]), taps[i] + 1);

      std::vector<reaching_window> windows;
      for (std::int32_t k = 0; k < std::accumulate(counts.begin(), counts.end(), 0); ++k)
        windows.push_back({gradient.data() + k, listed.data(), k == 4 ? 256 : k % 3 + 1});
      const std::int64_t step_pitch = phases * pixel_pitch;
      const gathered_pixels pixels{windows.data(), counts.data(), phases,      steps,     gradient.data(),
                                   gradient_step,  channels,      pixel_pitch, step_pitch};
      std::vector<float> expected(static_cast<std::size_t>(steps * step_pitch), 7.0F);
      for (std::int64_t i = 0; i < steps; ++i) {
        std::size_t k = 0;
        for (std::int64_t p = 0; p < phases; ++p) {
          float* const pixel = expected.data() + i * step_pitch + p * pixel_pitch;
          std::fill_n(pixel, channels, 0.0F);
          for (const std::size_t end = k + static_cast<std::size_t>(counts[static_cast<std::size_t>(p)]);
               k < end; ++k) {
            for (std::int64_t c = 0; c < channels; ++c) {
              if (std::bit_cast<std::int32_t>(windows[k].taps[i * channels + c]) == windows[k].tap)
                pixel[c] += windows[k].gradient[i * gradient_step + c];
            }
          }
        }
      }
      for (const destination to : {destination::caches, destination::memory}) {
        for (const std::size_t shift : {0U, 1U, 4U, 8U}) {
          alignas(run_alignment) float target[2400];
          std::fill_n(target, std::size(target), 7.0F);
          fast_->gather(pixels, channels, target + shift, to);
          finish_streams();
          for (std::size_t i = 0; i < std::size(target); ++i) {
            const bool outside = i < shift || i - shift >= expected.size();
            const float expected_value = outside ? 7.0F : expected[i - shift];
            // Which of two NaNs a sum hands on is the processor's business.
            if (std::isnan(target[i]) && std::isnan(expected_value)) continue;
            ASSERT_EQ(std::bit_cast<std::uint32_t>(target[i]), std::bit_cast<std::uint32_t>(expected_value))
                << channels << ' ' << phases << ' ' << shift << ' ' << i;
          }
        }
      }
    }
  }
}

// A row of windows is as good as one after the other, and past the caches as good as through them.
TEST_P(run_loops_test, windows_side_by_side) {
  for (const std::int64_t channels : {1, 3, 8, 16, 20, 64, 256}) {
    for (const std::int64_t windows : {1, 2, 4}) {
      const std::int64_t pixels = 2 * windows + 1;
      const auto count = static_cast<std::size_t>(windows * channels);
      const window_taps w{0, 2, 0, 2, 2, pixels * channels, channels};
      const window_row row{windows, 2 * channels, channels, {0, 0}};
      const window_row one_window{1, 0, 0, {0, 0}};
      const std::vector<float> x = values(2 * pixels * channels);
      const std::vector<float> gradient = values(windows * channels);
      std::vector<float> maxima(count), dx = values(2 * pixels * channels);
      const std::vector<float> dx_before = dx;
      std::vector<std::uint8_t> taps(count);
      for (std::int64_t i = 0; i < windows; ++i) {
        plain_.maximum[0][1][1](x.data() + i * 2 * channels, w, one_window, channels,
                                maxima.data() + i * channels, taps.data() + i * channels,
                                destination::caches);
        plain_.scatter(gradient.data() + i * channels, taps.data() + i * channels, channels, w, one_window,
                       dx.data() + i * 2 * channels, destination::caches);
      }
      for (const run_loops* version : {&plain_, fast_}) {
        for (const destination to : {destination::caches, destination::memory}) {
          for (const std::size_t shift : {0U, 1U, 4U, 8U}) {
            alignas(run_alignment) float y[1100], target[4700];
            std::vector<std::uint8_t> got_taps(count, 0xee);
            version->maximum[0][1][1](x.data(), w, row, channels, y + shift, got_taps.data(), to);
            std::copy(dx_before.begin(), dx_before.end(), target + shift);
            version->scatter(gradient.data(), taps.data(), channels, w, row, target + shift, to);
            finish_streams();
            const std::vector<float> got(y + shift, y + shift + count);
            const std::vector<float> got_dx(target + shift, target + shift + dx.size());
            ASSERT_EQ(bits_of(got), bits_of(maxima)) << channels << ' ' << windows << ' ' << shift;
            ASSERT_EQ(got_taps, taps) << channels << ' ' << windows << ' ' << shift;
            ASSERT_EQ(bits_of(got_dx), bits_of(dx)) << channels << ' ' << windows << ' ' << shift;
          }
        }
      }
    }
  }
}

/// Past the end of a stack there is no memory, and a fetch from there is slow.
TEST(fetching, nothing_is_fetched_past_buffers_of_the_stack) {
  const std::array<float, run_elements> buffer{};
  EXPECT_EQ(fetch_distance(buffer.data()), 0);
  EXPECT_EQ(fetch_distance(buffer.data() + buffer.size()), 0);
  const std::vector<float> map(1 << 20);
  EXPECT_EQ(fetch_distance(map.data()), prefetch_distance);
  EXPECT_EQ(fetch_distance(map.data() + map.size() - 1), prefetch_distance);
  EXPECT_EQ(fetch_distance(telling), prefetch_distance);
}

TEST(destinations, large_maps_go_past_the_caches_where_several_cores_write_them) {
  execution_context several;
  several.parallel_for = [](void*, std::int64_t count, std::int64_t, auto body, void* state) {
    body(state, 0, count);
  };
  EXPECT_EQ(destination_of(streamed_elements, several), destination::memory);
  for (const execution_context& context : {several, execution_context{}}) {
    EXPECT_EQ(destination_of(0, context), destination::caches);
    EXPECT_EQ(destination_of(streamed_elements - 1, context), destination::caches);
  }
}

}  // namespace
}  // namespace stash::encoders
