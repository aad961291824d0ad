// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the user wants, as it comes from Python ("Settings of the optimizer" in README.md).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stash_tf {

struct settings {
  std::string policy = "none";
  std::int64_t budget_bytes = 0;
  /// Steps have run under this budget: where the data turn out to need more, none is refused any more.
  bool accepted = false;
  std::int64_t batch = 0;
  /// Batches of functions that have another one, by what TensorFlow calls their graphs.
  std::map<std::string, std::int64_t> batches;
  std::vector<std::string> keep;
  /// Policy auto: narrower formats that are allowed, the most precise first.
  std::vector<std::string> values = {"fp16", "fp10", "fp8"};
  std::map<std::string, double> densities;
  /// Tensors whose values the narrower formats of the policy did not suit -> the need (docs/needs.md) of
  /// those who read their values: "fine_value" or "exact_value".
  std::map<std::string, std::string> needs;
  std::int64_t min_bytes = 4096;
  /// Of the log: functions that are optimized under equal settings share it.
  std::int64_t generation = 0;
  bool swap = false;
  /// What the backward pass computes again of maps that are kept: "none"; "cheap": what cheap ops make of
  /// them and of what loops keep in lists; "all": of maps, what convolutions, products and reductions make,
  /// too.
  std::string recompute = "cheap";
  /// What swapping is planned for: a name or an object of docs/machines.md; empty: what is like the device.
  std::string machine;
  /// For tests: CPUs count as a device of so many bytes, separate from the memory of the host. 0: they do
  /// not.
  std::int64_t device_bytes = 0;
  /// For tests: steps on a GPU are rewritten though the kernels of this library do not run there.
  bool any_device = false;
};

/// Whether the policy may round values.
bool is_lossy(const settings& request);

/// Throws std::invalid_argument that names the field.
settings parse_settings(const std::string& json);

/// The settings of stash_tf_configure().
settings process_settings();

}  // namespace stash_tf
