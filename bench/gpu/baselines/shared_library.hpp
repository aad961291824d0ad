// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A library that is found when the program runs, or not: gpu_bench has to start where cuDNN and cuSPARSE are
/// missing.

#include <dlfcn.h>

#include <string>

#include "bench/gpu/device.hpp"

namespace stash::gpu {

/// Stays loaded until the program ends: libraries of CUDA do not like to be unloaded.
class shared_library {
 public:
  /// Throws failure if there is none of this name where the dynamic linker looks (LD_LIBRARY_PATH).
  explicit shared_library(const char* name) : name_(name), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw failure(std::string("library not found: ") + dlerror());
  }

  /// An address that becomes a pointer to any function: the declaration that it initialises says to which.
  struct symbol {
    void* address;
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };

  symbol operator[](const char* name) const {
    void* const address = dlsym(handle_, name);
    if (address == nullptr) throw failure(name_ + " has no " + name);
    return {address};
  }

 private:
  std::string name_;
  void* handle_;
};

}  // namespace stash::gpu
