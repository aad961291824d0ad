// SPDX-License-Identifier: Apache-2.0
#include "encoders/layers/sign_source.hpp"

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/bits.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"

namespace stash::detail {
namespace {

bool tiled(const encoding& e) noexcept {
  return e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
}

void check_stash(std::string_view function, const map_stash& s, memory_space where) {
  if (tiled(s.how)) check_arena(function, "stash", s.stash.overflow, where);
  const std::size_t bound = checked_bytes_bound(function, "dy", s.how, s.type, s.elements);
  const bool grows = tiled(s.how) && s.elements != 0;
  check_encoded(function, "stash", s.stash,
                grows ? layout_of(s.how, s.type, s.elements).fixed_bytes() : bound);
}

/// Values of one tile of raw or a cast.
void load_dense_tile(const map_stash& s, std::int64_t tile, std::int64_t length, float* values) noexcept {
  const auto* bytes = static_cast<const std::uint8_t*>(s.stash.data);
  const std::int64_t first = tile * tile_elements;
  const value_codec codec{s.how.kind == encoding_kind::raw ? value_format::source : s.how.values,
                          s.how.underflow, s.type};
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

void check_sign_source(std::string_view function, const map_stash& s, memory_space where) {
  check_known(function, s.how);
  switch (s.how.kind) {
    case encoding_kind::cast:
      if (s.how.underflow != underflow_rule::keep_nonzero) {
        fail(errc::invalid_argument, function, "encoding", "a cast with keep_nonzero, which keeps the sign",
             fmt::format("underflow rule {}", static_cast<unsigned>(s.how.underflow)));
      }
      break;
    case encoding_kind::sign_mask:
    case encoding_kind::bitmap:
    case encoding_kind::csr:
    case encoding_kind::raw:
      break;
    default:
      fail(errc::unsupported, function, "encoding", "sign_mask, bitmap, csr, cast or raw", to_string(s.how));
  }
  check_stash(function, s, where);
}

call_memory& add_stash(call_memory& memory, const map_stash& s) {
  accesses_of_stored("stash", s.how, s.type, s.elements, s.stash, use::read, use::read,
                     [&memory](const memory_access& p) { memory.add(p); });
  return memory;
}

const std::uint8_t* read_pass_bits(const map_stash& s, std::int64_t tile, std::int64_t length,
                                   std::uint8_t* buffer) {
  const auto* bytes = static_cast<const std::uint8_t*>(s.stash.data);
  if (s.how.kind == encoding_kind::sign_mask) return bytes + tile * (tile_elements / 8);
  if (!tiled(s.how)) {
    alignas(run_alignment) float values[tile_elements];
    load_dense_tile(s, tile, length, values);
    loops().pass_bits(values, length, s.rule, buffer);
    return buffer;
  }
  const tile_layout layout = layout_of(s.how, s.type, s.elements);
  if ((s.stash.report->flags & flag_mask_is_not_sign) == 0) {
    if (s.how.kind == encoding_kind::bitmap) return bytes + tile * (tile_elements / 8);
    or_bits(s.stash.report->status, decode_presence(layout, s.stash, tile, buffer).status);
    return buffer;
  }
  alignas(run_alignment) float values[tile_elements];
  or_bits(s.stash.report->status, decode_tile(layout, s.stash, tile, values, buffer).status);
  bits_of_present(values, length, s.rule, buffer);
  return buffer;
}

void check_range_source(std::string_view function, const map_stash& s, memory_space where) {
  check_known(function, s.how);
  const bool values =
      s.how.kind == encoding_kind::raw || (tiled(s.how) && s.how.values == value_format::source);
  if (s.how.kind != encoding_kind::range_mask && !values) {
    fail(errc::unsupported, function, "encoding", "range_mask, raw, bitmap or csr", to_string(s.how));
  }
  check_stash(function, s, where);
}

const std::uint8_t* read_range_bits(const map_stash& s, float lower, float upper, std::int64_t tile,
                                    std::int64_t length, std::uint8_t* buffer) {
  if (s.how.kind == encoding_kind::range_mask) {
    return static_cast<const std::uint8_t*>(s.stash.data) + tile * (tile_elements / 8);
  }
  alignas(run_alignment) float values[tile_elements];
  if (tiled(s.how)) {
    const tile_layout layout = layout_of(s.how, s.type, s.elements);
    const tile_contents contents = decode_tile(layout, s.stash, tile, values, nullptr);
    or_bits(s.stash.report->status, contents.status);
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

}  // namespace stash::detail
