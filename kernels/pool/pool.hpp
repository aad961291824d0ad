// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Max pooling on a device: how windows lie in a map, and the search for a window's maximum (docs/format.md,
/// window_index). Kernels come in two widths. Eight: a thread has eight channels of one pixel, in NHWC and
/// groups of eight are aligned. One: any map. pool_halo_tiles.hpp has kernels for common windows in NCHW.
///
/// A map in NCHW is one with a single channel and as many samples as there were channels.

#include <cstdint>
#include <type_traits>

#include "common/divisor.hpp"
#include "common/elements.hpp"
#include "common/tuning.hpp"
#include "pool/pool_geometry.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {

using tuning::pool_threads;

/// Elements of a vec16 (16 bytes).
template <class Bits>
inline constexpr unsigned vec16_elements = 16 / sizeof(Bits);

/// Depth, rows or columns of a layer, and what positions in it are divided by.
struct window_axis : pool_axis {
  divisor by_in, by_out, by_kernel, by_stride, by_dilation;
};

// P is the type of positions and numbers of windows: 32 bits where all of them fit, with space to add two.

/// Division of numbers that are not negative.
template <class P>
STASH_DEVICE P divided(P n, const divisor& d) {
  if constexpr (sizeof(P) == 4) {
    return static_cast<P>(small_quotient(static_cast<std::uint32_t>(n), d));
  } else {
    return static_cast<P>(quotient(static_cast<std::uint64_t>(n), d));
  }
}

/// The position of [0, count) that is nearest to `at`.
STASH_DEVICE std::int32_t nearest_in(std::int32_t at, std::int32_t count) {
  const std::int32_t low = at < count ? at : count - 1;
  return low > 0 ? low : 0;
}

/// What of window `o` lies in x: taps [begin, end), of which the first lies at `at`.
template <class P>
struct tap_range {
  P begin, end, at;
};
template <class P>
STASH_DEVICE tap_range<P> taps_in_map(const window_axis& a, P o) {
  const P origin = o * static_cast<P>(a.stride) - static_cast<P>(a.pad);
  const P begin = origin >= 0 ? 0 : divided(static_cast<P>(-origin - 1), a.by_dilation) + 1;
  const P last = divided(static_cast<P>(static_cast<P>(a.in) - 1 - origin), a.by_dilation) + 1;
  const P kernel = static_cast<P>(a.kernel);
  return {begin, last < kernel ? last : kernel, origin + begin * static_cast<P>(a.dilation)};
}

/// Geometry of a layer. x stands for the map that is pooled or its gradient, y for the pooled one.
struct pool_job {
  window_axis depth, rows, columns;
  std::uint64_t channels;
  divisor by_units;                ///< threads of a pixel
  std::uint64_t x_units, y_units;  ///< threads of a map
  std::uint64_t x_pitch, y_pitch;  ///< elements from pixel to pixel
  element_type type;
  bool nan_wins;  ///< the rule of pytorch
};

/// Where a thread's elements lie in a map.
template <class P>
struct map_position {
  std::uint64_t sample, pixel, channel;
  P z, y, x;
};

template <unsigned Width, class P>
STASH_DEVICE map_position<P> position_in_map(const pool_job& job, std::uint64_t unit, const divisor& depth,
                                             const divisor& rows, const divisor& columns) {
  map_position<P> position;
  position.channel = take_digit(unit, job.by_units) * Width;
  position.pixel = unit;
  position.x = static_cast<P>(take_digit(unit, columns));
  position.y = static_cast<P>(take_digit(unit, rows));
  position.z = static_cast<P>(take_digit(unit, depth));
  position.sample = unit;
  return position;
}

/// Elements that are read more than once: through the first-level cache.
template <class Bits, unsigned Width>
struct lanes {
  Bits value[Width];
};
template <class Bits, unsigned Width>
STASH_DEVICE lanes<Bits, Width> load_lanes(const Bits* from) {
  lanes<Bits, Width> out;
  if constexpr (Width == 1) {
    out.value[0] = *from;
  } else if constexpr (Width * sizeof(Bits) == sizeof(vector8)) {
    const vector8 v = *reinterpret_cast<const vector8*>(from);
    constexpr unsigned per_word = 4 / sizeof(Bits);
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i)
      out.value[i] = static_cast<Bits>(v.word[i / per_word] >> (8 * sizeof(Bits) * (i % per_word)));
  } else {
    vector16 v[group_vectors<Bits>];
    STASH_UNROLL
    for (unsigned i = 0; i < group_vectors<Bits>; ++i)
      v[i] = reinterpret_cast<const vector16*>(from)[i];
    const group<Bits> g = unpacked<Bits>(v);
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i)
      out.value[i] = g.value[i];
  }
  return out;
}
template <class Bits, unsigned Width>
STASH_DEVICE void store_lanes(Bits* to, const lanes<Bits, Width>& from) {
  if constexpr (Width == 1) {
    *to = from.value[0];
  } else {
    group<Bits> g;
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i)
      g.value[i] = from.value[i];
    store_group(to, g);
  }
}

/// Maxima so far, as ranks: floats in the order of the elements. A 16-bit element is the upper half of its
/// rank, which orders f16 as well as bf16, without NaN.
template <unsigned Width>
struct maxima {
  float rank[Width];
  std::uint32_t tap[Width];
};

template <class Bits>
inline constexpr unsigned rank_shift = 32 - 8 * sizeof(Bits);

template <class Bits>
STASH_DEVICE float rank_of(Bits bits) {
  return as_float(std::uint32_t{bits} << rank_shift<Bits>);
}
template <class Bits>
STASH_DEVICE Bits element_of(float rank) {
  return static_cast<Bits>(as_bits(rank) >> rank_shift<Bits>);
}

/// Lets tap `tap` of a window compete.
template <class Bits, unsigned Width>
STASH_DEVICE void compete(const pool_job& job, const lanes<Bits, Width>& candidate, std::uint32_t tap,
                          maxima<Width>& best) {
  const float infinity = as_float(job.type.infinity << rank_shift<Bits>);
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i) {
    const float rank = rank_of(candidate.value[i]);
    const bool nan = !(magnitude_of(rank) <= infinity);
    bool more = rank > best.rank[i];
    // A NaN of f16 has a rank like a number's.
    if constexpr (sizeof(Bits) == 2) {
      more = more && !nan && magnitude_of(best.rank[i]) <= infinity;
    }
    const bool wins = more || (nan && job.nan_wins);
    best.rank[i] = wins ? rank : best.rank[i];
    best.tap[i] = wins ? tap : best.tap[i];
  }
}

/// A search that knows every rule.
template <class Bits, unsigned Width>
struct careful_search {
  using loaded = lanes<Bits, Width>;
  const pool_job& job;
  maxima<Width>& best;

  STASH_DEVICE static loaded load(const Bits* from) { return load_lanes<Bits, Width>(from); }
  STASH_DEVICE void begin(const loaded& first, std::uint32_t tap) {
    STASH_UNROLL
    for (unsigned i = 0; i < Width; ++i) {
      best.rank[i] = rank_of(first.value[i]);
      best.tap[i] = tap;
    }
  }
  STASH_DEVICE void see(const loaded& candidate, std::uint32_t tap) { compete(job, candidate, tap, best); }
};

// Words of elements. 16-bit elements are compared as f16, two at once, which is right for bf16 as well, as
// long as no magnitude is above that of f16's infinity. A sum of all words tells whether there is something
// that has to be looked at with care: it is a NaN if one of them is, and hardly ever else.

/// Lets the elements of a word compete, each half of `tap` being the number of its element.
template <class Bits>
STASH_DEVICE void compete_words(std::uint32_t word, std::uint32_t tap, std::uint32_t& best,
                                std::uint32_t& best_tap) {
  if constexpr (sizeof(Bits) == 4) {
    const bool more = as_float(word) > as_float(best);
    best = more ? word : best;
    best_tap = more ? tap : best_tap;
  } else {
    const std::uint32_t more = greater_masks(word, best);
    best = select_bits(more, word, best);
    best_tap = select_bits(more, tap, best_tap);
  }
}
template <class Bits>
STASH_DEVICE std::uint32_t sum_of_words(std::uint32_t sum, std::uint32_t word) {
  if constexpr (sizeof(Bits) == 4) {
    return as_bits(as_float(sum) + as_float(word));
  } else {
    return add_halves(sum, word);
  }
}
template <class Bits>
STASH_DEVICE bool is_nan_sum(std::uint32_t sum) {
  if constexpr (sizeof(Bits) == 4) {
    return (sum & 0x7fffffffU) > 0x7f800000U;
  } else {
    return (sum & 0x7fff) > 0x7c00 || (sum >> 16 & 0x7fff) > 0x7c00;
  }
}
/// All bits of the elements above zero, of words without NaN.
template <class Bits>
STASH_DEVICE std::uint32_t positive_masks(std::uint32_t word) {
  if constexpr (sizeof(Bits) == 4) {
    return as_float(word) > 0 ? 0xffffffffU : 0;
  } else {
    return greater_masks(word, 0);
  }
}

/// A search among numbers, in words.
template <class Bits>
struct number_search {
  struct loaded {
    vector16 vec16[group_vectors<Bits>];

    STASH_DEVICE std::uint32_t word(unsigned w) const { return vec16[w / 4].word[w % 4]; }
  };
  static constexpr unsigned words = 4 * group_vectors<Bits>;
  std::uint32_t best[words], taps[words];
  std::uint32_t sum = 0;

  STASH_DEVICE static loaded load(const Bits* from) {
    loaded l;
    STASH_UNROLL
    for (unsigned i = 0; i < group_vectors<Bits>; ++i)
      l.vec16[i] = reinterpret_cast<const vector16*>(from)[i];
    return l;
  }
  STASH_DEVICE static std::uint32_t number(std::uint32_t tap) {
    return sizeof(Bits) == 4 ? tap : tap * 0x10001U;
  }
  STASH_DEVICE void begin(const loaded& first, std::uint32_t tap) {
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      best[w] = first.word(w);
      taps[w] = number(tap);
    }
  }
  STASH_DEVICE void see(const loaded& candidate, std::uint32_t tap) {
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      sum = sum_of_words<Bits>(sum, candidate.word(w));
      compete_words<Bits>(candidate.word(w), number(tap), best[w], taps[w]);
    }
  }
  STASH_DEVICE bool needs_care() const { return is_nan_sum<Bits>(sum); }
  STASH_DEVICE void give(maxima<group_elements>& found) const {
    STASH_UNROLL
    for (unsigned w = 0; w < words; ++w) {
      if constexpr (sizeof(Bits) == 4) {
        found.rank[w] = as_float(best[w]);
        found.tap[w] = taps[w];
      } else {
        found.rank[2 * w] = as_float(best[w] << 16);
        found.rank[2 * w + 1] = as_float(best[w] & 0xffff0000U);
        found.tap[2 * w] = taps[w] & 0xffff;
        found.tap[2 * w + 1] = taps[w] >> 16;
      }
    }
  }
};

/// The same of one element at a time.
template <class Bits>
struct single_search {
  using loaded = Bits;
  float best;
  std::uint32_t tap, sum = 0;

  STASH_DEVICE static loaded load(const Bits* from) { return *from; }
  STASH_DEVICE void begin(loaded first, std::uint32_t first_tap) {
    best = rank_of(first);
    tap = first_tap;
  }
  STASH_DEVICE void see(loaded candidate, std::uint32_t number) {
    sum = sum_of_words<Bits>(sum, candidate);
    const float rank = rank_of(candidate);
    const bool more = rank > best;
    best = more ? rank : best;
    tap = more ? number : tap;
  }
  STASH_DEVICE bool needs_care() const { return is_nan_sum<Bits>(sum); }
};

/// Shows a search the taps of a window in x, and says which is the first; o's channel counts, its pixel does
/// not.
template <class Bits, class P, class Search>
STASH_DEVICE std::uint32_t search_window(const pool_job& job, const void* x, std::uint64_t pitch,
                                         const map_position<P>& o, Search& search) {
  using loaded = typename Search::loaded;
  const tap_range<P> d = taps_in_map<P>(job.depth, o.z), r = taps_in_map<P>(job.rows, o.y),
                     c = taps_in_map<P>(job.columns, o.x);
  const auto in = [](const window_axis& a) { return static_cast<std::uint64_t>(a.in); };
  const auto at = [](P p) { return static_cast<std::uint64_t>(p); };
  const auto step = [](const window_axis& a, std::uint64_t distance) {
    return static_cast<std::uint64_t>(a.dilation) * distance;
  };
  const std::uint64_t x_step = step(job.columns, pitch);
  const std::uint64_t y_step = step(job.rows, in(job.columns) * pitch);
  const std::uint64_t z_step = step(job.depth, in(job.rows) * in(job.columns) * pitch);
  const std::uint64_t first_pixel =
      ((o.sample * in(job.depth) + at(d.at)) * in(job.rows) + at(r.at)) * in(job.columns) + at(c.at);
  const Bits* slice = static_cast<const Bits*>(x) + first_pixel * pitch + o.channel;

  const auto kernel_w = static_cast<std::uint32_t>(job.columns.kernel);
  const auto kernel_h = static_cast<std::uint32_t>(job.rows.kernel);
  const auto number = [&](P kz, P ky) {
    return (static_cast<std::uint32_t>(kz) * kernel_h + static_cast<std::uint32_t>(ky)) * kernel_w +
           static_cast<std::uint32_t>(c.begin);
  };
  const std::uint32_t first_tap = number(d.begin, r.begin);
  search.begin(Search::load(slice), first_tap);
  for (P kz = d.begin; kz < d.end; ++kz, slice += z_step) {
    const Bits* row = slice;
    for (P ky = r.begin; ky < r.end; ++ky, row += y_step) {
      std::uint32_t tap = number(kz, ky);
      const Bits* from = row;
      // Some at a time, so that their loads are under way together. The first tap of all meets itself, which
      // changes nothing.
      P left = c.end - c.begin;
      for (; left >= 3; left -= 3, from += 3 * x_step, tap += 3) {
        const loaded one = Search::load(from), two = Search::load(from + x_step);
        const loaded three = Search::load(from + 2 * x_step);
        search.see(one, tap);
        search.see(two, tap + 1);
        search.see(three, tap + 2);
      }
      if (left == 2) {
        const loaded one = Search::load(from), two = Search::load(from + x_step);
        search.see(one, tap);
        search.see(two, tap + 1);
      } else if (left == 1) {
        search.see(Search::load(from), tap);
      }
    }
  }
  return first_tap;
}

/// The maxima of a window, and its first tap in x; o's channel counts, its pixel does not.
template <class Bits, unsigned Width, class P>
STASH_DEVICE std::uint32_t find_maxima(const pool_job& job, const void* x, std::uint64_t pitch,
                                       const map_position<P>& o, maxima<Width>& best) {
  if constexpr (Width == group_elements) {
    number_search<Bits> numbers;
    const std::uint32_t first_tap = search_window<Bits>(job, x, pitch, o, numbers);
    numbers.give(best);
    if (!numbers.needs_care()) return first_tap;
  }
  careful_search<Bits, Width> careful{job, best};
  return search_window<Bits>(job, x, pitch, o, careful);
}
/// The same of one element where NaN is rare.
template <class Bits, class P>
STASH_DEVICE std::uint32_t find_maximum(const pool_job& job, const void* x, std::uint64_t pitch,
                                        const map_position<P>& o, maxima<1>& best) {
  single_search<Bits> numbers;
  const std::uint32_t first_tap = search_window<Bits>(job, x, pitch, o, numbers);
  best = {{numbers.best}, {numbers.tap}};
  return numbers.needs_care() ? find_maxima<Bits, 1>(job, x, pitch, o, best) : first_tap;
}

/// What a ReLU before the pooling does to a maximum: as long as it is not positive, every tap is +0, so that
/// the first one wins.
template <class Bits>
STASH_DEVICE void rectify_maximum(const pool_job& job, std::uint32_t first_tap, float& rank,
                                  std::uint32_t& tap) {
  const bool kept = passes(element_of<Bits>(rank), job.type, true);
  rank = kept ? rank : 0.0F;
  tap = kept ? tap : first_tap;
}
template <class Bits, unsigned Width>
STASH_DEVICE void rectify_maxima(const pool_job& job, std::uint32_t first_tap, maxima<Width>& best) {
  STASH_UNROLL
  for (unsigned i = 0; i < Width; ++i)
    rectify_maximum<Bits>(job, first_tap, best.rank[i], best.tap[i]);
}

}  // namespace stash::kernels
