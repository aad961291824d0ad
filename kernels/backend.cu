// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include "encoders/device/backend.hpp"

namespace stash::encoders::device {

const kernel_calls& built_kernels() noexcept {
  static constinit const kernels::device_kernels all;
  return all;
}

}  // namespace stash::encoders::device
