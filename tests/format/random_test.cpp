// SPDX-License-Identifier: Apache-2.0
// Random tensors through the library and through the reference of docs/format.md: the same bytes, the same
// decoded values, the same report. STASH_RANDOM_TENSORS sets how many tensors each pair of encoding and type
// gets.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "format/random_tensors.hpp"
#include "format/two_threads.hpp"
#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

using namespace test;

using random_tensors = random_pair;

INSTANTIATE_TEST_SUITE_P(format, random_tensors, ::testing::ValuesIn(pairs()), name_of_pair);

TEST_P(random_tensors, as_the_reference) {
  const dtype type = GetParam().type;
  const int tensors = tensors_per_pair();
  for (int k = 0; k < tensors; ++k) {
    generator random(static_cast<std::uint32_t>(k));
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = random.below(2) == 0 ? 0 : random.below(9);
    placed in(type, n, inner, gap, width(type) * random.below(16));
    in.put(t);
    execution_context context;
    if (k % 4 == 3) context.parallel_for = two_threads;

    const reference::encoded expected = reference::encode(e, t);
    // Large buffers take another way through the library than exact ones.
    const std::size_t exact = encoded_bytes_exact(e, in.view(type), context);
    ASSERT_EQ(exact, expected.bytes.size());
    const std::size_t bound = encoded_bytes_bound(e, type, n);
    ASSERT_LE(exact, bound);
    buffer out(random.below(2) == 0 ? exact : bound + 16 * random.below(9));
    encode_report report{};
    encode(e, in.view(type), {out.data(), out.size(), nullptr, &report}, {}, context);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(out.guard_is_whole());
    ASSERT_EQ(std::vector<std::uint8_t>(out.data(), out.data() + exact), expected.bytes);
    ASSERT_EQ(report.slot_bytes, expected.bytes.size());
    if (is_sparse()) {
      ASSERT_EQ(report.nonzeros, expected.nonzeros);
      ASSERT_EQ((report.flags & flag_mask_is_not_sign) != 0, expected.mask_is_not_sign);
      const double density = n == 0 ? 0 : static_cast<double>(expected.nonzeros) / static_cast<double>(n);
      ASSERT_LE(exact, encoded_bytes_at_density(e, type, n, density));
    }

    const dtype target = decoded_type(GetParam(), random);
    placed back(target, n, inner, random.below(2) == 0 ? 0 : random.below(9),
                width(target) * random.below(16));
    decode({e, back.view(target).type, back.view(target).dims, {out.data(), out.size(), nullptr, &report}},
           back.view(target), {}, context);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(back.take(target, n), reference::decode(e, t, target).bits);
  }
}

/// Small slots, with an arena, a host overflow, or both: what does not fit lies there, and nothing is written
/// elsewhere.
TEST_P(random_tensors, overflow_and_canonical_bytes) {
  if (!is_sparse()) GTEST_SKIP() << "of fixed size";
  const dtype type = GetParam().type;
  const int tensors = tensors_per_pair() / 2;
  for (int k = 0; k < tensors; ++k) {
    generator random(static_cast<std::uint32_t>(k) + 77777);
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    const std::int64_t n = random.size() + 1;
    const tensor t = random.make(type, n);
    placed in(type, n, n, 0, 0);
    in.put(t);
    execution_context context;
    if (k % 2 == 1) context.parallel_for = two_threads;
    const reference::encoded whole = reference::encode(e, t);
    const std::size_t exact = whole.bytes.size();
    const std::size_t fixed = bytes_before_payloads(GetParam(), n);
    const std::size_t payloads = exact - fixed;
    buffer slot(fixed + random.below(payloads + 1));
    regions overflow(payloads, random);
    const reference::stored expected = reference::place(e, t, overflow.with_slot(slot));
    encode_report report{};
    encode(e, in.view(type), {slot.data(), slot.size(), overflow.view(), &report}, {}, context);
    ASSERT_TRUE(slot.guard_is_whole());
    ASSERT_TRUE(overflow.are_whole());
    const reference::stored found = overflow.with_slot(slot);
    // What lies past the slot's cursor is open.
    ASSERT_TRUE(std::equal(found.slot.begin(),
                           found.slot.begin() + static_cast<std::ptrdiff_t>(report.slot_bytes),
                           expected.slot.begin()));
    for (const auto& [one, other] :
         {std::pair(&found.arena, &expected.arena), std::pair(&found.host, &expected.host)}) {
      ASSERT_EQ(one->has_value(), other->has_value());
      if (!one->has_value()) continue;
      ASSERT_EQ((*one)->bytes, (*other)->bytes);
      ASSERT_EQ((*one)->claimed, (*other)->claimed);
    }
    ASSERT_EQ(report.nonzeros, whole.nonzeros);
    ASSERT_EQ(report.slot_bytes, expected.slot_bytes);
    ASSERT_EQ(report.overflow_bytes, expected.overflow_bytes);
    ASSERT_EQ(report.status, expected.status);
    const bool fits = expected.status == status_ok;
    const const_encoded_view stored{slot.data(), slot.size(), overflow.view(), &report};
    placed back(type, n, n, 0, 0);
    decode({e, back.view(type).type, back.view(type).dims, stored}, back.view(type), {}, context);
    ASSERT_TRUE(back.memory.guard_is_whole());
    const reference::reading read = reference::read(e, type, static_cast<std::size_t>(n), found);
    ASSERT_EQ(report.status, read.status);
    ASSERT_EQ(back.take(type, n), read.values.bits);
    if (!fits) continue;
    ASSERT_EQ(report.status, status_ok);
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);

    buffer canonical(exact);
    encode_report canonical_report{};
    canonicalise({e, type, {n}, stored}, {canonical.data(), canonical.size(), nullptr, &canonical_report},
                 context);
    ASSERT_EQ(canonical_report.status | report.status, status_ok);
    ASSERT_TRUE(canonical.guard_is_whole());
    ASSERT_EQ(std::vector<std::uint8_t>(canonical.data(), canonical.data() + exact), whole.bytes);
    ASSERT_EQ(canonical_report.nonzeros, whole.nonzeros);
    ASSERT_EQ(canonical_report.flags & flag_mask_is_not_sign, report.flags & flag_mask_is_not_sign);
    if (exact >= fixed + 16) {
      encode_report small{};
      canonicalise({e, type, {n}, stored}, {canonical.data(), exact - 16, nullptr, &small}, context);
      ASSERT_EQ(small.status, status_capacity);
    }
  }
}

/// Any bytes: nothing outside the buffers is touched, whatever they say.
TEST_P(random_tensors, mutated_bytes) {
  const dtype type = GetParam().type;
  const int tensors = tensors_per_pair();
  for (int k = 0; k < tensors; ++k) {
    generator random(static_cast<std::uint32_t>(k) + 55555);
    const encoding e = random_form(random);
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    placed in(type, n, std::max<std::int64_t>(1, n), 0, 0);
    in.put(t);
    const std::size_t exact = encoded_bytes_exact(e, in.view(type), {});
    const std::size_t fixed = is_sparse() ? bytes_before_payloads(GetParam(), n) : exact;
    const std::size_t payloads = exact - fixed;
    // Half of the sparse ones overflow.
    buffer stored(is_sparse() && random.below(2) == 0 ? fixed + random.below(payloads + 1) : exact);
    regions overflow(payloads, random);
    encode_report report{};
    encode(e, in.view(type), {stored.data(), stored.size(), overflow.view(), &report}, {}, {});
    for (std::uint32_t changes = 1 + random.below(20); changes > 0 && exact > 0; --changes) {
      const std::size_t range = is_sparse() && random.below(2) == 0 ? fixed : stored.size();
      stored.data()[random.below(range)] = static_cast<std::uint8_t>(random.below(256));
    }
    const dtype target = decoded_type(GetParam(), random);
    placed back(target, n, std::max<std::int64_t>(1, n), 0, 0);
    const const_encoded_view bytes{stored.data(), stored.size(), overflow.view(), &report};
    report.status = status_ok;
    decode({e, back.view(target).type, back.view(target).dims, bytes}, back.view(target), {}, {});
    ASSERT_TRUE(back.memory.guard_is_whole());
    if (!is_sparse()) continue;
    const reference::reading read =
        reference::read(e, type, static_cast<std::size_t>(n), overflow.with_slot(stored));
    ASSERT_EQ(report.status, read.status);
    std::vector<std::uint32_t> found = back.take(type, n);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (read.open[i]) found[i] = read.values.bits[i];
    }
    ASSERT_EQ(found, read.values.bits);
    buffer canonical(exact);
    encode_report canonical_report{};
    canonicalise({e, type, {n}, bytes}, {canonical.data(), canonical.size(), nullptr, &canonical_report}, {});
    ASSERT_TRUE(canonical.guard_is_whole());
    if (!GetParam().name.starts_with("csr")) continue;
    const auto rows = static_cast<std::size_t>((n + 255) / 256);
    std::vector<std::uint32_t> offsets(rows + 1), columns(static_cast<std::size_t>(n) + 1);
    buffer values(static_cast<std::size_t>(n) * width(type));
    try {
      csr_export32({e, type, {n}, bytes}, {offsets.data(), columns.data(), values.data(), type, n}, {});
    } catch (const error& damaged) {
      ASSERT_EQ(damaged.code(), errc::corrupt_data) << damaged.what();
    }
    ASSERT_TRUE(values.guard_is_whole());
  }
}

TEST(csr_export, is_conventional_csr) {
  for (std::uint32_t k = 0; k < 60; ++k) {
    generator random(k);
    const dtype type = static_cast<dtype>(k % 3);
    const encoding e = parse_encoding(k % 2 == 0 ? "csr" : "csr_fp8");
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    placed in(type, n, std::max<std::int64_t>(1, n), 0, 0);
    in.put(t);
    buffer stored(encoded_bytes_exact(e, in.view(type), {}));
    encode_report report{};
    encode(e, in.view(type), {stored.data(), stored.size(), nullptr, &report}, {}, {});
    const auto count = static_cast<std::int64_t>(report.nonzeros);
    std::vector<std::uint32_t> offsets(static_cast<std::size_t>((n + 255) / 256) + 1, 99);
    std::vector<std::uint32_t> columns(static_cast<std::size_t>(count) + 1, 99);
    buffer values(static_cast<std::size_t>(count) * width(type));
    csr32_view out{offsets.data(), columns.data(), values.data(), type, count};
    ASSERT_EQ(csr_export32({e, out.type, {n}, {stored.data(), stored.size(), nullptr, &report}}, out, {}),
              count);
    ASSERT_EQ(columns.back(), 99U);
    ASSERT_TRUE(values.guard_is_whole());
    const std::vector<std::uint32_t> expected = reference::decode(e, t).bits;
    ASSERT_EQ(offsets.front(), 0U);
    ASSERT_EQ(offsets.back(), static_cast<std::uint32_t>(count));
    std::vector<std::uint32_t> dense(static_cast<std::size_t>(n), 0);
    for (std::size_t row = 0; row + 1 < offsets.size(); ++row) {
      for (std::size_t i = offsets[row]; i < offsets[row + 1]; ++i)
        std::memcpy(&dense[row * 256 + columns[i]], values.data() + i * width(type), width(type));
    }
    ASSERT_EQ(dense, expected);
    if (count > 0) {
      out.capacity = count - 1;
      EXPECT_THROW(
          csr_export32({e, out.type, {n}, {stored.data(), stored.size(), nullptr, &report}}, out, {}), error);
    }
  }
}

TEST(batch, does_what_single_calls_do) {
  const std::vector<std::string> names{"raw",        "sign_mask", "bitmap",     "csr_fp10",
                                       "mxfp4_e2m1", "fp16",      "bitmap_bf16"};
  for (const bool threads : {false, true}) {
    execution_context context;
    if (threads) context.parallel_for = two_threads;
    generator random(5);
    std::vector<std::unique_ptr<placed>> tensors, results;
    std::vector<buffer> single, together;
    std::vector<encode_report> reports(names.size()), batch_reports(names.size());
    std::vector<encode_item> items;
    std::vector<decode_item> back;
    for (std::size_t i = 0; i < names.size(); ++i) {
      // One is large enough to be cut.
      const std::int64_t n = i == 2 ? 300000 : random.size() + 1;
      tensors.push_back(std::make_unique<placed>(dtype::f32, n, n, 0, 0));
      tensors.back()->put(random.make(dtype::f32, n));
      results.push_back(std::make_unique<placed>(i == 1 ? dtype::u8 : dtype::f32, n, n, 0, 0));
      const std::size_t bytes =
          encoded_bytes_exact(parse_encoding(names[i]), tensors[i]->view(dtype::f32), {});
      single.emplace_back(bytes);
      together.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const encoding e = parse_encoding(names[i]);
      encode(e, tensors[i]->view(dtype::f32), {single[i].data(), single[i].size(), nullptr, &reports[i]}, {},
             {});
      items.push_back({e,
                       tensors[i]->view(dtype::f32),
                       {together[i].data(), together[i].size(), nullptr, &batch_reports[i]}});
      const tensor_view decoded = results[i]->view(i == 1 ? dtype::u8 : dtype::f32);
      back.push_back({{e,
                       decoded.type,
                       decoded.dims,
                       {together[i].data(), together[i].size(), nullptr, &batch_reports[i]}},
                      decoded});
    }
    encode_batch(items, {}, context);
    decode_batch(back, {}, context);
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(std::memcmp(single[i].data(), together[i].data(), single[i].size()), 0) << names[i];
      EXPECT_EQ(reports[i].nonzeros, batch_reports[i].nonzeros) << names[i];
      placed alone(i == 1 ? dtype::u8 : dtype::f32, results[i]->dims.elements(), results[i]->dims.inner(), 0,
                   0);
      decode({items[i].how,
              alone.view(i == 1 ? dtype::u8 : dtype::f32).type,
              alone.view(i == 1 ? dtype::u8 : dtype::f32).dims,
              {single[i].data(), single[i].size(), nullptr, &reports[i]}},
             alone.view(i == 1 ? dtype::u8 : dtype::f32), {}, {});
      EXPECT_EQ(std::memcmp(alone.memory.data(), results[i]->memory.data(), alone.memory.size()), 0)
          << names[i];
    }
    // A wrong item is named, and nothing has been written.
    std::memset(together[0].data(), 0x5a, together[0].size());
    items.back().output.bytes = 0;
    try {
      encode_batch(items, {}, context);
      FAIL();
    } catch (const error& wrong) {
      EXPECT_NE(std::string(wrong.what()).find("items[6]"), std::string::npos) << wrong.what();
    }
    EXPECT_EQ(together[0].data()[0], 0x5a);
  }
}

}  // namespace
}  // namespace stash
