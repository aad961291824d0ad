// Streams and events of the CUDA runtime. Work is done when it is enqueued, so nobody ever waits.

#include <chrono>
#include <memory>
#include <optional>

#include "ptx/captures.hpp"
#include "ptx/cuda_runtime.hpp"

struct CUevent_st {
  using clock = std::chrono::steady_clock;
  bool is_timed;
  std::optional<clock::time_point> recorded;
  std::optional<stash::ptx::captured_place> captured;  ///< it was last recorded there
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
  static auto& made = *new CUstream_st{};
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
    made->waits_for_default = flags != cudaStreamNonBlocking;
    *stream = streams().add(std::move(made));
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
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
  return unsafe_call(
      [&] { return with_stream(handle, [](CUstream_st& stream) { return refused_if_captured(&stream); }); });
}
cudaError_t cudaDeviceSynchronize() {
  return unsafe_call([] { return cudaSuccess; });
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
        e->captured = place_in(&stream);
        return cudaSuccess;
      }
      return enqueue(&stream, [e] {
        e->captured.reset();
        e->recorded = CUevent_st::clock::now();
        return cudaSuccess;
      });
    });
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned /*flags*/) {
  return call([&] {
    const cudaEvent_t e = events().find(handle);
    if (e == nullptr) return cudaErrorInvalidResourceHandle;
    return with_stream(stream_handle, [&](CUstream_st& stream) {
      return e->captured ? go_on_behind(&stream, *e->captured) : go_on_behind_the_rest(&stream);
    });
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return unsafe_call([&] { return ask(event); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return unsafe_call([&] { return ask(event); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    for (const cudaEvent_t event : {start, end}) {
      const cudaError_t result = ask(event);
      if (result != cudaSuccess) return result;
      if (!event->is_timed || !event->recorded) return cudaErrorInvalidResourceHandle;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(*end->recorded - *start->recorded).count();
    return cudaSuccess;
  });
}

}  // extern "C"

}  // namespace stash::ptx
