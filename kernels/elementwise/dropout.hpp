// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Dropout on a device: decisions from a counter and a key, so that they need not be kept (docs/format.md).

#include <cstdint>

#include "elementwise/masks.hpp"

namespace stash::kernels {

/// What goes into the generator, but for the block's number.
struct dropout_stream {
  std::uint32_t key[2];
  std::uint32_t layer, step;
  std::uint32_t threshold;  ///< words below it drop their element
};

/// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11): bit w is set if
/// word w of this block keeps its element.
STASH_DEVICE unsigned kept_of_block(const dropout_stream& stream, std::uint64_t block) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        stream.layer, stream.step};
  std::uint32_t key[2] = {stream.key[0], stream.key[1]};
  STASH_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ key[0];
    c[1] = static_cast<std::uint32_t>(product1);
    c[2] = static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ key[1];
    c[3] = static_cast<std::uint32_t>(product0);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  unsigned kept = 0;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w)
    kept |= (c[w] >= stream.threshold ? 1U : 0U) << w;
  return kept;
}

/// The decisions of a group, from the key: nothing is loaded.
struct kept_by_key {
  struct loaded {};
  dropout_stream stream;
  STASH_DEVICE loaded load(std::uint64_t, unsigned) const { return {}; }
  STASH_DEVICE unsigned bits(const loaded&, std::uint64_t index, unsigned length) const {
    const unsigned kept = kept_of_block(stream, 2 * index) | kept_of_block(stream, 2 * index + 1) << 4;
    return kept & ((1U << length) - 1);
  }
};

/// The same, from a mask.
struct kept_by_mask {
  using loaded = std::uint8_t;
  const std::uint8_t* plane;
  STASH_DEVICE loaded load(std::uint64_t index, unsigned length) const {
    return length == 0 ? loaded{0} : plane[index];
  }
  STASH_DEVICE unsigned bits(const loaded& byte, std::uint64_t, unsigned) const { return byte; }
};

/// x * scale as the CPU multiplies: a NaN becomes quiet and keeps the rest of its bits.
STASH_DEVICE float product(float x, float scale) {
  return x == x ? x * scale : as_float(as_bits(x) | 0x400000U);
}

/// out = kept ? in * scale : +0, and the mask unless plane.data is null.
template <class Bits, class Kept>
struct dropout_body {
  struct loaded {
    group<Bits> in;
    typename Kept::loaded kept;
  };
  static constexpr bool halves = has_halves<Bits>;
  static constexpr unsigned groups = groups_in_flight<Bits>;
  device_tensor input, output;
  device_plane plane;
  element_type type;
  float scale;
  Kept kept;

  STASH_DEVICE bool vectors() const { return input.vectors && output.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return {load_halves<Bits, half_warps>(input, index), kept.load(index, group_elements)};
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    return {load_elements<Bits>(input, index), kept.load(index, group_length(input.elements, index))};
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Bits>(input, first, count);
  }
  STASH_DEVICE group<Bits> apply(const group<Bits>& in, unsigned bits) const {
    if constexpr (sizeof(Bits) == 2) {
      packed_group<Bits> out = leaked(packed(in), {}, scale, type);
      const packed_group<Bits> keep = masks_of_bits<Bits>(bits);
      STASH_UNROLL
      for (unsigned w = 0; w < group_words<Bits>; ++w)
        out.word[w] &= keep.word[w];
      return unpacked(out);
    } else {
      group<Bits> out;
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        out.value[i] = (bits >> i & 1) != 0 ? as_bits(product(as_float(in.value[i]), scale)) : 0;
      return out;
    }
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& from) const {
    const unsigned bits = kept.bits(from.kept, index, group_elements);
    store_halves<half_warps>(
        output, index, apply(from.in, shared_bits<half_warps, Bits>(index, static_cast<std::uint8_t>(bits))));
    if (plane.data != nullptr) plane.data[index] = static_cast<std::uint8_t>(bits);
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& from) const {
    const unsigned bits = kept.bits(from.kept, index, group_length(input.elements, index));
    store_elements(output, index, apply(from.in, bits));
    if (plane.data != nullptr && index < plane.bytes) plane.data[index] = static_cast<std::uint8_t>(bits);
  }
  STASH_DEVICE void finish(bool first) const {
    if (first && plane.data != nullptr) plane.count();
  }
};

template <class Kept>
inline constexpr unsigned group_blocks<dropout_body<std::uint32_t, Kept>, 1> = tuning::dropout_blocks;

}  // namespace stash::kernels
