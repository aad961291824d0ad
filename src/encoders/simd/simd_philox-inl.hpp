// SPDX-License-Identifier: Apache-2.0
// Dropout's random bits in vectors.
//
// Included once per instruction set, by simd_loops.cpp after simd_vectors-inl.hpp, so it has no guard.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "encoders/format/philox.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

using long_words = hn::Repartition<std::uint64_t, words>;
constexpr std::size_t blocks_of_vector = hn::MaxLanes(long_words());

/// Of every 16 bytes: the even lanes (Odd: the odd ones) of the first vector, then those of the second.
template <bool Odd>
HWY_INLINE word_vector every_other_lane(word_vector first, word_vector second) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return word_vector{_mm512_castps_si512(
      _mm512_shuffle_ps(_mm512_castsi512_ps(first.raw), _mm512_castsi512_ps(second.raw), Odd ? 0xdd : 0x88))};
#elif HWY_TARGET == HWY_AVX2
  return word_vector{_mm256_castps_si256(
      _mm256_shuffle_ps(_mm256_castsi256_ps(first.raw), _mm256_castsi256_ps(second.raw), Odd ? 0xdd : 0x88))};
#else
  return Odd ? hn::ConcatOdd(words(), second, first) : hn::ConcatEven(words(), second, first);
#endif
}

/// What the rounds of all blocks of a run have in common. Only the counter's first word differs between them,
/// so half of the first two rounds is the same for all, and is part of what they add.
class shared_rounds {
 public:
  HWY_INLINE shared_rounds(const philox_stream& stream, std::uint32_t upper_word) {
    philox_key key = stream.key;
    std::array<philox_key, philox_rounds> all;
    for (philox_key& added : all) {
      added = key;
      for (std::size_t w = 0; w < 2; ++w)
        key[w] += philox_increments[w];
    }
    const std::uint64_t first = multiplied(1, stream.fixed[0]);
    const std::uint64_t second = multiplied(0, upper(first) ^ upper_word ^ all[0][0]);
    all[0][1] ^= stream.fixed[1];
    all[1][0] ^= lower(first);
    all[1][1] ^= upper(second);
    all[2][1] ^= lower(second);
    // The vectors are stored whole: loads that have to wait for several stores are slow.
    for (std::size_t round = 0; round < all.size(); ++round)
      for (std::size_t w = 0; w < 2; ++w)
        hn::Store(hn::Set(four_words(), all[round][w]), four_words(), added_[round][w].data());
  }

  HWY_INLINE word_vector added(std::size_t round, std::size_t w) const {
    return hn::LoadDup128(words(), added_[round][w].data());
  }

  philox_key key(std::size_t round) const { return {added_[round][0][0], added_[round][1][0]}; }

  /// The counter of one block after the first two rounds.
  philox_counter begin(std::uint32_t first_word) const {
    const std::uint64_t product0 = multiplied(0, first_word);
    const std::uint64_t product1 = multiplied(1, upper(product0) ^ key(0)[1]);
    return {upper(product1) ^ key(1)[0], lower(product1), lower(product0) ^ key(1)[1], 0};
  }

 private:
  using four_words = hn::CappedTag<std::uint32_t, 4>;

  static std::uint64_t multiplied(std::size_t w, std::uint32_t word) {
    return std::uint64_t{philox_multipliers[w]} * word;
  }
  static std::uint32_t upper(std::uint64_t product) { return static_cast<std::uint32_t>(product >> 32); }
  static std::uint32_t lower(std::uint64_t product) { return static_cast<std::uint32_t>(product); }

  alignas(16) std::array<std::array<std::array<std::uint32_t, 4>, 2>, philox_rounds> added_;
};

/// Counters of as many blocks as a vector has 64-bit lanes: every other lane of 32 bits holds a word, as the
/// multiplication wants it, and what is in the lanes between does not matter.
struct counter_vectors {
  word_vector c0, c1, c2, c3;

  // Not left to the compiler, whose own is not one for these instructions.
  HWY_INLINE counter_vectors() {}

  /// The first two rounds, of which the first one's product with the counter's first word is given.
  HWY_INLINE void begin(word_vector product, const shared_rounds& rounds) {
    const word_vector mixed = hn::Xor(hn::Shuffle2301(product), rounds.added(0, 1));
    c1 = multiplied(1, mixed);
    c0 = hn::Xor(hn::Shuffle2301(c1), rounds.added(1, 0));
    c2 = hn::Xor(product, rounds.added(1, 1));
    c3 = hn::Zero(words());  // the same word for all blocks, which the next round adds with its key
  }

  HWY_INLINE void mix(word_vector added0, word_vector added1) {
    const word_vector product0 = multiplied(0, c0);
    const word_vector product1 = multiplied(1, c2);
    c0 = hn::Xor(hn::Shuffle2301(product1), hn::Xor(c1, added0));
    c2 = hn::Xor(hn::Shuffle2301(product0), hn::Xor(c3, added1));
    c1 = product1;
    c3 = product0;
  }

  /// One bit per word, set if the word is at least `least`, which is given with its highest bit turned. First
  /// come the words of the even blocks, then those of the odd ones.
  HWY_INLINE std::uint32_t at_least(hn::Vec<integers> least) const {
    const word_vector low = every_other_lane<false>(c0, c1);
    const word_vector high = every_other_lane<false>(c2, c3);
    return ~(below(every_other_lane<false>(low, high), least) |
             below(every_other_lane<true>(low, high), least) << hn::MaxLanes(words()));
  }

 private:
  static HWY_INLINE word_vector multiplied(std::size_t w, word_vector v) {
    return hn::BitCast(words(), hn::MulEven(v, hn::Set(words(), philox_multipliers[w])));
  }
  static HWY_INLINE std::uint32_t below(word_vector v, hn::Vec<integers> least) {
    const auto turned = hn::BitCast(integers(), hn::Xor(v, hn::Set(words(), 0x80000000)));
    return bits_of_mask(hn::RebindMask(words(), hn::Gt(least, turned)));
  }
};

/// The first round's product of the counters' first words, block after block.
class first_products {
 public:
  HWY_INLINE explicit first_products(std::uint32_t first_word) {
    alignas(64) std::uint64_t blocks[blocks_of_vector];
    for (std::size_t i = 0; i < blocks_of_vector; ++i)
      blocks[i] = first_word + i / 2 + i % 2 * (blocks_of_vector / 2);
    next_ = hn::MulEven(hn::BitCast(words(), hn::Load(long_words(), blocks)),
                        hn::Set(words(), philox_multipliers[0]));
  }

  HWY_INLINE void skip(std::size_t blocks) {
    next_ = hn::Add(next_, hn::Set(long_words(), std::uint64_t{philox_multipliers[0]} * blocks));
  }
  HWY_INLINE word_vector take() {
    const auto taken = next_;
    skip(blocks_of_vector);
    return hn::BitCast(words(), taken);
  }

 private:
  hn::Vec<long_words> next_;
};

constexpr std::int64_t drawn_of_vector = 2 * lanes();

/// Bit w = word w is at least `threshold`.
HWY_INLINE std::uint32_t words_at_least(const philox_counter& drawn, std::uint32_t threshold) {
  std::uint32_t kept = 0;
  for (std::size_t w = 0; w < drawn.size(); ++w)
    kept |= std::uint32_t{drawn[w] >= threshold} << w;
  return kept;
}

/// Draws for so many vectors of blocks, and then for so many single ones, an even number. They are mixed side
/// by side, since a round waits for the one before.
template <std::size_t Vectors, std::size_t Singles>
HWY_INLINE void draw_blocks(const shared_rounds& rounds, std::uint32_t first_word, first_products& products,
                            std::uint32_t threshold, std::uint8_t* bits) {
  counter_vectors counters[Vectors];
  std::array<philox_counter, Singles> singles;
  for (counter_vectors& v : counters)
    v.begin(products.take(), rounds);
  products.skip(Singles);
  for (std::size_t i = 0; i < Singles; ++i)
    singles[i] = rounds.begin(first_word + static_cast<std::uint32_t>(Vectors * blocks_of_vector + i));
  for (std::size_t round = 2; round < philox_rounds; ++round) {
    const word_vector added0 = rounds.added(round, 0);
    const word_vector added1 = rounds.added(round, 1);
    for (counter_vectors& v : counters)
      v.mix(added0, added1);
    for (philox_counter& single : singles)
      single = philox_round(single, rounds.key(round));
  }
  constexpr std::size_t bytes = drawn_of_vector / 8;
  const auto least = hn::Set(integers(), static_cast<std::int32_t>(threshold ^ 0x80000000));
  for (const counter_vectors& v : counters) {
    const std::uint32_t kept = v.at_least(least);
    std::memcpy(bits, &kept, bytes);
    bits += bytes;
  }
  for (std::size_t i = 0; i < Singles; i += 2)
    *bits++ = static_cast<std::uint8_t>(words_at_least(singles[i], threshold) |
                                        words_at_least(singles[i + 1], threshold) << 4);
}

// Memory would be idle meanwhile, for longer than it takes to move the values with AVX2 and below: so they
// are fetched here.
void draw_bits(const philox_stream& stream, std::uint64_t first_block, std::int64_t count,
               std::uint32_t threshold, const float* from, const float* to, std::uint8_t* bits) {
  // As many vectors as there are registers for. Shorter ones leave the processor time for single blocks in
  // its other registers, with multiplications of their own.
  constexpr bool few_registers = HWY_ARCH_X86 && lanes() < 16;
  constexpr std::size_t vectors = few_registers ? 3 : 4;
  constexpr std::size_t singles = few_registers ? 2 : 0;
  constexpr std::int64_t step = vectors * drawn_of_vector + 4 * singles;
  const auto first_word = static_cast<std::uint32_t>(first_block);
  const std::ptrdiff_t ahead = fetch_distance(from);
  const std::ptrdiff_t ahead_of_stores = to != nullptr ? fetch_distance(to) : 0;
  std::int64_t i = 0;
  // Blocks whose numbers differ in their upper half have less in common.
  if ((first_word + static_cast<std::uint64_t>(count / 4)) >> 32 == 0) {
    const shared_rounds rounds(stream, static_cast<std::uint32_t>(first_block >> 32));
    first_products products(first_word);
    const auto word = [&] { return first_word + static_cast<std::uint32_t>(i / 4); };
    for (; i + step <= count; i += step) {
      fetch_ahead<step * sizeof(float)>(from + i, ahead);
      if (ahead_of_stores != 0) fetch_ahead_to_write<step * sizeof(float)>(to + i, ahead_of_stores);
      draw_blocks<vectors, singles>(rounds, word(), products, threshold, bits + i / 8);
    }
    for (; i + drawn_of_vector <= count; i += drawn_of_vector)
      draw_blocks<1, 0>(rounds, word(), products, threshold, bits + i / 8);
  }
  for (; i < count; i += 8) {
    unsigned last = 0;
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, count - i); ++j) {
      const philox_counter drawn = stream.words(first_block + static_cast<std::uint64_t>((i + j) / 4));
      last |= unsigned{drawn[static_cast<std::size_t>(j % 4)] >= threshold} << j;
    }
    bits[i / 8] = static_cast<std::uint8_t>(last);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
