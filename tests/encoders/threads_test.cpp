// SPDX-License-Identifier: Apache-2.0
// The bytes do not depend on how loops are cut and who runs the parts; calls may share arena and report.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "encoders/support.hpp"
#include "stash/relu.hpp"

namespace {

using namespace stash;
using namespace stash_test;

/// Cuts ranges into parts of odd lengths and hands them, last ones first, to four threads.
void odd_parallel_for(void* /*user*/, std::int64_t count, std::int64_t /*grain*/, range_function body,
                      void* state) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  const std::int64_t lengths[] = {1, 3, 2, 7, 5};
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t end = std::min(count, begin + lengths[parts.size() % 5]);
    parts.emplace_back(begin, end);
    begin = end;
  }
  std::atomic<std::size_t> next{parts.size()};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (;;) {
        std::size_t left = next.load();
        while (left != 0 && !next.compare_exchange_weak(left, left - 1)) {
        }
        if (left == 0) return;
        body(state, parts[left - 1].first, parts[left - 1].second);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

execution_context threaded() {
  execution_context context;
  context.parallel_for = odd_parallel_for;
  return context;
}

bool same(const encode_report& a, const encode_report& b) {
  return a.status == b.status && a.flags == b.flags && a.nonzeros == b.nonzeros &&
         a.slot_bytes == b.slot_bytes && a.overflow_bytes == b.overflow_bytes;
}

TEST(threads, encoders_and_decoders_give_the_same_bytes) {
  const std::vector<float> values = make_values(101 * 1024 + 77, 0.4, flavour::special, 1);
  for (const char* name :
       {"raw", "sign_mask", "fp16", "fp8", "bitmap", "bitmap_fp16", "bitmap_fp8", "csr", "csr_fp10"}) {
    const encoding e = parse_encoding(name);
    const std::size_t size = encoded_bytes_exact(e, view_of(values), {});
    EXPECT_EQ(encoded_bytes_exact(e, view_of(values), threaded()), size);
    for (const std::size_t missing : {0u, 20000u}) {  // the second one overflows
      if (missing != 0 && e.kind != encoding_kind::bitmap && e.kind != encoding_kind::csr) continue;
      const std::size_t slot_bytes = size - missing;
      guarded_buffer alone(slot_bytes);
      guarded_buffer together(slot_bytes);
      guarded_buffer alone_memory(30000);
      guarded_buffer together_memory(30000);
      std::uint64_t alone_claimed = 0;
      std::uint64_t together_claimed = 0;
      const overflow_arena alone_arena{alone_memory.data(), alone_memory.size(), &alone_claimed};
      const overflow_arena together_arena{together_memory.data(), together_memory.size(), &together_claimed};
      encode_report alone_report;
      encode_report together_report;
      encode(e, view_of(values), {alone.data(), slot_bytes, &alone_arena, &alone_report}, {}, {});
      encode(e, view_of(values), {together.data(), slot_bytes, &together_arena, &together_report}, {},
             threaded());
      ASSERT_EQ(together.copy(), alone.copy()) << name;
      ASSERT_EQ(together_memory.copy(), alone_memory.copy()) << name;
      EXPECT_EQ(together_claimed, alone_claimed);
      EXPECT_EQ(together_claimed != 0, missing != 0);
      EXPECT_TRUE(same(together_report, alone_report)) << name;
      EXPECT_TRUE(together.guards_intact());

      if (e.kind == encoding_kind::sign_mask) continue;
      std::vector<float> first(values.size(), 1.0f);
      std::vector<float> second(values.size(), 2.0f);
      decode({e,
              view_of(first).type,
              view_of(first).dims,
              {alone.data(), slot_bytes, &alone_arena, &alone_report}},
             view_of(first), {}, {});
      decode({e,
              view_of(second).type,
              view_of(second).dims,
              {together.data(), slot_bytes, &together_arena, &together_report}},
             view_of(second), {}, threaded());
      ASSERT_EQ(bits_of(first), bits_of(second)) << name;
      EXPECT_TRUE(same(together_report, alone_report)) << name;
    }
  }
}

TEST(threads, relu_gives_the_same_bytes) {
  const std::vector<float> x = make_values(50 * 1024 + 13, 0.9, flavour::special, 2);
  const std::vector<float> dy = make_values(50 * 1024 + 13, 0.9, flavour::mixed, 3);
  const encoding bitmap = parse_encoding("bitmap");
  std::vector<std::vector<std::uint32_t>> results;
  std::vector<std::vector<std::uint8_t>> masks;
  for (const execution_context& context : {execution_context{}, threaded()}) {
    std::vector<float> y(x.size());
    std::vector<float> dx(x.size());
    guarded_buffer mask(
        encoded_bytes_bound(parse_encoding("sign_mask"), dtype::f32, static_cast<std::int64_t>(x.size())));
    guarded_buffer slot(encoded_bytes_bound(bitmap, dtype::f32, static_cast<std::int64_t>(x.size())));
    encode_report report;
    relu_forward(view_of(x), view_of(y), {mask.data(), mask.size(), nullptr, &report},
                 framework_rule::pytorch, context);
    results.push_back(bits_of(y));
    masks.push_back(mask.copy());
    encode(bitmap, view_of(y), {slot.data(), slot.size(), nullptr, &report}, {}, context);
    relu_backward(view_of(dy),
                  {bitmap, view_of(dy).type, view_of(dy).dims, {slot.data(), slot.size(), nullptr, &report}},
                  view_of(dx), framework_rule::pytorch, context);
    results.push_back(bits_of(dx));
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
  EXPECT_EQ(masks[0], masks[1]);
}

TEST(threads, calls_share_an_arena_and_a_report) {
  constexpr int calls = 4;
  const encoding e = parse_encoding("bitmap");
  std::vector<std::vector<float>> tensors;
  std::uint64_t nonzeros = 0;
  for (int i = 0; i < calls; ++i) {
    tensors.push_back(make_values(20 * 1024, 0.5, flavour::special, static_cast<std::uint32_t>(i)));
    for (const float value : tensors.back())
      nonzeros += to_bits(value) != 0 ? 1u : 0u;
  }
  const std::size_t fixed = encoded_bytes_at_density(e, dtype::f32, 20 * 1024, 0);
  guarded_buffer memory(calls * 20 * 1024 * 4);
  std::uint64_t claimed = 0;
  const overflow_arena arena{memory.data(), memory.size(), &claimed};
  encode_report report;
  std::vector<guarded_buffer> slots;
  for (int i = 0; i < calls; ++i)
    slots.emplace_back(fixed + 4096);
  std::vector<std::vector<float>> back(calls, std::vector<float>(20 * 1024));
  const auto in_threads = [&](auto work) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < calls; ++i)
      threads.emplace_back([&work, i] { work(i); });
    for (std::thread& thread : threads)
      thread.join();
  };
  in_threads([&](std::size_t i) {
    encode(e, view_of(std::as_const(tensors[i])), {slots[i].data(), slots[i].size(), &arena, &report}, {},
           {});
  });
  EXPECT_EQ(report.status, status_ok);
  EXPECT_EQ(report.nonzeros, nonzeros);
  EXPECT_EQ(report.overflow_bytes, claimed);
  EXPECT_GT(claimed, 0u);
  in_threads([&](std::size_t i) {
    decode({e,
            view_of(back[i]).type,
            view_of(back[i]).dims,
            {slots[i].data(), slots[i].size(), &arena, &report}},
           view_of(back[i]), {}, {});
  });
  for (std::size_t i = 0; i < calls; ++i)
    EXPECT_EQ(bits_of(back[i]), bits_of(tensors[i]));
  EXPECT_EQ(report.status, status_ok);
  EXPECT_TRUE(memory.guards_intact());
}

}  // namespace
