#pragma once
/// \file
/// What every user of cuDNN begins with. Only for files that are built with its headers.

#include <cudnn.h>

#include "bench/gpu/device.hpp"
#include "bench/gpu/shared_library.hpp"

namespace stash::gpu {

/// Everything that is used here is in this part of cuDNN; the parts find each other. Throws failure where it
/// is missing.
struct cudnn_library {
  shared_library library{"libcudnn.so." STASH_CUDNN_VERSION};
  decltype(::cudnnGetErrorString)* error_string = library["cudnnGetErrorString"];

  void check(cudnnStatus_t result, const char* call) const {
    if (result != CUDNN_STATUS_SUCCESS) throw failure(std::string(call) + ": " + error_string(result));
  }
};

}  // namespace stash::gpu
