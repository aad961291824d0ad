// Casts of f32 over runs of consecutive bit patterns, on every instruction set that this processor has,
// against the second implementation of the format. STASH_CAST_STRIDE=1 takes all 2^32 patterns; without it
// every 257th run of 65,536 is taken.
//
// The expected codes are found by the monotony of rounding: between two inputs of one sign that get the same
// code, all get it. MX formats have a scale in common for 32 values; there the plain C++ loops are compared
// with the second implementation on a sample of the runs, and all instruction sets with the plain loops on
// every run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "format/reference.hpp"
#include "stash/cpu.hpp"
#include "stash/encoding.hpp"

namespace stash {
namespace {

constexpr std::uint32_t run_length = 1U << 16;
constexpr std::uint32_t runs = 1U << 16;
constexpr std::uint32_t sampled = 257;  // prime: all exponents and both halves of every mantissa come up

std::uint32_t stride() {
  const char* text = std::getenv("STASH_CAST_STRIDE");
  return text == nullptr ? sampled : static_cast<std::uint32_t>(std::max(1L, std::atol(text)));
}

using codes = std::vector<std::uint32_t>;
using narrow_function = std::function<std::uint32_t(std::uint32_t)>;

/// narrow(first + i) for all i, by halving wherever the ends differ.
void fill(std::uint32_t first, std::uint32_t* out, std::uint32_t count, const narrow_function& narrow) {
  const std::uint32_t begin = narrow(first);
  if (count == 1 || begin == narrow(first + (count - 1))) {
    std::fill(out, out + count, begin);
    return;
  }
  fill(first, out, count / 2, narrow);
  fill(first + count / 2, out + count / 2, count - count / 2, narrow);
}

codes expected_codes(value_format format, underflow_rule underflow, std::uint32_t first) {
  const narrow_function narrow = [&](std::uint32_t bits) {
    return reference::narrow(format, underflow, bits);
  };
  codes out(run_length);
  // Infinity begins a run: in that run the first pattern stands alone before the NaNs.
  const bool infinity = (first & 0x7fffffffU) == 0x7f800000U;
  if (infinity) out[0] = narrow(first);
  fill(first + (infinity ? 1U : 0U), out.data() + (infinity ? 1 : 0), run_length - (infinity ? 1U : 0U),
       narrow);
  return out;
}

/// The bytes of the codes in a row, as docs/format.md packs them.
std::vector<std::uint8_t> packed(value_format format, const codes& all) {
  std::vector<std::uint8_t> bytes;
  if (format == value_format::fp10) {
    for (std::size_t i = 0; i < all.size(); i += 3) {
      std::uint32_t word = 0;
      for (std::size_t k = 0; k < 3 && i + k < all.size(); ++k)
        word |= all[i + k] << (10 * k);
      for (int b = 0; b < 4; ++b)
        bytes.push_back(static_cast<std::uint8_t>(word >> (8 * b)));
    }
  } else {
    const bool two = format == value_format::fp16 || format == value_format::bf16;
    for (const std::uint32_t code : all) {
      bytes.push_back(static_cast<std::uint8_t>(code));
      if (two) bytes.push_back(static_cast<std::uint8_t>(code >> 8));
    }
  }
  bytes.resize((bytes.size() + 15) / 16 * 16);
  return bytes;
}

struct cast_run {
  std::vector<float> x = std::vector<float>(run_length), back = x;
  std::vector<std::uint8_t> room;
  std::uint8_t* bytes = nullptr;
  std::size_t size = 0;

  explicit cast_run(const encoding& e) : size(encoded_bytes_bound(e, dtype::f32, run_length)) {
    room.resize(size + 16);
    bytes = room.data() + (16 - reinterpret_cast<std::uintptr_t>(room.data()) % 16) % 16;
  }
  void load(std::uint32_t first) {
    std::vector<std::uint32_t> patterns(run_length);
    for (std::uint32_t i = 0; i < run_length; ++i)
      patterns[i] = first + i;
    std::memcpy(x.data(), patterns.data(), run_length * 4);
  }
  void go(const encoding& e) {
    encode_report report;
    encode(e, {x.data(), dtype::f32, memory_space::host, {run_length}, 0}, {bytes, size, nullptr, &report},
           {}, {});
    decode(e, {bytes, size, nullptr, &report}, {back.data(), dtype::f32, memory_space::host, {run_length}, 0},
           {}, {});
    ASSERT_EQ(report.status, 0U);
  }
};

class casts : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string target_ = cpu_target();
  void TearDown() override { set_cpu_target(target_); }
};

TEST_P(casts, of_every_pattern) {
  for (const underflow_rule underflow : {underflow_rule::to_zero, underflow_rule::keep_nonzero}) {
    encoding e = parse_encoding(GetParam());
    e.underflow = underflow;
    const bool two_bytes = e.values == value_format::fp16 || e.values == value_format::bf16;
    std::vector<float> values(std::size_t{1} << (two_bytes ? 16 : e.values == value_format::fp10 ? 10 : 8));
    for (std::size_t code = 0; code < values.size(); ++code) {
      const std::uint32_t wide = reference::widen(e.values, static_cast<std::uint32_t>(code));
      std::memcpy(&values[code], &wide, 4);
    }
    cast_run run(e);
    std::vector<float> expected_values(run_length);
    for (std::uint64_t r = 0; r < runs; r += stride()) {
      const auto first = static_cast<std::uint32_t>(r * run_length);
      const codes expected = expected_codes(e.values, underflow, first);
      const std::vector<std::uint8_t> expected_bytes = packed(e.values, expected);
      for (std::uint32_t i = 0; i < run_length; ++i)
        expected_values[i] = values[expected[i]];
      run.load(first);
      for (const std::string& target : cpu_targets()) {
        set_cpu_target(target);
        run.go(e);
        ASSERT_EQ(run.size, expected_bytes.size());
        ASSERT_EQ(std::memcmp(run.bytes, expected_bytes.data(), run.size), 0)
            << target << ", patterns from " << first << ", rule " << static_cast<int>(underflow);
        ASSERT_EQ(std::memcmp(run.back.data(), expected_values.data(), run_length * 4), 0)
            << target << ", decoded, patterns from " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(formats, casts, ::testing::Values("fp16", "bf16", "fp10", "fp8", "fp8_e5m2"));

class mx_casts : public casts {};

TEST_P(mx_casts, of_every_pattern) {
  const encoding e = parse_encoding(GetParam());
  cast_run run(e), plain(e);
  const std::uint64_t checked = static_cast<std::uint64_t>(stride()) * (stride() == 1 ? sampled : 16);
  for (std::uint64_t r = 0; r < runs; r += stride()) {
    const auto first = static_cast<std::uint32_t>(r * run_length);
    run.load(first);
    plain.load(first);
    set_cpu_target("scalar");
    plain.go(e);
    if (r % checked == 0) {
      reference::tensor t;
      for (std::uint32_t i = 0; i < run_length; ++i)
        t.bits.push_back(first + i);
      const reference::encoded expected = reference::encode(e, t);
      ASSERT_EQ(std::memcmp(plain.bytes, expected.bytes.data(), plain.size), 0) << "patterns from " << first;
      const reference::tensor back = reference::decode(e, t);
      ASSERT_EQ(std::memcmp(plain.back.data(), back.bits.data(), run_length * 4), 0)
          << "patterns from " << first;
    }
    for (const std::string& target : cpu_targets()) {
      set_cpu_target(target);
      run.go(e);
      ASSERT_EQ(std::memcmp(run.bytes, plain.bytes, run.size), 0) << target << ", patterns from " << first;
      ASSERT_EQ(std::memcmp(run.back.data(), plain.back.data(), run_length * 4), 0)
          << target << ", decoded, patterns from " << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(formats, mx_casts,
                         ::testing::Values("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2",
                                           "mxfp4_e2m1"));

// All 65,536 values of the 16-bit types, to every format that has fewer bits.
TEST(casts16, of_every_value) {
  for (const dtype type : {dtype::f16, dtype::bf16}) {
    reference::tensor t;
    t.type = type;
    std::vector<std::uint16_t> x(run_length), back(run_length);
    for (std::uint32_t i = 0; i < run_length; ++i) {
      t.bits.push_back(i);
      x[i] = static_cast<std::uint16_t>(i);
    }
    for (const char* name : {"fp10", "fp8", "fp8_e5m2", "mxfp8_e4m3", "mxfp6_e3m2", "mxfp4_e2m1"}) {
      const encoding e = parse_encoding(name);
      const reference::encoded expected = reference::encode(e, t);
      const reference::tensor decoded = reference::decode(e, t);
      cast_run room(e);
      const std::size_t size = encoded_bytes_bound(e, type, run_length);
      ASSERT_EQ(size, expected.bytes.size());
      encode_report report;
      encode(e, {x.data(), type, memory_space::host, {run_length}, 0}, {room.bytes, size, nullptr, &report},
             {}, {});
      EXPECT_EQ(std::memcmp(room.bytes, expected.bytes.data(), size), 0) << name;
      decode(e, {room.bytes, size, nullptr, &report},
             {back.data(), type, memory_space::host, {run_length}, 0}, {}, {});
      for (std::uint32_t i = 0; i < run_length; ++i)
        ASSERT_EQ(back[i], decoded.bits[i]) << name << " of " << i;
    }
  }
}

}  // namespace
}  // namespace stash
