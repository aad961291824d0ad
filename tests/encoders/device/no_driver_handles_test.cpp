// SPDX-License-Identifier: Apache-2.0
// Objects that own memory, and the C API, where there is no driver.

#include "c_api/support.hpp"
#include "encoders/device/no_driver.hpp"
#include "stash/memory.hpp"
#include "stash/size_query.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/swap.hpp"

namespace stash {
namespace {

using stash_test::elements;
using stash_test::heap_bytes;
using stash_test::no_driver;
using stash_test::on_device;

/// Memory of a caller who has a device's, or thinks so: one block at a time.
class callers_memory {
 public:
  explicit callers_memory(memory_space space) : calls_({this, take, [](auto...) {}, space}) {}
  callers_memory(const callers_memory&) = delete;
  callers_memory& operator=(const callers_memory&) = delete;

 private:
  static void* take(void* self, std::size_t bytes, std::size_t, void*) {
    auto& memory = *static_cast<callers_memory*>(self);
    return bytes > sizeof memory.storage_ || memory.counted.blocks_in_use() > 0 ? nullptr : memory.storage_;
  }

  alignas(256) unsigned char storage_[1 << 16];
  callback_memory calls_;

 public:
  counting_memory counted{calls_};
};

TEST_F(no_driver, memory_says_so) {
  expect_failure("device_memory", [] { device_memory().allocate(64, 64); });
  expect_failure("pinned_memory", [] { pinned_memory().allocate(64, 64); });
}

TEST_F(no_driver, stashed_tensors_say_so) {
  callers_memory callers(memory_space::device);
  for (const char* name : {"raw", "sign_mask", "fp8", "bitmap", "csr"}) {
    SCOPED_TRACE(name);
    const encoding e = parse_encoding(name);
    expect_failure("device_memory", [&] { stashed_tensor(e, map(), {}, on_device); });
    expect_failure("device_memory", [&] { stashed_tensor(e, map(), {.capacity = 1 << 16}, on_device); });
    expect_failure("device_memory",
                   [&] { stashed_tensor::reserve(e, dtype::f32, shape{elements}, {}, on_device); });
    // With the caller's memory the first call of the runtime comes later.
    const stash_options options{.memory = &callers.counted};
    expect_failure("clear", [&] { stashed_tensor(e, map(), options, on_device); });
    expect_failure("clear",
                   [&] { stashed_tensor::reserve(e, dtype::f32, shape{elements}, options, on_device); });
    EXPECT_EQ(callers.counted.blocks_in_use(), 0U);
  }
  EXPECT_GT(callers.counted.peak_bytes(), 0U);
}

TEST_F(no_driver, size_queries_say_so) {
  encode_report report{};
  expect_failure("encoded_bytes", [&] { size_query(parse_encoding("bitmap"), map(), &report, on_device); });
  expect_failure("pinned_memory", [&] {
    size_query({parse_encoding("csr"), dtype::f32, {elements}, in()}, on_device);
  });
}

TEST_F(no_driver, swappers_say_so) {
  callers_memory device(memory_space::device), pinned(memory_space::pinned_host);
  swapper_options options{.space = memory_space::device};
  expect_failure("stream", [&] { swapper made(options); });
  options.host = &pinned.counted;
  options.memory = &device.counted;
  expect_failure("stream", [&] { swapper made(options); });
  EXPECT_EQ(device.counted.blocks_in_use() + pinned.counted.blocks_in_use(), 0U);
}

class no_driver_c_api : public no_driver {
 protected:
  no_driver_c_api() {
    context.space = STASH_SPACE_DEVICE;
    for (stash_tensor_view* view : {&x, &y})
      view->space = STASH_SPACE_DEVICE;
  }
  static void expect_refused(const std::string& function, const std::function<int32_t()>& call) {
    SCOPED_TRACE(function);
    const std::string expected = expected_text("stash_" + function);
    const auto fails = [&] {
      EXPECT_EQ(call(), STASH_DEVICE_FAILURE);
      EXPECT_EQ(stash_test::last_error().substr(0, expected.size()), expected);
    };
    fails();
    const std::size_t before = heap_bytes();
    fails();
    EXPECT_EQ(heap_bytes(), before);
  }

  std::vector<float> values = std::vector<float>(elements, 1.5F), others = values;
  stash_tensor_view x = stash_test::c_view(values), y = stash_test::c_view(others);
  stash_test::c_buffer buffer{8 * elements}, other{8 * elements};
  stash_execution_context context = STASH_INIT(stash_execution_context);
};

TEST_F(no_driver_c_api, calls_say_so) {
  const stash_encoding e = stash_test::c_encoding("csr"), mask = stash_test::c_encoding("sign_mask");
  expect_refused("encode", [&] { return stash_encode(&e, &x, &buffer.view, nullptr, &context); });
  expect_refused("decode", [&] {
    return stash_decode(stash_test::c_stored(e, &buffer.view, y), &y, nullptr, &context);
  });
  expect_refused("canonicalise", [&] {
    return stash_canonicalise(stash_test::c_stored(e, &buffer.view, x), &other.view, &context);
  });
  stash_batch_item item = STASH_INIT(stash_batch_item);
  item.encoding = &e;
  item.dense = &x;
  item.encoded = &buffer.view;
  expect_refused("encode_batch", [&] { return stash_encode_batch(&item, 1, nullptr, &context); });
  expect_refused("decode_batch", [&] { return stash_decode_batch(&item, 1, nullptr, &context); });
  std::vector<uint32_t> offsets(elements), columns(elements);
  stash_csr32_view csr = STASH_INIT(stash_csr32_view);
  csr.row_offsets = offsets.data();
  csr.columns = columns.data();
  csr.values = others.data();
  csr.capacity = elements;
  csr.type = STASH_DTYPE_F32;
  int64_t nonzeros = -7;
  expect_refused("csr_export32", [&] {
    return stash_csr_export32(stash_test::c_stored(e, &buffer.view, x), &csr, &context, &nonzeros);
  });
  EXPECT_EQ(nonzeros, -7);
  expect_refused("relu_forward",
                 [&] { return stash_relu_forward(&x, &y, &buffer.view, STASH_RULE_TENSORFLOW, &context); });
  expect_refused("relu_backward", [&] {
    return stash_relu_backward(&x, stash_test::c_stored(mask, &buffer.view, x), &y, STASH_RULE_TENSORFLOW,
                               &context);
  });
  stash_dropout_key key = STASH_INIT(stash_dropout_key);
  expect_refused("dropout_forward",
                 [&] { return stash_dropout_forward(&x, &y, &buffer.view, 0.5F, &key, &context); });
  stash_pool_window window = STASH_INIT(stash_pool_window);
  window.kernel_h = window.kernel_w = window.stride_h = window.stride_w = 2;
  window.kernel_d = window.stride_d = window.dilation_h = window.dilation_w = window.dilation_d = 1;
  stash_tensor_view map = stash_test::c_view(values.data(), STASH_DTYPE_F32, {1, 4, 4, 8});
  stash_tensor_view pooled = stash_test::c_view(others.data(), STASH_DTYPE_F32, {1, 2, 2, 8});
  map.space = pooled.space = STASH_SPACE_DEVICE;
  expect_refused("max_pool_forward", [&] {
    return stash_max_pool_forward(&map, &pooled, &window, &buffer.view, STASH_RULE_TENSORFLOW, &context);
  });
  expect_refused("max_pool_backward", [&] {
    return stash_max_pool_backward(
        &pooled,
        stash_test::c_stored(stash_test::c_codes(STASH_KIND_WINDOW_INDEX, window), &buffer.view, pooled),
        &map, &window, &context);
  });
}

TEST_F(no_driver_c_api, handles_are_not_made) {
  const stash_encoding e = stash_test::c_encoding("bitmap");
  stash_handle* handle = nullptr;
  expect_refused("handle_create", [&] { return stash_handle_create(&e, &x, nullptr, &context, &handle); });
  const int64_t dims[] = {elements};
  expect_refused("handle_reserve", [&] {
    return stash_handle_reserve(&e, STASH_DTYPE_F32, 1, dims, nullptr, &context, &handle);
  });
  EXPECT_EQ(handle, nullptr);
  stash_size_query* query = nullptr;
  expect_refused("size_query_count",
                 [&] { return stash_size_query_count(&e, &x, &buffer.report, &context, &query); });
  EXPECT_EQ(query, nullptr);
  stash_swapper_options options = STASH_INIT(stash_swapper_options);
  options.space = STASH_SPACE_DEVICE;
  stash_swapper* swapper = nullptr;
  expect_refused("swapper_create", [&] { return stash_swapper_create(&options, &swapper); });
  EXPECT_EQ(swapper, nullptr);
}

}  // namespace
}  // namespace stash
