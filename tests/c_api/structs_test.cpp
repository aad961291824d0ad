// SPDX-License-Identifier: Apache-2.0
// Sizes, versions and errors: what callers in C rely on.

#include <gtest/gtest.h>

#include <cstddef>
#include <thread>

#include "c_api/support.hpp"
#include "encoders/support.hpp"
#include "stash/error.hpp"
#include "stash/version.hpp"

namespace {

using namespace stash_test;

// The layout of the first version, for machines with 64-bit addresses (docs/abi.md). Never changes; new
// members come after.
static_assert(offsetof(stash_tensor_view, data) == 8 && offsetof(stash_tensor_view, type) == 16 &&
              offsetof(stash_tensor_view, space) == 20 && offsetof(stash_tensor_view, rank) == 24 &&
              offsetof(stash_tensor_view, dims) == 32 && offsetof(stash_tensor_view, pixel_pitch) == 96);
static_assert(offsetof(stash_execution_context, space) == 8 &&
              offsetof(stash_execution_context, canonical) == 12 &&
              offsetof(stash_execution_context, parallel_for) == 16 &&
              offsetof(stash_execution_context, user) == 24 &&
              offsetof(stash_execution_context, stream) == 32);
static_assert(offsetof(stash_encoding, kind) == 8 && offsetof(stash_encoding, values) == 12 &&
              offsetof(stash_encoding, underflow) == 16 && offsetof(stash_encoding, rule) == 20 &&
              offsetof(stash_encoding, window_taps) == 24 && offsetof(stash_encoding, lower) == 28 &&
              offsetof(stash_encoding, upper) == 32 && offsetof(stash_encoding, reserved) == 36);
static_assert(offsetof(stash_overflow_arena, data) == 8 && offsetof(stash_overflow_arena, bytes) == 16 &&
              offsetof(stash_overflow_arena, claimed) == 24 &&
              offsetof(stash_overflow_arena, host_data) == 32 &&
              offsetof(stash_overflow_arena, host_bytes) == 40 &&
              offsetof(stash_overflow_arena, host_claimed) == 48 && sizeof(stash_overflow_arena) == 56);
static_assert(offsetof(stash_encoded_view, data) == 8 && offsetof(stash_encoded_view, bytes) == 16 &&
              offsetof(stash_encoded_view, overflow) == 24 && offsetof(stash_encoded_view, report) == 32);
static_assert(offsetof(stash_workspace_view, data) == 8 && offsetof(stash_workspace_view, bytes) == 16);
static_assert(offsetof(stash_batch_item, encoding) == 8 && offsetof(stash_batch_item, dense) == 16 &&
              offsetof(stash_batch_item, encoded) == 24);
static_assert(offsetof(stash_csr32_view, row_offsets) == 8 && offsetof(stash_csr32_view, columns) == 16 &&
              offsetof(stash_csr32_view, values) == 24 && offsetof(stash_csr32_view, capacity) == 32 &&
              offsetof(stash_csr32_view, type) == 40);
static_assert(offsetof(stash_stored_size, bytes) == 8 && offsetof(stash_stored_size, overflow_bytes) == 16 &&
              offsetof(stash_stored_size, nonzeros) == 24 && offsetof(stash_stored_size, density) == 32 &&
              offsetof(stash_stored_size, status) == 40);
static_assert(offsetof(stash_pool_window, kernel_h) == 8 && offsetof(stash_pool_window, stride_h) == 16 &&
              offsetof(stash_pool_window, pad_top) == 24 && offsetof(stash_pool_window, kernel_d) == 32 &&
              offsetof(stash_pool_window, dilation_h) == 44 && offsetof(stash_pool_window, layout) == 56);
static_assert(offsetof(stash_dropout_key, seed) == 8 && offsetof(stash_dropout_key, step) == 16 &&
              offsetof(stash_dropout_key, layer) == 24);
static_assert(offsetof(stash_memory_callbacks, user) == 8 &&
              offsetof(stash_memory_callbacks, allocate) == 16 &&
              offsetof(stash_memory_callbacks, deallocate) == 24 &&
              offsetof(stash_memory_callbacks, space) == 32);
static_assert(offsetof(stash_handle_options, capacity) == 8 && offsetof(stash_handle_options, memory) == 16 &&
              offsetof(stash_handle_options, notify) == 24 &&
              offsetof(stash_handle_options, notify_user) == 32 &&
              offsetof(stash_handle_options, name) == 40);
static_assert(offsetof(stash_event, kind) == 8 && offsetof(stash_event, tensor) == 16 &&
              offsetof(stash_event, required_bytes) == 24 && offsetof(stash_event, available_bytes) == 32 &&
              offsetof(stash_event, step) == 40);
static_assert(offsetof(stash_plan_options, policy) == 8 && offsetof(stash_plan_options, force) == 16 &&
              offsetof(stash_plan_options, machine) == 24 &&
              offsetof(stash_plan_options, budget_bytes) == 32 &&
              offsetof(stash_plan_options, slot_margin) == 40 &&
              offsetof(stash_plan_options, overflow_share) == 48 &&
              offsetof(stash_plan_options, threads) == 56 && offsetof(stash_plan_options, values) == 64 &&
              offsetof(stash_plan_options, model) == 72 && offsetof(stash_plan_options, swap) == 80 &&
              offsetof(stash_plan_options, evaluations) == 84 &&
              offsetof(stash_plan_options, no_layout) == 88 && sizeof(stash_plan_options) == 96);
static_assert(offsetof(stash_swapper_options, space) == 8 && offsetof(stash_swapper_options, host) == 16 &&
              offsetof(stash_swapper_options, memory) == 24 &&
              offsetof(stash_swapper_options, host_limit_bytes) == 32 &&
              offsetof(stash_swapper_options, residency_limit_bytes) == 40 &&
              offsetof(stash_swapper_options, ahead) == 48 &&
              offsetof(stash_swapper_options, chunk_bytes) == 56 &&
              offsetof(stash_swapper_options, notify) == 64 &&
              offsetof(stash_swapper_options, notify_user) == 72 &&
              offsetof(stash_swapper_options, leaving_limit_bytes) == 80 &&
              sizeof(stash_swapper_options) == 88);
static_assert(offsetof(stash_swap_request, name) == 8 && offsetof(stash_swap_request, needed_at) == 16 &&
              offsetof(stash_swap_request, bytes_in_use) == 24 &&
              offsetof(stash_swap_request, priority) == 32 &&
              offsetof(stash_swap_request, has_needed_at) == 36 &&
              offsetof(stash_swap_request, null_if_full) == 40 && sizeof(stash_swap_request) == 48);
static_assert(offsetof(stash_swap_statistics, bytes_out) == 8 &&
              offsetof(stash_swap_statistics, bytes_in) == 16 &&
              offsetof(stash_swap_statistics, bytes_in_flight) == 24 &&
              offsetof(stash_swap_statistics, host_bytes) == 32 &&
              offsetof(stash_swap_statistics, host_peak_bytes) == 40 &&
              offsetof(stash_swap_statistics, resident_bytes) == 48 &&
              offsetof(stash_swap_statistics, resident_peak_bytes) == 56 &&
              offsetof(stash_swap_statistics, late) == 64 && offsetof(stash_swap_statistics, failures) == 72);
static_assert(sizeof(stash_encode_report) == 40 && offsetof(stash_encode_report, checksum) == 32);

TEST(c_structs, structures_that_were_not_initialised_are_refused) {
  size_t bytes = 0;
  EXPECT_EQ(stash_encoded_bytes_bound(nullptr, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encoded_bytes_bound: encoding: expected a structure, got null");
  for (const size_t size : {size_t{0}, size_t{8}, sizeof(stash_encoding) - 1, size_t{1} << 30, SIZE_MAX}) {
    stash_encoding e = STASH_INIT(stash_encoding);
    e.struct_size = size;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT) << size;
    EXPECT_EQ(
        last_error(),
        "stash_encoded_bytes_bound: encoding: expected struct_size of 40 to 1048576 (see STASH_INIT), got " +
            std::to_string(size));
  }
}

TEST(c_structs, newer_structures_serve_while_unknown_members_are_zero) {
  struct {
    stash_encoding known;
    uint32_t unknown[3];
  } e = {{sizeof(e)}, {}};
  e.known.kind = STASH_KIND_SIGN_MASK;
  size_t bytes = 0;
  EXPECT_EQ(stash_encoded_bytes_bound(&e.known, STASH_DTYPE_F32, 129, &bytes), STASH_OK) << last_error();
  EXPECT_EQ(bytes, 32U);
  e.unknown[2] = 0x00010000;
  EXPECT_EQ(stash_encoded_bytes_bound(&e.known, STASH_DTYPE_F32, 129, &bytes), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(),
            "stash_encoded_bytes_bound: encoding: expected zero in the members that this version of the "
            "library does "
            "not have, got 1 at byte 50");

  // And where the library writes, what it does not know becomes zero.
  ASSERT_EQ(stash_parse_encoding("csr", &e.known), STASH_OK) << last_error();
  EXPECT_EQ(e.known.kind, STASH_KIND_CSR);
  EXPECT_EQ(e.known.struct_size, sizeof(e));
  EXPECT_EQ(e.unknown[2], 0U);
}

TEST(c_structs, reserved_members_are_zero) {
  // What is read through one structure of each type that has such a member.
  const std::vector<float> x(4, 1.0F);
  std::vector<float> y(4);
  stash_tensor_view view = c_view(x), pixels = c_view(x.data(), STASH_DTYPE_F32, {1, 2, 2, 1});
  const stash_tensor_view out = c_view(y), pooled = c_view(y.data(), STASH_DTYPE_F32, {1, 1, 1, 1});
  stash_encoding e = c_encoding("csr");
  c_buffer buffer(512);
  size_t bytes = 0;
  const auto refused = [](int32_t status, const std::string& text) {
    EXPECT_EQ(status, STASH_INVALID_ARGUMENT);
    EXPECT_EQ(last_error(), text);
  };
  e.reserved = 7;
  refused(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes),
          "stash_encoded_bytes_bound: encoding.reserved: expected 0, got 7");
  e.reserved = 0;
  view.reserved = -1;
  refused(stash_encode(&e, &view, &buffer.view, nullptr, nullptr),
          "stash_encode: input.reserved: expected 0, got -1");
  view.reserved = 0;
  ASSERT_EQ(stash_encode(&e, &view, &buffer.view, nullptr, nullptr), STASH_OK) << last_error();

  stash_csr32_view csr = STASH_INIT(stash_csr32_view);
  csr.reserved = 1;
  int64_t nonzeros = 0;
  refused(stash_csr_export32(c_stored(e, &buffer.view, view), &csr, nullptr, &nonzeros),
          "stash_csr_export32: output.reserved: expected 0, got 1");
  stash_pool_window window = STASH_INIT(stash_pool_window);
  window.reserved = 1;
  refused(stash_max_pool_forward(&pixels, &pooled, &window, nullptr, STASH_RULE_PYTORCH, nullptr),
          "stash_max_pool_forward: window.reserved: expected 0, got 1");
  stash_dropout_key key = STASH_INIT(stash_dropout_key);
  key.reserved = UINT32_MAX;
  refused(stash_dropout_backward_key(&view, &out, 0.5F, &key, nullptr),
          "stash_dropout_backward_key: key.reserved: expected 0, got 4294967295");

  stash_memory_callbacks memory = STASH_INIT(stash_memory_callbacks);
  memory.reserved = 1;
  stash_handle_options options = STASH_INIT(stash_handle_options);
  options.memory = &memory;
  stash_handle* handle = nullptr;
  refused(stash_handle_create(&e, &view, &options, nullptr, &handle),
          "stash_handle_create: options.memory.reserved: expected 0, got 1");

  stash_swapper_options swapping = STASH_INIT(stash_swapper_options);
  swapping.reserved = 1;
  stash_swapper* swapper = nullptr;
  refused(stash_swapper_create(&swapping, &swapper),
          "stash_swapper_create: options.reserved: expected 0, got 1");
  swapping.reserved = 0;
  ASSERT_EQ(stash_swapper_create(&swapping, &swapper), STASH_OK) << last_error();
  stash_swap_request request = STASH_INIT(stash_swap_request);
  request.reserved = 1;
  stash_swapped* swapped = nullptr;
  refused(stash_swapper_out(swapper, x.data(), 16, &request, nullptr, &swapped),
          "stash_swapper_out: request.reserved: expected 0, got 1");
  stash_swapper_destroy(swapper);

  stash_plan_options planning = STASH_INIT(stash_plan_options);
  char* text = nullptr;
  planning.reserved = 1;
  refused(stash_plan("{}", &planning, &text), "stash_plan: options.reserved: expected 0, got 1");
  planning.reserved = 0;
  planning.any_order = 2;
  refused(stash_plan("{}", &planning, &text), "stash_plan: options.any_order: expected 0 or 1, got 2");
}

TEST(c_structs, shapes_name_the_argument_that_has_them) {
  const stash_encoding raw = c_encoding("raw");
  c_buffer buffer(16);
  stash_tensor_view view = c_view(nullptr, STASH_DTYPE_F32, {int64_t{1} << 32, int64_t{1} << 32});
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode: input: expected at most 2^56 elements, got 4294967296 x 4294967296");
  view.dims[1] = -3;
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode: input: expected no negative dimension, got -3");
  stash_handle* handle = nullptr;
  EXPECT_EQ(stash_handle_reserve(&raw, STASH_DTYPE_F32, 2, view.dims, nullptr, nullptr, &handle),
            STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_handle_reserve: dims: expected no negative dimension, got -3");
}

TEST(c_structs, numbers_out_of_range_are_refused_before_they_are_cut) {
  size_t bytes = 0;
  for (const int32_t wrong : {-1, 256, 261}) {  // 261 % 256 would be bitmap
    stash_encoding e = STASH_INIT(stash_encoding);
    e.kind = wrong;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT) << wrong;
    e = c_encoding("fp16");
    e.values = wrong;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT) << wrong;
    e = c_encoding("fp16");
    e.underflow = wrong;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT) << wrong;
    e = c_encoding("sign_mask");
    e.rule = wrong;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT) << wrong;
    e = c_encoding("window_index");
    e.window_taps = wrong == 256 ? 65'536 + 4 : wrong;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT) << wrong;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, wrong, 1, &bytes), STASH_INVALID_ARGUMENT) << wrong;
  }
  const std::vector<float> x(4, 1.0F);
  const stash_encoding raw = c_encoding("raw");
  c_buffer buffer(16);
  for (const int32_t rank : {-1, 9}) {
    stash_tensor_view view = c_view(x);
    view.rank = rank;
    EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  }
  stash_tensor_view view = c_view(x);
  view.space = STASH_SPACE_DEVICE;
  EXPECT_NE(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_OK);
  view.space = 256;
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
}

TEST(c_errors, messages_name_the_member) {
  const std::vector<float> x(4, 1.0F);
  std::vector<float> y(4);
  size_t bytes = 0;
  const auto of_encoding = [&](int32_t stash_encoding::*member, int32_t value) {
    stash_encoding e = c_encoding("bitmap");
    e.*member = value;
    EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_INVALID_ARGUMENT);
    return last_error();
  };
  const std::string start = "stash_encoded_bytes_bound: encoding.",
                    number = ": expected one of the header's numbers";
  EXPECT_EQ(of_encoding(&stash_encoding::kind, 256), start + "kind" + number + ", got 256");
  EXPECT_EQ(of_encoding(&stash_encoding::values, -1), start + "values" + number + ", got -1");
  EXPECT_EQ(of_encoding(&stash_encoding::underflow, 256), start + "underflow" + number + ", got 256");
  EXPECT_EQ(of_encoding(&stash_encoding::rule, 256), start + "rule" + number + ", got 256");
  EXPECT_EQ(of_encoding(&stash_encoding::window_taps, -1),
            start + "window_taps: expected 0 to 65535, got -1");

  const stash_encoding raw = c_encoding("raw");
  c_buffer buffer(16);
  stash_tensor_view view = c_view(x);
  view.type = 256;
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode: input.type: expected one of the header's numbers, got 256");
  view.type = 5;
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode: input.type: expected a type of the header, got 5");
  view = c_view(x);
  view.space = 256;
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode: input.space: expected one of the header's numbers, got 256");
  view = c_view(x);
  stash_execution_context context = STASH_INIT(stash_execution_context);
  context.space = 256;
  EXPECT_EQ(stash_encode(&raw, &view, &buffer.view, nullptr, &context), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode: context.space: expected one of the header's numbers, got 256");
  stash_overflow_arena arena = STASH_INIT(stash_overflow_arena);
  arena.struct_size = SIZE_MAX;
  stash_encoded_view with_arena = buffer.view;
  with_arena.overflow = &arena;
  EXPECT_EQ(stash_encode(&raw, &view, &with_arena, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error().find("stash_encode: output.overflow: expected struct_size of 32 to "), 0U)
      << last_error();
  stash_pool_window window = STASH_INIT(stash_pool_window);
  window.layout = 256;
  const stash_tensor_view to = c_view(y);
  EXPECT_EQ(stash_max_pool_forward(&view, &to, &window, nullptr, STASH_RULE_PYTORCH, nullptr),
            STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(),
            "stash_max_pool_forward: window.layout: expected one of the header's numbers, got 256");
  stash_memory_callbacks memory = STASH_INIT(stash_memory_callbacks);
  memory.space = 256;
  stash_handle_options options = STASH_INIT(stash_handle_options);
  options.memory = &memory;
  stash_handle* handle = nullptr;
  EXPECT_EQ(stash_handle_create(&raw, &view, &options, nullptr, &handle), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(),
            "stash_handle_create: options.memory.space: expected one of the header's numbers, got 256");
  memory.allocate = [](void*, size_t, size_t, void*) -> void* { return nullptr; };
  memory.deallocate = [](void*, void*, size_t, size_t, void*) {};
  memory.space = 9;
  EXPECT_EQ(stash_handle_create(&raw, &view, &options, nullptr, &handle), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(handle, nullptr);
}

TEST(c_errors, numbers_and_names_are_those_of_cpp) {
  for (int32_t code = 0; code <= 12; ++code)
    EXPECT_EQ(stash_errc_name(code), stash::to_string(static_cast<stash::errc>(code)));
  EXPECT_STREQ(stash_errc_name(STASH_INFEASIBLE_BUDGET), "infeasible_budget");
  EXPECT_STREQ(stash_errc_name(13), "unknown");
  EXPECT_STREQ(stash_errc_name(-1), "unknown");
  EXPECT_STREQ(stash_version(), STASH_VERSION_STRING);
}

TEST(c_errors, messages_belong_to_threads) {
  EXPECT_EQ(stash_set_cpu_target("mine"), STASH_INVALID_ARGUMENT);
  const std::string mine = last_error();
  std::thread other([] {
    EXPECT_STREQ(stash_last_error_message(), "");
    EXPECT_EQ(stash_set_cpu_target("theirs"), STASH_INVALID_ARGUMENT);
    EXPECT_NE(last_error().find("\"theirs\""), std::string::npos) << last_error();
  });
  other.join();
  EXPECT_EQ(last_error(), mine);
  EXPECT_NE(mine.find("\"mine\""), std::string::npos) << mine;
  size_t bytes = 0;
  const stash_encoding e = c_encoding("raw");
  EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 1, &bytes), STASH_OK);
  EXPECT_EQ(last_error(), mine) << "a call that succeeds leaves the text";
}

TEST(c_errors, long_messages_are_cut) {
  const std::string name(10'000, 'x');
  stash_encoding e = STASH_INIT(stash_encoding);
  EXPECT_EQ(stash_parse_encoding(name.c_str(), &e), STASH_INVALID_ARGUMENT);
  EXPECT_LE(last_error().size(), 4095U);
  EXPECT_EQ(e.kind, 0);
}

TEST(c_errors, long_names_are_cut_and_counted) {
  const std::string name(1'000'000, 'x');
  const std::string shown = std::string(160, 'x') + "... (1000000 bytes)";
  const auto said = [&](int32_t status) {
    EXPECT_NE(status, STASH_OK);
    const std::string text = last_error();
    EXPECT_NE(text.find(shown), std::string::npos) << text;
    EXPECT_EQ(text.find(std::string(161, 'x')), std::string::npos);
    EXPECT_LT(text.size(), 1000U);
  };
  stash_encoding e = STASH_INIT(stash_encoding);
  said(stash_parse_encoding(name.c_str(), &e));
  said(stash_set_cpu_target(name.c_str()));

  stash_plan_options planning = STASH_INIT(stash_plan_options);
  char* text = nullptr;
  for (const char* stash_plan_options::*member :
       {&stash_plan_options::policy, &stash_plan_options::values, &stash_plan_options::model}) {
    planning = STASH_INIT(stash_plan_options);
    planning.*member = name.c_str();
    said(stash_plan("{}", &planning, &text));
  }
  said(stash_plan((R"({"format":")" + name + "\"}").c_str(), nullptr, &text));
  said(stash_verify_plan((R"({"format":")" + name + "\"}").c_str(), nullptr));

  // Of tensors.
  const std::vector<float> x(4, 1.0F);
  const stash_tensor_view view = c_view(x), other = c_view(x.data(), STASH_DTYPE_F32, {3});
  const stash_encoding raw = c_encoding("raw");
  stash_handle_options options = STASH_INIT(stash_handle_options);
  options.name = name.c_str();
  stash_handle* handle = nullptr;
  ASSERT_EQ(stash_handle_create(&raw, &view, &options, nullptr, &handle), STASH_OK) << last_error();
  said(stash_handle_restore(handle, &other, nullptr));
  stash_handle_destroy(handle);
  stash_swapper* swapper = nullptr;
  stash_swapped* swapped = nullptr;
  ASSERT_EQ(stash_swapper_create(nullptr, &swapper), STASH_OK) << last_error();
  stash_swap_request request = STASH_INIT(stash_swap_request);
  request.name = name.c_str();
  ASSERT_EQ(stash_swapper_out(swapper, x.data(), 16, &request, nullptr, &swapped), STASH_OK);
  said(stash_swapped_take(swapped, nullptr, &handle));
  stash_swapped_destroy(swapped);
  stash_swapper_destroy(swapper);
}

}  // namespace
