// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "gpu/checks.hpp"

namespace stash::gpu {
namespace {

using test::generator;
using test::pair_under_test;

const execution_context device = device_context();

/// Encoded bytes of a device, on the host.
struct host_copy {
  test::buffer slot, arena, host;
  std::uint64_t claimed = 0;
  overflow_arena overflow;
  bool overflows;

  /// Null: there is no such region.
  host_copy(const std::vector<std::uint8_t>& slot_bytes, const std::vector<std::uint8_t>* arena_bytes,
            const std::vector<std::uint8_t>* host_bytes)
      : slot(slot_bytes.size()),
        arena(arena_bytes == nullptr ? 0 : arena_bytes->size()),
        host(host_bytes == nullptr ? 0 : host_bytes->size()),
        overflows(arena_bytes != nullptr || host_bytes != nullptr) {
    // The format wants 16-byte aligned buffers.
    std::copy(slot_bytes.begin(), slot_bytes.end(), slot.data());
    if (arena_bytes != nullptr) std::copy(arena_bytes->begin(), arena_bytes->end(), arena.data());
    if (host_bytes != nullptr) std::copy(host_bytes->begin(), host_bytes->end(), host.data());
    overflow = {arena.data(), arena.size(), arena_bytes == nullptr ? nullptr : &claimed,
                host.data(),  host.size(),  host_bytes == nullptr ? nullptr : &claimed};
  }
  host_copy(const host_copy&) = delete;
  host_copy& operator=(const host_copy&) = delete;

  const_encoded_view view(encode_report& report) const {
    return {slot.data(), slot.size(), overflows ? &overflow : nullptr, &report};
  }
};

/// Canonical bytes of what a device has stored, made on the host.
std::vector<std::uint8_t> canonical(const encoding& e, dtype type, std::int64_t n, const host_copy& stored,
                                    const encode_report& device_report, std::size_t bytes) {
  test::buffer out(bytes);
  encode_report in = device_report, result{};
  canonicalise({e, type, {n}, stored.view(in)}, {out.data(), out.size(), nullptr, &result}, {});
  expect_equal(in.status | result.status, status_ok, "status of canonicalise");
  return {out.data(), out.data() + bytes};
}

void random_tensor(const pair_under_test& tested, buffer_mode mode, std::uint32_t seed) {
  generator random(seed);
  const dtype type = tested.type;
  const encoding e = random_form(tested, random);
  const std::int64_t n = random.size();
  const test::tensor t = random.make(type, n);
  const tensor_pair in(mode, t, random_placement(n, test::width(type), random));

  const reference::encoded expected = reference::encode(e, t);
  const std::size_t exact = expected.bytes.size();
  const device_buffer out(mode, random.below(2) == 0 ? exact : encoded_bytes_bound(e, type, n));
  const device_report report(mode);
  encode(e, in.on_device(), {out.data(), out.size(), nullptr, report.data()}, {}, device);
  const encode_report found = report.read();
  expect_equal(found.status, status_ok, "status of encode");
  out.expect_guards("encoded bytes");
  expect_same_bytes(canonical(e, type, n, host_copy(out.read(), nullptr, nullptr), found, exact),
                    expected.bytes, "canonical bytes");
  expect_equal(found.slot_bytes, exact, "slot_bytes");
  if (is_sparse(tested)) {
    expect_equal(found.nonzeros, expected.nonzeros, "nonzeros");
    expect_equal(found.flags & flag_mask_is_not_sign, expected.mask_is_not_sign ? 1 : 0,
                 "flag_mask_is_not_sign");
  }

  const dtype target = decoded_type(tested, random);
  const tensor_pair back(mode, target, n, random_placement(n, test::width(target), random));
  decode({e, back.on_device().type, back.on_device().dims, {out.data(), out.size(), nullptr, report.data()}},
         back.on_device(), {}, device);
  expect_equal(report.read().status, status_ok, "status of decode");
  test::buffer bytes(exact);
  std::copy(expected.bytes.begin(), expected.bytes.end(), bytes.data());
  encode_report host_report{};
  decode({e, back.on_host().type, back.on_host().dims, {bytes.data(), exact, nullptr, &host_report}},
         back.on_host(), {}, {});
  back.expect_same("decoded values");
  expect(back.host_bits() == reference::decode(e, t, target).bits,
         "decoded values differ from the reference's");
}

/// A slot that is too small, with or without an arena and a host overflow that may be too small as well.
void overflowing_tensor(const pair_under_test& tested, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 77777);
  const dtype type = tested.type;
  const encoding e = random_form(tested, random);
  // Half of them have several blocks of tiles.
  const std::int64_t n = random.size() + 1 + (seed % 2 == 0 ? 9000 : 0);
  const test::tensor t = random.make(type, n);
  const tensor_pair in(mode, t, {n, 0, 0});
  const reference::encoded expected = reference::encode(e, t);
  const std::size_t exact = expected.bytes.size();
  const std::size_t fixed = test::bytes_before_payloads(tested, n);
  const std::size_t payloads = exact - fixed;
  const device_buffer slot(mode, fixed + random.below(payloads + 1));
  const bool with_arena = random.below(4) != 0;
  constexpr std::uint64_t taken = 64;  // by other tensors
  const device_buffer arena_memory(
      mode, taken + (random.below(3) == 0 ? payloads / 2 : payloads) / encoded_alignment * encoded_alignment);
  const std::vector<std::uint8_t> before = arena_memory.read();
  const device_buffer counters(mode, {static_cast<std::uint8_t>(taken), 0, 0, 0, 0, 0, 0, 0,  //
                                      static_cast<std::uint8_t>(taken), 0, 0, 0, 0, 0, 0, 0});
  const bool with_host = random.below(2) != 0;
  const pinned host_memory(
      taken + payloads / (1U << random.below(3)) / encoded_alignment * encoded_alignment + taken);
  std::fill_n(host_memory.bytes(), host_memory.size(), std::uint8_t{0xa5});
  const std::size_t host_bytes = host_memory.size() - taken;  // a guard lies after it
  auto* const claimed = reinterpret_cast<std::uint64_t*>(counters.data());
  overflow_arena arena{};
  if (with_arena) {
    arena.data = arena_memory.data();
    arena.bytes = arena_memory.size();
    arena.claimed = claimed;
  }
  if (with_host) {
    arena.host_data = host_memory.bytes();
    arena.host_bytes = host_bytes;
    arena.host_claimed = claimed + 1;
  }
  const overflow_arena* const used = with_arena || with_host ? &arena : nullptr;
  const device_report report(mode);
  encode(e, in.on_device(), {slot.data(), slot.size(), used, report.data()}, {}, device);
  const encode_report found = report.read();
  slot.expect_guards("slot");
  arena_memory.expect_guards("arena");
  std::uint64_t claims[2] = {};
  download(claims, counters.data(), sizeof claims);
  const auto untouched = [&](std::size_t begin) {
    return std::all_of(host_memory.bytes() + begin, host_memory.bytes() + begin + taken,
                       [](std::uint8_t b) { return b == 0xa5; });
  };
  expect(untouched(0) && untouched(host_bytes), "bytes of host memory that belong to others were written");
  const std::vector<std::uint8_t> arena_bytes = arena_memory.read();
  expect(std::equal(before.begin(), before.begin() + taken, arena_bytes.begin()),
         "bytes of the arena that others claimed were written");
  expect_equal(found.nonzeros, expected.nonzeros, "nonzeros");
  expect(found.slot_bytes <= slot.size(), "slot_bytes is more than the slot has");
  if (used != nullptr) {
    // The whole slot counts where it was too small, though no payload may have fitted its last bytes.
    constexpr std::size_t most_payload_bytes = 1024 * 5;
    const std::size_t all = found.slot_bytes + found.overflow_bytes;
    expect(all >= exact && all < exact + (found.overflow_bytes > 0 ? most_payload_bytes : 1),
           "slot_bytes + overflow_bytes is not what the payloads take");
  }
  expect_equal(claims[0], taken + (with_arena ? found.overflow_bytes : 0), "bytes claimed of the arena");
  // Only what the arena does not hold goes to the host.
  const bool full = !with_arena || claims[0] > arena_memory.size();
  expect_equal(claims[1] > taken, with_host && full && found.overflow_bytes > 0,
               "whether the host overflow was used");
  const bool all_in_slot = slot.size() / encoded_alignment * encoded_alignment >= exact;
  const bool fits = all_in_slot || (with_arena && claims[0] <= arena_memory.size()) ||
                    (with_host && claims[1] <= host_bytes);
  const std::uint32_t status = fits ? status_ok : status_capacity;
  expect_equal(found.status, status, "status of encode");

  const tensor_pair back(mode, type, n, {n, 0, 0});
  decode({e, back.on_device().type, back.on_device().dims, {slot.data(), slot.size(), used, report.data()}},
         back.on_device(), {}, device);
  expect_equal(report.read().status, status, "status of decode");
  // What the kernels read, the CPU reads: lost tiles are zeros for both.
  const std::vector<std::uint8_t> on_host{host_memory.bytes(), host_memory.bytes() + host_bytes};
  const host_copy copy(slot.read(), with_arena ? &arena_bytes : nullptr, with_host ? &on_host : nullptr);
  encode_report host_report = found;
  decode({e, back.on_host().type, back.on_host().dims, copy.view(host_report)}, back.on_host(), {}, {});
  back.expect_same("decoded values");
  if (!fits) return;
  expect(back.host_bits() == reference::decode(e, t).bits, "decoded values differ from the reference's");
  expect_same_bytes(canonical(e, type, n, copy, found, exact), expected.bytes, "canonical bytes");
}

/// Any bytes: nothing outside the buffers is touched, and the kernels make of them what the CPU makes.
void mutated_tensor(const pair_under_test& tested, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 55555);
  const dtype type = tested.type;
  const encoding e = random_form(tested, random);
  const std::int64_t n = random.size();
  const test::tensor t = random.make(type, n);
  std::vector<std::uint8_t> bytes = reference::encode(e, t).bytes;
  for (std::uint32_t changes = random.below(20); changes > 0 && !bytes.empty(); --changes)
    bytes[random.below(bytes.size())] = static_cast<std::uint8_t>(random.below(256));
  test::buffer host(bytes.size());
  std::copy(bytes.begin(), bytes.end(), host.data());
  const device_buffer stored(mode, bytes);
  encode_report host_report{};
  host_report.flags = random.below(2) * flag_mask_is_not_sign;
  const device_report report(mode, host_report);

  const dtype target = decoded_type(tested, random);
  const tensor_pair back(mode, target, n, random_placement(n, test::width(target), random));
  decode({e, back.on_host().type, back.on_host().dims, {host.data(), host.size(), nullptr, &host_report}},
         back.on_host(), {}, {});
  decode({e,
          back.on_device().type,
          back.on_device().dims,
          {stored.data(), stored.size(), nullptr, report.data()}},
         back.on_device(), {}, device);
  back.expect_same("decoded values");
  expect_equal(report.read().status, host_report.status, "status of decode");
  expect_same_bytes(stored.read(), bytes, "encoded bytes after decoding");
}

/// Integers, of which the reference knows nothing: raw of u8 and s32, and sign_mask of u8.
void integer_tensor(const char* name, dtype type, buffer_mode mode, std::uint32_t seed) {
  generator random(seed + 4711);
  const encoding e = parse_encoding(name);
  const std::int64_t n = random.size();
  test::tensor t;
  t.type = type;
  std::mt19937 values(seed);
  for (std::int64_t i = 0; i < n; ++i)
    t.bits.push_back(random.below(3) == 0 ? 0 : static_cast<std::uint32_t>(values()));
  const std::size_t width = size_of(type);
  const tensor_pair in(mode, t, random_placement(n, width, random));
  const std::size_t bytes = encoded_bytes_bound(e, type, n);
  test::buffer expected(bytes);
  encode_report host_report{};
  encode(e, in.on_host(), {expected.data(), bytes, nullptr, &host_report}, {}, {});
  const device_buffer out(mode, bytes);
  const device_report report(mode);
  encode(e, in.on_device(), {out.data(), out.size(), nullptr, report.data()}, {}, device);
  expect_equal(report.read().status, status_ok, "status of encode");
  expect_same_bytes(out.read(), {expected.data(), expected.data() + bytes}, "encoded bytes");
  out.expect_guards("encoded bytes");
  const tensor_pair back(mode, type, n, random_placement(n, width, random));
  decode({e, back.on_host().type, back.on_host().dims, {expected.data(), bytes, nullptr, &host_report}},
         back.on_host(), {}, {});
  decode({e, back.on_device().type, back.on_device().dims, {out.data(), out.size(), nullptr, report.data()}},
         back.on_device(), {}, device);
  expect_equal(report.read().status, status_ok, "status of decode");
  back.expect_same("decoded values");
}

}  // namespace

std::vector<named_check> encoding_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  const int fewer = std::max(1, setup.tensors / 2);
  for (const pair_under_test& tested : test::pairs()) {
    checks.push_back(repeated("encode_decode/" + name_of(tested), setup.tensors,
                              [=](std::uint32_t seed) { random_tensor(tested, mode, seed); }));
  }
  for (const pair_under_test& tested : test::pairs()) {
    if (!is_sparse(tested)) continue;
    checks.push_back(repeated("overflow/" + name_of(tested), fewer,
                              [=](std::uint32_t seed) { overflowing_tensor(tested, mode, seed); }));
  }
  for (const pair_under_test& tested : test::pairs()) {
    checks.push_back(repeated("mutated_bytes/" + name_of(tested), fewer,
                              [=](std::uint32_t seed) { mutated_tensor(tested, mode, seed); }));
  }
  for (const dtype type : {dtype::u8, dtype::s32}) {
    checks.push_back(repeated(fmt::format("encode_decode/raw_of_{}", type == dtype::u8 ? "u8" : "s32"),
                              setup.tensors,
                              [=](std::uint32_t seed) { integer_tensor("raw", type, mode, seed); }));
  }
  checks.push_back(repeated("encode_decode/sign_mask_of_u8", setup.tensors,
                            [=](std::uint32_t seed) { integer_tensor("sign_mask", dtype::u8, mode, seed); }));
  return checks;
}

}  // namespace stash::gpu
