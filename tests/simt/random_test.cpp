// Random tensors through the kernels, under every schedule, and through the reference of docs/format.md: the
// same canonical bytes, decoded values and reports. Device memory is ordinary memory here, exactly as large
// as it has to be. STASH_RANDOM_TENSORS sets how many tensors each pair of encoding and type gets.

#include <gtest/gtest.h>

#include "format/random_tensors.hpp"
#include "simt/simt.hpp"
#include "stash/error.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;
using device_random = random_pair;

constexpr execution_context device{memory_space::device};

/// One schedule for each number, all kinds in turn.
void schedule_number(int k) {
  constexpr simt::order orders[] = {simt::order::forward, simt::order::reverse, simt::order::random};
  simt::set_schedule(
      {orders[k % 3], static_cast<std::uint32_t>(k) + 1, static_cast<std::uint32_t>(k % 4) + 1});
}

tensor_view on_device(tensor_view view) {
  view.space = memory_space::device;
  return view;
}

/// Canonical bytes of what a device has stored.
std::vector<std::uint8_t> canonical(const encoding& e, dtype type, std::int64_t n,
                                    const const_encoded_view& stored, std::size_t bytes) {
  buffer out(bytes);
  encode_report report{};
  canonicalise(e, type, n, stored, {out.data(), out.size(), nullptr, &report}, {});
  EXPECT_EQ(report.status | stored.report->status, status_ok);
  return {out.data(), out.data() + bytes};
}

INSTANTIATE_TEST_SUITE_P(kernels, device_random, ::testing::ValuesIn(pairs()), name_of_pair);

TEST_P(device_random, as_the_reference) {
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 4);
  for (int k = 0; k < tensors; ++k) {
    schedule_number(k);
    generator random(static_cast<std::uint32_t>(k) + 4242);
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = random.below(2) == 0 ? 0 : random.below(9);
    placed in(type, n, inner, gap, random.below(2) == 0 ? 0 : width(type) * random.below(16));
    in.put(t);

    const reference::encoded expected = reference::encode(e, t);
    const std::size_t exact = expected.bytes.size();
    buffer out(random.below(2) == 0 ? exact : encoded_bytes_bound(e, type, n));
    encode_report report{};
    encode(e, on_device(in.view(type)), {out.data(), out.size(), nullptr, &report}, {}, device);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(out.guard_is_whole());
    const const_encoded_view stored{out.data(), out.size(), nullptr, &report};
    ASSERT_EQ(canonical(e, type, n, stored, exact), expected.bytes);
    ASSERT_EQ(report.slot_bytes, exact);
    if (is_sparse()) {
      ASSERT_EQ(report.nonzeros, expected.nonzeros);
      ASSERT_EQ((report.flags & flag_mask_is_not_sign) != 0, expected.mask_is_not_sign);
    }

    const dtype target = is_mask() ? dtype::u8 : type;
    placed back(target, n, inner, random.below(2) == 0 ? 0 : random.below(9),
                random.below(2) == 0 ? 0 : width(target) * random.below(16));
    decode(e, stored, on_device(back.view(target)), {}, device);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(back.take(target, n), reference::decode(e, t).bits);
  }
  simt::set_schedule({});
}

TEST_P(device_random, overflow) {
  if (!is_sparse()) GTEST_SKIP() << "of fixed size";
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 8);
  for (int k = 0; k < tensors; ++k) {
    schedule_number(k);
    generator random(static_cast<std::uint32_t>(k) + 77777);
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    // Several blocks of tiles.
    const std::int64_t n = random.size() + 1 + (k % 2 == 0 ? 9000 : 0);
    const tensor t = random.make(type, n);
    placed in(type, n, n, 0, 0);
    in.put(t);
    const reference::encoded expected = reference::encode(e, t);
    const std::size_t exact = expected.bytes.size();
    const std::size_t fixed = bytes_before_payloads(GetParam(), n);
    const std::size_t payloads = exact - fixed;
    const std::size_t slot_bytes = fixed + random.below(payloads + 1);
    buffer slot(slot_bytes);
    const bool with_arena = random.below(4) != 0;
    buffer arena_memory(64 + (random.below(3) == 0 ? payloads / 2 : payloads) / 16 * 16);
    std::uint64_t claimed = 64;
    const overflow_arena arena{arena_memory.data(), arena_memory.size(), &claimed};
    const overflow_arena* used = with_arena ? &arena : nullptr;
    encode_report report{};
    encode(e, on_device(in.view(type)), {slot.data(), slot.size(), used, &report}, {}, device);
    ASSERT_TRUE(slot.guard_is_whole());
    ASSERT_TRUE(arena_memory.guard_is_whole());
    ASSERT_TRUE(std::all_of(arena_memory.data(), arena_memory.data() + 64, [](auto b) { return b == 0xa5; }));
    ASSERT_EQ(report.nonzeros, expected.nonzeros);
    ASSERT_LE(report.slot_bytes, slot.size());
    if (with_arena) {
      ASSERT_EQ(report.slot_bytes + report.overflow_bytes, exact);
      ASSERT_EQ(claimed, 64 + report.overflow_bytes);
    }
    const bool all_in_slot = slot_bytes / 16 * 16 >= exact;
    const bool fits = all_in_slot || (with_arena && claimed <= arena_memory.size());
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    const const_encoded_view stored{slot.data(), slot.size(), used, &report};
    placed back(type, n, n, 0, 0);
    decode(e, stored, on_device(back.view(type)), {}, device);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    // What the kernels read, the CPU reads: lost tiles are zeros for both.
    placed again(type, n, n, 0, 0);
    decode(e, stored, again.view(type), {}, {});
    ASSERT_EQ(back.take(type, n), again.take(type, n));
    if (!fits) continue;
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);
    ASSERT_EQ(canonical(e, type, n, stored, exact), expected.bytes);
  }
  simt::set_schedule({});
}

/// Any bytes: nothing outside the buffers is touched, and the kernels make of them what the CPU makes.
TEST_P(device_random, mutated_bytes) {
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 4);
  for (int k = 0; k < tensors; ++k) {
    schedule_number(k);
    generator random(static_cast<std::uint32_t>(k) + 55555);
    SCOPED_TRACE(k);
    encoding e = random_form(random);
    e.underflow = underflow_rule::keep_nonzero;
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    const std::int64_t inner = std::max<std::int64_t>(1, n);
    const reference::encoded encoded = reference::encode(e, t);
    buffer stored(encoded.bytes.size());
    std::copy(encoded.bytes.begin(), encoded.bytes.end(), stored.data());
    for (std::uint32_t changes = random.below(20); changes > 0 && stored.size() > 0; --changes)
      stored.data()[random.below(stored.size())] = static_cast<std::uint8_t>(random.below(256));
    encode_report host_report{}, device_report{};
    host_report.flags = device_report.flags = random.below(2) * flag_mask_is_not_sign;
    const const_encoded_view for_host{stored.data(), stored.size(), nullptr, &host_report};
    const const_encoded_view for_device{stored.data(), stored.size(), nullptr, &device_report};

    const dtype target = is_mask() ? dtype::u8 : type;
    placed by_host(target, n, inner, 0, 0), by_device(target, n, inner, 0, 0);
    decode(e, for_host, by_host.view(target), {}, {});
    decode(e, for_device, on_device(by_device.view(target)), {}, device);
    ASSERT_TRUE(by_device.memory.guard_is_whole());
    ASSERT_EQ(device_report.status, host_report.status);
    ASSERT_EQ(by_device.take(target, n), by_host.take(target, n));

    // Gradients, from the same bytes.
    const tensor gradient = random.make(type, n);
    placed dy(type, n, inner, 0, 0), host_dx(type, n, inner, 0, 0), device_dx(type, n, inner, 0, 0);
    dy.put(gradient);
    const auto rule = static_cast<framework_rule>(random.below(2));
    const auto compare = [&](const auto& layer) {
      layer(dy.view(type), for_host, host_dx.view(type), execution_context{});
      layer(on_device(dy.view(type)), for_device, on_device(device_dx.view(type)), device);
      ASSERT_EQ(device_report.status, host_report.status);
      ASSERT_TRUE(device_dx.memory.guard_is_whole());
      ASSERT_EQ(device_dx.take(type, n), host_dx.take(type, n));
    };
    if (GetParam().name != "range_mask") {
      compare([&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
                  const execution_context& c) { relu_backward(in, e, stash, out, rule, c); });
      compare([&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
                  const execution_context& c) { leaky_relu_backward(in, e, stash, out, 0.1F, c); });
    }
    if (GetParam().name == "range_mask" ||
        (e.values == value_format::source && GetParam().name != "sign_mask")) {
      compare([&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
                  const execution_context& c) { clip_backward(in, e, stash, out, -1.0F, 2.0F, rule, c); });
    }
  }
  simt::set_schedule({});
}

}  // namespace
}  // namespace stash
