// SPDX-License-Identifier: Apache-2.0
// Maps on which many blocks of tiles work at once: what they claim of each other's sizes, and of a slot that
// is full, depends on their order, which on a device is another one in every run.

#include <fmt/format.h>

#include <algorithm>

#include "gpu/checks.hpp"

namespace stash::gpu {
namespace {

using test::generator;
using test::pair_under_test;

/// A map, and what the CPU makes of it.
struct crowded_map {
  crowded_map(const pair_under_test& tested, std::int64_t n, buffer_mode mode, std::uint32_t seed)
      : e(parse_encoding(tested.name)),
        type(tested.type),
        elements(n),
        fixed(test::bytes_before_payloads(tested, n)),
        x(mode, tested.type, n, {n, 0, 0}) {
    // Empty maps have no payloads that could overflow.
    for (generator random(seed); expected.size() < fixed + static_cast<std::size_t>(n) / 20;) {
      x.set(random.make(type, n));
      encode_on_host();
    }
  }

  std::size_t payloads() const { return expected.size() - fixed; }

  encoding e;
  dtype type;
  std::int64_t elements;
  std::size_t fixed;
  tensor_pair x;
  encode_report report{};
  std::vector<std::uint8_t> expected;  ///< canonical

 private:
  void encode_on_host() {
    const test::buffer out(encoded_bytes_bound(e, type, elements));
    report = {};
    encode(e, x.on_host(), {out.data(), out.size(), nullptr, &report}, {}, {});
    expected.assign(out.data(), out.data() + report.slot_bytes);
  }
};

void expect_decoded(const crowded_map& map, const const_encoded_view& stored, const device_report& report,
                    buffer_mode mode) {
  const tensor_pair y(mode, map.type, map.elements, {map.elements, 0, 0});
  decode({map.e, y.on_device().type, y.on_device().dims, stored}, y.on_device(), {}, device_context());
  expect_equal(report.read().status, status_ok, "status of decode");
  expect_same_bytes(y.device_bytes(), map.x.device_bytes(), "decoded values");
}

/// context.canonical: the bytes are the CPU's at once.
void in_order(const pair_under_test& tested, std::int64_t n, buffer_mode mode, std::uint32_t seed) {
  const crowded_map map(tested, n, mode, seed + 31);
  execution_context context = device_context();
  context.canonical = true;
  const device_buffer workspace(mode, workspace_bytes(map.e, map.type, n, context));
  const device_buffer out(mode, map.expected.size());
  const device_report report(mode);
  encode(map.e, map.x.on_device(), {out.data(), out.size(), nullptr, report.data()},
         {workspace.data(), workspace.size()}, context);
  const encode_report found = report.read();
  expect_equal(found.status, status_ok, "status of encode");
  expect_equal(found.slot_bytes, map.report.slot_bytes, "slot_bytes");
  expect_equal(found.nonzeros, map.report.nonzeros, "nonzeros");
  expect_same_bytes(out.read(), map.expected, "canonical bytes");
  out.expect_guards("encoded bytes");
  workspace.expect_guards("workspace");
  expect_decoded(map, {out.data(), out.size(), nullptr, report.data()}, report, mode);
}

/// A slot for `tenths` tenths of the payloads; the arena has space for the others.
void overflow(const crowded_map& map, const device_buffer& arena_memory, unsigned tenths, bool canonical,
              buffer_mode mode) {
  execution_context context = device_context();
  context.canonical = canonical;
  const device_buffer workspace(mode, workspace_bytes(map.e, map.type, map.elements, context));
  const device_buffer slot(mode, map.fixed + map.payloads() * tenths / 10);
  const device_buffer claimed(mode, std::vector<std::uint8_t>(sizeof(std::uint64_t), 0));
  const overflow_arena arena{arena_memory.data(), arena_memory.size(),
                             reinterpret_cast<std::uint64_t*>(claimed.data())};
  const device_report report(mode);
  const encoded_view stored{slot.data(), slot.size(), &arena, report.data()};
  encode(map.e, map.x.on_device(), stored, {workspace.data(), workspace.size()}, context);
  const encode_report found = report.read();
  expect_equal(found.status, status_ok, "status of encode");
  expect_equal(found.nonzeros, map.report.nonzeros, "nonzeros");
  expect(found.slot_bytes <= slot.size(), "slot_bytes is more than the slot has");
  expect(found.overflow_bytes > 0, "nothing overflowed");
  expect(found.slot_bytes + found.overflow_bytes >= map.expected.size(), "payloads were lost");
  std::uint64_t claims = 0;
  download(&claims, claimed.data(), sizeof claims);
  expect_equal(claims, found.overflow_bytes, "bytes claimed of the arena");
  slot.expect_guards("slot");
  arena_memory.expect_guards("arena");

  const const_encoded_view kept{slot.data(), slot.size(), &arena, report.data()};
  expect_decoded(map, kept, report, mode);
  const device_buffer out(mode, map.expected.size());
  const device_report canonical_report(mode);
  canonicalise({map.e, map.type, {map.elements}, kept},
               {out.data(), out.size(), nullptr, canonical_report.data()}, device_context());
  expect_equal(report.read().status | canonical_report.read().status, status_ok, "status of canonicalise");
  expect_same_bytes(out.read(), map.expected, "canonical bytes");
  out.expect_guards("canonical bytes");
}

void overflows(const pair_under_test& tested, bool canonical, const check_setup& setup, progress& p) {
  const crowded_map map(tested, setup.crowded_elements, setup.mode, 53);
  // One for all, as in a training step.
  const device_buffer arena(setup.mode, (map.payloads() + 15) / 16 * 16);
  const bool few = setup.mode == buffer_mode::exact;
  for (unsigned tenths = few ? 5 : 1; tenths <= (few ? 5 : 9); ++tenths, ++p.trials) {
    p.context = fmt::format("a slot for {} of 10 payload bytes", tenths);
    overflow(map, arena, tenths, canonical, setup.mode);
  }
}

}  // namespace

std::vector<named_check> crowded_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  std::vector<pair_under_test> lossless;
  for (const dtype type : {dtype::f32, dtype::f16}) {
    for (const char* const name : {"bitmap", "csr"})
      lossless.push_back({name, type});
  }
  const int attempts = std::clamp(setup.tensors / 2, 1, 3);
  for (const pair_under_test& tested : lossless) {
    checks.push_back(repeated("crowded_in_order/" + name_of(tested), attempts, [=](std::uint32_t seed) {
      in_order(tested, setup.crowded_elements, setup.mode, seed);
    }));
  }
  for (const bool canonical : {false, true}) {
    for (const pair_under_test& tested : lossless) {
      checks.push_back({(canonical ? "crowded_overflow_in_order/" : "crowded_overflow/") + name_of(tested),
                        [=](progress& p) { overflows(tested, canonical, setup, p); }});
    }
  }
  return checks;
}

}  // namespace stash::gpu
