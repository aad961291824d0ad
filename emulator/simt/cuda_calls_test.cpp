// SPDX-License-Identifier: Apache-2.0
// kernels/device_memory.cu, compiled against a model of the runtime: what its calls do to a recording that
// somebody else has under way, and to the caller's last error.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_memory.hpp"
#include "encoders/device/device_memory.hpp"
#include "stash/error.hpp"

namespace stash {

void kernels::check_launch(const char* function, cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();
  throw error(errc::device_failure, std::string(function) + ": " + std::to_string(result));
}

namespace {

namespace device = encoders::device;

const kernels::cuda_memory memory_under_test;
const device::backend without_kernels{&memory_under_test, nullptr};
[[maybe_unused]] const bool registered = (device::register_backend(&without_kernels), true);

char one, other;

const std::vector<std::pair<const char*, std::function<void()>>> calls{
    {"allocate", [] { device::allocate(8, &one); }},
    {"deallocate", [] { device::deallocate(&other, &one); }},
    {"allocate_pinned", [] { device::allocate_pinned(8); }},
    {"deallocate_pinned", [] { device::deallocate_pinned(&other); }},
    {"clear", [] { device::clear(&other, 1, &one); }},
    {"copy", [] { device::copy(&other, &other, 1, &one); }},
    {"wait_for_stream", [] { device::wait_for_stream(&one); }},
    {"create_stream", [] { device::create_stream(); }},
    {"destroy_stream", [] { device::destroy_stream(&one); }},
    {"record_event", [] { device::record_event(&one); }},
    {"reached", [] { device::reached(&other); }},
    {"wait_for_event", [] { device::wait_for_event(&other); }},
    {"wait_in_stream", [] { device::wait_in_stream(&one, &other); }},
    {"destroy_event", [] { device::destroy_event(&other); }},
};

class cuda_calls : public testing::Test {
 protected:
  ~cuda_calls() override { cuda_model::now = {}; }
};

void expect_unnoticed(const std::function<void()>& call) {
  EXPECT_NO_THROW(call());
  EXPECT_FALSE(cuda_model::now.spoiled);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cuda_model::mode, cudaStreamCaptureModeGlobal) << "the thread is in another mode than before";
}

TEST_F(cuda_calls, leave_recordings_of_other_streams_alone) {
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    cuda_model::now = {.recording = true};
    expect_unnoticed(call);
    std::thread([&call = call] { expect_unnoticed(call); }).join();
  }
}

TEST_F(cuda_calls, an_event_that_is_not_reached_leaves_no_error) {
  cuda_model::now.ready = false;
  EXPECT_FALSE(device::reached(&other));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(cuda_calls, no_memory_leaves_no_error) {
  cuda_model::now.out_of_memory = true;
  EXPECT_EQ(device::allocate(8, &one), nullptr);
  EXPECT_EQ(device::allocate_pinned(8), nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace stash
