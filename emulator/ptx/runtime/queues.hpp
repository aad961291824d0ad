// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What streams have still to do. CUDA says what has happened once somebody has waited, not how much earlier:
/// here it happens then and not before, and of streams that nobody put in order the one goes first whose work
/// came last. So a wait that is missing shows. Call with the runtime's lock.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace stash::ptx {

/// Fails by losing the device only.
using work = std::function<cudaError_t()>;

enum class stream_kind { legacy_default, blocking, non_blocking };

struct queue;

/// After so many work items of a stream.
struct stream_position {
  std::shared_ptr<queue> in;
  std::uint64_t until = 0;
};
bool is_reached(const stream_position& position);
stream_position end_of(const std::shared_ptr<queue>& stream);

/// What a stream has to do stays known when the stream is gone.
std::shared_ptr<queue> make_queue(stream_kind kind);

/// Work that comes after all that the stream has, and after positions in others; empty: nothing but an order.
/// Done at once if the environment wants that.
cudaError_t add(const std::shared_ptr<queue>& to, work what, std::vector<stream_position> after = {});

/// Does one item of what is to be done before all the positions are reached.
cudaError_t do_one(const std::vector<stream_position>& ends);
cudaError_t finish(const std::vector<stream_position>& ends);
cudaError_t finish_everything();

}  // namespace stash::ptx
