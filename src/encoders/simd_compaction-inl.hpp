// Non-zero values in vectors: compaction, its inverse, and the columns of csr.
//
// Included once per instruction set, by simd_loops.cpp after simd_vectors-inl.hpp, so it has no guard.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "convert.hpp"
#include "masked.hpp"
#include "run_loops.hpp"
#include "sign.hpp"

namespace stash::detail {
namespace HWY_NAMESPACE {
namespace {

// Values are packed and spread by groups of lanes. AVX-512 has instructions for that, of which only the forms
// between registers are fast. Elsewhere a table of 2 KiB holds the order of at most eight lanes (set_bits,
// for packing); Highway's own Compress is slower there, and Expand is missing.

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

using group_floats = hn::CappedTag<float, 16>;
using group_words = hn::RebindToUnsigned<group_floats>;
using group_vector = hn::Vec<group_floats>;

/// Keeps the compiler from making one instruction of a load or store and what is done with the vector.
HWY_INLINE group_vector in_register(group_vector v) {
  asm("" : "+v"(v.raw));
  return v;
}

HWY_INLINE unsigned bits_of_group(hn::Mask<group_words> m) {
  // In a register of its own: of a mask that waits on the stack g++ 12 stores 16 bits and then counts 32.
  unsigned bits = m.raw;
  asm("" : "+r"(bits));
  return bits;
}
HWY_INLINE unsigned group_bits(const std::uint8_t* bits, std::int64_t i) {
  std::uint16_t two;
  std::memcpy(&two, bits + i / 8, sizeof two);
  return two;
}
/// The lanes whose bit is set, in order, from lane 0.
HWY_INLINE group_vector pack(group_vector v, unsigned bits) {
  return in_register(group_vector{_mm512_maskz_compress_ps(static_cast<__mmask16>(bits), v.raw)});
}
/// Inverse of pack(): +0 where the bit is not set.
HWY_INLINE group_vector spread(group_vector v, unsigned bits) {
  return group_vector{_mm512_maskz_expand_ps(static_cast<__mmask16>(bits), in_register(v).raw)};
}

#else

using group_floats = hn::CappedTag<float, 8>;
using group_words = hn::RebindToUnsigned<group_floats>;
using group_vector = hn::Vec<group_floats>;

/// For every mask of eight lanes: for each lane, how many set ones are before it.
constexpr auto lanes_before = [] {
  std::array<std::uint64_t, 256> table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned before = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      // Seven is as far as a vector of eight reaches; a lane without a value is cleared anyway.
      table[mask] |= std::uint64_t{std::min(before, 7U)} << (8 * lane);
      before += mask >> lane & 1;
    }
  }
  return table;
}();

/// `entry` is one of the tables' words.
HWY_INLINE auto lane_order(const std::uint64_t& entry) {
  const hn::RebindToSigned<group_floats> di;
  const hn::Rebind<std::uint8_t, decltype(di)> d8;
  auto order = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(&entry)));
  // The words of masks of four lanes say "up to four before" where there is no value.
  if constexpr (hn::MaxLanes(group_floats()) < 8) order = hn::Min(order, hn::Set(di, 3));
  return hn::IndicesFromVec(group_floats(), order);
}

HWY_INLINE unsigned bits_of_group(hn::Mask<group_words> m) {
  std::uint8_t stored[8];
  hn::StoreMaskBits(group_words(), m, stored);
  return stored[0];
}
HWY_INLINE unsigned group_bits(const std::uint8_t* bits, std::int64_t i) {
  if constexpr (hn::MaxLanes(group_floats()) < 8) {
    return (bits[i / 8] >> (i % 8)) & 0xFU;
  } else {
    return bits[i / 8];
  }
}
/// The lanes whose bit is set, in order, from lane 0.
HWY_INLINE group_vector pack(group_vector v, unsigned bits) {
  return hn::TableLookupLanes(v, lane_order(set_bits[bits]));
}
/// Inverse of pack(): +0 where the bit is not set.
HWY_INLINE group_vector spread(group_vector v, unsigned bits) {
  const group_words du;
  const std::uint8_t one[8] = {static_cast<std::uint8_t>(bits)};
  const auto moved = hn::TableLookupLanes(v, lane_order(lanes_before[bits]));
  const auto kept = hn::LoadMaskBits(du, one);
  return hn::BitCast(group_floats(), hn::IfThenElseZero(kept, hn::BitCast(du, moved)));
}

#endif

constexpr std::int64_t group_lanes = hn::MaxLanes(group_floats());

/// Vectors are stored whole while they end before `end`; what comes then waits in a buffer.
void compact(const float* values, const std::uint8_t* bits, std::int64_t count, float* packed,
             std::int64_t kept) {
  const group_floats d;
  const float* const end = packed + kept;
  float tail[2 * group_lanes];
  float* waiting = tail;
  std::int64_t i = 0;
  for (; i + group_lanes <= count && packed + group_lanes <= end; i += group_lanes) {
    const unsigned group = group_bits(bits, i);
    hn::StoreU(pack(hn::LoadU(d, values + i), group), d, packed);
    packed += std::popcount(group);
  }
  const std::int64_t rest = end - packed;
  for (; i + group_lanes <= count && waiting - tail < rest; i += group_lanes) {
    const unsigned group = group_bits(bits, i);
    hn::StoreU(pack(hn::LoadU(d, values + i), group), d, waiting);
    waiting += std::popcount(group);
  }
  for (; i < count && waiting - tail < rest; ++i) {
    if (bit_at(bits, i)) *waiting++ = values[i];
  }
  std::memcpy(packed, tail, static_cast<std::size_t>(rest) * sizeof(float));
}

using group_word_vector = hn::Vec<group_words>;

/// Stores the non-zeros of a group of values and returns their bits. `largest` takes in all patterns.
HWY_INLINE unsigned pack_nonzero(const float* values, float* packed, group_word_vector& largest) {
  const group_floats d;
  const group_words du;
  const auto v = hn::LoadU(d, values);
  const auto v_bits = hn::BitCast(du, v);
  largest = hn::Max(largest, v_bits);
  const unsigned group = bits_of_group(hn::Ne(v_bits, hn::Zero(du)));
  hn::StoreU(pack(v, group), d, packed);
  return group;
}

HWY_INLINE bool above_infinity(group_word_vector largest) {
  const group_words du;
  const auto infinity = hn::Set(du, static_cast<std::uint32_t>(f32_infinity));
  return !hn::AllTrue(du, hn::Eq(hn::Max(largest, infinity), infinity));
}

nonzero_bits find_and_compact(const float* values, std::int64_t count, std::uint8_t* bits, float* packed) {
  constexpr std::int64_t block = std::max<std::int64_t>(8, group_lanes);
  const float* const begin = packed;
  auto largest = hn::Zero(group_words());
  std::int64_t i = 0;
  for (; i + block <= count; i += block) {
    fetch_ahead<block * sizeof(float)>(values + i);
    fetch_ahead<1>(packed);
    unsigned all = 0;
    for (std::int64_t j = 0; j < block; j += group_lanes) {
      const unsigned group = pack_nonzero(values + i + j, packed, largest);
      packed += std::popcount(group);
      all |= group << j;
    }
    for (std::int64_t k = 0; k < block / 8; ++k)
      bits[i / 8 + k] = static_cast<std::uint8_t>(all >> (8 * k));
  }
  bool above = above_infinity(largest);
  for (; i < count; i += 8) {
    unsigned last = 0;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, count - i); ++j) {
      const auto value = std::bit_cast<std::uint32_t>(values[i + j]);
      above |= value > static_cast<std::uint32_t>(f32_infinity);
      if (value == 0) continue;
      last |= 1U << j;
      *packed++ = values[i + j];
    }
    bits[i / 8] = static_cast<std::uint8_t>(last);
  }
  return {static_cast<std::uint32_t>(packed - begin), above};
}

nonzero_bits find_and_list(const float* values, std::int64_t count, float* packed, std::uint8_t* columns,
                           std::uint16_t* row_ends) {
  constexpr std::uint64_t ones = 0x0101010101010101;
  const std::uint8_t* const begin = columns;
  auto largest = hn::Zero(group_words());
  for (std::int64_t row = 0; row < count; row += csr_row_elements) {
    std::uint64_t first_column = 0;
    const auto list_group = [&](const float* from) HWY_ATTR {
      const unsigned group = pack_nonzero(from, packed, largest);
      for (std::int64_t k = 0; k < group_lanes; k += 8) {
        const unsigned eight = group >> k & 0xff;
        const std::uint64_t listed = set_bits[eight] + first_column;
        std::memcpy(columns, &listed, sizeof listed);
        columns += std::popcount(eight);
        first_column += std::min<std::int64_t>(8, group_lanes) * ones;
      }
      packed += std::popcount(group);
    };
    const std::int64_t end = std::min(row + csr_row_elements, count);
    std::int64_t i = row;
    for (; i + group_lanes <= end; i += group_lanes) {
      fetch_ahead<group_lanes * sizeof(float)>(values + i);
      fetch_ahead<1>(packed);
      list_group(values + i);
    }
    if (i != end) {
      float last[group_lanes] = {};
      std::memcpy(last, values + i, static_cast<std::size_t>(end - i) * sizeof(float));
      list_group(last);
    }
    *row_ends++ = static_cast<std::uint16_t>(columns - begin);
  }
  return {static_cast<std::uint32_t>(columns - begin), above_infinity(largest)};
}

void expand(const float* packed, const std::uint8_t* bits, std::int64_t count, float* values) {
  const group_floats d;
  std::int64_t i = 0;
  for (; i + group_lanes <= count; i += group_lanes) {
    fetch_ahead<1>(packed);
    const unsigned group = group_bits(bits, i);
    hn::StoreU(spread(hn::LoadU(d, packed), group), d, values + i);
    packed += std::popcount(group);
  }
  for (; i < count; ++i) {
    const bool set = bit_at(bits, i);
    values[i] = masked(*packed, set ? 1 : 0);
    packed += set ? 1 : 0;
  }
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
    fetch_ahead<64>(columns + line);
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
}  // namespace stash::detail
