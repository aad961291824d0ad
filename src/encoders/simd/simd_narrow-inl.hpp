// SPDX-License-Identifier: Apache-2.0
// Runs of f32 to the narrow formats.
//
// Included once per instruction set, by simd_loops.cpp after simd_words-inl.hpp, so it has no guard.

#include <cstdint>

#include "encoders/format/convert.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

// The loops below convert every block as if it had no value that needs the general form, and look at the end
// of the run whether it had: with that form inside the loop, g++ 12 keeps the loop's constants in memory.

/// Converts again, in the general form, the blocks of a run with a magnitude that does not lie below `limit`.
template <class Format, underflow_rule Underflow>
HWY_NOINLINE void mend_bytes(const float* values, std::int64_t count, std::int32_t limit,
                             std::uint8_t* stored) {
  std::int64_t i = 0;
  for (; i + block_values <= count; i += block_values) {
    if (!all_below(largest_magnitudes<4>(values + i), limit))
      narrow_all<Format, Underflow>(values + i, block_values, stored + i);
  }
  narrow_all<Format, Underflow>(values + i, count - i, stored + i);
}

template <class Format, underflow_rule Underflow>
void narrow_to_bytes(const float* values, std::int64_t count, std::uint8_t* stored, destination where) {
  using codes = byte_block<Format, Underflow>;
  constexpr std::int32_t limit = (127 + 100) << 23;
  const codes block;
  const code_origin origin = origin_of<Format>();
  lane_vector largest = hn::Zero(lane_integers());
  fill_chunks<256>(
      count, stored, where, [&](std::int64_t first, std::int64_t n, std::uint8_t* some) HWY_ATTR {
        convert_blocks<block_values>(
            values + first, n, some, where, [&](const float* from, std::uint8_t* to) HWY_ATTR {
              hn::StoreU(block.convert(from, origin, origin, largest), typename codes::bytes(), to);
            });
      });
  if (all_below(largest, limit)) return;
  finish_streams(where);  // what is mended is written again
  mend_bytes<Format, Underflow>(values, count, limit, stored);
}

template <underflow_rule Underflow>
HWY_INLINE void narrow_to_bf16(const float* values, std::int64_t count, std::uint16_t* stored,
                               destination where) {
  using format = bf16_format;
  constexpr std::int64_t block = 2 * lane_count;
  const lane_integers di;
  const shorts d16;
  const auto round = [&](lane_vector v) HWY_ATTR {
    const lane_vector odd = hn::And(hn::ShiftRight<16>(v), set_lanes(1));
    return hn::ShiftRight<16>(hn::Add(hn::Add(v, set_lanes(0x7fff)), odd));
  };
  convert_blocks<block>(values, count, stored, where, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<2>(from), largest_finite_bits<format> + 1)) {
      narrow_all<format, Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    const lane_vector v0 = load_lanes_of(from);
    const lane_vector v1 = load_lanes_of(from + lane_count);
    auto codes = join(round(v0), round(v1));
    if constexpr (Underflow == underflow_rule::keep_nonzero) {
      const auto nonzero = hn::Min(join(magnitude_of(v0), magnitude_of(v1)), hn::Set(d16, 1));
      const auto zeros = hn::VecFromMask(d16, hn::Eq(hn::Add(codes, codes), hn::Zero(d16)));
      codes = hn::Or(codes, hn::And(zeros, nonzero));
    }
    hn::StoreU(untangle<2>(hn::BitCast(di, codes)), di, reinterpret_cast<std::int32_t*>(to));
  });
}

// The processor's conversion to f16 rounds as the format says from AVX2 on; what differs is mended
// around them. Below, Highway truncates.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

template <underflow_rule Underflow>
HWY_INLINE void narrow_to_halves(const float* values, std::int64_t count, std::uint16_t* stored,
                                 destination where) {
  constexpr std::int32_t smallest = 0x33800000;  // 2^-24
  constexpr std::int64_t block = 2 * lane_count;
  const hn::Rebind<hwy::float16_t, lane_floats> dh;
  convert_blocks<block>(values, count, stored, where, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<2>(from), largest_finite_bits<fp16_format> + 1)) {
      narrow_all<fp16_format, Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    for (std::int64_t i = 0; i < block; i += lane_count) {
      lane_vector v = load_lanes_of(from + i);
      if constexpr (Underflow == underflow_rule::keep_nonzero) {
        const lane_vector magnitude = magnitude_of(v);
        const lane_vector raised = hn::Max(magnitude, set_lanes(smallest));
        const lane_vector kept = hn::IfThenZeroElse(hn::Eq(magnitude, set_lanes(0)), raised);
        v = hn::Or(kept, hn::AndNot(set_lanes(f32_magnitude_mask), v));
      }
      const auto half = hn::DemoteTo(dh, hn::BitCast(lane_floats(), v));
      hn::StoreU(half, dh, reinterpret_cast<hwy::float16_t*>(to) + i);
    }
  });
}

#else

template <underflow_rule Underflow>
HWY_INLINE void narrow_to_halves(const float* values, std::int64_t count, std::uint16_t* stored,
                                 destination where) {
  using format = fp16_format;
  constexpr std::int64_t block = 2 * lane_count;
  constexpr std::int32_t smallest = smallest_normal_bits<format>;
  constexpr std::int32_t anchor = smallest + (anchor_height<format> << 23);
  const anchored_sum<format> add_anchor;
  const half_sum<0, 3> count_steps;
  const auto round = [&](lane_vector magnitude) HWY_ATTR {
    return hn::Sub(count_steps(add_anchor(magnitude, set_lanes(smallest))), set_lanes(anchor >> 13));
  };
  convert_blocks<block>(values, count, stored, where, [&](const float* from, std::uint16_t* to) HWY_ATTR {
    // What saturates, infinities and NaN are left to the general form.
    if (!all_below(largest_magnitudes<2>(from), largest_finite_bits<format> + 1)) {
      narrow_all<format, Underflow>(from, block, reinterpret_cast<std::uint8_t*>(to));
      return;
    }
    const lane_vector v0 = load_lanes_of(from);
    const lane_vector v1 = load_lanes_of(from + lane_count);
    const lane_vector magnitude0 = magnitude_of(v0);
    const lane_vector magnitude1 = magnitude_of(v1);
    short_vector codes = join(round(magnitude0), round(magnitude1));
    if constexpr (Underflow == underflow_rule::keep_nonzero)
      codes = hn::Max(codes, hn::Min(join(magnitude0, magnitude1), hn::Set(shorts(), 1)));
    const short_vector sign = hn::AndNot(hn::Set(shorts(), 0x7fff), join(v0, v1));
    hn::StoreU(untangle<2>(hn::BitCast(lane_integers(), hn::Or(codes, sign))), lane_integers(),
               reinterpret_cast<std::int32_t*>(to));
  });
}

#endif

template <underflow_rule Underflow>
void narrow_with(const float* values, std::int64_t count, value_format format, std::uint8_t* stored,
                 destination to) {
  constexpr std::int64_t chunk = 128;
  if (format == value_format::fp8_e4m3) {
    narrow_to_bytes<fp8_e4m3_format, Underflow>(values, count, stored, to);
  } else if (format == value_format::fp8_e5m2) {
    narrow_to_bytes<fp8_e5m2_format, Underflow>(values, count, stored, to);
  } else if (format == value_format::fp10) {
    narrow_to_words<Underflow>(values, count, reinterpret_cast<std::uint32_t*>(stored), to);
  } else if (format == value_format::bf16) {
    fill_chunks<chunk>(count, reinterpret_cast<std::uint16_t*>(stored), to,
                       [&](std::int64_t first, std::int64_t n, std::uint16_t* some)
                           HWY_ATTR { narrow_to_bf16<Underflow>(values + first, n, some, to); });
  } else if (format == value_format::fp16) {
    fill_chunks<chunk>(count, reinterpret_cast<std::uint16_t*>(stored), to,
                       [&](std::int64_t first, std::int64_t n, std::uint16_t* some)
                           HWY_ATTR { narrow_to_halves<Underflow>(values + first, n, some, to); });
  } else {
    narrow_values(values, count, format, Underflow, stored);
  }
}

void narrow_fast(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                 std::uint8_t* stored, destination to) {
  if (underflow == underflow_rule::keep_nonzero) {
    narrow_with<underflow_rule::keep_nonzero>(values, count, format, stored, to);
  } else {
    narrow_with<underflow_rule::to_zero>(values, count, format, stored, to);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
