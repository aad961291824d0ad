// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Non-overlapping windows of 2 x 2 in NCHW where rows of x are whole vec16s (16 bytes). At each of its steps
/// a thread has one vec16 of an upper row and the one below it, and of y half a vec16. Vec16s of neighbouring
/// lanes follow each other, so an instruction of a warp moves whole sectors, and so do a warp's steps. Codes
/// of one step are a byte of a word, or a part of it.

#include <cstdint>
#include <type_traits>

#include "pool/pool_backward.hpp"
#include "pool/pool_disjoint.hpp"
#include "pool/pool_forward.hpp"

namespace stash::kernels {

/// Steps of a thread: bytes of a word.
inline constexpr unsigned pair_steps = 4;
/// Windows of a step.
template <class Bits>
inline constexpr unsigned pair_windows = 8 / sizeof(Bits);
/// Which windows of y a thread has: half a vec16 at each of its steps, those of a warp follow each other.
template <class Bits, unsigned Steps>
class step_positions {
 public:
  /// Windows of a block.
  static constexpr unsigned block_windows = pool_threads * Steps * pair_windows<Bits>;

  STASH_DEVICE explicit step_positions(const pool_job& job) {
    const std::uint64_t values = job.y_units * group_elements;
    const std::uint64_t begin = block_rank() * block_windows;
    // Blocks that only pad planes read what the first one does.
    first_ = begin < values ? begin : 0;
    const std::uint64_t left = values - first_;
    left_ = begin >= values ? 0 : left < block_windows ? static_cast<std::uint32_t>(left) : block_windows;
    at_ =
        thread_rank() / warp_lanes * (Steps * step_windows) + thread_rank() % warp_lanes * pair_windows<Bits>;
  }

  STASH_DEVICE bool exists(unsigned step) const { return index(step) < left_; }
  /// Bytes of the steps that exist.
  STASH_DEVICE std::uint32_t existing() const {
    std::uint32_t bytes = 0xffffffffU;
    if (left_ == block_windows) return bytes;
    STASH_UNROLL
    for (unsigned step = 0; step < Steps; ++step)
      bytes &= exists(step) ? 0xffffffffU : ~(0xffU << (8 * step));
    return bytes;
  }
  // Positions of a step that does not exist are those of the block's first one.

  /// A step's first window in y.
  STASH_DEVICE std::uint64_t number(unsigned step) const { return first_ + readable(step); }
  template <class T>
  STASH_DEVICE T* in_y(T* y, unsigned step) const {
    return y + number(step);
  }

 protected:
  STASH_DEVICE std::uint64_t first() const { return first_; }  ///< the block's first window in y
  STASH_DEVICE std::uint32_t index(unsigned step) const { return at_ + step * step_windows; }
  STASH_DEVICE std::uint32_t readable(unsigned step) const { return exists(step) ? index(step) : 0; }

 private:
  static constexpr unsigned step_windows = warp_lanes * pair_windows<Bits>;
  std::uint64_t first_;
  std::uint32_t left_;  ///< the block's windows
  std::uint32_t at_;    ///< the thread's first window in the block
};

/// Where they lie in x.
template <class Bits>
class pair_positions : public step_positions<Bits, pair_steps> {
 public:
  STASH_DEVICE explicit pair_positions(const pool_job& job)
      : step_positions<Bits, pair_steps>(job), job_(job) {
    std::uint64_t row = this->first();
    column_ = static_cast<std::uint32_t>(take_digit(row, job.columns.by_out));
    x_ = 2 * this->first() + row * static_cast<std::uint64_t>(job.columns.in);
  }

  /// The first upper tap of a step.
  template <class T>
  STASH_DEVICE T* in_x(T* x, unsigned step) const {
    const std::uint32_t at = this->readable(step);
    const std::uint32_t row = small_quotient(column_ + at, job_.columns.by_out);
    return x + x_ + (2 * at + row * static_cast<std::uint32_t>(job_.columns.in));
  }
  /// The distance of the other taps.
  STASH_DEVICE std::uint64_t row() const { return static_cast<std::uint64_t>(job_.columns.in); }

 private:
  const pool_job& job_;
  std::uint64_t x_;       ///< the block's first tap
  std::uint32_t column_;  ///< of its first window
};

/// Of each step a byte: taps of its windows, two bits each; the same of those that pass, else 0; and whether
/// they pass, a bit each.
struct pair_codes {
  std::uint32_t taps = 0, codes = 0, pass = 0;
};

/// A vec16 of an upper row, and the one below.
struct vec16_pair {
  vector16 upper, lower;
};
template <class Bits>
STASH_DEVICE vec16_pair load_pair(const void* x, const pair_positions<Bits>& positions, unsigned step) {
  const Bits* const from = positions.in_x(static_cast<const Bits*>(x), step);
  return {load_once(reinterpret_cast<const vector16*>(from)),
          load_once(reinterpret_cast<const vector16*>(from + positions.row()))};
}

// In a window's rows the right tap wins if it is above the left one, and then the lower row's argmax if it
// is above the upper one's: so the first of equals wins.

/// A search among numbers, which notes NaN as number_search does. With a ReLU, windows that do not pass have
/// their first tap, +0.
template <class Bits>
struct pair_search;

template <>
struct pair_search<std::uint32_t> {
  const bool relu;
  float noted = 0;
  std::uint32_t taps = 0, pass = 0;

  /// Maxima of a step.
  STASH_DEVICE vector8 see(const vec16_pair& p, unsigned step) {
    vector8 y;
    STASH_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      float upper = as_float(p.upper.word[2 * i]), lower = as_float(p.lower.word[2 * i]);
      const float upper_right = as_float(p.upper.word[2 * i + 1]);
      const float lower_right = as_float(p.lower.word[2 * i + 1]);
      for (const float value : {upper, upper_right, lower, lower_right})
        noted = value * value + noted;
      std::uint32_t tap = upper_right > upper ? 1 : 0;
      const std::uint32_t lower_tap = lower_right > lower ? 3 : 2;
      upper = upper_right > upper ? upper_right : upper;
      lower = lower_right > lower ? lower_right : lower;
      tap = lower > upper ? lower_tap : tap;
      float best = lower > upper ? lower : upper;
      const bool kept = !relu || best > 0;
      best = kept ? best : 0;
      tap = kept ? tap : 0;
      y.word[i] = as_bits(best);
      taps |= tap << (8 * step + 2 * i);
      pass |= (kept ? 1U : 0U) << (8 * step + i);
    }
    return y;
  }
  STASH_DEVICE bool needs_care() const { return noted != noted; }
  STASH_DEVICE pair_codes found() const { return {taps, taps, pass}; }
};

template <>
struct pair_search<std::uint16_t> {
  const bool relu;
  std::uint32_t noted = 0;
  // Codes of two steps: of even windows in the lower half, of odd ones in the upper half.
  std::uint32_t taps[2] = {}, pass[2] = {};

  STASH_DEVICE vector8 see(const vec16_pair& p, unsigned step) {
    vector8 y;
    STASH_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      const auto left = [i](const vector16& v) {
        return pick_bytes(v.word[2 * i], v.word[2 * i + 1], 0x5410);
      };
      const auto right = [i](const vector16& v) {
        return pick_bytes(v.word[2 * i], v.word[2 * i + 1], 0x7632);
      };
      for (const std::uint32_t word :
           {p.upper.word[2 * i], p.upper.word[2 * i + 1], p.lower.word[2 * i], p.lower.word[2 * i + 1]})
        noted = note_nan(noted, word);
      std::uint32_t upper = left(p.upper), lower = left(p.lower);
      const std::uint32_t upper_right = greater_masks(right(p.upper), upper);
      const std::uint32_t lower_right = greater_masks(right(p.lower), lower);
      upper = select_bits(upper_right, right(p.upper), upper);
      lower = select_bits(lower_right, right(p.lower), lower);
      std::uint32_t below = greater_masks(lower, upper);
      std::uint32_t best = select_bits(below, lower, upper);
      std::uint32_t from_right = select_bits(below, lower_right, upper_right);
      if (relu) {
        const std::uint32_t kept = greater_masks(best, 0);
        best &= kept;
        below &= kept;
        from_right &= kept;
        pass[step / 2] |= kept & 0x00020001U << (8 * (step % 2) + 2 * i);
      }
      y.word[i] = best;
      // Columns are even bits, rows odd ones.
      taps[step / 2] |= select_bits(0x55555555U, from_right, below) & 0x000c0003U << (8 * (step % 2) + 4 * i);
    }
    return y;
  }
  STASH_DEVICE bool needs_care() const { return is_nan_sum<std::uint16_t>(noted); }
  STASH_DEVICE pair_codes found() const {
    const auto joined = [](const std::uint32_t(&halves)[2]) {
      return pick_bytes(halves[0], halves[1], 0x5410) | pick_bytes(halves[0], halves[1], 0x7632);
    };
    const std::uint32_t all = joined(taps);
    return {all, all, relu ? joined(pass) : 0x0f0f0f0fU};
  }
};

/// Taps of a row's vec16 in one of the windows' columns.
template <class Bits>
STASH_DEVICE lanes<Bits, pair_windows<Bits>> taps_in_pairs(const vector16& row, unsigned column) {
  constexpr unsigned per_word = 4 / sizeof(Bits);
  lanes<Bits, pair_windows<Bits>> taps;
  STASH_UNROLL
  for (unsigned i = 0; i < pair_windows<Bits>; ++i) {
    const unsigned e = 2 * i + column;
    taps.value[i] = static_cast<Bits>(row.word[e / per_word] >> (8 * sizeof(Bits) * (e % per_word)));
  }
  return taps;
}

/// Maxima of a step by a search that knows every rule; it leaves the step's codes in place of others.
template <class Bits>
STASH_DEVICE vector8 find_with_care(const pool_job& job, bool relu, const vec16_pair& p, unsigned step,
                                    pair_codes& codes) {
  constexpr unsigned windows = pair_windows<Bits>, per_word = 4 / sizeof(Bits);
  maxima<windows> best;
  const lanes<Bits, windows> first = taps_in_pairs<Bits>(p.upper, 0);
  STASH_UNROLL
  for (unsigned i = 0; i < windows; ++i) {
    best.rank[i] = rank_of(first.value[i]);
    best.tap[i] = 0;
  }
  compete(job, taps_in_pairs<Bits>(p.upper, 1), 1, best);
  compete(job, taps_in_pairs<Bits>(p.lower, 0), 2, best);
  compete(job, taps_in_pairs<Bits>(p.lower, 1), 3, best);
  if (relu) rectify_maxima<Bits>(job, 0, best);
  pair_codes found;
  vector8 y = {};
  STASH_UNROLL
  for (unsigned i = 0; i < windows; ++i) {
    const Bits value = element_of<Bits>(best.rank[i]);
    const bool kept = !relu || passes(value, job.type, job.nan_wins);
    y.word[i / per_word] |= static_cast<std::uint32_t>(value) << (8 * sizeof(Bits) * (i % per_word));
    found.taps |= best.tap[i] << (2 * i);
    found.codes |= (kept ? best.tap[i] : 0) << (2 * i);
    found.pass |= (kept ? 1U : 0U) << i;
  }
  const auto replace = [step](std::uint32_t& word, std::uint32_t byte) {
    word = (word & ~(0xffU << (8 * step))) | byte << (8 * step);
  };
  replace(codes.taps, found.taps);
  replace(codes.codes, found.codes);
  replace(codes.pass, found.pass);
  return y;
}

/// Finds the maxima of a thread's windows and calls store(step, maxima), again where it has to look with
/// care.
template <class Bits, class Store>
STASH_DEVICE pair_codes find_pair_maxima(const pool_job& job, bool relu, const void* x,
                                         const pair_positions<Bits>& positions, const Store& store) {
  vec16_pair pairs[pair_steps];
  STASH_UNROLL
  for (unsigned step = 0; step < pair_steps; ++step)
    pairs[step] = load_pair<Bits>(x, positions, step);
  pair_search<Bits> search{relu};
  STASH_UNROLL
  for (unsigned step = 0; step < pair_steps; ++step)
    store(step, search.see(pairs[step], step));
  pair_codes codes = search.found();
  if (search.needs_care()) {
    STASH_NO_UNROLL
    for (unsigned step = 0; step < pair_steps; ++step)
      store(step, find_with_care<Bits>(job, relu, load_pair<Bits>(x, positions, step), step, codes));
  }
  return codes;
}

/// Of four lanes the bytes of one step, which is the lane's number modulo 4.
STASH_DEVICE std::uint32_t bytes_of_step(std::uint32_t word) {
  const std::uint32_t neighbour = shuffle_xor(all_lanes, word, 1);
  word = pick_bytes_at(word, neighbour, (thread_rank() & 1) != 0 ? 0x3715 : 0x6240);
  const std::uint32_t other = shuffle_xor(all_lanes, word, 2);
  return pick_bytes_at(word, other, (thread_rank() & 2) != 0 ? 0x3276 : 0x5410);
}

/// Writes a block's codes of CodeBits. All lanes of a warp come.
template <class Bits, unsigned CodeBits>
STASH_DEVICE void store_pair_codes(const code_plane& plane, std::uint32_t codes) {
  if (plane.data == nullptr) return;
  constexpr unsigned step_bits = CodeBits * pair_windows<Bits>;
  constexpr unsigned step_windows = warp_lanes * pair_windows<Bits>;
  std::uint32_t word = bytes_of_step(codes);
  if constexpr (step_bits == 4) {
    word = (word | word >> 4) & 0x00ff00ffU;
    word |= word >> 8;
  } else if constexpr (step_bits == 2) {
    word = (word | word >> 6) & 0x000f000fU;
    word |= word >> 12;
  }
  const unsigned lane = thread_rank() % warp_lanes;
  const unsigned at = thread_rank() / warp_lanes * (pair_steps * step_windows) + lane % 4 * step_windows +
                      lane / 4 * (4 * pair_windows<Bits>);
  const std::uint64_t byte =
      block_rank() * (pair_positions<Bits>::block_windows * CodeBits / 8) + at * CodeBits / 8;
  if (byte >= plane.bytes) return;
  using part = std::conditional_t<step_bits == 8, std::uint32_t,
                                  std::conditional_t<step_bits == 4, std::uint16_t, std::uint8_t>>;
  *reinterpret_cast<part*>(plane.data + byte) = static_cast<part>(word);
}

/// y and the planes that are asked for. Grid: blocks of all values of y, and of the planes' padding.
template <class Bits>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_forward_pairs(pool_job job, bool relu, const void* x, void* y, pool_planes planes) {
  begin_kernel();
  const pair_positions<Bits> positions(job);
  const pair_codes codes =
      find_pair_maxima<Bits>(job, relu, x, positions, [&](unsigned step, const vector8& maxima) {
        if (positions.exists(step))
          *reinterpret_cast<vector8*>(positions.in_y(static_cast<Bits*>(y), step)) = maxima;
      });
  const std::uint32_t existing = positions.existing();
  store_pair_codes<Bits, 2>(planes.index, codes.taps & existing);
  store_pair_codes<Bits, 2>(planes.code, codes.codes & existing);
  store_pair_codes<Bits, 1>(planes.gradient, codes.pass & existing);
  if (block_rank() == 0 && thread_rank() == 0) report_planes(planes);
}

/// Of each step a byte: whether the gradients of its windows pass, by anything but their codes.
template <class Bits, unsigned Steps>
STASH_DEVICE std::uint32_t passing_of_steps(const pool_job& job, const encoded_argmaxes& from,
                                            const step_positions<Bits, Steps>& positions) {
  if (from.passing == pass_source::always) return 0xffffffffU;
  std::uint32_t pass = 0;
  const auto look = [&](unsigned step) {
    map_position<std::int32_t> o{};
    o.pixel = positions.number(step);
    pass |= passing_bits<Bits, pair_windows<Bits>>(job, from, o) << (8 * step);
  };
  if (from.passing == pass_source::cast) {
    STASH_NO_UNROLL
    for (unsigned step = 0; step < Steps; ++step)
      look(step);
  } else {
    STASH_UNROLL
    for (unsigned step = 0; step < Steps; ++step)
      look(step);
  }
  return pass;
}

/// A code of two bits is a tap, whatever it is.
template <class Bits>
STASH_DEVICE pair_codes load_pair_codes(const pool_job& job, const encoded_argmaxes& from,
                                        const pair_positions<Bits>& positions) {
  constexpr unsigned windows = pair_windows<Bits>;
  pair_codes codes;
  STASH_UNROLL
  for (unsigned step = 0; step < pair_steps; ++step) {
    const std::uint64_t first = positions.number(step);
    const std::uint32_t taps = from.taps[first / 4] >> (first % 4 * 2) & ((1U << (2 * windows)) - 1);
    codes.taps |= taps << (8 * step);
  }
  codes.pass = passing_of_steps<Bits>(job, from, positions);
  return codes;
}
template <class Bits>
STASH_DEVICE pair_codes load_pair_codes(const pool_job& job, const searched_argmaxes& from,
                                        const pair_positions<Bits>& positions) {
  return find_pair_maxima<Bits>(job, from.relu, from.x, positions, [](unsigned, const vector8&) {});
}

/// Four bits as the signs of bytes.
STASH_DEVICE std::uint32_t spread_signs(std::uint32_t bits) {
  return (bits & 0xf) * 0x10204080U;
}

/// What gradients of a step become in x, if their lowest bits of `taps` and `pass` say so.
STASH_DEVICE vec16_pair spread_pairs(const element_type& type, const vector8& dy, std::uint32_t taps,
                                     std::uint32_t pass, std::uint32_t) {
  vec16_pair out;
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    const bool passes_on = (pass >> i & 1) != 0;
    const std::uint32_t share = passes_on ? arriving(type, dy.word[i], std::uint32_t{}) : 0;
    const std::uint32_t tap = taps >> (2 * i) & 3;
    out.upper.word[2 * i] = tap == 0 ? share : 0;
    out.upper.word[2 * i + 1] = tap == 1 ? share : 0;
    out.lower.word[2 * i] = tap == 2 ? share : 0;
    out.lower.word[2 * i + 1] = tap == 3 ? share : 0;
  }
  return out;
}
STASH_DEVICE vec16_pair spread_pairs(const element_type& type, const vector8& dy, std::uint32_t taps,
                                     std::uint32_t pass, std::uint16_t) {
  const std::uint32_t passing = spread_signs(pass);
  vec16_pair out;
  STASH_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    std::uint32_t share = arriving(type, dy.word[i], std::uint16_t{});
    share &= i == 0 ? sign_masks_of_lower(passing) : sign_masks_of_upper(passing);
    // Bytes of a window: its column, its row.
    const std::uint32_t signs = spread_signs(taps >> (4 * i));
    const auto spread = [&](std::uint32_t both, std::uint32_t column, std::uint32_t row, unsigned word) {
      const std::uint32_t in_column = both & (column ^ 0x0000ffffU);
      out.upper.word[word] = in_column & ~row;
      out.lower.word[word] = in_column & row;
    };
    spread(pick_bytes(share, 0, 0x1010), signs_of_bytes<0x8888>(signs), signs_of_bytes<0x9999>(signs), 2 * i);
    spread(pick_bytes(share, 0, 0x3232), signs_of_bytes<0xaaaa>(signs), signs_of_bytes<0xbbbb>(signs),
           2 * i + 1);
  }
  return out;
}

/// dx. Grid: blocks of all values of y.
template <class Bits, class Source>
STASH_KERNEL(pool_threads, tuning::pool_blocks)
pool_backward_pairs(pool_job job, const void* dy, Source source, void* dx) {
  begin_kernel();
  const pair_positions<Bits> positions(job);
  vector8 gradients[pair_steps];
  STASH_UNROLL
  for (unsigned step = 0; step < pair_steps; ++step)
    gradients[step] = *reinterpret_cast<const vector8*>(positions.in_y(static_cast<const Bits*>(dy), step));
  const pair_codes codes = load_pair_codes<Bits>(job, source, positions);
  STASH_UNROLL
  for (unsigned step = 0; step < pair_steps; ++step) {
    const vec16_pair out =
        spread_pairs(job.type, gradients[step], codes.taps >> (8 * step), codes.pass >> (8 * step), Bits{});
    if (!positions.exists(step)) continue;
    Bits* const to = positions.in_x(static_cast<Bits*>(dx), step);
    store_vector(reinterpret_cast<vector16*>(to), out.upper);
    store_vector(reinterpret_cast<vector16*>(to + positions.row()), out.lower);
  }
}

}  // namespace stash::kernels
