// SPDX-License-Identifier: Apache-2.0
// Owning handles of the C API.

#include <gtest/gtest.h>

#include <cstdlib>

#include "c_api/support.hpp"
#include "encoders/support.hpp"
#include "stash/encoding.hpp"
#include "support/failing_allocations.hpp"

namespace {

using namespace stash_test;

/// Memory of the caller, and what it heard.
struct caller {
  std::size_t in_use = 0, blocks = 0;
  std::int64_t fail_after = -1;  ///< calls until one fails; -1: none does
  std::vector<std::pair<int32_t, uint64_t>> events;
  stash_memory_callbacks memory = STASH_INIT(stash_memory_callbacks);
  stash_handle_options options = STASH_INIT(stash_handle_options);

  caller() {
    memory.user = this;
    memory.allocate = [](void* user, size_t bytes, size_t, void*) -> void* {
      auto& self = *static_cast<caller*>(user);
      if (self.fail_after == 0) return nullptr;
      if (self.fail_after > 0) --self.fail_after;
      self.in_use += bytes;
      ++self.blocks;
      return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    };
    memory.deallocate = [](void* user, void* data, size_t bytes, size_t, void*) {
      auto& self = *static_cast<caller*>(user);
      self.in_use -= bytes;
      --self.blocks;
      std::free(data);
    };
    options.memory = &memory;
    options.name = "conv1";
    options.notify_user = this;
    options.notify = [](void* user, const stash_event* event) {
      EXPECT_GE(event->struct_size, sizeof(stash_event));
      EXPECT_STREQ(event->tensor, "conv1");
      EXPECT_EQ(event->step, -1);
      static_cast<caller*>(user)->events.emplace_back(event->kind, event->available_bytes);
    };
  }
  caller(const caller&) = delete;
  caller& operator=(const caller&) = delete;
};

TEST(c_handles, stash_and_restore) {
  const std::vector<float> x = make_values(3000, 0.4, flavour::special, 2);
  const stash_tensor_view view = c_view(x);
  for (const char* name : {"raw", "bitmap", "csr"}) {
    const stash_encoding e = c_encoding(name);
    stash_handle* handle = nullptr;
    ASSERT_EQ(stash_handle_create(&e, &view, nullptr, nullptr, &handle), STASH_OK) << last_error();
    std::vector<float> back(x.size());
    const stash_tensor_view out = c_view(back);
    ASSERT_EQ(stash_handle_restore(handle, &out, nullptr), STASH_OK) << last_error();
    EXPECT_EQ(bits_of(back), bits_of(x));
    EXPECT_EQ(stash_handle_check(handle, nullptr), STASH_OK);
    size_t bytes = 0, dense = 0;
    ASSERT_EQ(stash_handle_bytes(handle, &bytes, &dense), STASH_OK);
    EXPECT_EQ(dense, 12'000U);
    EXPECT_GT(bytes, 0U);
    EXPECT_EQ(stash_handle_bytes(handle, nullptr, nullptr), STASH_OK);
    stash_encoding stored = STASH_INIT(stash_encoding);
    ASSERT_EQ(stash_handle_encoding(handle, &stored), STASH_OK);
    EXPECT_EQ(stored.kind, e.kind);
    stash_handle_destroy(handle);
  }
  stash_handle_destroy(nullptr);
}

TEST(c_handles, memory_and_events_are_the_callers) {
  const std::vector<float> x = make_values(3000, 0.4, flavour::positive, 2);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  caller c;
  c.options.capacity = 1;
  stash_handle* handle = nullptr;
  ASSERT_EQ(stash_handle_create(&e, &view, &c.options, nullptr, &handle), STASH_OK) << last_error();
  size_t bytes = 0;
  ASSERT_EQ(stash_handle_bytes(handle, &bytes, nullptr), STASH_OK);
  EXPECT_EQ(c.in_use, bytes);
  EXPECT_EQ(c.blocks, 1U);
  ASSERT_EQ(c.events.size(), 2U);
  EXPECT_EQ(c.events[0].first, STASH_EVENT_OVERFLOW);
  EXPECT_EQ(c.events[1].first, STASH_EVENT_FALLBACK);
  EXPECT_EQ(c.events[1].second + sizeof(stash_encode_report), bytes);

  stash_size_query* query = nullptr;
  ASSERT_EQ(stash_handle_size(handle, nullptr, &query), STASH_OK);
  stash_stored_size size = STASH_INIT(stash_stored_size);
  ASSERT_EQ(stash_size_query_wait(query, &size), STASH_OK);
  EXPECT_EQ(size.bytes + sizeof(stash_encode_report), bytes);
  stash_size_query_destroy(query);
  stash_handle_destroy(handle);
  EXPECT_EQ(c.in_use, 0U);
  EXPECT_EQ(c.blocks, 0U);
}

TEST(c_handles, no_memory_of_the_caller) {
  const std::vector<float> x = make_values(3000, 0.4, flavour::positive, 2);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  for (const std::int64_t good : {0, 1}) {
    caller c;
    c.options.capacity = 1;
    c.fail_after = good;
    stash_handle* handle = nullptr;
    EXPECT_EQ(stash_handle_create(&e, &view, &c.options, nullptr, &handle), STASH_OUT_OF_MEMORY);
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(c.blocks, 0U);
    EXPECT_EQ(c.events.size(), static_cast<std::size_t>(good));
    c.fail_after = -1;
    ASSERT_EQ(stash_handle_create(&e, &view, &c.options, nullptr, &handle), STASH_OK) << last_error();
    stash_handle_destroy(handle);
  }
}

TEST(c_handles, every_allocation_of_the_library_may_fail) {
  const std::vector<float> x = make_values(3000, 0.4, flavour::positive, 2);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  const std::string name(100, 'n');
  caller c;
  stash_handle_options options = STASH_INIT(stash_handle_options);
  options.memory = &c.memory;
  options.name = name.c_str();
  options.capacity = 1;
  const auto call = [&] {
    stash_handle* handle = nullptr;
    stash_size_query* query = nullptr;
    int32_t status = stash_handle_create(&e, &view, &options, nullptr, &handle);
    if (status == STASH_OK) status = stash_handle_size(handle, nullptr, &query);
    if (status != STASH_OK) {
      EXPECT_EQ(query, nullptr);
    }
    stash_size_query_destroy(query);
    stash_handle_destroy(handle);
    if (status == STASH_OUT_OF_MEMORY) throw std::bad_alloc();
    EXPECT_EQ(status, STASH_OK) << last_error();
  };
  EXPECT_GE(fail_every_allocation(call, [&] { EXPECT_EQ(c.blocks, 0U); }), 4);
  EXPECT_EQ(last_error().find("stash_handle_"), 0U) << last_error();

  const stash_encoding* const encoding = &e;
  c_buffer buffer(20'000);
  const stash_batch_item item{sizeof(stash_batch_item), encoding, &view, &buffer.view};
  EXPECT_GE(fail_every_allocation([&] {
              const int32_t status = stash_encode_batch(&item, 1, nullptr, nullptr);
              if (status == STASH_OUT_OF_MEMORY) throw std::bad_alloc();
              EXPECT_EQ(status, STASH_OK);
            }),
            2);
}

TEST(c_handles, layers_write_reserved_memory) {
  const std::vector<float> x = {1, -2, 3, 0};
  std::vector<float> y(4), dx(4);
  const stash_tensor_view from = c_view(x), to = c_view(y), gradient = c_view(dx);
  const stash_encoding e = c_encoding("sign_mask");
  const int64_t dims[] = {4};
  stash_handle* mask = nullptr;
  ASSERT_EQ(stash_handle_reserve(&e, STASH_DTYPE_F32, 1, dims, nullptr, nullptr, &mask), STASH_OK)
      << last_error();
  stash_encoded_view stored = STASH_INIT(stash_encoded_view);
  ASSERT_EQ(stash_handle_view(mask, &stored), STASH_OK);
  ASSERT_EQ(stash_relu_forward(&from, &to, &stored, STASH_RULE_TENSORFLOW, nullptr), STASH_OK)
      << last_error();
  stash_encoded_tensor tensor = STASH_INIT(stash_encoded_tensor);
  ASSERT_EQ(stash_handle_tensor(mask, &tensor), STASH_OK);
  EXPECT_EQ(tensor.encoding->kind, STASH_KIND_SIGN_MASK);
  EXPECT_EQ(tensor.dims[0], 4);
  EXPECT_EQ(tensor.bytes->data, stored.data);
  EXPECT_EQ(stash_handle_tensor(nullptr, &tensor), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_handle_tensor(mask, nullptr), STASH_INVALID_ARGUMENT);
  ASSERT_EQ(stash_relu_backward(&from, &tensor, &gradient, STASH_RULE_TENSORFLOW, nullptr), STASH_OK);
  EXPECT_EQ(dx, (std::vector<float>{1, 0, 3, 0}));
  EXPECT_EQ(stash_handle_check(mask, nullptr), STASH_OK);
  stored.report->status = STASH_STATUS_CORRUPT;
  EXPECT_EQ(stash_handle_check(mask, nullptr), STASH_CORRUPT_DATA);
  EXPECT_EQ(stash_handle_rewind(mask, nullptr), STASH_OK);
  EXPECT_EQ(stash_handle_check(mask, nullptr), STASH_OK);
  EXPECT_EQ(stored.report->slot_bytes, 0U);
  EXPECT_EQ(stash_handle_rewind(nullptr, nullptr), STASH_INVALID_ARGUMENT);
  stash_handle_destroy(mask);

  EXPECT_EQ(stash_handle_reserve(&e, STASH_DTYPE_F32, 1, nullptr, nullptr, nullptr, &mask),
            STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_handle_reserve(&e, STASH_DTYPE_F32, 9, dims, nullptr, nullptr, &mask),
            STASH_INVALID_ARGUMENT);
  const int64_t negative[] = {-4};
  EXPECT_EQ(stash_handle_reserve(&e, STASH_DTYPE_F32, 1, negative, nullptr, nullptr, &mask),
            STASH_INVALID_ARGUMENT);
  mask = nullptr;
  EXPECT_EQ(stash_handle_reserve(&e, STASH_DTYPE_F32, 0, nullptr, nullptr, nullptr, &mask), STASH_OK);
  stash_handle_destroy(mask);
}

TEST(c_handles, wrong_arguments) {
  const std::vector<float> x(4, 1.0F);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  stash_handle* handle = nullptr;
  EXPECT_EQ(stash_handle_create(&e, &view, nullptr, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_handle_create: handle: expected an address, got null");
  EXPECT_EQ(stash_handle_create(&e, nullptr, nullptr, nullptr, &handle), STASH_INVALID_ARGUMENT);
  caller c;
  c.memory.deallocate = nullptr;
  EXPECT_EQ(stash_handle_create(&e, &view, &c.options, nullptr, &handle), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(stash_handle_restore(nullptr, &view, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_handle_check(nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_handle_bytes(nullptr, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  stash_encoded_view stored = STASH_INIT(stash_encoded_view);
  EXPECT_EQ(stash_handle_view(nullptr, &stored), STASH_INVALID_ARGUMENT);
  ASSERT_EQ(stash_handle_create(&e, &view, nullptr, nullptr, &handle), STASH_OK);
  EXPECT_EQ(stash_handle_view(handle, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_handle_size(handle, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  stash_handle_destroy(handle);
}

}  // namespace
