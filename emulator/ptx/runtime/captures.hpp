// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Streams, and recordings of their work (CUDA's captures). Call with the runtime's lock.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "ptx/runtime/queues.hpp"

namespace stash::ptx {

struct capture {
  /// A stream of the recording. The first one is where it began.
  struct member {
    cudaStream_t stream;
    std::size_t enqueued;           ///< work items that it was given
    std::vector<std::size_t> seen;  ///< of every member, itself included: how many come before what is next
  };

  /// A work item, the `number`th of its stream. Of every member so many come before it.
  struct step {
    work what;
    std::size_t member, number;
    std::vector<std::size_t> after;
  };

  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<member> members;
  std::vector<step> recorded;
  bool spoiled = false;
  bool over = false;

  member& member_of(cudaStream_t stream);
  bool is_joined() const;
};

/// A position in a stream that is being recorded.
struct captured_position {
  std::shared_ptr<capture> in;
  std::vector<std::size_t> seen;
};

}  // namespace stash::ptx

struct CUstream_st {
  stash::ptx::stream_kind kind;
  std::shared_ptr<stash::ptx::queue> to_do;
  std::shared_ptr<stash::ptx::capture> captured;  ///< null: not recorded
};

namespace stash::ptx {

/// The stream of a handle or itself, the default stream included. Null if there is none.
cudaStream_t stream_of(cudaStream_t handle);
bool is_default(cudaStream_t stream);

/// Leaves the work to the stream, or to its recording. No recording has positions in streams before it.
cudaError_t enqueue(cudaStream_t handle, work what, std::vector<stream_position> after = {});

/// Null if the stream is not recorded.
std::optional<captured_position> position_in(cudaStream_t stream);
/// What is enqueued in the stream from now on comes after the position, in the same recording.
cudaError_t continue_after(cudaStream_t stream, const captured_position& position);
/// The stream waits for work that is not recorded.
cudaError_t continue_after_others(cudaStream_t stream);
/// Calls that no recording of the stream can repeat: spoils it.
cudaError_t refused_if_captured(cudaStream_t stream);

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
/// Leaves the work in `recorded` if there is no error: in an order that the recording allows, what was
/// recorded last as early as may be; or, where streams do their work at once, as it was recorded.
cudaError_t end_capture(cudaStream_t stream, std::vector<work>& recorded);

}  // namespace stash::ptx
