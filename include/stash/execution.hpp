// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Where and how a non-owning call runs. On the CPU a caller brings its own threads as a parallel_for
/// callback; on a device the context carries a stream. Calls never create threads themselves.

#include <cstdint>

#include "stash/tensor_view.hpp"

namespace stash {

/// Part of a loop: processes [begin, end).
using range_function = void (*)(void* state, std::int64_t begin, std::int64_t end);

/// Runs `body(state, begin, end)` over disjoint ranges that cover [0, count), each at most about `grain`
/// long (a hint, > 0), possibly concurrently, and returns when all are done. Must not throw. Ranges may run
/// in any order and never wait for each other. One may do the work of others that have not begun, which then
/// find nothing left: encoders of sparse maps do so. Ranges take up to 128 KiB of stack.
using parallel_for_function = void (*)(void* user, std::int64_t count, std::int64_t grain,
                                       range_function body, void* state);

/// Plain value, freely copied. The default runs on the calling thread. Results never depend on the number of
/// threads or on how a range is cut. On a device every call may also throw error(device_failure): there is no
/// driver or no device, or it refused to run a kernel.
struct execution_context {
  /// Host or device: calls throw error(invalid_argument) for another. Tensors in pinned memory belong to
  /// calls of either.
  memory_space space = memory_space::host;
  parallel_for_function parallel_for = nullptr;
  void* user = nullptr;  ///< first argument of parallel_for
  /// cudaStream_t on a device; unused on the CPU. Of the device that is current in the calling thread: the
  /// driver refuses others. Objects that own memory free it in the stream that they got, so it must outlive
  /// them.
  void* stream = nullptr;
  /// On a device: bitmap and csr place their tiles in order, so that the bytes are canonical as on the CPU.
  /// Costs a few percent, and workspace_bytes() of memory. Else tiles lie in the order in which blocks
  /// finish.
  bool canonical = false;
};

}  // namespace stash
