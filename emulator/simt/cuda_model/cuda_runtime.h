// SPDX-License-Identifier: Apache-2.0
#ifndef STASH_CUDA_RUNTIME_H
#define STASH_CUDA_RUNTIME_H
/// \file
/// As much of the CUDA runtime as kernels/device_memory.cu calls, made of nothing but its rules: which calls
/// are refused while a stream is recorded in the global mode, and what the last error of a thread is. Streams
/// and events are names.
///
/// CUDA calls "potentially unsafe" what such a recording does not survive, unless the thread that calls has
/// put itself into the relaxed mode, and lists few of them; so everything counts as such here that is not
/// itself what recordings consist of.

#include <cstddef>
#include <cstdlib>

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaDeviceAttr { cudaDevAttrHostNumaId = 134 };
constexpr unsigned cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
using cudaStream_t = struct modelled_stream*;
using cudaEvent_t = struct modelled_event*;

namespace stash::cuda_model {

struct state {
  bool recording = false;  ///< some thread records a stream in the global mode
  bool spoiled = false;    ///< the recording
  bool ready = true;       ///< events have been reached
  bool out_of_memory = false;
};
inline state now;
inline thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
inline thread_local cudaError_t last_error = cudaSuccess;

inline cudaError_t result(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

/// Of a call that no recording survives.
inline cudaError_t unsafe(cudaError_t otherwise = cudaSuccess) {
  if (!now.recording || mode == cudaStreamCaptureModeRelaxed) return result(otherwise);
  now.spoiled = true;
  return result(cudaErrorStreamCaptureUnsupported);
}

template <class Handle>
cudaError_t unsafe_handle(Handle* to) {
  static char name;
  const cudaError_t e = unsafe(now.out_of_memory ? cudaErrorMemoryAllocation : cudaSuccess);
  *to = e == cudaSuccess ? reinterpret_cast<Handle>(&name) : nullptr;
  return e;
}

}  // namespace stash::cuda_model

inline cudaError_t cudaGetLastError() {
  const cudaError_t e = stash::cuda_model::last_error;
  stash::cuda_model::last_error = cudaSuccess;
  return e;
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  const cudaStreamCaptureMode before = stash::cuda_model::mode;
  stash::cuda_model::mode = *mode;
  *mode = before;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = -1;
  return cudaSuccess;
}

// What is recorded.
inline cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}

inline cudaError_t cudaMallocAsync(void** data, std::size_t, cudaStream_t) {
  return stash::cuda_model::unsafe_handle(data);
}
inline cudaError_t cudaFreeAsync(void*, cudaStream_t) {
  return stash::cuda_model::unsafe();
}
inline cudaError_t cudaHostAlloc(void** data, std::size_t, unsigned) {
  return stash::cuda_model::unsafe_handle(data);
}
inline cudaError_t cudaFreeHost(void*) {
  return stash::cuda_model::unsafe();
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return stash::cuda_model::unsafe_handle(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return stash::cuda_model::unsafe();
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) {
  return stash::cuda_model::unsafe();
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return stash::cuda_model::unsafe_handle(event);
}
inline cudaError_t cudaEventQuery(cudaEvent_t) {
  return stash::cuda_model::unsafe(stash::cuda_model::now.ready ? cudaSuccess : cudaErrorNotReady);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return stash::cuda_model::unsafe();
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) {
  return stash::cuda_model::unsafe();
}

namespace stash::kernels {

/// What launch.hpp has only for nvcc.
void check_launch(const char* function, cudaError_t result);

}  // namespace stash::kernels

#endif
