// SPDX-License-Identifier: Apache-2.0
// A swapper between two regions of host memory, as a layer uses it; its copies are watched, held up and
// broken.

#include "stash/swap.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "encoders/support.hpp"
#include "runtime/swap_support.hpp"
#include "stash/relu.hpp"
#include "support/failing_allocations.hpp"
#include "support/no_new_threads.hpp"

namespace stash {
namespace {

using stash_test::bits_of;
using stash_test::code_of;
using stash_test::fail_every_allocation;
using stash_test::failing_memory;
using stash_test::flavour;
using stash_test::make_bytes;
using stash_test::make_values;
using stash_test::same_bytes;
using stash_test::view_of;
using stash_test::watcher;

using bytes = std::vector<std::uint8_t>;
using names = std::vector<std::string>;

constexpr std::size_t chunk = 1024;

/// A swapper whose copies are watched, with chunks of 1 KiB.
struct watched {
  explicit watched(swapper_options options = {}) {
    options.chunk_bytes = chunk;
    swaps = runtime::swap_access::make(options, seen.hook());
  }
  swapped out(const bytes& data, const swap_request& request = {}) const {
    return swaps->swap_out(data.data(), data.size(), request);
  }
  /// Until nothing is queued or being copied.
  void settle() const {
    while (swaps->statistics().bytes_in_flight != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  watcher seen;
  std::unique_ptr<swapper> swaps;
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const error& e) {
    return e.what();
  }
  return "";
}

TEST(swap, raw_bytes_come_back) {
  const watched w;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{63}, chunk - 1, chunk, chunk + 1,
                                 5 * chunk + 7, 300 * chunk}) {
    const bytes original = make_bytes(size, static_cast<std::uint32_t>(size));
    bytes source = original;
    swapped kept = w.out(source);
    EXPECT_FALSE(kept.empty());
    EXPECT_EQ(kept.bytes(), size);
    kept.wait_out();
    EXPECT_TRUE(kept.out_ended());
    std::fill(source.begin(), source.end(), std::uint8_t{0});

    EXPECT_TRUE(same_bytes(kept.wait_in(), original)) << size;
    EXPECT_TRUE(same_bytes(kept.wait_in(), original)) << "it is still there";
    EXPECT_EQ(w.swaps->statistics().resident_bytes, size);
    kept.leave();
    kept.leave();
    EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);

    bytes mine(size);
    kept.swap_in(mine.data(), size);
    EXPECT_EQ(kept.wait_in(), mine.data());
    EXPECT_EQ(mine, original);
    EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);

    kept.swap_in();
    std::fill(mine.begin(), mine.end(), std::uint8_t{0});
    kept.swap_in(mine.data(), size);  // goes on from where it is by then
    EXPECT_EQ(kept.wait_in(), mine.data());
    EXPECT_EQ(mine, original);
    EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
  }
  EXPECT_EQ(w.swaps->statistics().host_bytes, 0U);
}

TEST(swap, every_encoding_comes_back) {
  const watched w;
  counting_memory memory(host_memory());
  for (const char* name : {"raw", "bitmap", "csr", "sign_mask", "range_mask", "fp16", "bf16", "fp10", "fp8",
                           "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4_e2m1", "bitmap_fp8", "csr_mxfp6_e3m2"}) {
    for (const std::int64_t count : {0, 1, 1023, 1025, 20'000}) {
      const std::vector<float> x = make_values(count, 0.4, flavour::special, 3);
      const encoding e = parse_encoding(name);
      const bool mask = e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::range_mask;
      std::vector<float> expected(x.size()), found(x.size());
      std::vector<std::uint8_t> expected_mask(x.size()), found_mask(x.size());
      stashed_tensor kept(e, view_of(x), {.memory = &memory, .name = "conv1"});
      kept.restore(mask ? view_of(expected_mask) : view_of(expected));

      swapped lent = w.swaps->swap_out(kept);
      lent.wait_out();
      EXPECT_EQ(kept.bytes(), memory.bytes_in_use());
      swapped owned = w.swaps->swap_out(std::move(kept), {.name = "other"});
      owned.wait_out();
      EXPECT_EQ(memory.blocks_in_use(), 0U) << "the tensor's memory is not freed";
      EXPECT_EQ(lent.name(), "conv1");
      EXPECT_EQ(owned.name(), "other");
      for (swapped* s : {&lent, &owned}) {
        s->restore(mask ? view_of(found_mask) : view_of(found));
        EXPECT_EQ(bits_of(found), bits_of(expected)) << name << count;
        EXPECT_EQ(found_mask, expected_mask) << name << count;
        EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
      }
    }
  }
}

TEST(swap, only_bytes_in_use_of_a_sparse_tensor_go_out) {
  const watched w;
  for (const char* name : {"bitmap", "csr"}) {
    const std::vector<float> x = make_values(20'000, 0.1, flavour::special, 4);
    const encoding e = parse_encoding(name);
    stashed_tensor kept(e, view_of(x), {.capacity = SIZE_MAX});
    const std::size_t exact = encoded_bytes_exact(e, view_of(x), {});
    ASSERT_LT(exact, kept.bytes() / 2);
    EXPECT_EQ(code_of([&] { w.swaps->swap_out(kept, {.bytes_in_use = kept.bytes()}); }),
              errc::invalid_argument);
    EXPECT_EQ(code_of([&] { w.swaps->swap_out(kept, {.bytes_in_use = 1}); }), errc::invalid_argument);
    swapped said = w.swaps->swap_out(kept, {.bytes_in_use = exact});
    EXPECT_EQ(said.bytes(), exact + sizeof(encode_report));
    said.wait_out();  // what was lent stays until then
    swapped out = w.swaps->swap_out(std::move(kept));
    EXPECT_EQ(out.bytes(), exact + sizeof(encode_report));
    const stashed_tensor back = out.take();
    EXPECT_EQ(back.bytes(), exact + sizeof(encode_report));
    std::vector<float> found(x.size());
    back.restore(view_of(found));
    EXPECT_EQ(bits_of(found), bits_of(x));
    EXPECT_EQ(back.size().wait().bytes, exact);
    EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U) << "what was taken is the taker's";
  }
}

TEST(swap, layers_read_what_they_take) {
  const watched w;
  const std::vector<float> x = make_values(3000, 0.9, flavour::mixed, 5), dy(3000, 1.0F);
  std::vector<float> y(3000), expected(3000), found(3000);
  stashed_tensor mask = stashed_tensor::reserve(parse_encoding("sign_mask"), dtype::f32, {3000});
  relu_forward(view_of(x), view_of(y), mask.output(), framework_rule::pytorch, {});
  relu_backward(view_of(dy), mask.stored(), view_of(expected), framework_rule::pytorch, {});
  swapped out = w.swaps->swap_out(std::move(mask));
  for (int round = 0; round < 2; ++round) {
    const stashed_tensor back = out.take();
    relu_backward(view_of(dy), back.stored(), view_of(found), framework_rule::pytorch, {});
    back.check();
    EXPECT_EQ(bits_of(found), bits_of(expected));
  }
}

TEST(swap, damaged_bytes_are_said_and_can_be_asked_for_again) {
  const watched w;
  const std::vector<float> x = make_values(5000, 0.5, flavour::positive, 6);
  stashed_tensor kept(parse_encoding("bitmap"), view_of(x), {.name = "conv1"});
  std::memset(static_cast<std::uint8_t*>(kept.output().data) + 640, 0x3f, 4);  // the first table entry
  swapped out = w.swaps->swap_out(std::move(kept));
  std::vector<float> back(5000);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(code_of([&] { out.restore(view_of(back)); }), errc::corrupt_data);
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
}

TEST(swap, dense_tensors_come_back) {
  const watched w;
  std::vector<float> x = make_values(5000, 0.5, flavour::special, 7);
  swapped out = w.swaps->swap_out(view_of(x), {.name = "x"});
  out.wait_out();
  std::vector<float> back(5000);
  out.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));
  out.swap_in();
  std::fill(back.begin(), back.end(), 0.0F);
  w.settle();
  out.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);

  stash_test::pitched_map pitched(x, 10, 12, 1);
  EXPECT_EQ(code_of([&] { w.swaps->swap_out(pitched.view()); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { out.restore(pitched.view()); }), errc::invalid_argument);
  std::vector<float> shorter(4999);
  EXPECT_EQ(code_of([&] { out.restore(view_of(shorter)); }), errc::invalid_argument);
  std::vector<std::uint8_t> other(5000);
  EXPECT_EQ(code_of([&] { out.restore(view_of(other)); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { out.take(); }), errc::invalid_argument);
}

TEST(swap, copies_are_made_in_chunks) {
  watched w;
  const bytes data = make_bytes(2 * chunk + 1, 1);
  swapped out = w.out(data, {.name = "x"});
  out.wait_out();
  out.wait_in();
  using seen = watcher::seen;
  const std::vector<seen> expected = {{true, "x", 0, chunk},      {true, "x", chunk, chunk},
                                      {true, "x", 2 * chunk, 1},  {false, "x", 0, chunk},
                                      {false, "x", chunk, chunk}, {false, "x", 2 * chunk, 1}};
  EXPECT_EQ(w.seen.chunks(), expected);
  const swap_statistics now = w.swaps->statistics();
  EXPECT_EQ(now.bytes_out, data.size());
  EXPECT_EQ(now.bytes_in, data.size());
  EXPECT_EQ(now.bytes_in_flight, 0U);
  EXPECT_GE(now.host_bytes, data.size());
  EXPECT_LE(now.host_bytes, data.size() * 9 / 8 + 64);
}

TEST(swap, copies_out_go_in_their_order) {
  watched w;
  const bytes data = make_bytes(10, 1), large = make_bytes(2 * chunk, 2);
  w.seen.close();
  std::vector<swapped> kept;
  kept.push_back(w.out(large, {.name = "first", .needed_at = 9}));
  w.seen.wait_for(1);  // its first chunk is on its way
  kept.push_back(w.out(data, {.name = "whenever"}));
  kept.push_back(w.out(data, {.name = "late", .needed_at = 20}));
  kept.push_back(w.out(data, {.name = "early", .needed_at = -3}));
  kept.push_back(w.out(data, {.name = "early_too", .needed_at = -3}));
  kept.push_back(w.out(data, {.name = "important", .priority = 1}));
  kept.push_back(w.out(data, {.name = "waited_for", .priority = -5}));
  EXPECT_EQ(w.swaps->statistics().bytes_in_flight, 2 * chunk + 60);
  EXPECT_FALSE(kept[0].out_ended());
  std::thread waiter([&] { kept.back().wait_out(); });
  // The waiter says so before it waits; nothing shows when it has.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  w.seen.open();
  waiter.join();
  w.settle();  // waiting for one of them would move it
  // The second chunk of the first tensor has its turn where its tensor has.
  EXPECT_EQ(w.seen.names(true),
            (names{"waited_for", "important", "early", "early_too", "first", "late", "whenever"}));
}

TEST(swap, what_is_needed_next_comes_back_within_the_limit) {
  watched w({.residency_limit_bytes = 3 * chunk});
  const bytes data = make_bytes(chunk, 1), huge = make_bytes(4 * chunk, 2);
  std::vector<swapped> kept;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = std::to_string(layer);
    kept.push_back(w.out(data, {.name = name, .needed_at = 5 - layer}));
  }
  kept.push_back(w.out(huge, {.name = "huge", .needed_at = 0}));
  kept.push_back(w.out(data, {.name = "passed", .needed_at = -1}));
  kept.push_back(w.out(data, {.name = "whenever"}));
  for (swapped& s : kept)
    s.wait_out();
  w.settle();
  EXPECT_EQ(w.seen.names(false), names{}) << "nothing was said yet";

  w.swaps->reached(0);
  const auto resident = [&](std::size_t tensors, std::size_t seen_so_far) {
    w.seen.wait_for(9 + 3 + seen_so_far);
    w.settle();
    EXPECT_EQ(w.swaps->statistics().resident_bytes, tensors * chunk);
  };
  resident(3, 3);
  EXPECT_EQ(w.seen.names(false), (names{"5", "4", "3"}));
  EXPECT_TRUE(same_bytes(kept[5].wait_in(), data));
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 3 * chunk) << "it is used, and still there";
  kept[5].leave();
  resident(3, 4);
  EXPECT_EQ(w.seen.names(false), (names{"5", "4", "3", "2"}));
  w.swaps->reached(1);
  EXPECT_EQ(w.swaps->statistics().late, 0U);

  // Who waits is served whatever the limit is.
  EXPECT_TRUE(same_bytes(kept[6].wait_in(), huge));
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 7 * chunk);
  EXPECT_EQ(w.swaps->statistics().late, 1U);
  kept[6].reset();
  for (const std::size_t layer : {4U, 3U, 2U, 1U, 0U}) {
    kept[layer].wait_in();
    kept[layer].reset();
  }
  w.settle();
  const swap_statistics now = w.swaps->statistics();
  EXPECT_EQ(now.resident_bytes, 0U);
  EXPECT_EQ(now.resident_peak_bytes, 7 * chunk);

  // A new round brings the same ones back again; those that were used stay away in their round.
  kept[5].wait_out();
  w.swaps->reached(0);
  w.seen.wait_for(9 + 3 + 4 + 4 + 2 + 1);
  w.settle();
  EXPECT_EQ(w.seen.names(false).back(), "5");
}

TEST(swap, nothing_comes_back_too_far_ahead) {
  watched w({.ahead = 1});
  const bytes data = make_bytes(chunk, 1);
  std::vector<swapped> kept;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = std::to_string(layer);
    kept.push_back(w.out(data, {.name = name, .needed_at = layer}));
    kept.back().wait_out();
  }
  w.swaps->reached(0);
  w.seen.wait_for(4 + 2);
  w.settle();
  EXPECT_EQ(w.seen.names(false), (names{"0", "1"}));
  // What goes out after reached() belongs to what comes next.
  swapped next = w.out(data, {.name = "next", .needed_at = 0});
  next.wait_out();
  w.settle();
  EXPECT_EQ(w.seen.names(false), (names{"0", "1"}));
  w.swaps->reached(2);
  w.seen.wait_for(4 + 2 + 1 + 2);
  w.settle();
  EXPECT_EQ(w.seen.names(false), (names{"0", "1", "2", "3"}));
}

TEST(swap, what_comes_back_late_is_heard_of) {
  struct heard {
    std::vector<std::string> names;
    static void hear(void* user, const event& what) {
      EXPECT_EQ(what.kind, event_kind::late);
      EXPECT_EQ(what.required_bytes, 100U);
      EXPECT_EQ(what.available_bytes, 0U);
      static_cast<heard*>(user)->names.emplace_back(what.tensor);
    }
  } events;
  const watched w({.events = {&heard::hear, &events}});
  const bytes data = make_bytes(100, 1);
  swapped late = w.out(data, {.name = "late"}), early = w.out(data, {.name = "early"});
  late.wait_out();
  early.wait_out();
  early.swap_in();
  w.settle();
  early.wait_in();
  late.wait_in();
  EXPECT_EQ(events.names, names{"late"});
  EXPECT_EQ(w.swaps->statistics().late, 1U);
  EXPECT_EQ(to_string(event_kind::late), "late");
}

TEST(swap, leaving_gives_back_only_what_was_handed_out) {
  watched w;
  const bytes data = make_bytes(chunk, 1);
  bytes mine(chunk);
  swapped out = w.out(data, {.needed_at = 0});
  out.wait_out();
  out.leave();
  out.swap_in(mine.data(), chunk);
  w.seen.wait_for(2);
  w.settle();
  out.leave();
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U) << "what is in the caller's memory was freed";
  EXPECT_EQ(out.wait_in(), mine.data());
  EXPECT_EQ(mine, data);

  w.swaps->reached(0);
  w.seen.wait_for(3);
  w.settle();
  out.leave();
  EXPECT_EQ(w.swaps->statistics().resident_bytes, chunk) << "nobody had been told where it is";
  EXPECT_TRUE(same_bytes(out.wait_in(), data));
  EXPECT_EQ(w.swaps->statistics().bytes_in, 2 * chunk) << "it was copied twice";
  out.leave();
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);

  out.swap_in();
  w.settle();
  out.swap_in(mine.data(), chunk);
  out.leave();
  EXPECT_EQ(w.swaps->statistics().resident_bytes, chunk);
  mine.assign(chunk, 0);
  EXPECT_EQ(out.wait_in(), mine.data());
  EXPECT_EQ(mine, data);
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
}

TEST(swap, memory_that_was_handed_out_stays_until_it_is_left) {
  counting_memory memory(host_memory());
  const watched w({.memory = &memory});
  const bytes data = make_bytes(3 * chunk, 1);
  bytes mine(data.size());
  swapped out = w.out(data);
  void* here = out.wait_in();
  for (int round = 0; round < 2; ++round) {
    mine.assign(data.size(), 0);
    out.swap_in(mine.data(), mine.size());
    EXPECT_EQ(out.wait_in(), mine.data());
    EXPECT_EQ(mine, data);
    ASSERT_EQ(memory.blocks_in_use(), 1U);
    EXPECT_TRUE(same_bytes(here, data));
    EXPECT_EQ(w.swaps->statistics().resident_bytes, data.size());
  }
  EXPECT_EQ(out.wait_in(), here);
  out.leave();
  EXPECT_EQ(memory.blocks_in_use(), 0U);

  // Left while it goes on to the caller's memory, it goes with that.
  out.wait_in();
  out.swap_in(mine.data(), mine.size());
  out.leave();
  mine.assign(data.size(), 0);
  EXPECT_EQ(out.wait_in(), mine.data());
  EXPECT_EQ(mine, data);
  EXPECT_EQ(memory.blocks_in_use(), 0U);
  EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
}

TEST(swap, what_restore_cannot_do_changes_nothing) {
  counting_memory memory(host_memory());
  watched w({.memory = &memory});
  const std::vector<float> x = make_values(5000, 0.5, flavour::positive, 6);
  std::vector<float> back(5000), shorter(4999);
  std::vector<std::uint8_t> other(5000);
  const auto refused = [&](swapped& s) {
    EXPECT_EQ(code_of([&] { s.restore(view_of(shorter)); }), errc::invalid_argument);
    EXPECT_EQ(code_of([&] { s.restore(view_of(other)); }), errc::invalid_argument);
    EXPECT_EQ(code_of([&] {
                s.restore(tensor_view{nullptr, dtype::f32, memory_space::host, {5000}, 0});
              }),
              errc::invalid_argument);
  };
  const stashed_tensor encoded(parse_encoding("bitmap"), view_of(x));
  swapped a = w.swaps->swap_out(encoded), b = w.swaps->swap_out(view_of(x));
  for (swapped* s : {&a, &b}) {
    s->wait_out();
    const std::uint64_t before = w.swaps->statistics().bytes_in;
    refused(*s);
    EXPECT_EQ(w.swaps->statistics().bytes_in, before) << "it was brought back for nothing";
    const auto* const here = static_cast<const std::uint8_t*>(s->wait_in());
    const bytes content(here, here + s->bytes());
    refused(*s);
    ASSERT_EQ(memory.blocks_in_use(), 1U);
    EXPECT_TRUE(same_bytes(here, content));
    EXPECT_EQ(s->wait_in(), here);
    s->restore(view_of(back));
    EXPECT_EQ(bits_of(back), bits_of(x));
    EXPECT_EQ(memory.blocks_in_use(), 0U);
  }
  // What failed on its way to the caller's memory is still said by the call that waits for it.
  w.seen.fail_after(0);
  b.swap_in(back.data(), 20'000);
  refused(b);
  EXPECT_EQ(code_of([&] { b.wait_in(); }), errc::device_failure);
  EXPECT_EQ(b.wait_in(), back.data());

  stashed_tensor damaged(parse_encoding("bitmap"), view_of(x));
  std::memset(static_cast<std::uint8_t*>(damaged.output().data) + 640, 0x3f, 4);
  swapped c = w.swaps->swap_out(std::move(damaged));
  const void* const here = c.wait_in();
  EXPECT_EQ(code_of([&] { c.restore(view_of(back)); }), errc::corrupt_data);
  EXPECT_EQ(c.wait_in(), here) << "memory that was handed out is gone";
  EXPECT_EQ(memory.blocks_in_use(), 1U);

  swapped d = w.swaps->swap_out(stashed_tensor(parse_encoding("shape_only"), view_of(x)));
  EXPECT_EQ(code_of([&] { d.restore(view_of(back)); }), errc::unsupported);
}

TEST(swap, who_waits_in_vain_is_late_once) {
  struct heard {
    int count = 0;
    static void hear(void* user, const event&) { ++static_cast<heard*>(user)->count; }
  } events;
  watched w({.events = {&heard::hear, &events}});
  const bytes data = make_bytes(100, 1);
  w.seen.fail_after(0);
  swapped out = w.out(data);
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(code_of([&] { out.wait_in(); }), errc::device_failure);
    EXPECT_EQ(w.swaps->statistics().late, 0U) << "its way out failed";
    if (attempt < 2) w.seen.fail_after(0);
  }
  out.wait_in();
  EXPECT_EQ(w.swaps->statistics().late, 1U);
  EXPECT_EQ(events.count, 1);
  out.leave();
  for (int attempt = 0; attempt < 3; ++attempt) {
    w.seen.fail_after(0);
    EXPECT_EQ(code_of([&] { out.wait_in(); }), errc::device_failure);
    EXPECT_EQ(w.swaps->statistics().late, 1U);
  }
  out.wait_in();
  EXPECT_EQ(w.swaps->statistics().late, 2U);
  EXPECT_EQ(events.count, 2);
}

TEST(swap, memory_on_the_host_has_a_limit) {
  counting_memory host(host_memory());
  const watched w({.host = &host, .host_limit_bytes = 4096});
  const bytes data = make_bytes(2048, 1), small = make_bytes(512, 2);
  swapped a = w.out(data, {.name = "a"}), b = w.out(data);
  EXPECT_EQ(code_of([&] { w.out(small); }), errc::out_of_memory);
  EXPECT_EQ(message_of([&] { w.out(small, {.name = "conv1"}); }),
            "swapper::swap_out: conv1: expected 512 bytes of host memory, got 4096 of 4096 in use");
  EXPECT_TRUE(w.out(small, {.empty_if_full = true}).empty());
  EXPECT_EQ(w.swaps->statistics().host_bytes, 4096U);

  // A tensor that could not go out is the caller's as before.
  const std::vector<float> x(100, 1.0F);
  stashed_tensor kept(parse_encoding("raw"), view_of(x));
  EXPECT_EQ(code_of([&] { w.swaps->swap_out(std::move(kept)); }), errc::out_of_memory);
  EXPECT_FALSE(kept.empty());
  EXPECT_TRUE(w.swaps->swap_out(std::move(kept), {.empty_if_full = true}).empty());
  EXPECT_FALSE(kept.empty());

  a.reset();
  EXPECT_EQ(host.blocks_in_use(), 2U) << "a block is kept for the next tensor of its size";
  const swapped c = w.out(data);
  EXPECT_EQ(host.blocks_in_use(), 2U);
  b.reset();
  const swapped d = w.out(small);  // the kept block frees memory
  EXPECT_EQ(host.bytes_in_use(), 2048U + 512U);
  EXPECT_EQ(host.peak_bytes(), 4096U);
  EXPECT_EQ(w.swaps->statistics().host_peak_bytes, 4096U);
  EXPECT_EQ(code_of([&] { w.swaps->swap_out(small.data(), SIZE_MAX); }), errc::out_of_memory);
  EXPECT_EQ(w.swaps->statistics().host_bytes, 2048U + 512U);
}

/// Some tensors go out and come back in each way there is; calls that fail are made again. The counts of
/// failures are the caller's business.
std::vector<bytes> small_run(swapper& swaps, int& failures) {
  std::vector<bytes> results;
  const auto again = [&](const auto& call) {
    for (int attempt = 0;; ++attempt) {
      try {
        return call();
      } catch (const error& e) {
        EXPECT_TRUE(e.code() == errc::out_of_memory || e.code() == errc::device_failure) << e.what();
        EXPECT_TRUE(std::string(e.what()).find("conv") != std::string::npos) << e.what();
        ++failures;
        EXPECT_LT(attempt, 2);
        if (attempt >= 2) throw;
      }
    }
  };
  const std::vector<float> x = make_values(1500, 0.5, flavour::special, 9);
  const bytes data = make_bytes(2 * chunk + 3, 1);
  stashed_tensor owned(parse_encoding("bitmap"), view_of(x));
  swapped a = again([&] { return swaps.swap_out(std::move(owned), {.name = "conv1", .needed_at = 2}); });
  swapped b =
      again([&] { return swaps.swap_out(data.data(), data.size(), {.name = "conv2", .needed_at = 1}); });
  swapped c = again([&] { return swaps.swap_out(view_of(x), {.name = "conv3", .needed_at = 3}); });
  again([&] { b.wait_out(); });
  again([&] { c.wait_out(); });
  swaps.reached(0);
  std::vector<float> found(x.size());
  const auto note = [&](const void* from, std::size_t count) {
    const auto* const first = static_cast<const std::uint8_t*>(from);
    results.emplace_back(first, first + count);
  };
  again([&] { a.restore(view_of(found)); });
  note(found.data(), found.size() * 4);
  note(again([&] { return b.wait_in(); }), data.size());
  b.leave();
  bytes mine(data.size());
  b.swap_in(mine.data(), mine.size());
  again([&] { b.wait_in(); });
  results.push_back(mine);
  again([&] { c.restore(view_of(found)); });
  note(found.data(), found.size() * 4);
  const stashed_tensor taken = again([&] { return a.take(); });
  note(taken.stored().bytes.data, 128);
  return results;
}

TEST(swap, every_copy_may_fail) {
  int none = 0;
  watched plain;
  const std::vector<bytes> expected = small_run(*plain.swaps, none);
  ASSERT_EQ(none, 0);
  const auto chunks = static_cast<std::int64_t>(plain.seen.chunks().size());
  ASSERT_GT(chunks, 20);
  int heard = 0;
  for (std::int64_t n = 0; n <= chunks; ++n) {
    watched w;
    w.seen.fail_after(n);
    int failures = 0;
    EXPECT_EQ(small_run(*w.swaps, failures), expected) << n;
    w.settle();
    EXPECT_EQ(w.swaps->statistics().failures, w.seen.failed() ? 1U : 0U);
    EXPECT_LE(failures, 1);
    heard += failures;
    EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
  }
  EXPECT_GT(heard, 5);
}

TEST(swap, every_allocation_of_both_sides_may_fail) {
  int none = 0;
  const std::vector<bytes> expected = small_run(*watched().swaps, none);
  int heard = 0;
  for (const bool on_host : {false, true}) {
    for (std::int64_t n = 0;; ++n) {
      failing_memory memory;
      bool failed = false;
      {
        const watched w(on_host ? swapper_options{.host = &memory} : swapper_options{.memory = &memory});
        memory.fail_after(n);
        int failures = 0;
        EXPECT_EQ(small_run(*w.swaps, failures), expected) << n;
        failed = memory.failed();
        EXPECT_LE(failures, failed ? 1 : 0);
        heard += failures;
      }
      EXPECT_EQ(memory.blocks_in_use(), 0U);
      if (!failed) break;
    }
  }
  EXPECT_GT(heard, 0);
}

TEST(swap, failures_say_what_failed) {
  watched w;
  const bytes data = make_bytes(100, 1);
  w.seen.fail_after(0);
  swapped out = w.out(data, {.name = "conv1"});
  EXPECT_EQ(message_of([&] { out.wait_out(); }),
            "swapped::wait_out: conv1: expected 100 bytes to be copied to the host, got told to fail");
  EXPECT_FALSE(out.out_ended());
  out.wait_out();
  w.seen.fail_after(0);
  EXPECT_EQ(message_of([&] { out.wait_in(); }),
            "swapped::wait_in: conv1: expected 100 bytes to be copied from the host, got told to fail");
  EXPECT_TRUE(same_bytes(out.wait_in(), data));
  // A tensor that nobody waited for, and whose way out failed, is still there.
  const std::vector<float> x = make_values(100, 0.5, flavour::special, 2);
  w.seen.fail_after(0);
  swapped kept = w.swaps->swap_out(stashed_tensor(parse_encoding("raw"), view_of(x)));
  std::vector<float> back(100);
  EXPECT_EQ(code_of([&] { kept.restore(view_of(back)); }), errc::device_failure);
  kept.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));
  // A dense tensor, which is copied to where it is restored.
  w.seen.fail_after(0);
  swapped dense = w.swaps->swap_out(view_of(x));
  std::fill(back.begin(), back.end(), 0.0F);
  const std::uint64_t bytes_in = w.swaps->statistics().bytes_in;
  EXPECT_EQ(code_of([&] { dense.restore(view_of(back)); }), errc::device_failure);
  dense.wait_out();
  w.settle();
  EXPECT_EQ(w.swaps->statistics().bytes_in, bytes_in) << "it goes to memory that is nobody's any more";
  dense.restore(view_of(back));
  EXPECT_EQ(bits_of(back), bits_of(x));
  // What nobody had asked for is brought back by the call that waits.
  const std::size_t before = w.seen.chunks().size();
  swapped ahead = w.out(data, {.needed_at = 1});
  ahead.wait_out();
  w.seen.fail_after(0);
  w.swaps->reached(0);
  w.seen.wait_for(before + 2);
  while (w.swaps->statistics().bytes_in_flight != 0) {
  }
  EXPECT_TRUE(same_bytes(ahead.wait_in(), data));
  // A copy to the caller's memory that failed may be asked for elsewhere.
  bytes mine(100), other(100);
  ahead.leave();
  w.seen.fail_after(0);
  ahead.swap_in(mine.data(), 100);
  EXPECT_EQ(code_of([&] { ahead.wait_in(); }), errc::device_failure);
  ahead.swap_in(other.data(), 100);
  EXPECT_EQ(ahead.wait_in(), other.data());
  EXPECT_EQ(other, data);
}

TEST(swap, every_allocation_of_the_caller_may_fail) {
  swapper swaps;
  const std::string name(100, 'n');
  const bytes data = make_bytes(100, 1);
  const std::vector<float> x(100, 1.0F);
  const stashed_tensor kept(parse_encoding("raw"), view_of(x));
  std::vector<float> back(100);
  // So that what only grows has grown, and a thread's first exception does not count.
  const auto call = [&] {
    swapped raw = swaps.swap_out(data.data(), data.size(), {.name = name});
    swapped tensor = swaps.swap_out(kept, {.name = name});
    raw.wait_out();
    tensor.restore(view_of(back));
    const stashed_tensor taken = tensor.take();
    EXPECT_EQ(taken.name(), name);
  };
  call();
  EXPECT_GE(fail_every_allocation(call, [&] { return swaps.statistics().host_bytes == 0; }), 4);
  EXPECT_GE(fail_every_allocation([] { const swapper another; }), 2);
}

TEST(swap, failure_to_start_a_thread_is_out_of_memory) {
  const auto call = [] {
    const stash_test::no_new_threads none;
    const swapper swaps;
  };
  EXPECT_EQ(code_of(call), errc::out_of_memory);
  const std::string message = message_of(call);
  EXPECT_EQ(message.find("swapper: threads: expected resources for two, got "), 0U) << message;
  const swapper swaps;
}

TEST(swap, destruction_waits_for_copies) {
  bytes data = make_bytes(50 * chunk, 1), mine(data.size());
  swapped kept, coming, dropped;
  std::thread opener;
  {
    watched w;
    coming = w.out(data, {.name = "coming"});
    coming.wait_out();
    w.seen.close();
    kept = w.out(data, {.name = "kept"});
    dropped = w.out(data, {.name = "dropped"});
    coming.swap_in(mine.data(), mine.size());
    opener = std::thread([&w] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      w.seen.open();
    });
    dropped.reset();
    w.swaps.reset();
    opener.join();
    EXPECT_EQ(w.seen.names(true).back(), "kept");
  }
  EXPECT_EQ(mine, data);
  EXPECT_EQ(kept.bytes(), data.size());
  EXPECT_EQ(code_of([&] { (void)kept.out_ended(); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { kept.wait_in(); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { kept.wait_out(); }), errc::invalid_argument);
  kept.reset();
  EXPECT_TRUE(kept.empty());
}

TEST(swap, giving_up_waits_for_the_chunk_that_is_copied) {
  watched w;
  const bytes data = make_bytes(2 * chunk, 1);
  w.seen.close();
  swapped out = w.out(data);
  w.seen.wait_for(1);
  std::atomic<bool> returned{false};
  std::thread resetter([&] {
    out.reset();
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(returned);
  w.seen.open();
  resetter.join();
  EXPECT_EQ(w.seen.chunks().size(), 1U) << "the rest was copied all the same";
}

TEST(swap, giving_up_in_the_middle_leaves_nothing) {
  failing_memory host, memory;
  {
    watched w({.host = &host, .memory = &memory});
    const bytes data = make_bytes(20 * chunk, 1);
    for (std::size_t chunks = 1; chunks < 60; chunks += 7) {
      const std::size_t before = w.seen.chunks().size();
      swapped out = w.out(data, {.needed_at = 0});
      w.swaps->reached(0);
      out.swap_in();
      w.seen.wait_for(before + std::min<std::size_t>(chunks, 40));
      if (chunks % 2 == 0) out = w.out(data);
    }
    EXPECT_EQ(w.swaps->statistics().resident_bytes, 0U);
    EXPECT_EQ(w.swaps->statistics().host_bytes, 0U);
    EXPECT_EQ(w.swaps->statistics().bytes_in_flight, 0U);
    EXPECT_EQ(memory.blocks_in_use(), 0U);
  }
  EXPECT_EQ(host.blocks_in_use(), 0U);
}

TEST(swap, handles_move) {
  const watched w;
  const bytes data = make_bytes(100, 1);
  swapped a = w.out(data, {.name = "a"});
  swapped b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT(bugprone-use-after-move): what is promised
  EXPECT_EQ(a.bytes(), 0U);
  EXPECT_EQ(a.name(), "");
  EXPECT_EQ(b.name(), "a");
  swapped c = w.out(data);
  c = std::move(b);
  EXPECT_EQ(c.name(), "a");
  EXPECT_EQ(w.swaps->statistics().host_bytes, 128U);
  EXPECT_TRUE(same_bytes(c.wait_in(), data));
}

TEST(swap, wrong_arguments) {
  const auto refused = [](const swapper_options& options) {
    return code_of([&] { const swapper swaps(options); }) == errc::invalid_argument;
  };
  failing_memory device(memory_space::device), pinned(memory_space::pinned_host);
  EXPECT_TRUE(refused({.space = memory_space::pinned_host}));
  failing_memory nowhere(static_cast<memory_space>(9));
  EXPECT_TRUE(refused({.host = &nowhere}));
  EXPECT_TRUE(refused({.memory = &nowhere}));
  EXPECT_TRUE(refused({.host = &device}));
  EXPECT_TRUE(refused({.memory = &device}));
  EXPECT_TRUE(refused({.space = memory_space::device, .host = &host_memory(), .memory = &device}));
  EXPECT_TRUE(refused({.space = memory_space::device, .host = &pinned, .memory = &host_memory()}));
  EXPECT_TRUE(refused({.ahead = -1}));
  EXPECT_TRUE(refused({.chunk_bytes = 0}));
  EXPECT_EQ(code_of([&] { const swapper swaps({.space = memory_space::device, .host = &pinned}); }),
            errc::unsupported)
      << "this build has no device";
  try {
    const swapper swaps({.space = memory_space::device});
    ADD_FAILURE();
  } catch (const error& e) {
    EXPECT_STREQ(e.what(), "swapper: options.space: expected host, or a build with CUDA, got device");
  }

  const watched w;
  const bytes data = make_bytes(100, 1);
  execution_context on_device;
  on_device.space = memory_space::device;
  EXPECT_EQ(code_of([&] { w.swaps->swap_out(nullptr, 1); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { w.swaps->swap_out(stashed_tensor()); }), errc::invalid_argument);
  EXPECT_NE(code_of([&] { w.swaps->swap_out(data.data(), 1, {}, on_device); }), errc::ok);
  EXPECT_EQ(code_of([&] {
              w.swaps->swap_out(const_tensor_view{nullptr, dtype::f32, {}, {5}, 0});
            }),
            errc::invalid_argument);

  EXPECT_EQ(code_of([&] {
              w.swaps->swap_out(const_tensor_view{data.data(), static_cast<dtype>(9), {}, {5}, 0});
            }),
            errc::invalid_argument);

  swapped empty;
  bytes mine(100);
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { empty.wait_out(); }, [&] { (void)empty.out_ended(); }, [&] { empty.swap_in(); },
           [&] { empty.swap_in(mine.data(), 0); }, [&] { empty.wait_in(); }, [&] { empty.leave(); },
           [&] { empty.restore({}); }, [&] { empty.take(); }}) {
    EXPECT_EQ(code_of(call), errc::invalid_argument);
  }
  swapped out = w.out(data, {.name = "conv1"});
  EXPECT_EQ(code_of([&] { out.swap_in(mine.data(), 99); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { out.swap_in(nullptr, 100); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { out.restore(view_of(mine)); }), errc::invalid_argument) << "only bytes";
  EXPECT_EQ(code_of([&] { out.take(); }), errc::invalid_argument);
  out.swap_in(mine.data(), 100);
  EXPECT_EQ(code_of([&] { out.swap_in(mine.data(), 100); }), errc::invalid_argument) << "is under way";
  out.wait_in();
  EXPECT_EQ(mine, data);
}

}  // namespace
}  // namespace stash
