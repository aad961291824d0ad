// SPDX-License-Identifier: Apache-2.0
// Wrong arguments: the exact error code, before anything is written.

#include <gtest/gtest.h>

#include <functional>

#include "encoders/support.hpp"
#include "stash/csr.hpp"
#include "stash/relu.hpp"

namespace {

using namespace stash;
using namespace stash_test;

class arguments : public ::testing::Test {
 protected:
  static constexpr std::int64_t count = 40;
  const_tensor_view input() const { return view_of(values); }
  encoded_view output(std::size_t bytes = 512) { return {slot.data(), bytes, nullptr, &report}; }
  const_encoded_view stored(std::size_t bytes = 512) { return {slot.data(), bytes, nullptr, &report}; }
  tensor_view target() { return view_of(values); }
  errc encoding_code(const encoding& e, const const_tensor_view& view, const encoded_view& to,
                     const execution_context& context = {}) {
    const std::vector<std::uint8_t> before = slot.copy();
    const errc code = code_of([&] { encode(e, view, to, {}, context); });
    if (code != errc::ok) {
      EXPECT_EQ(slot.copy(), before);
      EXPECT_EQ(report.slot_bytes, 0u);
      EXPECT_EQ(report.status, 0u);
    }
    report = {};
    return code;
  }
  errc decoding_code(const encoding& e, const const_encoded_view& from, const tensor_view& view,
                     const execution_context& context = {}) {
    const std::vector<float> before = values;
    const errc code = code_of([&] { decode({e, view.type, view.dims, from}, view, {}, context); });
    if (code != errc::ok) {
      EXPECT_EQ(values, before);
    }
    report = {};
    return code;
  }

  std::vector<float> values = std::vector<float>(count, 1.0f);
  guarded_buffer slot{512};
  encode_report report;
};

const char* const value_encodings[] = {"raw",    "sign_mask",   "fp16",      "fp8",
                                       "bitmap", "bitmap_fp16", "bitmap_fp8"};

TEST_F(arguments, good_ones_are_accepted) {
  for (const char* name : value_encodings) {
    EXPECT_EQ(encoding_code(parse_encoding(name), input(), output()), errc::ok) << name;
  }
}

TEST_F(arguments, views) {
  for (const char* name : value_encodings) {
    const encoding e = parse_encoding(name);
    const_tensor_view view = input();
    view.space = memory_space::device;
    EXPECT_EQ(encoding_code(e, view, output()), errc::unsupported) << name;
    view = input();
    view.data = nullptr;
    EXPECT_EQ(encoding_code(e, view, output()), errc::invalid_argument) << name;
    view = input();
    view.data = reinterpret_cast<const char*>(values.data()) + 2;
    EXPECT_EQ(encoding_code(e, view, output()), errc::invalid_argument) << name;
    view = input();
    view.pixel_pitch = count - 1;
    EXPECT_EQ(encoding_code(e, view, output()), errc::invalid_argument) << name;
    view.pixel_pitch = -1;
    EXPECT_EQ(encoding_code(e, view, output()), errc::invalid_argument) << name;
    view.dims = shape{40, 1};
    view.pixel_pitch = std::int64_t{1} << 60;
    EXPECT_EQ(encoding_code(e, view, output()), errc::invalid_argument) << name;
    execution_context context;
    context.space = memory_space::device;
    EXPECT_EQ(encoding_code(e, input(), output(), context), errc::unsupported) << name;
    EXPECT_EQ(decoding_code(e, stored(), target(), context), errc::unsupported) << name;
  }
}

TEST_F(arguments, contexts_are_of_the_host_or_of_a_device) {
  for (const int space : {2, 3, 200}) {
    execution_context context;
    context.space = static_cast<memory_space>(space);
    for (const memory_space where : {memory_space::host, memory_space::device, context.space}) {
      const_tensor_view from = input();
      tensor_view to = target();
      from.space = to.space = where;
      for (const char* name : value_encodings) {
        const encoding e = parse_encoding(name);
        EXPECT_EQ(encoding_code(e, from, output(), context), errc::invalid_argument) << name << space;
        EXPECT_EQ(decoding_code(e, stored(), to, context), errc::invalid_argument) << name << space;
        EXPECT_EQ(code_of([&] { encoded_bytes_exact(e, from, context); }), errc::invalid_argument) << name;
      }
      EXPECT_EQ(code_of([&] { relu_forward(from, to, output(), framework_rule::pytorch, context); }),
                errc::invalid_argument);
    }
    EXPECT_EQ(code_of([&] {
                canonicalise({parse_encoding("raw"), dtype::f32, {count}, stored(256)}, output(), context);
              }),
              errc::invalid_argument);
  }
}

TEST_F(arguments, types) {
  const_tensor_view view = input();
  view.type = dtype::s32;
  EXPECT_EQ(encoding_code(parse_encoding("raw"), view, output()), errc::ok);
  EXPECT_EQ(encoding_code(parse_encoding("bitmap"), view, output()), errc::invalid_argument);
  EXPECT_EQ(encoding_code(parse_encoding("fp16"), view, output()), errc::invalid_argument);
  EXPECT_EQ(encoding_code(parse_encoding("sign_mask"), view, output()), errc::invalid_argument);
  view.type = dtype::f16;
  EXPECT_EQ(encoding_code(parse_encoding("raw"), view, output()), errc::ok);
  for (const char* const mask : {"sign_mask", "range_mask"}) {
    const encoding e = parse_encoding(mask);
    EXPECT_EQ(decoding_code(e, stored(), target()), errc::ok) << mask;
    tensor_view integers = target();
    integers.type = dtype::s32;
    EXPECT_EQ(decoding_code(e, stored(), integers), errc::invalid_argument) << mask;
    EXPECT_EQ(message_of([&] {
                decode({e, integers.type, integers.dims, stored()}, integers, {}, {});
              }),
              std::string("decode: output: expected a type that ") + mask +
                  " decodes to (u8, f32, f16 or bf16), got s32");
  }
}

TEST_F(arguments, kinds) {
  encoding index = parse_encoding("window_index");
  index.window_taps = 4;
  encoding joint = parse_encoding("relu_pool");
  joint.window_taps = 4;
  EXPECT_EQ(encoding_code(index, input(), output()), errc::unsupported);
  EXPECT_EQ(encoding_code(joint, input(), output()), errc::unsupported);
  EXPECT_EQ(decoding_code(index, stored(), target()), errc::unsupported);
  EXPECT_EQ(decoding_code(joint, stored(), target()), errc::unsupported);
  EXPECT_EQ(decoding_code(parse_encoding("shape_only"), stored(), target()), errc::unsupported);
  EXPECT_EQ(encoding_code(encoding{encoding_kind::cast}, input(), output()), errc::invalid_argument);
  encoding mask = parse_encoding("sign_mask");
  mask.rule = static_cast<framework_rule>(7);
  EXPECT_EQ(encoding_code(mask, input(), output()), errc::invalid_argument);
}

TEST_F(arguments, encoded_bytes) {
  for (const char* name : value_encodings) {
    const encoding e = parse_encoding(name);
    const std::size_t fixed = encoded_bytes_at_density(e, dtype::f32, count, 0);
    EXPECT_EQ(encoding_code(e, input(), output(fixed)), errc::ok) << name;
    EXPECT_EQ(encoding_code(e, input(), output(fixed - 1)), errc::capacity_exceeded) << name;
    encoded_view to = output();
    to.report = nullptr;
    EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument) << name;
    to = output();
    to.data = nullptr;
    EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument) << name;
    to = output();
    to.data = slot.data() + 8;
    EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument) << name;

    std::vector<std::uint8_t> flags(count);
    const tensor_view to_view = e.kind == encoding_kind::sign_mask ? view_of(flags) : target();
    EXPECT_EQ(decoding_code(e, stored(fixed - 1), to_view), errc::capacity_exceeded) << name;
    const_encoded_view from = stored();
    from.report = nullptr;
    EXPECT_EQ(decoding_code(e, from, to_view), errc::invalid_argument) << name;
    from = stored();
    from.data = slot.data() + 4;
    EXPECT_EQ(decoding_code(e, from, to_view), errc::invalid_argument) << name;
  }
}

TEST_F(arguments, arena) {
  const encoding e = parse_encoding("bitmap");
  std::uint64_t claimed = 0;
  guarded_buffer memory(64);
  overflow_arena arena{memory.data(), 64, &claimed};
  encoded_view to = output();
  to.overflow = &arena;
  EXPECT_EQ(encoding_code(e, input(), to), errc::ok);
  arena.claimed = nullptr;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  arena.claimed = &claimed;
  arena.data = nullptr;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  arena.data = memory.data() + 8;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  arena.data = memory.data();
  claimed = 8;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
}

TEST_F(arguments, host_overflow) {
  const encoding e = parse_encoding("bitmap");
  std::uint64_t claimed = 0;
  std::uint64_t host_claimed = 0;
  guarded_buffer memory(128);
  overflow_arena arena{memory.data(), 64, &claimed, memory.data() + 64, 64, &host_claimed};
  encoded_view to = output();
  to.overflow = &arena;
  EXPECT_EQ(encoding_code(e, input(), to), errc::ok);
  arena.host_data = nullptr;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  arena.host_data = memory.data() + 8;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  arena.host_data = memory.data() + 64;
  host_claimed = 8;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  host_claimed = 0;
  arena.host_claimed = nullptr;  // but there are bytes
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  arena.host_bytes = 0;
  EXPECT_EQ(encoding_code(e, input(), to), errc::ok);
  // The host overflow alone.
  arena = {nullptr, 0, nullptr, memory.data(), 64, &host_claimed};
  EXPECT_EQ(encoding_code(e, input(), to), errc::ok);
  arena.bytes = 16;
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
  // Neither.
  arena = {};
  EXPECT_EQ(encoding_code(e, input(), to), errc::invalid_argument);
}

TEST_F(arguments, relu) {
  const framework_rule rule = framework_rule::tensorflow;
  std::vector<float> y(count);
  std::vector<float> shorter(count - 1);
  const auto forward = [&](const const_tensor_view& x, const tensor_view& to, const encoded_view& mask,
                           framework_rule with = framework_rule::tensorflow) {
    return code_of([&] { relu_forward(x, to, mask, with, {}); });
  };
  EXPECT_EQ(forward(input(), view_of(y), {}), errc::ok);
  EXPECT_EQ(forward(input(), view_of(shorter), {}), errc::invalid_argument);
  EXPECT_EQ(forward(input(), view_of(y), {}, static_cast<framework_rule>(3)), errc::invalid_argument);
  EXPECT_EQ(forward(input(), view_of(y), output(15)), errc::capacity_exceeded);
  encoded_view mask = output();
  mask.report = nullptr;
  EXPECT_EQ(forward(input(), view_of(y), mask), errc::invalid_argument);

  const auto backward = [&](const encoding& e, const const_encoded_view& from, const tensor_view& to) {
    return code_of([&] { relu_backward(input(), {e, input().type, input().dims, from}, to, rule, {}); });
  };
  EXPECT_EQ(backward(parse_encoding("sign_mask"), stored(), view_of(y)), errc::ok);
  EXPECT_EQ(backward(parse_encoding("sign_mask"), stored(15), view_of(y)), errc::capacity_exceeded);
  EXPECT_EQ(backward(parse_encoding("sign_mask"), stored(), view_of(shorter)), errc::invalid_argument);
  EXPECT_EQ(backward(parse_encoding("fp8"), stored(), view_of(y)), errc::invalid_argument);
  EXPECT_EQ(backward(make_encoding("fp8", underflow_rule::keep_nonzero), stored(), view_of(y)), errc::ok);
  EXPECT_EQ(backward(make_encoding("fp8", underflow_rule::keep_nonzero), stored(47), view_of(y)),
            errc::capacity_exceeded);
  EXPECT_EQ(backward(parse_encoding("raw"), stored(), view_of(y)), errc::ok);
  EXPECT_EQ(backward(parse_encoding("shape_only"), stored(), view_of(y)), errc::unsupported);
  EXPECT_EQ(backward(parse_encoding("bitmap"), stored(31), view_of(y)), errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] { relu_backward(input(), view_of(shorter), view_of(y), rule, {}); }),
            errc::invalid_argument);
}

TEST_F(arguments, empty_tensors_need_no_memory) {
  for (const char* name : value_encodings) {
    const encoding e = parse_encoding(name);
    const tensor_view empty{nullptr, dtype::f32, memory_space::host, {0, 3}, 0};
    EXPECT_EQ(code_of([&] { encode(e, empty, {nullptr, 0, nullptr, &report}, {}, {}); }), errc::ok) << name;
    tensor_view back = empty;
    if (e.kind == encoding_kind::sign_mask) back.type = dtype::u8;
    EXPECT_EQ(code_of([&] {
                decode({e, back.type, back.dims, {nullptr, 0, nullptr, &report}}, back, {}, {});
              }),
              errc::ok)
        << name;
    EXPECT_EQ(report.status, 0u);
    EXPECT_EQ(report.slot_bytes, 0u);
  }
}

TEST_F(arguments, memory_that_is_of_no_known_space) {
  for (const int space : {3, 77, 255}) {
    const_tensor_view from = input();
    tensor_view to = target();
    from.space = to.space = static_cast<memory_space>(space);
    for (const char* name : value_encodings) {
      const encoding e = parse_encoding(name);
      EXPECT_EQ(encoding_code(e, from, output()), errc::invalid_argument) << name << space;
      EXPECT_EQ(code_of([&] { encoded_bytes_exact(e, from, {}); }), errc::invalid_argument) << name << space;
      EXPECT_EQ(decoding_code(e, stored(), to), errc::invalid_argument) << name << space;
    }
    EXPECT_EQ(code_of([&] { relu_forward(from, target(), {}, framework_rule::pytorch, {}); }),
              errc::invalid_argument);
    EXPECT_EQ(code_of([&] { relu_forward(input(), to, {}, framework_rule::pytorch, {}); }),
              errc::invalid_argument);
  }
}

TEST_F(arguments, messages_name_function_argument_expected_and_got) {
  EXPECT_EQ(message_of([&] { encode(parse_encoding("fp16"), input(), output(32), {}, {}); }),
            "encode: output: expected at least 80 bytes, got 32");

  const_tensor_view view = input();
  view.space = static_cast<memory_space>(77);
  EXPECT_EQ(message_of([&] { encode(parse_encoding("raw"), view, output(), {}, {}); }),
            "encode: input: expected memory of the host or of a device, got memory space 77");

  // A type is the argument's that has it, and has a name.
  view = input();
  view.type = dtype::u8;
  tensor_view to = target();
  to.type = dtype::s32;
  const encoding bitmap = parse_encoding("bitmap"), csr = parse_encoding("csr");
  EXPECT_EQ(message_of([&] { encode(bitmap, view, output(), {}, {}); }),
            "encode: input: expected a type that bitmap encodes (f32, f16 or bf16), got u8");
  EXPECT_EQ(message_of([&] { encoded_bytes_exact(bitmap, view, {}); }),
            "encoded_bytes_exact: input: expected a type that bitmap encodes (f32, f16 or bf16), got u8");
  EXPECT_EQ(message_of([&] {
              decode({bitmap, to.type, to.dims, stored()}, to, {}, {});
            }),
            "decode: output: expected a type that bitmap encodes (f32, f16 or bf16), got s32");
  EXPECT_EQ(message_of([&] { encoded_bytes_bound(bitmap, dtype::u8, 1); }),
            "encoded_bytes_bound: source: expected a type that bitmap encodes (f32, f16 or bf16), got u8");
  EXPECT_EQ(message_of([&] { encoded_bytes_bound(bitmap, static_cast<dtype>(9), 1); }),
            "encoded_bytes_bound: source: expected a type that bitmap encodes (f32, f16 or bf16), got an "
            "unknown type");

  // A call that asks another one names itself.
  EXPECT_EQ(message_of([&] {
              csr_export32({csr, dtype::u8, {5}, stored()}, {.type = dtype::u8}, {});
            }),
            "csr_export32: output.type: expected a type that csr encodes (f32, f16 or bf16), got u8");
  encoding wrong = bitmap;
  wrong.underflow = static_cast<underflow_rule>(9);
  EXPECT_EQ(message_of([&] {
              relu_backward(input(), {wrong, input().type, input().dims, stored()}, target(),
                            framework_rule::tensorflow, {});
            }),
            "relu_backward: encoding: expected a known underflow rule, got 9");

  EXPECT_EQ(message_of([] {
              shape({std::int64_t{1} << 32, 3, std::int64_t{1} << 32});
            }),
            "shape: dims: expected at most 2^56 elements, got 4294967296 x 3 x 4294967296");
}

}  // namespace
