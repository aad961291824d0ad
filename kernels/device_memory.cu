// SPDX-License-Identifier: Apache-2.0
#include "cuda_memory.hpp"

#include <cuda_runtime.h>
#ifdef __linux__
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "common/launch.hpp"

namespace stash::kernels {

namespace {

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

/// The errors of calls that nobody hears of are not left for whoever asks next, who may be the caller.
void quietly(cudaError_t result) noexcept {
  if (result != cudaSuccess) cudaGetLastError();
}

/// While it lives, this thread may ask for memory, streams and events although a stream is being recorded: of
/// this thread, or in the default mode of any other. Without it such calls fail and spoil the recording, also
/// those for memory in the order of a stream that is not recorded. None of them touches what is recorded.
class outside_recordings {
 public:
  outside_recordings() noexcept { quietly(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~outside_recordings() { quietly(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  outside_recordings(const outside_recordings&) = delete;
  outside_recordings& operator=(const outside_recordings&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// While it lives, pages of this thread are made on the node of memory that the device is attached to, where
/// the system knows it: a copy from another node may take three times as long.
class near_device {
 public:
  near_device() {
#if defined(__linux__) && CUDART_VERSION >= 12020
    int device = 0, node = -1;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) == cudaSuccess;
    if (!known) cudaGetLastError();
    if (!known || node < 0 || node >= nodes) return;
    if (syscall(SYS_get_mempolicy, &mode_, before_, nodes, nullptr, 0) != 0) return;
    unsigned long node_mask[words] = {};
    node_mask[node / word_bits] = 1UL << (node % word_bits);
    changed_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, node_mask, nodes) == 0;
#endif
  }
  ~near_device() {
#if defined(__linux__) && CUDART_VERSION >= 12020
    if (changed_) syscall(SYS_set_mempolicy, mode_, before_, nodes);
#endif
  }
  near_device(const near_device&) = delete;
  near_device& operator=(const near_device&) = delete;

 private:
  static constexpr int word_bits = 8 * sizeof(unsigned long), words = 16, nodes = words * word_bits;
  int mode_ = 0;
  unsigned long before_[words] = {};
  bool changed_ = false;
};

}  // namespace

void cuda_memory::check_available(std::string_view /*function*/) const {}

void* cuda_memory::allocate(std::size_t bytes, void* stream) const {
  const outside_recordings allowed;
  void* data = nullptr;
  const cudaError_t result = cudaMallocAsync(&data, bytes, stream_of(stream));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is reported here, not by the next launch
    return nullptr;
  }
  check_launch("device_memory", result);
  return data;
}

void cuda_memory::deallocate(void* data, void* stream) const noexcept {
  const outside_recordings allowed;
  quietly(cudaFreeAsync(data, stream_of(stream)));
}

void* cuda_memory::allocate_pinned(std::size_t bytes) const {
  const near_device node;
  const outside_recordings allowed;
  void* data = nullptr;
  const cudaError_t result = cudaHostAlloc(&data, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_launch("pinned_memory", result);
  return data;
}

void cuda_memory::deallocate_pinned(void* data) const noexcept {
  const outside_recordings allowed;
  quietly(cudaFreeHost(data));
}

void cuda_memory::clear(void* data, std::size_t bytes, void* stream) const {
  check_launch("clear", cudaMemsetAsync(data, 0, bytes, stream_of(stream)));
}

void cuda_memory::copy(void* to, const void* from, std::size_t bytes, void* stream) const {
  check_launch("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
}

void cuda_memory::wait_for_stream(void* stream) const {
  const outside_recordings allowed;
  check_launch("wait", cudaStreamSynchronize(stream_of(stream)));
}

void* cuda_memory::create_stream() const {
  const outside_recordings allowed;
  cudaStream_t stream = nullptr;
  check_launch("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void cuda_memory::destroy_stream(void* stream) const noexcept {
  const outside_recordings allowed;
  quietly(cudaStreamDestroy(stream_of(stream)));
}

encoders::device::event cuda_memory::record_event(void* stream) const {
  const outside_recordings allowed;
  cudaEvent_t e = nullptr;
  check_launch("event", cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  const cudaError_t result = cudaEventRecord(e, stream_of(stream));
  if (result != cudaSuccess) {
    quietly(cudaEventDestroy(e));
    check_launch("event", result);
  }
  return e;
}

bool cuda_memory::reached(encoders::device::event e) const {
  const outside_recordings allowed;
  const cudaError_t result = cudaEventQuery(static_cast<cudaEvent_t>(e));
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // no error, but remembered as one
    return false;
  }
  check_launch("event", result);
  return true;
}

void cuda_memory::wait_for_event(encoders::device::event e) const {
  const outside_recordings allowed;
  check_launch("event", cudaEventSynchronize(static_cast<cudaEvent_t>(e)));
}

void cuda_memory::wait_in_stream(void* stream, encoders::device::event e) const {
  check_launch("event", cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(e), 0));
}

void cuda_memory::destroy_event(encoders::device::event e) const noexcept {
  const outside_recordings allowed;
  quietly(cudaEventDestroy(static_cast<cudaEvent_t>(e)));
}

}  // namespace stash::kernels
