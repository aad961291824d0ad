// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// One row per encoding kind: all that the calls which take any encoding have to know of it. Each form
/// defines its own row; encode(), decode(), sizes, checks and names ask it and know no kinds.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stash/batch.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {

/// What encoded bytes hold.
enum class kind_content : std::uint8_t {
  dense,       ///< all bytes of the tensor
  nothing,     ///< its shape
  mask,        ///< a bit per element
  pool_codes,  ///< bits per pooled value, which only layers write and read
  values,      ///< every value in a format
  tiles,       ///< the values that are not zero, in the tile container
};

/// Whether a type can be encoded, and in words which can.
struct source_types {
  bool legal;
  std::string_view words;
};

struct kind_codec {
  encoding_kind kind;
  std::string_view name;  ///< empty: the value format's alone
  kind_content content;
  source_types (*types)(const encoding& e, dtype source);
  /// Throws error(invalid_argument) for parameters that make no sense. The kind and format are known.
  void (*check)(std::string_view function, const encoding& e);
  /// Largest size in bytes, padded to 16.
  std::size_t (*bytes_bound)(const encoding& e, dtype source, std::int64_t elements);
  /// Whether reading gives what the readers of its kind need, bit for bit.
  bool (*lossless)(const encoding& e);
  bool (*keeps_sign)(const encoding& e);    ///< serves ReLU's gradient
  bool (*keeps_values)(const encoding& e);  ///< has the source's own values, which serve comparisons
  /// At least one element, checked, on the host. Null: encode() or decode() refuses the kind, or (shape_only)
  /// has nothing to do.
  void (*encode)(const encode_item& item, const execution_context& context);
  void (*decode)(const decode_item& item, const execution_context& context);

  bool has_format() const noexcept {
    return content == kind_content::values || content == kind_content::tiles;
  }
  bool tiled() const noexcept { return content == kind_content::tiles; }
  bool is_mask() const noexcept { return content == kind_content::mask; }
};

extern const kind_codec raw_codec, shape_only_codec, sign_mask_codec, window_index_codec, relu_pool_codec,
    bitmap_codec, cast_codec, range_mask_codec, csr_codec;

/// Each at the index that is its number.
inline constexpr std::array kind_codecs{&raw_codec,          &shape_only_codec, &sign_mask_codec,
                                        &window_index_codec, &relu_pool_codec,  &bitmap_codec,
                                        &cast_codec,         &range_mask_codec, &csr_codec};

/// Null for a number that is no kind.
inline const kind_codec* find_codec(encoding_kind kind) noexcept {
  const auto number = static_cast<std::size_t>(kind);
  return number < kind_codecs.size() ? kind_codecs[number] : nullptr;
}
/// Of a known kind.
inline const kind_codec& codec_of(encoding_kind kind) noexcept {
  return *kind_codecs[static_cast<std::size_t>(kind)];
}

// What rows are made of.

inline bool always(const encoding&) noexcept {
  return true;
}
inline bool never(const encoding&) noexcept {
  return false;
}
inline bool has_source_values(const encoding& e) noexcept {
  return e.values == value_format::source;
}
inline void no_parameters(std::string_view, const encoding&) {}
/// Of an encoding with values.
void check_underflow_rule(std::string_view function, const encoding& e);
source_types any_type(const encoding& e, dtype source);
source_types any_float(const encoding& e, dtype source);

}  // namespace stash::encoders
