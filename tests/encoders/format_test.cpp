// SPDX-License-Identifier: Apache-2.0
// Names, sizes, and the hand-written examples of docs/format.md.

#include <gtest/gtest.h>

#include <limits>

#include "encoders/support.hpp"
#include "stash/relu.hpp"
#include "support/format_names.hpp"

namespace {

using namespace stash;
using namespace stash_test;

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const std::vector<std::int64_t> edges{0,    1,    2,    7,    8,    9,    15,   16,  17,
                                      31,   32,   33,   127,  128,  129,  255,  256, 257,
                                      1023, 1024, 1025, 2047, 2048, 2049, 4096, 5000};

std::vector<std::uint8_t> encode_exactly(const encoding& e, const std::vector<float>& values) {
  const std::size_t size = encoded_bytes_exact(e, view_of(values), {});
  guarded_buffer buffer(size);
  encode_report report;
  encode(e, view_of(values), {buffer.data(), buffer.size(), nullptr, &report}, {}, {});
  EXPECT_TRUE(buffer.guards_intact());
  EXPECT_EQ(report.status, status_ok);
  EXPECT_EQ(report.slot_bytes, size);
  EXPECT_EQ(report.overflow_bytes, 0u);
  return buffer.copy();
}

TEST(names, are_stable_and_parse_back) {
  for (const char* name : {"raw", "shape_only", "sign_mask", "range_mask", "window_index", "relu_pool"}) {
    EXPECT_EQ(to_string(parse_encoding(name)), name);
  }
  const std::vector<std::string> formats = stash_test::format_names();
  for (const std::string& format : formats) {
    EXPECT_EQ(to_string(parse_encoding(format)), format);
    EXPECT_EQ(parse_encoding(format).kind, encoding_kind::cast);
  }
  for (const std::string kind : {"bitmap", "csr"}) {
    EXPECT_EQ(to_string(parse_encoding(kind)), kind);
    for (const std::string& format : formats) {
      EXPECT_EQ(to_string(parse_encoding(kind + "_" + format)), kind + "_" + format);
      EXPECT_EQ(parse_encoding(kind + "_" + format).values, parse_encoding(format).values);
    }
  }
  EXPECT_EQ(parse_encoding("bitmap_fp8").values, value_format::fp8_e4m3);
  EXPECT_EQ(parse_encoding("fp16").kind, encoding_kind::cast);
  for (const char* name :
       {"", "RAW", "fp32", "bitmap ", "bitmap_", "csr_fp32", "bitmap_bitmap", "bitmap_csr", "cast"}) {
    EXPECT_EQ(code_of([&] { parse_encoding(name); }), errc::invalid_argument) << name;
  }
  try {
    parse_encoding("zip");
    FAIL();
  } catch (const error& failure) {
    EXPECT_NE(std::string(failure.what()).find("parse_encoding: name: expected one of raw"),
              std::string::npos);
    EXPECT_NE(std::string(failure.what()).find("bitmap_"), std::string::npos);
    EXPECT_NE(std::string(failure.what()).find("got \"zip\""), std::string::npos);
  }
}

TEST(names, error_codes_have_them) {
  EXPECT_EQ(to_string(errc::ok), "ok");
  EXPECT_EQ(to_string(errc::capacity_exceeded), "capacity_exceeded");
  EXPECT_EQ(to_string(static_cast<errc>(99)), "unknown");
}

TEST(lossless, is_what_keeps_bits) {
  for (const char* name : {"raw", "shape_only", "sign_mask", "window_index", "relu_pool", "bitmap"}) {
    EXPECT_TRUE(is_lossless(parse_encoding(name))) << name;
  }
  for (const char* name : {"fp16", "fp8", "bitmap_fp16", "bitmap_fp8"}) {
    EXPECT_FALSE(is_lossless(parse_encoding(name))) << name;
  }
  for (const int number : {9, 77, 255}) {
    EXPECT_FALSE(is_lossless({.kind = static_cast<encoding_kind>(number)})) << number;
  }
  EXPECT_FALSE(is_lossless({.kind = encoding_kind::csr, .values = static_cast<value_format>(11)}));
}

TEST(shape, checks_its_dimensions) {
  EXPECT_EQ(shape({2, 3, 4}).elements(), 24);
  EXPECT_EQ(shape().elements(), 1);
  EXPECT_EQ(shape({5, 0, 4}).elements(), 0);
  EXPECT_EQ(shape({std::int64_t{1} << 56}).elements(), std::int64_t{1} << 56);
  EXPECT_EQ(code_of([] { shape({1, 1, 1, 1, 1, 1, 1, 1}); }), errc::ok);
  EXPECT_EQ(code_of([] { shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }), errc::invalid_argument);
  EXPECT_EQ(code_of([] { shape({3, -1}); }), errc::invalid_argument);
  EXPECT_EQ(code_of([] { shape({std::int64_t{1} << 56, 2}); }), errc::invalid_argument);
  EXPECT_EQ(code_of([] {
              shape({std::int64_t{1} << 40, 0, std::int64_t{1} << 40});
            }),
            errc::invalid_argument);
}

std::size_t round16(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + 15) / 16 * 16);
}

TEST(sizes, bound_follows_the_table) {
  for (const std::int64_t n : edges) {
    const auto bound = [n](const char* name, dtype type, int taps = 0) {
      encoding e = parse_encoding(name);
      e.window_taps = static_cast<std::uint16_t>(taps);
      return encoded_bytes_bound(e, type, n);
    };
    EXPECT_EQ(bound("raw", dtype::f32), round16(4 * n));
    EXPECT_EQ(bound("raw", dtype::f16), round16(2 * n));
    EXPECT_EQ(bound("raw", dtype::u8), round16(n));
    EXPECT_EQ(bound("shape_only", dtype::f32), 0u);
    EXPECT_EQ(bound("sign_mask", dtype::f32), round16((n + 7) / 8));
    EXPECT_EQ(bound("sign_mask", dtype::u8), round16((n + 7) / 8));
    EXPECT_EQ(bound("fp16", dtype::f32), round16(2 * n));
    EXPECT_EQ(bound("fp8", dtype::f32), round16(n));
    EXPECT_EQ(bound("window_index", dtype::f32, 4), round16((n + 3) / 4));
    EXPECT_EQ(bound("window_index", dtype::f32, 5), round16((n + 1) / 2));
    EXPECT_EQ(bound("window_index", dtype::f32, 16), round16((n + 1) / 2));
    EXPECT_EQ(bound("window_index", dtype::f32, 17), round16(n));
    EXPECT_EQ(bound("window_index", dtype::f32, 256), round16(n));
    EXPECT_EQ(bound("relu_pool", dtype::f32, 4), round16((n + 3) / 4) + round16((n + 7) / 8));
    EXPECT_EQ(bound("relu_pool", dtype::f32, 15), round16((n + 1) / 2));
    const std::int64_t tiles = (n + 1023) / 1024;
    EXPECT_EQ(bound("bitmap", dtype::f32), round16((n + 7) / 8) + round16(4 * tiles) + round16(4 * n));
    EXPECT_EQ(bound("bitmap_fp8", dtype::f32), round16((n + 7) / 8) + round16(4 * tiles) + round16(n));
    for (const char* name : {"raw", "sign_mask", "bitmap", "fp8"}) {
      EXPECT_EQ(workspace_bytes(parse_encoding(name), dtype::f32, n), 0u);
    }
  }
}

TEST(sizes, refuse_what_has_no_meaning) {
  const auto bound = [](const encoding& e, dtype type, std::int64_t n = 4) {
    return code_of([&] { encoded_bytes_bound(e, type, n); });
  };
  EXPECT_EQ(bound(parse_encoding("raw"), dtype::f32, -1), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("raw"), dtype::f32, (std::int64_t{1} << 56) + 1), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("raw"), static_cast<dtype>(17)), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("bitmap"), dtype::u8), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("csr"), dtype::s32), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("bf16"), dtype::f16), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("fp10"), dtype::f16), errc::ok);
  EXPECT_EQ(bound(parse_encoding("range_mask"), dtype::u8), errc::invalid_argument);
  EXPECT_EQ(bound({.kind = encoding_kind::range_mask, .lower = 1.0F, .upper = 1.0F}, dtype::f32),
            errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("fp16"), dtype::u8), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("sign_mask"), dtype::s32), errc::invalid_argument);
  EXPECT_EQ(bound(encoding{encoding_kind::cast}, dtype::f32), errc::invalid_argument);
  EXPECT_EQ(bound(encoding{static_cast<encoding_kind>(40)}, dtype::f32), errc::invalid_argument);
  EXPECT_EQ(bound(parse_encoding("window_index"), dtype::f32), errc::invalid_argument);
  encoding joint = parse_encoding("relu_pool");
  joint.window_taps = 16;
  EXPECT_EQ(bound(joint, dtype::f32), errc::invalid_argument);
  encoding cast = parse_encoding("fp8");
  cast.underflow = static_cast<underflow_rule>(9);
  EXPECT_EQ(bound(cast, dtype::f32), errc::invalid_argument);
  for (const double density : {-0.1, 1.1, static_cast<double>(nan)}) {
    EXPECT_EQ(code_of([&] { encoded_bytes_at_density(parse_encoding("bitmap"), dtype::f32, 8, density); }),
              errc::invalid_argument);
  }
}

TEST(sizes, at_density_holds_every_spread_and_stays_below_the_bound) {
  for (const char* name : {"bitmap", "bitmap_fp16", "bitmap_fp8"}) {
    const encoding e = parse_encoding(name);
    for (const std::int64_t n : edges) {
      for (const double density : {0.0, 0.001, 0.1, 0.5, 0.9, 1.0}) {
        const auto ones = static_cast<std::int64_t>(density * static_cast<double>(n));
        const double share = n == 0 ? 0 : static_cast<double>(ones) / static_cast<double>(n);
        const std::size_t size = encoded_bytes_at_density(e, dtype::f32, n, share);
        EXPECT_LE(size, encoded_bytes_bound(e, dtype::f32, n));
        EXPECT_EQ(size % 16, 0u);
        std::vector<float> front(static_cast<std::size_t>(n), 0.0f);
        std::fill_n(front.begin(), ones, 1.0f);
        EXPECT_LE(encoded_bytes_exact(e, view_of(front), {}), size) << name << n << ' ' << density;
        std::vector<float> spread = front;
        std::shuffle(spread.begin(), spread.end(), std::mt19937(5));
        EXPECT_LE(encoded_bytes_exact(e, view_of(spread), {}), size) << name << n << ' ' << density;
      }
      EXPECT_EQ(encoded_bytes_at_density(e, dtype::f32, n, 1.0), encoded_bytes_bound(e, dtype::f32, n));
    }
  }
  EXPECT_EQ(encoded_bytes_at_density(parse_encoding("fp16"), dtype::f32, 100, 0.1), 208u);
}

TEST(golden, sign_mask) {
  const std::vector<float> values{1, -1, 0, nan, -0.0f, 0.5f, inf, -inf, 2, 1e-40f};
  encoding e = parse_encoding("sign_mask");
  EXPECT_EQ(encode_exactly(e, values), parse_hex("61 03 00*14"));
  e.rule = framework_rule::pytorch;
  EXPECT_EQ(encode_exactly(e, values), parse_hex("69 03 00*14"));
}

TEST(golden, casts) {
  const std::vector<float> wide{1, 65520, -inf, -std::ldexp(1.0f, -25), nan};
  EXPECT_EQ(encode_exactly(make_encoding("fp16"), wide), parse_hex("00 3C FF 7B 00 FC 00 80 00 7E 00*6"));
  EXPECT_EQ(encode_exactly(make_encoding("fp16", underflow_rule::keep_nonzero), wide),
            parse_hex("00 3C FF 7B 00 FC 01 80 00 7E 00*6"));
  const std::vector<float> tiny{1, -1e9f, inf, std::ldexp(1.0f, -10), std::ldexp(1.0f, -11), 0};
  EXPECT_EQ(encode_exactly(make_encoding("fp8"), tiny), parse_hex("38 FE 7E 00 00 00 00*10"));
  EXPECT_EQ(encode_exactly(make_encoding("fp8", underflow_rule::keep_nonzero), tiny),
            parse_hex("38 FE 7E 01 01 00 00*10"));
}

TEST(golden, bitmap) {
  const std::vector<float> small{0, 1, -0.0f, 0, 2.5f};
  const std::string fixed = "16 00*15  02 00 00 00 00*12 ";
  EXPECT_EQ(encode_exactly(parse_encoding("bitmap"), small),
            parse_hex(fixed + "00 00 80 3F 00 00 00 80 00 00 20 40 00*4"));
  EXPECT_EQ(encode_exactly(parse_encoding("bitmap_fp8"), small), parse_hex(fixed + "38 80 42 00*13"));

  std::vector<float> two_tiles(1026, 0.0f);
  two_tiles.front() = 1;
  two_tiles.back() = -2;
  EXPECT_EQ(
      encode_exactly(parse_encoding("bitmap"), two_tiles),
      parse_hex("01 00*127 02 00*15  0A 00 00 00 0B 00 00 00 00*8  00 00 80 3F 00*12  00 00 00 C0 00*12"));
}

TEST(golden, bitmap_that_overflows) {
  std::vector<float> values(1026, 0.0f);
  values.front() = 1;
  values.back() = -2;
  guarded_buffer slot(176);
  guarded_buffer memory(96);
  std::uint64_t claimed = 64;
  const overflow_arena arena{memory.data(), memory.size(), &claimed};
  encode_report report;
  encode(parse_encoding("bitmap"), view_of(values), {slot.data(), slot.size(), &arena, &report}, {}, {});
  EXPECT_EQ(slot.copy(), parse_hex("01 00*127 02 00*15  0A 00 00 00 04 00 00 40 00*8  00 00 80 3F 00*12"));
  EXPECT_EQ(memory.copy(), parse_hex("CD*64 00 00 00 C0 00*12 CD*16"));
  EXPECT_EQ(claimed, 80u);
  EXPECT_EQ(report.status, status_ok);
  EXPECT_EQ(report.overflow_bytes, 16u);
  EXPECT_EQ(report.slot_bytes, 176u);
}

TEST(golden, bitmap_that_overflows_to_the_host) {
  std::vector<float> values(1026, 0.0f);
  values.front() = 1;
  values.back() = -2;
  guarded_buffer slot(176);
  guarded_buffer memory(64);
  guarded_buffer host(48);
  std::uint64_t claimed = 64;
  std::uint64_t host_claimed = 16;
  const overflow_arena arena{memory.data(), memory.size(), &claimed, host.data(), host.size(), &host_claimed};
  encode_report report;
  encode(parse_encoding("bitmap"), view_of(values), {slot.data(), slot.size(), &arena, &report}, {}, {});
  EXPECT_EQ(slot.copy(), parse_hex("01 00*127 02 00*15  0A 00 00 00 01 00 00 80 00*8  00 00 80 3F 00*12"));
  EXPECT_EQ(memory.copy(), parse_hex("CD*64"));
  EXPECT_EQ(host.copy(), parse_hex("CD*16 00 00 00 C0 00*12 CD*16"));
  EXPECT_EQ(claimed, 80u);
  EXPECT_EQ(host_claimed, 32u);
  EXPECT_EQ(report.status, status_ok);
  EXPECT_EQ(report.overflow_bytes, 16u);
  EXPECT_EQ(report.slot_bytes, 176u);
}

TEST(raw, keeps_every_type_and_pads_with_zeros) {
  const std::vector<float> values{1, nan, -0.0f, 4, 5};
  EXPECT_EQ(encode_exactly(parse_encoding("raw"), values),
            parse_hex("00 00 80 3F 00 00 C0 7F 00 00 00 80 00 00 80 40 00 00 A0 40 00*12"));
  std::vector<std::uint8_t> bytes{9, 8, 7};
  guarded_buffer buffer(16);
  encode_report report;
  encode(parse_encoding("raw"), view_of(bytes), {buffer.data(), 16, nullptr, &report}, {}, {});
  EXPECT_EQ(buffer.copy(), parse_hex("09 08 07 00*13"));
  std::vector<std::uint8_t> back(3);
  decode(
      {parse_encoding("raw"), view_of(back).type, view_of(back).dims, {buffer.data(), 16, nullptr, &report}},
      view_of(back), {}, {});
  EXPECT_EQ(back, bytes);
}

TEST(sign_mask, of_bytes_means_not_zero_and_decodes_to_bytes) {
  for (const std::int64_t n : edges) {
    std::vector<std::uint8_t> source(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < source.size(); ++i)
      source[i] = static_cast<std::uint8_t>(i % 3 == 0 ? 0 : i % 256);
    const encoding e = parse_encoding("sign_mask");
    guarded_buffer buffer(encoded_bytes_bound(e, dtype::u8, n));
    encode_report report;
    encode(e, view_of(source), {buffer.data(), buffer.size(), nullptr, &report}, {}, {});
    EXPECT_TRUE(buffer.guards_intact());
    // Decoders ignore padding: spoil it.
    for (std::int64_t i = n; i < static_cast<std::int64_t>(buffer.size()) * 8; ++i) {
      buffer.data()[i / 8] = static_cast<std::uint8_t>(buffer.data()[i / 8] | (1u << (i % 8)));
    }
    std::vector<std::uint8_t> back(static_cast<std::size_t>(n), 77);
    decode({e, view_of(back).type, view_of(back).dims, {buffer.data(), buffer.size(), nullptr, &report}},
           view_of(back), {}, {});
    for (std::size_t i = 0; i < back.size(); ++i)
      ASSERT_EQ(back[i], source[i] != 0 ? 1 : 0) << n << ' ' << i;
    EXPECT_EQ(report.status, status_ok);
  }
}

TEST(shape_only, stores_nothing) {
  encode_report report;
  const std::vector<float> values{1, 2};
  encode(parse_encoding("shape_only"), view_of(values), {nullptr, 0, nullptr, &report}, {}, {});
  EXPECT_EQ(report.slot_bytes, 0u);
}

TEST(every_value_encoding, round_trips_at_edges_dense_and_pitched) {
  for (const char* name : {"raw", "bitmap", "bitmap_fp16", "bitmap_fp8", "fp16", "fp8"}) {
    const encoding e = parse_encoding(name);
    for (const std::int64_t n : edges) {
      const std::vector<float> values = make_values(n, 0.6, flavour::special, static_cast<std::uint32_t>(n));
      const std::vector<std::uint8_t> bytes = encode_exactly(e, values);
      std::vector<float> back(values.size(), -5.0f);
      guarded_buffer stored(bytes.size());
      if (!bytes.empty()) std::memcpy(stored.data(), bytes.data(), bytes.size());
      encode_report report;
      decode({e, view_of(back).type, view_of(back).dims, {stored.data(), stored.size(), nullptr, &report}},
             view_of(back), {}, {});
      EXPECT_EQ(report.status, status_ok);
      if (is_lossless(e)) {
        ASSERT_EQ(bits_of(back), bits_of(values)) << name << ' ' << n;
      }
      for (const std::int64_t channels : {1, 3, 17}) {
        if (n % channels != 0 || n == 0) continue;
        pitched_map source(values, channels, channels + 5, 2);
        EXPECT_EQ(encoded_bytes_exact(e, source.view(), {}), bytes.size());
        guarded_buffer pitched(bytes.size());
        encode_report pitched_report;
        encode(e, source.view(), {pitched.data(), pitched.size(), nullptr, &pitched_report}, {}, {});
        ASSERT_EQ(pitched.copy(), bytes) << name << ' ' << n << ' ' << channels;
        EXPECT_TRUE(pitched.guards_intact());
        pitched_map target(std::vector<float>(values.size(), 3.0f), channels, channels + 4, 1);
        decode({e,
                target.view().type,
                target.view().dims,
                {pitched.data(), pitched.size(), nullptr, &pitched_report}},
               target.view(), {}, {});
        ASSERT_EQ(bits_of(target.values()), bits_of(back)) << name << ' ' << n << ' ' << channels;
        EXPECT_TRUE(target.neighbours_intact());
      }
    }
  }
}

}  // namespace
