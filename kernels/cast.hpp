#pragma once
/// \file
/// cast on a device: every value in a narrower format.

#include <cstdint>

#include "common/each_group.hpp"
#include "common/stored_values.hpp"
#include "stash/status.hpp"

namespace stash::kernels {

/// Writes the codes of a tensor, padding included. Not for fp10.
template <class Element, unsigned Bits, bool Scaled>
struct cast_encode_body {
  using loaded = group<Element>;
  static constexpr unsigned groups = groups_in_flight<Element>;
  device_tensor input;
  element_type type;
  device_cast output;
  encode_report* report;

  STASH_DEVICE bool vectors() const { return input.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return input.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return load_vectors<Element>(input, index); }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_elements<Element>(input, index); }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    const value_conversion& c = output.conversion;
    code_group g{};
    group_scale scale{};
    if constexpr (Scaled) {
      group_extremes extremes;
      STASH_UNROLL
      for (unsigned i = 0; i < group_elements; ++i)
        extremes.see(to_f32(in.value[i], type));
      scale = scale_of(merge(extremes, scaled_group / group_elements), c);
      g.scale = scale.byte;
    }
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i) {
      const float value = to_f32(in.value[i], type);
      g.code[i] = Scaled ? scaled_code_of(value, scale, c) : code_of(value, c);
    }
    store_codes<Bits, Scaled>(output, index, g);
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const { store_any(index, in); }
  STASH_DEVICE void finish(bool first) const {
    if (first) atomic_add(&report->slot_bytes, output.scale_bytes + output.bytes);
  }
};

/// fp10: three codes to a word, so a thread takes three groups, which are eight words. A "group" of this
/// body is three.
template <class Element>
struct cast_fp10_body {
  struct loaded {
    group<Element> part[3];
  };
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
      in.part[p] = load_vectors<Element>(input, index * 3 + p);
    return in;
  }
  STASH_DEVICE loaded load_any(std::uint64_t index) const {
    loaded in;
    STASH_UNROLL
    for (unsigned p = 0; p < 3; ++p)
      in.part[p] = load_elements<Element>(input, index * 3 + p);
    return in;
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& in) const {
    vector16 words[2] = {};
    STASH_UNROLL
    for (unsigned i = 0; i < 3 * group_elements; ++i) {
      const float value = to_f32(in.part[i / group_elements].value[i % group_elements], type);
      words[i / 12].word[i / 3 % 4] |= code_of(value, output.conversion) << (10 * (i % 3));
    }
    STASH_UNROLL
    for (unsigned w = 0; w < 2; ++w) {
      if (index * 32 + w * 16 < output.bytes) {
        store_once(reinterpret_cast<vector16*>(output.codes + index * 32) + w, words[w]);
      }
    }
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& in) const { store_any(index, in); }
  STASH_DEVICE void finish(bool first) const {
    if (first) atomic_add(&report->slot_bytes, output.bytes);
  }
};

/// The values of a cast, rounded to the tensor's type.
template <class Element, unsigned Bits, bool Scaled>
struct cast_decode_body {
  using loaded = code_group;
  static constexpr unsigned groups = 4;
  device_cast input;
  device_tensor output;
  element_type type;

  STASH_DEVICE bool vectors() const { return output.vectors; }
  STASH_DEVICE std::uint64_t whole_groups() const { return output.elements / group_elements; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return load_codes<Bits, Scaled>(input, index); }
  STASH_DEVICE loaded load_any(std::uint64_t index) const { return load_codes<Bits, Scaled>(input, index); }
  STASH_DEVICE group<Element> values(const loaded& codes) const {
    group<Element> g;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i)
      g.value[i] = from_f32<Element>(value_at<Scaled>(codes, i, input.conversion), type);
    return g;
  }
  STASH_DEVICE void store_whole(std::uint64_t index, const loaded& codes) const {
    store_vectors(output, index, values(codes));
  }
  STASH_DEVICE void store_any(std::uint64_t index, const loaded& codes) const {
    store_elements(output, index, values(codes));
  }
  STASH_DEVICE void finish(bool) const {}
};

/// Pass bits from a cast that keeps the sign (a Source of relu.hpp's gradient_body).
template <unsigned Bits, bool Scaled>
struct cast_bits {
  using loaded = code_group;
  device_cast stash;
  bool nan_passes;

  STASH_DEVICE bool vectors() const { return true; }
  STASH_DEVICE loaded load_whole(std::uint64_t index) const { return load_codes<Bits, Scaled>(stash, index); }
  STASH_DEVICE loaded load_any(std::uint64_t index, std::uint64_t) const {
    return load_codes<Bits, Scaled>(stash, index);
  }
  STASH_DEVICE std::uint8_t bits(const loaded& codes) const {
    unsigned bits = 0;
    STASH_UNROLL
    for (unsigned i = 0; i < group_elements; ++i) {
      // A scale keeps every value's sign, but for that of NaN.
      const bool nan = Scaled && codes.scale == detail::mx_nan_scale;
      const bool pass = code_passes(codes.code[i], stash.conversion, nan_passes);
      bits |= ((nan ? nan_passes : pass) ? 1U : 0U) << i;
    }
    return static_cast<std::uint8_t>(bits);
  }
};

}  // namespace stash::kernels
