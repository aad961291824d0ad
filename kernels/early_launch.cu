// Whether kernels of this build wait for those in front of them, on the device at hand.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/launch.hpp"

namespace stash::kernels {
namespace {

/// What the driver took for this kernel, it took for all: they are compiled for the same architectures.
__global__ void probe() {}

bool wanted() noexcept {
  const char* const value = std::getenv("STASH_EARLY_LAUNCH");
  return value == nullptr || std::string_view(value) != "0";
}

/// The device's capability alone would not say it: a build for older ones may have been compiled anew for it.
bool waits_by_itself(int device) noexcept {
  int major = 0;
  cudaFuncAttributes found{};
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaFuncGetAttributes(&found, probe) == cudaSuccess)
    return major >= 9 && found.ptxVersion >= 90;
  cudaGetLastError();  // the launch will say it
  return false;
}

enum class answer : std::uint8_t { unknown, no, yes };

}  // namespace

bool may_begin_early() noexcept {
  static const bool is_wanted = wanted();
  constexpr int most_devices = 64;
  static std::atomic<answer> answers[most_devices] = {};
  int device = 0;
  if (!is_wanted || cudaGetDevice(&device) != cudaSuccess || device >= most_devices) return false;
  answer a = answers[device].load(std::memory_order_relaxed);
  if (a == answer::unknown) {
    a = waits_by_itself(device) ? answer::yes : answer::no;
    answers[device].store(a, std::memory_order_relaxed);
  }
  return a == answer::yes;
}

}  // namespace stash::kernels
