// What others offer cannot be emulated; the yardstick is a plain copy.

#include "bench/gpu/cases.hpp"

namespace stash::gpu {

std::vector<measured_case> baseline_cases() {
  return {};
}

void copy_by_kernel(void* to, const void* from, std::size_t bytes, void* stream) {
  copy_on_device(to, from, bytes, stream);
}

}  // namespace stash::gpu
