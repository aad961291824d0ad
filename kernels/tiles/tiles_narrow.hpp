// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Narrow values of a tile in shared memory: an image of elements becomes one of stored values, or the other
/// way round, in place. The elements lie at the front and the stored values, which are never larger, near the
/// end. So going from the last values to the first, codes are written after all elements that are still to be
/// read, and going from the first to the last, elements before all codes; what a warp handles at once it
/// reads before it writes. Scales are few, and a lane holds one. Codes of fp8 need none of this where they
/// can be made, or read, on the way out of shared memory.

#include <cstdint>

#include "elementwise/cast.hpp"
#include "tiles/tiles.hpp"

namespace stash::kernels {

/// Where the payload of `stored` bytes of values is made. Columns lie after all elements, because they are
/// written together with them.
template <class Element, bool Narrow>
STASH_DEVICE std::uint32_t image_offset_to_write(std::uint32_t stored) {
  constexpr auto elements = static_cast<std::uint32_t>(tile_elements * sizeof(Element));
  return Narrow ? elements - stored / 16 * 16 : 0;
}
/// Whole codes without scales, of eight bits or 16, are read as they are: at the front, and as elements they
/// are never there.
STASH_DEVICE bool come_as_codes(const device_tiles& job) {
  return job.code_bits == 16 || (job.code_bits == 8 && !job.scaled);
}
/// Where it comes to be read. If it is to become elements, all words that have some of it, and the ones after
/// them, are in the image.
template <class Element, bool Narrow>
STASH_DEVICE std::uint32_t image_offset_to_read(const device_tiles& job, std::uint32_t stored) {
  constexpr auto elements = static_cast<std::uint32_t>(tile_elements * sizeof(Element));
  return Narrow && !come_as_codes(job) ? elements - 16 - (stored + 15) / 16 * 16 : 0;
}

/// Calls body(first value) for every `each` of `count` values, from the last to the first.
template <class Body>
STASH_DEVICE void for_each_backwards(std::uint32_t count, std::uint32_t each, const Body& body) {
  for (std::uint32_t steps = (count + each - 1) / each; steps != 0; --steps)
    body((steps - 1) * each);
}

/// The group of elements at `from`, in shared memory.
template <class Element>
STASH_DEVICE group<Element> group_at(const Element* from) {
  vector16 v[group_vectors<Element>];
  STASH_UNROLL
  for (unsigned i = 0; i < group_vectors<Element>; ++i)
    v[i] = reinterpret_cast<const vector16*>(from)[i];
  return unpacked<Element>(v);
}

/// Whole codes without scales, if of eight bits only where there are instructions for them, need no image of
/// their own: elements become codes when they leave shared memory.
STASH_DEVICE bool leave_as_codes(const device_tiles& job) {
  return job.code_bits == 16 || (has_fp8_instructions && job.code_bits == 8 && !job.scaled);
}

/// Sixteen bytes of a payload: the codes of the `count` elements at `values`, and where those end what the
/// image has.
template <class Element>
STASH_DEVICE vector16 fp8_vec16(const device_tiles& job, const Element* values, std::uint32_t count,
                                vector16 rest) {
  std::uint32_t words[4];
  if constexpr (sizeof(Element) == 2) {
    const auto* const v = reinterpret_cast<const vector16*>(values);
    const vector16 one = v[0], two = v[1];
    const std::uint32_t pairs[8] = {one.word[0], one.word[1], one.word[2], one.word[3],
                                    two.word[0], two.word[1], two.word[2], two.word[3]};
    fp8_words_of<4>(pairs, job.type, job.conversion, words);
  } else {
    STASH_UNROLL
    for (unsigned half = 0; half < 2; ++half)
      fp8_codes_of(group_at(values + half * group_elements), job.type, job.conversion, words + 2 * half);
  }
  // Of bytes that are no codes the highest bits are set.
  const std::uint32_t ends = (count < 16 ? count : 16) * 0x01010101U;
  vector16 vec16;
  STASH_UNROLL
  for (unsigned w = 0; w < 4; ++w) {
    const std::uint32_t selectors = 0x83828180U + w * 0x04040404U;
    vec16.word[w] = select_bits(sign_masks_of_bytes(selectors - ends), rest.word[w], words[w]);
  }
  return vec16;
}

/// The same of 16-bit codes. The end of the codes lies in `rest`.
template <class Element>
STASH_DEVICE vector16 halves_vec16(const device_tiles& job, const Element* values, std::uint32_t count,
                                   const vector16& rest) {
  vector16 vec16;
  half_codes_of(packed_at(values), job.type, job.conversion, vec16.word);
  if (count < group_elements) {
    STASH_UNROLL
    for (unsigned w = 0; w < 4; ++w) {
      const std::uint32_t codes = count > 2 * w + 1 ? 0xffffffffU : count > 2 * w ? 0xffffU : 0;
      vec16.word[w] = select_bits(codes, vec16.word[w], rest.word[w]);
    }
  }
  return vec16;
}

/// fp10 of 16-bit elements: six to two words.
STASH_DEVICE void narrow_pairs_to_fp10(const device_tiles& job, const std::uint16_t* values,
                                       std::uint32_t count, std::uint8_t* stored) {
  const unsigned lane = thread_rank() % warp_lanes;
  for_each_backwards(count, 6 * warp_lanes, [&](std::uint32_t base) {
    const std::uint32_t first = base + 6 * lane;
    std::uint32_t words[2] = {};
    if (first < count) {
      std::uint32_t pairs[3];
      STASH_UNROLL
      for (unsigned i = 0; i < 3; ++i)
        pairs[i] = reinterpret_cast<const std::uint32_t*>(values + first)[i];
      const std::uint32_t have = count - first;
      if (have < 6) {
        STASH_UNROLL
        for (unsigned i = 0; i < 3; ++i)
          pairs[i] &= have > 2 * i + 1 ? 0xffffffffU : have > 2 * i ? 0xffffU : 0;
      }
      if (job.type.bf16) {
        STASH_UNROLL
        for (std::uint32_t& pair : pairs)
          pair = fp10_of_bfloats(pair, job.conversion);
      } else {
        STASH_UNROLL
        for (std::uint32_t& pair : pairs)
          pair = fp10_of_halves(pair, job.conversion);
      }
      pack_fp10(pairs, words);
    }
    sync_warp();
    auto* const to = reinterpret_cast<std::uint32_t*>(stored) + first / 3;
    if (first < count) to[0] = words[0];
    if (first + 3 < count) to[1] = words[1];
    sync_warp();
  });
}

/// fp10 of f32: three to a word.
STASH_DEVICE void narrow_floats_to_fp10(const device_tiles& job, const std::uint32_t* values,
                                        std::uint32_t count, std::uint8_t* stored) {
  const unsigned lane = thread_rank() % warp_lanes;
  for_each_backwards(count, 3 * warp_lanes, [&](std::uint32_t base) {
    const std::uint32_t first = base + 3 * lane;
    std::uint32_t word = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < 3; ++i) {
      if (first + i < count) word |= code_of(as_float(values[first + i]), job.conversion) << (10 * i);
    }
    sync_warp();
    if (first < count) reinterpret_cast<std::uint32_t*>(stored)[first / 3] = word;
    sync_warp();
  });
}

/// The group of `have` elements at `from`, in shared memory, where eight may be read; zeros complete it.
template <class Element>
STASH_DEVICE packed_group<Element> first_elements(const Element* from, std::uint32_t have) {
  packed_group<Element> g = packed_at(from);
  if (have < group_elements) {
    STASH_UNROLL
    for (unsigned i = 0; i < group_words<Element>; ++i) {
      const std::uint32_t first = i * per_word<Element>;
      const std::uint32_t last = sizeof(Element) == 2 && have == first + 1 ? 0xffffU : 0xffffffffU;
      g.word[i] &= have > first ? last : 0;
    }
  }
  return g;
}

/// The codes of eight elements in words, and their scale. All lanes of a warp come.
template <unsigned Bits, bool Scaled, class Element>
STASH_DEVICE void narrow_codes_of(const packed_group<Element>& in, const element_type& type,
                                  const value_conversion& c, code_group& g) {
  if constexpr (Scaled) {
    scaled_codes_of<Bits, 1>(in, type, c, g);
  } else {
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.code[i] = code_of<Bits>(to_f32(in.value(i), type), c);
    pack_codes<Bits>(g);
  }
}

/// Stores a word in front of `left` more bytes, of which others are to stay as they are.
STASH_DEVICE void put_word(std::uint32_t* to, std::uint32_t word, std::int32_t left) {
  if (left >= 4) {
    *to = word;
  } else if (left > 0) {
    *to = select_bits(0xffffffffU << (8 * left), *to, word);
  }
}

/// Codes of up to eight bits, eight to a lane.
///
/// Scales put them anywhere. A lane writes the whole words that begin among its own bytes; what it has in
/// front of them is the end of a word of the lane before. The last lane completes its own from the first lane
/// of the round before, which was after it.
template <unsigned Bits, bool Scaled, class Element>
STASH_DEVICE void narrow_to_codes(const device_tiles& job, const Element* values, std::uint32_t count,
                                  std::uint8_t* stored) {
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint32_t scales = Scaled ? scales_of(count) : 0;
  const std::uint32_t end = scales + (count * Bits + 7) / 8;
  std::uint32_t own_scale = 0;
  std::uint32_t next_round = 0;
  constexpr std::uint32_t each = group_elements * warp_lanes;
  for_each_backwards(count, each, [&](std::uint32_t base) {
    const std::uint32_t first = base + group_elements * lane;
    const packed_group<Element> in = first_elements(values + first, first < count ? count - first : 0);
    code_group g{};
    narrow_codes_of<Bits, Scaled>(in, job.type, job.conversion, g);
    if constexpr (Scaled) {
      constexpr unsigned lanes = scaled_group / group_elements;
      const std::uint32_t got = shuffle(all_lanes, std::uint32_t{g.scale}, lane * lanes % warp_lanes);
      if (lane * lanes / warp_lanes == base / each) own_scale = got;
    }
    const std::uint32_t of_next = shuffle(all_lanes, g.words[0], (lane + 1) % warp_lanes);
    const std::uint32_t next = lane + 1 < warp_lanes ? of_next : next_round;
    next_round = of_next;
    std::uint32_t row[3] = {g.words[0], next, 0};
    if constexpr (Bits == 8) {
      row[1] = g.words[1];
      row[2] = next;
    } else if constexpr (Bits == 6) {
      row[1] = select_bits(0xffffU, g.words[1], next << 16);
      row[2] = next >> 16;
    }
    const std::uint32_t at = scales + first / group_elements * Bits;
    const std::uint32_t skipped = (0 - at) % 4;
    auto* const to = reinterpret_cast<std::uint32_t*>(stored + at + skipped);
    const auto left = static_cast<std::int32_t>(end - at - skipped);
    sync_warp();
    put_word(to, funnel_right(row[0], row[1], 8 * skipped), left);
    // Of six bytes the second word may begin after the last one.
    if (Bits == 8 || (Bits == 6 && skipped < 2))
      put_word(to + 1, funnel_right(row[1], row[2], 8 * skipped), left - 4);
  });
  if constexpr (Scaled) {
    if (lane < scales) stored[lane] = static_cast<std::uint8_t>(own_scale);
    // The last scales share a word with the first codes.
    const std::uint32_t head = shuffle(all_lanes, next_round, warp_lanes - 1);
    if (lane < (0 - scales) % 4 && scales + lane < end)
      stored[scales + lane] = static_cast<std::uint8_t>(head >> (8 * lane));
  }
  sync_warp();
}

/// Whether the format has a width without kernels of its own: neither bytes nor words of three, no scales.
constexpr bool has_other_width(const value_format_info& format) {
  return !format.scaled && format.bits % 8 != 0 && format.packing == code_packing::bit_string;
}
/// Whether any format has: the general way costs registers, too.
inline constexpr bool other_widths = [] {
  for (const value_format_info& format : value_formats)
    if (has_other_width(format)) return true;
  return false;
}();

/// Codes of any width, eight to a lane, byte by byte: eight are as many bytes as a code has bits.
template <class Element>
STASH_DEVICE void narrow_to_any_codes(const device_tiles& job, const Element* values, std::uint32_t count,
                                      std::uint8_t* stored) {
  const unsigned lane = thread_rank() % warp_lanes, bits = job.code_bits;
  const std::uint32_t end = (count * bits + 7) / 8;
  for_each_backwards(count, group_elements * warp_lanes, [&](std::uint32_t base) {
    const std::uint32_t first = base + group_elements * lane;
    const packed_group<Element> in = first_elements(values + first, first < count ? count - first : 0);
    sync_warp();
    std::uint64_t waiting = 0;
    unsigned held = 0;
    std::uint32_t at = first / group_elements * bits;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i) {
      waiting |= std::uint64_t{code_of(to_f32(in.value(i), job.type), job.conversion)} << held;
      for (held += bits; held >= 8; held -= 8, ++at, waiting >>= 8)
        if (at < end) stored[at] = static_cast<std::uint8_t>(waiting);
    }
    sync_warp();
  });
}

/// Codes that do not leave as such, but for those of fp10.
template <class Element>
STASH_DEVICE void narrow_to_codes(const device_tiles& job, const Element* values, std::uint32_t count,
                                  std::uint8_t* stored) {
  if constexpr (other_widths) {
    if (!job.scaled && job.code_bits % 8 != 0) return narrow_to_any_codes(job, values, count, stored);
  }
  if (job.code_bits == 4) {
    narrow_to_codes<4, true>(job, values, count, stored);
  } else if (job.code_bits == 6) {
    narrow_to_codes<6, true>(job, values, count, stored);
  } else if (has_fp8_instructions || job.scaled) {
    narrow_to_codes<8, true>(job, values, count, stored);
  } else {
    narrow_to_codes<8, false>(job, values, count, stored);
  }
}

/// Turns the `count` elements of an image into stored values, but for those that leave as codes. All lanes
/// come.
template <class Element>
STASH_DEVICE void narrow_image(const device_tiles& job, std::uint8_t* image, std::uint32_t count) {
  const auto* values = reinterpret_cast<const Element*>(image);
  std::uint8_t* const stored = image + image_offset_to_write<Element, true>(value_bytes(job, count));
  if (job.code_bits != 10) return narrow_to_codes(job, values, count, stored);
  if constexpr (sizeof(Element) == 2) {
    narrow_pairs_to_fp10(job, values, count, stored);
  } else {
    narrow_floats_to_fp10(job, values, count, stored);
  }
}

/// Code `rank` of those at `codes`.
STASH_DEVICE std::uint32_t stored_code(const device_tiles& job, const std::uint8_t* codes,
                                       std::uint32_t rank) {
  const unsigned bits = job.code_bits;
  if (bits == 10) return reinterpret_cast<const std::uint32_t*>(codes)[rank / 3] >> (10 * (rank % 3)) & 0x3ff;
  const std::uint32_t bit = rank * bits;
  std::uint32_t code = codes[bit / 8];
  if (bit % 8 + bits > 8) code |= std::uint32_t{codes[bit / 8 + 1]} << 8;
  if (other_widths && bit % 8 + bits > 16) code |= std::uint32_t{codes[bit / 8 + 2]} << 16;
  return code >> (bit % 8) & ((1U << bits) - 1);
}
/// The narrow value `rank` of a payload of `count`, as f32.
STASH_DEVICE float stored_value(const device_tiles& job, const std::uint8_t* payload, std::uint32_t count,
                                std::uint32_t rank) {
  const std::uint32_t code = stored_code(job, payload + scale_bytes(job, count), rank);
  if (job.scaled) return scaled_value_of(code, payload[rank / scaled_group], job.conversion);
  return value_of(code, job.conversion);
}

/// fp10: two words to a lane.
template <class Element>
STASH_DEVICE void widen_fp10(const device_tiles& job, const std::uint8_t* stored, std::uint32_t count,
                             Element* values) {
  const unsigned lane = thread_rank() % warp_lanes;
  const auto* const words = reinterpret_cast<const std::uint32_t*>(stored);
  for (std::uint32_t base = 0; base < count; base += 6 * warp_lanes) {
    const std::uint32_t first = base + 6 * lane;
    code_group codes{};
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w)
      codes.words[w] = first < count ? words[base / 3 + 2 * lane + w] : 0;
    STASH_UNROLL
    for (unsigned i = 0; i < 6; ++i)
      codes.code[i] = codes.words[i / 3] >> (10 * (i % 3)) & 0x3ff;
    packed_group<Element> out;
    fp10_elements_of(codes, job.type, job.conversion, out);
    sync_warp();
    STASH_UNROLL
    for (unsigned i = 0; i < 6; i += per_word<Element>) {
      if (first + i < count)
        *reinterpret_cast<std::uint32_t*>(values + first + i) = out.word[i / per_word<Element>];
    }
    sync_warp();
  }
}

/// Writes a group of elements to shared memory.
template <class Element>
STASH_DEVICE void put_group(const packed_group<Element>& group, Element* values) {
  STASH_UNROLL
  for (unsigned i = 0; i < group_words<Element>; i += 4) {
    reinterpret_cast<vector16*>(values)[i / 4] = {
        {group.word[i], group.word[i + 1], group.word[i + 2], group.word[i + 3]}};
  }
}

/// Codes of MX, eight to a lane. Scales put them anywhere.
template <unsigned Bits, class Element>
STASH_DEVICE void widen_codes(const device_tiles& job, const std::uint8_t* stored, std::uint32_t count,
                              Element* values) {
  const unsigned lane = thread_rank() % warp_lanes;
  const std::uint32_t scales = scales_of(count);
  const std::uint32_t own_scale = lane < scales ? stored[lane] : 0;
  const auto* const words = reinterpret_cast<const std::uint32_t*>(stored);
  for (std::uint32_t base = 0; base < count; base += group_elements * warp_lanes) {
    const std::uint32_t first = base + group_elements * lane;
    const std::uint32_t at = scales + (first < count ? first / group_elements * Bits : 0);
    code_group codes{};
    codes.scale = static_cast<std::uint8_t>(shuffle(all_lanes, own_scale, first / scaled_group));
    constexpr unsigned whole = (Bits + 3) / 4;
    std::uint32_t next = words[at / 4];
    STASH_UNROLL
    for (unsigned w = 0; w < whole; ++w) {
      const std::uint32_t low = next;
      next = words[at / 4 + w + 1];
      codes.words[w] = funnel_right(low, next, at % 4 * 8);
    }
    take_codes<Bits>(codes);
    const packed_group<Element> out = packed_values_of<Element, Bits, true>(codes, job.type, job.conversion);
    sync_warp();
    put_group(out, values + first);
    sync_warp();
  }
}

/// Codes of any width, eight to a lane.
template <class Element>
STASH_DEVICE void widen_any_codes(const device_tiles& job, const std::uint8_t* stored, std::uint32_t count,
                                  Element* values) {
  const unsigned lane = thread_rank() % warp_lanes;
  for (std::uint32_t base = 0; base < count; base += group_elements * warp_lanes) {
    const std::uint32_t first = base + group_elements * lane;
    float widened[group_elements];
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      widened[i] = first + i < count ? value_of(stored_code(job, stored, first + i), job.conversion) : 0.0F;
    const packed_group<Element> out = packed(from_f32s<Element>(widened, job.type));
    sync_warp();
    put_group(out, values + first);
    sync_warp();
  }
}

/// Turns the `count` stored values of an image into elements, but for those that come as codes. All lanes
/// come.
template <class Element>
STASH_DEVICE void widen_image(const device_tiles& job, std::uint8_t* image, std::uint32_t count) {
  if (come_as_codes(job)) return;
  const std::uint8_t* const stored =
      image + image_offset_to_read<Element, true>(job, value_bytes(job, count));
  auto* const values = reinterpret_cast<Element*>(image);
  if (job.code_bits == 10) return widen_fp10(job, stored, count, values);
  if constexpr (other_widths) {
    if (!job.scaled && job.code_bits % 8 != 0) return widen_any_codes(job, stored, count, values);
  }
  if (job.code_bits == 8) return widen_codes<8>(job, stored, count, values);
  if (job.code_bits == 6) return widen_codes<6>(job, stored, count, values);
  widen_codes<4>(job, stored, count, values);
}

/// Groups of elements from an image, each from value `rank` on where bits are set, else +0: of one of fp8, of
/// one of 16-bit codes, and of one of elements.
template <class Element, unsigned Groups>
STASH_DEVICE void groups_of_fp8(const device_tiles& job, const vector16* image, const std::uint32_t* bits,
                                const std::uint32_t* rank, packed_group<Element> (&out)[Groups]) {
  std::uint32_t words[Groups][2];
  STASH_UNROLL
  for (unsigned g = 0; g < Groups; ++g)
    spread_bytes(bits[g], image, rank[g], words[g]);
  fp8_elements_of(words, job.type, job.conversion, out);
}
template <class Element>
STASH_DEVICE packed_group<Element> group_of_halves(const device_tiles& job, const vector16* image,
                                                   std::uint32_t bits, std::uint32_t rank) {
  packed_group<Element> out;
  half_elements_of(spread(bits, reinterpret_cast<const std::uint16_t*>(image) + rank), job.type,
                   job.conversion, out);
  return out;
}
template <class Element>
STASH_DEVICE packed_group<Element> group_of_elements(const vector16* image, std::uint32_t bits,
                                                     std::uint32_t rank) {
  return spread(bits, reinterpret_cast<const Element*>(image) + rank);
}
/// A group of any of them. Without `Halves` there are no 16-bit codes.
template <class Element, bool Narrow, bool Halves = true>
STASH_DEVICE packed_group<Element> group_of_image(const device_tiles& job, const vector16* image,
                                                  std::uint32_t bits, std::uint32_t rank) {
  if (!Narrow || !come_as_codes(job)) return group_of_elements<Element>(image, bits, rank);
  if (Halves && job.code_bits == 16) return group_of_halves<Element>(job, image, bits, rank);
  packed_group<Element> out[1];
  groups_of_fp8(job, image, &bits, &rank, out);
  return out[0];
}

}  // namespace stash::kernels
