// SPDX-License-Identifier: Apache-2.0
// Non-zero values in vectors: compaction, its inverse, and the columns of csr.
//
// Included once per instruction set, by simd_loops.cpp after simd_vectors-inl.hpp, so it has no guard.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "encoders/format/convert.hpp"
#include "encoders/format/masked.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

// Values are packed and spread by groups of lanes. AVX-512 has instructions for that, of which only the forms
// between registers are fast. Elsewhere tables say where each lane comes from; Highway's own Compress is
// slower there, and Expand is missing.

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

/// Keeps the compiler from making one instruction of a load or store and what is done with the vector.
HWY_INLINE float_vector in_register(float_vector v) {
  asm("" : "+v"(v.raw));
  return v;
}

HWY_INLINE unsigned group_bits(const std::uint8_t* bits, std::int64_t i) {
  std::uint16_t two;
  std::memcpy(&two, bits + i / 8, sizeof two);
  return two;
}
/// Of up to eight bits.
HWY_INLINE int count_of_group(unsigned bits) {
  return std::popcount(bits);
}
/// The lanes whose bit is set, in order, from lane 0.
HWY_INLINE float_vector pack(float_vector v, unsigned bits) {
  return in_register(float_vector{_mm512_maskz_compress_ps(static_cast<__mmask16>(bits), v.raw)});
}
/// Inverse of pack(): +0 where the bit is not set.
HWY_INLINE float_vector spread(float_vector v, unsigned bits) {
  return float_vector{_mm512_maskz_expand_ps(static_cast<__mmask16>(bits), in_register(v).raw)};
}

#elif HWY_TARGET == HWY_AVX2

/// For every mask of eight lanes: for each lane, how many set ones are before it, or -1 if it is not set.
constexpr auto lanes_before = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned before = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      const bool set = (mask >> lane & 1) != 0;
      table[mask] |= std::uint64_t{set ? before : 0xffU} << (8 * lane);
      before += set ? 1 : 0;
    }
  }
  return table;
}();

HWY_INLINE unsigned group_bits(const std::uint8_t* bits, std::int64_t i) {
  return bits[i / 8];
}
/// Of up to eight bits.
HWY_INLINE int count_of_group(unsigned bits) {
  return std::popcount(bits);
}
/// Lanes by the bytes of a table's word, of which the lowest three bits count.
HWY_INLINE __m256i lane_order(const std::uint64_t& entry) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&entry)));
}
/// The lanes whose bit is set, in order, from lane 0.
HWY_INLINE float_vector pack(float_vector v, unsigned bits) {
  return float_vector{_mm256_permutevar8x32_ps(v.raw, lane_order(set_bits[bits]))};
}
/// Inverse of pack(): +0 where the bit is not set.
HWY_INLINE float_vector spread(float_vector v, unsigned bits) {
  const __m256i order = lane_order(lanes_before[bits]);
  const __m256 moved = _mm256_permutevar8x32_ps(v.raw, order);
  return float_vector{_mm256_blendv_ps(moved, _mm256_setzero_ps(), _mm256_castsi256_ps(order))};
}

#else

using lane_bytes = std::array<std::uint8_t, 16>;

/// The bytes of lane `from` in lane `to`.
constexpr void move_lane(lane_bytes& bytes, unsigned from, unsigned to) {
  for (unsigned i = 0; i < 4; ++i)
    bytes[4 * to + i] = static_cast<std::uint8_t>(4 * from + i);
}
constexpr lane_bytes no_lanes = [] {
  lane_bytes bytes{};
  bytes.fill(0x80);
  return bytes;
}();

/// For every mask of four lanes, where the bytes come from when its lanes are packed, or spread again.
constexpr std::array<lane_bytes, 16> lane_moves(bool packs) {
  std::array<lane_bytes, 16> table{};
  for (unsigned mask = 0; mask < 16; ++mask) {
    table[mask] = no_lanes;
    unsigned before = 0;
    for (unsigned lane = 0; lane < 4; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      move_lane(table[mask], packs ? lane : before, packs ? before : lane);
      ++before;
    }
  }
  return table;
}
alignas(16) constexpr auto packed_bytes = lane_moves(true);
alignas(16) constexpr auto spread_bytes = lane_moves(false);

/// How many bits of a byte are set: not all of these targets have an instruction that counts.
constexpr auto bit_counts = [] {
  std::array<std::uint8_t, 256> counts{};
  for (unsigned byte = 0; byte < 256; ++byte)
    counts[byte] = static_cast<std::uint8_t>(std::popcount(byte));
  return counts;
}();

HWY_INLINE unsigned group_bits(const std::uint8_t* bits, std::int64_t i) {
  return (bits[i / 8] >> (i % 8)) & 0xFU;
}
/// Of up to eight bits.
HWY_INLINE int count_of_group(unsigned bits) {
  return bit_counts[bits];
}
HWY_INLINE float_vector move_bytes(float_vector v, const lane_bytes& from) {
  const hn::Repartition<std::uint8_t, floats> d8;
  return hn::BitCast(floats(), hn::TableLookupBytesOr0(hn::BitCast(d8, v), hn::Load(d8, from.data())));
}
/// The lanes whose bit is set, in order, from lane 0.
HWY_INLINE float_vector pack(float_vector v, unsigned bits) {
  return move_bytes(v, packed_bytes[bits]);
}
/// Inverse of pack(): +0 where the bit is not set.
HWY_INLINE float_vector spread(float_vector v, unsigned bits) {
  return move_bytes(v, spread_bytes[bits]);
}

#endif

constexpr std::int64_t group_lanes = hn::MaxLanes(floats());

/// Vectors are stored whole while they end before `end`; what comes then waits in a buffer.
void compact(const float* values, const std::uint8_t* bits, std::int64_t count, float* packed,
             std::int64_t kept) {
  const floats d;
  const float* const end = packed + kept;
  float tail[2 * group_lanes];
  float* waiting = tail;
  std::int64_t i = 0;
  for (; i + group_lanes <= count && packed + group_lanes <= end; i += group_lanes) {
    const unsigned group = group_bits(bits, i);
    hn::StoreU(pack(hn::LoadU(d, values + i), group), d, packed);
    packed += count_of_group(group);
  }
  const std::int64_t rest = end - packed;
  for (; i + group_lanes <= count && waiting - tail < rest; i += group_lanes) {
    const unsigned group = group_bits(bits, i);
    hn::StoreU(pack(hn::LoadU(d, values + i), group), d, waiting);
    waiting += count_of_group(group);
  }
  for (; i < count && waiting - tail < rest; ++i) {
    if (bit_at(bits, i)) *waiting++ = values[i];
  }
  std::memcpy(packed, tail, static_cast<std::size_t>(rest) * sizeof(float));
}

/// Past the caches go whole lines.
void copy(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* to, destination where) {
  constexpr std::int64_t line = run_alignment;
  const auto copy_some = [&](std::int64_t some) {
    if (some != 0) std::memcpy(to, from, static_cast<std::size_t>(some));  // null may be given for none
    from += some;
    to += some;
    bytes -= some;
  };
  if (where == destination::memory) {
    const auto offset_in_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % line);
    copy_some(std::min(bytes, (line - offset_in_line) % line));
    const hn::CappedTag<std::uint8_t, static_cast<std::size_t>(line)> d;
    constexpr std::int64_t vector = hn::MaxLanes(d);
    for (; bytes >= line; bytes -= line, from += line, to += line) {
      for (std::int64_t i = 0; i < line; i += vector)
        hn::Stream(hn::LoadU(d, from + i), d, to + i);
    }
  }
  copy_some(bytes);
}

/// Groups whose bits are known before the first of them is stored: where a group begins then waits
/// for counts of bits alone. One group at a time took 1.3 times as long where the map is in the caches.
constexpr std::int64_t joined_groups = 4;
constexpr std::int64_t joined_block = joined_groups * group_lanes;
constexpr std::size_t joined_bytes = static_cast<std::size_t>(joined_block) / 8;

HWY_INLINE unsigned group_of(std::uint64_t bits, std::int64_t group) {
  return static_cast<unsigned>(bits >> (group * group_lanes)) & ((1U << group_lanes) - 1);
}

/// A load that the compiler does not repeat to save a register.
HWY_INLINE float_vector loaded(const float* values) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return in_register(hn::LoadU(floats(), values));
#else
  return hn::LoadU(floats(), values);
#endif
}

/// Stores the non-zeros of a joined block, moves `packed` after them, and returns their bits.
HWY_INLINE std::uint64_t pack_nonzero_block(const float* values, float*& packed, sign_search& seen) {
  const floats d;
  const words du;
  float_vector v[joined_groups];
  std::uint64_t all = 0;
  for (std::int64_t g = 0; g < joined_groups; ++g) {
    v[g] = loaded(values + g * group_lanes);
    const auto v_bits = hn::BitCast(du, v[g]);
    seen.add(v_bits);
    all |= std::uint64_t{bits_of_mask(hn::Ne(v_bits, hn::Zero(du)))} << (g * group_lanes);
  }
  for (std::int64_t g = 0; g < joined_groups; ++g) {
    const unsigned group = group_of(all, g);
    hn::StoreU(pack(v[g], group), d, packed);
    packed += count_of_group(group);
  }
  return all;
}

/// Values of so many groups that their bits fill bytes.
constexpr std::int64_t listed_block = std::max<std::int64_t>(8, group_lanes);

/// Stores the non-zeros of a block of values, moves `packed` after them, and returns their bits.
HWY_INLINE unsigned pack_nonzero(const float* values, float*& packed, sign_search& seen) {
  const floats d;
  const words du;
  unsigned all = 0;
  for (std::int64_t j = 0; j < listed_block; j += group_lanes) {
    const auto v = hn::LoadU(d, values + j);
    const auto v_bits = hn::BitCast(du, v);
    seen.add(v_bits);
    const unsigned group = bits_of_mask(hn::Ne(v_bits, hn::Zero(du)));
    hn::StoreU(pack(v, group), d, packed);
    packed += count_of_group(group);
    all |= group << j;
  }
  return all;
}

nonzero_bits find_and_compact(const float* values, std::int64_t count, std::uint8_t* bits, float* packed) {
  const float* const begin = packed;
  const std::ptrdiff_t ahead = fetch_distance(values);
  const std::ptrdiff_t ahead_of_stores = fetch_distance(packed);
  sign_search seen;
  std::int64_t i = 0;
  for (; i + joined_block <= count; i += joined_block) {
    fetch_ahead<joined_block * sizeof(float)>(values + i, ahead);
    fetch_ahead<joined_block * sizeof(float) / 2>(packed, ahead_of_stores);
    const std::uint64_t all = pack_nonzero_block(values + i, packed, seen);
    std::memcpy(bits + i / 8, &all, joined_bytes);
  }
  for (; i + listed_block <= count; i += listed_block) {
    const unsigned all = pack_nonzero(values + i, packed, seen);
    for (std::int64_t k = 0; k < listed_block / 8; ++k)
      bits[i / 8 + k] = static_cast<std::uint8_t>(all >> (8 * k));
  }
  bool any_not_positive = seen.found();
  for (; i < count; i += 8) {
    unsigned last = 0;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, count - i); ++j) {
      const auto value = std::bit_cast<std::uint32_t>(values[i + j]);
      any_not_positive |= value > static_cast<std::uint32_t>(f32_infinity);
      if (value == 0) continue;
      last |= 1U << j;
      *packed++ = values[i + j];
    }
    bits[i / 8] = static_cast<std::uint8_t>(last);
  }
  return {static_cast<std::uint32_t>(packed - begin), any_not_positive};
}

nonzero_bits find_and_list(const float* values, std::int64_t count, float* packed, std::uint8_t* columns,
                           std::uint16_t* row_ends) {
  constexpr std::uint64_t ones = 0x0101010101010101;
  const std::uint8_t* const begin = columns;
  const std::ptrdiff_t ahead = fetch_distance(values);
  const std::ptrdiff_t ahead_of_stores = fetch_distance(packed);
  sign_search seen;
  for (std::int64_t row = 0; row < count; row += csr_row_elements) {
    std::uint64_t first_column = 0;
    const auto list_block = [&](const float* from) HWY_ATTR {
      const unsigned all = pack_nonzero(from, packed, seen);
      for (std::int64_t k = 0; k < listed_block; k += 8) {
        const unsigned some = all >> k & 0xff;
        const std::uint64_t listed = set_bits[some] + first_column;
        std::memcpy(columns, &listed, sizeof listed);
        columns += count_of_group(some);
        first_column += 8 * ones;
      }
    };
    const std::int64_t end = std::min(row + csr_row_elements, count);
    std::int64_t i = row;
    for (; i + listed_block <= end; i += listed_block) {
      fetch_ahead<listed_block * sizeof(float)>(values + i, ahead);
      fetch_ahead<1>(packed, ahead_of_stores);
      list_block(values + i);
    }
    if (i != end) {
      float last[listed_block] = {};
      std::memcpy(last, values + i, static_cast<std::size_t>(end - i) * sizeof(float));
      list_block(last);
    }
    *row_ends++ = static_cast<std::uint16_t>(columns - begin);
  }
  return {static_cast<std::uint32_t>(columns - begin), seen.found()};
}

template <bool Past>
HWY_INLINE void expand_values(const float* packed, const std::uint8_t* bits, std::int64_t count,
                              float* values) {
  const floats d;
  const std::ptrdiff_t ahead = fetch_distance(packed);
  std::int64_t i = 0;
  for (; i + group_lanes <= count; i += group_lanes) {
    fetch_ahead<1>(packed, ahead);
    const unsigned group = group_bits(bits, i);
    store_vector<Past>(d, spread(hn::LoadU(d, packed), group), values + i);
    packed += count_of_group(group);
  }
  for (; i < count; ++i) {
    const bool set = bit_at(bits, i);
    values[i] = masked(*packed, set ? 1 : 0);
    packed += set ? 1 : 0;
  }
}

// Not by way of fill_chunks(): twice as many stores would wait after those to memory, and this loop
// has to run far ahead of them.
void expand(const float* packed, const std::uint8_t* bits, std::int64_t count, float* values,
            destination to) {
  if (goes_past(values, to)) {
    expand_values<true>(packed, bits, count, values);
  } else {
    expand_values<false>(packed, bits, count, values);
  }
}

bool columns_rise(const std::uint8_t* columns, std::int64_t count) {
  const hn::CappedTag<std::uint8_t, 16> d;
  constexpr std::int64_t step = hn::MaxLanes(d);
  auto smallest = hn::Set(d, 0xff);
  std::int64_t i = 1;
  for (; i + step <= count; i += step)
    smallest = hn::Min(smallest, hn::SaturatedSub(hn::LoadU(d, columns + i), hn::LoadU(d, columns + i - 1)));
  bool all = hn::AllTrue(d, hn::Ne(smallest, hn::Zero(d)));
  for (; i < count; ++i)
    all &= columns[i] > columns[i - 1];
  return all;
}

/// For every column: 256 bits of which that one is set.
alignas(32) constexpr auto column_bits = [] {
  std::array<std::array<std::uint64_t, 4>, 256> table{};
  for (std::size_t column = 0; column < 256; ++column)
    table[column][column / 64] = std::uint64_t{1} << (column % 64);
  return table;
}();

void mark_columns(const std::uint8_t* columns, std::int64_t count, std::uint8_t* bits) {
  const hn::CappedTag<std::uint64_t, 4> d;
  constexpr std::size_t step = hn::MaxLanes(d);
  constexpr std::size_t parts = 4 / step;
  // Two sums, so that a column does not wait for the one before it.
  hn::Vec<decltype(d)> sums[2][parts];
  for (auto& sum : sums) {
    for (auto& part : sum)
      part = hn::Zero(d);
  }
  for (std::int64_t line = 0; line < count; line += 64)
    fetch_ahead<64>(columns + line, prefetch_distance);
  const auto mark = [&](std::uint64_t column, std::size_t sum) HWY_ATTR {
    for (std::size_t p = 0; p < parts; ++p)
      sums[sum][p] = hn::Or(sums[sum][p], hn::Load(d, column_bits[column].data() + p * step));
  };
  const auto mark_eight = [&](const std::uint8_t* at) HWY_ATTR {
    std::uint64_t eight;
    std::memcpy(&eight, at, sizeof eight);
    for (std::size_t k = 0; k < 8; ++k)
      mark(eight >> (8 * k) & 0xff, k % 2);
  };
  if (count < 8) {
    for (std::int64_t i = 0; i < count; ++i)
      mark(columns[i], 0);
  } else {
    for (std::int64_t i = 0; i + 8 < count; i += 8)
      mark_eight(columns + i);
    // Marking a column again changes nothing.
    mark_eight(columns + count - 8);
  }
  for (std::size_t p = 0; p < parts; ++p)
    hn::StoreU(hn::Or(sums[0][p], sums[1][p]), d, reinterpret_cast<std::uint64_t*>(bits) + p * step);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
