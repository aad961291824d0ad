// SPDX-License-Identifier: Apache-2.0
// Batches on a device: what single calls give, in few launches.

#include <functional>
#include <memory>

#include "simt/kernel_tests.hpp"
#include "stash/batch.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;

/// Many maps of several kinds in few launches, in any mixture.
TEST(device_batch, is_single_calls_in_few_launches) {
  const char* const names[] = {"raw", "sign_mask", "bitmap", "csr_fp10", "mxfp4_e2m1", "fp16", "bitmap_bf16"};
  struct one {
    std::unique_ptr<placed> dense, back;
    std::unique_ptr<buffer> single, together;
    encode_report single_report{}, report{};
  };
  for (const bool in_order : {false, true}) {
    generator random(in_order ? 5 : 6);
    execution_context context = device;
    context.canonical = in_order;
    std::vector<one> maps(150);
    std::vector<encode_item> items;
    std::vector<decode_item> back;
    for (std::size_t i = 0; i < maps.size(); ++i) {
      simt::set_schedule(schedule_of(static_cast<int>(i)));
      const encoding e = parse_encoding(names[random.below(std::size(names))]);
      const bool mask = e.kind == encoding_kind::sign_mask;
      const std::int64_t n = i == 7 ? 30000 : random.size();
      one& m = maps[i];
      m.dense = std::make_unique<placed>(dtype::f32, n, std::max<std::int64_t>(1, n), 0, 0);
      m.dense->put(random.make(dtype::f32, n));
      const dtype target = mask && i % 2 == 0 ? dtype::u8 : dtype::f32;
      m.back = std::make_unique<placed>(target, n, std::max<std::int64_t>(1, n), 0, 0);
      const std::size_t bytes = encoded_bytes_bound(e, dtype::f32, n);
      m.single = std::make_unique<buffer>(bytes);
      m.together = std::make_unique<buffer>(bytes);
      const tensor_view input = on_device(m.dense->view(dtype::f32));
      encode(e, m.dense->view(dtype::f32), {m.single->data(), bytes, nullptr, &m.single_report}, {}, {});
      items.push_back({e, input, {m.together->data(), bytes, nullptr, &m.report}});
      const tensor_view decoded = on_device(m.back->view(target));
      back.push_back({{e, target, decoded.dims, {m.together->data(), bytes, nullptr, &m.report}}, decoded});
    }
    workspace workspace(batch_workspace_bytes(items, context));
    const std::size_t before = simt::launches_so_far();
    encode_batch(items, workspace.view(), context);
    const std::size_t encoding = simt::launches_so_far();
    decode_batch(back, {}, device);
    const std::size_t decoding = simt::launches_so_far() - encoding;
    EXPECT_LE(encoding - before, in_order ? 2 * maps.size() : 14U);
    EXPECT_LE(decoding, 14U);
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const one& m = maps[i];
      const std::size_t bytes = m.single_report.slot_bytes;
      const const_encoded_view stored{m.together->data(), m.together->size(), nullptr,
                                      items[i].output.report};
      ASSERT_EQ(m.report.nonzeros, m.single_report.nonzeros) << i;
      ASSERT_EQ(canonical(items[i].how, dtype::f32, items[i].input.elements(), stored, bytes),
                std::vector<std::uint8_t>(m.single->data(), m.single->data() + bytes))
          << i;
      placed expected(back[i].output.type, back[i].output.elements(),
                      std::max<std::int64_t>(1, back[i].output.elements()), 0, 0);
      encode_report report = m.single_report;
      decode({items[i].how,
              expected.view(back[i].output.type).type,
              expected.view(back[i].output.type).dims,
              {m.single->data(), m.single->size(), nullptr, &report}},
             expected.view(back[i].output.type), {}, {});
      ASSERT_EQ(m.back->take(back[i].output.type, back[i].output.elements()),
                expected.take(back[i].output.type, back[i].output.elements()))
          << i;
    }
  }
  simt::set_schedule({});
}

/// Readers have their input fetched ahead: nothing beyond memory of exact size, which a sanitizer watches.
TEST(device_batch, readers_stay_in_memory_of_exact_size) {
  const char* const names[] = {"raw",        "sign_mask",      "bitmap",     "csr",
                               "bitmap_fp8", "csr_mxfp6_e2m3", "mxfp4_e2m1", "fp16",
                               "fp10",       "mxfp8_e4m3",     "range_mask"};
  generator random(7);
  for (const char* const name : names) {
    encoding e = parse_encoding(name);
    if (e.kind == encoding_kind::cast) e.underflow = underflow_rule::keep_nonzero;  // gradients need it
    const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
    for (const std::int64_t n : {1, 17, 255, 1023, 1024, 1025, 2049, 8191, 8193, 70001}) {
      SCOPED_TRACE(testing::Message() << name << ' ' << n);
      const auto elements = static_cast<std::size_t>(n);
      std::vector<float> values(elements);
      for (float& v : values)
        v = random.below(2) == 0 ? 0.0F : static_cast<float>(random.below(1000)) / 7;
      std::vector<std::uint8_t> large(encoded_bytes_bound(e, dtype::f32, n));
      encode_report report{};
      encode(e, const_tensor_view{values.data(), dtype::f32, memory_space::host, {n}, 0},
             {large.data(), large.size(), nullptr, &report}, {}, {});
      const auto exact = std::make_unique<std::uint8_t[]>(report.slot_bytes);
      std::copy_n(large.data(), report.slot_bytes, exact.get());
      const const_encoded_view stored{exact.get(), report.slot_bytes, nullptr, &report};
      const dtype target = mask ? dtype::u8 : dtype::f32;
      const auto back = std::make_unique<std::uint8_t[]>(elements * size_of(target));
      decode({e, target, {n}, stored}, {back.get(), target, memory_space::device, {n}, 0}, {}, device);
      if (e.kind == encoding_kind::range_mask || name == std::string("raw")) continue;
      const auto dy = std::make_unique<float[]>(elements), dx = std::make_unique<float[]>(elements);
      relu_backward({dy.get(), dtype::f32, memory_space::device, {n}, 0}, {e, dtype::f32, {n}, stored},
                    {dx.get(), dtype::f32, memory_space::device, {n}, 0}, framework_rule::tensorflow, device);
      EXPECT_EQ(report.status, status_ok);
    }
  }
}

class device_batch_launches : public random_pair {};
INSTANTIATE_TEST_SUITE_P(kernels, device_batch_launches, ::testing::ValuesIn(pairs()), name_of_pair);

/// Maps of one encoding and type, and where they are encoded and decoded to.
struct alike {
  struct map {
    std::unique_ptr<placed> dense, back;
    std::unique_ptr<buffer> stored;
    encode_report report{};
  };

  alike(const encoding& e, const pair_under_test& tested, std::size_t count) : maps(count) {
    generator random(static_cast<std::uint32_t>(count));
    const dtype target = is_mask(tested) ? dtype::u8 : tested.type;
    for (map& m : maps) {
      const std::int64_t n = 1 + random.below(200);
      m.dense = std::make_unique<placed>(tested.type, n, n, 0, 0);
      m.dense->put(random.make(tested.type, n));
      m.back = std::make_unique<placed>(target, n, n, 0, 0);
      m.stored = std::make_unique<buffer>(encoded_bytes_bound(e, tested.type, n));
      const encoded_view out{m.stored->data(), m.stored->size(), nullptr, &m.report};
      to_encode.push_back({e, on_device(m.dense->view(tested.type)), out});
      const tensor_view decoded = on_device(m.back->view(target));
      to_decode.push_back(
          {{e, target, decoded.dims, {out.data, out.bytes, out.overflow, out.report}}, decoded});
    }
  }

  std::vector<map> maps;
  std::vector<encode_item> to_encode;
  std::vector<decode_item> to_decode;
};

std::size_t launches_in(const std::function<void()>& call) {
  const std::size_t before = simt::launches_so_far();
  call();
  return simt::launches_so_far() - before;
}

/// What batch.hpp says: 32 items of one encoding and type are one launch, the next one is a second.
TEST_P(device_batch_launches, are_one_for_32_items) {
  generator random(1);
  const encoding e = random_form(random);
  for (const std::size_t count : {0U, 1U, 32U, 33U, 65U}) {
    SCOPED_TRACE(count);
    const alike items(e, GetParam(), count);
    const std::size_t expected = (count + 31) / 32;
    EXPECT_EQ(launches_in([&] { encode_batch(items.to_encode, {}, device); }), expected);
    EXPECT_EQ(launches_in([&] { decode_batch(items.to_decode, {}, device); }), expected);
    for (const alike::map& m : items.maps)
      ASSERT_EQ(m.report.status, status_ok);
  }
}

/// Canonical bytes are made item after item.
TEST_P(device_batch_launches, are_one_by_one_in_canonical_order) {
  generator random(2);
  const encoding e = random_form(random);
  const alike items(e, GetParam(), 5);
  execution_context context = device;
  context.canonical = true;
  const workspace batch_workspace(batch_workspace_bytes(items.to_encode, context));
  // bitmap and csr clear their workspace first.
  EXPECT_EQ(launches_in([&] { encode_batch(items.to_encode, batch_workspace.view(), context); }),
            items.maps.size() * (is_sparse() ? 2 : 1));
  EXPECT_EQ(launches_in([&] { decode_batch(items.to_decode, {}, context); }), 1U);
}

/// Kinds that alternate are gathered, each into launches of its own.
TEST(device_batch, launches_once_for_each_kind) {
  const pair_under_test kinds[] = {
      {"raw", dtype::f32}, {"sign_mask", dtype::f16}, {"bitmap", dtype::f32}, {"csr_fp8", dtype::bf16}};
  std::vector<alike> all;
  for (const pair_under_test& kind : kinds)
    all.emplace_back(parse_encoding(kind.name), kind, 32);
  std::vector<encode_item> to_encode;
  std::vector<decode_item> to_decode;
  for (std::size_t i = 0; i < 32; ++i) {
    for (const alike& items : all) {
      to_encode.push_back(items.to_encode[i]);
      to_decode.push_back(items.to_decode[i]);
    }
  }
  EXPECT_EQ(launches_in([&] { encode_batch(to_encode, {}, device); }), std::size(kinds));
  EXPECT_EQ(launches_in([&] { decode_batch(to_decode, {}, device); }), std::size(kinds));
}

}  // namespace
}  // namespace stash
