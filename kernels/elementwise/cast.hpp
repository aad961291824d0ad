// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// cast on a device: every value in a narrower format.

#include <cstdint>

#include "common/code_elements.hpp"
#include "common/each_group.hpp"
#include "common/mx_codes.hpp"
#include "common/stored_values.hpp"
#include "stash/status.hpp"

namespace stash::kernels {

/// Writes the codes of a tensor, padding included. Not for fp10.
template <class Element, unsigned Bits, bool Scaled>
struct cast_encode_body {
  using loaded = group<Element>;
  static constexpr bool halves = has_halves<Element>;
  static constexpr unsigned groups = groups_in_flight<Element>;
  device_tensor input;
  element_type type;
  device_cast output;
  encode_report* report;

  STASH_DEVICE bool vectors() const { return input.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_halves<Element, half_warps>(input, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_elements<Element>(input, index); }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Element>(input, first, count);
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    store_codes<Bits, Scaled>(output, index, codes_of(in));
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const {
    store_codes<Bits, Scaled, true>(output, index, codes_of(shared_halves<half_warps>(index, in)));
  }
  STASH_DEVICE code_group codes_of(const loaded& in) const {
    const value_conversion& c = output.conversion;
    code_group g{};
    if constexpr (Scaled) {
      scaled_codes_of<Bits, lanes_between_groups<halves>>(packed(in), type, c, g);
    } else if constexpr (Bits == 8 && has_fp8_instructions) {
      fp8_codes_of(in, type, c, g.words);
    } else {
      float values[group_elements];
      to_f32s(in, type, values);
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        g.code[i] = code_of<Bits>(values[i], c);
      pack_codes<Bits>(g);
    }
    return g;
  }
  STASH_DEVICE void finish(bool first) const {
    if (first) atomic_add(&report->slot_bytes, output.scale_bytes + output.bytes);
  }
};

/// MX formats of 4 and 6 bits of 16-bit elements: a thread has all 32 values of a scale, so that nothing is
/// exchanged for it. A "group" of this body is four.
template <unsigned Bits>
struct cast_short_body {
  static constexpr unsigned parts = scaled_group / group_elements;
  struct loaded {
    packed_group<std::uint16_t> part[parts];
  };
  static constexpr bool halves = false;
  static constexpr unsigned groups = 1;
  device_tensor input;
  element_type type;
  device_cast output;
  encode_report* report;

  STASH_DEVICE bool vectors() const { return input.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / scaled_group; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return input.inner == input.pitch ? load_parts(without_pitch(input), index) : load_parts(input, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    loaded in;
    STASH_UNROLL
    for (unsigned p = 0; p < parts; ++p) {
      in.part[p] = packed(load_elements<std::uint16_t>(input, index * parts + p));
      // Or single elements are held, too, which would cost too many registers.
      STASH_UNROLL
      for (std::uint32_t& word : in.part[p].word)
        word = anew(word);
    }
    return in;
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<std::uint16_t>(input, parts * first, parts * count);
  }
  /// The words are eight bytes each, as many of them as are there.
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    std::uint32_t words[Bits];
    const std::uint8_t scale = codes_of(in, words);
    STASH_UNROLL
    for (unsigned w = 0; w < Bits; w += 2) {
      const std::uint64_t at = (index * Bits + w) * 4;
      if (at < output.bytes)
        *reinterpret_cast<std::uint64_t*>(output.codes + at) = words[w] | std::uint64_t{words[w + 1]} << 32;
    }
    if (index < output.scale_bytes) output.scales[index] = scale;
  }
  /// Two lanes share what they store of 6 bits, which is three accesses: each its outer one, the first lane
  /// the one that both have a half of.
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const {
    std::uint32_t words[Bits];
    output.scales[index] = codes_of(in, words);
    if constexpr (Bits == 4) {
      store_once(reinterpret_cast<vector16*>(output.codes) + index,
                 {{words[0], words[1], words[2], words[3]}});
    } else {
      const bool second = index % 2 != 0;
      auto* const to = reinterpret_cast<vector16*>(output.codes) + index / 2 * 3;
      const std::uint32_t next[2] = {shuffle_xor(all_lanes, words[0], 1),
                                     shuffle_xor(all_lanes, words[1], 1)};
      vector16 own;
      STASH_UNROLL
      for (unsigned w = 0; w < 4; ++w)
        own.word[w] = second ? words[2 + w] : words[w];
      store_vector(to + (second ? 2 : 0), own);
      if (!second) store_vector(to + 1, {{words[4], words[5], next[0], next[1]}});
    }
  }
  STASH_DEVICE void finish(bool first) const {
    if (first) atomic_add(&report->slot_bytes, output.scale_bytes + output.bytes);
  }

  /// What lies in one sector is asked for last.
  STASH_DEVICE static loaded load_parts(const device_tensor& from, std::uint64_t index) {
    loaded in;
    STASH_UNROLL
    for (unsigned i = 0; i < parts; ++i) {
      const unsigned p = i % 2 * 2 + i / 2;
      const std::uint64_t at = offset_of(from, (index * parts + p) * group_elements);
      in.part[p] = packed_at(static_cast<const std::uint16_t*>(from.data) + at);
    }
    return in;
  }
  STASH_DEVICE std::uint8_t codes_of(const loaded& in, std::uint32_t (&words)[Bits]) const {
    short_codes codes[parts];
    STASH_UNROLL
    for (unsigned p = 0; p < parts; ++p)
      codes[p].in = in.part[p];
    return codes_of_group<Bits>(codes, type, output.conversion, words);
  }
};

template <unsigned Bits>
inline constexpr unsigned group_blocks<cast_short_body<Bits>, 1> = tuning::short_cast_blocks;

/// fp10: three codes to a word, so a thread takes three groups, which are eight words. A "group" of this
/// body is three.
template <class Element>
struct cast_fp10_body {
  struct loaded {
    group<Element> part[3];
  };
  static constexpr bool halves = false;
  static constexpr unsigned groups = 1;
  device_tensor input;
  element_type type;
  device_cast output;
  encode_report* report;

  STASH_DEVICE bool vectors() const { return input.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / (3 * group_elements); }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    loaded in;
    STASH_UNROLL
    for (unsigned p = 0; p < 3; ++p)
      in.part[p] = load_vectors<Element, true>(input, index * 3 + p);
    return in;
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    loaded in;
    STASH_UNROLL
    for (unsigned p = 0; p < 3; ++p)
      in.part[p] = load_elements<Element>(input, index * 3 + p);
    return in;
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_groups<Element>(input, 3 * first, 3 * count);
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    std::uint32_t words[group_elements] = {};
    if constexpr (sizeof(Element) == 2) {
      if (type.bf16) {
        words_of_pairs(
            in, [&](std::uint32_t pair) { return fp10_of_bfloats(pair, output.conversion); }, words);
      } else {
        words_of_pairs(
            in, [&](std::uint32_t pair) { return fp10_of_halves(pair, output.conversion); }, words);
      }
    } else {
      float values[3][group_elements];
      STASH_UNROLL
      for (unsigned p = 0; p < 3; ++p)
        to_f32s(in.part[p], type, values[p]);
      STASH_UNROLL
      for (unsigned i = 0; i < 3 * group_elements; ++i) {
        const float value = values[i / group_elements][i % group_elements];
        words[i / 3] |= code_of<10>(value, output.conversion) << (10 * (i % 3));
      }
    }
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      if (index * 32 + w * 16 < output.bytes) {
        store_once(reinterpret_cast<vector16*>(output.codes + index * 32) + w,
                   {{words[4 * w], words[4 * w + 1], words[4 * w + 2], words[4 * w + 3]}});
      }
    }
  }
  template <class Convert>
  STASH_DEVICE void words_of_pairs(const loaded& in, const Convert& convert,
                                   std::uint32_t (&words)[group_elements]) const {
    std::uint32_t pairs[3 * group_elements / 2];
    STASH_UNROLL
    for (unsigned i = 0; i < 3 * group_elements; i += 2) {
      const Element* const v = in.part[i / group_elements].value + i % group_elements;
      pairs[i / 2] = convert(v[0] | std::uint32_t{v[1]} << 16);
    }
    STASH_UNROLL
    for (unsigned w = 0; w < group_elements; w += 2)
      pack_fp10(pairs + w / 2 * 3, words + w);
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const { store_any(index, in); }
  STASH_DEVICE void finish(bool first) const {
    if (first) atomic_add(&report->slot_bytes, output.bytes);
  }
};

/// The values of a group's codes, rounded to the tensor's type: the way for all.
template <class Element, unsigned Bits, bool Scaled>
STASH_DEVICE group<Element> values_one_by_one(const code_group& codes, const element_type& type,
                                              const value_conversion& c) {
  float values[group_elements];
  STASH_UNROLL
  for (unsigned i = 0; i < group_elements; ++i)
    values[i] = value_at<Bits, Scaled>(codes, i, c);
  return from_f32s<Element>(values, type);
}
/// The same; numbers, and groups without any other, have shorter ways.
template <class Element, unsigned Bits, bool Scaled>
STASH_DEVICE packed_group<Element> packed_values_of(const code_group& codes, const element_type& type,
                                                    const value_conversion& c) {
  if constexpr (Bits == 8 && !Scaled) {
    const std::uint32_t words[1][2] = {{codes.words[0], codes.words[1]}};
    packed_group<Element> g[1];
    fp8_elements_of(words, type, c, g);
    return g[0];
  } else if constexpr (Scaled) {
    const bool special =
        codes.scale > largest_plain_scale<Element>(c) || (Bits == 8 && any_special_fp8(codes.words, c));
    if (!special) return scaled_elements_of<Bits, Element>(codes, type, c);
    return packed(values_one_by_one<Element, Bits, Scaled>(codes, type, c));
  } else if constexpr (Bits == 10) {
    packed_group<Element> g;
    fp10_elements_of(codes, type, c, g);
    return g;
  } else {
    return packed(values_one_by_one<Element, Bits, Scaled>(codes, type, c));
  }
}
template <class Element, unsigned Bits, bool Scaled>
STASH_DEVICE group<Element> values_of(const code_group& codes, const element_type& type,
                                      const value_conversion& c) {
  return unpacked(packed_values_of<Element, Bits, Scaled>(codes, type, c));
}

/// Has codes of groups fetched, and their scales.
template <unsigned Bits, bool Scaled>
STASH_DEVICE void fetch_codes(const device_cast& cast, std::uint64_t first, std::uint64_t count) {
  // Of fp10 three groups are eight words.
  const auto byte_of = [](std::uint64_t group) { return Bits == 10 ? group / 3 * 32 : group * Bits; };
  fetch_bytes(cast.codes, cast.bytes, byte_of(first), byte_of(count));
  constexpr unsigned lanes = scaled_group / group_elements;
  if constexpr (Scaled) fetch_bytes(cast.scales, cast.scale_bytes, first / lanes, count / lanes);
}

/// The values of a cast.
template <class Element, unsigned Bits, bool Scaled>
struct cast_decode_body {
  using loaded = code_group;
  static constexpr bool halves = has_halves<Element>;
  /// What is almost all stores is cut into smaller blocks: fewer bytes are left to the last of them.
  static constexpr unsigned groups = Bits == 4 && sizeof(Element) == 4 ? 2 : 4;
  device_cast input;
  device_tensor output;
  element_type type;

  STASH_DEVICE bool vectors() const { return output.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return output.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_codes<Bits, Scaled, true>(input, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_codes<Bits, Scaled>(input, index); }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count) const {
    fetch_codes<Bits, Scaled>(input, first, count);
  }
  STASH_DEVICE group<Element> values(loaded codes) const {
    take_codes<Bits>(codes);
    return values_of<Element, Bits, Scaled>(codes, type, input.conversion);
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& codes) const {
    store_halves<half_warps>(output, index, shared_halves<half_warps>(index, values(codes)));
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& codes) const {
    store_elements(output, index, values(codes));
  }
  STASH_DEVICE void finish(bool) const {}
};

/// A bit for each of the four codes in the low bits of a word: whether it is above zero.
template <unsigned Bits>
STASH_DEVICE std::uint32_t positive_codes(std::uint32_t codes) {
  // One bit of each code, the lowest one, and that of its sign.
  constexpr std::uint32_t ones = 1U | 1U << Bits | 1U << 2 * Bits | 1U << 3 * Bits;
  constexpr std::uint32_t signs = ones << (Bits - 1), magnitudes = signs - ones;
  const std::uint32_t positive = ((codes & magnitudes) + magnitudes) & ~codes & signs;
  // The product has them next to each other, from the first one's position in the last factor on; no two
  // meet.
  constexpr unsigned each = Bits - 1;
  constexpr std::uint32_t shifts = 1U | 1U << each | 1U << 2 * each | 1U << 3 * each;
  return (positive >> (Bits - 1)) * shifts >> 3 * each & 0xf;
}

/// Pass bits from a cast that keeps the sign (a Source of relu.hpp's gradient_body).
template <unsigned Bits, bool Scaled>
struct cast_bits {
  static constexpr bool of_halves = false;
  using loaded = code_group;
  device_cast stash;
  bool nan_passes;

  STASH_DEVICE bool vectors() const { return true; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const {
    return load_codes<Bits, Scaled, true>(stash, index);
  }
  STASH_DEVICE loaded load_any(std::uint64_t index, std::uint64_t) const {
    return load_codes<Bits, Scaled>(stash, index);
  }
  STASH_DEVICE void fetch(std::uint64_t first, std::uint64_t count, std::uint64_t) const {
    fetch_codes<Bits, Scaled>(stash, first, count);
  }
  STASH_DEVICE std::uint8_t bits(loaded codes) const {
    unsigned bits = 0;
    if constexpr (Scaled && Bits < 8) {
      // They have no NaN of their own.
      const std::uint32_t first = codes.words[0];
      const std::uint32_t second = Bits == 4 ? first >> 16 : funnel_right(first, codes.words[1], 24);
      bits = positive_codes<Bits>(first) | positive_codes<Bits>(second) << 4;
    } else {
      take_codes<Bits>(codes);
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        bits |= (code_passes(codes.code[i], stash.conversion, nan_passes) ? 1U : 0U) << i;
    }
    // A scale keeps every value's sign, but for that of NaN.
    if (Scaled && codes.scale == encoders::mx_nan_scale) bits = nan_passes ? 0xff : 0;
    return static_cast<std::uint8_t>(bits);
  }
};

}  // namespace stash::kernels
