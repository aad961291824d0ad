// SPDX-License-Identifier: Apache-2.0
#include "encoders/layers/sign_source.hpp"

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/bits.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {
namespace {

tile_layout layout_of(const checked_stash& s) noexcept {
  return encoders::layout_of(s.tensor.how, s.tensor.type, s.elements);
}

checked_stash check_stash(std::string_view function, std::string_view argument, const encoded_tensor& stash,
                          std::string_view dense_name, const const_tensor_view& dense, framework_rule rule,
                          memory_space where) {
  check_same_elements(function, argument, stash, dense_name, dense);
  const checked_stash checked{
      stash, dense.elements(),
      checked_bytes_bound(function, argument, stash.how, dense.type, dense.elements()), rule};
  const bool tiled = is_tiled(stash.how.kind);
  if (tiled) check_arena(function, argument, stash.bytes.overflow, where);
  check_encoded(function, argument, stash.bytes,
                tiled && checked.elements != 0 ? layout_of(checked).fixed_bytes() : checked.most_bytes);
  return checked;
}

/// Values of one tile of raw or a cast.
void load_dense_tile(const checked_stash& s, std::int64_t tile, std::int64_t length, float* values) noexcept {
  const auto* bytes = static_cast<const std::uint8_t*>(s.tensor.bytes.data);
  const std::int64_t first = tile * tile_elements;
  const encoding& how = s.tensor.how;
  const value_codec codec{how.kind == encoding_kind::raw ? value_format::source : how.values, how.underflow,
                          s.tensor.type};
  const std::int64_t run = cast_run_elements(codec);
  // fp10's runs are shorter than a tile and do not start where tiles do.
  if (run == tile_elements) return load_cast_run(codec, bytes, s.elements, first, length, values);
  for (std::int64_t done = 0; done < length;) {
    const std::int64_t at = first + done;
    const std::int64_t start = at / 3 * 3;
    const std::int64_t some = std::min<std::int64_t>(length - done + (at - start), run);
    alignas(run_alignment) float part[tile_elements];
    load_cast_run(codec, bytes, s.elements, start, some, part);
    std::memcpy(values + done, part + (at - start), static_cast<std::size_t>(some - (at - start)) * 4);
    done += some - (at - start);
  }
}

/// Present values pass if they have no sign. Presence, not the stored value, says "not zero", because a cast
/// may have turned a small value into zero.
void bits_of_present(const float* values, std::int64_t length, framework_rule rule, std::uint8_t* present) {
  const bool nan_passes = rule == framework_rule::pytorch;
  alignas(run_alignment) std::uint8_t flags[tile_elements];
  std::uint8_t bits[tile_elements / 8];
  fill_flags(values, length, flags, [nan_passes](float value) {
    const bool nan = is_nan(value);
    const bool no_sign = std::bit_cast<std::int32_t>(value) >= 0;
    return (nan & nan_passes) | (no_sign & !nan);
  });
  pack_flags(flags, length, bits);
  for (std::int64_t i = 0; i < (length + 7) / 8; ++i)
    present[i] &= bits[i];
}

}  // namespace

checked_stash check_sign_source(std::string_view function, std::string_view argument,
                                const encoded_tensor& stash, std::string_view dense_name,
                                const const_tensor_view& dense, framework_rule rule, memory_space where) {
  check_known(function, stash.how);
  if (!codec_of(stash.how.kind).keeps_sign(stash.how)) {
    if (stash.how.kind == encoding_kind::cast) {
      fail(errc::invalid_argument, function, "encoding", "a cast with keep_nonzero, which keeps the sign",
           fmt::format("underflow rule {}", static_cast<unsigned>(stash.how.underflow)));
    }
    fail(errc::unsupported, function, "encoding", "sign_mask, bitmap, csr, cast or raw",
         to_string(stash.how));
  }
  return check_stash(function, argument, stash, dense_name, dense, rule, where);
}

checked_stash check_range_source(std::string_view function, std::string_view argument,
                                 const encoded_tensor& stash, std::string_view dense_name,
                                 const const_tensor_view& dense, framework_rule rule, memory_space where) {
  check_known(function, stash.how);
  if (stash.how.kind != encoding_kind::range_mask && !codec_of(stash.how.kind).keeps_values(stash.how)) {
    fail(errc::unsupported, function, "encoding", "range_mask, raw, bitmap or csr", to_string(stash.how));
  }
  return check_stash(function, argument, stash, dense_name, dense, rule, where);
}

call_memory& add_stash(call_memory& memory, const char* argument, const checked_stash& s) {
  accesses_of_encoded(argument, s.tensor.bytes, s.most_bytes, use::read,
                      [&memory](const memory_access& p) { memory.add(p); });
  if (is_tiled(s.tensor.how.kind)) memory.arena(argument, s.tensor.bytes.overflow, use::read);
  return memory;
}

const std::uint8_t* read_pass_bits(const checked_stash& s, std::int64_t tile, std::int64_t length,
                                   std::uint8_t* buffer) {
  const const_encoded_view& stored = s.tensor.bytes;
  const auto* bytes = static_cast<const std::uint8_t*>(stored.data);
  const encoding_kind kind = s.tensor.how.kind;
  if (kind == encoding_kind::sign_mask) return bytes + tile * (tile_elements / 8);
  if (!is_tiled(kind)) {
    alignas(run_alignment) float values[tile_elements];
    load_dense_tile(s, tile, length, values);
    loops().pass_bits(values, length, s.rule, buffer);
    return buffer;
  }
  const tile_layout layout = layout_of(s);
  if ((stored.report->flags & flag_mask_is_not_sign) == 0) {
    if (!layout.columns) return bytes + tile * (tile_elements / 8);
    or_bits(stored.report->status, decode_presence(layout, stored, tile, buffer).status);
    return buffer;
  }
  alignas(run_alignment) float values[tile_elements];
  or_bits(stored.report->status, decode_tile(layout, stored, tile, values, buffer).status);
  bits_of_present(values, length, s.rule, buffer);
  return buffer;
}

const std::uint8_t* read_range_bits(const checked_stash& s, float lower, float upper, std::int64_t tile,
                                    std::int64_t length, std::uint8_t* buffer) {
  const const_encoded_view& stored = s.tensor.bytes;
  if (s.tensor.how.kind == encoding_kind::range_mask) {
    return static_cast<const std::uint8_t*>(stored.data) + tile * (tile_elements / 8);
  }
  alignas(run_alignment) float values[tile_elements];
  if (is_tiled(s.tensor.how.kind)) {
    const tile_contents contents = decode_tile(layout_of(s), stored, tile, values, nullptr);
    or_bits(stored.report->status, contents.status);
    if (contents.status != status_ok) {
      std::memset(buffer, 0, tile_elements / 8);
      return buffer;
    }
  } else {
    load_dense_tile(s, tile, length, values);
  }
  loops().range_bits(values, length, lower, upper, s.rule, buffer);
  return buffer;
}

}  // namespace stash::encoders
