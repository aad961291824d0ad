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
    std::size_t enqueued;           ///< pieces of work that it was given
    std::vector<std::size_t> seen;  ///< of every member, itself included: how many come before what is next
  };

  /// A piece of work, the `number`th of its stream. Of every member so many come before it.
  struct step {
    work what;
    std::size_t member, number;
    std::vector<std::size_t> behind;
  };

  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<member> members;
  std::vector<step> recorded;
  bool spoiled = false;
  bool over = false;

  member& of(cudaStream_t stream);
  bool is_joined() const;
};

/// A place in a stream that is being recorded.
struct captured_place {
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

/// The stream behind a handle or itself, the default stream included. Null if there is none.
cudaStream_t stream_of(cudaStream_t handle);
bool is_default(cudaStream_t stream);

/// Leaves the work to the stream, or to its recording.
/// No recording has places in streams before it.
cudaError_t enqueue(cudaStream_t handle, work what, std::vector<stream_place> behind = {});

/// Null if the stream is not recorded.
std::optional<captured_place> place_in(cudaStream_t stream);
/// What is enqueued in the stream from now on comes behind the place, in the same recording.
cudaError_t go_on_behind(cudaStream_t stream, const captured_place& place);
/// The stream waits for work that is not recorded.
cudaError_t go_on_behind_the_rest(cudaStream_t stream);
/// Calls that no recording of the stream can repeat: spoils it.
cudaError_t refused_if_captured(cudaStream_t stream);

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
/// Leaves the work in `recorded` if there is no error: in an order that the recording allows, what was
/// recorded last as early as may be; or, where streams do their work at once, as it was recorded.
cudaError_t end_capture(cudaStream_t stream, std::vector<work>& recorded);

}  // namespace stash::ptx
