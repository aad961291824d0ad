// SPDX-License-Identifier: Apache-2.0
// A swapper on a device, here the emulator's: copies happen only where somebody waits for them, and as late
// as that allows, so that a missing wait, or memory that is reused too early, shows as wrong bytes.

#include "stash/swap.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "encoders/device/device_memory.hpp"
#include "encoders/support.hpp"
#include "runtime/swap_support.hpp"
#include "simt/device_memory.hpp"
#include "simt/report_slots.hpp"

namespace stash {
namespace {

using stash_test::bits_of;
using stash_test::code_of;
using stash_test::flavour;
using stash_test::make_bytes;
using stash_test::make_values;
using bytes = std::vector<std::uint8_t>;

int one_stream, other_stream;
const execution_context device{memory_space::device, nullptr, nullptr, &one_stream};
const execution_context later{memory_space::device, nullptr, nullptr, &other_stream};

constexpr swapper_options small_chunks{.space = memory_space::device, .chunk_bytes = 1000};

/// Memory of the device, which the tests write and read as kernels do: at once.
struct on_device {
  explicit on_device(std::size_t count)
      : size(count), data(static_cast<std::uint8_t*>(device_memory().allocate(count, 64))) {}
  explicit on_device(const bytes& content) : on_device(content.size()) { set(content); }
  ~on_device() { device_memory().deallocate(data, size, 64); }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;
  void set(const bytes& content) const {
    if (size != 0) std::memcpy(data, content.data(), size);
  }
  bytes get() const { return {data, data + size}; }
  tensor_view floats() const {
    return {data, dtype::f32, memory_space::device, {static_cast<std::int64_t>(size / 4)}, 0};
  }
  std::size_t size;
  std::uint8_t* data;
};

bytes bytes_of(const std::vector<float>& values) {
  const auto* const first = reinterpret_cast<const std::uint8_t*>(values.data());
  return {first, first + values.size() * 4};
}

/// Everything is freed at the end.
class device_swap : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(simt::blocks_in_use(), blocks_);
    EXPECT_EQ(simt::streams_and_events(), objects_);
  }
  device_swap() {
    stash_test::pin_report_slots();
    blocks_ = simt::blocks_in_use();
    objects_ = simt::streams_and_events();
  }
  std::size_t blocks_, objects_;
};

TEST_F(device_swap, raw_bytes_come_back) {
  swapper swaps(small_chunks);
  for (const std::size_t size : {0U, 1U, 999U, 1000U, 1001U, 12'345U}) {
    const bytes content = make_bytes(size, 1);
    const on_device x(content), mine(size);
    swapped kept = swaps.swap_out(x.data, size, {.name = "x"}, device);
    kept.wait_out(device);
    x.set(bytes(size));  // a kernel after the wait
    const auto* const here = static_cast<const std::uint8_t*>(kept.wait_in(later));
    EXPECT_EQ(bytes(here, here + size), content);
    kept.leave(later);
    kept.swap_in(mine.data, size, device);
    EXPECT_EQ(kept.wait_in(later), mine.data);
    EXPECT_EQ(mine.get(), content);
    kept.swap_in(later);
    mine.set(bytes(size));
    kept.swap_in(mine.data, size, later);  // from where it is
    EXPECT_EQ(kept.wait_in(later), mine.data);
    swapped again = swaps.swap_out(mine.data, size, {}, later);  // after all that in the stream
    again.wait_in(device);
    EXPECT_EQ(mine.get(), content);
  }
  EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
}

TEST_F(device_swap, the_host_never_waits) {
  swapper swaps(small_chunks);
  const bytes content = make_bytes(5000, 2);
  const on_device x(content), y(5000);
  const std::vector<float> values = make_values(5000, 0.5, flavour::special, 3);
  const on_device map(bytes_of(values)), back(values.size() * 4);
  stashed_tensor tensor(parse_encoding("fp16"), map.floats(), {}, device);
  const std::size_t waits = simt::calls_so_far().waits;
  swapped kept = swaps.swap_out(x.data, 5000, {.needed_at = 1}, device);
  swapped encoded = swaps.swap_out(std::move(tensor), {.needed_at = 2}, device);
  kept.wait_out(device);
  swaps.reached(0);
  kept.wait_in(device);
  kept.leave(device);
  kept.swap_in(y.data, 5000, device);
  kept.wait_in(device);
  encoded.restore(back.floats(), device);
  EXPECT_EQ(simt::calls_so_far().waits, waits);
  EXPECT_EQ(y.get(), content);
  EXPECT_EQ(swaps.statistics().late, 0U);
}

TEST_F(device_swap, encoded_tensors_come_back) {
  swapper swaps(small_chunks);
  for (const char* name : {"raw", "bitmap", "csr", "fp8", "bitmap_fp8", "mxfp6_e2m3"}) {
    for (const std::int64_t count : {0, 1, 1025, 20'000}) {
      const std::vector<float> x = make_values(count, 0.2, flavour::special, 4);
      const on_device map(bytes_of(x)), expected(x.size() * 4), found(x.size() * 4);
      const encoding e = parse_encoding(name);
      stashed_tensor kept(e, map.floats(), {}, device);
      kept.restore(expected.floats(), device);
      swapped lent = swaps.swap_out(kept, {}, device);
      swapped handed_over = swaps.swap_out(std::move(kept), {}, device);
      EXPECT_TRUE(kept.empty());  // NOLINT(bugprone-use-after-move): what is promised
      lent.restore(found.floats(), later, true);
      EXPECT_EQ(found.get(), expected.get()) << name << count;
      found.set(bytes(found.size));
      const stashed_tensor taken = handed_over.take(later);
      taken.restore(found.floats(), later);
      taken.check(later);
      EXPECT_EQ(found.get(), expected.get()) << name << count;
    }
  }
}

TEST_F(device_swap, bytes_in_use_are_the_callers_word) {
  swapper swaps(small_chunks);
  const std::vector<float> x = make_values(20'000, 0.1, flavour::special, 4);
  const on_device map(bytes_of(x)), found(x.size() * 4);
  stashed_tensor kept(parse_encoding("bitmap"), map.floats(), {.capacity = SIZE_MAX}, device);
  const auto used = static_cast<std::size_t>(kept.size(device).wait().bytes);
  EXPECT_EQ(swaps.swap_out(kept, {}, device).bytes(), kept.bytes());
  swapped out = swaps.swap_out(std::move(kept), {.bytes_in_use = used}, device);
  EXPECT_EQ(out.bytes(), used + sizeof(encode_report));
  out.restore(found.floats(), device, true);
  EXPECT_EQ(found.get(), bytes_of(x));
}

TEST_F(device_swap, comes_back_in_order_and_within_the_limit) {
  stash_test::watcher seen;
  swapper_options options = small_chunks;
  options.residency_limit_bytes = 2000;
  const auto swaps = runtime::swap_access::make(options, seen.hook());
  const on_device x(make_bytes(1000, 1)), y(make_bytes(3000, 1));
  std::vector<swapped> kept;
  kept.push_back(swaps->swap_out(x.data, 1000, {.name = "third", .needed_at = 3}, device));
  kept.push_back(swaps->swap_out(x.data, 1000, {.name = "second", .needed_at = 2}, device));
  kept.push_back(swaps->swap_out(x.data, 1000, {.name = "first", .priority = 1, .needed_at = 9}, device));
  kept.push_back(swaps->swap_out(y.data, 3000, {.name = "large", .needed_at = 1}, device));
  using names = std::vector<std::string>;
  EXPECT_EQ(seen.names(false), names{});
  swaps->reached(0);
  EXPECT_EQ(seen.names(false), (names{"first", "second"}));
  EXPECT_EQ(swaps->statistics().resident_bytes, 2000U);
  kept[2].wait_in(device);
  kept[2].reset();
  EXPECT_EQ(seen.names(false), (names{"first", "second", "third"}));
  kept[3].wait_in(device);
  EXPECT_EQ(swaps->statistics().late, 1U);
  EXPECT_EQ(swaps->statistics().resident_peak_bytes, 5000U);
}

TEST_F(device_swap, blocks_are_reused_only_after_their_copies) {
  swapper_options options = small_chunks;
  options.host_limit_bytes = 4096;
  swapper swaps(options);
  const on_device found(4096);
  for (std::uint32_t round = 0; round < 20; ++round) {
    const bytes content = make_bytes(4096, round);
    const on_device x(content);
    swapped kept = swaps.swap_out(x.data, 4096, {}, device);
    EXPECT_EQ(code_of([&] { swaps.swap_out(x.data, 1, {}, device); }), errc::out_of_memory);
    kept.swap_in(found.data, 4096, device);
    kept.wait_out(device);
    kept.wait_in(device);
    if (round % 3 != 0) {
      EXPECT_EQ(found.get(), content);
    }
    // The block goes back while, for all the host knows, it is still being read.
  }
  EXPECT_EQ(swaps.statistics().host_peak_bytes, 4096U);
}

/// A stream of the caller in which, as far as anybody can see, nothing has happened yet.
struct lazy_stream {
  lazy_stream() : handle(encoders::device::create_stream()) {}
  ~lazy_stream() { encoders::device::destroy_stream(handle); }
  lazy_stream(const lazy_stream&) = delete;
  lazy_stream& operator=(const lazy_stream&) = delete;
  execution_context context() const { return {memory_space::device, nullptr, nullptr, handle}; }
  void* handle;
};

TEST_F(device_swap, a_block_that_is_still_read_is_not_reused) {
  swapper swaps(small_chunks);
  const bytes content = make_bytes(4096, 1);
  const on_device x(content), y(make_bytes(4096, 2)), found(4096);
  const lazy_stream lazy;
  swapped first = swaps.swap_out(x.data, 4096, {}, device);
  first.swap_in(found.data, 4096, lazy.context());
  first.wait_in(lazy.context());
  first.reset();
  swapped second = swaps.swap_out(y.data, 4096, {}, device);
  second.wait_out(device);
  encoders::device::wait_for_stream(lazy.handle);
  EXPECT_EQ(found.get(), content);
}

TEST_F(device_swap, copies_wait_for_the_work_before) {
  swapper swaps(small_chunks);
  const bytes content = make_bytes(4096, 1), old = make_bytes(4096, 2);
  const on_device x(old), found(old);
  const lazy_stream lazy;
  bytes read(4096);
  // The source is written by work that has not happened yet.
  encoders::device::copy(x.data, content.data(), 4096, lazy.handle);
  swapped kept = swaps.swap_out(x.data, 4096, {}, lazy.context());
  // The target is read by such work.
  encoders::device::copy(read.data(), found.data, 4096, lazy.handle);
  kept.swap_in(found.data, 4096, lazy.context());
  kept.wait_in(device);
  EXPECT_EQ(found.get(), content);
  encoders::device::wait_for_stream(lazy.handle);
  EXPECT_EQ(read, old);
}

TEST_F(device_swap, leaving_gives_back_only_what_was_handed_out) {
  swapper swaps(small_chunks);
  const bytes content = make_bytes(5000, 1);
  const on_device x(content), mine(5000);
  swapped out = swaps.swap_out(x.data, 5000, {.needed_at = 0}, device);
  out.leave(device);
  out.swap_in(mine.data, 5000, device);
  out.leave(device);
  EXPECT_EQ(out.wait_in(device), mine.data);
  EXPECT_EQ(mine.get(), content);

  swaps.reached(0);
  out.leave(device);
  EXPECT_EQ(swaps.statistics().resident_bytes, 5000U) << "nobody had been told where it is";
  out.wait_in(device);
  EXPECT_EQ(swaps.statistics().bytes_in, 10'000U) << "it was copied twice";
  out.leave(device);
  EXPECT_EQ(swaps.statistics().resident_bytes, 0U);

  out.swap_in(device);
  out.swap_in(mine.data, 5000, device);
  out.leave(device);
  EXPECT_EQ(swaps.statistics().resident_bytes, 5000U);
  mine.set(bytes(5000));
  EXPECT_EQ(out.wait_in(device), mine.data);
  encoders::device::wait_for_stream(device.stream);
  EXPECT_EQ(mine.get(), content);
  EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
}

TEST_F(device_swap, memory_that_was_handed_out_stays_until_it_is_left) {
  swapper swaps(small_chunks);
  const bytes content = make_bytes(5000, 1);
  const on_device x(content), mine(5000);
  // Given up without leaving; left before, between and after the copy to the caller's memory.
  for (const int way : {0, 1, 2, 3}) {
    const lazy_stream one, other, third;
    swapped out = swaps.swap_out(x.data, 5000, {}, device);
    const auto* const here = static_cast<const std::uint8_t*>(out.wait_in(one.context()));
    EXPECT_EQ(out.wait_in(third.context()), here);
    mine.set(bytes(5000));
    if (way == 1) out.leave(third.context());
    out.swap_in(mine.data, 5000, device);
    bytes read(5000);
    if (way != 1) encoders::device::copy(read.data(), here, 5000, third.handle);
    if (way == 2) out.leave(third.context());
    EXPECT_EQ(out.wait_in(other.context()), mine.data);
    EXPECT_EQ(swaps.statistics().resident_bytes, way == 1 || way == 2 ? 0U : 5000U) << way;
    if (way == 3) {
      EXPECT_EQ(out.wait_in(one.context()), here);
      out.leave(third.context());
      EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
    }
    if (way == 0) out.reset();
    // Whoever would give it back too early does it now.
    encoders::device::wait_for_stream(way == 2 ? other.handle : third.handle);
    encoders::device::wait_for_stream(third.handle);
    encoders::device::wait_for_stream(other.handle);
    EXPECT_EQ(mine.get(), content) << way;
    if (way != 1) {
      EXPECT_EQ(read, content) << way;
    }
    out.reset();
    encoders::device::wait_for_stream(one.handle);
  }
  EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
}

TEST_F(device_swap, what_restore_cannot_do_changes_nothing) {
  swapper swaps(small_chunks);
  const std::vector<float> x = make_values(5000, 0.5, flavour::positive, 6);
  const on_device map(bytes_of(x)), back(x.size() * 4);
  tensor_view shorter = back.floats(), other = back.floats();
  shorter.dims = {4999};
  other.type = dtype::f16;
  const stashed_tensor encoded(parse_encoding("bitmap"), map.floats(), {}, device);
  swapped a = swaps.swap_out(encoded, {}, device), b = swaps.swap_out(map.floats(), {}, device);
  for (swapped* s : {&a, &b}) {
    for (int round = 0; round < 2; ++round) {
      const std::size_t blocks = simt::blocks_in_use();
      EXPECT_EQ(code_of([&] { s->restore(shorter, device); }), errc::invalid_argument);
      EXPECT_EQ(code_of([&] { s->restore(other, device); }), errc::invalid_argument);
      EXPECT_EQ(simt::blocks_in_use(), blocks);
      if (round == 0) s->wait_in(device);
    }
    const void* const here = s->wait_in(device);
    EXPECT_EQ(s->wait_in(device), here);
    EXPECT_EQ(swaps.statistics().resident_bytes, s->bytes());
    s->restore(back.floats(), device);
    EXPECT_EQ(back.get(), map.get());
    EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
  }
  stashed_tensor damaged(parse_encoding("bitmap"), map.floats(), {}, device);
  std::memset(static_cast<std::uint8_t*>(damaged.output().data) + 640, 0x3f, 4);
  swapped c = swaps.swap_out(std::move(damaged), {}, device);
  const void* const here = c.wait_in(device);
  EXPECT_EQ(code_of([&] { c.restore(back.floats(), device, true); }), errc::corrupt_data);
  EXPECT_EQ(swaps.statistics().resident_bytes, c.bytes()) << "memory that was handed out is gone";
  EXPECT_EQ(c.wait_in(device), here);
  c.leave(device);
  EXPECT_EQ(code_of([&] { c.restore(back.floats(), device, true); }), errc::corrupt_data);
  EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
}

TEST_F(device_swap, who_waits_in_vain_is_late_once) {
  swapper swaps(small_chunks);
  const on_device x(make_bytes(3000, 1));
  swapped out = swaps.swap_out(x.data, 3000, {}, device);
  for (int attempt = 0; attempt < 3; ++attempt) {
    simt::set_copies_left(1);
    EXPECT_EQ(code_of([&] { out.wait_in(device); }), errc::device_failure);
    simt::set_copies_left(-1);
    EXPECT_EQ(swaps.statistics().late, 0U);
  }
  out.wait_in(device);
  EXPECT_EQ(swaps.statistics().late, 1U);
}

// By the call that finds the copy ended, or needs the space.
TEST_F(device_swap, owned_tensors_are_freed_after_the_copy) {
  for (const std::size_t limit :
       {std::size_t{0}, 2 * (4000 * sizeof(float) + sizeof(encode_report)), SIZE_MAX}) {
    swapper_options options = small_chunks;
    options.leaving_limit_bytes = limit;
    swapper swaps(options);
    const std::vector<float> x = make_values(4000, 0.5, flavour::special, 4);
    const on_device map(bytes_of(x)), found(x.size() * 4);
    const std::size_t before = simt::blocks_in_use();
    std::vector<swapped> kept;
    for (std::size_t i = 1; i <= 5; ++i) {
      kept.push_back(
          swaps.swap_out(stashed_tensor(parse_encoding("raw"), map.floats(), {}, device), {}, device));
      EXPECT_LE(simt::blocks_in_use(), before + i + (limit == 0 ? 0 : 2)) << "a block on the host each";
    }
    for (swapped& s : kept) {
      s.restore(found.floats(), later);
      EXPECT_EQ(found.get(), bytes_of(x));
      found.set(bytes(found.size));
    }
    EXPECT_TRUE(kept[0].out_ended() || kept[0].out_ended());
    EXPECT_EQ(simt::blocks_in_use(), before + 5);
  }
}

/// A step, with calls that fail made again.
bytes small_run(swapper& swaps, int& failures) {
  const auto again = [&](const auto& call) {
    for (int attempt = 0;; ++attempt) {
      try {
        return call();
      } catch (const error& e) {
        EXPECT_TRUE(e.code() == errc::out_of_memory || e.code() == errc::device_failure) << e.what();
        ++failures;
        if (attempt >= 2) throw;
      }
    }
  };
  const std::vector<float> x = make_values(1500, 0.5, flavour::special, 9);
  const on_device map(bytes_of(x)), found(x.size() * 4), mine(3000);
  const bytes content = make_bytes(3000, 3);
  const on_device raw(content);
  stashed_tensor owned(parse_encoding("raw"), map.floats(), {}, device);
  swapped a = again([&] { return swaps.swap_out(std::move(owned), {.name = "a", .needed_at = 1}, device); });
  swapped b = again([&] { return swaps.swap_out(raw.data, raw.size, {.name = "b"}, device); });
  again([&] { b.wait_out(device); });
  raw.set(bytes(3000));
  swaps.reached(0);
  again([&] { a.restore(found.floats(), later); });
  bytes all = found.get();
  again([&] { b.wait_in(later); });
  b.leave(later);
  b.swap_in(mine.data, mine.size, later);
  again([&] { b.wait_in(later); });
  const bytes end = mine.get();
  all.insert(all.end(), end.begin(), end.end());
  return all;
}

TEST_F(device_swap, every_copy_and_every_allocation_may_fail) {
  int none = 0;
  const bytes expected = [&] {
    swapper swaps(small_chunks);
    return small_run(swaps, none);
  }();
  ASSERT_EQ(none, 0);
  // One allocation that fails may not be heard of: what is kept for later is freed, and it is made again.
  for (const int in_a_row : {0, 1, 2}) {
    const bool copies = in_a_row == 0;
    int heard = 0, reached_the_end = 0;
    for (long n = 0; n < 40; ++n) {
      swapper swaps(small_chunks);
      // Not those of the run's own tensors.
      if (copies) {
        simt::set_copies_left(n);
      } else {
        simt::set_allocations_left(n + 5, in_a_row);
      }
      int failures = 0;
      EXPECT_EQ(small_run(swaps, failures), expected) << n;
      EXPECT_LE(failures, std::max(1, in_a_row));
      heard += failures;
      reached_the_end += failures == 0 ? 1 : 0;
      EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
      EXPECT_EQ(swaps.statistics().host_bytes, 0U);
      simt::set_copies_left(-1);
      simt::set_allocations_left(-1);
    }
    EXPECT_GE(heard, copies ? 10 : in_a_row - 1);
    EXPECT_GT(reached_the_end, 0);
  }
}

TEST_F(device_swap, a_tensor_that_could_not_go_out_is_the_callers) {
  swapper swaps(small_chunks);
  const std::vector<float> x = make_values(1500, 0.5, flavour::special, 9);
  const on_device map(bytes_of(x)), found(x.size() * 4);
  stashed_tensor owned(parse_encoding("raw"), map.floats(), {.name = "conv1"}, device);
  simt::set_copies_left(2);
  try {
    swaps.swap_out(std::move(owned), {}, device);
    ADD_FAILURE() << "nothing failed";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::device_failure);
    EXPECT_EQ(std::string(e.what()).find("swapper::swap_out: conv1: expected 6040 bytes"), 0U) << e.what();
  }
  owned.restore(found.floats(), device);
  EXPECT_EQ(found.get(), bytes_of(x));
  EXPECT_EQ(swaps.statistics().failures, 1U);
}

TEST_F(device_swap, handles_outlive_their_swapper) {
  const on_device x(make_bytes(5000, 1)), mine(5000);
  swapped kept, coming, resident;
  {
    swapper swaps(small_chunks);
    kept = swaps.swap_out(x.data, 5000, {}, device);
    coming = swaps.swap_out(x.data, 5000, {}, device);
    resident = swaps.swap_out(x.data, 5000, {}, device);
    coming.swap_in(mine.data, 5000, device);
    resident.wait_in(device);
  }
  EXPECT_EQ(mine.get(), x.get()) << "a copy that was under way was not waited for";
  EXPECT_EQ(code_of([&] { kept.wait_in(device); }), errc::invalid_argument);
}

TEST_F(device_swap, giving_up_waits_for_copies_from_and_to_the_caller) {
  swapper swaps(small_chunks);
  const on_device mine(5000);
  const bytes content = make_bytes(5000, 1);
  {
    const on_device x(content);
    swapped dropped = swaps.swap_out(x.data, 5000, {}, device);
    const std::size_t waits = simt::calls_so_far().waits;
    dropped.reset();
    EXPECT_GT(simt::calls_so_far().waits, waits);
  }
  {
    const on_device x(content);
    swapped kept = swaps.swap_out(x.data, 5000, {}, device);
    kept.swap_in(mine.data, 5000, device);
  }
  EXPECT_EQ(mine.get(), content);
  mine.set(bytes(5000));
  EXPECT_EQ(swaps.statistics().host_bytes, 0U);
  EXPECT_EQ(mine.get(), bytes(5000)) << "something still writes";
}

TEST_F(device_swap, several_threads) {
  swapper_options options = small_chunks;
  options.residency_limit_bytes = 6000;
  swapper swaps(options);
  std::vector<std::thread> workers;
  std::vector<char> streams(4);
  for (std::uint32_t thread = 0; thread < streams.size(); ++thread) {
    workers.emplace_back([&, thread] {
      const execution_context mine{memory_space::device, nullptr, nullptr, &streams[thread]};
      for (std::uint32_t round = 0; round < 20; ++round) {
        const bytes content = make_bytes(3000, thread * 100 + round);
        const on_device x(content), found(3000);
        swapped kept = swaps.swap_out(x.data, 3000, {.needed_at = round}, mine);
        swaps.reached(round);
        kept.wait_out(mine);
        x.set(bytes(3000));
        kept.swap_in(found.data, 3000, mine);
        kept.wait_in(mine);
        encoders::device::wait_for_stream(mine.stream);  // it may have come by way of the swapper's memory
        EXPECT_EQ(found.get(), content);
      }
    });
  }
  for (std::thread& worker : workers)
    worker.join();
  EXPECT_EQ(swaps.statistics().resident_bytes, 0U);
}

TEST_F(device_swap, wrong_arguments) {
  swapper swaps(small_chunks);
  std::vector<float> x(10);
  const on_device map(bytes_of(x));
  const stashed_tensor on_host(parse_encoding("raw"), stash_test::view_of(x));
  EXPECT_EQ(code_of([&] { swaps.swap_out(map.data, 40); }), errc::invalid_argument) << "a host context";
  EXPECT_EQ(code_of([&] { swaps.swap_out(on_host, {}, device); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { swaps.swap_out(stash_test::view_of(x), {}, device); }), errc::invalid_argument);
  swapped kept = swaps.swap_out(map.floats(), {}, device);
  EXPECT_EQ(code_of([&] { kept.wait_in(); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { kept.restore(stash_test::view_of(x), device); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { const swapper bad({.space = memory_space::device, .host = &host_memory()}); }),
            errc::invalid_argument);
  swapper here;
  EXPECT_EQ(code_of([&] { here.swap_out(map.data, 40, {}, device); }), errc::invalid_argument);
}

}  // namespace
}  // namespace stash
