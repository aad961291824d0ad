// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The kernel of everything that treats groups of elements one by one: masks, casts, ReLU. A block first
/// issues all its loads, so that enough bytes are in flight, then computes and stores.
///
/// A body is a plain value, passed to the kernel as it is, with
///     using loaded = ...;                      what a thread holds of a group between load and store
///     static constexpr bool halves = ...;           lanes share groups (elements.hpp), half a warp from each
/// other
///     static constexpr unsigned groups = ...;       of a thread: as many as make four 16-byte loads
///     bool vectors() const;                    may load_whole and store_whole be called
///     std::uint64_t whole_groups() const;      groups before the first that is not whole
///     loaded load_whole(group) / load_any(group);
///     void store_whole(group, loaded) / store_any(group, loaded);
///     void fetch(group, count) const;      what will be read of groups from `group` on (ahead.hpp)
/// Lanes of a warp come to a store together, with groups that follow each other, for `halves` in the order of
/// group_of_thread(); store_any is called for the groups after the last one too, up to the end of the block,
/// and has to look.

#include <cstdint>

#include "common/ahead.hpp"
#include "common/jobs.hpp"
#include "common/simt.hpp"
#include "common/tuning.hpp"

namespace stash::kernels {

using tuning::group_threads;

/// Blocks that a multiprocessor must have registers for. 0 leaves it to the compiler.
template <class Body, unsigned Most>
inline constexpr unsigned group_blocks = Most > 1 ? tuning::group_blocks_of_many : 0;

template <class Body, unsigned Most>
STASH_KERNEL(group_threads, group_blocks<Body, Most>)
each_group(STASH_PARAMETER(job_list<Body, Most>) list) {
  constexpr unsigned groups = Body::groups;
  begin_kernel(tuning::blocks_ahead, [&] {
    constexpr std::uint64_t count = std::uint64_t{group_threads} * groups;
    std::uint64_t own;
    const auto& job = job_of_block(list, own);
    job.fetch(own * count, count);
  });
  std::uint64_t block;
  const Body body = job_of_block(list, block);
  const std::uint64_t begin = block * (std::uint64_t{group_threads} * groups);
  const std::uint64_t first = begin + group_of_thread<Body::halves>(thread_rank());
  typename Body::loaded loaded[groups];
  // The same for the whole block, so that the loads of the usual case stand in a row.
  if (body.vectors() && begin + std::uint64_t{group_threads} * groups <= body.whole_groups()) {
    STASH_UNROLL
    for (unsigned g = 0; g < groups; ++g)
      loaded[g] = body.load_whole(first + g * group_threads);
    STASH_UNROLL
    for (unsigned g = 0; g < groups; ++g)
      body.store_whole(first + g * group_threads, loaded[g]);
  } else {
    STASH_UNROLL
    for (unsigned g = 0; g < groups; ++g)
      loaded[g] = body.load_any(first + g * group_threads);
    STASH_UNROLL
    for (unsigned g = 0; g < groups; ++g)
      body.store_any(first + g * group_threads, loaded[g]);
  }
  body.finish(block == 0 && thread_rank() == 0);
}

/// The kernels of a body, for launches.hpp.
template <class Body>
struct group_kernels {
  using job = Body;
  static constexpr unsigned threads = group_threads;
  template <unsigned Most>
  static constexpr auto kernel = &each_group<Body, Most>;
};

/// Blocks that cover `count` groups.
template <class Body>
constexpr std::uint64_t blocks_for(std::uint64_t count) {
  constexpr std::uint64_t each = std::uint64_t{group_threads} * Body::groups;
  return (count + each - 1) / each;
}

/// Groups of a thread that make the 16-byte loads it shall have in flight.
template <class Bits>
inline constexpr unsigned groups_in_flight = tuning::loads_in_flight / (sizeof(Bits) == 4 ? 2 : 1);

}  // namespace stash::kernels
