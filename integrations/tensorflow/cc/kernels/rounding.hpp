// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Whether a narrow format suits the values of a tensor, looked at now and then.

#include <atomic>
#include <cstdint>

#include "kernels/core_call.hpp"

namespace stash_tf {

/// Of one tensor's encoder on CPUs. Thread-safe.
class rounding_probe {
 public:
  explicit rounding_probe(const stash_encoding& encoding);

  /// Stores values of the encoder's input as it stores them, reads them back, and puts what that shows into
  /// `done`: all of them at the first execution since reset_counters() and at every 128th, up to 1,024 from
  /// places of their own at the next three and at about every 16th. Values that are not finite do not count.
  void look(const tensorflow::Tensor& x, const core_context& core, execution* done);

 private:
  stash_encoding encoding_;
  bool rounds_;  // the encoding keeps fewer bits than the source
  std::atomic<std::uint32_t> executions_{0}, resets_{0};
};

}  // namespace stash_tf
