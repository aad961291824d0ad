// SPDX-License-Identifier: Apache-2.0
// Packed values of the narrow formats to where they stood, widened on the way. Widened first, they would be
// stored and read back after stores that wait for memory.
//
// Included once per instruction set, by simd_loops.cpp after simd_widening-inl.hpp, so it has no guard.

#include <bit>
#include <cstdint>

#include "encoders/format/convert.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

// A vector of codes is widened for each vector of values, of which half may be zeros. With narrower vectors
// that takes longer than to widen the codes first.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

/// Widens a vector of codes, by way of f16.
template <class Format>
class code_widening {
 public:
  HWY_INLINE code_widening()
      : factor_(hn::Set(floats(), std::bit_cast<float>(half_rebias<Format>))), largest_(hn::Zero(d16)) {}

  HWY_INLINE float_vector operator()(const typename Format::storage* codes) {
    const auto code = load(codes);
    largest_ = hn::Max(largest_, hn::And(code, hn::Set(d16, magnitude_mask<Format>)));
    auto half = code;
    // The code's sign is in all bits above its magnitude.
    if constexpr (half_shift<Format> != 0)
      half = hn::And(hn::ShiftLeft<half_shift<Format>>(code), hn::Set(d16, half_bits<Format>));
    const auto value = hn::PromoteTo(floats(), hn::BitCast(hn::Rebind<hwy::float16_t, floats>(), half));
    if constexpr (half_rebias<Format> == 127 << 23) return value;
    return hn::Mul(value, factor_);
  }

  /// A NaN was among the codes: f16 would make a signalling one quiet, and e4m3's is a number there.
  HWY_INLINE bool any_nan() const {
    return !hn::AllFalse(d16, hn::Gt(largest_, hn::Set(d16, largest_code<Format>)));
  }

 private:
  using codes16 = hn::Rebind<std::int16_t, floats>;
  static constexpr codes16 d16{};

  static HWY_INLINE hn::Vec<codes16> load(const std::uint16_t* codes) {
    return hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(codes));
  }
  static HWY_INLINE hn::Vec<codes16> load(const std::uint8_t* codes) {
    const hn::Rebind<std::int8_t, codes16> d8;
    return hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(codes)));
  }

  float_vector factor_;
  hn::Vec<codes16> largest_;
};

template <class Format, bool Past>
bool expand_codes(const std::uint8_t* stored, const std::uint8_t* bits, std::int64_t count, float* values) {
  const auto* codes = reinterpret_cast<const typename Format::storage*>(stored);
  const std::ptrdiff_t ahead = fetch_distance(codes);
  code_widening<Format> widened;
  for (std::int64_t i = 0; i < count; i += group_lanes) {
    fetch_ahead<1>(codes, ahead);
    const unsigned group = group_bits(bits, i);
    store_vector<Past>(floats(), spread(widened(codes), group), values + i);
    codes += count_of_group(group);
  }
  return !widened.any_nan();
}

template <class Format>
bool expand_codes_to(const std::uint8_t* stored, const std::uint8_t* bits, std::int64_t count, float* values,
                     destination to) {
  if (!goes_past(values, to)) return expand_codes<Format, false>(stored, bits, count, values);
  if (expand_codes<Format, true>(stored, bits, count, values)) return true;
  finish_streams();  // all is written again
  return false;
}

bool expand_stored(const std::uint8_t* stored, value_format format, const std::uint8_t* bits,
                   std::int64_t count, float* values, destination to) {
  if (count % group_lanes != 0) return false;
  if (format == value_format::fp16) return expand_codes_to<fp16_format>(stored, bits, count, values, to);
  if (format == value_format::fp8_e4m3)
    return expand_codes_to<fp8_e4m3_format>(stored, bits, count, values, to);
  if (format == value_format::fp8_e5m2)
    return expand_codes_to<fp8_e5m2_format>(stored, bits, count, values, to);
  return false;
}

#else

bool expand_stored(const std::uint8_t*, value_format, const std::uint8_t*, std::int64_t, float*,
                   destination) {
  return false;
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
