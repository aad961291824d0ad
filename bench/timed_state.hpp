// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From the table of cases to Google Benchmark: one state, one prepared call, and its copy.

#include <benchmark/benchmark.h>

#include <functional>
#include <string>

#include "bench/cases/cases.hpp"

namespace stash::bench {

/// Another call of the same purpose that is timed in turn with the first; the counter `name` receives how
/// much faster the first is.
struct rival_call {
  std::string name;
  std::function<void()> run;
};

/// What one line times.
struct timed_work {
  prepared_call call;
  std::int64_t dense_bytes = 0;
  rival_call rival = {};  ///< `run` may be empty
};

/// Registers a benchmark on one thread. `prepare` is called when its turn comes, once, although Google
/// Benchmark enters a benchmark several times; what it returned is released when the next benchmark begins.
/// What it throws becomes the error of this line.
///   bytes_per_second  of the dense map
///   copy_share        speed compared with a copy of the least bytes that the call has to move, 1 = as fast
///   ratio             dense bytes / encoded bytes
void register_work(const std::string& name, std::function<timed_work()> prepare);

}  // namespace stash::bench
