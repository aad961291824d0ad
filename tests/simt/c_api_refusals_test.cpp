// SPDX-License-Identifier: Apache-2.0
// What calls of the non-owning C API say of wrong arguments on a device: the status and text of the header,
// before anything is launched.

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <sstream>
#include <string>

#include "simt/c_api_sides.hpp"

namespace {

using namespace stash_test;

constexpr std::int32_t rule = STASH_RULE_PYTORCH;

std::string text_of(const void* address) {
  std::ostringstream text;
  text << address;
  return text.str();
}

/// Calls that are refused before anything is launched, or recorded.
class device_c_api_refuses : public c_api_sides {
 protected:
  using call = std::function<std::int32_t(const stash_execution_context*)>;

  void expect_refused(const stash_execution_context* context, std::int32_t status, const std::string& text,
                      const call& make) {
    const std::size_t before = simt::launches_so_far();
    EXPECT_EQ(make(context), status);
    EXPECT_EQ(last_error(), text);
    const simt::recording recorded(&stream_, [&] { EXPECT_EQ(make(context), status); });
    recorded.launch();
    EXPECT_EQ(simt::launches_so_far(), before) << text;
    EXPECT_EQ(report_on_device(stored_).slot_bytes, 0U);
  }
  void expect_refused(std::int32_t status, const std::string& text, const call& make) {
    expect_refused(&context_, status, text, make);
  }

  std::int32_t encode(const stash_execution_context* c) {
    return stash_encode(&bitmap_, &x_.on_device, &stored_.on_device, &workspace_, c);
  }

  static constexpr std::int64_t elements_ = 3000;
  const stash_encoding bitmap_ = c_encoding("bitmap");
  map &x_ = map_of(STASH_DTYPE_F32, {elements_}, content::values),
      &y_ = map_of(STASH_DTYPE_F32, {elements_}, content::results);
  encoded_slot& stored_ = slot_of(std::size_t{1} << 14);
};

TEST_F(device_c_api_refuses, contexts_that_are_none) {
  const call encodes = [&](const stash_execution_context* c) { return encode(c); };
  const call pools = [&](const stash_execution_context* c) {
    const stash_pool_window window = STASH_INIT(stash_pool_window);
    return stash_max_pool_forward(&x_.on_device, &y_.on_device, &window, nullptr, rule, c);
  };
  stash_execution_context other = context_;
  for (const std::size_t size : {std::size_t{0}, offsetof(stash_execution_context, stream)}) {
    other.struct_size = size;
    const std::string text =
        ": context: expected struct_size of 40 to 1048576 (see STASH_INIT), got " + std::to_string(size);
    expect_refused(&other, STASH_INVALID_ARGUMENT, "stash_encode" + text, encodes);
    expect_refused(&other, STASH_INVALID_ARGUMENT, "stash_max_pool_forward" + text, pools);
  }
  struct newer_context {
    stash_execution_context known;
    std::uint64_t unknown;
  } newer{context_, 1};
  newer.known.struct_size = sizeof newer;
  expect_refused(&newer.known, STASH_INVALID_ARGUMENT,
                 "stash_encode: context: expected zero in the members that this version of the library does "
                 "not have, got 1 at byte 40",
                 encodes);
  other = context_;
  other.space = STASH_SPACE_PINNED_HOST;
  expect_refused(&other, STASH_INVALID_ARGUMENT,
                 "stash_encode: context: expected one of the host or of a device, got one of memory space 2",
                 encodes);
  other.space = 300;
  expect_refused(&other, STASH_INVALID_ARGUMENT,
                 "stash_encode: context.space: expected one of the header's numbers, got 300", encodes);
  other = context_;
  other.canonical = 2;
  expect_refused(&other, STASH_INVALID_ARGUMENT, "stash_encode: context.canonical: expected 0 or 1, got 2",
                 encodes);
  // No context is one of the host.
  expect_refused(nullptr, STASH_UNSUPPORTED, "stash_encode: input: expected host memory, got device memory",
                 encodes);
}

TEST_F(device_c_api_refuses, memory_of_the_host) {
  expect_refused(
      STASH_INVALID_ARGUMENT,
      "stash_encode: input: expected device memory, as the context says, got host memory",
      [&](const auto* c) { return stash_encode(&bitmap_, &x_.on_host, &stored_.on_device, &workspace_, c); });
  expect_refused(STASH_INVALID_ARGUMENT,
                 "stash_decode: output: expected device memory, as the context says, got host memory",
                 [&](const auto* c) {
                   return stash_decode(c_stored(bitmap_, &stored_.on_device, y_.on_host), &y_.on_host,
                                       nullptr, c);
                 });
  expect_refused(
      STASH_INVALID_ARGUMENT,
      "stash_relu_forward: y: expected device memory, as the context says, got host memory",
      [&](const auto* c) { return stash_relu_forward(&x_.on_device, &y_.on_host, nullptr, rule, c); });
  expect_refused(
      STASH_UNSUPPORTED,
      "stash_encoded_bytes_exact: context: expected a host context (on a device a size_query counts), "
      "got a device context",
      [&](const auto* c) {
        std::size_t bytes = 0;
        return stash_encoded_bytes_exact(&bitmap_, &x_.on_device, c, &bytes);
      });
}

TEST_F(device_c_api_refuses, too_little_space) {
  std::size_t needed = 0;
  expect_ok(stash_workspace_bytes(&bitmap_, STASH_DTYPE_F32, elements_, &context_, &needed));
  expect_refused(
      STASH_CAPACITY_EXCEEDED, "stash_encode: workspace: expected at least 16 bytes, got 0",
      [&](const auto* c) { return stash_encode(&bitmap_, &x_.on_device, &stored_.on_device, nullptr, c); });
  stash_workspace_view small = workspace_;
  small.bytes = needed - 1;
  expect_refused(
      STASH_CAPACITY_EXCEEDED, "stash_encode: workspace: expected at least 16 bytes, got 15",
      [&](const auto* c) { return stash_encode(&bitmap_, &x_.on_device, &stored_.on_device, &small, c); });
  const stash_encoding raw = c_encoding("raw");
  stash_encoded_view slot = stored_.on_device;
  constexpr std::size_t raw_bytes = elements_ * 4;
  slot.bytes = raw_bytes - 1;
  expect_refused(STASH_CAPACITY_EXCEEDED, "stash_encode: output: expected at least 12000 bytes, got 11999",
                 [&](const auto* c) { return stash_encode(&raw, &x_.on_device, &slot, nullptr, c); });
  const stash_batch_item items[] = {{sizeof(stash_batch_item), &bitmap_, &x_.on_device, &stored_.on_device},
                                    {sizeof(stash_batch_item), &raw, &x_.on_device, &slot}};
  expect_refused(STASH_CAPACITY_EXCEEDED,
                 "stash_encode_batch: items[1].encoded: expected at least 12000 bytes, got 11999",
                 [&](const auto* c) { return stash_encode_batch(items, 2, &workspace_, c); });
  slot = stored_.on_device;
  slot.data = x_.bytes.device;
  const std::string range = text_of(slot.data) + " to " + text_of(x_.bytes.device + raw_bytes);
  expect_refused(
      STASH_INVALID_ARGUMENT,
      "stash_encode: output: expected memory apart from input, got " + range + ", which overlaps " + range,
      [&](const auto* c) { return stash_encode(&raw, &x_.on_device, &slot, nullptr, c); });
  slot = stored_.on_device;
  slot.data = stored_.bytes.device + 8;
  expect_refused(STASH_INVALID_ARGUMENT,
                 "stash_encode: output: expected data aligned to 16 bytes, got " + text_of(slot.data),
                 [&](const auto* c) { return stash_encode(&bitmap_, &x_.on_device, &slot, &workspace_, c); });
  slot = stored_.on_device;
  slot.report = nullptr;
  expect_refused(STASH_INVALID_ARGUMENT, "stash_encode: output: expected a report, got null",
                 [&](const auto* c) { return stash_encode(&bitmap_, &x_.on_device, &slot, &workspace_, c); });
}

TEST_F(device_c_api_refuses, layers_that_do_not_fit) {
  const map &wide = map_of(STASH_DTYPE_F32, {1, 4, 4, 8}, content::values),
            &small = map_of(STASH_DTYPE_F32, {1, 2, 3, 8}, content::results),
            &pooled = map_of(STASH_DTYPE_F32, {1, 2, 2, 8}, content::results);
  stash_encoded_view none = stored_.on_device;
  none.bytes = 15;
  stash_pool_window window = STASH_INIT(stash_pool_window);
  expect_refused(
      STASH_INVALID_ARGUMENT,
      "stash_max_pool_forward: window: expected width with at least one tap of x in every window, got "
      "kernel 2, stride 2, padding 0, dilation 1 for 4 -> 3",
      [&](const auto* c) {
        return stash_max_pool_forward(&wide.on_device, &small.on_device, &window, nullptr, rule, c);
      });
  expect_refused(STASH_CAPACITY_EXCEEDED,
                 "stash_relu_max_pool_forward: code: expected at least 32 bytes, got 15", [&](const auto* c) {
                   return stash_relu_max_pool_forward(&wide.on_device, &pooled.on_device, &window, &none,
                                                      nullptr, rule, c);
                 });
  expect_refused(STASH_CAPACITY_EXCEEDED,
                 "stash_max_pool_backward: index: expected at least 16 bytes, got 15", [&](const auto* c) {
                   return stash_max_pool_backward(
                       &pooled.on_device,
                       c_stored(c_codes(STASH_KIND_WINDOW_INDEX, window), &none, pooled.on_device),
                       &wide.on_device, &window, c);
                 });
  expect_refused(
      STASH_INVALID_ARGUMENT, "stash_relu_forward: rule: expected a known framework rule, got 5",
      [&](const auto* c) { return stash_relu_forward(&x_.on_device, &y_.on_device, nullptr, 5, c); });
  expect_refused(
      STASH_INVALID_ARGUMENT, "stash_relu_backward: stash: expected a structure, got null",
      [&](const auto* c) { return stash_relu_backward(&x_.on_device, nullptr, &y_.on_device, rule, c); });
  stash_dropout_key key = STASH_INIT(stash_dropout_key);
  expect_refused(STASH_INVALID_ARGUMENT,
                 "stash_dropout_forward: probability: expected at least 0 and below 1, got 1",
                 [&](const auto* c) {
                   return stash_dropout_forward(&x_.on_device, &y_.on_device, nullptr, 1.0F, &key, c);
                 });
  key.struct_size = 0;
  expect_refused(
      STASH_INVALID_ARGUMENT,
      "stash_dropout_backward_key: key: expected struct_size of 32 to 1048576 (see STASH_INIT), got 0",
      [&](const auto* c) { return stash_dropout_backward_key(&x_.on_device, &y_.on_device, 0.5F, &key, c); });
}

}  // namespace
