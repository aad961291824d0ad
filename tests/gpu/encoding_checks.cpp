#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "gpu/checks.hpp"

namespace stash::gpu {
namespace {

using test::generator;
using test::pair_under_test;

const execution_context device = device_context();

/// Canonical bytes of what a device has stored, made on the host from copies.
std::vector<std::uint8_t> canonical(const encoding& e, dtype type, std::int64_t n,
                                    const std::vector<std::uint8_t>& slot,
                                    const std::vector<std::uint8_t>& arena_bytes,
                                    const encode_report& device_report, std::size_t bytes) {
  // The format wants 16-byte aligned buffers.
  test::buffer slot_copy(slot.size()), arena_copy(arena_bytes.size()), out(bytes);
  std::copy(slot.begin(), slot.end(), slot_copy.data());
  std::copy(arena_bytes.begin(), arena_bytes.end(), arena_copy.data());
  std::uint64_t claimed = 0;
  const overflow_arena arena{arena_copy.data(), arena_copy.size(), &claimed};
  encode_report in = device_report, result{};
  canonicalise(e, type, n, {slot_copy.data(), slot_copy.size(), arena_bytes.empty() ? nullptr : &arena, &in},
               {out.data(), out.size(), nullptr, &result}, {});
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
  expect_same_bytes(canonical(e, type, n, out.read(), {}, found, exact), expected.bytes, "canonical bytes");
  expect_equal(found.slot_bytes, exact, "slot_bytes");
  if (is_sparse(tested)) {
    expect_equal(found.nonzeros, expected.nonzeros, "nonzeros");
    expect_equal(found.flags & flag_mask_is_not_sign, expected.mask_is_not_sign ? 1 : 0,
                 "flag_mask_is_not_sign");
  }

  const dtype target = is_mask(tested) ? dtype::u8 : type;
  const tensor_pair back(mode, target, n, random_placement(n, test::width(target), random));
  decode(e, {out.data(), out.size(), nullptr, report.data()}, back.on_device(), {}, device);
  expect_equal(report.read().status, status_ok, "status of decode");
  test::buffer bytes(exact);
  std::copy(expected.bytes.begin(), expected.bytes.end(), bytes.data());
  encode_report host_report{};
  decode(e, {bytes.data(), exact, nullptr, &host_report}, back.on_host(), {}, {});
  back.expect_same("decoded values");
  expect(back.host_bits() == reference::decode(e, t).bits, "decoded values differ from the reference's");
}

/// A slot that is too small, with or without an arena that may be too small as well.
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
  const device_buffer claimed(mode, {static_cast<std::uint8_t>(taken), 0, 0, 0, 0, 0, 0, 0});
  const overflow_arena arena{arena_memory.data(), arena_memory.size(),
                             reinterpret_cast<std::uint64_t*>(claimed.data())};
  const overflow_arena* const used = with_arena ? &arena : nullptr;
  const device_report report(mode);
  encode(e, in.on_device(), {slot.data(), slot.size(), used, report.data()}, {}, device);
  const encode_report found = report.read();
  slot.expect_guards("slot");
  arena_memory.expect_guards("arena");
  std::uint64_t claimed_bytes = 0;
  download(&claimed_bytes, claimed.data(), sizeof claimed_bytes);
  const std::vector<std::uint8_t> arena_bytes = arena_memory.read();
  expect(std::equal(before.begin(), before.begin() + taken, arena_bytes.begin()),
         "bytes of the arena that others claimed were written");
  expect_equal(found.nonzeros, expected.nonzeros, "nonzeros");
  expect(found.slot_bytes <= slot.size(), "slot_bytes is more than the slot has");
  if (with_arena) {
    expect_equal(found.slot_bytes + found.overflow_bytes, exact, "slot_bytes + overflow_bytes");
    expect_equal(claimed_bytes, taken + found.overflow_bytes, "bytes claimed of the arena");
  } else {
    expect_equal(claimed_bytes, taken, "bytes claimed of an arena that was not given");
  }
  const bool all_in_slot = slot.size() / encoded_alignment * encoded_alignment >= exact;
  const bool fits = all_in_slot || (with_arena && claimed_bytes <= arena_memory.size());
  const std::uint32_t status = fits ? status_ok : status_capacity;
  expect_equal(found.status, status, "status of encode");

  const tensor_pair back(mode, type, n, {n, 0, 0});
  decode(e, {slot.data(), slot.size(), used, report.data()}, back.on_device(), {}, device);
  expect_equal(report.read().status, status, "status of decode");
  // What the kernels read, the CPU reads: lost tiles are zeros for both.
  test::buffer slot_copy(slot.size()), arena_copy(arena_bytes.size());
  const std::vector<std::uint8_t> slot_bytes = slot.read();
  std::copy(slot_bytes.begin(), slot_bytes.end(), slot_copy.data());
  std::copy(arena_bytes.begin(), arena_bytes.end(), arena_copy.data());
  const overflow_arena host_arena{arena_copy.data(), arena_copy.size(), &claimed_bytes};
  encode_report host_report = found;
  decode(e, {slot_copy.data(), slot_copy.size(), with_arena ? &host_arena : nullptr, &host_report},
         back.on_host(), {}, {});
  back.expect_same("decoded values");
  if (!fits) return;
  expect(back.host_bits() == reference::decode(e, t).bits, "decoded values differ from the reference's");
  expect_same_bytes(
      canonical(e, type, n, slot_bytes, with_arena ? arena_bytes : std::vector<std::uint8_t>{}, found, exact),
      expected.bytes, "canonical bytes");
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

  const dtype target = is_mask(tested) ? dtype::u8 : type;
  const tensor_pair back(mode, target, n, random_placement(n, test::width(target), random));
  decode(e, {host.data(), host.size(), nullptr, &host_report}, back.on_host(), {}, {});
  decode(e, {stored.data(), stored.size(), nullptr, report.data()}, back.on_device(), {}, device);
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
  decode(e, {expected.data(), bytes, nullptr, &host_report}, back.on_host(), {}, {});
  decode(e, {out.data(), out.size(), nullptr, report.data()}, back.on_device(), {}, device);
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
