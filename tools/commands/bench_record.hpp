// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What `stash bench` has measured, as JSON and as a picture.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace stash::tools {

struct bench_figures {
  std::string name;  ///< of the line, e.g. "encode/bitmap/iid_0.5/64MiB"
  std::int64_t dense_bytes = 0;
  double seconds = 0;          ///< of one call, the median
  double copy_share = 0;       ///< speed compared with a copy of the bytes that have to move; 1 = as fast
  double copy_share_low = 0;   ///< in a quarter of the rounds it was not above this; 0: not known
  double copy_share_high = 0;  ///< and in a quarter not below this
  double copy_variation = 0;   ///< ninth decile of the copy's times over the first, minus 1
  double ratio = 0;            ///< dense bytes / encoded bytes; 0: nothing is encoded
  double one_call_speed = 0;   ///< of a batch, compared with one call on all its bytes; 0: no batch
  std::size_t rounds = 0;

  /// Whether the copy itself was a tenth and more slower in some rounds: the machine was busy.
  bool noisy() const { return copy_variation > 0.1; }

  /// Of the dense map, in 10^9 bytes.
  double gigabytes_per_second() const { return 1e-9 * static_cast<double>(dense_bytes) / seconds; }
};

struct bench_record {
  std::string command;  ///< that gives these lines again
  int threads = 1;
  std::vector<bench_figures> lines;
  std::string device;                                        ///< its name; empty: this processor
  std::string device_facts;                                  ///< with a device: what is known of it, as JSON
  std::vector<std::pair<std::string, std::string>> not_run;  ///< lines and why
};

/// Command, machine, commit and threads, and one entry per line.
nlohmann::ordered_json bench_json(const bench_record& record);

/// Bars of the share of a copy, one per line. Self-contained SVG text.
std::string bench_svg(const bench_record& record);

}  // namespace stash::tools
