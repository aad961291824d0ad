// SPDX-License-Identifier: Apache-2.0
// Owning objects on a device, here the emulator's: what is kept comes back, and nothing is lost or leaked
// when memory runs out.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "encoders/support.hpp"
#include "simt/device_memory.hpp"
#include "simt/recording.hpp"
#include "simt/report_slots.hpp"
#include "stash/c_api.h"
#include "stash/stashed_tensor.hpp"

namespace stash {
namespace {

using stash_test::code_of;
using stash_test::flavour;
using stash_test::make_values;
using stash_test::pin_report_slots;

constexpr execution_context device{memory_space::device};

/// A tensor in device memory.
struct device_values {
  explicit device_values(const std::vector<float>& values)
      : count(static_cast<std::int64_t>(values.size())),
        data(static_cast<float*>(device_memory().allocate(values.size() * 4, 16))) {
    if (!values.empty()) std::memcpy(data, values.data(), values.size() * 4);
  }
  ~device_values() { device_memory().deallocate(data, static_cast<std::size_t>(count) * 4, 16); }
  device_values(const device_values&) = delete;
  device_values& operator=(const device_values&) = delete;
  tensor_view view() const { return {data, dtype::f32, memory_space::device, {count}, 0}; }
  std::vector<float> values() const { return {data, data + count}; }
  std::int64_t count;
  float* data;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return stash_test::bits_of(a) == stash_test::bits_of(b);
}

struct heard {
  int overflows = 0, fallbacks = 0;
  static void on_event(void* user, const event& what) {
    auto& self = *static_cast<heard*>(user);
    (what.kind == event_kind::overflow ? self.overflows : self.fallbacks) += 1;
  }
};

TEST(device_handles, keep_what_they_got) {
  pin_report_slots();
  const std::size_t before = simt::blocks_in_use();
  {
    const std::vector<float> values = make_values(20000, 0.4, flavour::special, 5);
    const device_values x(values);
    for (const char* name : {"raw", "bitmap", "csr"}) {
      for (const std::size_t capacity : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 20}) {
        heard events;
        stash_options options;
        options.capacity = capacity;
        options.events = {&heard::on_event, &events};
        const stashed_tensor kept(parse_encoding(name), x.view(), options, device);
        const device_values again(std::vector<float>(values.size()));
        kept.restore(again.view(), device);
        kept.check(device);
        EXPECT_TRUE(same_bits(again.values(), values)) << name << capacity;
        const bool too_small = capacity == 4096 && std::strcmp(name, "raw") != 0;
        EXPECT_EQ(events.overflows, too_small ? 1 : 0) << name;
        EXPECT_EQ(events.fallbacks, too_small ? 1 : 0) << name;

        const size_query query = kept.size(device);
        EXPECT_FALSE(query.ready());  // the emulator's copies take a while
        const stored_size size = query.wait();
        EXPECT_TRUE(query.ready());
        const encoding e = parse_encoding(name);
        std::vector<float> copy = values;
        EXPECT_EQ(size.bytes, encoded_bytes_exact(e, stash_test::view_of(copy), {})) << name;
        EXPECT_EQ(size.status, status_ok);
      }
    }
  }
  EXPECT_EQ(simt::blocks_in_use(), before);
}

TEST(device_size_query, pins_memory_only_while_slots_run_out) {
  pin_report_slots();
  const device_values x(make_values(3000, 0.4, flavour::positive, 7));
  const stashed_tensor kept(parse_encoding("csr"), x.view(), {}, device);
  const std::size_t before = simt::blocks_in_use();
  for (int i = 0; i < 300; ++i)
    kept.size(device).wait();
  EXPECT_EQ(simt::blocks_in_use(), before);
  std::vector<size_query> held;
  // Nothing can be pinned: those that get a slot work, the first that does not says so and takes nothing.
  simt::set_allocations_left(0);
  errc code = errc::ok;
  while (code == errc::ok && held.size() < 1000) {
    code = code_of([&] { held.push_back(kept.size(device)); });
  }
  simt::set_allocations_left(-1);
  EXPECT_EQ(code, errc::out_of_memory);
  EXPECT_EQ(simt::blocks_in_use(), before);
  held.push_back(kept.size(device));
  EXPECT_EQ(simt::blocks_in_use(), before + 1);
  for (const size_query& query : held)
    EXPECT_EQ(query.wait().bytes, held.front().wait().bytes);
  const std::size_t count = held.size();
  held.clear();
  for (std::size_t i = 0; i < count; ++i)
    held.push_back(kept.size(device));
  EXPECT_EQ(simt::blocks_in_use(), before + 1) << "slots are not used again";
}

TEST(device_size_query, counts_what_encoding_would_store_without_waiting) {
  pin_report_slots();
  const std::size_t before = simt::blocks_in_use();
  for (const char* name : {"bitmap", "csr", "bitmap_fp8", "csr_mxfp6_e2m3", "fp16", "raw", "sign_mask"}) {
    for (const std::int64_t n : {0, 1, 1023, 1025, 30000}) {
      const encoding e = parse_encoding(name);
      std::vector<float> values = make_values(n, 0.3, flavour::special, 7);
      const device_values x(values);
      encode_report here{}, host_report{};
      auto* const report = static_cast<encode_report*>(device_memory().allocate(sizeof(encode_report), 64));
      *report = here;
      {
        const std::size_t waits = simt::calls_so_far().waits;
        const size_query query(e, x.view(), report, device);
        EXPECT_EQ(simt::calls_so_far().waits, waits) << "the call waits";
        const bool sparse = e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
        EXPECT_EQ(query.ready(), !sparse);
        const stored_size size = query.wait();
        const size_query on_host(e, stash_test::view_of(values), &host_report, {});
        EXPECT_TRUE(on_host.ready());
        const stored_size expected = on_host.wait();
        EXPECT_EQ(expected.bytes, encoded_bytes_exact(e, stash_test::view_of(values), {})) << name << n;
        EXPECT_EQ(size.bytes, expected.bytes) << name << n;
        EXPECT_EQ(size.nonzeros, expected.nonzeros) << name << n;
        EXPECT_EQ(size.density, expected.density) << name << n;
        EXPECT_EQ(size.status, status_ok);
      }
      device_memory().deallocate(report, sizeof(encode_report), 64);
    }
  }
  EXPECT_EQ(simt::blocks_in_use(), before);
  const device_values x(std::vector<float>(10));
  EXPECT_EQ(code_of([&] { size_query(parse_encoding("bitmap"), x.view(), nullptr, device); }),
            errc::invalid_argument);
  encode_report report;
  EXPECT_EQ(code_of([&] { size_query(parse_encoding("relu_pool"), x.view(), &report, device); }),
            errc::invalid_argument);
  EXPECT_EQ(code_of([&] { size_query(parse_encoding("bitmap"), x.view(), &report, {}); }), errc::unsupported)
      << "a device tensor in a host context";
}

TEST(device_handles, say_at_check_what_damaged_bytes_did) {
  const device_values x(make_values(5000, 0.5, flavour::positive, 6));
  stashed_tensor kept(parse_encoding("bitmap"), x.view(), {}, device);
  std::memset(static_cast<std::uint8_t*>(kept.output().data) + 640, 0x3f, 4);  // the first table entry
  const device_values again(std::vector<float>(5000));
  kept.restore(again.view(), device);
  EXPECT_EQ(code_of([&] { kept.check(device); }), errc::corrupt_data);
}

/// A step that is too dense for the capacity, and one that fits: the second is not blamed for the first.
TEST(device_handles, serve_the_next_step_once_rewound) {
  const encoding e = parse_encoding("bitmap");
  const std::vector<float> thin = make_values(5000, 0.1, flavour::positive, 7);
  const device_values dense(make_values(5000, 0.9, flavour::positive, 6)), sparse(thin);
  stash_options options;
  options.capacity = 5000;
  stashed_tensor kept = stashed_tensor::reserve(e, dtype::f32, {5000}, options, device);
  encode(e, dense.view(), kept.output(), {}, device);
  EXPECT_EQ(code_of([&] { kept.check(device); }), errc::capacity_exceeded);
  const size_query before = kept.size(device);
  kept.rewind(device);
  kept.check(device);
  encode(e, sparse.view(), kept.output(), {}, device);
  kept.check(device);
  const device_values again(std::vector<float>(5000));
  kept.restore(again.view(), device);
  EXPECT_TRUE(same_bits(again.values(), thin));
  EXPECT_NE(before.wait().status, status_ok);
  EXPECT_EQ(kept.size(device).wait().status, status_ok);
  EXPECT_EQ(code_of([&] { kept.rewind(); }), errc::invalid_argument);
}

/// A step that is recorded once: its handle begins anew at every launch, whatever the step before left in it.
TEST(device_handles, serve_recorded_steps) {
  constexpr std::int64_t count = 5000;
  char stream = 0;  // streams are names
  execution_context in_stream = device;
  in_stream.stream = &stream;
  const device_values x(std::vector<float>(count, 0.0F)), again(std::vector<float>(count, 0.0F));
  stash_options options;
  options.capacity = 10000;
  stashed_tensor kept =
      stashed_tensor::reserve(parse_encoding("bitmap"), dtype::f32, {count}, options, in_stream);
  const simt::recording step(&stream, [&] {
    kept.rewind(in_stream);
    encode(kept.how(), x.view(), kept.output(), {}, in_stream);
    kept.restore(again.view(), in_stream);
  });
  for (const double density : {0.1, 0.9, 0.2}) {
    const std::vector<float> values = make_values(count, density, flavour::positive, 8);
    std::memcpy(x.data, values.data(), values.size() * 4);
    step.launch();
    if (density == 0.9) {
      EXPECT_EQ(code_of([&] { kept.check(in_stream); }), errc::capacity_exceeded);
      continue;
    }
    kept.check(in_stream);
    EXPECT_TRUE(same_bits(again.values(), values)) << density;
  }
}

TEST(device_handles, take_memory_of_their_context_only) {
  const device_values x(make_values(100, 0.5, flavour::positive, 6));
  stash_options options;
  options.memory = &host_memory();
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), x.view(), options, device); }),
            errc::invalid_argument);
  options.memory = &device_memory();
  std::vector<float> values(100);
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), stash_test::view_of(values), options); }),
            errc::invalid_argument);
  // A host tensor in a device context.
  EXPECT_EQ(code_of([&] { stashed_tensor(parse_encoding("raw"), stash_test::view_of(values), {}, device); }),
            errc::invalid_argument);
}

TEST(device_handles, survive_every_allocation_that_fails) {
  const std::vector<float> values = make_values(20000, 0.4, flavour::positive, 7);
  const device_values x(values);
  pin_report_slots();
  const std::size_t before = simt::blocks_in_use();
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{4096}}) {
    int failures = 0;
    for (long n = 0;; ++n) {
      simt::set_allocations_left(n);
      stash_options options;
      options.capacity = capacity;
      const errc code = code_of([&] {
        const stashed_tensor kept(parse_encoding("csr"), x.view(), options, device);
        const size_query query = kept.size(device);
        EXPECT_GT(query.wait().bytes, 0U);
      });
      simt::set_allocations_left(-1);
      EXPECT_EQ(simt::blocks_in_use(), before);
      if (code == errc::ok) break;
      EXPECT_EQ(code, errc::out_of_memory);
      ++failures;
    }
    EXPECT_EQ(failures, capacity == 0 ? 2 : 3);
  }
}

TEST(device_non_owning, refuses_what_it_cannot_do) {
  const device_values x(make_values(3000, 0.4, flavour::positive, 9));
  void* const encoded = device_memory().allocate(1 << 15, 64);
  auto* const report = static_cast<encode_report*>(device_memory().allocate(sizeof(encode_report), 64));
  *report = {};
  const encoding e = parse_encoding("bitmap");
  execution_context canonical = device;
  canonical.canonical = true;
  const std::size_t needed = workspace_bytes(e, dtype::f32, 3000, canonical);
  EXPECT_GT(needed, 0U);
  EXPECT_EQ(workspace_bytes(e, dtype::f32, 3000), 0U);
  EXPECT_EQ(workspace_bytes(e, dtype::f32, 3000, device), 0U);
  const encoded_view out{encoded, 1 << 15, nullptr, report};
  EXPECT_EQ(code_of([&] { encode(e, x.view(), out, {}, canonical); }), errc::capacity_exceeded);
  EXPECT_EQ(code_of([&] {
              encode(e, x.view(), out, {encoded, needed - 1}, canonical);
            }),
            errc::capacity_exceeded);
  tensor_view on_host = x.view();
  on_host.space = memory_space::host;
  EXPECT_EQ(code_of([&] { encode(e, on_host, out, {}, device); }), errc::invalid_argument);
  EXPECT_EQ(code_of([&] { encoded_bytes_exact(e, x.view(), device); }), errc::unsupported);
  EXPECT_EQ(report->slot_bytes, 0U);
  device_memory().deallocate(report, sizeof(encode_report), 64);
  device_memory().deallocate(encoded, 1 << 15, 64);
}

TEST(device_c_api, keeps_and_restores) {
  const std::vector<float> values = make_values(7000, 0.3, flavour::special, 11);
  const device_values x(values), again(std::vector<float>(7000));
  stash_execution_context context{};
  context.struct_size = sizeof context;
  context.space = STASH_SPACE_DEVICE;
  stash_encoding how{};
  how.struct_size = sizeof how;
  ASSERT_EQ(stash_parse_encoding("csr", &how), STASH_OK);
  const auto c_view = [](const device_values& v) {
    stash_tensor_view view{};
    view.struct_size = sizeof view;
    view.data = v.data;
    view.type = STASH_DTYPE_F32;
    view.space = STASH_SPACE_DEVICE;
    view.rank = 1;
    view.dims[0] = v.count;
    return view;
  };
  const stash_tensor_view in = c_view(x), out = c_view(again);
  stash_handle* handle = nullptr;
  ASSERT_EQ(stash_handle_create(&how, &in, nullptr, &context, &handle), STASH_OK)
      << stash_last_error_message();
  ASSERT_EQ(stash_handle_restore(handle, &out, &context), STASH_OK) << stash_last_error_message();
  ASSERT_EQ(stash_handle_check(handle, &context), STASH_OK);
  stash_handle_destroy(handle);
  EXPECT_TRUE(same_bits(again.values(), values));
  context.canonical = 2;
  EXPECT_EQ(stash_handle_create(&how, &in, nullptr, &context, &handle), STASH_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace stash
