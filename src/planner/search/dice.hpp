// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Random numbers that are the same with every standard library.

#include <cstddef>
#include <cstdint>
#include <random>

namespace stash::planner {

/// A fixed generator with its own way to a range.
class dice {
 public:
  explicit dice(std::uint64_t seed) : engine_(seed) {}
  /// In [0, n); n must not be 0.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  /// In [0, 1).
  double share() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace stash::planner
