// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The core's loops on TensorFlow's worker threads.

#include <cstdint>

namespace stash_tf {

/// stash_execution_context::parallel_for, with a tensorflow::thread::ThreadPool as `user`. Returns when all
/// of [0, count) is done.
///
/// The calling thread begins at once, and workers take blocks from it when they come, the first block first.
/// ThreadPool::ParallelFor hands all blocks to workers and sleeps: sleeping threads then have to be woken
/// three times, one after the other, which takes as long as an encoder does for megabytes. A worker that
/// comes too late, because it slept or had other work, finds nothing left to do and touches nothing of the
/// caller's.
void run_on_workers(void* user, std::int64_t count, std::int64_t grain,
                    void (*body)(void* state, std::int64_t begin, std::int64_t end), void* state);

}  // namespace stash_tf
