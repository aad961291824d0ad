// SPDX-License-Identifier: Apache-2.0
// What the Highway loops share: vector types, loads and stores, and the order in which a run is gone through.
//
// Included once per instruction set, by simd_loops.cpp, so it has no guard.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "encoders/format/convert.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using floats = hn::CappedTag<float, 16>;
using words = hn::RebindToUnsigned<floats>;
using integers = hn::RebindToSigned<floats>;
using float_vector = hn::Vec<floats>;
using word_vector = hn::Vec<words>;
using word_mask = hn::Mask<words>;

HWY_INLINE word_vector load(const float* p) {
  return hn::BitCast(words(), hn::LoadU(floats(), p));
}
HWY_INLINE void store(word_vector v, float* p) {
  hn::StoreU(hn::BitCast(floats(), v), floats(), p);
}

/// `v`, of which the compiler knows nothing any more: clang takes a choice between x and x * slope for a
/// product of x and the choice between 1 and slope, and a multiplication makes signalling NaNs quiet.
HWY_INLINE float_vector opaque(float_vector v) {
#if HWY_COMPILER_CLANG && HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#elif HWY_COMPILER_CLANG && HWY_ARCH_ARM_A64
  asm("" : "+w"(v.raw));
#endif
  return v;
}

constexpr std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::MaxLanes(floats()));
}

/// Fetches what a later run will need while this one is worked on: a run of f32 is as long as a page, and the
/// processor's own prefetchers stop at the end of a page. `Bytes` are those that one step of a loop reads,
/// `distance` is the buffer's fetch_distance(); past the end of the tensor nothing happens. What a loop
/// writes is worth fetching only where its stores are shorter than lines: whole ones are written without
/// being read first, and fetching them took a tenth of the speed.
template <std::size_t Bytes, class T>
HWY_INLINE void fetch_ahead(const T* at, std::ptrdiff_t distance) {
  constexpr std::size_t line = 64;
  const auto* ahead = reinterpret_cast<const std::uint8_t*>(at) + distance;
  for (std::size_t b = 0; b < Bytes; b += line)
    fetch_line(ahead + b);
}
template <std::size_t Bytes, class T>
HWY_INLINE void fetch_ahead_to_write(const T* at, std::ptrdiff_t distance) {
  const auto* ahead = reinterpret_cast<const std::uint8_t*>(at) + distance;
  for (std::size_t b = 0; b < Bytes; b += run_alignment)
    fetch_line_to_write(ahead + b);
}

/// compute(i, n, some) computes elements [i, i + n) of a run, which are then written to `to`. Past the caches
/// they go in chunks: computed together, the lines of a whole run would not fit into the processor's queue of
/// stores (64 on Zen 4), and the last ones would wait until the first ones reach memory. Chunks of 512 values
/// of f32 took up to 1.5 times as long as those of 128. `i` is a multiple of Chunk, which is one of a line's
/// elements.
template <std::int64_t Chunk, class T, class Compute>
HWY_INLINE void fill_chunks(std::int64_t count, T* to, destination where, const Compute& compute) {
  if (where == destination::caches || count == 0) return compute(0, count, to);
  constexpr std::int64_t line = run_alignment / sizeof(T);
  constexpr std::int64_t vector = hn::MaxLanes(floats()) * sizeof(float) / sizeof(T);
  static_assert(Chunk % line == 0);
  alignas(run_alignment) T some[static_cast<std::size_t>(Chunk + line)];  // begins with a line of `to`
  const auto offset_in_line =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / sizeof(T) % line);
  // Of what is computed next: before it lie elements of a line that is not full yet.
  std::int64_t begin = offset_in_line;
  for (std::int64_t i = 0; i < count; i += Chunk) {
    const std::int64_t n = std::min(Chunk, count - i);
    compute(i, n, some + begin);
    const std::int64_t end = begin + n;
    std::int64_t j = 0;
    if (i == 0 && offset_in_line != 0) {
      j = std::min(line, end);
      std::copy_n(some + offset_in_line, j - offset_in_line, to);
    }
    for (; j + line <= end; j += line) {
      for (std::int64_t k = j; k < j + line; k += vector) {
        hn::Stream(hn::Load(floats(), reinterpret_cast<const float*>(some + k)), floats(),
                   reinterpret_cast<float*>(to + (i - begin + k)));
      }
    }
    begin = end - j;
    if (begin != 0) std::copy_n(some + j, begin, some);
  }
  if (begin != 0) std::copy_n(some, begin, to + (count - begin));
}

template <class Compute>
HWY_INLINE void fill_run(std::int64_t count, float* to, destination where, const Compute& compute) {
  fill_chunks<128>(count, to, where, compute);
}

/// True if whole vectors may be written to this address past the caches.
HWY_INLINE bool goes_past(const float* values, destination to) {
  return to == destination::memory && reinterpret_cast<std::uintptr_t>(values) % sizeof(float_vector) == 0;
}

/// A vector to an address that it may be written to past the caches, if Past.
template <bool Past, class D>
HWY_INLINE void store_vector(D d, hn::Vec<D> v, float* to) {
  if constexpr (Past) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

/// Runs whole(first) for vectors of values and rest(i) for single ones, which read `from`.
template <class In, class Whole, class Rest>
HWY_INLINE void in_vectors(const In* from, std::int64_t count, const Whole& whole, const Rest& rest) {
  constexpr std::int64_t step = 16;
  const std::ptrdiff_t ahead = fetch_distance(from);
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    fetch_ahead<step * sizeof(In)>(from + i, ahead);
    for (std::int64_t j = 0; j < step; j += lanes())
      whole(i + j);
  }
  for (; i + lanes() <= count; i += lanes())
    whole(i);
  for (; i < count; ++i)
    rest(i);
}

/// Runs convert(from, to) for blocks of so many values; a last, shorter one goes through copies with
/// convert_copy(), so that both always read and write a whole block. `where` is where the values go in the
/// end.
template <std::int64_t Block, class In, class Out, class Convert, class ConvertCopy>
HWY_INLINE void convert_blocks(const In* from, std::int64_t count, Out* to, destination where,
                               const Convert& convert, const ConvertCopy& convert_copy) {
  const std::ptrdiff_t ahead = fetch_distance(from);
  const std::ptrdiff_t ahead_of_stores = fetch_distance(to);
  const bool fetches = sizeof(Out) < sizeof(In) && where == destination::caches && ahead_of_stores != 0;
  std::int64_t i = 0;
  for (; i + Block <= count; i += Block) {
    fetch_ahead<Block * sizeof(In)>(from + i, ahead);
    if (fetches) fetch_ahead<Block * sizeof(Out)>(to + i, ahead_of_stores);
    convert(from + i, to + i);
  }
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i);
  constexpr auto size = static_cast<std::size_t>(Block);
  In in[size] = {};
  Out out[size];
  std::memcpy(in, from + i, rest * sizeof(In));
  convert_copy(in, out);
  std::memcpy(to + i, out, rest * sizeof(Out));
}
template <std::int64_t Block, class In, class Out, class Convert>
HWY_INLINE void convert_blocks(const In* from, std::int64_t count, Out* to, destination where,
                               const Convert& convert) {
  convert_blocks<Block>(from, count, to, where, convert, convert);
}

/// One bit per lane, from bit 0. Highway 1.0 stores them, and reading them back waits for the store.
HWY_INLINE std::uint32_t bits_of_mask(word_mask m) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // In a register of its own: of a mask that waits on the stack g++ 12 stores 16 bits and then counts 32.
  std::uint32_t bits = m.raw;
  asm("" : "+r"(bits));
  return bits;
#elif HWY_TARGET == HWY_AVX2
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(m.raw)));
#elif HWY_ARCH_X86
  return static_cast<std::uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(m.raw)));
#else
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(words(), m, bytes);
  std::uint32_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
#endif
}

/// Looks for values that are negative, -0 or NaN: as unsigned numbers, these lie above infinity.
class sign_search {
 public:
  HWY_INLINE sign_search() : seen_(hn::Zero(words())) {}

  HWY_INLINE void add(word_vector v) {
#if HWY_TARGET == HWY_SSSE3
    // It has no maximum of unsigned numbers. Of NaN above infinity, the difference has a sign.
    seen_ = hn::Or(seen_, hn::Or(v, hn::Sub(infinity(), v)));
#else
    seen_ = hn::Max(seen_, v);
#endif
  }

  HWY_INLINE bool found() const {
#if HWY_TARGET == HWY_SSSE3
    return bits_of_mask(hn::MaskFromVec(seen_)) != 0;
#else
    return !hn::AllTrue(words(), hn::Eq(hn::Max(seen_, infinity()), infinity()));
#endif
  }

 private:
  static HWY_INLINE word_vector infinity() {
    return hn::Set(words(), static_cast<std::uint32_t>(f32_infinity));
  }

  word_vector seen_;
};

bool bit_at(const std::uint8_t* bits, std::int64_t i) {
  return (bits[i / 8] >> (i % 8) & 1) != 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders
