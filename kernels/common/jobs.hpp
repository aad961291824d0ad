// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Several jobs in one launch: small maps then cost one start of a kernel together. A kernel takes a list of
/// jobs; a block looks up which of them it works on, and which of that job's blocks it is.

#include <cstdint>
#include <type_traits>

#include "common/simt.hpp"
#include "common/tuning.hpp"

namespace stash::kernels {

using tuning::most_jobs;

/// Jobs one after another. `end[i]` is the number of blocks of jobs 0 to i; after the last job it repeats.
template <class Job, unsigned Most>
struct job_list {
  Job job[Most];
  std::uint32_t end[Most];
};

/// Finds the job of this block and its number within the job. The same for all threads of a block. Of several
/// jobs it is a reference: what is used late is read again from constant memory, which saves a copy's
/// registers.
template <class Job, unsigned Most>
STASH_DEVICE std::conditional_t<Most == 1, Job, const Job&> job_of_block(const job_list<Job, Most>& list,
                                                                         std::uint64_t& block) {
  block = block_rank();
  if constexpr (Most == 1) {
    return list.job[0];
  } else {
    unsigned i = 0;
    while (block >= list.end[i])
      ++i;
    if (i != 0) block -= list.end[i - 1];
    return list.job[i];
  }
}

}  // namespace stash::kernels
