// SPDX-License-Identifier: Apache-2.0
// Streams of the PTX machine's CUDA runtime do their work when somebody has to wait for it, as late as CUDA's
// rules allow: what the rules promise has happened, and what they do not promise has not.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "ptx/runtime/runtime_tests.hpp"

namespace stash::ptx {
namespace {

using ::testing::Each;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

constexpr std::size_t count = 16, bytes = count * sizeof(word);

/// A word of four such bytes.
constexpr word of_bytes(word byte) {
  return byte * 0x01010101U;
}

class pinned_words {
 public:
  explicit pinned_words(int byte) {
    EXPECT_EQ(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), cudaSuccess);
    set(byte);
  }
  pinned_words(const pinned_words&) = delete;
  pinned_words& operator=(const pinned_words&) = delete;
  ~pinned_words() { cudaFreeHost(data_); }

  void set(int byte) { std::memset(data_, byte, bytes); }
  void* data() const { return data_; }
  std::vector<word> now() const {
    const auto* const words = static_cast<const word*>(data_);
    return {words, words + count};
  }

 private:
  void* data_ = nullptr;
};

/// `a` and `b` do not wait for the default stream, `blocking` does.
class stream_order : public runtime {
 protected:
  stream_order()
      : memory(count),
        other(count),
        pinned(9),
        module(made_fat_binary({{header_text + kernel_text("set", "st.global.u32 [%rd1], %r1;")}})) {
    module.add(set_words, "set");
    for (cudaStream_t* const stream : {&a, &b, &looking})
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    for (cudaEvent_t* const event : {&e, &f})
      EXPECT_EQ(cudaEventCreate(event), cudaSuccess);
  }
  ~stream_order() override {
    for (const cudaStream_t stream : {a, b, looking, blocking})
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    for (const cudaEvent_t event : {e, f})
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
  void SetUp() override {
    if (expects_eager_streams()) GTEST_SKIP() << "streams are eager";
  }

  static cudaError_t set_in(void* data, int byte, cudaStream_t stream) {
    return cudaMemsetAsync(data, byte, bytes, stream);
  }
  cudaError_t set(int byte, cudaStream_t stream) { return set_in(memory.data(), byte, stream); }
  cudaError_t fetch(cudaStream_t stream) {
    return cudaMemcpyAsync(pinned.data(), memory.data(), bytes, cudaMemcpyDefault, stream);
  }
  static void order(cudaStream_t from, cudaEvent_t event, cudaStream_t to) {
    EXPECT_EQ(cudaEventRecord(event, from), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(to, event, 0), cudaSuccess);
  }
  static cudaGraphExec_t executable_of(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return made;
  }
  /// As it is now, in a stream that waits for no other.
  std::vector<word> look(const void* data) const {
    std::vector<word> words(count);
    EXPECT_EQ(cudaMemcpyAsync(words.data(), data, bytes, cudaMemcpyDeviceToHost, looking), cudaSuccess);
    return words;
  }
  std::vector<word> look() const { return look(memory.data()); }

  words_of_device memory, other;
  pinned_words pinned;
  registered module;
  char set_words = 0;
  cudaStream_t a = nullptr, b = nullptr, looking = nullptr, blocking = nullptr;
  cudaEvent_t e = nullptr, f = nullptr;
};

TEST_F(stream_order, a_host_that_does_not_wait_finds_old_bytes) {
  EXPECT_EQ(launch(set_words, 2, 8, memory.data(), 5, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(9)));
  EXPECT_THAT(look(), Each(0U));
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(9)));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(5U));
}

TEST_F(stream_order, work_of_one_stream_keeps_its_order) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  EXPECT_EQ(set(2, a), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(other.data(), memory.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_EQ(set(3, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(1)));
  EXPECT_THAT(look(other.data()), Each(of_bytes(2)));
  EXPECT_THAT(look(), Each(of_bytes(3)));
}

TEST_F(stream_order, pinned_sources_are_read_late_and_pageable_ones_at_once) {
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), pinned.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  std::vector<word> pageable(count, 7);
  EXPECT_EQ(cudaMemcpyAsync(other.data(), pageable.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  pinned.set(8);
  pageable.assign(count, 6);
  EXPECT_THAT(look(other.data()), Each(0U));
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(8)));
  EXPECT_THAT(look(other.data()), Each(7U));
}

TEST_F(stream_order, copies_to_pageable_memory_and_within_the_host_have_happened) {
  std::vector<word> pageable(count);
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pageable.data(), memory.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_THAT(pageable, Each(of_bytes(1)));
  EXPECT_EQ(set(2, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  const pinned_words copied(0);
  EXPECT_EQ(cudaMemcpyAsync(copied.data(), pinned.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_THAT(copied.now(), Each(of_bytes(2)));
  EXPECT_EQ(cudaMemcpyAsync(copied.data(), pageable.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_THAT(copied.now(), Each(of_bytes(1)));
}

TEST_F(stream_order, copies_without_async_wait_where_cuda_says_so) {
  // To the host, and from pinned memory.
  EXPECT_EQ(set(1, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(pinned.data(), memory.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(1)));
  EXPECT_EQ(cudaMemcpy(other.data(), pinned.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(look(other.data()), Each(of_bytes(1)));
  // Not on the device.
  EXPECT_EQ(set(2, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(other.data(), memory.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(1)));
  // From pageable memory: after the stream's work, but the bytes are on their way.
  const std::vector<word> pageable(count, 3);
  EXPECT_EQ(cudaMemcpy(memory.data(), pageable.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
  EXPECT_THAT(look(other.data()), Each(of_bytes(2)));
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_THAT(look(), Each(3U));
}

TEST_F(stream_order, streams_that_nobody_puts_in_order_run_last_come_first) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(fetch(b), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(0U));
  // Whatever the streams are.
  EXPECT_EQ(set(2, b), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(1)));
}

TEST_F(stream_order, events_put_streams_in_order) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(set_in(other.data(), 2, a), cudaSuccess);
  EXPECT_EQ(fetch(b), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(1)));
  // Only up to the event.
  EXPECT_THAT(look(other.data()), Each(0U));
  // Back and forth.
  EXPECT_EQ(set(3, b), cudaSuccess);
  order(b, f, a);
  EXPECT_EQ(fetch(a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(set(4, b), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(3)));
  EXPECT_THAT(look(), Each(of_bytes(4)));
}

TEST_F(stream_order, who_waits_for_an_event_waits_for_what_came_before) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(set(2, a), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(1)));
  // In a stream as well.
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(set(3, a), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
}

TEST_F(stream_order, events_recorded_anew_are_what_they_were_for_earlier_waits) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(set(2, a), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(1)));
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
  // And when they are gone.
  EXPECT_EQ(set(3, a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(set(4, a), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
  EXPECT_EQ(cudaEventCreate(&e), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(3)));
}

TEST_F(stream_order, events_that_were_never_recorded_wait_for_nothing) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
  // Nor do those that are recorded after the wait.
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(f), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(f), cudaSuccess);
  EXPECT_THAT(look(), Each(0U));
}

TEST_F(stream_order, who_asks_often_enough_is_told_that_it_is_done) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(set(2, a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(set(3, a), cudaSuccess);
  EXPECT_EQ(set_in(other.data(), 4, b), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(f, b), cudaSuccess);
  const auto asked = [&] {
    EXPECT_EQ(cudaEventQuery(f), cudaErrorNotReady);
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  };
  asked();
  EXPECT_THAT(look(), Each(of_bytes(1)));
  asked();
  EXPECT_THAT(look(), Each(of_bytes(2)));
  int more = 0;
  for (; more < 10 && cudaEventQuery(f) != cudaSuccess; ++more) {
  }
  EXPECT_GT(more, 0);
  EXPECT_LT(more, 10);
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
  EXPECT_THAT(look(other.data()), Each(of_bytes(4)));
}

TEST_F(stream_order, times_are_those_of_the_work) {
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(launch(set_words, 2, 8, memory.data(), 1, a), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(f, a), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, e, f), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(f), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, e, f), cudaSuccess);
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, f, e), cudaSuccess);
  EXPECT_LT(milliseconds, 0);
}

TEST_F(stream_order, the_default_stream_and_blocking_ones_wait_for_each_other) {
  EXPECT_EQ(set(1, blocking), cudaSuccess);
  EXPECT_EQ(fetch(nullptr), cudaSuccess);
  EXPECT_EQ(set(2, blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(1)));
  EXPECT_THAT(look(), Each(of_bytes(2)));
  // Also in calls that name no stream, and where nothing but an event comes in between.
  EXPECT_EQ(set(3, blocking), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(pinned.data(), memory.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(3)));
  EXPECT_EQ(set(4, blocking), cudaSuccess);
  order(nullptr, e, a);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(4)));
  // Not where no work comes.
  EXPECT_EQ(set(5, blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(4)));
}

TEST_F(stream_order, other_streams_do_not_wait_for_the_default_stream) {
  EXPECT_EQ(set(1, nullptr), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(0U));
  EXPECT_EQ(set_in(other.data(), 2, a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(1)));
  EXPECT_THAT(look(other.data()), Each(0U));
}

TEST_F(stream_order, graphs_read_pageable_memory_when_they_run) {
  std::vector<word> pageable(count, 1), copied(count);
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(memory.data(), pageable.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(copied.data(), memory.data(), bytes, cudaMemcpyDefault, a), cudaSuccess);
  const cudaGraphExec_t executable = executable_of(a);
  EXPECT_EQ(cudaGraphLaunch(executable, a), cudaSuccess);
  EXPECT_THAT(copied, Each(0U));
  pageable.assign(count, 2);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(copied, Each(2U));
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

/// Of branches that nothing puts in order the one goes first that was recorded last.
TEST_F(stream_order, branches_of_a_graph_have_the_order_of_its_edges_alone) {
  for (const bool is_ordered : {false, true}) {
    SCOPED_TRACE(is_ordered);
    EXPECT_EQ(set(3, looking), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(looking), cudaSuccess);
    EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaSuccess);
    order(a, e, b);
    EXPECT_EQ(set(1, a), cudaSuccess);
    EXPECT_EQ(set_in(other.data(), 1, a), cudaSuccess);
    if (is_ordered) order(a, e, b);
    EXPECT_EQ(fetch(b), cudaSuccess);
    EXPECT_EQ(set_in(other.data(), 2, b), cudaSuccess);
    order(b, f, a);
    EXPECT_EQ(set(4, a), cudaSuccess);
    const cudaGraphExec_t graph = executable_of(a);
    EXPECT_EQ(cudaGraphLaunch(graph, a), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
    EXPECT_THAT(pinned.now(), Each(of_bytes(is_ordered ? 1 : 3)));
    EXPECT_THAT(look(other.data()), Each(of_bytes(is_ordered ? 2 : 1)));
    EXPECT_THAT(look(), Each(of_bytes(4)));
  }
}

TEST_F(stream_order, graphs_are_work_of_their_stream) {
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(launch(set_words, 2, 8, memory.data(), 3, a), cudaSuccess);
  EXPECT_EQ(fetch(a), cudaSuccess);
  const cudaGraphExec_t executable = executable_of(a);
  EXPECT_EQ(set(1, b), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, b), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(9)));
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(3U));
}

TEST_F(stream_order, work_of_streams_that_are_gone_is_done) {
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
  EXPECT_EQ(set(2, a), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(look(), Each(0U));
  EXPECT_EQ(cudaEventSynchronize(e), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(1)));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
  // The default stream waits for it, too.
  EXPECT_EQ(set(3, blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(pinned.data(), memory.data(), bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(3)));
}

TEST_F(stream_order, memory_is_not_freed_before_the_device_is_done) {
  void* taken = nullptr;
  ASSERT_EQ(cudaMalloc(&taken, 8), cudaSuccess);
  EXPECT_EQ(set(1, a), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_THAT(look(), Each(0U));
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(1)));
  ASSERT_EQ(cudaHostAlloc(&taken, 8, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(set(2, a), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(taken), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
  // Memory of the pool is, where no stream is named.
  ASSERT_EQ(cudaMallocAsync(&taken, 8, a), cudaSuccess);
  EXPECT_EQ(set(3, a), cudaSuccess);
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
  EXPECT_THAT(look(), Each(of_bytes(2)));
}

TEST_F(stream_order, memory_is_freed_in_the_order_of_a_stream) {
  void* taken = nullptr;
  ASSERT_EQ(cudaMallocAsync(&taken, bytes, a), cudaSuccess);
  EXPECT_EQ(set_in(taken, 1, a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(cudaMemcpyAsync(pinned.data(), taken, bytes, cudaMemcpyDefault, b), cudaSuccess);
  order(b, f, a);
  EXPECT_EQ(cudaFreeAsync(taken, a), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(taken, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(taken), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(pinned.now(), Each(of_bytes(1)));
  EXPECT_EQ(cudaFree(taken), cudaErrorInvalidValue);
}

TEST_F(stream_order, memory_that_another_stream_gave_back_is_gone) {
  const auto program = [&] {
    void* taken = nullptr;
    EXPECT_EQ(cudaMallocAsync(&taken, bytes, a), cudaSuccess);
    order(a, e, b);
    EXPECT_EQ(cudaMemcpyAsync(pinned.data(), taken, bytes, cudaMemcpyDefault, b), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(taken, a), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorLaunchFailure);
    EXPECT_THAT(cudaGetErrorString(cudaErrorLaunchFailure), HasSubstr("a copy reads 64 bytes at 0x"));
    end_of_program();
  };
  EXPECT_EXIT(program(), ExitedWithCode(EXIT_SUCCESS), "PTX machine: a copy reads 64 bytes at 0x");
}

TEST_F(stream_order, memory_is_there_when_its_stream_comes_to_it) {
  void* taken = nullptr;
  ASSERT_EQ(cudaMallocAsync(&taken, bytes, a), cudaSuccess);
  EXPECT_EQ(set_in(taken, 1, b), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_THAT(look(taken), Each(of_bytes(0xc3)));
  EXPECT_EQ(cudaFreeAsync(taken, a), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&taken, bytes, a), cudaSuccess);
  order(a, e, b);
  EXPECT_EQ(set_in(taken, 1, b), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(look(taken), Each(of_bytes(1)));
  EXPECT_EQ(cudaFreeAsync(taken, a), cudaSuccess);
}

TEST_F(stream_order, memory_on_its_way_back_is_there_to_be_had) {
  std::size_t available = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  void* taken = nullptr;
  for (int n = 0; n < 2; ++n) {
    ASSERT_EQ(cudaMallocAsync(&taken, total / 8 * 5, a), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(taken, a), cudaSuccess);
  }
  ASSERT_EQ(cudaMalloc(&taken, total / 8 * 5), cudaSuccess);
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
}

TEST_F(stream_order, kernels_run_before_their_module_goes) {
  char more_words = 0;
  {
    registered leaving(made_fat_binary({{header_text + kernel_text("more", "st.global.u32 [%rd1], %r1;")}}));
    leaving.add(more_words, "more");
    EXPECT_EQ(launch(more_words, 2, 8, memory.data(), 4, a), cudaSuccess);
    EXPECT_THAT(look(), Each(0U));
  }
  EXPECT_THAT(look(), Each(4U));
}

TEST_F(stream_order, who_waits_hears_what_a_kernel_did) {
  const auto lost_by = [&](const std::function<cudaError_t()>& wait) {
    const auto program = [&] {
      EXPECT_EQ(launch(set_words, 3, 8, memory.data(), 1, a), cudaSuccess);
      EXPECT_EQ(fetch(a), cudaSuccess);
      EXPECT_EQ(cudaEventRecord(e, a), cudaSuccess);
      EXPECT_EQ(set_in(other.data(), 1, b), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      EXPECT_EQ(wait(), cudaErrorLaunchFailure);
      EXPECT_THAT(cudaGetErrorString(cudaErrorLaunchFailure), HasSubstr("set, block (2,0,0), thread 0"));
      for (int n = 0; n < 2; ++n) {
        EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
        EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorLaunchFailure);
        EXPECT_EQ(set(1, b), cudaErrorLaunchFailure);
      }
      // What is freed, is; else nothing happens any more.
      EXPECT_EQ(cudaFree(memory.data()), cudaSuccess);
      EXPECT_THAT(pinned.now(), Each(of_bytes(9)));
      end_of_program();
    };
    EXPECT_EXIT(program(), ExitedWithCode(EXIT_SUCCESS), "PTX machine: set, block \\(2,0,0\\), thread 0");
  };
  void* taken = nullptr;
  ASSERT_EQ(cudaMalloc(&taken, 8), cudaSuccess);
  std::vector<word> pageable(count);
  lost_by([&] { return cudaStreamSynchronize(a); });
  lost_by([&] { return cudaEventSynchronize(e); });
  lost_by([&] { return cudaEventQuery(e); });
  lost_by([] { return cudaDeviceSynchronize(); });
  lost_by([&] { return cudaFree(taken); });
  lost_by([&] {
    EXPECT_EQ(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
    return cudaStreamSynchronize(b);
  });
  lost_by([&] { return cudaMemcpyAsync(pageable.data(), other.data(), bytes, cudaMemcpyDeviceToHost, a); });
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
}

TEST_F(stream_order, programs_that_end_without_waiting_run_their_kernels) {
  const auto program = [&] {
    EXPECT_EQ(launch(set_words, 3, 8, memory.data(), 1, a), cudaSuccess);
    std::exit(::testing::Test::HasFailure() ? EXIT_FAILURE : EXIT_SUCCESS);
  };
  EXPECT_EXIT(program(), ExitedWithCode(EXIT_SUCCESS), "PTX machine: set, block \\(2,0,0\\), thread 0");
}

}  // namespace
}  // namespace stash::ptx
