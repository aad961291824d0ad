// SPDX-License-Identifier: Apache-2.0
#include "format/reference.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>

namespace stash::reference {
namespace {

// --- bits and bytes --------------------------------------------------------------------------------------

class bit_string {
 public:
  void append(std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i)
      bits_.push_back((value >> i & 1) != 0);
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> out((bits_.size() + 7) / 8);
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (bits_[i]) out[i / 8] = static_cast<std::uint8_t>(out[i / 8] | 1U << (i % 8));
    }
    return out;
  }

 private:
  std::vector<bool> bits_;
};

void append(std::vector<std::uint8_t>& to, const std::vector<std::uint8_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}
void pad(std::vector<std::uint8_t>& bytes) {
  while (bytes.size() % 16 != 0)
    bytes.push_back(0);
}
void append_little_endian(std::vector<std::uint8_t>& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    to.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

// --- floating-point formats ------------------------------------------------------------------------------

struct layout {
  int exponent_bits, mantissa_bits, bias;
  std::uint32_t largest, infinity, nan;  ///< codes written; nan 0: there is none
  bool ieee;                             ///< all exponent bits set: infinity or NaN

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  std::uint32_t sign() const { return 1U << (bits() - 1); }
};

layout layout_of(value_format format) {
  switch (format) {
    case value_format::fp16:
      return {5, 10, 15, 0x7bff, 0x7c00, 0x7e00, true};
    case value_format::bf16:
      return {8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, true};
    case value_format::fp10:
      return {5, 4, 15, 0x1ef, 0x1f0, 0x1f8, true};
    case value_format::fp8_e4m3:
    case value_format::mxfp8_e4m3:
      return {4, 3, 7, 0x7e, 0x7e, 0x7f, false};
    case value_format::fp8_e5m2:
    case value_format::mxfp8_e5m2:
      return {5, 2, 15, 0x7b, 0x7b, 0x7e, true};
    case value_format::mxfp6_e2m3:
      return {2, 3, 1, 0x1f, 0x1f, 0, false};
    case value_format::mxfp6_e3m2:
      return {3, 2, 3, 0x1f, 0x1f, 0, false};
    case value_format::mxfp4_e2m1:
      return {2, 1, 1, 0x7, 0x7, 0, false};
    case value_format::source:
      break;
  }
  throw std::logic_error("no layout");
}

bool is_mx(value_format format) {
  switch (format) {
    case value_format::mxfp8_e4m3:
    case value_format::mxfp8_e5m2:
    case value_format::mxfp6_e2m3:
    case value_format::mxfp6_e3m2:
    case value_format::mxfp4_e2m1:
      return true;
    default:
      return false;
  }
}

/// Value of a finite code without sign.
double magnitude_of(const layout& l, std::uint32_t code) {
  const auto exponent = static_cast<int>(code >> l.mantissa_bits);
  const auto mantissa = static_cast<double>(code & ((1U << l.mantissa_bits) - 1));
  const double one = std::ldexp(1.0, l.mantissa_bits);
  return exponent == 0 ? std::ldexp(mantissa / one, 1 - l.bias)
                       : std::ldexp(1.0 + mantissa / one, exponent - l.bias);
}

/// All finite magnitudes in ascending order: the index is the code.
const std::vector<double>& magnitudes(value_format format) {
  static std::map<value_format, std::vector<double>> known;
  std::vector<double>& table = known[format];
  if (table.empty()) {
    const layout l = layout_of(format);
    for (std::uint32_t code = 0; code <= l.largest; ++code)
      table.push_back(magnitude_of(l, code));
  }
  return table;
}

std::uint32_t nearest_code(value_format format, underflow_rule underflow, double magnitude) {
  const std::vector<double>& table = magnitudes(format);
  if (magnitude >= table.back()) return static_cast<std::uint32_t>(table.size() - 1);
  const auto above = std::upper_bound(table.begin(), table.end(), magnitude);
  auto code = static_cast<std::uint32_t>(above - table.begin() - 1);
  const double down = magnitude - table[code];
  const double up = table[code + 1] - magnitude;
  if (up < down || (up == down && code % 2 == 1)) ++code;
  if (code == 0 && magnitude > 0 && underflow == underflow_rule::keep_nonzero) code = 1;
  return code;
}

double value_of_f32(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 23 & 0xff;
  const auto mantissa = static_cast<double>(bits & 0x7fffff);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -149)
                                         : std::ldexp(mantissa + 8388608.0, static_cast<int>(exponent) - 150);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}
bool is_nan(std::uint32_t bits) {
  return (bits & 0x7fffffff) > 0x7f800000;
}
bool is_infinite(std::uint32_t bits) {
  return (bits & 0x7fffffff) == 0x7f800000;
}

/// f32 bits of a double that f32 has.
std::uint32_t f32_bits(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) throw std::logic_error("not an f32");
  return std::bit_cast<std::uint32_t>(narrow);
}

/// What an element is in f32.
std::uint32_t f32_of(const tensor& t, std::size_t i) {
  if (t.type == dtype::f32) return t.bits[i];
  return widen(t.type == dtype::f16 ? value_format::fp16 : value_format::bf16, t.bits[i]);
}

/// A decoded f32 in the type of the tensor.
std::uint32_t in_type(dtype type, std::uint32_t bits) {
  if (type == dtype::f32) return bits;
  return narrow(type == dtype::f16 ? value_format::fp16 : value_format::bf16, underflow_rule::to_zero, bits);
}

// --- MX groups -------------------------------------------------------------------------------------------

struct group {
  std::uint32_t scale = 0;
  std::vector<std::uint32_t> elements;
};

group mx_group(value_format format, underflow_rule underflow, const std::vector<std::uint32_t>& f32) {
  const layout l = layout_of(format);
  double largest = 0;
  bool any_nan = false;
  for (const std::uint32_t bits : f32) {
    any_nan = any_nan || is_nan(bits);
    if (!is_nan(bits) && !is_infinite(bits)) largest = std::max(largest, std::fabs(value_of_f32(bits)));
  }
  group g;
  if (any_nan && l.nan == 0) {
    g.scale = 255;
    g.elements.assign(f32.size(), 0);
    return g;
  }
  const int exponent = largest == 0 ? -127 : std::max(std::ilogb(largest) - emax_of(format), -127);
  g.scale = static_cast<std::uint32_t>(exponent + 127);
  for (const std::uint32_t bits : f32) {
    std::uint32_t code = 0;
    if (is_nan(bits)) {
      code = l.nan;
    } else if (is_infinite(bits)) {
      code = l.infinity;
    } else {
      code = nearest_code(format, underflow, std::ldexp(std::fabs(value_of_f32(bits)), -exponent));
    }
    g.elements.push_back(code | ((bits >> 31) != 0 ? l.sign() : 0));
  }
  return g;
}

std::uint32_t mx_value(value_format format, std::uint32_t scale, std::uint32_t element) {
  if (scale == 255) return 0x7fc00000;
  const layout l = layout_of(format);
  const std::uint32_t sign = (element & l.sign()) != 0 ? 0x80000000U : 0;
  const std::uint32_t code = element & (l.sign() - 1);
  if (l.nan != 0 && code > l.largest) return widen(format, element);
  const double value = std::ldexp(magnitude_of(l, code), static_cast<int>(scale) - 127);
  const double most = value_of_f32(0x7f7fffff);
  return f32_bits(std::min(value, most)) | sign;
}

// --- rows of stored values -------------------------------------------------------------------------------

struct stored_values {
  std::vector<std::uint8_t> scales, elements;
  std::vector<std::uint32_t> decoded;  ///< in the tensor's type
};

/// Elements `which` of a tensor, stored in a row.
stored_values store(const encoding& e, const tensor& t, const std::vector<std::size_t>& which) {
  stored_values out;
  if (e.values == value_format::source) {
    for (const std::size_t i : which) {
      append_little_endian(out.elements, t.bits[i], t.type == dtype::f32 ? 4 : 2);
      out.decoded.push_back(t.bits[i]);
    }
    return out;
  }
  const layout l = layout_of(e.values);
  if (is_mx(e.values)) {
    bit_string elements;
    for (std::size_t begin = 0; begin < which.size(); begin += 32) {
      std::vector<std::uint32_t> f32;
      for (std::size_t k = begin; k < std::min(begin + 32, which.size()); ++k)
        f32.push_back(f32_of(t, which[k]));
      const group g = mx_group(e.values, e.underflow, f32);
      out.scales.push_back(static_cast<std::uint8_t>(g.scale));
      for (const std::uint32_t element : g.elements) {
        elements.append(element, l.bits());
        out.decoded.push_back(in_type(t.type, mx_value(e.values, g.scale, element)));
      }
    }
    out.elements = elements.bytes();
    return out;
  }
  bit_string packed;
  for (std::size_t k = 0; k < which.size(); ++k) {
    const std::uint32_t code = narrow(e.values, e.underflow, f32_of(t, which[k]));
    packed.append(code, l.bits());
    if (e.values == value_format::fp10 && k % 3 == 2) packed.append(0, 2);
    out.decoded.push_back(in_type(t.type, widen(e.values, code)));
  }
  out.elements = packed.bytes();
  if (e.values == value_format::fp10) {
    while (out.elements.size() % 4 != 0)
      out.elements.push_back(0);
  }
  return out;
}

std::vector<std::size_t> all_of(const tensor& t) {
  std::vector<std::size_t> which(t.bits.size());
  for (std::size_t i = 0; i < which.size(); ++i)
    which[i] = i;
  return which;
}

/// A bound of range_mask, rounded to the type of the tensor.
double bound_in(dtype type, float bound) {
  std::uint32_t bits = in_type(type, std::bit_cast<std::uint32_t>(bound));
  if (type != dtype::f32) bits = widen(type == dtype::f16 ? value_format::fp16 : value_format::bf16, bits);
  return is_infinite(bits) ? ((bits >> 31) != 0 ? -HUGE_VAL : HUGE_VAL) : value_of_f32(bits);
}

bool passes(const encoding& e, const tensor& t, std::size_t i) {
  const std::uint32_t f32 = f32_of(t, i);
  const bool nan_passes = e.rule == framework_rule::pytorch;
  if (is_nan(f32)) return nan_passes;
  const double value = is_infinite(f32) ? ((f32 >> 31) != 0 ? -HUGE_VAL : HUGE_VAL) : value_of_f32(f32);
  if (e.kind == encoding_kind::sign_mask) return value > 0;
  return value > bound_in(t.type, e.lower) && value < bound_in(t.type, e.upper);
}

/// A bitmap or csr before its tiles are placed.
struct sparse_parts {
  std::vector<std::uint8_t> index_plane;  ///< mask plane or row ends
  std::vector<std::vector<std::uint8_t>> payloads;
  std::uint64_t nonzeros = 0;
  bool mask_is_not_sign = false;
};

sparse_parts parts_of(const encoding& e, const tensor& t) {
  sparse_parts out;
  const std::size_t n = t.bits.size();
  const bool csr = e.kind == encoding_kind::csr;
  const std::size_t tiles = (n + 1023) / 1024;
  bit_string mask;
  std::vector<std::uint8_t> row_ends;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    std::vector<std::size_t> which;
    std::vector<std::uint8_t> columns;
    const std::size_t end = std::min(n, tile * 1024 + 1024);
    for (std::size_t i = tile * 1024; i < end; ++i) {
      mask.append(t.bits[i] != 0 ? 1 : 0, 1);
      if (t.bits[i] != 0) {
        which.push_back(i);
        columns.push_back(static_cast<std::uint8_t>(i % 256));
        const std::uint32_t f32 = f32_of(t, i);
        if (is_nan(f32) || (f32 >> 31) != 0) out.mask_is_not_sign = true;
      }
      if (i % 256 == 255 || i + 1 == end) append_little_endian(row_ends, which.size(), 2);
    }
    out.nonzeros += which.size();
    const stored_values values = store(e, t, which);
    std::vector<std::uint8_t> payload = values.scales;
    append(payload, values.elements);
    if (csr) append(payload, columns);
    pad(payload);
    out.payloads.push_back(payload);
  }
  out.index_plane = csr ? row_ends : mask.bytes();
  pad(out.index_plane);
  return out;
}

std::size_t table_bytes(std::size_t tiles) {
  return (4 * tiles + 15) / 16 * 16;
}

encoded encode_sparse(const encoding& e, const tensor& t) {
  encoded out;
  if (t.bits.empty()) return out;
  const sparse_parts parts = parts_of(e, t);
  out.nonzeros = parts.nonzeros;
  out.mask_is_not_sign = parts.mask_is_not_sign;
  out.bytes = parts.index_plane;
  std::size_t offset = out.bytes.size() + table_bytes(parts.payloads.size());
  for (const std::vector<std::uint8_t>& payload : parts.payloads) {
    append_little_endian(out.bytes, offset / 16, 4);
    offset += payload.size();
  }
  pad(out.bytes);
  for (const std::vector<std::uint8_t>& payload : parts.payloads)
    append(out.bytes, payload);
  return out;
}

/// `size` bytes as a little-endian number.
std::uint32_t number_at(const std::vector<std::uint8_t>& bytes, std::size_t at, std::size_t size) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= std::uint32_t{bytes.at(at + i)} << (8 * i);
  return value;
}

/// Bits [first, first + width) of a bit string.
std::uint32_t bits_at(const std::vector<std::uint8_t>& bytes, std::size_t first, int width) {
  std::uint32_t value = 0;
  for (int i = 0; i < width; ++i) {
    const std::size_t bit = first + static_cast<std::size_t>(i);
    value |= (std::uint32_t{bytes.at(bit / 8)} >> (bit % 8) & 1) << i;
  }
  return value;
}

/// Bytes of `count` values in a row.
std::size_t stored_bytes(const encoding& e, dtype type, std::size_t count) {
  if (e.values == value_format::source) return count * (type == dtype::f32 ? 4 : 2);
  if (e.values == value_format::fp10) return (count + 2) / 3 * 4;
  const auto bits = static_cast<std::size_t>(layout_of(e.values).bits());
  const std::size_t elements = (count * bits + 7) / 8;
  return is_mx(e.values) ? (count + 31) / 32 + elements : elements;
}

/// Value `k` of `count` in a row, in the tensor's type.
std::uint32_t value_at(const encoding& e, dtype type, const std::vector<std::uint8_t>& row, std::size_t count,
                       std::size_t k) {
  const std::size_t width = type == dtype::f32 ? 4 : 2;
  if (e.values == value_format::source) return number_at(row, k * width, width);
  const int bits = layout_of(e.values).bits();
  const auto step = static_cast<std::size_t>(bits);
  if (e.values == value_format::fp10)
    return in_type(type, widen(e.values, bits_at(row, k / 3 * 32 + k % 3 * 10, 10)));
  if (!is_mx(e.values)) return in_type(type, widen(e.values, bits_at(row, k * step, bits)));
  const std::size_t scales = (count + 31) / 32;
  return in_type(type, mx_value(e.values, row.at(k / 32), bits_at(row, scales * 8 + k * step, bits)));
}

/// How much of a region can hold payloads.
std::uint64_t usable(std::uint64_t bytes) {
  return std::min<std::uint64_t>(bytes / 16 * 16, std::uint64_t{1} << 34);
}

// --- dropout ---------------------------------------------------------------------------------------------

using words = std::array<std::uint64_t, 4>;  // of 32 bits each

words philox4x32_10(words c, std::uint64_t key0, std::uint64_t key1) {
  constexpr std::uint64_t word = 0xffffffff;
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53 * c[0], b = 0xCD9E8D57 * c[2];
    const std::uint64_t round0 = (key0 + round * 0x9E3779B9) & word,
                        round1 = (key1 + round * 0xBB67AE85) & word;
    c = {(b >> 32) ^ c[1] ^ round0, b & word, (a >> 32) ^ c[3] ^ round1, a & word};
  }
  return c;
}

bool is_kept(std::uint64_t i, float probability, const dropout_key& key) {
  constexpr std::uint64_t word = 0xffffffff;
  const std::uint64_t b = i / 4;
  const words output = philox4x32_10({b & word, b >> 32, key.layer, key.step & word}, key.seed & word,
                                     (key.seed >> 32) ^ (key.step >> 32));
  return static_cast<double>(output[i % 4]) >= std::floor(std::ldexp(static_cast<double>(probability), 32));
}

/// The f32 bits of a product of two f32: a double has it exactly.
std::uint32_t product(std::uint32_t bits, float factor) {
  if (is_nan(bits)) return bits | 0x400000;
  if (is_infinite(bits)) return bits;
  const double exact = value_of_f32(bits) * static_cast<double>(factor);
  const double first_infinity = std::ldexp(1.0, 128) - std::ldexp(1.0, 103);
  if (std::fabs(exact) >= first_infinity) return (bits & 0x80000000) | 0x7f800000;
  return std::bit_cast<std::uint32_t>(static_cast<float>(exact));
}

}  // namespace

int code_bits(value_format format) {
  return layout_of(format).bits();
}

int emax_of(value_format format) {
  switch (format) {
    case value_format::mxfp8_e4m3:
      return 8;
    case value_format::mxfp8_e5m2:
      return 15;
    case value_format::mxfp6_e2m3:
    case value_format::mxfp4_e2m1:
      return 2;
    case value_format::mxfp6_e3m2:
      return 4;
    default:
      throw std::logic_error("no emax");
  }
}

std::uint32_t widen(value_format format, std::uint32_t code) {
  const layout l = layout_of(format);
  const std::uint32_t sign = (code & l.sign()) != 0 ? 0x80000000U : 0;
  const std::uint32_t magnitude = code & (l.sign() - 1);
  if (l.ieee && magnitude >> l.mantissa_bits == (1U << l.exponent_bits) - 1) {
    const std::uint32_t mantissa = magnitude & ((1U << l.mantissa_bits) - 1);
    return sign | 0x7f800000 | mantissa << (23 - l.mantissa_bits);
  }
  if (!l.ieee && l.nan != 0 && magnitude == l.nan) return sign | 0x7fc00000;
  return sign | f32_bits(magnitude_of(l, magnitude));
}

std::uint32_t narrow(value_format format, underflow_rule underflow, std::uint32_t bits) {
  const layout l = layout_of(format);
  const std::uint32_t sign = (bits >> 31) != 0 ? l.sign() : 0;
  if (is_nan(bits)) return sign | l.nan;
  if (is_infinite(bits)) return sign | l.infinity;
  return sign | nearest_code(format, underflow, std::fabs(value_of_f32(bits)));
}

std::uint32_t result_in_type(dtype type, std::uint32_t bits) {
  if (type == dtype::f32) return bits;
  const value_format format = type == dtype::f16 ? value_format::fp16 : value_format::bf16;
  const double largest = magnitude_of(layout_of(format), layout_of(format).largest);
  // Where the number after the largest one would be, if there were one, as far away again as the one before.
  const double before = magnitude_of(layout_of(format), layout_of(format).largest - 1);
  const double halfway = largest + (largest - before) / 2;
  if (is_nan(bits) || is_infinite(bits) || std::fabs(value_of_f32(bits)) < halfway)
    return in_type(type, bits);
  return layout_of(format).infinity | (bits >> 31 != 0 ? layout_of(format).sign() : 0);
}

dropped drop(const tensor& t, float probability, const dropout_key& key) {
  const auto scale = static_cast<float>(1 / (1 - static_cast<double>(probability)));
  dropped out;
  out.values.type = t.type;
  bit_string plane;
  for (std::size_t i = 0; i < t.bits.size(); ++i) {
    const bool kept = is_kept(i, probability, key);
    plane.append(kept ? 1 : 0, 1);
    out.values.bits.push_back(kept ? result_in_type(t.type, product(f32_of(t, i), scale)) : 0);
  }
  out.mask = plane.bytes();
  pad(out.mask);
  return out;
}

encoded encode(const encoding& e, const tensor& t) {
  encoded out;
  switch (e.kind) {
    case encoding_kind::shape_only:
      return out;
    case encoding_kind::raw:
      for (const std::uint32_t bits : t.bits)
        append_little_endian(out.bytes, bits, t.type == dtype::f32 ? 4 : 2);
      break;
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask: {
      bit_string plane;
      for (std::size_t i = 0; i < t.bits.size(); ++i)
        plane.append(passes(e, t, i) ? 1 : 0, 1);
      out.bytes = plane.bytes();
      break;
    }
    case encoding_kind::cast: {
      const stored_values values = store(e, t, all_of(t));
      out.bytes = values.scales;
      pad(out.bytes);
      append(out.bytes, values.elements);
      break;
    }
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return encode_sparse(e, t);
    default:
      throw std::logic_error("no reference for this encoding");
  }
  pad(out.bytes);
  return out;
}

stored place(const encoding& e, const tensor& t, const stored& before) {
  stored out = before;
  if (t.bits.empty()) return out;
  const sparse_parts parts = parts_of(e, t);
  const std::size_t tiles = parts.payloads.size();
  std::uint64_t cursor = parts.index_plane.size() + table_bytes(tiles);
  std::vector<std::uint64_t> entries(tiles, 3ULL << 30);
  std::vector<std::size_t> homeless;
  const auto put = [](std::vector<std::uint8_t>& to, std::uint64_t at,
                      const std::vector<std::uint8_t>& what) {
    std::copy(what.begin(), what.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::vector<std::uint8_t>& payload = parts.payloads[tile];
    if (!payload.empty() && cursor + payload.size() > usable(out.slot.size())) {
      homeless.push_back(tile);
      out.overflow_bytes += payload.size();
      continue;
    }
    put(out.slot, cursor, payload);
    entries[tile] = cursor / 16;
    cursor += payload.size();
  }
  if (!out.arena && !out.host) out.overflow_bytes = 0;
  std::uint64_t where = 1;
  for (std::optional<region>* target : {&out.arena, &out.host}) {
    std::vector<std::size_t> rest;
    for (const std::size_t tile : homeless) {
      const std::vector<std::uint8_t>& payload = parts.payloads[tile];
      if (!*target) {
        rest.push_back(tile);
        continue;
      }
      const std::uint64_t at = (*target)->claimed;
      (*target)->claimed += payload.size();
      if ((*target)->claimed > usable((*target)->bytes.size())) {
        rest.push_back(tile);
        continue;
      }
      put((*target)->bytes, at, payload);
      entries[tile] = where << 30 | at / 16;
    }
    homeless = rest;
    ++where;
  }
  if (!homeless.empty()) out.status |= status_capacity;
  std::vector<std::uint8_t> fixed = parts.index_plane;
  for (const std::uint64_t entry : entries)
    append_little_endian(fixed, entry, 4);
  pad(fixed);
  put(out.slot, 0, fixed);
  out.slot_bytes = cursor;
  return out;
}

reading read(const encoding& e, dtype type, std::size_t elements, const stored& bytes) {
  reading out;
  out.values.type = type;
  out.values.bits.assign(elements, 0);
  out.open.assign(elements, false);
  const bool csr = e.kind == encoding_kind::csr;
  const std::size_t tiles = (elements + 1023) / 1024;
  const std::size_t rows = (elements + 255) / 256;
  const std::size_t table = ((csr ? rows * 2 : (elements + 7) / 8) + 15) / 16 * 16;
  const std::size_t fixed = table + table_bytes(tiles);
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::size_t first = tile * 1024;
    const std::size_t end = std::min(elements, first + 1024);
    // Which elements have values: of csr only how many there are in each row, until the payload is found.
    std::vector<std::size_t> which;
    std::vector<std::size_t> row_of;
    bool legal = true;
    for (std::size_t i = first; !csr && i < end; ++i) {
      if (bits_at(bytes.slot, i, 1) != 0) which.push_back(i);
    }
    for (std::size_t row = first / 256; csr && legal && row * 256 < end; ++row) {
      const std::size_t until = number_at(bytes.slot, row * 2, 2);
      legal = until >= row_of.size() && until - row_of.size() <= std::min<std::size_t>(256, end - row * 256);
      while (legal && row_of.size() < until)
        row_of.push_back(row);
    }
    const std::size_t count = csr ? row_of.size() : which.size();
    if (legal && count == 0) continue;
    const std::uint32_t entry = number_at(bytes.slot, table + tile * 4, 4);
    const std::uint64_t offset = std::uint64_t{entry % (1U << 30)} * 16;
    if (legal && entry >> 30 == 3) {
      out.status |= status_capacity;
      continue;
    }
    const std::vector<std::uint8_t>* holder = nullptr;
    if (entry >> 30 == 0 && offset >= fixed) holder = &bytes.slot;
    if (entry >> 30 == 1 && bytes.arena) holder = &bytes.arena->bytes;
    if (entry >> 30 == 2 && bytes.host) holder = &bytes.host->bytes;
    const std::size_t size = stored_bytes(e, type, count) + (csr ? count : 0);
    if (!legal || holder == nullptr || offset + (size + 15) / 16 * 16 > usable(holder->size())) {
      out.status |= status_corrupt;
      continue;
    }
    const auto begin = holder->begin() + static_cast<std::ptrdiff_t>(offset);
    const std::vector<std::uint8_t> payload(begin, begin + static_cast<std::ptrdiff_t>(size));
    for (std::size_t k = 0; csr && k < count; ++k) {
      const std::size_t i = row_of[k] * 256 + payload[stored_bytes(e, type, count) + k];
      if (i >= end) legal = false;
      // A column out of order: nothing is said of its row.
      if (!which.empty() && i <= which.back() && which.back() / 256 == i / 256) {
        for (std::size_t j = row_of[k] * 256; j < std::min(end, row_of[k] * 256 + 256); ++j)
          out.open[j] = true;
      }
      which.push_back(i);
    }
    if (!legal) {
      for (std::size_t i = first; i < end; ++i)
        out.open[i] = false;
      out.status |= status_corrupt;
      continue;
    }
    for (std::size_t k = 0; k < count; ++k)
      out.values.bits[which[k]] = value_at(e, type, payload, count, k);
  }
  return out;
}

tensor decode(const encoding& e, const tensor& t) {
  tensor out;
  out.type = t.type;
  switch (e.kind) {
    case encoding_kind::raw:
      return t;
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
      for (std::size_t i = 0; i < t.bits.size(); ++i)
        out.bits.push_back(passes(e, t, i) ? 1 : 0);
      return out;
    case encoding_kind::cast:
      out.bits = store(e, t, all_of(t)).decoded;
      return out;
    case encoding_kind::bitmap:
    case encoding_kind::csr: {
      out.bits.assign(t.bits.size(), 0);
      // MX groups start anew in every tile.
      for (std::size_t begin = 0; begin < t.bits.size(); begin += 1024) {
        std::vector<std::size_t> which;
        for (std::size_t i = begin; i < std::min(begin + 1024, t.bits.size()); ++i) {
          if (t.bits[i] != 0) which.push_back(i);
        }
        const stored_values values = store(e, t, which);
        for (std::size_t k = 0; k < which.size(); ++k)
          out.bits[which[k]] = values.decoded[k];
      }
      return out;
    }
    default:
      throw std::logic_error("no reference for this encoding");
  }
}

tensor decode(const encoding& e, const tensor& t, dtype to) {
  tensor out = decode(e, t);
  if (e.kind != encoding_kind::sign_mask && e.kind != encoding_kind::range_mask) return out;
  out.type = to;
  for (std::uint32_t& bits : out.bits) {
    if (bits == 0) continue;
    bits = to == dtype::f32 ? 0x3f800000 : to == dtype::f16 ? 0x3c00 : to == dtype::bf16 ? 0x3f80 : 1;
  }
  return out;
}

}  // namespace stash::reference
