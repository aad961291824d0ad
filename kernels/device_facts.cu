// SPDX-License-Identifier: Apache-2.0
// What launches want to know of the device at hand: asked once for each device.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/launch.hpp"

namespace stash::kernels {
namespace {

/// What the driver took for this kernel, it took for all: they are compiled for the same architectures.
__global__ void probe() {}

bool enabled_by_environment() noexcept {
  const char* const value = std::getenv("STASH_EARLY_LAUNCH");
  return value == nullptr || std::string_view(value) != "0";
}

enum class answer : std::uint8_t { unknown, no, yes };

constexpr int most_devices = 64;

/// Whether kernels of this build wait for those in front of them. The device's capability alone would not say
/// it: a build for older ones may have been compiled anew for it.
answer asked(int device) noexcept {
  // A stream may be being recorded: what is asked has nothing to do with it.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool changed = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  int major = 0;
  cudaFuncAttributes found{};
  const bool answered =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaFuncGetAttributes(&found, probe) == cudaSuccess;
  if (!answered) cudaGetLastError();  // the launch will say it
  if (changed) cudaThreadExchangeStreamCaptureMode(&mode);
  if (!answered) return answer::unknown;
  return major >= 9 && found.ptxVersion >= 90 ? answer::yes : answer::no;
}

}  // namespace

bool may_begin_early() noexcept {
  static const bool is_enabled = enabled_by_environment();
  static std::atomic<answer> answers[most_devices] = {};
  int device = 0;
  if (!is_enabled || cudaGetDevice(&device) != cudaSuccess || device >= most_devices) return false;
  answer a = answers[device].load(std::memory_order_relaxed);
  if (a == answer::unknown) {
    a = asked(device);
    answers[device].store(a, std::memory_order_relaxed);
  }
  return a == answer::yes;
}

std::uint64_t multiprocessors() noexcept {
  static std::atomic<int> counts[most_devices] = {};
  int device = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess && device < most_devices;
  int count = known ? counts[device].load(std::memory_order_relaxed) : 0;
  if (count == 0 && cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    cudaGetLastError();  // the launch will say it
    return 1;
  }
  if (known) counts[device].store(count, std::memory_order_relaxed);
  return static_cast<std::uint64_t>(count);
}

}  // namespace stash::kernels
