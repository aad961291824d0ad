// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The random numbers of this module. Written out here, and in integers only, because the distributions of
/// the standard library differ from one implementation to the next and a seed has to mean the same data
/// everywhere.

#include <cstdint>
#include <initializer_list>

namespace stash::data {

/// SplitMix64: a counter stepped by 2^64 / golden ratio, hashed (G. Steele, D. Lea, C. Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014; the constants of the hash are D. Stafford's
/// "Mix13").
class splitmix64 {
 public:
  /// A stream of its own for every key, for instance {seed, purpose, image number}.
  explicit splitmix64(std::initializer_list<std::uint64_t> key) noexcept {
    for (const std::uint64_t part : key)
      state_ = mix((state_ ^ part) + step);
  }

  std::uint64_t next() noexcept {
    state_ += step;
    return mix(state_);
  }

  /// Uniform in [0, bound), without bias; bound > 0. Multiplication and rejection after D. Lemire, "Fast
  /// random integer generation in an interval", ACM TOMACS 29(1), 2019.
  std::uint32_t below(std::uint32_t bound) noexcept {
    const std::uint32_t rejected = (0U - bound) % bound;
    for (;;) {
      const std::uint64_t product = (next() >> 32) * bound;
      if (static_cast<std::uint32_t>(product) >= rejected) return static_cast<std::uint32_t>(product >> 32);
    }
  }

  /// Uniform in [low, high]; low <= high.
  int between(int low, int high) noexcept {
    return low + static_cast<int>(below(static_cast<std::uint32_t>(high - low) + 1U));
  }

 private:
  static constexpr std::uint64_t step = 0x9E3779B97F4A7C15U;

  static std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  std::uint64_t state_ = 0;
};

}  // namespace stash::data
