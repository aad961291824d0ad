// SPDX-License-Identifier: Apache-2.0
// The conversions of the kernels, called as functions: every code, every 16-bit element, and f32 values
// around every point where something changes, against the CPU's conversions.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/code_elements.hpp"
#include "common/host.hpp"
#include "common/mx_codes.hpp"
#include "common/stored_values.hpp"
#include "conversions.hpp"
#include "elementwise/cast.hpp"
#include "encoders/format/mx.hpp"
#include "encoders/format/values.hpp"

namespace stash::kernels {
namespace {

using encoders::narrow;
using encoders::widen;

constexpr underflow_rule rules[] = {underflow_rule::to_zero, underflow_rule::keep_nonzero};

/// Calls body(f32 bits) for numbers in the neighbourhood of all that any format rounds to or between, and for
/// others in between.
template <class Body>
void for_each_f32(const Body& body) {
  for (std::uint32_t sign : {0U, 0x80000000U}) {
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
      for (std::uint32_t top = 0; top < 1U << 12; ++top) {
        for (const std::uint32_t below : {0U, 1U, 0x3ffU, 0x400U, 0x7ffU})
          body(sign | exponent << 23 | top << 11 | below);
      }
    }
  }
}

/// Calls body(stored_format) for every format.
template <class Body>
void for_each_format(const Body& body) {
  for (const value_format_info& row : value_formats)
    encoders::with_stored_format(row.format, body);
}

template <class Format>
void check_codes() {
  constexpr unsigned Bits = Format::bits;
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(Format::format, rule);
    for_each_f32([&](std::uint32_t bits) {
      const float value = as_float(bits);
      if (Format::nan == 0 && value != value) return;  // the scale says it
      const std::uint32_t expected = rule == underflow_rule::to_zero
                                         ? narrow<Format, underflow_rule::to_zero>(value)
                                         : narrow<Format, underflow_rule::keep_nonzero>(value);
      if (code_of<Bits>(value, c) != expected || code_of<0>(value, c) != expected) {
        ADD_FAILURE() << std::hex << bits << " becomes " << code_of<Bits>(value, c) << " or "
                      << code_of<0>(value, c) << ", not " << expected;
      }
    });
    for (std::uint32_t code = 0; code < 1U << Format::bits; ++code) {
      const float expected = widen<Format>(static_cast<typename Format::storage>(code));
      ASSERT_EQ(as_bits(value_of<Bits>(code, c)), as_bits(expected)) << std::hex << code;
      ASSERT_EQ(as_bits(value_of<0>(code, c)), as_bits(expected)) << std::hex << code;
      for (const bool nan_passes : {false, true}) {
        const bool passes_as_value = nan_passes ? !(expected <= 0) : expected > 0;
        ASSERT_EQ(code_passes(code, c, nan_passes), passes_as_value) << std::hex << code;
      }
    }
  }
}

TEST(device_conversions, of_formats_that_stand_alone) {
  for_each_format([](auto form) {
    // Those of eight bits are the ones without a scale.
    if constexpr (!(decltype(form)::scaled && decltype(form)::bits == 8)) check_codes<decltype(form)>();
  });
}

/// All scales with all codes, and values from far below to far above their scale.
template <class Elements, unsigned Bits>
void check_scaled(value_format format) {
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(format, rule);
    for (std::uint32_t scale = 0; scale < 256; ++scale) {
      for (std::uint32_t code = 0; code < 1U << Elements::bits; ++code) {
        const auto stored = static_cast<typename Elements::storage>(code);
        std::uint32_t expected = 0x7fc00000;
        if (scale != 255)
          expected = as_bits(encoders::scaled_up(widen<Elements>(stored), static_cast<int>(scale) - 127));
        ASSERT_EQ(as_bits(scaled_value_of<Bits>(code, static_cast<std::uint8_t>(scale), c)), expected)
            << scale << ' ' << code;
        ASSERT_EQ(as_bits(scaled_value_of<0>(code, static_cast<std::uint8_t>(scale), c)), expected)
            << scale << ' ' << code;
      }
    }
    std::uint32_t state = 1;
    for (int k = 0; k < 400'000; ++k) {
      state = state * 1664525 + 1013904223;
      const std::uint32_t largest = (state >> 1) % 0x7f800000U;
      state = state * 1664525 + 1013904223;
      // Anything up to the group's largest, often next to it; now and then infinity or NaN.
      std::uint32_t magnitude = state % 3 == 0 ? largest : (state >> 3) % (largest + 1);
      if (state % 3 == 1)
        magnitude = largest - std::min(largest, (state >> 8 & 0x7ffffff) >> (state >> 3 & 31));
      if (state % 1024 == 5) magnitude = 0x7f800000;
      if (state % 1024 == 7) magnitude = 0x7fc12345;
      const float value = as_float(magnitude | (state & 0x80000000U));
      const group_scale found =
          scale_of({std::max(largest, magnitude < 0x7f800000 ? magnitude : 0), magnitude > 0x7f800000}, c);
      const float both[] = {as_float(largest), value};
      std::uint8_t codes[2] = {};
      const std::uint8_t expected_scale =
          rule == underflow_rule::to_zero
              ? encoders::narrow_group<Elements, underflow_rule::to_zero>(both, 2, codes)
              : encoders::narrow_group<Elements, underflow_rule::keep_nonzero>(both, 2, codes);
      std::uint8_t unpacked[32];
      encoders::unpack_codes<Elements::bits>(codes, 2, unpacked);
      ASSERT_EQ(found.byte, expected_scale) << std::hex << largest << ' ' << magnitude;
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(scaled_code_of<Bits>(both[i], found, c), unpacked[i])
            << std::hex << largest << ' ' << magnitude;
        ASSERT_EQ(scaled_code_of<0>(both[i], found, c), unpacked[i])
            << std::hex << largest << ' ' << magnitude;
      }
    }
  }
}

TEST(device_conversions, of_formats_with_a_scale) {
  for_each_format([](auto form) {
    if constexpr (decltype(form)::scaled)
      check_scaled<decltype(form), decltype(form)::bits>(decltype(form)::format);
  });
}

/// Codes of eight values, found at once, against those of one after the other.
template <unsigned Bits>
void expect_codes_of_eight(const code_group& found, const float (&values)[group_elements],
                           const group_scale& scale, const value_conversion& c) {
  code_group expected{};
  for (unsigned i = 0; i < group_elements; ++i)
    expected.code[i] = scaled_code_of<Bits>(values[i], scale, c);
  pack_codes<Bits>(expected);
  for (unsigned w = 0; w < 2; ++w)
    ASSERT_EQ(found.words[w], expected.words[w]) << std::hex << as_bits(values[0]) << ' ' << scale.factor;
}
template <unsigned Bits>
void expect_codes_of_eight(const float (&values)[group_elements], const group_scale& scale,
                           const value_conversion& c) {
  code_group found{};
  if constexpr (Bits == 4) {
    found.words[0] = fp4_codes_of(values, scale, c);
  } else {
    fp6_codes_of(values, scale, c, found.words);
    found.words[1] &= 0xffff;  // there are 48 bits of them
  }
  expect_codes_of_eight<Bits>(found, values, scale, c);
}
/// The same of 16-bit elements.
template <unsigned Bits, class Format>
void expect_codes_of_elements(const float (&numbers)[group_elements], const group_scale& scale,
                              const value_conversion& c) {
  float values[group_elements];
  group<std::uint16_t> elements;
  for (unsigned i = 0; i < group_elements; ++i) {
    elements.value[i] = narrow<Format, underflow_rule::to_zero>(numbers[i]);
    values[i] = widen<Format>(elements.value[i]);
  }
  const dtype type = std::is_same_v<Format, encoders::bf16_format> ? dtype::bf16 : dtype::f16;
  short_codes part[1] = {{packed(elements), {}}};
  short_codes_of<Bits>(part, element_type_of(type), scale, c);
  code_group found{};
  found.words[0] = part[0].words[0];
  if (Bits == 6) found.words[1] = part[0].words[1] & 0xffff;
  expect_codes_of_eight<Bits>(found, values, scale, c);
}

/// All that for_each_f32() has and that may stand next to its scale, in every position of a group.
template <class Elements, unsigned Bits>
void check_instructions(value_format format) {
  const float limit = std::ldexp(1.0F, Elements::emax + 1);
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(format, rule);
    // The largest and the smallest factors are no normal numbers once they are moved.
    for (const int exponent : {0, -127, 127 - Elements::emax}) {
      const group_scale scale{static_cast<std::uint8_t>(exponent + 127), std::ldexp(1.0F, -exponent)};
      float values[group_elements] = {};
      unsigned next = 0;
      for_each_f32([&](std::uint32_t bits) {
        const float value = as_float(bits);
        const float scaled = std::abs(value) * scale.factor;
        if (value != value || (scaled >= limit && std::abs(value) <= std::numeric_limits<float>::max()))
          return;
        values[next] = value;
        next = (next + 1) % group_elements;
        if (next == 0 && !::testing::Test::HasFatalFailure()) expect_codes_of_eight<Bits>(values, scale, c);
      });
    }
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      const float half = half_to_float(static_cast<std::uint16_t>(bits)), bfloat = as_float(bits << 16);
      for (const float value : {half, bfloat}) {
        if (value == 0 || !(std::abs(value) <= 65504)) continue;
        const int exponent = std::max(-126, std::ilogb(value) - Elements::emax);
        const group_scale scale{static_cast<std::uint8_t>(exponent + 127), std::ldexp(1.0F, -exponent)};
        const float values[group_elements] = {value,     value / 2, value / -4, 0,
                                              value / 8, -value,    -0.0F,      value};
        if (value == half) expect_codes_of_elements<Bits, encoders::fp16_format>(values, scale, c);
        if (value == bfloat) expect_codes_of_elements<Bits, encoders::bf16_format>(values, scale, c);
      }
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(device_conversions, of_scaled_values_by_instructions) {
  for_each_format([](auto form) {
    using elements = decltype(form);
    if constexpr (elements::scaled && elements::bits < 8)
      check_instructions<elements, elements::bits>(elements::format);
  });
}

/// A whole group of 16-bit elements, as a thread has it, against the CPU's.
template <class Elements, unsigned Bits, class Format>
void expect_codes_of_group(const std::uint16_t (&elements)[scaled_group], dtype type, underflow_rule rule,
                           const value_conversion& c) {
  float values[scaled_group];
  short_codes parts[scaled_group / group_elements] = {};
  for (unsigned i = 0; i < scaled_group; ++i) {
    values[i] = widen<Format>(elements[i]);
    parts[i / 8].in.word[i % 8 / 2] |= std::uint32_t{elements[i]} << (16 * (i % 2));
  }
  std::uint32_t found[Bits], expected[Bits] = {};
  const std::uint8_t scale = codes_of_group<Bits>(parts, element_type_of(type), c, found);
  auto* const codes = reinterpret_cast<std::uint8_t*>(expected);
  const std::uint8_t expected_scale =
      rule == underflow_rule::to_zero
          ? encoders::narrow_group<Elements, underflow_rule::to_zero>(values, scaled_group, codes)
          : encoders::narrow_group<Elements, underflow_rule::keep_nonzero>(values, scaled_group, codes);
  ASSERT_EQ(scale, expected_scale) << std::hex << elements[0] << ' ' << elements[1];
  for (unsigned w = 0; w < Bits; ++w)
    ASSERT_EQ(found[w], expected[w]) << std::hex << elements[0] << ' ' << elements[1] << ' ' << w;
}

/// Every element next to numbers of all magnitudes that are not below it, and next to infinity and NaN.
template <class Elements, unsigned Bits, class Format>
void check_groups(value_format format, dtype type) {
  constexpr unsigned others = scaled_group - 2;
  const std::uint32_t infinity = element_type_of(type).infinity;
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(format, rule);
    for (std::uint32_t largest = 0; largest <= infinity + 1;
         largest += largest < 8 ? 1 : largest / 16 + 101) {
      for (std::uint32_t first = 0; first <= largest; first += others) {
        std::uint16_t elements[scaled_group] = {static_cast<std::uint16_t>(largest)};
        for (unsigned i = 0; i <= others; ++i)
          elements[1 + i] = static_cast<std::uint16_t>(std::min(first + i, largest) | i % 3 / 2 << 15);
        expect_codes_of_group<Elements, Bits, Format>(elements, type, rule, c);
        if (first % (7 * others) == 0) {
          elements[scaled_group - 1] = static_cast<std::uint16_t>(infinity | 0x8000);
          expect_codes_of_group<Elements, Bits, Format>(elements, type, rule, c);
        }
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(device_conversions, of_groups_of_16_bits) {
  for_each_format([](auto form) {
    using elements = decltype(form);
    if constexpr (elements::scaled && elements::bits < 8) {
      check_groups<elements, elements::bits, encoders::fp16_format>(elements::format, dtype::f16);
      check_groups<elements, elements::bits, encoders::bf16_format>(elements::format, dtype::bf16);
    }
  });
}

template <class Format>
void check_elements(dtype dtype) {
  const element_type type = element_type_of(dtype);
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
    const auto element = static_cast<std::uint16_t>(bits);
    const float expected = widen<Format>(element);
    const float found = to_f32(element, type);
    if (expected != expected) {
      ASSERT_TRUE(found != found && (as_bits(found) ^ as_bits(expected)) >> 31 == 0) << std::hex << bits;
    } else {
      ASSERT_EQ(as_bits(found), as_bits(expected)) << std::hex << bits;
    }
  }
  for_each_f32([&](std::uint32_t bits) {
    const float value = as_float(bits);
    const std::uint16_t expected = narrow<Format, underflow_rule::to_zero>(value);
    const float values[group_elements] = {value};
    const std::uint16_t found = from_f32s<std::uint16_t>(values, type).value[0];
    if (found != expected) ADD_FAILURE() << std::hex << bits << " becomes " << found << ", not " << expected;
    std::uint16_t result = 0;
    encoders::round_results(dtype, &value, 1, &result);
    if (result_from_f32<std::uint16_t>(value, type) != result) {
      ADD_FAILURE() << std::hex << bits << " as a result becomes "
                    << result_from_f32<std::uint16_t>(value, type) << ", not " << result;
    }
  });
}

TEST(device_conversions, of_elements_of_16_bits) {
  check_elements<encoders::fp16_format>(dtype::f16);
  check_elements<encoders::bf16_format>(dtype::bf16);
}

/// Every element next to others, at every position of a group, and every code likewise.
template <class Wide, class Format>
void check_words(dtype dtype, value_format format) {
  const element_type type = element_type_of(dtype);
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(format, rule);
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      group<std::uint16_t> g;
      std::uint8_t expected[group_elements];
      for (unsigned i = 0; i < group_elements; ++i) {
        g.value[i] = static_cast<std::uint16_t>(bits + i * 0x1357 * (bits & 1));
        const float value = widen<Wide>(g.value[i]);
        expected[i] = rule == underflow_rule::to_zero ? narrow<Format, underflow_rule::to_zero>(value)
                                                      : narrow<Format, underflow_rule::keep_nonzero>(value);
      }
      std::uint32_t codes[2];
      fp8_codes_of(g, type, c, codes);
      for (unsigned i = 0; i < group_elements; ++i)
        ASSERT_EQ(codes[i / 4] >> (8 * (i % 4)) & 0xff, expected[i]) << std::hex << g.value[i];
      // And back, with any eight codes, which may have NaN and infinity among them.
      std::uint32_t words[2][2];
      for (unsigned w = 0; w < 4; ++w)
        words[w / 2][w % 2] = bits * 0x01010101U + w * 0x10203040U * (bits >> 8);
      packed_group<std::uint16_t> back[2];
      packed_group<std::uint32_t> exact[2];
      fp8_elements_of(words, type, c, back);
      fp8_elements_of(words, type, c, exact);
      for (unsigned at = 0; at < 2; ++at) {
        bool special = false;
        for (unsigned i = 0; i < group_elements; ++i) {
          const auto code = static_cast<std::uint8_t>(words[at][i / 4] >> (8 * (i % 4)));
          const float value = widen<Format>(code);
          special = special || !(std::fabs(value) <= 57344.0F);
          const std::uint16_t rounded = narrow<Wide, underflow_rule::to_zero>(value);
          ASSERT_EQ(back[at].value(i), rounded) << std::hex << words[at][i / 4];
          ASSERT_EQ(exact[at].value(i), as_bits(value)) << std::hex << words[at][i / 4];
        }
        ASSERT_EQ(any_special_fp8(words[at], c), special) << std::hex << words[at][0] << ' ' << words[at][1];
      }
    }
  }
}

/// What devices without instructions for 8-bit codes do is what the others do, but for NaN.
template <class Format, bool E5m2>
void check_halves_of_fp8() {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t codes = code | (code ^ 0x80) << 8 | ((code + 1) & 0xff) << 16 | code * 5 << 24;
    std::uint32_t found[2];
    std::uint32_t expected[2];
    halves_of_fp8<E5m2, false>(codes, found);
    halves_of_fp8<E5m2, true>(codes, expected);
    for (unsigned i = 0; i < 4; ++i) {
      const float value = widen<Format>(static_cast<std::uint8_t>(codes >> (8 * i)));
      if (value != value) continue;
      const auto half = static_cast<std::uint16_t>(found[i / 2] >> (16 * (i % 2)));
      ASSERT_EQ(half, (narrow<encoders::fp16_format, underflow_rule::to_zero>(value))) << std::hex << codes;
      ASSERT_EQ(half, static_cast<std::uint16_t>(expected[i / 2] >> (16 * (i % 2)))) << std::hex << codes;
    }
  }
}

TEST(device_conversions, of_8_bit_codes_by_arithmetic) {
  check_halves_of_fp8<encoders::fp8_e4m3_format, false>();
  check_halves_of_fp8<encoders::fp8_e5m2_format, true>();
}

/// Every mask of a group, from every position, against one byte after the other.
TEST(device_bytes, are_spread_by_a_mask) {
  vector16 bytes[3];
  for (unsigned i = 0; i < 12; ++i)
    bytes[i / 4].word[i % 4] = 0x03020100U + 0x04040404U * i + 0xc5000000U * (i % 3);
  const auto* const from = reinterpret_cast<const std::uint8_t*>(bytes);
  for (std::uint32_t first = 0; first < 36; ++first) {
    for (std::uint32_t bits = 0; bits < 256; ++bits) {
      std::uint32_t words[2];
      spread_bytes(bits, bytes, first, words);
      std::uint32_t next = first;
      for (unsigned i = 0; i < group_elements; ++i) {
        const std::uint32_t expected = (bits >> i & 1) != 0 ? from[next++] : 0;
        ASSERT_EQ(words[i / 4] >> (8 * (i % 4)) & 0xff, expected) << first << ' ' << bits << ' ' << i;
      }
    }
  }
}

/// Pairs of all 16-bit elements as fp10.
template <class Format, class Convert>
void check_fp10_of_pairs(const Convert& convert) {
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(value_format::fp10, rule);
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      std::uint32_t pairs[3];
      std::uint32_t expected[6];
      for (unsigned i = 0; i < 6; ++i) {
        const auto element = static_cast<std::uint16_t>(bits + i * 0x1357 * (bits & 1));
        pairs[i / 2] = i % 2 == 0 ? element : pairs[i / 2] | std::uint32_t{element} << 16;
        const float value = widen<Format>(element);
        expected[i] = rule == underflow_rule::to_zero
                          ? narrow<encoders::fp10_format, underflow_rule::to_zero>(value)
                          : narrow<encoders::fp10_format, underflow_rule::keep_nonzero>(value);
      }
      for (std::uint32_t& pair : pairs)
        pair = convert(pair, c);
      std::uint32_t words[2];
      pack_fp10(pairs, words);
      for (unsigned i = 0; i < 6; ++i)
        ASSERT_EQ(words[i / 3] >> (10 * (i % 3)) & 0x3ff, expected[i]) << std::hex << bits << ' ' << i;
      ASSERT_EQ((words[0] | words[1]) >> 30, 0U);
    }
  }
}

TEST(device_conversions, of_pairs_to_fp10) {
  check_fp10_of_pairs<encoders::fp16_format>(fp10_of_halves);
  check_fp10_of_pairs<encoders::bf16_format>(fp10_of_bfloats);
}

/// Groups of f32 as words, from all magnitudes, and scaled codes as elements.
template <class Format>
void check_float_words(value_format format) {
  for (const underflow_rule rule : rules) {
    const value_conversion c = conversion_of(format, rule);
    float values[group_elements] = {};
    unsigned next = 0;
    for_each_f32([&](std::uint32_t bits) {
      values[next++ % group_elements] = as_float(bits);
      if (next % group_elements != 0) return;
      std::uint32_t words[2];
      fp8_codes_of(values, values, c, words);
      for (unsigned i = 0; i < group_elements; ++i) {
        const std::uint32_t expected = rule == underflow_rule::to_zero
                                           ? narrow<Format, underflow_rule::to_zero>(values[i])
                                           : narrow<Format, underflow_rule::keep_nonzero>(values[i]);
        if ((words[i / 4] >> (8 * (i % 4)) & 0xff) != expected)
          ADD_FAILURE() << std::hex << as_bits(values[i]);
      }
    });
  }
}

template <class Elements, class Wide, unsigned Bits>
void check_scaled_elements(value_format format, dtype dtype) {
  const element_type type = element_type_of(dtype);
  const value_conversion c = conversion_of(format, underflow_rule::to_zero);
  for (std::uint32_t scale = 0; scale < 255; ++scale) {
    for (std::uint32_t first = 0; first < 1U << Elements::bits; first += group_elements) {
      code_group codes{};
      codes.scale = static_cast<std::uint8_t>(scale);
      std::uint16_t expected[group_elements];
      float expected_f32[group_elements];
      bool special = false;
      for (unsigned i = 0; i < group_elements; ++i) {
        codes.code[i] = first + i;
        const float element = widen<Elements>(static_cast<std::uint8_t>(first + i));
        special = special || !(std::fabs(element) <= 57344.0F);
        expected_f32[i] = encoders::scaled_up(element, static_cast<int>(scale) - 127);
        expected[i] = narrow<Wide, underflow_rule::to_zero>(expected_f32[i]);
      }
      if (special) continue;
      pack_codes<Bits>(codes);
      const auto found = scaled_elements_of<Bits, std::uint16_t>(codes, type, c);
      const auto found_f32 = packed_values_of<std::uint32_t, Bits, true>(codes, {}, c);
      for (unsigned i = 0; i < group_elements; ++i) {
        ASSERT_EQ(found.value(i), expected[i]) << scale << ' ' << first + i;
        ASSERT_EQ(found_f32.value(i), as_bits(expected_f32[i])) << scale << ' ' << first + i;
      }
    }
  }
}

TEST(device_conversions, of_groups) {
  check_float_words<encoders::fp8_e4m3_format>(value_format::fp8_e4m3);
  check_float_words<encoders::fp8_e5m2_format>(value_format::fp8_e5m2);
  for_each_format([](auto form) {
    using elements = decltype(form);
    if constexpr (elements::scaled) {
      check_scaled_elements<elements, encoders::fp16_format, elements::bits>(elements::format, dtype::f16);
      check_scaled_elements<elements, encoders::bf16_format, elements::bits>(elements::format, dtype::bf16);
    }
  });
}

/// Every code of fp10 at every position of eight words of memory, from where groups are taken.
template <class Wide>
void check_groups_of_fp10(dtype dtype) {
  const element_type type = element_type_of(dtype);
  device_cast cast{};
  cast.conversion = conversion_of(value_format::fp10, underflow_rule::to_zero);
  for (std::uint32_t first = 0; first < 1024; ++first) {
    const auto code_at = [&](std::uint32_t i) { return (first + i * (i % 2 == 0 ? 37 : 411)) & 0x3ff; };
    std::uint32_t memory[8];
    // In the highest bits is anything.
    for (std::uint32_t w = 0; w < 8; ++w)
      memory[w] = code_at(3 * w) | code_at(3 * w + 1) << 10 | code_at(3 * w + 2) << 20 | first << 30;
    cast.codes = reinterpret_cast<std::uint8_t*>(memory);
    cast.bytes = sizeof(memory);
    for (std::uint32_t index = 0; index < 3; ++index) {
      code_group codes = load_codes<10, false>(cast, index);
      take_codes<10>(codes);
      packed_group<std::uint16_t> found;
      packed_group<std::uint32_t> exact;
      fp10_elements_of(codes, type, cast.conversion, found);
      fp10_elements_of(codes, type, cast.conversion, exact);
      for (unsigned i = 0; i < group_elements; ++i) {
        const std::uint32_t code = code_at(index * group_elements + i);
        const float value = widen<encoders::fp10_format>(static_cast<std::uint16_t>(code));
        ASSERT_EQ(codes.code[i], code);
        ASSERT_EQ(found.value(i), (narrow<Wide, underflow_rule::to_zero>(value))) << std::hex << code;
        ASSERT_EQ(exact.value(i), as_bits(value)) << std::hex << code;
      }
    }
  }
}

TEST(device_conversions, of_groups_of_fp10) {
  check_groups_of_fp10<encoders::fp16_format>(dtype::f16);
  check_groups_of_fp10<encoders::bf16_format>(dtype::bf16);
}

TEST(device_conversions, of_words_of_8_bit_codes) {
  check_words<encoders::fp16_format, encoders::fp8_e4m3_format>(dtype::f16, value_format::fp8_e4m3);
  check_words<encoders::fp16_format, encoders::fp8_e5m2_format>(dtype::f16, value_format::fp8_e5m2);
  check_words<encoders::bf16_format, encoders::fp8_e4m3_format>(dtype::bf16, value_format::fp8_e4m3);
  check_words<encoders::bf16_format, encoders::fp8_e5m2_format>(dtype::bf16, value_format::fp8_e5m2);
}

}  // namespace
}  // namespace stash::kernels
