#pragma once
/// \file
/// Whether a narrow format suits the values of a tensor, seen from a sample now and then.

#include <atomic>
#include <cstdint>

#include "kernels/core_call.hpp"

namespace stash_tf {

/// Of one tensor's encoder on CPUs. Thread-safe.
class rounding_probe {
 public:
  explicit rounding_probe(const stash_encoding& encoding);

  /// Stores up to 1,024 values of the encoder's input as it stores them and reads them back, at its first
  /// executions and at every 32nd; puts what that shows into `done`. Values that are not finite do not count.
  /// Never fails: without memory it looks another time.
  void look(const tensorflow::Tensor& x, const core_context& core, execution* done);

 private:
  stash_encoding encoding_;
  bool rounds_;  // the encoding keeps fewer bits than the source
  std::atomic<std::uint32_t> executions_{0};
};

}  // namespace stash_tf
