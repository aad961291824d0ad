// What a caller learns who asks for a device where there is no driver. Built with the CUDA back end, linked
// as users link it, and skipped where a device answers.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stash/batch.hpp"
#include "stash/encoding.hpp"
#include "stash/error.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

constexpr execution_context device{memory_space::device};
constexpr std::int64_t elements = 3000;

class no_driver : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) GTEST_SKIP() << "there is a device";
  }

  tensor_view map(memory_space space = memory_space::device) {
    return {values_.data(), dtype::f32, space, shape{elements}};
  }
  encoded_view out() { return {words_.data(), words_.size() * 8, nullptr, &report_}; }
  const_encoded_view in() { return {words_.data(), words_.size() * 8, nullptr, &report_}; }

  static void expect_failure(const std::string& function, const std::function<void()>& call) {
    SCOPED_TRACE(function);
    try {
      call();
      FAIL() << "no error";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::device_failure);
      const std::string expected = function + ": context: expected a device that runs kernels, got cudaError";
      EXPECT_EQ(std::string(e.what()).substr(0, expected.size()), expected);
    }
  }

 private:
  std::vector<float> values_ = std::vector<float>(elements, 1.5F);
  // Two words for a value: more than any encoding needs, and aligned to 16 bytes by the allocator.
  std::vector<std::uint64_t> words_ = std::vector<std::uint64_t>(2 * elements);
  encode_report report_{};
};

TEST_F(no_driver, every_encoding_says_so) {
  for (const char* name : {"raw", "sign_mask", "range_mask", "fp16", "mxfp4_e2m1", "bitmap", "csr_fp8"}) {
    SCOPED_TRACE(name);
    const encoding e = parse_encoding(name);
    expect_failure("encode", [&] { encode(e, map(), out(), {}, device); });
    std::vector<std::uint8_t> bytes(elements);
    tensor_view target = map();
    if (e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask) {
      target.data = bytes.data();
      target.type = dtype::u8;
    }
    expect_failure("decode", [&] { decode(e, in(), target, {}, device); });
  }
}

TEST_F(no_driver, every_layer_says_so) {
  const encoding mask = parse_encoding("sign_mask");
  constexpr framework_rule rule = framework_rule::tensorflow;
  expect_failure("relu_forward", [&] { relu_forward(map(), map(), out(), rule, device); });
  expect_failure("relu_backward", [&] { relu_backward(map(), mask, in(), map(), rule, device); });
  expect_failure("relu_backward", [&] { relu_backward(map(), map(), map(), rule, device); });
  expect_failure("leaky_relu_forward", [&] { leaky_relu_forward(map(), map(), out(), 0.1F, device); });
  expect_failure("leaky_relu_backward", [&] { leaky_relu_backward(map(), mask, in(), map(), 0.1F, device); });
  expect_failure("clip_forward", [&] { clip_forward(map(), map(), out(), 0, 6, rule, device); });
  expect_failure("clip_backward", [&] { clip_backward(map(), map(), map(), 0, 6, rule, device); });
}

TEST_F(no_driver, the_first_item_of_a_batch_says_so) {
  const encode_item item{parse_encoding("raw"), map(), out()};
  expect_failure("encode_batch", [&] { encode_batch(std::vector{item, item}, {}, device); });
}

/// Wrong arguments are found first, and the host goes on working.
TEST_F(no_driver, nothing_else_changes) {
  const encoding e = parse_encoding("raw");
  encoded_view small = out();
  small.bytes = 16;
  try {
    encode(e, map(), small, {}, device);
    FAIL() << "no error";
  } catch (const error& caught) {
    EXPECT_EQ(caught.code(), errc::capacity_exceeded);
  }
  expect_failure("encode", [&] { encode(e, map(), out(), {}, device); });
  EXPECT_NO_THROW(encode(e, map(memory_space::host), out(), {}, {}));
  EXPECT_NO_THROW(decode(e, in(), map(memory_space::host), {}, {}));
}

}  // namespace
}  // namespace stash
