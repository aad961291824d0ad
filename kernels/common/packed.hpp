// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Groups of elements as the words that they are in memory, 16-bit elements two to a word, and what is done
/// to all elements of a word at once.

#include <cstdint>

#include "common/elements.hpp"

namespace stash::kernels {

/// Elements of a word.
template <class Bits>
inline constexpr unsigned per_word = 4 / sizeof(Bits);
template <class Bits>
inline constexpr unsigned group_words = group_elements / per_word<Bits>;

template <class Bits>
struct packed_group {
  std::uint32_t word[group_words<Bits>];

  STASH_DEVICE Bits value(unsigned i) const {
    return static_cast<Bits>(word[i / per_word<Bits>] >> (8 * sizeof(Bits) * (i % per_word<Bits>)));
  }
};

template <class Bits>
STASH_DEVICE packed_group<Bits> packed(const group<Bits>& g) {
  packed_group<Bits> p = {};
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    p.word[i / per_word<Bits>] |= static_cast<std::uint32_t>(g.value[i])
                                  << (8 * sizeof(Bits) * (i % per_word<Bits>));
  }
  return p;
}

template <class Bits>
STASH_DEVICE group<Bits> unpacked(const packed_group<Bits>& p) {
  group<Bits> g;
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i)
    g.value[i] = p.value(i);
  return g;
}

/// The whole group of elements at `from`.
template <class Bits>
STASH_DEVICE packed_group<Bits> packed_at(const Bits* from) {
  packed_group<Bits> g;
  STASH_UNROLL
  for (unsigned v = 0; v < group_vectors<Bits>; ++v) {
    const vector16 vec16 = reinterpret_cast<const vector16*>(from)[v];
    STASH_UNROLL
    for (unsigned i = 0; i < 4; ++i)
      g.word[4 * v + i] = vec16.word[i];
  }
  return g;
}

/// Bit i from byte i of eight that are 0 or 1.
STASH_DEVICE std::uint32_t bits_of_bytes(std::uint32_t first, std::uint32_t second) {
  // Each of the eight bits comes to its position in the highest byte by one of the four ones of the factor,
  // and no two products to the same position.
  return ((first | second << 4) * 0x01020408U) >> 24;
}

/// Bit i: element i is not zero.
template <class Bits>
STASH_DEVICE std::uint32_t nonzero_bits(const packed_group<Bits>& g) {
  if constexpr (sizeof(Bits) == 4) {
    std::uint32_t bits = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      bits |= (g.word[i] != 0 ? 1U : 0U) << i;
    return bits;
  } else {
    static_assert(sizeof(Bits) == 2);
    std::uint32_t ones[group_words<Bits>];
    STASH_UNROLL
    for (unsigned w = 0; w < group_words<Bits>; ++w)
      ones[w] = smaller_halves(g.word[w], 0x00010001);
    return bits_of_bytes(pick_bytes(ones[0], ones[1], 0x6420), pick_bytes(ones[2], ones[3], 0x6420));
  }
}

/// Calls body(i, value, there) for every element: the low bits of `value` are the element's, and `there` is
/// not zero where it is not.
template <class Bits, class Body>
STASH_DEVICE void for_each_element(const packed_group<Bits>& g, const Body& body) {
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i) {
    const std::uint32_t value = g.word[i / per_word<Bits>] >> (8 * sizeof(Bits) * (i % per_word<Bits>));
    body(i, value, value & (sizeof(Bits) == 4 ? 0xffffffffU : 0xffffU));
  }
}

/// The largest element without signs, of this group and `other`; of 16 bits one for each half.
template <class Bits>
STASH_DEVICE std::uint32_t larger_of(const packed_group<Bits>& g, std::uint32_t other) {
  STASH_UNROLL
  for (unsigned w = 0; w < group_words<Bits>; ++w) {
    if constexpr (sizeof(Bits) == 4) {
      other = g.word[w] > other ? g.word[w] : other;
    } else {
      other = larger_halves(g.word[w], other);
    }
  }
  return other;
}
/// Whether larger_of() is above a limit.
template <class Bits>
STASH_DEVICE bool any_above(std::uint32_t largest, std::uint32_t limit) {
  return sizeof(Bits) == 4 ? largest > limit : (largest & 0xffff) > limit || largest >> 16 > limit;
}

/// A byte, 0 or 1, for each of the four lowest bits.
STASH_DEVICE std::uint32_t ones_of_bits(std::uint32_t bits) {
  return (bits & 0xf) * 0x00204081U & 0x01010101U;
}
/// The mask of word w of four elements, from a byte for each of them.
template <class Bits>
STASH_DEVICE std::uint32_t word_mask(std::uint32_t byte_masks, unsigned w) {
  return pick_bytes(byte_masks, 0, sizeof(Bits) == 4 ? 0x1111 * w : 0x1100 + 0x2222 * w);
}
/// All bits of the elements whose bit is set.
template <class Bits>
STASH_DEVICE packed_group<Bits> masks_of_bits(std::uint32_t bits) {
  packed_group<Bits> masks = {};
  constexpr unsigned words = 4 / per_word<Bits>;
  STASH_UNROLL
  for (unsigned w = 0; w < group_words<Bits>; ++w)
    masks.word[w] = word_mask<Bits>(ones_of_bits(bits >> (w / words * 4)) * 0xff, w % words);
  return masks;
}

/// Takes the elements whose bits are set from shared memory, where they lie one after the other; +0 for the
/// others. The position after the last of them may be read too.
template <class Bits>
STASH_DEVICE packed_group<Bits> spread(std::uint32_t bits, const Bits* from) {
  packed_group<Bits> g = {};
  STASH_UNROLL
  for (unsigned first = 0; first < group_elements; first += 4) {
    // Before an element lie as many others as there are ones in the bytes before its own.
    const std::uint32_t ones = ones_of_bits(bits >> first);
    constexpr std::uint32_t each = sizeof(Bits) * 0x01010101U;
    const std::uint32_t value[4] = {*from, *offset_by(from, ones, each & 0xff),
                                    *offset_by(from, ones, each & 0xffff),
                                    *offset_by(from, ones, each & 0xffffff)};
    if (first + 4 < group_elements) from = offset_by(from, ones, each);
    STASH_UNROLL
    for (unsigned w = 0; w < 4 / per_word<Bits>; ++w) {
      const std::uint32_t word = sizeof(Bits) == 4 ? value[w] : value[2 * w] | value[2 * w + 1] << 16;
      g.word[first / per_word<Bits> + w] = word & word_mask<Bits>(ones * 0xff, w);
    }
  }
  return g;
}

/// The same of bytes, those from number `first` on, in two words; 0 for the others. Up to eleven bytes after
/// that one may be read.
STASH_DEVICE void spread_bytes(std::uint32_t bits, const vector16* bytes, std::uint32_t first,
                               std::uint32_t (&words)[2]) {
  const auto* const from = reinterpret_cast<const std::uint32_t*>(bytes) + first / 4;
  const std::uint32_t next[3] = {from[0], from[1], from[2]};
  const std::uint32_t low = funnel_right(next[0], next[1], first % 4 * 8);
  const std::uint32_t high = funnel_right(next[1], next[2], first % 4 * 8);
  // A hexadecimal digit, 0 or 1, for each bit. Before a byte lie as many others as the digits before its own
  // add up to.
  std::uint32_t ones = bits * 0x1001U & 0x000f000fU;
  ones = ones * 0x41U & 0x03030303U;
  ones = ones * 0x9U & 0x11111111U;
  const std::uint32_t selectors = ones * 0x11111110U;
  // Of a word whose second byte alone is full, ones pick bytes that are masks.
  words[0] = pick_bytes_at(low, high, selectors) & pick_bytes_at(0xff00, 0, ones);
  words[1] = pick_bytes_at(low, high, selectors >> 16) & pick_bytes_at(0xff00, 0, ones >> 16);
}

}  // namespace stash::kernels
