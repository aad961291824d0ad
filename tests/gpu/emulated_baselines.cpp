// SPDX-License-Identifier: Apache-2.0
// What others offer cannot be emulated; the yardstick is a plain copy.

#include "gpu/emulated_baselines.hpp"

#include <algorithm>

#include "bench/gpu/baselines/cudnn_properties.hpp"
#include "bench/gpu/cases.hpp"
#include "bench/gpu/device.hpp"

namespace stash::gpu {
namespace {

std::uint64_t bytes_read = 0;

}  // namespace

std::uint64_t bytes_read_by_kernel() {
  return bytes_read;
}

std::vector<measured_case> baseline_cases() {
  return {};
}

std::string cudnn_device_properties() {
  throw failure("the emulator has no cuDNN");
}

void copy_by_kernel(void* to, const void* from, std::size_t bytes, void* stream) {
  copy_on_device(to, from, bytes, stream);
}

void read_by_kernel(const void* from, std::size_t bytes, void* /*never*/, void* /*stream*/) {
  // Kept, because fresh pages take longer than the copy.
  static std::vector<std::uint8_t> found;
  found.resize(std::max(found.size(), bytes));
  download(found.data(), from, bytes);
  bytes_read += bytes;
}

}  // namespace stash::gpu
