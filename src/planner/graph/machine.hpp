// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a planner must know of a machine: rates of compute, memory and link, and how fast codecs run
/// (docs/machines.md).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stash::planner {

struct machine {
  std::string name;
  std::string description;         ///< where the figures come from
  std::int64_t memory_bytes = 0;   ///< of the device; 0: unknown
  std::int64_t host_bytes = 0;     ///< that swapped maps may take; 0: no cap
  double flops_per_second = 1e12;  ///< sustained, for convolution and matrix products
  double memory_bytes_per_second = 1e11;
  double op_latency_seconds = 0.0;                               ///< no op is shorter
  double out_bytes_per_second = 0.0, in_bytes_per_second = 0.0;  ///< to and from the host; 0: no link
  double link_latency_seconds = 0.0;
  double contention = 1.0;  ///< rate of each direction while both are busy, as a share of its own
  /// Share of the memory rate that codecs reach, on the bytes they read and write.
  double mask_share = 0.9, sparse_share = 0.8, cast_share = 0.9, elementwise_share = 0.9;
  /// Models that are pinned for comparison: an op takes `produced_factor` times the bytes that it produces at
  /// the memory rate (`compute_factor` times that for forward convolutions and matrix products), an encoder
  /// or decoder `codec_factor` times the dense bytes, and the only encoding has half the size.
  bool pinned = false;
  double produced_factor = 0.0, compute_factor = 0.0, codec_factor = 0.0;
};

/// The machines that come with Stash.
const std::vector<machine>& known_machines();

/// Throws error(invalid_argument) that lists the known names.
const machine& find_machine(std::string_view name);

/// One object (docs/machines.md). Throw error(bad_format) with the path of the offending field.
machine machine_from_json(std::string_view text);
std::string to_json(const machine& m);

}  // namespace stash::planner
