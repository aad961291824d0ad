// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the kernels have done in this process, by op and tensor. Thread-safe; a kernel finds its counter once
/// and then only adds to it, without a lock.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace stash_tf {

/// What one execution of a kernel did.
struct execution {
  std::int64_t elements = 0;
  std::int64_t dense_bytes = 0;
  std::int64_t stored_bytes = 0;
  std::int64_t nonzeros = -1;  ///< -1: not known
  std::int64_t nanoseconds = 0;
  std::int64_t batch = 0;  ///< first dimension of the dense tensor, 1 without dimensions
  /// If values were looked at: the format that they are stored in (STASH_VALUES_...), and the relative error
  /// of that.
  std::int32_t format = 0;
  double rounding = 0;
};

/// Beyond this relative error a format does not suit the values: many of them are too
/// large for it, or too small. Values in its range are rounded by 3 % in fp8, and by less in the others.
inline constexpr double largest_rounding = 0.1;

/// Sums over executions.
class counter {
 public:
  void add(const execution& e) noexcept;
  void reset() noexcept;
  std::int64_t executions() const noexcept { return executions_.load(std::memory_order_relaxed); }
  nlohmann::json json() const;

 private:
  static constexpr std::size_t formats = 16;
  std::atomic<std::int64_t> executions_{0}, elements_{0}, dense_bytes_{0}, stored_bytes_{0}, nonzeros_{0},
      uncounted_{0}, nanoseconds_{0}, batch_{0}, most_elements_{0};
  /// By format, the largest that was seen. Threads may run functions of several plans, which keep a tensor in
  /// several formats.
  std::array<std::atomic<double>, formats> rounding_{};
};

/// The counter of an op's tensor. Valid until the process ends.
counter* counter_of(std::string_view op, std::string_view tensor);

/// All counters with at least one execution since the reset, sorted by op and tensor: a JSON array.
std::string counters_json();
void reset_counters();
/// How often that was.
std::uint32_t resets() noexcept;

/// How often an execution had more elements than all before it that its counter knows, or showed values that
/// their format does not suit after others that it did: where this has changed, a plan may be out of date. A
/// reset does not start it anew.
std::int64_t surprises() noexcept;

}  // namespace stash_tf
