// SPDX-License-Identifier: Apache-2.0
// The swapper of the C API.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "c_api/support.hpp"
#include "encoders/support.hpp"
#include "support/failing_allocations.hpp"
#include "support/no_new_threads.hpp"

namespace {

using namespace stash_test;

/// Memory of the caller, which may be full, and what it heard.
struct c_memory {
  std::atomic<std::size_t> blocks{0};
  bool full = false;
  stash_memory_callbacks callbacks = STASH_INIT(stash_memory_callbacks);
  c_memory() {
    callbacks.user = this;
    callbacks.allocate = [](void* user, size_t bytes, size_t, void*) -> void* {
      auto& self = *static_cast<c_memory*>(user);
      if (self.full) return nullptr;
      ++self.blocks;
      return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    };
    callbacks.deallocate = [](void* user, void* data, size_t, size_t, void*) {
      --static_cast<c_memory*>(user)->blocks;
      std::free(data);
    };
  }
  c_memory(const c_memory&) = delete;
  c_memory& operator=(const c_memory&) = delete;
};

stash_swap_statistics statistics_of(const stash_swapper* swapper) {
  stash_swap_statistics now = STASH_INIT(stash_swap_statistics);
  EXPECT_EQ(stash_swapper_statistics(swapper, &now), STASH_OK) << last_error();
  return now;
}

class c_swap : public testing::Test {
 protected:
  void SetUp() override {
    options.host = &host.callbacks;
    options.memory = &memory.callbacks;
    options.host_limit_bytes = 1 << 16;
    options.residency_limit_bytes = 1 << 14;
    options.chunk_bytes = 1000;
    options.ahead = 10;
    options.notify_user = this;
    options.notify = [](void* user, const stash_event* event) {
      EXPECT_EQ(event->kind, STASH_EVENT_LATE);
      auto& self = *static_cast<c_swap*>(user);
      const std::lock_guard lock(self.late_mutex);
      self.late = event->tensor;
    };
    ASSERT_EQ(stash_swapper_create(&options, &swaps), STASH_OK) << last_error();
  }
  void TearDown() override {
    stash_swapper_destroy(swaps);
    EXPECT_EQ(host.blocks, 0U);
    EXPECT_EQ(memory.blocks, 0U);
  }
  c_memory host, memory;
  stash_swapper_options options = STASH_INIT(stash_swapper_options);
  stash_swapper* swaps = nullptr;
  std::mutex late_mutex;  // whoever is late says so in its own thread
  std::string late;
};

TEST_F(c_swap, raw_bytes_and_tensors_come_back) {
  std::vector<float> x = make_values(3000, 0.4, flavour::special, 2), back(3000);
  stash_swap_request request = STASH_INIT(stash_swap_request);
  request.name = "conv1";
  request.priority = 3;
  request.needed_at = 7;
  request.has_needed_at = 1;
  stash_swapped *raw = nullptr, *tensor = nullptr;
  ASSERT_EQ(stash_swapper_out(swaps, x.data(), 12'000, &request, nullptr, &raw), STASH_OK) << last_error();
  const stash_tensor_view view = c_view(x), output = c_view(back);
  ASSERT_EQ(stash_swapper_out_tensor(swaps, &view, nullptr, nullptr, &tensor), STASH_OK) << last_error();
  EXPECT_EQ(stash_swapped_wait_out(raw, nullptr), STASH_OK);
  EXPECT_EQ(stash_swapped_wait_out(tensor, nullptr), STASH_OK);
  int32_t ended = 0;
  EXPECT_EQ(stash_swapped_out_ended(raw, &ended), STASH_OK);
  EXPECT_EQ(ended, 1);
  size_t bytes = 0;
  EXPECT_EQ(stash_swapped_bytes(raw, &bytes), STASH_OK);
  EXPECT_EQ(bytes, 12'000U);
  const std::vector<float> original = x;
  std::fill(x.begin(), x.end(), 0.0F);

  ASSERT_EQ(stash_swapped_in_to(raw, back.data(), bytes, nullptr), STASH_OK) << last_error();
  void* data = nullptr;
  ASSERT_EQ(stash_swapped_wait_in(raw, nullptr, &data), STASH_OK) << last_error();
  EXPECT_EQ(data, back.data());
  EXPECT_EQ(bits_of(back), bits_of(original));
  ASSERT_EQ(stash_swapped_wait_in(raw, nullptr, &data), STASH_OK) << last_error();
  EXPECT_EQ(late, "conv1");
  EXPECT_EQ(memory.blocks, 1U);
  EXPECT_EQ(statistics_of(swaps).resident_bytes, 12'000U);
  EXPECT_EQ(stash_swapped_leave(raw, nullptr), STASH_OK);
  EXPECT_EQ(memory.blocks, 0U);
  std::fill(back.begin(), back.end(), 0.0F);
  ASSERT_EQ(stash_swapped_restore(tensor, &output, 0, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(bits_of(back), bits_of(original));
  EXPECT_EQ(stash_swapper_reached(swaps, 0), STASH_OK);
  EXPECT_EQ(stash_swapped_in(raw, nullptr), STASH_OK);
  EXPECT_EQ(stash_swapped_wait_in(raw, nullptr, nullptr), STASH_OK);
  stash_swapped_destroy(raw);
  stash_swapped_destroy(tensor);
  stash_swapped_destroy(nullptr);
  EXPECT_EQ(statistics_of(swaps).bytes_out, 24'000U);
}

TEST_F(c_swap, encoded_tensors_come_back) {
  const std::vector<float> x = make_values(3000, 0.4, flavour::special, 2);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  c_memory own;
  stash_handle_options handle_options = STASH_INIT(stash_handle_options);
  handle_options.memory = &own.callbacks;
  handle_options.name = "conv2";
  stash_handle* handle = nullptr;
  ASSERT_EQ(stash_handle_create(&e, &view, &handle_options, nullptr, &handle), STASH_OK) << last_error();
  stash_swapped *lent = nullptr, *owned = nullptr;
  ASSERT_EQ(stash_swapper_out_handle(swaps, handle, nullptr, nullptr, &lent), STASH_OK) << last_error();
  EXPECT_EQ(stash_swapped_wait_out(lent, nullptr), STASH_OK);
  ASSERT_EQ(stash_swapper_out_owned(swaps, &handle, nullptr, nullptr, &owned), STASH_OK) << last_error();
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(stash_swapped_wait_out(owned, nullptr), STASH_OK);
  EXPECT_EQ(own.blocks, 0U);
  std::vector<float> back(x.size());
  const stash_tensor_view output = c_view(back);
  ASSERT_EQ(stash_swapped_restore(lent, &output, 1, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(bits_of(back), bits_of(x));
  EXPECT_EQ(late, "conv2");
  ASSERT_EQ(stash_swapped_take(owned, nullptr, &handle), STASH_OK) << last_error();
  std::fill(back.begin(), back.end(), 0.0F);
  ASSERT_EQ(stash_handle_restore(handle, &output, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(bits_of(back), bits_of(x));
  stash_handle_destroy(handle);
  stash_swapped_destroy(lent);
  stash_swapped_destroy(owned);
}

TEST_F(c_swap, full_memory_is_said) {
  const std::vector<float> x(20'000, 1.0F);
  const stash_tensor_view view = c_view(x);
  stash_swap_request request = STASH_INIT(stash_swap_request);
  stash_swapped* swapped = nullptr;
  EXPECT_EQ(stash_swapper_out_tensor(swaps, &view, &request, nullptr, &swapped), STASH_OUT_OF_MEMORY);
  EXPECT_EQ(last_error(),
            "stash_swapper_out_tensor: tensor: expected 81920 bytes of host memory, got 0 of 65536 in use");
  request.null_if_full = 1;
  auto* const untouched = reinterpret_cast<stash_swapped*>(&request);
  swapped = untouched;
  EXPECT_EQ(stash_swapper_out_tensor(swaps, &view, &request, nullptr, &swapped), STASH_OK);
  EXPECT_EQ(swapped, nullptr);

  const stash_encoding e = c_encoding("raw");
  stash_handle* handle = nullptr;
  ASSERT_EQ(stash_handle_create(&e, &view, nullptr, nullptr, &handle), STASH_OK);
  EXPECT_EQ(stash_swapper_out_owned(swaps, &handle, &request, nullptr, &swapped), STASH_OK);
  EXPECT_EQ(swapped, nullptr);
  EXPECT_NE(handle, nullptr);
  stash_handle_destroy(handle);

  memory.full = true;
  std::vector<float> back(100);
  ASSERT_EQ(stash_swapper_out(swaps, x.data(), 400, nullptr, nullptr, &swapped), STASH_OK);
  EXPECT_EQ(stash_swapped_wait_in(swapped, nullptr, nullptr), STASH_OUT_OF_MEMORY);
  memory.full = false;
  EXPECT_EQ(stash_swapped_wait_in(swapped, nullptr, nullptr), STASH_OK) << last_error();
  stash_swapped_destroy(swapped);
  EXPECT_EQ(statistics_of(swaps).failures, 1U);
}

TEST_F(c_swap, failure_to_start_a_thread_is_out_of_memory) {
  stash_swapper* another = nullptr;
  {
    const no_new_threads none;
    EXPECT_EQ(stash_swapper_create(nullptr, &another), STASH_OUT_OF_MEMORY) << last_error();
  }
  EXPECT_EQ(another, nullptr);
}

TEST_F(c_swap, several_threads) {
  std::vector<std::thread> workers;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    workers.emplace_back([&, thread] {
      for (std::uint32_t round = 0; round < 20; ++round) {
        const std::vector<float> x = make_values(700, 0.5, flavour::special, thread * 100 + round);
        std::vector<float> back(x.size());
        const stash_tensor_view view = c_view(x), output = c_view(back);
        stash_swapped* swapped = nullptr;
        ASSERT_EQ(stash_swapper_out_tensor(swaps, &view, nullptr, nullptr, &swapped), STASH_OK);
        ASSERT_EQ(stash_swapped_restore(swapped, &output, 0, nullptr), STASH_OK);
        EXPECT_EQ(bits_of(back), bits_of(x));
        stash_swapped_destroy(swapped);
      }
    });
  }
  for (std::thread& worker : workers)
    worker.join();
}

TEST_F(c_swap, every_allocation_of_the_library_may_fail) {
  const std::vector<float> x = make_values(700, 0.5, flavour::special, 1);
  const stash_tensor_view view = c_view(x);
  const auto call = [&] {
    stash_swapper* another = nullptr;
    stash_swapped* swapped = nullptr;
    int32_t status = stash_swapper_create(nullptr, &another);
    if (status == STASH_OK) status = stash_swapper_out_tensor(another, &view, nullptr, nullptr, &swapped);
    if (status == STASH_OK) status = stash_swapped_wait_out(swapped, nullptr);
    stash_swapped_destroy(swapped);
    stash_swapper_destroy(another);
    if (status == STASH_OUT_OF_MEMORY) throw std::bad_alloc();
    EXPECT_EQ(status, STASH_OK) << last_error();
  };
  EXPECT_GE(fail_every_allocation(call), 5);
}

TEST_F(c_swap, wrong_arguments) {
  std::vector<float> x(4, 1.0F);
  const stash_tensor_view view = c_view(x);
  stash_swapper* another = nullptr;
  stash_swapper_options bad = STASH_INIT(stash_swapper_options);
  EXPECT_EQ(stash_swapper_create(nullptr, nullptr), STASH_INVALID_ARGUMENT);
  bad.space = 7;
  EXPECT_EQ(stash_swapper_create(&bad, &another), STASH_INVALID_ARGUMENT);
  bad.space = STASH_SPACE_DEVICE;
  EXPECT_EQ(stash_swapper_create(&bad, &another), STASH_UNSUPPORTED);
  bad = options;
  bad.ahead = -1;
  EXPECT_EQ(stash_swapper_create(&bad, &another), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(another, nullptr);
  stash_swapped* swapped = nullptr;
  stash_swap_request request = STASH_INIT(stash_swap_request);
  request.has_needed_at = 2;
  EXPECT_EQ(stash_swapper_out(swaps, x.data(), 16, &request, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_swapper_out: request.has_needed_at: expected 0 or 1, got 2");
  request.has_needed_at = 0;
  request.needed_at = 5;
  EXPECT_EQ(stash_swapper_out(swaps, x.data(), 16, &request, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_swapper_out: request.needed_at: expected 0 where has_needed_at is 0, got 5");
  request.needed_at = 0;
  EXPECT_EQ(stash_swapper_out(nullptr, x.data(), 16, nullptr, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_swapper_out(swaps, nullptr, 16, nullptr, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_swapper_out(swaps, x.data(), 16, nullptr, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_swapper_out_tensor(swaps, nullptr, nullptr, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_swapper_out_handle(swaps, nullptr, nullptr, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  stash_handle* none = nullptr;
  EXPECT_EQ(stash_swapper_out_owned(swaps, &none, nullptr, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_swapper_out_owned(swaps, nullptr, nullptr, nullptr, &swapped), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(swapped, nullptr);
  EXPECT_EQ(stash_swapper_reached(nullptr, 0), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_swapper_statistics(swaps, nullptr), STASH_INVALID_ARGUMENT);
  ASSERT_EQ(stash_swapper_out(swaps, x.data(), 16, nullptr, nullptr, &swapped), STASH_OK);
  for (const int32_t status :
       {stash_swapped_wait_out(nullptr, nullptr), stash_swapped_in(nullptr, nullptr),
        stash_swapped_in_to(nullptr, x.data(), 16, nullptr),
        stash_swapped_in_to(swapped, x.data(), 15, nullptr), stash_swapped_wait_in(nullptr, nullptr, nullptr),
        stash_swapped_leave(nullptr, nullptr), stash_swapped_restore(swapped, &view, 0, nullptr),
        stash_swapped_restore(swapped, &view, 2, nullptr), stash_swapped_take(swapped, nullptr, nullptr),
        stash_swapped_take(swapped, nullptr, &none), stash_swapped_bytes(swapped, nullptr),
        stash_swapped_out_ended(swapped, nullptr)}) {
    EXPECT_EQ(status, STASH_INVALID_ARGUMENT);
  }
  stash_swapped_destroy(swapped);
}

}  // namespace
