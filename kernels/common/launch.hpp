// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The only way from the host into a kernel, for both compilers: launches are asynchronous, in the stream of
/// the context, and never wait.

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "common/device_failure.hpp"
#include "common/simt.hpp"
#include "stash/error.hpp"
#include "stash/execution.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include <tuple>
#endif
#if defined(__CUDACC__) && defined(STASH_NVTX)
#include <nvtx3/nvtx3.hpp>
#endif

namespace stash::kernels {

/// The most blocks of one launch.
inline constexpr std::uint64_t max_blocks = 0x7fffffff;

#if defined(__CUDACC__)

inline device_capability capability_of_device() {
  int device = 0;
  device_capability found;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&found.major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&found.minor, cudaDevAttrComputeCapabilityMinor, device);
  }
  return found;
}

/// Throws error(device_failure) with what the driver says, which nobody else need hear of then.
inline void check_launch(const char* function, cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();
  const bool no_code = result == cudaErrorNoKernelImageForDevice ||
                       result == cudaErrorInvalidDeviceFunction || result == cudaErrorUnsupportedPtxVersion;
  throw error(errc::device_failure,
              device_failure_text(function, cudaGetErrorName(result), cudaGetErrorString(result), no_code,
                                  architecture_names({__CUDA_ARCH_LIST__}),
                                  no_code ? capability_of_device() : device_capability{}));
}

#if defined(STASH_NVTX)
/// Shows the calls that launch kernels on the timeline of a profiler, by their names.
struct launch_domain {
  static constexpr const char* name = "stash";
};
using launch_range = nvtx3::scoped_range_in<launch_domain>;
#else
struct launch_range {
  explicit launch_range(const char* /*function*/) {}
};
#endif

/// Whether kernels may begin on the device of this thread while those in front of them in the stream are
/// ending, so that their blocks are resident by then: between calls for small maps that saves most of the
/// time. Only kernels compiled for sm_90 or newer wait by themselves (begin_kernel()). STASH_EARLY_LAUNCH=0
/// in the environment, as it is at the first launch, turns it off.
bool may_begin_early() noexcept;

/// Of the device of this thread.
std::uint64_t multiprocessors() noexcept;

/// Runs kernel(args...) in `blocks` blocks; does nothing for none.
template <class... Parameters, class... Arguments>
void launch(const char* function, const execution_context& context, std::uint64_t blocks, unsigned threads,
            void (*kernel)(Parameters...), const Arguments&... args) {
  if (blocks == 0) return;
  const launch_range range(function);
  // Not <<<>>>, whose result is the last error of the thread: that may be one of the caller's own.
  const auto start = [&](const Parameters&... values) {
    void* pointers[] = {const_cast<void*>(static_cast<const void*>(&values))...};
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(threads);
    config.stream = static_cast<cudaStream_t>(context.stream);
    config.attrs = &early;
    config.numAttrs = may_begin_early() ? 1 : 0;
    return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
  };
  check_launch(function, start(args...));
}

/// Zeroes device memory, in the order of the stream.
inline void clear(const char* function, const execution_context& context, void* data, std::size_t bytes) {
  check_launch(function, cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(context.stream)));
}

#else

// Launches happen in the call, unless the stream is recorded.

inline std::uint64_t multiprocessors() noexcept {
  return simt::multiprocessors();
}

template <class... Parameters, class... Arguments>
void launch(const char* /*function*/, const execution_context& context, std::uint64_t blocks,
            unsigned threads, void (*kernel)(Parameters...), const Arguments&... args) {
  if (blocks == 0) return;
  simt::enqueue(context.stream, [=, values = std::tuple<Parameters...>(args...)] {
    // By reference: a copy would be allocated.
    const auto run = [&] { std::apply(kernel, values); };
    simt::launch({static_cast<std::uint32_t>(blocks)}, {threads}, 0, std::cref(run));
  });
}

inline void clear(const char* /*function*/, const execution_context& context, void* data, std::size_t bytes) {
  simt::enqueue(context.stream, [=] { simt::launch({1}, {1}, 0, [&] { std::memset(data, 0, bytes); }); });
}

#endif

}  // namespace stash::kernels
