// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The words of an error of the CUDA runtime: the same wherever it happens, and with what helps a user who
/// has an older device than the library was built for.

#include <initializer_list>
#include <string>

namespace stash::kernels {

/// Compute capability of the device that was asked. Zeros: there was no device to ask.
struct device_capability {
  int major = 0, minor = 0;
};

/// "sm_80, sm_90" of 800 and 900, as nvcc lists what it compiles for.
inline std::string architecture_names(std::initializer_list<int> architectures) {
  std::string names;
  for (const int architecture : architectures)
    names += (names.empty() ? "sm_" : ", sm_") + std::to_string(architecture / 10);
  return names;
}

/// `name` and `description` are the runtime's. `built_for` names architectures, and is told if the device has
/// `no_code` among them.
inline std::string device_failure_text(const std::string& function, const std::string& name,
                                       const std::string& description, bool no_code,
                                       const std::string& built_for, device_capability capability) {
  std::string text =
      function + ": context: expected a device that runs kernels, got " + name + ": " + description;
  if (!no_code) return text;
  text += "; Stash was built for " + built_for;
  if (capability.major > 0) {
    text += ", and the device has compute capability " + std::to_string(capability.major) + "." +
            std::to_string(capability.minor);
  }
  return text + " (CMAKE_CUDA_ARCHITECTURES says for which to build)";
}

}  // namespace stash::kernels
