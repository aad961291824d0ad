// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Times prepared work on a device, compared with copies of as many bytes. Before every repetition the
/// second-level cache is filled with other data that need not be written back, and the work and its
/// yardsticks take turns, so that a slow moment meets all.

#include <memory>

#include "bench/gpu/cases.hpp"
#include "bench/gpu/rows.hpp"

namespace stash::gpu {

struct effort {
  double seconds = 0.06;     ///< about so long for a row
  int least = 5, most = 40;  ///< repetitions
};

class measurer {
 public:
  explicit measurer(const effort& e);

  /// What goes wrong, or is not offered, becomes a row that was not run; a device that can no longer be used
  /// throws failure.
  row measure(const line& l, map_source& maps);

 private:
  row timed(const line& l, const prepared_case& work);
  double time(const prepared_case& work);
  void flush();
  double time_copy(std::uint64_t bytes, bool by_driver);
  void need_copy_buffers(std::uint64_t bytes);

  effort effort_;
  stream stream_;
  stopwatch watch_;
  memory written_, read_, never_;
  std::unique_ptr<memory> from_, to_;
  std::uint8_t pattern_ = 0;
};

}  // namespace stash::gpu
