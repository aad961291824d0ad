// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A GPU as cuDNN describes it.

#include <string>

namespace stash::gpu {

/// JSON of the device that the program uses. Given to cuDNN elsewhere, it plans for this device there: which
/// engines, how much workspace. Throws failure if cuDNN is missing, or has no such thing yet. Implemented
/// where the device is.
std::string cudnn_device_properties();

}  // namespace stash::gpu
