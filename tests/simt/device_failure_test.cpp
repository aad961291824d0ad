// SPDX-License-Identifier: Apache-2.0
// What users read when a device runs no kernel: no such device is at hand, so the words alone are tested.

#include "common/device_failure.hpp"

#include <gtest/gtest.h>

namespace stash::kernels {
namespace {

TEST(device_failure, tells_what_an_old_device_lacks) {
  EXPECT_EQ(
      device_failure_text("encode", "cudaErrorNoKernelImageForDevice", "no kernel image is available", true,
                          "sm_80, sm_90", {7, 0}),
      "encode: context: expected a device that runs kernels, got cudaErrorNoKernelImageForDevice: no kernel "
      "image is available; Stash was built for sm_80, sm_90, and the device has compute capability 7.0 "
      "(CMAKE_CUDA_ARCHITECTURES says for which to build)");
}

TEST(device_failure, names_architectures) {
  EXPECT_EQ(architecture_names({800, 900}), "sm_80, sm_90");
  EXPECT_EQ(architecture_names({1200}), "sm_120");
}

TEST(device_failure, says_no_more_than_is_known) {
  const std::string text = device_failure_text("decode", "cudaErrorInvalidDeviceFunction",
                                               "invalid device function", true, "sm_90", {});
  EXPECT_NE(text.find("built for sm_90 ("), std::string::npos) << text;
  EXPECT_EQ(text.find("capability"), std::string::npos) << text;
  EXPECT_EQ(device_failure_text("decode", "cudaErrorNoDevice", "no device", false, "sm_90", {7, 5}),
            "decode: context: expected a device that runs kernels, got cudaErrorNoDevice: no device");
}

}  // namespace
}  // namespace stash::kernels
