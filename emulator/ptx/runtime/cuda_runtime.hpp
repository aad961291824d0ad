// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the parts of the CUDA runtime share that programs get instead of NVIDIA's: one device, and one lock,
/// under which all work is done. What the functions do is in CUDA's manual.

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace stash::ptx {

std::recursive_mutex& runtime_lock();

/// Makes an error the last one of this thread.
cudaError_t remembered(cudaError_t result);
/// A kernel broke the rules: says so on stderr, and from now on the device does nothing more.
cudaError_t lose_device(const std::string& why);
bool device_is_lost();

/// Whether this thread must not call now what recordings of streams do not survive. It spoils them.
bool spoils_recordings();

/// A call of the runtime.
template <class Body>
cudaError_t call(const Body& body) {
  const std::lock_guard lock(runtime_lock());
  return remembered(device_is_lost() ? cudaErrorLaunchFailure : body());
}

/// One that CUDA calls potentially unsafe while streams are recorded.
template <class Body>
cudaError_t unsafe_call(const Body& body) {
  return call([&] { return spoils_recordings() ? cudaErrorStreamCaptureUnsupported : body(); });
}

/// One that gives something back: a lost device takes it as well.
template <class Body>
cudaError_t releasing_call(const Body& body) {
  const std::lock_guard lock(runtime_lock());
  return remembered(spoils_recordings() ? cudaErrorStreamCaptureUnsupported : body());
}

/// Things that programs know by their addresses.
template <class Thing>
class handles {
 public:
  Thing* add(std::unique_ptr<Thing> thing) {
    Thing* const handle = thing.get();
    live_.emplace(handle, std::move(thing));
    return handle;
  }
  /// Null if there is none.
  Thing* find(Thing* handle) const { return live_.contains(handle) ? handle : nullptr; }
  bool erase(Thing* handle) { return live_.erase(handle) != 0; }

 private:
  std::map<Thing*, std::unique_ptr<Thing>> live_;
};

constexpr int compute_capability = 90;
constexpr std::size_t most_shared_bytes = std::size_t{48} << 10;

}  // namespace stash::ptx
