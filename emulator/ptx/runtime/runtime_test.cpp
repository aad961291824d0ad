// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime that programs get on the PTX machine, as nvcc's code and the library call it: memory,
// recordings and what spoils them, launches, and a device that is lost.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ptx/runtime/runtime_tests.hpp"

namespace stash::ptx {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

TEST_F(runtime, there_is_one_device) {
  int count = 0, device = -1, value = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  cudaDeviceProp p;
  EXPECT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
  EXPECT_EQ(p.major * 10 + p.minor, 90);
  EXPECT_EQ(p.multiProcessorCount, 132);
  EXPECT_EQ(cudaGetDeviceProperties(&p, 1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, 132);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrEccEnabled, 0), cudaErrorNotSupported);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1), cudaErrorInvalidDevice);
}

TEST_F(runtime, memory_begins_with_a_pattern_and_blocks_do_not_touch) {
  void *one = nullptr, *other = nullptr;
  ASSERT_EQ(cudaMalloc(&one, 1000), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&other, 1), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one) % 256, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(other) % 256, 0U);
  EXPECT_GE(static_cast<char*>(other) - static_cast<char*>(one), 1256);
  std::vector<unsigned char> host(1000);
  EXPECT_EQ(cudaMemcpy(host.data(), one, 1000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_THAT(host, Each(0xc3));
  EXPECT_EQ(cudaFree(at(one, 1)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(one), cudaSuccess);
  EXPECT_EQ(cudaFree(one), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), one, 10, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&one, 0), cudaSuccess);
  EXPECT_EQ(one, nullptr);
}

TEST_F(runtime, a_host_that_follows_a_pointer_of_the_device_dies) {
  const auto follow = [](void* pointer) {
    // Not that of a sanitizer.
    std::signal(SIGSEGV, SIG_DFL);
    *static_cast<volatile char*>(pointer) = 1;
  };
  words_of_device memory(1000);
  EXPECT_EXIT(follow(memory.data()), ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(follow(at(memory.data(), 3999)), ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(runtime, copies_stay_inside_memory_and_go_where_they_say) {
  words_of_device memory(250);
  void* const device = memory.data();
  std::vector<char> host(1001), other(1001, 5);
  EXPECT_EQ(cudaMemcpy(host.data(), device, 1000, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host.data(), device, 1001, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, other.data(), 1001, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(at(device, -1), other.data(), 1, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, at(device, 996), 5, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, other.data(), 10, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, other.data(), 10, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), other.data(), 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), device, 10, cudaMemcpyHostToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), device, 10, static_cast<cudaMemcpyKind>(5)), cudaErrorInvalidValue);
  EXPECT_THAT(memory.now(), Each(0U));
  EXPECT_EQ(cudaMemcpy(host.data(), other.data(), 10, cudaMemcpyHostToHost), cudaSuccess);
  EXPECT_EQ(host[9], 5);
  EXPECT_EQ(host[10], 0);
  EXPECT_EQ(cudaMemcpy(device, other.data(), 4, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(at(device, 8), device, 4, cudaMemcpyDeviceToDevice, nullptr), cudaSuccess);
  const std::vector<word> words = memory.now();
  EXPECT_EQ(words[0], 0x05050505U);
  EXPECT_EQ(words[1], 0U);
  EXPECT_EQ(words[2], 0x05050505U);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault), cudaSuccess);
}

TEST_F(runtime, bytes_are_set_where_the_device_finds_them) {
  words_of_device memory(4);
  EXPECT_EQ(cudaMemsetAsync(at(memory.data(), 4), 0x1ab, 8, nullptr), cudaSuccess);
  EXPECT_EQ(memory.now(), (std::vector<word>{0, 0xabababab, 0xabababab, 0}));
  EXPECT_EQ(cudaMemsetAsync(memory.data(), 0, 17, nullptr), cudaErrorInvalidValue);
  char host[4];
  EXPECT_EQ(cudaMemsetAsync(host, 0, 4, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 0, nullptr), cudaSuccess);
}

TEST_F(runtime, pinned_memory_is_for_both) {
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 100, cudaHostAllocMapped), cudaSuccess);
  std::memset(pinned, 7, 100);
  words_of_device memory(25);
  for (const auto kind : {cudaMemcpyDefault, cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice})
    EXPECT_EQ(cudaMemcpy(memory.data(), pinned, 100, kind), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(0x07070707U));
  EXPECT_EQ(cudaMemcpy(memory.data(), pinned, 101, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(memory.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

TEST_F(runtime, memory_has_an_end) {
  std::size_t available = 0, total = 0;
  void *small = nullptr, *large = &available;
  ASSERT_EQ(cudaMalloc(&small, 1), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(available, total - 1);
  EXPECT_EQ(cudaMalloc(&large, total), cudaErrorMemoryAllocation);
  EXPECT_EQ(large, nullptr);
  EXPECT_EQ(cudaMalloc(&large, SIZE_MAX), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaHostAlloc(&large, SIZE_MAX, cudaHostAllocDefault), cudaErrorMemoryAllocation);
  // More than half, again and again: it does come back.
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(cudaMalloc(&large, total / 8 * 5), cudaSuccess);
    EXPECT_EQ(cudaFree(large), cudaSuccess);
  }
  EXPECT_EQ(cudaFree(small), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(available, total);
}

TEST_F(runtime, a_pool_knows_what_it_gave_out) {
  cudaMemPool_t pool;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 1), cudaErrorInvalidDevice);
  const auto value_of = [&](cudaMemPoolAttr attribute) {
    std::uint64_t value = 77;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
    return value;
  };
  std::uint64_t zero = 0, one_byte = 1;
  // Other tests may have had more.
  for (const auto most : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemHigh})
    ASSERT_EQ(cudaMemPoolSetAttribute(pool, most, &zero), cudaSuccess);
  void *one = nullptr, *other = nullptr;
  ASSERT_EQ(cudaMallocAsync(&one, 8, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&other, 24, nullptr), cudaSuccess);
  EXPECT_EQ(value_of(cudaMemPoolAttrUsedMemCurrent), 32U);
  EXPECT_EQ(cudaFreeAsync(other, nullptr), cudaSuccess);
  EXPECT_EQ(value_of(cudaMemPoolAttrUsedMemCurrent), 8U);
  EXPECT_EQ(value_of(cudaMemPoolAttrReservedMemCurrent), 8U);
  EXPECT_EQ(value_of(cudaMemPoolAttrUsedMemHigh), 32U);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &one_byte), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &zero), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero), cudaSuccess);
  EXPECT_EQ(value_of(cudaMemPoolAttrUsedMemHigh), 8U);
  EXPECT_EQ(value_of(cudaMemPoolAttrReservedMemHigh), 32U);
  EXPECT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  EXPECT_EQ(cudaMemPoolTrimTo(nullptr, 0), cudaErrorInvalidValue);
  // As CUDA has it, either way of giving back will do.
  EXPECT_EQ(cudaFree(one), cudaSuccess);
  EXPECT_EQ(value_of(cudaMemPoolAttrUsedMemCurrent), 0U);
  EXPECT_EQ(cudaFreeAsync(one, nullptr), cudaErrorInvalidValue);
}

TEST_F(runtime, errors_stay_with_their_thread_until_it_asks) {
  EXPECT_EQ(cudaFree(this), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  std::thread([] {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  }).join();
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorStreamCaptureUnjoined), "cudaErrorStreamCaptureUnjoined");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorLaunchFailure), "unspecified launch failure");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorUnknown), "unrecognized error code");
}

TEST_F(runtime, streams_and_events_are_known_while_they_live) {
  cudaStream_t stream;
  cudaEvent_t start, end, untimed;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 2), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventCreateWithFlags(&start, cudaEventInterprocess), cudaErrorInvalidValue);
  for (const cudaStream_t some : {stream, cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    EXPECT_EQ(cudaEventRecord(untimed, some), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(some, untimed, 0), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(some), cudaSuccess);
  }
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(start, nullptr), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(start), cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 1.99F);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t event : {start, end, untimed}) {
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaErrorInvalidResourceHandle);
  }
  EXPECT_EQ(cudaEventQuery(nullptr), cudaErrorInvalidResourceHandle);
  words_of_device memory(1);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemsetAsync(memory.data(), 0, 4, stream), cudaErrorInvalidResourceHandle);
}

/// Who waits hears of it.
cudaError_t result_of_what_loses_the_device() {
  return expects_eager_streams() ? cudaErrorLaunchFailure : cudaSuccess;
}

/// Recordings. `a` and `b` do not wait for the default stream, `blocking` does.
class recordings : public runtime {
 protected:
  recordings() : memory(16), host(16, 9) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&e), cudaSuccess);
    EXPECT_EQ(cudaEventCreate(&f), cudaSuccess);
  }
  /// Nothing may still be recorded here.
  ~recordings() override {
    for (const cudaGraphExec_t executable : executables)
      EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(f), cudaSuccess);
    for (const cudaStream_t stream : {a, b, blocking})
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

  static void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  /// How the recording ends. There is a graph if that is well.
  static cudaError_t end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    const cudaError_t result = cudaStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, result == cudaSuccess);
    if (graph != nullptr) cudaGraphDestroy(graph);
    return result;
  }
  /// Its graph is gone when it is launched.
  cudaGraphExec_t executable_of(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    executables.push_back(made);
    return made;
  }
  cudaError_t set(int value, cudaStream_t stream, std::size_t bytes = 64) {
    return cudaMemsetAsync(memory.data(), value, bytes, stream);
  }
  /// `to` continues after what `from` holds.
  static cudaError_t order(cudaStream_t from, cudaEvent_t event, cudaStream_t to) {
    EXPECT_EQ(cudaEventRecord(event, from), cudaSuccess);
    return cudaStreamWaitEvent(to, event, 0);
  }
  cudaError_t fetch(cudaStream_t stream) {
    return cudaMemcpyAsync(host.data(), memory.data(), 64, cudaMemcpyDeviceToHost, stream);
  }

  words_of_device memory;
  std::vector<word> host;
  std::vector<cudaGraphExec_t> executables;
  cudaStream_t a = nullptr, b = nullptr, blocking = nullptr;
  cudaEvent_t e = nullptr, f = nullptr;
};

TEST_F(recordings, work_of_streams_that_meet_happens_at_each_launch) {
  begin(a);
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(set(2, b, 32), cudaSuccess);
  EXPECT_EQ(order(b, f, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  const cudaGraphExec_t executable = executable_of(a);
  EXPECT_THAT(host, Each(9U));
  EXPECT_THAT(memory.now(), Each(0U));
  for (int n = 0; n < 2; ++n) {
    host.assign(16, 9);
    EXPECT_EQ(set(7, nullptr), cudaSuccess);
    EXPECT_EQ(order(nullptr, e, b), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(executable, b), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(host[0], 0x02020202U);
    EXPECT_EQ(host[7], 0x02020202U);
    EXPECT_EQ(host[8], 0x01010101U);
  }
  // Either stream is free again.
  EXPECT_EQ(set(3, a), cudaSuccess);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(set(4, b, 4), cudaSuccess);
  EXPECT_EQ(memory.now()[0], 0x04040404U);
  EXPECT_EQ(memory.now()[1], 0x03030303U);
}

TEST_F(recordings, graphs_are_recorded_into_others) {
  begin(a);
  EXPECT_EQ(set(5, a), cudaSuccess);
  const cudaGraphExec_t inner = executable_of(a);
  begin(a);
  EXPECT_EQ(cudaGraphLaunch(inner, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  const cudaGraphExec_t outer = executable_of(a);
  executables = {outer};
  EXPECT_EQ(cudaGraphExecDestroy(inner), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(inner), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(inner, a), cudaErrorInvalidValue);
  EXPECT_THAT(host, Each(9U));
  EXPECT_EQ(cudaGraphLaunch(outer, b), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(host, Each(0x05050505U));
}

TEST_F(recordings, graphs_do_not_touch_freed_memory) {
  void* gone = nullptr;
  ASSERT_EQ(cudaMalloc(&gone, 64), cudaSuccess);
  void* gone_of_host = nullptr;
  ASSERT_EQ(cudaHostAlloc(&gone_of_host, 64, cudaHostAllocDefault), cudaSuccess);
  begin(a);
  EXPECT_EQ(cudaMemcpyAsync(gone, memory.data(), 64, cudaMemcpyDeviceToDevice, a), cudaSuccess);
  const cudaGraphExec_t copies = executable_of(a);
  begin(a);
  EXPECT_EQ(cudaMemsetAsync(gone, 0, 64, a), cudaSuccess);
  const cudaGraphExec_t sets = executable_of(a);
  begin(a);
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), gone_of_host, 64, cudaMemcpyDefault, a), cudaSuccess);
  const cudaGraphExec_t reads = executable_of(a);
  for (const cudaGraphExec_t executable : {copies, sets, reads})
    EXPECT_EQ(cudaGraphLaunch(executable, a), cudaSuccess);
  EXPECT_EQ(cudaFree(gone), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(gone_of_host), cudaSuccess);
  const auto program = [&](cudaGraphExec_t executable) {
    EXPECT_EQ(cudaGraphLaunch(executable, a), result_of_what_loses_the_device());
    EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
    end_of_program();
  };
  EXPECT_EXIT(program(copies), ExitedWithCode(EXIT_SUCCESS),
              "PTX machine: a copy writes 64 bytes at 0x[0-9a-f]+, where no live memory is");
  EXPECT_EXIT(program(sets), ExitedWithCode(EXIT_SUCCESS), "PTX machine: cudaMemsetAsync writes 64 bytes");
  EXPECT_EXIT(program(reads), ExitedWithCode(EXIT_SUCCESS), "PTX machine: a copy reads 64 bytes");
}

TEST_F(recordings, begin_and_end_where_they_may) {
  for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy})
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(a), cudaErrorIllegalState);
  begin(a);
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  EXPECT_EQ(end(b), cudaErrorIllegalState);
  EXPECT_EQ(end(a), cudaSuccess);
  EXPECT_EQ(end(a), cudaErrorIllegalState);
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(nullptr, a), cudaErrorInvalidValue);
}

TEST_F(recordings, streams_that_join_come_back) {
  begin(a);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(set(2, b), cudaSuccess);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureUnjoined);
  // What comes after the event on which they join is not joined, either.
  begin(a);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(set(2, b), cudaSuccess);
  EXPECT_EQ(order(b, f, a), cudaSuccess);
  EXPECT_EQ(set(3, b), cudaSuccess);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureUnjoined);
  // By way of a third stream.
  begin(a);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(set(2, b), cudaSuccess);
  EXPECT_EQ(order(b, f, blocking), cudaSuccess);
  EXPECT_EQ(set(3, blocking), cudaSuccess);
  EXPECT_EQ(order(blocking, e, a), cudaSuccess);
  EXPECT_EQ(end(a), cudaSuccess);
  // Ended in the stream that joined.
  begin(a);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(end(b), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
}

TEST_F(recordings, do_not_mix_with_other_work) {
  EXPECT_EQ(cudaEventRecord(f, b), cudaSuccess);
  begin(a);
  EXPECT_EQ(cudaStreamWaitEvent(a, f, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(set(2, a), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventRecord(e, a), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
  EXPECT_THAT(memory.now(), Each(0U));

  begin(a);
  begin(b);
  EXPECT_EQ(order(a, e, b), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(b), cudaErrorStreamCaptureInvalidated);

  // An event of a recording that is over.
  begin(a);
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(end(a), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b, e, 0), cudaErrorCapturedEvent);
  begin(b);
  EXPECT_EQ(cudaStreamWaitEvent(b, e, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(b), cudaErrorStreamCaptureInvalidated);
}

TEST_F(recordings, the_default_stream_waits_for_blocking_ones) {
  begin(blocking);
  EXPECT_EQ(set(1, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(end(blocking), cudaErrorStreamCaptureInvalidated);
  EXPECT_THAT(memory.now(), Each(0U));
  begin(a);
  EXPECT_EQ(set(1, nullptr), cudaSuccess);
  EXPECT_EQ(end(a), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(0x01010101U));
  // One that is no member at first.
  begin(a);
  EXPECT_EQ(order(a, e, blocking), cudaSuccess);
  EXPECT_EQ(set(2, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
  begin(a);
  EXPECT_EQ(order(a, e, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
}

TEST_F(recordings, nobody_asks_what_is_recorded) {
  for (const auto query : {cudaEventQuery, cudaEventSynchronize}) {
    begin(a, cudaStreamCaptureModeRelaxed);
    EXPECT_EQ(cudaEventRecord(f, a), cudaSuccess);
    EXPECT_EQ(query(f), cudaErrorCapturedEvent);
    EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(query(f), cudaErrorCapturedEvent);
    float milliseconds = 0;
    EXPECT_EQ(cudaEventElapsedTime(&milliseconds, f, f), cudaErrorCapturedEvent);
    EXPECT_EQ(cudaEventRecord(f, b), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(query(f), cudaSuccess);
  }
  begin(a, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
  begin(a, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaStreamDestroy(a), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
}

TEST_F(recordings, calls_that_may_wait_spoil_them) {
  void* taken = nullptr;
  word one = 1;
  cudaEvent_t made = nullptr;
  cudaFuncAttributes attributes;
  const std::vector<std::function<cudaError_t()>> unsafe = {
      [&] { return cudaMalloc(&taken, 4); },
      [&] { return cudaHostAlloc(&taken, 4, 0); },
      [&] { return cudaMallocAsync(&taken, 4, b); },
      [&] { return cudaFree(memory.data()); },
      [&] { return cudaMemcpy(memory.data(), &one, 4, cudaMemcpyDefault); },
      [] { return cudaDeviceSynchronize(); },
      [&] { return cudaStreamSynchronize(b); },
      [&] { return cudaEventQuery(f); },
      [&] { return cudaEventCreate(&made); },
      [&] { return cudaStreamDestroy(b); },
      [&] { return cudaFuncGetAttributes(&attributes, this); },
  };
  for (const auto& called : unsafe) {
    const auto which = &called - unsafe.data();
    begin(a);
    EXPECT_EQ(called(), cudaErrorStreamCaptureUnsupported) << which;
    EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated) << which;
  }
  EXPECT_THAT(memory.now(), Each(0U));
  // Of the stream that is recorded even where all is allowed.
  begin(a, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaMallocAsync(&taken, 8, b), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(taken, b), cudaSuccess);
  EXPECT_EQ(cudaMallocAsync(&taken, 8, a), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
}

TEST_F(recordings, modes_say_whose_calls_spoil_them) {
  const auto taken_with = [](cudaStreamCaptureMode mode) {
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
    void* taken = nullptr;
    const cudaError_t result = cudaMalloc(&taken, 4);
    if (taken != nullptr) cudaFree(taken);
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    return result;
  };
  const auto elsewhere = [&](cudaStreamCaptureMode mode) {
    cudaError_t result = cudaErrorUnknown;
    std::thread([&] { result = taken_with(mode); }).join();
    return result;
  };
  constexpr auto global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                 relaxed = cudaStreamCaptureModeRelaxed;
  struct expectation {
    cudaStreamCaptureMode recorded, called;
    bool here, there;  ///< spoiled by a call of this thread, of another
  };
  for (const auto& [recorded, called, here, there] :
       std::vector<expectation>{{global, global, true, true},
                                {global, local, true, false},
                                {local, global, true, false},
                                {local, local, true, false},
                                {global, relaxed, false, false},
                                {local, relaxed, false, false},
                                {relaxed, local, false, false},
                                {relaxed, relaxed, false, false}}) {
    begin(a, recorded);
    EXPECT_EQ(taken_with(called), here ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    EXPECT_EQ(end(a), here ? cudaErrorStreamCaptureInvalidated : cudaSuccess) << recorded << " " << called;
    begin(a, recorded);
    EXPECT_EQ(elsewhere(called), there ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    EXPECT_EQ(end(a), there ? cudaErrorStreamCaptureInvalidated : cudaSuccess) << recorded << " " << called;
  }
}

TEST_F(recordings, end_in_the_thread_that_began_them) {
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(a, mode);
    std::thread([&] { EXPECT_EQ(end(a), cudaErrorStreamCaptureWrongThread); }).join();
    EXPECT_EQ(end(a), cudaErrorStreamCaptureInvalidated);
  }
  begin(a, cudaStreamCaptureModeRelaxed);
  std::thread([&] { EXPECT_EQ(end(a), cudaSuccess); }).join();
  EXPECT_EQ(end(a), cudaErrorIllegalState);
}

/// `add` adds to a word of the memory for each thread, `set` writes it.
class launches : public recordings {
 protected:
  launches()
      : module(made_fat_binary({{"not read: too new", 100},
                                {header_text +
                                 kernel_text("add",
                                             "ld.global.u32 %r2, [%rd1];\nadd.s32 %r2, %r2, %r1;\n"
                                             "st.global.u32 [%rd1], %r2;") +
                                 kernel_text("set", "st.global.u32 [%rd1], %r1;") +
                                 kernel_text("strange", "tanh.approx.f32 %f1, %f2;")}})) {
    module.add(add, "add");
    module.add(set_words, "set");
  }

  cudaError_t add_to_all(word value, cudaStream_t stream) {
    return launch(add, 2, 8, memory.data(), value, stream);
  }

  registered module;
  char add = 0, set_words = 0, other = 0;
};

TEST_F(launches, kernels_run_in_their_stream) {
  EXPECT_EQ(add_to_all(5, a), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(5U));
  EXPECT_EQ(launch(add, 1, 4, at(memory.data(), 16), 2), cudaSuccess);
  std::vector<word> expected(16, 5);
  std::fill_n(expected.begin() + 4, 4, 7);
  EXPECT_EQ(memory.now(), expected);
  EXPECT_EQ(launch(set_words, 4, 4, memory.data(), 1, blocking, 1024), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(1U));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(launches, what_nvcc_makes_of_angle_brackets) {
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(__cudaGetKernel(&kernel, &add), cudaSuccess);
  EXPECT_EQ(__cudaGetKernel(&kernel, &other), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(__cudaPushCallConfiguration(2, 8, 0, a), 0U);
  dim3 grid, block;
  std::size_t shared_bytes = 1;
  cudaStream_t stream = nullptr;
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaSuccess);
  EXPECT_EQ(stream, a);
  void* data = memory.data();
  word value = 3;
  void* arguments[] = {&data, &value};
  EXPECT_EQ(__cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(3U));
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaErrorMissingConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMissingConfiguration);
  EXPECT_EQ(__cudaLaunchKernel(nullptr, grid, block, arguments, 0, stream), cudaErrorInvalidResourceHandle);
}

TEST_F(launches, graphs_launch_with_the_arguments_of_their_recording) {
  begin(a);
  EXPECT_EQ(launch(set_words, 2, 8, memory.data(), 100, a), cudaSuccess);
  EXPECT_EQ(order(a, e, b), cudaSuccess);
  EXPECT_EQ(add_to_all(11, b), cudaSuccess);
  EXPECT_EQ(order(b, f, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  const cudaGraphExec_t made = executable_of(a);
  EXPECT_THAT(memory.now(), Each(0U));
  begin(a);
  EXPECT_EQ(add_to_all(1, a), cudaSuccess);
  const cudaGraphExec_t adds = executable_of(a);
  for (int n = 0; n < 2; ++n) {
    host.assign(16, 9);
    EXPECT_EQ(cudaGraphLaunch(made, a), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_THAT(host, Each(111U));
    EXPECT_EQ(cudaGraphLaunch(adds, b), cudaSuccess);
    EXPECT_EQ(cudaGraphLaunch(adds, b), cudaSuccess);
    EXPECT_THAT(memory.now(), Each(113U));
  }
}

TEST_F(launches, grids_and_blocks_have_limits) {
  void* const data = memory.data();
  const auto with = [&](dim3 grid, dim3 block, std::size_t shared_bytes = 0) {
    const cudaError_t result = launch(set_words, grid, block, data, 1, nullptr, shared_bytes);
    EXPECT_EQ(cudaGetLastError(), result);
    return result;
  };
  for (const dim3 none : {dim3(0, 1, 1), dim3(1, 0, 1), dim3(1, 1, 0)}) {
    EXPECT_EQ(with(none, 1), cudaErrorInvalidConfiguration);
    EXPECT_EQ(with(1, none), cudaErrorInvalidConfiguration);
  }
  for (const dim3 many : {dim3(0x80000000, 1, 1), dim3(1, 0x10000, 1), dim3(1, 1, 0x10000)})
    EXPECT_EQ(with(many, 1), cudaErrorInvalidConfiguration);
  for (const dim3 many :
       {dim3(1025, 1, 1), dim3(1, 1025, 1), dim3(1, 1, 65), dim3(32, 33, 1), dim3(1 << 16, 1 << 16, 1)})
    EXPECT_EQ(with(1, many), cudaErrorInvalidConfiguration);
  // The kernel was compiled for 64.
  EXPECT_EQ(with(1, 65), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(with(1, dim3(1, 1024, 1)), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(with(1, 1, (48 << 10) - 255), cudaErrorInvalidValue);
  EXPECT_EQ(with(1, 1, SIZE_MAX), cudaErrorInvalidValue);
  EXPECT_THAT(memory.now(), Each(0U));
  EXPECT_EQ(with(1, 1, (48 << 10) - 256), cudaSuccess);
  EXPECT_EQ(with(dim3(1, 3, 2), dim3(2, 4, 8)), cudaSuccess);
}

TEST_F(launches, attributes_of_a_launch_are_those_that_change_nothing_here) {
  void* data = memory.data();
  word value = 4;
  void* arguments[] = {&data, &value};
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};
  config.gridDim = 2;
  config.blockDim = 8;
  config.attrs = &attribute;
  config.numAttrs = 1;
  attribute.id = cudaLaunchAttributeCooperative;
  EXPECT_EQ(cudaLaunchKernelExC(&config, &add, arguments), cudaErrorNotSupported);
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  EXPECT_EQ(cudaLaunchKernelExC(&config, &add, arguments), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(4U));
}

TEST_F(launches, a_stream_that_is_gone_runs_nothing) {
  cudaStream_t gone;
  ASSERT_EQ(cudaStreamCreate(&gone), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(gone), cudaSuccess);
  EXPECT_EQ(add_to_all(1, gone), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(memory.now(), Each(0U));
}

TEST_F(launches, kernels_that_are_not_there_or_not_understood) {
  const auto launched = [&] { return launch(other, 1, 1, memory.data(), 1); };
  EXPECT_EQ(launched(), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  module.add(other, "missing");
  EXPECT_EQ(launched(), cudaErrorInvalidDeviceFunction);
  module.add(other, "strange");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launched(), cudaErrorInvalidPtx);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("PTX machine: strange: "), HasSubstr("does not know tanh.approx.f32")));
  {
    registered too_new(made_fat_binary({{"text", 100}, {"elf", 90, 2}}));
    too_new.add(other, "add");
    EXPECT_EQ(launched(), cudaErrorNoKernelImageForDevice);
  }
  EXPECT_EQ(launched(), cudaErrorInvalidDeviceFunction);
  {
    registered compressed(made_fat_binary({{"text", 90, 1, 0x2011}}));
    compressed.add(other, "add");
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(launched(), cudaErrorInvalidKernelImage);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("PTX machine: add: fat binary: expected PTX"), HasSubstr("LZ4")));
  }
  // None of that is the device's fault.
  EXPECT_EQ(add_to_all(1, a), cudaSuccess);
  EXPECT_THAT(memory.now(), Each(1U));
}

TEST_F(launches, attributes_of_functions_are_those_of_their_ptx) {
  cudaFuncAttributes found;
  ASSERT_EQ(cudaFuncGetAttributes(&found, &add), cudaSuccess);
  EXPECT_EQ(found.sharedSizeBytes, 256U);
  EXPECT_EQ(found.maxThreadsPerBlock, 64);
  EXPECT_EQ(found.ptxVersion, 90);
  EXPECT_EQ(found.binaryVersion, 90);
  EXPECT_EQ(found.maxDynamicSharedSizeBytes, (48 << 10) - 256);
  EXPECT_EQ(cudaFuncGetAttributes(&found, &other), cudaErrorInvalidDeviceFunction);
}

TEST_F(launches, threads_share_the_device) {
  words_of_device theirs(16);
  const auto run = [this](void* data, cudaStream_t stream) {
    for (int n = 0; n < 100; ++n) {
      EXPECT_EQ(launch(add, 2, 8, data, 1, stream), cudaSuccess);
      void* taken = nullptr;
      EXPECT_EQ(cudaMallocAsync(&taken, 100, stream), cudaSuccess);
      EXPECT_EQ(launch(set_words, 1, 25, taken, 1, stream), cudaSuccess);
      EXPECT_EQ(cudaFreeAsync(taken, stream), cudaSuccess);
    }
  };
  std::thread one(run, memory.data(), a), two(run, memory.data(), b), three(run, theirs.data(), nullptr);
  one.join();
  two.join();
  three.join();
  EXPECT_THAT(memory.now(), Each(200U));
  EXPECT_THAT(theirs.now(), Each(100U));
}

using lost_device = launches;

/// Until the program ends.
void expect_lost(const std::function<cudaError_t()>& launched) {
  const auto last_here_and_there = [] {
    EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaErrorLaunchFailure); }).join();
  };
  const std::string why = cudaGetErrorString(cudaErrorLaunchFailure);
  EXPECT_THAT(why, AllOf(HasSubstr("set, block (1,0,0), thread 0, line "),
                         HasSubstr(" of the PTX: writes 4 bytes of global memory")));
  void* taken = nullptr;
  std::size_t available = 0, total = 0;
  for (int n = 0; n < 3; ++n) {
    last_here_and_there();
    EXPECT_EQ(launched(), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaMalloc(&taken, 4), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaMemcpy(&available, &total, 4, cudaMemcpyHostToHost), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    // Other errors do not hide it.
    EXPECT_EQ(cudaEventDestroy(nullptr), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaGetErrorString(cudaErrorLaunchFailure), why);
  }
  EXPECT_STREQ(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure");
}

TEST_F(lost_device, stays_lost_and_says_why) {
  void* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 64 * sizeof(word)), cudaSuccess);
  const auto program = [&] {
    EXPECT_EQ(launch(set_words, 2, 64, data, 1, a), result_of_what_loses_the_device());
    EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
    expect_lost([&] { return add_to_all(1, b); });
    // What is freed, is.
    EXPECT_EQ(cudaFree(data), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
    end_of_program();
  };
  EXPECT_EXIT(program(), ExitedWithCode(EXIT_SUCCESS),
              "PTX machine: set, block \\(1,0,0\\), thread 0, line [0-9]+ of the PTX: writes 4 bytes");
  EXPECT_EQ(launch(set_words, 1, 64, data, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(lost_device, is_lost_by_the_launch_of_a_graph_and_not_by_its_recording) {
  const auto program = [&] {
    begin(a);
    EXPECT_EQ(add_to_all(3, a), cudaSuccess);
    EXPECT_EQ(launch(set_words, 2, 16, memory.data(), 1, a), cudaSuccess);
    EXPECT_EQ(fetch(a), cudaSuccess);
    const cudaGraphExec_t executable = executable_of(a);
    EXPECT_THAT(memory.now(), Each(0U));
    EXPECT_EQ(cudaGraphLaunch(executable, a), result_of_what_loses_the_device());
    EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
    // Nothing of the graph happens any more.
    EXPECT_THAT(host, Each(9U));
    expect_lost([&] { return cudaGraphLaunch(executable, b); });
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    end_of_program();
  };
  EXPECT_EXIT(program(), ExitedWithCode(EXIT_SUCCESS),
              "PTX machine: set, block \\(1,0,0\\), thread 0, line ");
}

TEST_F(launches, are_counted_where_the_environment_asks_for_it) {
  // From the start: others have launched here.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto program = [&](const char* file) {
    setenv("STASH_PTX_COUNTS", file, 1);
    EXPECT_EQ(launch(set_words, 1, 16, memory.data(), 1), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    // Nobody waits for this one.
    EXPECT_EQ(launch(set_words, 2, 8, memory.data(), 1), cudaSuccess);
    std::exit(EXIT_SUCCESS);
  };
  EXPECT_EXIT(program("/dev/stderr"), ExitedWithCode(EXIT_SUCCESS),
              AllOf(HasSubstr("\"kernel\":\"set\""), HasSubstr("\"launches\":2"), HasSubstr("\"threads\":32"),
                    HasSubstr("\"global_loads\":0"), HasSubstr("\"global_stores\":3"),
                    HasSubstr("\"store_sectors\":4")));
  EXPECT_EXIT(program("/nowhere/at/all"), ExitedWithCode(EXIT_SUCCESS),
              "STASH_PTX_COUNTS: cannot write /nowhere/at/all");
}

TEST_F(launches, numbers_of_the_environment_are_numbers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto program = [&](const char* variable, const char* value) {
    setenv(variable, value, 1);
    int count = 0;
    EXPECT_EQ(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
    EXPECT_EQ(count, 7);
    EXPECT_EQ(add_to_all(1, a), cudaSuccess);
    EXPECT_THAT(memory.now(), Each(1U));
    end_of_program();
  };
  setenv("STASH_PTX_MULTIPROCESSORS", "7", 1);
  EXPECT_EXIT(program("STASH_PTX_TURN", "3"), ExitedWithCode(EXIT_SUCCESS), "");
  for (const char* wrong : {"", "0", "-1", "1x", " 1", "2147483648", "99999999999999999999"}) {
    for (const char* variable : {"STASH_PTX_MULTIPROCESSORS", "STASH_PTX_BLOCKS"})
      EXPECT_EXIT(program(variable, wrong), ExitedWithCode(EXIT_FAILURE),
                  std::string(variable) + ": expected a number from 1 to 2147483647, got \"" + wrong + "\"");
  }
  unsetenv("STASH_PTX_MULTIPROCESSORS");
}

TEST(environment, names_when_streams_work) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto program = [] {
    setenv("STASH_PTX_STREAMS", "early", 1);
    cudaEvent_t event;
    EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
    cudaEventRecord(event, nullptr);
  };
  EXPECT_EXIT(program(), ExitedWithCode(EXIT_FAILURE),
              "STASH_PTX_STREAMS: expected lazy or eager, got \"early\"");
}

}  // namespace
}  // namespace stash::ptx
