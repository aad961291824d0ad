// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Random tensors in memory of their own, and the pairs of encoding and type that are tried on them. Knows no
/// test framework: the programs that run on a GPU use it too.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "format/reference.hpp"
#include "stash/encoding.hpp"
#include "support/closed_bytes.hpp"

namespace stash::test {

using reference::tensor;

/// Memory with 16-byte alignment plus an offset, and a guard after it. A sanitizer sees who reads or writes
/// what is not data.
class buffer {
 public:
  explicit buffer(std::size_t bytes, std::size_t offset = 0)
      : memory_(bytes + offset + 64, pattern),
        data_(place(memory_, bytes, offset)),
        bytes_(bytes),
        front_(memory_.data(), data_),
        guard_(data_ + bytes, memory_.data() + memory_.size()) {}
  buffer(buffer&&) noexcept = default;

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  bool guard_is_whole() const { return front_.are(pattern) && guard_.are(pattern); }

 private:
  static constexpr std::uint8_t pattern = 0xa5;
  static std::uint8_t* place(std::vector<std::uint8_t>& memory, std::size_t bytes, std::size_t offset) {
    void* start = memory.data();
    std::size_t space = memory.size();
    start = std::align(16, bytes + offset, start, space);
    return static_cast<std::uint8_t*>(start) + offset;
  }

  std::vector<std::uint8_t> memory_;
  std::uint8_t* data_;
  std::size_t bytes_;
  stash_test::closed_bytes front_, guard_;
};

class generator {
 public:
  explicit generator(std::uint32_t seed) : random_(seed) {}

  std::int64_t size() {
    static constexpr std::int64_t edges[] = {0,    1,    2,    3,    15,   16,   17,   31,   32,   33,   95,
                                             96,   97,   255,  256,  257,  959,  960,  961,  1023, 1024, 1025,
                                             2047, 2048, 2049, 3071, 3072, 3073, 4095, 4096, 4097};
    if (below(3) != 0) return edges[below(std::size(edges))];
    return static_cast<std::int64_t>(below(6000));
  }

  tensor make(dtype type, std::int64_t count) {
    static constexpr double densities[] = {0, 0.01, 0.1, 0.2, 0.5, 0.9, 1};
    const double density = densities[below(std::size(densities))];
    const auto pattern = below(3);  // iid, dead channels, clusters
    const auto kind = below(4);     // ReLU output, any bits, special values, values around a few boundaries
    const std::uint32_t channels = 1 + below(40), cluster = 1 + below(700);
    tensor t;
    t.type = type;
    bool dead = false;
    std::vector<bool> dead_channel(channels);
    for (std::size_t c = 0; c < channels; ++c)
      dead_channel[c] = uniform() > density;
    for (std::int64_t i = 0; i < count; ++i) {
      if (pattern == 0 || (pattern == 2 && static_cast<std::uint32_t>(i) % cluster == 0))
        dead = uniform() > density;
      if (pattern == 1) dead = dead_channel[static_cast<std::size_t>(i) % channels];
      t.bits.push_back(dead ? 0 : value(type, kind));
    }
    return t;
  }

  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }

 private:
  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }

  std::uint32_t value(dtype type, std::uint32_t kind) {
    const auto r = static_cast<std::uint32_t>(random_());
    static constexpr std::uint32_t special[] = {
        0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x7f800000, 0xff800000, 0x7f800001,
        0x7fc00000, 0xffc12345, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, 0x40c00000, 0x33000000,
        0x33800000, 0x38800000, 0x387fc000, 0x477fe000, 0x477ff000, 0x43e00000, 0x43e80000, 0x3b000000,
        0x3a800000, 0x36800000, 0x37000000, 0x47600000, 0x47680000, 0x00008000, 0x00010000, 0x40e00000};
    std::uint32_t f32 = r;
    if (kind == 0)
      f32 = std::bit_cast<std::uint32_t>(std::abs(std::ldexp(static_cast<float>(r % 4096) + 1, -10)));
    if (kind == 2) f32 = special[r % std::size(special)];
    if (kind == 3) f32 = special[r % std::size(special)] + (r >> 8) % 5 - 2;
    if (type == dtype::f32) return f32;
    if (kind == 1) return r & 0xffff;
    return reference::narrow(type == dtype::f16 ? value_format::fp16 : value_format::bf16,
                             underflow_rule::keep_nonzero, f32);
  }

  std::mt19937 random_;
};

inline std::size_t width(dtype type) {
  return size_of(type);
}

/// The tensor in memory, `inner` elements dense and `gap` more between rows; `offset` bytes off alignment.
/// The memory ends with the last element: after the last row there is no gap.
struct placed {
  buffer memory;
  shape dims;
  std::int64_t pitch;

  placed(dtype type, std::int64_t count, std::int64_t inner, std::int64_t gap, std::size_t offset)
      : memory(count == 0 ? 0 : static_cast<std::size_t>(count / inner * (inner + gap) - gap) * width(type),
               offset),
        dims{count / inner, inner},
        pitch(inner + gap) {}
  std::size_t at(std::int64_t i) const {
    return static_cast<std::size_t>(i / dims.inner() * pitch + i % dims.inner());
  }
  void put(const tensor& t) {
    for (std::int64_t i = 0; i < t.count(); ++i)
      std::memcpy(memory.data() + at(i) * width(t.type), &t.bits[static_cast<std::size_t>(i)], width(t.type));
  }
  std::vector<std::uint32_t> take(dtype type, std::int64_t count) const {
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(&bits[static_cast<std::size_t>(i)], memory.data() + at(i) * width(type), width(type));
    return bits;
  }
  tensor_view view(dtype type) const { return {memory.data(), type, memory_space::host, dims, pitch}; }
};

/// A number of columns for `count` elements.
inline std::int64_t divisor(std::int64_t count, generator& random) {
  for (int tries = 0; tries < 10; ++tries) {
    const auto d = static_cast<std::int64_t>(1 + random.below(80));
    if (count % d == 0) return d;
  }
  return std::max<std::int64_t>(1, count);
}

/// What may lie next to a slot: an arena and a host overflow of random sizes, both, one of them, or none.
/// Some bytes of each belong to others already.
class regions {
 public:
  regions(std::size_t payloads, generator& random)
      : arena_(size(payloads, 64, random)),
        host_(size(payloads, 32, random)),
        has_arena_(random.below(4) != 0),
        has_host_(random.below(2) != 0) {
    if (has_arena_) {
      view_.data = arena_.data();
      view_.bytes = arena_.size();
      view_.claimed = &claimed;
    }
    if (has_host_) {
      view_.host_data = host_.data();
      view_.host_bytes = host_.size();
      view_.host_claimed = &host_claimed;
    }
  }
  regions(const regions&) = delete;
  regions& operator=(const regions&) = delete;

  std::uint64_t claimed = 64, host_claimed = 32;

  const overflow_arena* view() const { return has_arena_ || has_host_ ? &view_ : nullptr; }
  bool has_arena() const { return has_arena_; }
  bool has_host() const { return has_host_; }
  buffer& arena() { return arena_; }
  buffer& host() { return host_; }
  /// True if everything that was claimed lies within one of the regions, in the end.
  bool suffice() const {
    return (has_arena_ && claimed <= arena_.size()) || (has_host_ && host_claimed <= host_.size());
  }
  /// True if nothing was written past the regions, nor where others have claimed.
  bool are_whole() const {
    const auto untouched = [](const buffer& b, std::ptrdiff_t bytes) {
      return b.guard_is_whole() &&
             std::all_of(b.data(), b.data() + bytes, [](std::uint8_t byte) { return byte == 0xa5; });
    };
    return untouched(arena_, 64) && untouched(host_, 32);
  }
  /// For the reference.
  reference::stored with_slot(const buffer& slot) const {
    const auto bytes_of = [](const buffer& b) {
      return std::vector<std::uint8_t>(b.data(), b.data() + b.size());
    };
    reference::stored all;
    all.slot = bytes_of(slot);
    if (has_arena_) all.arena = {bytes_of(arena_), claimed};
    if (has_host_) all.host = {bytes_of(host_), host_claimed};
    return all;
  }

 private:
  static std::size_t size(std::size_t payloads, std::size_t taken, generator& random) {
    return taken + payloads / (1U << random.below(3)) / 16 * 16;
  }

  buffer arena_, host_;
  bool has_arena_, has_host_;
  overflow_arena view_;
};

struct pair_under_test {
  std::string name;
  dtype type;
};

inline std::vector<pair_under_test> pairs() {
  std::vector<pair_under_test> all;
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (const std::string name : {"raw", "sign_mask", "range_mask", "bitmap", "csr"})
      all.push_back({name, type});
    for (const value_format_info& row : value_formats) {
      const std::string format(row.name);
      if (type == dtype::f32 || row.bits != 16) all.push_back({format, type});
      all.push_back({"bitmap_" + format, type});
      all.push_back({"csr_" + format, type});
    }
  }
  return all;
}

inline int tensors_per_pair() {
  const char* setting = std::getenv("STASH_RANDOM_TENSORS");
  return setting == nullptr ? 120 : std::atoi(setting);
}

/// An encoding of the pair with random rules and bounds.
inline encoding random_form(const pair_under_test& tested, generator& random) {
  encoding e = parse_encoding(tested.name);
  e.underflow = static_cast<underflow_rule>(random.below(2));
  e.rule = static_cast<framework_rule>(random.below(2));
  // Some become, in 16 bits, one of the special values.
  static constexpr float lower[] = {0.0F, 0.0F, -1.0F, 0.9999F}, upper[] = {6.0F, 6.0F, INFINITY, 6.0001F};
  e.lower = lower[random.below(std::size(lower))];
  e.upper = upper[random.below(std::size(upper))];
  return e;
}

inline bool is_mask(const pair_under_test& tested) {
  return tested.name == "sign_mask" || tested.name == "range_mask";
}

/// A type that decode() writes: the tensor's; masks become any of four.
inline dtype decoded_type(const pair_under_test& tested, generator& random) {
  constexpr dtype of_masks[] = {dtype::u8, dtype::f32, dtype::f16, dtype::bf16};
  return is_mask(tested) ? of_masks[random.below(std::size(of_masks))] : tested.type;
}

inline bool is_sparse(const pair_under_test& tested) {
  return tested.name.starts_with("bitmap") || tested.name.starts_with("csr");
}

inline std::string name_of(const pair_under_test& tested) {
  constexpr const char* types[] = {"f32", "f16", "bf16"};
  return tested.name + "_of_" + types[static_cast<int>(tested.type)];
}

/// Bytes of a bitmap or csr before its payloads.
inline std::size_t bytes_before_payloads(const pair_under_test& tested, std::int64_t elements) {
  const auto count = static_cast<std::size_t>(elements);
  const std::size_t index_bytes = tested.name.starts_with("csr") ? (count + 255) / 256 * 2 : (count + 7) / 8;
  return (index_bytes + 15) / 16 * 16 + ((count + 1023) / 1024 * 4 + 15) / 16 * 16;
}

}  // namespace stash::test
