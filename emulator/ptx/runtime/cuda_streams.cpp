// SPDX-License-Identifier: Apache-2.0
// Streams and events of the CUDA runtime. Who waits does the work that he waits for.

#include <chrono>
#include <memory>
#include <optional>

#include "ptx/runtime/captures.hpp"
#include "ptx/runtime/cuda_runtime.hpp"

/// One recording of an event. Who waits for it keeps it when the event is recorded anew or destroyed.
struct recorded_event {
  using clock = std::chrono::steady_clock;
  stash::ptx::stream_position at;
  clock::time_point time;
};
struct CUevent_st {
  bool is_timed;
  std::shared_ptr<recorded_event> recorded;
  std::optional<stash::ptx::captured_position> captured;  ///< it was last recorded there
};

namespace stash::ptx {
namespace {

handles<CUstream_st>& streams() {
  static auto& all = *new handles<CUstream_st>;
  return all;
}

handles<CUevent_st>& events() {
  static auto& all = *new handles<CUevent_st>;
  return all;
}

cudaStream_t default_stream() {
  static auto& made =
      *new CUstream_st{stream_kind::legacy_default, make_queue(stream_kind::legacy_default), nullptr};
  return &made;
}

/// Runs body(stream) if there is such a stream.
template <class Body>
cudaError_t with_stream(cudaStream_t handle, const Body& body) {
  const cudaStream_t stream = stream_of(handle);
  return stream == nullptr ? cudaErrorInvalidResourceHandle : body(*stream);
}

/// The host asks about an event, which it cannot where that was recorded.
cudaError_t ask(cudaEvent_t handle) {
  const cudaEvent_t e = events().find(handle);
  if (e == nullptr) return cudaErrorInvalidResourceHandle;
  if (!e->captured) return cudaSuccess;
  e->captured->in->spoiled = true;
  return cudaErrorCapturedEvent;
}

/// Whether an event has been reached. Nothing else may be done for who asks again and again, so each question
/// does a part of what comes before.
cudaError_t query(const CUevent_st& e) {
  if (e.recorded == nullptr || is_reached(e.recorded->at)) return cudaSuccess;
  const cudaError_t result = do_one({e.recorded->at});
  return result == cudaSuccess ? cudaErrorNotReady : result;
}

}  // namespace

cudaStream_t stream_of(cudaStream_t handle) {
  for (const cudaStream_t name : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread, default_stream()})
    if (handle == name) return default_stream();
  return streams().find(handle);
}

bool is_default(cudaStream_t stream) {
  return stream == default_stream();
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return unsafe_call([&] {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUstream_st>();
    made->kind = flags == cudaStreamNonBlocking ? stream_kind::non_blocking : stream_kind::blocking;
    made->to_do = make_queue(made->kind);
    *stream = streams().add(std::move(made));
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
/// Does not wait for the work, which is done all the same.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return releasing_call([&] {
    const cudaStream_t stream = streams().find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t result = refused_if_captured(stream);
    if (result == cudaSuccess) streams().erase(stream);
    return result;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return unsafe_call([&] {
    return with_stream(handle, [](CUstream_st& stream) {
      const cudaError_t result = refused_if_captured(&stream);
      // Of the default stream, too, only its own work: CUDA says that others wait for actions that are taken
      // in it, and names launches and waits for events.
      return result == cudaSuccess ? finish({end_of(stream.to_do)}) : result;
    });
  });
}
cudaError_t cudaDeviceSynchronize() {
  return unsafe_call(finish_everything);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return unsafe_call([&] {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (event == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
    auto made = std::make_unique<CUevent_st>();
    made->is_timed = (flags & cudaEventDisableTiming) == 0;
    *event = events().add(std::move(made));
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return releasing_call([&] { return events().erase(event) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return call([&] {
    const cudaEvent_t e = events().find(handle);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    return with_stream(stream_handle, [&](CUstream_st& stream) {
      if (stream.captured != nullptr) {
        if (stream.captured->spoiled) return cudaErrorStreamCaptureInvalidated;
        e->captured = position_in(&stream);
        return cudaSuccess;
      }
      const auto made = std::make_shared<recorded_event>();
      const cudaError_t result = enqueue(&stream, [made] {
        made->time = recorded_event::clock::now();
        return cudaSuccess;
      });
      if (result != cudaSuccess) return result;
      made->at = end_of(stream.to_do);
      e->recorded = made;
      e->captured.reset();
      return cudaSuccess;
    });
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned /*flags*/) {
  return call([&] {
    const cudaEvent_t e = events().find(handle);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    return with_stream(stream_handle, [&](CUstream_st& stream) {
      if (e->captured) return continue_after(&stream, *e->captured);
      const cudaError_t result = continue_after_others(&stream);
      if (result != cudaSuccess || e->recorded == nullptr) return result;
      return enqueue(&stream, nullptr, {e->recorded->at});
    });
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return unsafe_call([&] {
    const cudaError_t result = ask(event);
    return result == cudaSuccess ? query(*event) : result;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return unsafe_call([&] {
    const cudaError_t result = ask(event);
    return result == cudaSuccess && event->recorded != nullptr ? finish({event->recorded->at}) : result;
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    for (const cudaEvent_t event : {start, end}) {
      const cudaError_t result = ask(event);
      if (result != cudaSuccess) return result;
      if (!event->is_timed || event->recorded == nullptr) return cudaErrorInvalidResourceHandle;
    }
    for (const cudaEvent_t event : {start, end})
      if (const cudaError_t result = query(*event); result != cudaSuccess) return result;
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->recorded->time - start->recorded->time).count();
    return cudaSuccess;
  });
}

}  // extern "C"

}  // namespace stash::ptx
