// SPDX-License-Identifier: Apache-2.0
// Recording streams of the CUDA runtime, and graphs: lists of what was recorded.

#include <memory>
#include <vector>

#include "ptx/runtime/captures.hpp"
#include "ptx/runtime/cuda_runtime.hpp"

struct CUgraph_st {
  std::vector<stash::ptx::work> steps;
};
/// Shared with recordings of its launch.
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<stash::ptx::work>> steps;
};

namespace stash::ptx {
namespace {

handles<CUgraph_st>& graphs() {
  static auto& all = *new handles<CUgraph_st>;
  return all;
}

handles<CUgraphExec_st>& executables() {
  static auto& all = *new handles<CUgraphExec_st>;
  return all;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call([&] {
    const cudaStream_t stream = stream_of(handle);
    return stream == nullptr ? cudaErrorInvalidResourceHandle : begin_capture(stream, mode);
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&] {
    *graph = nullptr;
    const cudaStream_t stream = stream_of(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    auto made = std::make_unique<CUgraph_st>();
    const cudaError_t result = end_capture(stream, made->steps);
    if (result == cudaSuccess) *graph = graphs().add(std::move(made));
    return result;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return unsafe_call([&] {
    if (flags != 0) return cudaErrorNotSupported;
    if (executable == nullptr || graphs().find(graph) == nullptr) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUgraphExec_st>();
    made->steps = std::make_shared<const std::vector<work>>(graph->steps);
    *executable = executables().add(std::move(made));
    return cudaSuccess;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call([&] {
    if (executables().find(executable) == nullptr) return cudaErrorInvalidValue;
    return enqueue(stream, [steps = executable->steps] {
      for (const work& step : *steps)
        if (const cudaError_t result = step(); result != cudaSuccess) return result;
      return cudaSuccess;
    });
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return releasing_call([&] { return graphs().erase(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return releasing_call(
      [&] { return executables().erase(executable) ? cudaSuccess : cudaErrorInvalidValue; });
}

}  // extern "C"

}  // namespace stash::ptx
