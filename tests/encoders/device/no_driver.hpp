// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a caller learns who asks for a device where there is no driver. Built with the CUDA back end, linked
/// as users link it, and skipped where a device answers.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stash/encoding.hpp"
#include "stash/error.hpp"

namespace stash_test {

inline constexpr stash::execution_context on_device{stash::memory_space::device};
inline constexpr std::int64_t elements = 3000;

/// Memory of the process that is taken: it shows what a failed call does not free.
inline std::size_t heap_bytes() {
  return mallinfo2().uordblks;
}

class no_driver : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) GTEST_SKIP() << "there is a device";
  }

  /// 3000 values, as one row or as pixels.
  stash::tensor_view map(stash::memory_space space = stash::memory_space::device) {
    return {values_.data(), stash::dtype::f32, space, stash::shape{elements}};
  }
  stash::tensor_view map(const stash::shape& dims) {
    return {values_.data(), stash::dtype::f32, stash::memory_space::device, dims};
  }
  /// Others.
  stash::tensor_view other_map() {
    return {other_values_.data(), stash::dtype::f32, stash::memory_space::device, stash::shape{elements}};
  }
  stash::encoded_view out() { return {words_.data(), words_.size() * 8, nullptr, &report_}; }
  stash::const_encoded_view in() { return {words_.data(), words_.size() * 8, nullptr, &report_}; }
  stash::encoded_view other_out() { return {others_.data(), others_.size() * 8, nullptr, &other_report_}; }

  /// The one clear error, however often, and nothing of the call stays. `function` is who says so.
  static void expect_failure(const std::string& function, const std::function<void()>& call) {
    SCOPED_TRACE(function);
    const std::string expected = expected_text(function);
    const auto fails = [&] {
      try {
        call();
        ADD_FAILURE() << "no error";
      } catch (const stash::error& e) {
        EXPECT_EQ(e.code(), stash::errc::device_failure);
        EXPECT_EQ(std::string(e.what()).substr(0, expected.size()), expected);
      }
    };
    fails();  // What is made once, such as the runtime's own state, is made now.
    const std::size_t before = heap_bytes();
    fails();
    EXPECT_EQ(heap_bytes(), before);
  }
  static std::string expected_text(const std::string& function) {
    return function + ": context: expected a device that runs kernels, got cudaError";
  }

 private:
  std::vector<float> values_ = std::vector<float>(elements, 1.5F), other_values_ = values_;
  // Two words for a value: more than any encoding needs, and aligned to 16 bytes by the allocator.
  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(2 * elements), others_ = words_;
  stash::encode_report report_{}, other_report_{};
};

}  // namespace stash_test
