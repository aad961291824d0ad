// SPDX-License-Identifier: Apache-2.0
// Non-owning calls where there is no driver.

#include "encoders/device/no_driver.hpp"

#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using stash_test::elements;
using stash_test::no_driver;
using stash_test::on_device;

constexpr framework_rule rule = framework_rule::tensorflow;

TEST_F(no_driver, every_encoding_says_so) {
  for (const char* name : {"raw", "sign_mask", "range_mask", "fp16", "mxfp4_e2m1", "bitmap", "csr_fp8"}) {
    SCOPED_TRACE(name);
    const encoding e = parse_encoding(name);
    expect_failure("encode", [&] { encode(e, map(), out(), {}, on_device); });
    std::vector<std::uint8_t> bytes(elements);
    tensor_view target = map();
    if (e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask) {
      target.data = bytes.data();
      target.type = dtype::u8;
    }
    expect_failure("decode", [&] { decode({e, target.type, target.dims, in()}, target, {}, on_device); });
    expect_failure("canonicalise", [&] {
      canonicalise({e, dtype::f32, {elements}, in()}, other_out(), on_device);
    });
  }
}

TEST_F(no_driver, tiles_in_order_say_so) {
  execution_context ordered = on_device;
  ordered.canonical = true;
  const encoding e = parse_encoding("bitmap");
  const std::size_t bytes = workspace_bytes(e, dtype::f32, elements, ordered);
  alignas(64) std::uint8_t workspace[1024];
  ASSERT_LE(bytes, sizeof workspace);
  expect_failure("encode", [&] { encode(e, map(), out(), {workspace, bytes}, ordered); });
}

TEST_F(no_driver, the_export_of_csr_says_so) {
  std::vector<std::uint32_t> offsets(elements), columns(elements);
  std::vector<float> values(elements);
  for (const char* name : {"csr", "csr_fp8"}) {
    expect_failure("csr_export32", [&] {
      csr_export32({parse_encoding(name), dtype::f32, {elements}, in()},
                   {offsets.data(), columns.data(), values.data(), dtype::f32, elements}, on_device);
    });
  }
}

TEST_F(no_driver, every_activation_says_so) {
  const encoding mask = parse_encoding("sign_mask");
  expect_failure("relu_forward", [&] { relu_forward(map(), map(), out(), rule, on_device); });
  expect_failure("relu_backward", [&] {
    relu_backward(map(), {mask, map().type, map().dims, in()}, map(), rule, on_device);
  });
  expect_failure("relu_backward", [&] { relu_backward(map(), other_map(), map(), rule, on_device); });
  expect_failure("leaky_relu_forward", [&] { leaky_relu_forward(map(), map(), out(), 0.1F, on_device); });
  expect_failure("leaky_relu_backward", [&] {
    leaky_relu_backward(map(), {mask, map().type, map().dims, in()}, map(), 0.1F, on_device);
  });
  expect_failure("clip_forward", [&] { clip_forward(map(), map(), out(), 0, 6, rule, on_device); });
  expect_failure("clip_backward", [&] { clip_backward(map(), other_map(), map(), 0, 6, rule, on_device); });
}

TEST_F(no_driver, dropout_says_so) {
  constexpr dropout_key key{1, 2, 3};
  expect_failure("dropout_forward", [&] { dropout_forward(map(), map(), out(), 0.5F, key, on_device); });
  expect_failure("dropout_forward", [&] { dropout_forward(map(), map(), {}, 0.5F, key, on_device); });
  expect_failure("dropout_backward", [&] {
    dropout_backward(map(), {parse_encoding("sign_mask"), map().type, map().dims, in()}, map(), 0.5F,
                     on_device);
  });
  expect_failure("dropout_backward", [&] { dropout_backward(map(), map(), 0.5F, key, on_device); });
}

TEST_F(no_driver, pooling_says_so) {
  constexpr pool_window halves, overlapping{3, 3, 2, 2, 1, 1};
  pool_window first = halves;
  first.layout = pool_layout::channels_first;
  struct layer {
    pool_window window;
    shape x, y;
  };
  const char *const alone = "max_pool_backward", *const with_relu = "relu_max_pool_backward";
  // Kernels of both widths, and those for channels that come first.
  for (const layer& l :
       {layer{halves, {1, 4, 4, 16}, {1, 2, 2, 16}}, layer{halves, {1, 4, 4, 3}, {1, 2, 2, 3}},
        layer{overlapping, {1, 4, 4, 8}, {1, 2, 2, 8}}, layer{first, {1, 2, 4, 4}, {1, 2, 2, 2}}}) {
    std::vector<float> pooled(1000);
    const tensor_view x = map(l.x), y{pooled.data(), dtype::f32, memory_space::device, l.y};
    const pool_window& w = l.window;
    expect_failure("max_pool_forward", [&] { max_pool_forward(x, y, w, out(), rule, on_device); });
    expect_failure(alone, [&] {
      max_pool_backward(y, {window_index_of(w), y.type, y.dims, in()}, x, w, on_device);
    });
    std::vector<float> other(1000);
    tensor_view dx = x;
    dx.data = other.data();
    expect_failure(alone, [&] { max_pool_backward(y, x, dx, w, rule, on_device); });
    expect_failure("relu_max_pool_forward",
                   [&] { relu_max_pool_forward(x, y, w, out(), other_out(), rule, on_device); });
    expect_failure(with_relu, [&] {
      relu_max_pool_backward(y, {relu_pool_of(w), y.type, y.dims, in()}, x, w, on_device);
    });
    const encoded_view kept = other_out();
    const const_encoded_view stash{kept.data, kept.bytes, nullptr, kept.report};
    for (const char* name : {"sign_mask", "raw", "fp8", "bitmap", "csr"}) {
      encoding e = parse_encoding(name);
      e.underflow = underflow_rule::keep_nonzero;
      expect_failure(with_relu, [&] {
        relu_max_pool_backward(y, {window_index_of(w), y.type, y.dims, in()}, {e, y.type, y.dims, stash}, x,
                               w, rule, on_device);
      });
    }
    expect_failure(with_relu, [&] { relu_max_pool_backward(y, x, dx, w, rule, on_device); });
  }
}

TEST_F(no_driver, the_first_item_of_a_batch_says_so) {
  for (const char* name : {"raw", "bitmap"}) {
    const encoding e = parse_encoding(name);
    const std::vector<encode_item> to_encode{{e, map(), out()}, {e, map(), other_out()}};
    const std::vector<decode_item> to_decode{{{e, map().type, map().dims, in()}, map()},
                                             {{e, map().type, map().dims, in()}, other_map()}};
    expect_failure("encode_batch", [&] { encode_batch(to_encode, {}, on_device); });
    expect_failure("decode_batch", [&] { decode_batch(to_decode, {}, on_device); });
  }
}

/// Wrong arguments are found first, and the host goes on working.
TEST_F(no_driver, nothing_else_changes) {
  const encoding e = parse_encoding("raw");
  encoded_view small = out();
  small.bytes = 16;
  try {
    encode(e, map(), small, {}, on_device);
    FAIL() << "no error";
  } catch (const error& caught) {
    EXPECT_EQ(caught.code(), errc::capacity_exceeded);
  }
  expect_failure("encode", [&] { encode(e, map(), out(), {}, on_device); });
  EXPECT_NO_THROW(encode(e, map(memory_space::host), out(), {}, {}));
  EXPECT_NO_THROW(decode({e, map(memory_space::host).type, map(memory_space::host).dims, in()},
                         map(memory_space::host), {}, {}));
}

}  // namespace
}  // namespace stash
