// SPDX-License-Identifier: Apache-2.0
// Names, sizes and non-owning calls of the C API give what their C++ namesakes give.

#include <gtest/gtest.h>

#include "c_api/support.hpp"
#include "encoders/support.hpp"
#include "stash/stash.hpp"

namespace {

using namespace stash_test;
namespace cpp = stash;

const char* const names[] = {"raw",      "shape_only", "sign_mask",  "range_mask",  "bitmap",    "csr",
                             "fp16",     "bf16",       "fp10",       "fp8",         "fp8_e5m2",  "mxfp8_e4m3",
                             "csr_fp10", "bitmap_fp8", "mxfp6_e2m3", "bitmap_bf16", "mxfp4_e2m1"};

TEST(c_encodings, names_go_both_ways) {
  for (const char* name : names) {
    const stash_encoding e = c_encoding(name);
    char text[64];
    ASSERT_EQ(stash_encoding_name(&e, text, sizeof(text)), STASH_OK) << last_error();
    EXPECT_STREQ(text, name);
    int32_t lossless = -1;
    ASSERT_EQ(stash_is_lossless(&e, &lossless), STASH_OK);
    EXPECT_EQ(lossless == 1, cpp::is_lossless(cpp::parse_encoding(name))) << name;
  }
  for (const int32_t kind : {9, 77, 255, 256, -1}) {
    stash_encoding nothing = STASH_INIT(stash_encoding);
    nothing.kind = kind;
    int32_t lossless = 5;
    EXPECT_EQ(stash_is_lossless(&nothing, &lossless), STASH_INVALID_ARGUMENT) << kind;
    EXPECT_EQ(lossless, 5);
  }
  const stash_encoding e = c_encoding("bitmap");
  char text[7];
  EXPECT_EQ(stash_encoding_name(&e, text, 7), STASH_OK);
  EXPECT_EQ(stash_encoding_name(&e, text, 6), STASH_CAPACITY_EXCEEDED);
  EXPECT_EQ(last_error(), "stash_encoding_name: capacity: expected at least 7 bytes, got 6");
  EXPECT_EQ(stash_encoding_name(&e, nullptr, 100), STASH_INVALID_ARGUMENT);
  stash_encoding unknown = STASH_INIT(stash_encoding);
  EXPECT_EQ(stash_parse_encoding("zip", &unknown), STASH_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("\"zip\""), std::string::npos) << last_error();
}

TEST(c_encodings, sizes) {
  const std::vector<float> x = make_values(3000, 0.4, flavour::mixed, 5);
  const stash_tensor_view view = c_view(x);
  for (const char* name : names) {
    const stash_encoding e = c_encoding(name);
    const cpp::encoding cpp_encoding = cpp::parse_encoding(name);
    size_t bytes = 1;
    ASSERT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 3000, &bytes), STASH_OK) << last_error();
    EXPECT_EQ(bytes, cpp::encoded_bytes_bound(cpp_encoding, cpp::dtype::f32, 3000)) << name;
    ASSERT_EQ(stash_encoded_bytes_at_density(&e, STASH_DTYPE_F32, 3000, 0.25, &bytes), STASH_OK);
    EXPECT_EQ(bytes, cpp::encoded_bytes_at_density(cpp_encoding, cpp::dtype::f32, 3000, 0.25)) << name;
    ASSERT_EQ(stash_encoded_bytes_exact(&e, &view, nullptr, &bytes), STASH_OK);
    EXPECT_EQ(bytes, cpp::encoded_bytes_exact(cpp_encoding, view_of(x), {})) << name;
    stash_encode_report counted = {};
    stash_size_query* query = nullptr;
    ASSERT_EQ(stash_size_query_count(&e, &view, &counted, nullptr, &query), STASH_OK) << last_error();
    stash_stored_size size = STASH_INIT(stash_stored_size);
    EXPECT_EQ(stash_size_query_wait(query, &size), STASH_OK);
    EXPECT_EQ(size.bytes, bytes) << name;
    stash_size_query_destroy(query);
    EXPECT_EQ(stash_size_query_count(&e, &view, nullptr, nullptr, &query), STASH_INVALID_ARGUMENT);
    ASSERT_EQ(stash_workspace_bytes(&e, STASH_DTYPE_F32, 3000, nullptr, &bytes), STASH_OK);
    EXPECT_EQ(bytes, 0U);
  }
  const stash_encoding e = c_encoding("fp16");
  size_t bytes = 77;
  EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_U8, 3000, &bytes), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_encoded_bytes_bound(&e, 9, 3000, &bytes), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, -1, &bytes), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, 77U) << "written although the call failed";
  EXPECT_EQ(stash_encoded_bytes_bound(&e, STASH_DTYPE_F32, 3000, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encoded_bytes_bound: bytes: expected an address, got null");
}

TEST(c_encodings, encode_and_decode_give_the_bytes_of_the_cpp_api) {
  const std::vector<float> x = make_values(2500, 0.4, flavour::special, 5);
  const stash_tensor_view view = c_view(x);
  for (const char* name : names) {
    const stash_encoding e = c_encoding(name);
    const cpp::encoding cpp_encoding = cpp::parse_encoding(name);
    const std::size_t bytes = cpp::encoded_bytes_bound(cpp_encoding, cpp::dtype::f32, 2500);
    c_buffer buffer(bytes), expected(bytes), canonical(bytes);
    ASSERT_EQ(stash_encode(&e, &view, &buffer.view, nullptr, nullptr), STASH_OK) << last_error();
    cpp::encode_report report;
    cpp::encode(cpp_encoding, view_of(x), {expected.view.data, bytes, nullptr, &report}, {}, {});
    EXPECT_EQ(buffer.bytes(), expected.bytes()) << name;
    EXPECT_EQ(buffer.report.nonzeros, report.nonzeros);
    EXPECT_EQ(buffer.report.slot_bytes, report.slot_bytes);
    EXPECT_EQ(buffer.report.flags, report.flags);

    ASSERT_EQ(stash_canonicalise(c_stored(e, &buffer.view, view), &canonical.view, nullptr), STASH_OK);
    EXPECT_EQ(std::memcmp(canonical.view.data, buffer.view.data, canonical.report.slot_bytes), 0) << name;

    if (cpp_encoding.kind == cpp::encoding_kind::shape_only) continue;
    const bool mask = cpp_encoding.kind == cpp::encoding_kind::sign_mask ||
                      cpp_encoding.kind == cpp::encoding_kind::range_mask;
    std::vector<float> back(x.size(), -5.0F), again(x.size(), -6.0F);
    const int32_t type = mask ? STASH_DTYPE_U8 : STASH_DTYPE_F32;
    const stash_tensor_view out = c_view(back.data(), type, {2500});
    ASSERT_EQ(stash_decode(c_stored(e, &buffer.view, out), &out, nullptr, nullptr), STASH_OK) << last_error();
    cpp::tensor_view expected_out = view_of(again);
    expected_out.type = static_cast<cpp::dtype>(type);
    cpp::decode(
        {cpp_encoding, expected_out.type, expected_out.dims, {expected.view.data, bytes, nullptr, &report}},
        expected_out, {}, {});
    EXPECT_EQ(std::memcmp(back.data(), again.data(), mask ? 2500 : 10'000), 0) << name;
    EXPECT_EQ(buffer.report.status, 0U);
  }
}

TEST(c_encodings, parameters_of_an_encoding_arrive) {
  const std::vector<float> x = {1e-9F, -1.0F, 0.5F, 7.0F, std::nanf(""), 0.0F};
  const stash_tensor_view view = c_view(x);
  const auto decoded = [&](const stash_encoding& e) {
    c_buffer buffer(64);
    std::vector<unsigned char> bits(x.size());
    const stash_tensor_view out = c_view(bits.data(), STASH_DTYPE_U8, {6});
    EXPECT_EQ(stash_encode(&e, &view, &buffer.view, nullptr, nullptr), STASH_OK) << last_error();
    EXPECT_EQ(stash_decode(c_stored(e, &buffer.view, out), &out, nullptr, nullptr), STASH_OK) << last_error();
    return bits;
  };
  using bits = std::vector<unsigned char>;
  stash_encoding sign = c_encoding("sign_mask");
  EXPECT_EQ(decoded(sign), (bits{1, 0, 1, 1, 0, 0}));
  sign.rule = STASH_RULE_PYTORCH;
  EXPECT_EQ(decoded(sign), (bits{1, 0, 1, 1, 1, 0}));
  stash_encoding range = STASH_INIT(stash_encoding);
  range.kind = STASH_KIND_RANGE_MASK;
  EXPECT_EQ(decoded(range), (bits{1, 0, 1, 0, 0, 0})) << "zero bounds are those of ReLU6";
  range.lower = -2;
  range.upper = 0.25F;
  EXPECT_EQ(decoded(range), (bits{1, 1, 0, 0, 0, 1}));

  stash_encoding cast = c_encoding("fp8");
  c_buffer buffer(16);
  ASSERT_EQ(stash_encode(&cast, &view, &buffer.view, nullptr, nullptr), STASH_OK);
  EXPECT_EQ(buffer.bytes()[0], 0);
  cast.underflow = STASH_UNDERFLOW_KEEP_NONZERO;
  ASSERT_EQ(stash_encode(&cast, &view, &buffer.view, nullptr, nullptr), STASH_OK);
  EXPECT_EQ(buffer.bytes()[0], 1);
}

TEST(c_encodings, overflow_arena_and_threads_of_the_caller) {
  const std::vector<float> x = make_values(40'000, 0.5, flavour::positive, 5);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  size_t least = 0;
  ASSERT_EQ(stash_encoded_bytes_at_density(&e, STASH_DTYPE_F32, 40'000, 0, &least), STASH_OK);
  c_buffer slot(least + 4096), buffer(200'000);
  uint64_t claimed = 0;
  stash_overflow_arena arena = STASH_INIT(stash_overflow_arena);
  arena.data = buffer.view.data;
  arena.bytes = buffer.view.bytes;
  arena.claimed = &claimed;
  slot.view.overflow = &arena;
  int calls = 0;
  stash_execution_context context = STASH_INIT(stash_execution_context);
  context.user = &calls;
  context.parallel_for = [](void* user, int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t),
                            void* state) {
    ++*static_cast<int*>(user);
    for (int64_t begin = 0; begin < count; begin += grain)
      body(state, begin, std::min(count, begin + grain));
  };
  ASSERT_EQ(stash_encode(&e, &view, &slot.view, nullptr, &context), STASH_OK) << last_error();
  EXPECT_EQ(slot.report.status, 0U);
  EXPECT_GT(slot.report.overflow_bytes, 0U);
  EXPECT_EQ(claimed, slot.report.overflow_bytes);
  EXPECT_GT(calls, 0);
  std::vector<float> back(x.size());
  const stash_tensor_view out = c_view(back);
  ASSERT_EQ(stash_decode(c_stored(e, &slot.view, out), &out, nullptr, &context), STASH_OK) << last_error();
  EXPECT_EQ(bits_of(back), bits_of(x));

  slot.report = {};
  slot.view.overflow = nullptr;
  ASSERT_EQ(stash_encode(&e, &view, &slot.view, nullptr, nullptr), STASH_OK);
  EXPECT_EQ(slot.report.status, static_cast<uint32_t>(STASH_STATUS_CAPACITY));
}

TEST(c_encodings, host_overflow_of_callers_who_know_it) {
  const std::vector<float> x = make_values(40'000, 0.5, flavour::positive, 5);
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("csr");
  size_t least = 0;
  ASSERT_EQ(stash_encoded_bytes_at_density(&e, STASH_DTYPE_F32, 40'000, 0, &least), STASH_OK);
  c_buffer slot(least), buffer(20'000), host(200'000);
  uint64_t claimed = 0, host_claimed = 0;
  stash_overflow_arena arena = STASH_INIT(stash_overflow_arena);
  arena.data = buffer.view.data;
  arena.bytes = buffer.view.bytes;
  arena.claimed = &claimed;
  arena.host_data = host.view.data;
  arena.host_bytes = host.view.bytes;
  arena.host_claimed = &host_claimed;
  slot.view.overflow = &arena;
  ASSERT_EQ(stash_encode(&e, &view, &slot.view, nullptr, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(slot.report.status, 0U);
  EXPECT_EQ(claimed, slot.report.overflow_bytes);
  EXPECT_GT(host_claimed, 0U);
  EXPECT_LT(host_claimed, claimed);
  std::vector<float> back(x.size());
  const stash_tensor_view out = c_view(back);
  ASSERT_EQ(stash_decode(c_stored(e, &slot.view, out), &out, nullptr, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(bits_of(back), bits_of(x));

  // The structure of the first version ends before the host overflow, whatever follows it.
  arena.struct_size = 32;
  slot.report = {};
  claimed = host_claimed = 0;
  ASSERT_EQ(stash_encode(&e, &view, &slot.view, nullptr, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(slot.report.status, static_cast<uint32_t>(STASH_STATUS_CAPACITY));
  EXPECT_EQ(host_claimed, 0U);
}

TEST(c_encodings, batches) {
  const std::vector<float> a = make_values(700, 0.5, flavour::special, 5),
                           b = make_values(3000, 0.5, flavour::mixed, 6);
  const stash_encoding bitmap = c_encoding("bitmap"), csr = c_encoding("csr");
  const stash_tensor_view from[] = {c_view(a), c_view(b)};
  c_buffer slot_a(8192), slot_b(20'000);
  // Structures of a caller with a newer header: larger, with members that this library does not know.
  struct newer_item {
    stash_batch_item known;
    uint64_t unknown;
  };
  newer_item items[2] = {};
  items[0].known = {sizeof(newer_item), &bitmap, &from[0], &slot_a.view};
  items[1].known = {sizeof(newer_item), &csr, &from[1], &slot_b.view};
  ASSERT_EQ(stash_encode_batch(&items[0].known, 2, nullptr, nullptr), STASH_OK) << last_error();
  std::vector<float> back_a(a.size()), back_b(b.size());
  const stash_tensor_view to[] = {c_view(back_a), c_view(back_b)};
  items[0].known.dense = &to[0];
  items[1].known.dense = &to[1];
  ASSERT_EQ(stash_decode_batch(&items[0].known, 2, nullptr, nullptr), STASH_OK) << last_error();
  EXPECT_EQ(bits_of(back_a), bits_of(a));
  EXPECT_EQ(bits_of(back_b), bits_of(b));

  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / sizeof(stash_batch_item)}) {
    EXPECT_EQ(stash_encode_batch(&items[0].known, count, nullptr, nullptr), STASH_OUT_OF_MEMORY);
    EXPECT_EQ(last_error(), "stash_encode_batch: memory: expected enough for the call, got none");
    EXPECT_EQ(stash_decode_batch(&items[0].known, count, nullptr, nullptr), STASH_OUT_OF_MEMORY);
  }
  EXPECT_EQ(stash_encode_batch(nullptr, 0, nullptr, nullptr), STASH_OK);
  EXPECT_EQ(stash_encode_batch(nullptr, 1, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  items[1].unknown = 1;
  EXPECT_EQ(stash_encode_batch(&items[0].known, 2, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(
      last_error(),
      "stash_encode_batch: items[1]: expected zero in the members that this version of the library does not "
      "have, got 1 at byte 32");
  items[1].unknown = 0;
  items[1].known.struct_size = sizeof(stash_batch_item);
  EXPECT_EQ(stash_encode_batch(&items[0].known, 2, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  items[1].known = {sizeof(newer_item), nullptr, &from[1], &slot_b.view};
  EXPECT_EQ(stash_encode_batch(&items[0].known, 2, nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_encode_batch: items[1].encoding: expected a structure, got null");
}

TEST(c_encodings, csr_export) {
  const std::vector<float> x = {0, 1, 0, 2.5F, 0};
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("csr");
  c_buffer buffer(256);
  ASSERT_EQ(stash_encode(&e, &view, &buffer.view, nullptr, nullptr), STASH_OK);
  uint32_t offsets[2], columns[2];
  float values[2];
  stash_csr32_view out = STASH_INIT(stash_csr32_view);
  out.row_offsets = offsets;
  out.columns = columns;
  out.values = values;
  out.capacity = 2;
  int64_t nonzeros = -1;
  ASSERT_EQ(stash_csr_export32(c_stored(e, &buffer.view, view), &out, nullptr, &nonzeros), STASH_OK)
      << last_error();
  EXPECT_EQ(nonzeros, 2);
  EXPECT_EQ(offsets[1], 2U);
  EXPECT_EQ(columns[0], 1U);
  EXPECT_EQ(columns[1], 3U);
  EXPECT_EQ(values[1], 2.5F);
  out.capacity = 1;
  nonzeros = -7;
  EXPECT_EQ(stash_csr_export32(c_stored(e, &buffer.view, view), &out, nullptr, &nonzeros),
            STASH_CAPACITY_EXCEEDED);
  EXPECT_EQ(nonzeros, -7);
  EXPECT_EQ(stash_csr_export32(c_stored(e, &buffer.view, view), &out, nullptr, nullptr),
            STASH_INVALID_ARGUMENT);
}

TEST(c_encodings, size_queries) {
  const std::vector<float> x = {0, 1, 0, 2.5F};
  const stash_tensor_view view = c_view(x);
  const stash_encoding e = c_encoding("bitmap");
  c_buffer buffer(128);
  ASSERT_EQ(stash_encode(&e, &view, &buffer.view, nullptr, nullptr), STASH_OK);
  stash_size_query* query = nullptr;
  ASSERT_EQ(stash_size_query_create(c_stored(e, &buffer.view, view), nullptr, &query), STASH_OK)
      << last_error();
  int32_t ready = 0;
  EXPECT_EQ(stash_size_query_ready(query, &ready), STASH_OK);
  EXPECT_EQ(ready, 1);
  stash_stored_size size = STASH_INIT(stash_stored_size);
  ASSERT_EQ(stash_size_query_wait(query, &size), STASH_OK);
  EXPECT_EQ(size.struct_size, sizeof(size));
  EXPECT_EQ(size.nonzeros, 2U);
  EXPECT_EQ(size.density, 0.5);
  EXPECT_EQ(size.bytes, buffer.report.slot_bytes);
  stash_size_query_destroy(query);
  stash_size_query_destroy(nullptr);
  EXPECT_EQ(stash_size_query_create(c_stored(e, &buffer.view, view), nullptr, nullptr),
            STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_size_query_wait(nullptr, &size), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_size_query_ready(nullptr, &ready), STASH_INVALID_ARGUMENT);
}

TEST(c_encodings, cpu_targets) {
  const char* before = nullptr;
  ASSERT_EQ(stash_cpu_target(&before), STASH_OK) << last_error();
  size_t count = 0;
  bool found = false;
  for (; stash_cpu_target_name(count) != nullptr; ++count) {
    const char* name = stash_cpu_target_name(count);
    found = found || name == before;
    EXPECT_EQ(stash_set_cpu_target(name), STASH_OK);
    const char* now = nullptr;
    EXPECT_EQ(stash_cpu_target(&now), STASH_OK);
    EXPECT_EQ(now, name);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(count, cpp::cpu_targets().size());
  EXPECT_EQ(stash_set_cpu_target("abacus"), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_set_cpu_target(before), STASH_OK);
}

}  // namespace
