// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a measurement gives: rows, as text and as JSON. Knows no device.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace stash::gpu {

/// The times of the same work done again and again.
struct sample {
  double median = 0, least = 0, most = 0;  ///< seconds; the upper median of an even number
  int repetitions = 0;
};

/// Throws std::invalid_argument for no times.
sample sample_of(const std::vector<double>& seconds);

/// One line of a result: a case on an input.
struct row {
  std::string name;               ///< "encode/bitmap/f32/iid_0.5/32MiB"
  std::uint64_t dense_bytes = 0;  ///< of the map
  /// The least that has to be read and written: each byte once, a byte read and a byte written each count.
  std::uint64_t moved_bytes = 0;
  std::uint64_t encoded_bytes = 0;  ///< 0 without an encoded form
  sample time;
  sample driver_copy, kernel_copy;  ///< the yardsticks: copies that move as many bytes
  std::string why_not_run;          ///< if not empty, nothing above but the name means anything

  double dense_bytes_per_second() const;
  double moved_bytes_per_second() const;
  /// The time of the faster copy over the own: 1 is as fast as copying.
  double copy_share() const;
  /// Dense bytes over encoded bytes; 0 without an encoded form.
  double ratio() const;
};

std::string heading_of_table();
std::string line_of(const row& r);
/// A list of objects; rows that were not run have "name", "result": "not run" and "why".
nlohmann::ordered_json json_of(const std::vector<row>& rows);

}  // namespace stash::gpu
