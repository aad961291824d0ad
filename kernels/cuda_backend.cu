// SPDX-License-Identifier: Apache-2.0
// Registers CUDA as the device back end of the process.

#include "backend.hpp"
#include "cuda_memory.hpp"
#include "encoders/device/backend.hpp"

namespace stash::encoders::device {

constinit const kernels::cuda_memory cuda_memory;
constinit const kernels::device_kernels cuda_kernels;

// Libraries with kernels begin with it (backend.cpp); programs of objects that register themselves need not.
extern const backend built_in_backend;
constinit const backend built_in_backend{&cuda_memory, &cuda_kernels};

namespace {
[[maybe_unused]] const bool registered = (register_backend(&built_in_backend), true);
}

}  // namespace stash::encoders::device
