// SPDX-License-Identifier: Apache-2.0
#include "stash/stashed_tensor.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "encoders/support.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "support/failing_allocations.hpp"

namespace stash {
namespace {

using stash_test::bits_of;
using stash_test::code_of;
using stash_test::fail_every_allocation;
using stash_test::flavour;
using stash_test::make_values;
using stash_test::message_of;
using stash_test::view_of;

const_tensor_view dense(const std::vector<float>& values) {
  return view_of(values);
}

/// Events in the order in which they were heard.
struct listener {
  struct heard {
    event_kind kind;
    std::string tensor;
    std::uint64_t required, available;
  };
  std::vector<heard> events;

  event_sink sink() {
    return {[](void* user, const event& what) {
              static_cast<listener*>(user)->events.push_back(
                  {what.kind, std::string(what.tensor), what.required_bytes, what.available_bytes});
            },
            this};
  }
};

TEST(stashed_tensor, gives_back_what_was_stashed) {
  for (const char* name : {"raw", "bitmap", "csr"}) {
    for (const std::int64_t count : {0, 1, 31, 255, 256, 257, 1023, 1024, 1025, 5000}) {
      const std::vector<float> x = make_values(count, 0.4, flavour::special, 7);
      std::vector<float> kept_from = x;
      const stashed_tensor kept(parse_encoding(name), dense(kept_from));
      std::fill(kept_from.begin(), kept_from.end(), -1.0F);  // the source is not needed any more
      std::vector<float> back(x.size(), 5.0F);
      kept.restore(view_of(back));
      EXPECT_EQ(bits_of(back), bits_of(x)) << name << ' ' << count;
      EXPECT_EQ(kept.dense_bytes(), x.size() * 4);
      kept.check();
    }
  }
}

TEST(stashed_tensor, exact_size_is_what_is_held) {
  const std::vector<float> x = make_values(10'000, 0.3, flavour::mixed, 1);
  const encoding e = parse_encoding("bitmap");
  counting_memory memory(host_memory());
  const stashed_tensor kept(e, dense(x), {.memory = &memory});
  EXPECT_EQ(kept.bytes(), memory.bytes_in_use());
  EXPECT_EQ(memory.peak_bytes(), memory.bytes_in_use());
  EXPECT_EQ(memory.blocks_in_use(), 1U);
  EXPECT_EQ(kept.bytes(), encoded_bytes_exact(e, dense(x), {}) + sizeof(encode_report));
  EXPECT_LT(kept.bytes(), kept.dense_bytes() / 2);

  const stored_size size = kept.size().wait();
  const auto nonzeros = static_cast<std::uint64_t>(
      std::count_if(x.begin(), x.end(), [](float v) { return stash_test::to_bits(v) != 0; }));
  EXPECT_TRUE(kept.size().ready());
  EXPECT_EQ(size.nonzeros, nonzeros);
  EXPECT_DOUBLE_EQ(size.density, static_cast<double>(nonzeros) / 10'000);
  EXPECT_EQ(size.bytes, encoded_bytes_exact(e, dense(x), {}));
  EXPECT_EQ(size.overflow_bytes, 0U);
  EXPECT_EQ(size.status, status_ok);
}

TEST(stashed_tensor, size_of_fixed_and_empty_tensors) {
  const std::vector<float> x(100, 1.0F), none;
  const stored_size fixed = stashed_tensor(parse_encoding("fp16"), dense(x)).size().wait();
  EXPECT_EQ(fixed.bytes, 208U);
  EXPECT_EQ(fixed.density, 1.0);
  const stored_size empty = stashed_tensor(parse_encoding("csr"), dense(none)).size().wait();
  EXPECT_EQ(empty.bytes, 0U);
  EXPECT_EQ(empty.density, 1.0);
  EXPECT_EQ(code_of([] { (void)stashed_tensor().size(); }), errc::invalid_argument);
}

TEST(stashed_tensor, capacity_that_suffices_is_kept) {
  const std::vector<float> x = make_values(4096, 0.5, flavour::positive, 3);
  const encoding e = parse_encoding("bitmap");
  const std::size_t capacity = encoded_bytes_at_density(e, dtype::f32, 4096, 0.7);
  listener heard;
  const stashed_tensor kept(e, dense(x), {.capacity = capacity, .events = heard.sink()});
  EXPECT_EQ(kept.bytes(), capacity + sizeof(encode_report));
  EXPECT_TRUE(heard.events.empty());
  std::vector<float> back(x.size());
  kept.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));

  const stashed_tensor bounded(e, dense(x), {.capacity = SIZE_MAX});
  EXPECT_EQ(bounded.bytes(), encoded_bytes_bound(e, dtype::f32, 4096) + sizeof(encode_report));
}

TEST(stashed_tensor, overflow_falls_back_to_the_exact_size_and_says_so) {
  for (const char* name : {"bitmap", "csr", "bitmap_fp16"}) {
    const std::vector<float> x = make_values(5000, 0.5, flavour::positive, 3);
    const encoding e = parse_encoding(name);
    const std::size_t exact = encoded_bytes_exact(e, dense(x), {});
    const std::size_t least = encoded_bytes_at_density(e, dtype::f32, 5000, 0);
    for (const std::size_t capacity : {std::size_t{1}, least, exact - 16}) {
      listener heard;
      counting_memory memory(host_memory());
      const stashed_tensor kept(
          e, dense(x), {.capacity = capacity, .memory = &memory, .events = heard.sink(), .name = "conv1"});
      ASSERT_EQ(heard.events.size(), 2U) << name << ' ' << capacity;
      EXPECT_EQ(heard.events[0].kind, event_kind::overflow);
      EXPECT_EQ(heard.events[1].kind, event_kind::fallback);
      EXPECT_EQ(heard.events[0].required, exact);
      EXPECT_EQ(heard.events[0].available, std::max(least, capacity));
      EXPECT_EQ(heard.events[1].available, exact);
      EXPECT_EQ(heard.events[0].tensor, "conv1");
      EXPECT_EQ(heard.events[1].tensor, "conv1");
      EXPECT_EQ(memory.blocks_in_use(), 1U);
      EXPECT_EQ(memory.peak_bytes(), exact + sizeof(encode_report)) << "the blocks lived at the same time";
      kept.check();
      std::vector<float> back(x.size());
      kept.restore(view_of(back));
      if (is_lossless(e)) {
        EXPECT_EQ(bits_of(back), bits_of(x));
      }
    }
  }
}

TEST(stashed_tensor, failed_allocation_leaves_nothing) {
  const std::vector<float> x = make_values(5000, 0.5, flavour::positive, 3);
  const encoding e = parse_encoding("bitmap");
  const std::size_t exact = encoded_bytes_exact(e, dense(x), {}) + sizeof(encode_report);
  counting_memory none(host_memory(), exact - 1);
  EXPECT_EQ(code_of([&] { stashed_tensor(e, dense(x), {.memory = &none}); }), errc::out_of_memory);
  listener heard;
  EXPECT_EQ(
      code_of([&] { stashed_tensor(e, dense(x), {.capacity = 1, .memory = &none, .events = heard.sink()}); }),
      errc::out_of_memory);
  EXPECT_EQ(heard.events.size(), 1U) << "an overflow, but no fallback";
  EXPECT_EQ(none.blocks_in_use(), 0U);
}

TEST(stashed_tensor, every_allocation_may_fail) {
  const std::vector<float> x = make_values(3000, 0.5, flavour::positive, 3);
  const std::string name(100, 'n');
  listener heard;
  heard.events.reserve(1000);
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}}) {
    const std::int64_t failures = fail_every_allocation([&] {
      const stashed_tensor kept(parse_encoding("bitmap"), dense(x), {.capacity = capacity, .name = name});
      std::vector<float> back(x.size());
      kept.restore(view_of(back));
      EXPECT_EQ(bits_of(back), bits_of(x));
    });
    EXPECT_GE(failures, 2);
  }
  const std::int64_t failures = fail_every_allocation(
      [&] { stashed_tensor::reserve(parse_encoding("fp16"), dtype::f32, {100}, {.name = name}); });
  EXPECT_GE(failures, 2);
}

TEST(stashed_tensor, moves_and_empties) {
  const std::vector<float> x = make_values(500, 0.5, flavour::mixed, 3), y(20, 1.0F);
  counting_memory memory(host_memory());
  stashed_tensor a(parse_encoding("bitmap"), dense(x), {.memory = &memory, .name = "a"});
  const void* bytes = a.stored().bytes.data;
  stashed_tensor b(std::move(a));
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): that is the contract
  EXPECT_EQ(a.bytes(), 0U);
  EXPECT_EQ(a.dense_bytes(), 0U);
  EXPECT_EQ(a.stored().bytes.data, nullptr);
  EXPECT_EQ(b.stored().bytes.data, bytes);
  EXPECT_EQ(b.name(), "a");
  a.check();
  a.reset();
  std::vector<float> back(500);
  EXPECT_EQ(code_of([&] { a.restore(view_of(back)); }), errc::invalid_argument);

  stashed_tensor c(parse_encoding("raw"), dense(y), {.memory = &memory});
  EXPECT_EQ(memory.blocks_in_use(), 2U);
  c = std::move(b);
  EXPECT_EQ(memory.blocks_in_use(), 1U) << "the old content is given back";
  stashed_tensor& same = c;
  c = std::move(same);
  c.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));
  c.reset();
  EXPECT_TRUE(c.empty());
  EXPECT_EQ(memory.blocks_in_use(), 0U);
}

TEST(stashed_tensor, pitched_views_and_sixteen_bit_types) {
  const std::vector<float> x = make_values(60, 0.5, flavour::mixed, 3);
  stash_test::pitched_map from(x, 6, 9, 2), to(std::vector<float>(60, 0.0F), 6, 11, 4);
  const stashed_tensor kept(parse_encoding("csr"), from.view());
  kept.restore(to.view());
  EXPECT_EQ(bits_of(to.values()), bits_of(x));
  EXPECT_TRUE(to.neighbours_intact());

  const std::vector<std::uint16_t> half = {0x3c00, 0, 0x7e01, 0x8000, 0};
  const const_tensor_view view{half.data(), dtype::f16, memory_space::host, {5}, 0};
  const stashed_tensor kept_half(parse_encoding("bitmap"), view);
  std::vector<std::uint16_t> back(5, 1);
  kept_half.restore({back.data(), dtype::f16, memory_space::host, {5}, 0});
  EXPECT_EQ(back, half);
  EXPECT_EQ(kept_half.type(), dtype::f16);
}

TEST(stashed_tensor, masks_come_back_as_bytes_or_numbers) {
  const std::vector<float> x = {1, -1, 0, 2};
  const stashed_tensor kept(parse_encoding("sign_mask"), dense(x));
  std::vector<std::uint8_t> bits(4, 9);
  kept.restore(view_of(bits));
  EXPECT_EQ(bits, (std::vector<std::uint8_t>{1, 0, 0, 1}));
  std::vector<float> numbers(4, 9.0F);
  kept.restore(view_of(numbers));
  EXPECT_EQ(numbers, (std::vector<float>{1, 0, 0, 1}));
  std::vector<std::int32_t> wrong(4);
  EXPECT_EQ(code_of([&] {
              kept.restore({wrong.data(), dtype::s32, memory_space::host, {4}, 0});
            }),
            errc::invalid_argument);
  std::vector<float> longer(5);
  EXPECT_EQ(code_of([&] { kept.restore(view_of(longer)); }), errc::invalid_argument);
}

TEST(stashed_tensor, layers_write_and_read_reserved_memory) {
  const std::vector<float> x = make_values(4 * 4 * 8, 1, flavour::mixed, 3);
  const shape wide{1, 4, 4, 8}, pooled{1, 2, 2, 8};
  std::vector<float> y(x.size()), small(x.size() / 4);
  const auto as = [](auto& v, const shape& s) {
    return tensor_view{const_cast<float*>(v.data()), dtype::f32, memory_space::host, s, 0};
  };
  stashed_tensor mask = stashed_tensor::reserve(parse_encoding("sign_mask"), dtype::f32, wide);
  relu_forward(as(x, wide), as(y, wide), mask.output(), framework_rule::tensorflow, {});
  encoding how = parse_encoding("window_index");
  how.window_taps = 4;
  stashed_tensor index = stashed_tensor::reserve(how, dtype::f32, pooled);
  max_pool_forward(as(y, wide), as(small, pooled), {}, index.output(), framework_rule::tensorflow, {});
  EXPECT_EQ(index.dense_bytes(), small.size() * 4);
  EXPECT_LT(index.bytes() + mask.bytes(), 128U);

  std::vector<float> dy(small.size(), 2.0F), dwide(x.size()), dx(x.size()), expected(x.size());
  max_pool_backward(as(dy, pooled), index.stored(), as(dwide, wide), {}, {});
  relu_backward(as(dwide, wide), mask.stored(), as(dx, wide), framework_rule::tensorflow, {});
  relu_max_pool_backward(as(dy, pooled), as(x, wide), as(expected, wide), {}, framework_rule::tensorflow, {});
  EXPECT_EQ(bits_of(dx), bits_of(expected));
  mask.check();
  index.check();
  EXPECT_EQ(code_of([&] { index.restore(as(small, pooled)); }), errc::unsupported);
}

TEST(stashed_tensor, reserved_memory_serves_step_after_step) {
  const std::vector<float> few = make_values(3000, 0.1, flavour::mixed, 1),
                           many = make_values(3000, 0.9, flavour::mixed, 2);
  const encoding e = parse_encoding("bitmap");
  const std::size_t capacity_bytes = encoded_bytes_exact(e, dense(few), {});
  counting_memory memory(host_memory());
  stashed_tensor kept = stashed_tensor::reserve(
      e, dtype::f32, {3000}, {.capacity = capacity_bytes, .memory = &memory, .name = "conv1"});
  const encoded_view where = kept.output();
  std::vector<float> back(3000);

  encode(e, dense(many), kept.output(), {}, {});
  EXPECT_EQ(code_of([&] { kept.check(); }), errc::capacity_exceeded);
  const size_query before = kept.size();
  for (int step = 0; step < 3; ++step) {
    kept.rewind();
    EXPECT_EQ(kept.output().data, where.data);
    EXPECT_EQ(kept.output().report, where.report);
    encode(e, dense(few), where, {}, {});
    kept.check();
    const stored_size size = kept.size().wait();
    EXPECT_EQ(size.bytes, capacity_bytes);
    EXPECT_LT(size.density, 0.2);
    EXPECT_EQ(size.status, status_ok);
    kept.restore(view_of(back));
    EXPECT_EQ(bits_of(back), bits_of(few));
  }
  EXPECT_EQ(memory.blocks_in_use(), 1U);
  EXPECT_GT(before.wait().density, 0.8) << "a query keeps what it was asked for";
  EXPECT_EQ(before.wait().status, status_capacity);
}

TEST(stashed_tensor, rewind_forgets_what_the_last_tensor_was_like) {
  const encoding e = parse_encoding("bitmap");
  stashed_tensor kept = stashed_tensor::reserve(e, dtype::f32, {4});
  const std::vector<float> signs = {-1, 2, -0.0F, 4}, none = {1, 0, 3, 0}, dy = {5, 6, 7, 8};
  encode(e, dense(signs), kept.output(), {}, {});
  EXPECT_EQ(kept.stored().bytes.report->flags, flag_mask_is_not_sign);
  kept.rewind();
  EXPECT_EQ(kept.stored().bytes.report->flags, 0U);
  encode(e, dense(none), kept.output(), {}, {});
  EXPECT_EQ(kept.stored().bytes.report->nonzeros, 2U);
  std::vector<float> dx(4);
  relu_backward(dense(dy), kept.stored(), view_of(dx), framework_rule::pytorch, {});
  EXPECT_EQ(dx, (std::vector<float>{5, 0, 7, 0}));
}

TEST(stashed_tensor, rewind_needs_a_tensor_and_its_context) {
  stashed_tensor empty;
  EXPECT_EQ(code_of([&] { empty.rewind(); }), errc::invalid_argument);
  stashed_tensor kept = stashed_tensor::reserve(parse_encoding("raw"), dtype::f32, {4});
  kept.output().report->status = status_corrupt;
  execution_context nowhere, device;
  nowhere.space = static_cast<memory_space>(9);
  device.space = memory_space::device;
  EXPECT_EQ(code_of([&] { kept.rewind(nowhere); }), errc::invalid_argument);
  EXPECT_NE(code_of([&] { kept.rewind(device); }), errc::ok);
  EXPECT_EQ(kept.stored().bytes.report->status, status_corrupt);
}

/// Memory that says it is nowhere.
class memory_of_no_space final : public memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment, void*) override {
    return host_memory().allocate(bytes, alignment);
  }
  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment, void*) noexcept override {
    host_memory().deallocate(data, bytes, alignment);
  }
  memory_space do_space() const noexcept override { return static_cast<memory_space>(9); }
};

TEST(stashed_tensor, memory_is_of_a_known_space) {
  memory_of_no_space memory;
  const std::vector<float> x(4, 1.0F);
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), dense(x), {.memory = &memory}); }),
            errc::invalid_argument);
  EXPECT_EQ(
      code_of([&] { stashed_tensor::reserve(parse_encoding("raw"), dtype::f32, {4}, {.memory = &memory}); }),
      errc::invalid_argument);
}

TEST(stashed_tensor, errors_name_the_tensor) {
  const std::vector<float> x(100, 1.0F);
  std::vector<float> shorter(99);
  counting_memory none(host_memory(), 100);
  const encoding e = parse_encoding("raw");
  EXPECT_EQ(message_of([&] { stashed_tensor(e, dense(x), {.memory = &none, .name = "conv1"}); }),
            "stashed_tensor: conv1: expected memory for 440 bytes aligned to 64, got none");
  EXPECT_EQ(message_of([&] { stashed_tensor(e, dense(x), {.memory = &none}); }),
            "memory_resource::allocate: bytes: expected memory for 440 bytes aligned to 64, got none");
  const stashed_tensor kept(e, dense(x), {.name = "conv1"}), nameless(e, dense(x));
  EXPECT_EQ(message_of([&] { kept.restore(view_of(shorter)); }),
            "stashed_tensor::restore: conv1: output: expected 100 elements, got 99");
  EXPECT_EQ(message_of([&] { nameless.restore(view_of(shorter)); }),
            "stashed_tensor::restore: output: expected 100 elements, got 99");
}

TEST(stashed_tensor, reserved_slots_of_sparse_encodings) {
  const std::vector<float> x = make_values(3000, 0.9, flavour::positive, 3);
  const encoding e = parse_encoding("bitmap");
  stashed_tensor whole = stashed_tensor::reserve(e, dtype::f32, {3000});
  encode(e, dense(x), whole.output(), {}, {});
  whole.check();
  std::vector<float> back(3000);
  whole.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));

  stashed_tensor narrow =
      stashed_tensor::reserve(e, dtype::f32, {3000}, {.capacity = 4000, .name = "narrow"});
  EXPECT_EQ(narrow.bytes(), 4000 + sizeof(encode_report));
  encode(e, dense(x), narrow.output(), {}, {});
  EXPECT_EQ(code_of([&] { narrow.check(); }), errc::capacity_exceeded);
  EXPECT_NE(narrow.size().wait().status & status_capacity, 0U);
  EXPECT_EQ(narrow.size().wait().nonzeros, whole.size().wait().nonzeros);
}

TEST(stashed_tensor, damaged_bytes_are_reported_every_time) {
  const std::vector<float> x = make_values(3000, 0.5, flavour::positive, 3);
  stashed_tensor kept(parse_encoding("bitmap"), dense(x), {.name = "pool2"});
  auto* bytes = static_cast<unsigned char*>(kept.output().data);
  const std::size_t table = (3000 + 7) / 8 + 1;  // 376: the mask plane, padded to 16
  ASSERT_EQ(table % 16, 8U);
  bytes[table + 8 + 3] ^= 0x3f;  // the offset of the first tile
  std::vector<float> back(3000);
  for (int i = 0; i < 2; ++i) {
    try {
      kept.restore(view_of(back));
      FAIL() << "damage went unnoticed";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::corrupt_data);
      EXPECT_STREQ(e.what(),
                   "stashed_tensor::restore: pool2: expected bytes that an encoder wrote, got damaged ones");
    }
  }
  kept.check();  // restore() keeps its findings to itself
}

TEST(stashed_tensor, wrong_arguments) {
  const std::vector<float> x(100, 1.0F);
  std::vector<float> back(100), few(99);
  encoding unknown;
  unknown.kind = static_cast<encoding_kind>(77);
  EXPECT_EQ(code_of([&] { stashed_tensor(unknown, dense(x)); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { stashed_tensor::reserve(unknown, dtype::f32, {1}); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("window_index"), dense(x)); }),
            errc::invalid_argument);
  encoding index = parse_encoding("window_index");
  index.window_taps = 4;
  EXPECT_EQ(code_of([&] { stashed_tensor(index, dense(x)); }), errc::unsupported);
  const_tensor_view null = dense(x);
  null.data = nullptr;
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), null); }), errc::invalid_argument);
  execution_context device;
  device.space = memory_space::device;
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), dense(x), {}, device); }), errc::unsupported);

  const stashed_tensor kept(parse_encoding("raw"), dense(x));
  EXPECT_EQ(code_of([&] { kept.restore(view_of(few)); }), errc::invalid_argument);
  tensor_view other = view_of(back);
  other.type = dtype::s32;
  EXPECT_EQ(code_of([&] { kept.restore(other); }), errc::invalid_argument);

  memory_callbacks device_memory{nullptr,
                                 [](void*, std::size_t, std::size_t, void*) -> void* { return nullptr; },
                                 [](void*, void*, std::size_t, std::size_t, void*) {}, memory_space::device};
  callback_memory wrong_space(device_memory);
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), dense(x), {.memory = &wrong_space}); }),
            errc::invalid_argument);
}

TEST(stashed_tensor_threads, one_handle_is_read_and_many_are_made_at_the_same_time) {
  const std::vector<float> x = make_values(20'000, 0.5, flavour::special, 3);
  const stashed_tensor shared(parse_encoding("bitmap"), dense(x));
  counting_memory memory(host_memory());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> back(x.size());
        shared.restore(view_of(back));
        EXPECT_EQ(bits_of(back), bits_of(x));
        const stashed_tensor own(parse_encoding("csr"), dense(x), {.capacity = 64, .memory = &memory});
        own.restore(view_of(back));
        EXPECT_EQ(bits_of(back), bits_of(x));
      }
    });
  }
  for (std::thread& t : threads)
    t.join();
  EXPECT_EQ(memory.blocks_in_use(), 0U);
}

TEST(events, names) {
  EXPECT_EQ(to_string(event_kind::overflow), "overflow");
  EXPECT_EQ(to_string(event_kind::fallback), "fallback");
  EXPECT_EQ(to_string(event_kind::rerun), "rerun");
  EXPECT_EQ(to_string(static_cast<event_kind>(9)), "unknown");
}

}  // namespace
}  // namespace stash
