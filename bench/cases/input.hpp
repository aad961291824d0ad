// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Generated feature maps whose zeros lie as they do in networks: anywhere, in whole channels, or in runs.

#include <cstdint>
#include <span>
#include <string>

namespace stash::bench {

enum class zero_pattern : std::uint8_t {
  independent,    ///< every element for itself
  dead_channels,  ///< whole channels of a channels-last map, the others without a zero
  clustered,      ///< runs: a two-state Markov chain whose runs of zeros have the mean length below
};

/// Mean length of a run of zeros in a clustered map, in elements.
inline constexpr double mean_zero_run = 64;

/// Where zeros lie after the ReLU, and the share of non-zeros.
struct map_input {
  zero_pattern zeros = zero_pattern::independent;
  double density = 0.5;
};

/// "iid_0.5", "dead_channels_0.5", "clustered_0.5".
std::string to_string(const map_input& input);

/// Writes a map as it is before the ReLU: values of uniform size in (0, 4] with random mantissas, positive
/// where the map after the ReLU is to be non-zero, else negative. The same values in every run.
/// `values.size()` is a multiple of `channels`; 0 < density < 1.
void fill_before_relu(std::span<float> values, const map_input& input, std::int64_t channels);

}  // namespace stash::bench
