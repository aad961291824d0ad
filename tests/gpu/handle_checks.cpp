// SPDX-License-Identifier: Apache-2.0
// What owns memory of the device or asks it without waiting: stashed tensors, size queries, the swapper. And
// the export of csr.

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "gpu/checks.hpp"
#include "stash/csr.hpp"
#include "stash/memory.hpp"
#include "stash/size_query.hpp"
#include "stash/stashed_tensor.hpp"
#include "stash/swap.hpp"

namespace stash::gpu {
namespace {

using test::generator;
using test::pair_under_test;

/// A report where size queries may read it: memory of the library's own resource.
class resource_report {
 public:
  resource_report() {
    fill(data(), 0, sizeof(encode_report), nullptr);
    wait_for_device();
  }
  encode_report* data() const { return reinterpret_cast<encode_report*>(block_.data()); }

 private:
  resource_block block_{device_memory(), sizeof(encode_report)};
};

void expect_same_size(const stored_size& found, const stored_size& expected, const std::string& what) {
  expect_equal(found.bytes, expected.bytes, what + ": bytes");
  expect_equal(found.overflow_bytes, expected.overflow_bytes, what + ": overflow_bytes");
  expect_equal(found.nonzeros, expected.nonzeros, what + ": nonzeros");
  expect(found.density == expected.density, what + ": another density");
  expect_equal(found.status, expected.status, what + ": status");
}

/// As on the host, with the exact size, with space enough, and with a capacity that turns out too small.
void stashed(const char* name, std::int64_t n, buffer_mode mode) {
  generator random(41);
  const encoding e = parse_encoding(name);
  const tensor_pair x(mode, random.make(dtype::f32, n), {n, 0, 0});
  const tensor_pair y(mode, dtype::f32, n, {n, 0, 0});
  const stashed_tensor on_host(e, x.on_host());
  on_host.restore(y.on_host());
  const stored_size expected = on_host.size().wait();
  const stream in;
  const execution_context context = device_context(in.handle());
  for (const std::size_t capacity : {std::size_t{0}, encoded_bytes_bound(e, dtype::f32, n),
                                     encoded_bytes_at_density(e, dtype::f32, n, 0)}) {
    const stashed_tensor kept(e, x.on_device(), {.capacity = capacity}, context);
    expect_same_size(kept.size(context).wait(), expected, "size of the stored tensor");
    fill(y.on_device().data, 0xa5, static_cast<std::size_t>(n) * size_of(dtype::f32), in.handle());
    kept.restore(y.on_device(), context);
    kept.check(context);
    y.expect_same("restored values");
  }
}

/// Counts what would be stored.
void counted(const char* name, dtype type, std::int64_t n, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 43);
  const encoding e = parse_encoding(name);
  const tensor_pair x(mode, random.make(type, n), {n, 0, 0});
  encode_report host_report{};
  const stored_size expected = size_query(e, x.on_host(), &host_report, {}).wait();
  const resource_report report;
  const stream in;
  const size_query asked(e, x.on_device(), report.data(), device_context(in.handle()));
  expect_same_size(asked.wait(), expected, "size of the counted tensor");
  expect(asked.ready(), "the answer is not there after wait()");
}

/// Space for a csr32_view in device memory.
struct exported {
  exported(buffer_mode mode, dtype t, std::int64_t n, std::size_t nonzeros)
      : type(t),
        entries(nonzeros),
        offsets(mode, static_cast<std::size_t>((n + 255) / 256 + 1) * 4),
        columns(mode, nonzeros * 4),
        values(mode, nonzeros * size_of(t)) {}
  csr32_view view() const {
    return {reinterpret_cast<std::uint32_t*>(offsets.data()),
            reinterpret_cast<std::uint32_t*>(columns.data()), values.data(), type,
            static_cast<std::int64_t>(entries)};
  }
  dtype type;
  std::size_t entries;
  device_buffer offsets, columns, values;
};

void csr_export(const char* name, dtype type, std::int64_t n, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 47);
  const encoding e = parse_encoding(name);
  const tensor_pair x(mode, random.make(type, n), {n, 0, 0});
  const std::size_t bound = encoded_bytes_bound(e, type, n);
  const test::buffer by_host(bound);
  encode_report host_report{};
  encode(e, x.on_host(), {by_host.data(), bound, nullptr, &host_report}, {}, {});
  const auto nonzeros = static_cast<std::size_t>(host_report.nonzeros);
  const exported found(mode, type, n, nonzeros);
  const test::buffer offsets(found.offsets.size()), columns(found.columns.size()),
      values(found.values.size());
  csr_export32(
      {e, type, {n}, {by_host.data(), bound, nullptr, &host_report}},
      {reinterpret_cast<std::uint32_t*>(offsets.data()), reinterpret_cast<std::uint32_t*>(columns.data()),
       values.data(), type, static_cast<std::int64_t>(nonzeros)},
      {});

  const device_buffer stored(mode, bound);
  const device_report report(mode);
  encode(e, x.on_device(), {stored.data(), bound, nullptr, report.data()}, {}, device_context());
  csr_export32({e, found.view().type, {n}, {stored.data(), bound, nullptr, report.data()}}, found.view(),
               device_context());
  expect_equal(report.read().status, status_ok, "status of csr_export32");
  const auto expect_same = [](const device_buffer& by_device, const test::buffer& expected,
                              const std::string& what) {
    expect_same_bytes(by_device.read(), {expected.data(), expected.data() + expected.size()}, what);
    by_device.expect_guards(what);
  };
  expect_same(found.offsets, offsets, "row offsets");
  expect_same(found.columns, columns, "columns");
  expect_same(found.values, values, "values");
}

/// Stashed tensors go to the host while later ones are encoded, and come back last one first.
void swapped_out(const char* name, std::int64_t n, buffer_mode mode) {
  generator random(59);
  constexpr std::size_t count = 6;
  const encoding e = parse_encoding(name);
  std::vector<std::unique_ptr<tensor_pair>> maps;
  for (std::size_t k = 0; k < count; ++k)
    maps.push_back(std::make_unique<tensor_pair>(mode, random.make(dtype::f32, n), placement{n, 0, 0}));
  tensor_pair y(mode, dtype::f32, n, {n, 0, 0});
  wait_for_device();
  const stream in;
  const execution_context context = device_context(in.handle());
  // Space for two tensors ahead of use, so that some come back early and some when they are waited for.
  swapper swaps({.space = memory_space::device,
                 .residency_limit_bytes = 2 * encoded_bytes_bound(e, dtype::f32, n),
                 .chunk_bytes = 1 << 16});
  std::vector<swapped> kept;
  for (std::size_t k = 0; k < count; ++k) {
    const auto needed_at = static_cast<std::int64_t>(count - k);
    kept.push_back(swaps.swap_out(stashed_tensor(e, maps[k]->on_device(), {}, context),
                                  {.needed_at = needed_at}, context));
  }
  for (std::size_t k = count; k-- > 0;) {
    swaps.reached(static_cast<std::int64_t>(count - k));
    kept[k].restore(y.on_device(), context, true);
    in.wait();
    y.copy_host_from(*maps[k]);
    y.expect_same("map " + std::to_string(k) + " back from the host");
  }
  expect_equal(swaps.statistics().failures, 0, "failures");
}

/// In the first step the host makes pinned memory between maps, and comes back when their copies have ended;
/// in the second it enqueues everything long before the device is done with the first map. The memory in use
/// is what the streams' order makes of it.
void within_limits() {
  if (is_emulated()) throw check_not_run("the emulator has no pool of memory");
  constexpr std::size_t map = std::size_t{64} << 20, layer = std::size_t{256} << 20, count = 16;
  const memory from(layer), to(layer), x(map);
  const const_tensor_view dense{x.data(), dtype::f32, memory_space::device, {map / 4}, 0};
  const stream in;
  const execution_context context = device_context(in.handle());
  const auto compute = [&] { copy_on_device(to.data(), from.data(), layer, in.handle()); };
  swapper swaps({.space = memory_space::device,
                 .residency_limit_bytes = 2 * map + map / 2,
                 .leaving_limit_bytes = 2 * map + map / 2});
  const pool_watch watch;
  // Two that leave, two that come, one in use; and a pool takes memory in blocks of 32 MiB.
  constexpr std::size_t expected = 5 * map + (std::size_t{64} << 20);
  std::string seen;
  const auto look = [&](const std::string& when) {
    seen += fmt::format("; {}: {}, {} in use", when, watch.most_bytes(), watch.most_used_bytes());
  };
  for (const char* const step : {"first", "second"}) {
    std::vector<swapped> kept;
    for (std::size_t k = 0; k < count; ++k) {
      compute();
      kept.push_back(swaps.swap_out(stashed_tensor(parse_encoding("raw"), dense, {}, context), {}, context));
      if (k == 3) look(fmt::format("four maps of the {} step out", step));
    }
    look(fmt::format("all of the {} step out", step));
    for (std::size_t k = count; k-- > 0;) {
      if (k > 0) kept[k - 1].swap_in(context);
      kept[k].wait_in(context);
      compute();
      kept[k].leave(context);
      if (k == count - 4) look(fmt::format("four maps of the {} step back", step));
    }
    look(fmt::format("all of the {} step back", step));
    in.wait();
  }
  expect(watch.most_bytes() <= expected,
         fmt::format("the pool grew by {} bytes, expected at most {}{}", watch.most_bytes(), expected, seen));
}

/// While a stream is recorded by one thread, another one swaps. Neither notices the other. Each part of the
/// work is done during a recording of its own, so that a failure names the part.
void during_a_recording() {
  constexpr std::size_t size = 1 << 20, count = 4;
  const std::vector<std::uint8_t> content(size, 0x5a);
  // The swapper's copies reach what the library gave out, in the emulator as well.
  const resource_block x(device_memory(), size);
  const memory to(size);
  const stream recorded_in, in;
  const execution_context context = device_context(in.handle());
  upload(x.data(), content.data(), size);
  swapper swaps({.space = memory_space::device});
  std::vector<swapped> kept;
  std::unique_ptr<graph> recorded;
  std::string problems;
  const auto while_recorded = [&](const std::string& what, const std::function<void()>& part) {
    bool failed = false;
    const auto note = [&](const std::exception& problem) {
      problems += fmt::format("{}{}: {}", problems.empty() ? "" : "; ", what, problem.what());
    };
    try {
      recorded = std::make_unique<graph>(recorded_in, [&] {
        copy_on_device(to.data(), x.data(), size, recorded_in.handle());
        std::thread([&] {
          try {
            part();
          } catch (const std::exception& problem) {
            note(problem);
            failed = true;
          }
        }).join();
      });
    } catch (const failure& problem) {
      note(problem);
    }
    // What comes next needs what has failed, but not the recording.
    expect(!failed, problems);
  };
  while_recorded("nothing", [] {});
  for (std::size_t k = 0; k < count; ++k) {
    while_recorded("a map goes out", [&] { kept.push_back(swaps.swap_out(x.data(), size, {}, context)); });
    while_recorded("its copy is waited for", [&] { kept.back().wait_out(context); });
    while_recorded("whether it has ended", [&] { kept.front().out_ended(); });
  }
  while_recorded("the caller's own work", [&] { fill(x.data(), 0, size, in.handle()); });
  while (!kept.empty()) {
    while_recorded("a map comes back", [&] { kept.back().wait_in(context); });
    while_recorded("its memory is left", [&] { kept.back().leave(context); });
    if (kept.size() == 1) {
      while_recorded("a map comes to the caller's memory", [&] {
        kept.back().swap_in(x.data(), size, context);
        kept.back().wait_in(context);
      });
    }
    while_recorded("a map is given up", [&] { kept.pop_back(); });
    while_recorded("statistics", [&] { swaps.statistics(); });
  }
  while_recorded("memory is taken and freed", [&] {
    device_memory().deallocate(device_memory().allocate(size, 256, in.handle()), size, 256, in.handle());
  });
  while_recorded("a swapper is made and destroyed", [] { swapper({.space = memory_space::device}); });
  expect(problems.empty(), problems);
  in.wait();
  recorded->launch();
  recorded_in.wait();
  std::vector<std::uint8_t> found(size);
  download(found.data(), to.data(), size);
  expect_same_bytes(found, content, "the bytes that were recorded");
  expect_equal(swaps.statistics().failures, 0, "failures");
}

}  // namespace

std::vector<named_check> handle_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  const std::int64_t n = setup.crowded_elements / 3;
  for (const char* const name : {"raw", "bitmap", "csr", "bitmap_fp8", "fp8", "mxfp6_e2m3"}) {
    checks.push_back(
        repeated(std::string("stashed_tensor/") + name, 1, [=](std::uint32_t) { stashed(name, n, mode); }));
  }
  for (const dtype type : {dtype::f32, dtype::f16}) {
    for (const char* const name : {"bitmap", "csr", "csr_fp8"}) {
      const pair_under_test tested{name, type};
      checks.push_back(repeated("size_query/" + name_of(tested), 2,
                                [=](std::uint32_t seed) { counted(name, type, n, mode, seed); }));
      if (tested.name == "bitmap") continue;
      checks.push_back(repeated("csr_export32/" + name_of(tested), 2,
                                [=](std::uint32_t seed) { csr_export(name, type, n, mode, seed); }));
    }
  }
  for (const char* const name : {"raw", "bitmap", "csr"}) {
    checks.push_back(
        repeated(std::string("swapper/") + name, 1, [=](std::uint32_t) { swapped_out(name, n, mode); }));
  }
  checks.push_back(repeated("swapper/within_its_limits", 1, [](std::uint32_t) { within_limits(); }));
  checks.push_back(repeated("swapper/during_a_recording", 1, [](std::uint32_t) { during_a_recording(); }));
  return checks;
}

}  // namespace stash::gpu
