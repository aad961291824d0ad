// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Helpers of the encoder tests: guarded memory, tensors with awkward values, views.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "stash/encoding.hpp"
#include "stash/error.hpp"
#include "support/closed_bytes.hpp"

namespace stash_test {

/// Exactly `bytes` bytes at a 16-byte but not 32-byte boundary, between two guard zones. A sanitizer sees who
/// reads or writes these.
class guarded_buffer {
 public:
  explicit guarded_buffer(std::size_t bytes, std::uint8_t fill = 0xcd)
      : bytes_(bytes),
        memory_(filled(bytes, fill)),
        front_(memory_.get(), data()),
        back_(data() + bytes, memory_.get() + padded_bytes(bytes)) {}
  guarded_buffer(guarded_buffer&&) noexcept = default;

  std::uint8_t* data() const { return memory_.get() + guard; }
  std::size_t size() const { return bytes_; }
  bool guards_intact() const { return front_.are(guard_value) && back_.are(guard_value); }
  std::vector<std::uint8_t> copy() const { return {data(), data() + bytes_}; }

 private:
  static constexpr std::size_t guard = 80;
  static constexpr std::uint8_t guard_value = 0xa5;
  struct free_memory {
    void operator()(std::uint8_t* memory) const { std::free(memory); }
  };
  static std::size_t padded_bytes(std::size_t bytes) { return (bytes + 2 * guard + 63) / 64 * 64; }
  static std::uint8_t* filled(std::size_t bytes, std::uint8_t fill) {
    auto* const memory = static_cast<std::uint8_t*>(std::aligned_alloc(64, padded_bytes(bytes)));
    std::memset(memory, guard_value, padded_bytes(bytes));
    std::memset(memory + guard, fill, bytes);
    return memory;
  }

  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, free_memory> memory_;
  closed_bytes front_, back_;
};

inline float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline std::uint32_t to_bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * 4);
  return bits;
}

enum class flavour { positive, mixed, special };

/// `density` is the chance of a value that is not +0. `special` mixes in NaN, infinities, -0 and denormals.
inline std::vector<float> make_values(std::int64_t count, double density, flavour kind, std::uint32_t seed) {
  static const std::uint32_t specials[] = {0x7fc00000, 0xffc12345, 0x7f800001, 0x7f800000, 0xff800000,
                                           0x80000000, 0x00000001, 0x807fffff, 0x3a000000, 0x39800000,
                                           0xb9800000, 0x477ff000, 0x43e80000, 0x7f7fffff, 0x33000000};
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> share(0, 1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> values(static_cast<std::size_t>(count), 0.0f);
  for (float& value : values) {
    if (share(random) >= density) continue;
    value = normal(random);
    if (kind == flavour::positive) value = std::max(std::abs(value), 1e-3f);
    if (kind == flavour::special && share(random) < 0.3)
      value = from_bits(specials[random() % std::size(specials)]);
  }
  return values;
}

inline stash::tensor_view view_of(std::vector<float>& values) {
  return {values.data(),
          stash::dtype::f32,
          stash::memory_space::host,
          {static_cast<std::int64_t>(values.size())},
          0};
}
inline stash::const_tensor_view view_of(const std::vector<float>& values) {
  return {values.data(),
          stash::dtype::f32,
          stash::memory_space::host,
          {static_cast<std::int64_t>(values.size())},
          0};
}
inline stash::tensor_view view_of(std::vector<std::uint8_t>& values) {
  return {values.data(),
          stash::dtype::u8,
          stash::memory_space::host,
          {static_cast<std::int64_t>(values.size())},
          0};
}

/// A channels-last map of pixels x channels inside a wider one whose other channels must stay as they are.
class pitched_map {
 public:
  pitched_map(const std::vector<float>& values, std::int64_t channels, std::int64_t pitch, std::int64_t first)
      : pixels_(static_cast<std::int64_t>(values.size()) / channels),
        channels_(channels),
        pitch_(pitch),
        first_(first),
        storage_(static_cast<std::size_t>(pixels_ * pitch), filler) {
    for (std::int64_t i = 0; i < pixels_ * channels_; ++i)
      storage_[index(i)] = values[static_cast<std::size_t>(i)];
  }
  stash::tensor_view view() {
    return {
        storage_.data() + first_, stash::dtype::f32, stash::memory_space::host, {pixels_, channels_}, pitch_};
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (std::int64_t i = 0; i < pixels_ * channels_; ++i)
      all.push_back(storage_[index(i)]);
    return all;
  }
  bool neighbours_intact() const {
    for (std::int64_t i = 0; i < pixels_ * pitch_; ++i) {
      const std::int64_t channel = i % pitch_;
      if (channel >= first_ && channel < first_ + channels_) continue;
      if (to_bits(storage_[static_cast<std::size_t>(i)]) != to_bits(filler)) return false;
    }
    return true;
  }

 private:
  static constexpr float filler = -77.25f;
  std::size_t index(std::int64_t i) const {
    return static_cast<std::size_t>(i / channels_ * pitch_ + first_ + i % channels_);
  }
  std::int64_t pixels_, channels_, pitch_, first_;
  std::vector<float> storage_;
};

/// "16 00*3" -> 16 00 00 00.
inline std::vector<std::uint8_t> parse_hex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16));
    i += 2;
    std::size_t times = 1;
    if (i < text.size() && text[i] == '*') {
      std::size_t digits = 0;
      times = std::stoul(text.substr(i + 1), &digits);
      i += 1 + digits;
    }
    bytes.insert(bytes.end(), times, byte);
  }
  return bytes;
}

inline stash::encoding make_encoding(const char* name,
                                     stash::underflow_rule underflow = stash::underflow_rule::to_zero) {
  stash::encoding e = stash::parse_encoding(name);
  e.underflow = underflow;
  return e;
}

/// The calling thread takes denormals for zeros, as TensorFlow's threads do. Elsewhere than on x86 nothing.
class denormals_are_zero {
 public:
#if defined(__SSE2__)
  static constexpr bool works = true;
#else
  static constexpr bool works = false;
#endif

  denormals_are_zero() {
#if defined(__SSE2__)
    _mm_setcsr(before_ | 0x8040);
#endif
  }
  ~denormals_are_zero() {
#if defined(__SSE2__)
    _mm_setcsr(before_);
#endif
  }
  denormals_are_zero(const denormals_are_zero&) = delete;
  denormals_are_zero& operator=(const denormals_are_zero&) = delete;

 private:
#if defined(__SSE2__)
  unsigned before_ = _mm_getcsr();
#endif
};

/// The error code that `call` throws, or ok.
template <class Call>
stash::errc code_of(const Call& call) {
  try {
    call();
  } catch (const stash::error& failure) {
    return failure.code();
  }
  return stash::errc::ok;
}
/// The message of the error that `call` throws.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const stash::error& failure) {
    return failure.what();
  }
  return "no failure";
}

}  // namespace stash_test
