// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Second encoder and decoder, written from docs/format.md alone, one element at a time and by doubles. They
/// share no code with the library.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "encoders/support.hpp"

namespace stash_test {

struct narrow_format {
  int bytes;
  int mantissa_bits;
  int bias;
  double largest;
  bool has_infinity;
  std::uint32_t nan;

  std::uint32_t sign_bit() const { return 1u << (8 * bytes - 1); }
};

inline constexpr narrow_format reference_fp16{2, 10, 15, 65504.0, true, 0x7e00};
inline constexpr narrow_format reference_fp8{1, 3, 7, 448.0, false, 0x7f};

/// Bits of a non-negative value that the format has exactly.
inline std::uint32_t exact_bits(const narrow_format& format, double value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  if (exponent < 1 - format.bias) {
    return static_cast<std::uint32_t>(std::ldexp(value, format.bias - 1 + format.mantissa_bits));
  }
  const double fraction = std::ldexp(value, -exponent) - 1;
  return (static_cast<std::uint32_t>(exponent + format.bias) << format.mantissa_bits) +
         static_cast<std::uint32_t>(std::ldexp(fraction, format.mantissa_bits));
}

inline std::uint32_t reference_narrow(const narrow_format& format, float value, bool keep_nonzero) {
  const std::uint32_t sign = std::signbit(value) ? format.sign_bit() : 0;
  if (std::isnan(value)) return format.nan | sign;
  if (std::isinf(value) && format.has_infinity) {
    return (exact_bits(format, format.largest) + 1) | sign;
  }
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude > format.largest) return exact_bits(format, format.largest) | sign;
  const int exponent = magnitude == 0 ? 1 - format.bias : std::max(std::ilogb(magnitude), 1 - format.bias);
  const double step = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::min(std::nearbyint(magnitude / step) * step, format.largest);
  if (rounded == 0 && magnitude != 0 && keep_nonzero) return 1 | sign;
  return exact_bits(format, rounded) | sign;
}

/// The f32 bits of a stored value.
inline std::uint32_t reference_widen(const narrow_format& format, std::uint32_t stored) {
  const std::uint32_t sign = (stored & format.sign_bit()) != 0 ? 0x80000000 : 0;
  const std::uint32_t magnitude = stored & (format.sign_bit() - 1);
  const std::uint32_t exponent = magnitude >> format.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  if (format.has_infinity && exponent == 31) return sign | 0x7f800000 | (mantissa << 13);
  if (!format.has_infinity && magnitude == format.nan) return sign | 0x7fc00000;
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits)
                                     : std::ldexp(1.0 + std::ldexp(mantissa, -format.mantissa_bits),
                                                  static_cast<int>(exponent) - format.bias);
  return sign | to_bits(static_cast<float>(value));
}

inline void put(std::vector<std::uint8_t>& bytes, std::uint32_t value, int width) {
  for (int i = 0; i < width; ++i)
    bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

inline void pad(std::vector<std::uint8_t>& bytes) {
  while (bytes.size() % 16 != 0)
    bytes.push_back(0);
}

inline std::uint32_t get(const std::uint8_t* bytes, int width) {
  std::uint32_t value = 0;
  for (int i = 0; i < width; ++i)
    value |= static_cast<std::uint32_t>(bytes[i]) << (8 * i);
  return value;
}

inline int stored_width(stash::value_format format) {
  return format == stash::value_format::source ? 4 : format == stash::value_format::fp16 ? 2 : 1;
}

inline void put_value(std::vector<std::uint8_t>& bytes, float value, const stash::encoding& e) {
  const bool keep = e.underflow == stash::underflow_rule::keep_nonzero;
  if (e.values == stash::value_format::source) put(bytes, to_bits(value), 4);
  if (e.values == stash::value_format::fp16) put(bytes, reference_narrow(reference_fp16, value, keep), 2);
  if (e.values == stash::value_format::fp8_e4m3) put(bytes, reference_narrow(reference_fp8, value, keep), 1);
}

inline std::uint32_t get_value(const std::uint8_t* bytes, stash::value_format format) {
  if (format == stash::value_format::source) return get(bytes, 4);
  return format == stash::value_format::fp16 ? reference_widen(reference_fp16, get(bytes, 2))
                                             : reference_widen(reference_fp8, get(bytes, 1));
}

inline std::vector<std::uint8_t> reference_cast(const std::vector<float>& values, const stash::encoding& e) {
  std::vector<std::uint8_t> bytes;
  for (const float value : values)
    put_value(bytes, value, e);
  pad(bytes);
  return bytes;
}

inline bool reference_passes(float y, stash::framework_rule rule) {
  return rule == stash::framework_rule::tensorflow ? y > 0 : !(y <= 0);
}

inline std::vector<std::uint8_t> reference_plane(const std::vector<bool>& bits) {
  std::vector<std::uint8_t> bytes((bits.size() + 127) / 128 * 16, 0);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (bits[i]) bytes[i / 8] = static_cast<std::uint8_t>(bytes[i / 8] | (1u << (i % 8)));
  }
  return bytes;
}

inline std::vector<std::uint8_t> reference_sign_mask(const std::vector<float>& values,
                                                     stash::framework_rule rule) {
  std::vector<bool> bits;
  for (const float value : values)
    bits.push_back(reference_passes(value, rule));
  return reference_plane(bits);
}

struct reference_bitmap {
  std::vector<std::uint8_t> slot;        ///< only the bytes in use
  std::vector<std::uint8_t> arena_part;  ///< overflowing payloads that the arena holds
  std::vector<std::uint8_t> host_part;
  std::uint32_t status = 0;
  std::uint32_t flags = 0;
  std::uint64_t nonzeros = 0;
  std::uint64_t claimed = 0;       ///< padded bytes of all overflowing payloads
  std::uint64_t host_claimed = 0;  ///< of those that the arena does not hold
};

/// `slot_bytes` must reach mask and table. `arena_bytes` < 0 means no arena; likewise for the host overflow.
inline reference_bitmap reference_bitmap_encode(const std::vector<float>& values, const stash::encoding& e,
                                                std::uint64_t slot_bytes, std::int64_t arena_bytes = -1,
                                                std::uint64_t counter = 0, std::int64_t host_bytes = -1,
                                                std::uint64_t host_counter = 0) {
  reference_bitmap result;
  if (values.empty()) return result;
  std::vector<bool> bits;
  for (const float value : values) {
    bits.push_back(to_bits(value) != 0);
    result.nonzeros += bits.back() ? 1u : 0u;
    if (bits.back() && !(value > 0)) result.flags = stash::flag_mask_is_not_sign;
  }
  result.slot = reference_plane(bits);
  std::vector<std::uint8_t> table;
  std::vector<std::uint8_t> payloads;
  const std::uint64_t tiles = (values.size() + 1023) / 1024;
  const std::uint64_t start = result.slot.size() + (tiles * 4 + 15) / 16 * 16;
  std::uint64_t cursor = counter;
  std::uint64_t host_place = host_counter;
  for (std::uint64_t tile = 0; tile < tiles; ++tile) {
    std::vector<std::uint8_t> payload;
    for (std::uint64_t i = tile * 1024; i < std::min<std::uint64_t>(values.size(), tile * 1024 + 1024); ++i) {
      if (bits[i]) put_value(payload, values[i], e);
    }
    pad(payload);
    const std::uint64_t offset = start + payloads.size();
    if (payload.empty() || offset + payload.size() <= slot_bytes / 16 * 16) {
      put(table, static_cast<std::uint32_t>(offset / 16), 4);
      payloads.insert(payloads.end(), payload.begin(), payload.end());
      continue;
    }
    const bool fits =
        arena_bytes >= 0 && cursor + payload.size() <= static_cast<std::uint64_t>(arena_bytes) / 16 * 16;
    cursor += payload.size();
    if (fits) {
      put(table, 0x40000000 + static_cast<std::uint32_t>((cursor - payload.size()) / 16), 4);
      result.arena_part.insert(result.arena_part.end(), payload.begin(), payload.end());
      continue;
    }
    const bool host_fits =
        host_bytes >= 0 && host_place + payload.size() <= static_cast<std::uint64_t>(host_bytes) / 16 * 16;
    put(table, host_fits ? 0x80000000 + static_cast<std::uint32_t>(host_place / 16) : 0xc0000000, 4);
    if (host_fits) result.host_part.insert(result.host_part.end(), payload.begin(), payload.end());
    if (!host_fits) result.status = stash::status_capacity;
    host_place += payload.size();
  }
  result.claimed = cursor - counter;
  result.host_claimed = host_place - host_counter;
  pad(table);
  result.slot.insert(result.slot.end(), table.begin(), table.end());
  result.slot.insert(result.slot.end(), payloads.begin(), payloads.end());
  return result;
}

struct reference_decoded {
  std::vector<std::uint32_t> bits;
  std::uint32_t status = 0;
};

inline reference_decoded reference_bitmap_decode(const std::uint8_t* slot, std::uint64_t slot_bytes,
                                                 const stash::overflow_arena* arena,
                                                 stash::value_format format, std::uint64_t count) {
  reference_decoded result;
  result.bits.assign(count, 0);
  const auto width = static_cast<std::uint64_t>(stored_width(format));
  const std::uint64_t mask_bytes = (count + 127) / 128 * 16;
  const std::uint64_t tiles = (count + 1023) / 1024;
  const std::uint64_t start = mask_bytes + (tiles * 4 + 15) / 16 * 16;
  for (std::uint64_t tile = 0; tile < tiles; ++tile) {
    std::vector<std::uint64_t> set;
    for (std::uint64_t i = tile * 1024; i < std::min(count, tile * 1024 + 1024); ++i) {
      if ((slot[i / 8] >> (i % 8)) & 1) set.push_back(i);
    }
    if (set.empty()) continue;
    const std::uint32_t entry = get(slot + mask_bytes + tile * 4, 4);
    const std::uint64_t offset = std::uint64_t{entry & 0x3fffffff} * 16;
    const std::uint64_t size = (set.size() * width + 15) / 16 * 16;
    const std::uint32_t where = entry >> 30;
    if (where == 3) {
      result.status |= stash::status_capacity;
      continue;
    }
    const bool in_slot = where == 0 && offset >= start && offset + size <= slot_bytes / 16 * 16;
    const bool in_arena = where == 1 && arena != nullptr && offset + size <= arena->bytes / 16 * 16;
    const bool on_host = where == 2 && arena != nullptr && offset + size <= arena->host_bytes / 16 * 16;
    if (!in_slot && !in_arena && !on_host) {
      result.status |= stash::status_corrupt;
      continue;
    }
    const void* region = in_slot ? slot : in_arena ? arena->data : arena->host_data;
    const std::uint8_t* payload = static_cast<const std::uint8_t*>(region) + offset;
    for (std::uint64_t k = 0; k < set.size(); ++k)
      result.bits[set[k]] = get_value(payload + k * width, format);
  }
  return result;
}

}  // namespace stash_test
