// What the Highway loops share: vector types, loads and stores, and the order in which a run is gone through.
//
// Included once per instruction set, by simd_loops.cpp, so it has no guard.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "convert.hpp"
#include "run_loops.hpp"

namespace stash::detail {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using floats = hn::CappedTag<float, 16>;
using words = hn::RebindToUnsigned<floats>;
using integers = hn::RebindToSigned<floats>;
using word_vector = hn::Vec<words>;
using word_mask = hn::Mask<words>;

HWY_INLINE word_vector load(const float* p) {
  return hn::BitCast(words(), hn::LoadU(floats(), p));
}
HWY_INLINE void store(word_vector v, float* p) {
  hn::StoreU(hn::BitCast(floats(), v), floats(), p);
}

constexpr std::int64_t lanes() {
  return static_cast<std::int64_t>(hn::MaxLanes(floats()));
}

/// Fetches what a later run will need while this one is worked on: a run of f32 is as long as a page, and the
/// processor's own prefetchers stop at the end of a page. `Bytes` are those that one step of a loop reads;
/// past the end of the tensor nothing happens. What a loop writes is worth fetching only where its stores are
/// shorter than lines: whole ones are written without being read first, and fetching them took a tenth of
/// the speed.
template <std::size_t Bytes, class T>
HWY_INLINE void fetch_ahead(const T* at) {
  constexpr std::size_t distance = prefetch_distance;
  constexpr std::size_t line = 64;
  const auto* ahead = reinterpret_cast<const std::uint8_t*>(at) + distance;
  for (std::size_t b = 0; b < Bytes; b += line)
    fetch_line(ahead + b);
}

/// compute(i, n, values) computes values [i, i + n), which are then written to `to`. Past the caches they go
/// in pieces: computed together, the lines of a whole run would not fit into the processor's queue of stores
/// (64 on Zen 4), and the last ones would wait until the first ones reach memory. Pieces of 512 values took
/// up to 1.5 times as long as these.
template <class Compute>
HWY_INLINE void fill_run(std::int64_t count, float* to, destination where, const Compute& compute) {
  if (where == destination::caches) return compute(0, count, to);
  constexpr std::int64_t piece = 128;
  constexpr std::int64_t line = 16;
  alignas(run_alignment) float values[piece + line];  // begins with a line of `to`
  const auto behind = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / sizeof(float) % line);
  // Of what is computed next: before it lie values of a line that is not full yet.
  std::int64_t begin = behind;
  for (std::int64_t i = 0; i < count; i += piece) {
    const std::int64_t n = std::min(piece, count - i);
    compute(i, n, values + begin);
    const std::int64_t end = begin + n;
    std::int64_t j = 0;
    if (i == 0 && behind != 0) {
      j = std::min(line, end);
      std::copy_n(values + behind, j - behind, to);
    }
    for (; j + line <= end; j += line) {
      for (std::int64_t k = j; k < j + line; k += lanes())
        hn::Stream(hn::Load(floats(), values + k), floats(), to + (i - begin + k));
    }
    begin = end - j;
    if (begin != 0) std::copy_n(values + j, begin, values);
  }
  if (begin != 0) std::copy_n(values, begin, to + (count - begin));
}

/// Runs whole(first) for vectors of values and rest(i) for single ones, which read `from`.
template <class In, class Whole, class Rest>
HWY_INLINE void in_vectors(const In* from, std::int64_t count, const Whole& whole, const Rest& rest) {
  constexpr std::int64_t step = 16;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    fetch_ahead<step * sizeof(In)>(from + i);
    for (std::int64_t j = 0; j < step; j += lanes())
      whole(i + j);
  }
  for (; i + lanes() <= count; i += lanes())
    whole(i);
  for (; i < count; ++i)
    rest(i);
}

/// Runs convert(from, to) for blocks of so many values; a last, shorter one goes through copies, so that
/// convert() always reads and writes a whole block.
template <std::int64_t Block, class In, class Out, class Convert>
HWY_INLINE void convert_blocks(const In* from, std::int64_t count, Out* to, const Convert& convert) {
  std::int64_t i = 0;
  for (; i + Block <= count; i += Block) {
    fetch_ahead<Block * sizeof(In)>(from + i);
    if constexpr (sizeof(Out) < sizeof(In)) fetch_ahead<Block * sizeof(Out)>(to + i);
    convert(from + i, to + i);
  }
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i);
  constexpr auto size = static_cast<std::size_t>(Block);
  In in[size] = {};
  Out out[size];
  std::memcpy(in, from + i, rest * sizeof(In));
  convert(in, out);
  std::memcpy(to + i, out, rest * sizeof(Out));
}

bool bit_at(const std::uint8_t* bits, std::int64_t i) {
  return (bits[i / 8] >> (i % 8) & 1) != 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::detail
