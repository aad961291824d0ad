// SPDX-License-Identifier: Apache-2.0
// Random tensors through the kernels, under every schedule, and through the reference of docs/format.md: the
// same canonical bytes, decoded values and reports. STASH_RANDOM_TENSORS sets how many tensors each pair of
// encoding and type gets.

#include "simt/kernel_tests.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;
using device_random = random_pair;

constexpr std::size_t most_payload_bytes = 1024 * 5;  // csr of a full tile

INSTANTIATE_TEST_SUITE_P(kernels, device_random, ::testing::ValuesIn(pairs()), name_of_pair);

TEST_P(device_random, as_the_reference) {
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 4);
  for (const scheduled_run& run : scheduled_runs(tensors)) {
    simt::set_schedule(run.schedule);
    SCOPED_TRACE(text_of(run));
    const int k = run.tensor;
    generator random(static_cast<std::uint32_t>(k) + 4242);
    const encoding e = random_form(random);
    const std::int64_t n = random.size() + (k % 7 == 0 ? 25000 : 0);  // several blocks of tiles
    const tensor t = random.make(type, n);
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = random.below(2) == 0 ? 0 : random.below(9);
    placed in(type, n, inner, gap, random.below(2) == 0 ? 0 : width(type) * random.below(16));
    in.put(t);

    const reference::encoded expected = reference::encode(e, t);
    const std::size_t exact = expected.bytes.size();
    buffer out(random.below(2) == 0 ? exact : encoded_bytes_bound(e, type, n));
    encode_report report{};
    execution_context context = device;
    context.canonical = random.below(2) == 0;
    workspace workspace(workspace_bytes(e, type, n, context));
    encode(e, on_device(in.view(type)), {out.data(), out.size(), nullptr, &report}, workspace.view(),
           context);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(out.guard_is_whole());
    if (context.canonical) {
      ASSERT_EQ(std::vector<std::uint8_t>(out.data(), out.data() + exact), expected.bytes);
    }
    const const_encoded_view stored{out.data(), out.size(), nullptr, &report};
    ASSERT_EQ(canonical(e, type, n, stored, exact), expected.bytes);
    ASSERT_EQ(report.slot_bytes, exact);
    if (is_sparse()) {
      ASSERT_EQ(report.nonzeros, expected.nonzeros);
      ASSERT_EQ((report.flags & flag_mask_is_not_sign) != 0, expected.mask_is_not_sign);
    }

    const dtype target = decoded_type(GetParam(), random);
    placed back(target, n, inner, random.below(2) == 0 ? 0 : random.below(9),
                random.below(2) == 0 ? 0 : width(target) * random.below(16));
    decode({e, on_device(back.view(target)).type, on_device(back.view(target)).dims, stored},
           on_device(back.view(target)), {}, device);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(back.take(target, n), reference::decode(e, t, target).bits);
  }
  simt::set_schedule({});
}

TEST_P(device_random, overflow) {
  if (!is_sparse()) GTEST_SKIP() << "of fixed size";
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 8);
  for (const scheduled_run& run : scheduled_runs(tensors)) {
    simt::set_schedule(run.schedule);
    SCOPED_TRACE(text_of(run));
    const int k = run.tensor;
    generator random(static_cast<std::uint32_t>(k) + 77777);
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
    regions overflow(payloads, random);
    encode_report report{};
    execution_context context = device;
    context.canonical = random.below(3) == 0;
    workspace workspace(workspace_bytes(e, type, n, context));
    encode(e, on_device(in.view(type)), {slot.data(), slot.size(), overflow.view(), &report},
           workspace.view(), context);
    ASSERT_TRUE(slot.guard_is_whole());
    ASSERT_TRUE(overflow.are_whole());
    ASSERT_EQ(report.nonzeros, expected.nonzeros);
    ASSERT_LE(report.slot_bytes, slot.size());
    if (overflow.view() != nullptr) {
      // A slot that was too small counts as used up, the last bytes that no payload fitted included.
      ASSERT_GE(report.slot_bytes + report.overflow_bytes, exact);
      const bool whole = !context.canonical && report.overflow_bytes > 0;
      ASSERT_LT(report.slot_bytes + report.overflow_bytes, exact + (whole ? most_payload_bytes : 1));
      if (whole) {
        ASSERT_EQ(report.slot_bytes, std::max(fixed, slot_bytes / 16 * 16));
      }
      ASSERT_EQ(overflow.claimed, 64 + (overflow.has_arena() ? report.overflow_bytes : 0));
      // Only what the arena does not hold goes to the host.
      const bool full = !overflow.has_arena() || overflow.claimed > overflow.arena().size();
      ASSERT_LE(overflow.host_claimed, 32 + report.overflow_bytes);
      ASSERT_EQ(overflow.host_claimed > 32, overflow.has_host() && full && report.overflow_bytes > 0);
    }
    const bool all_in_slot = slot_bytes / 16 * 16 >= exact;
    const bool fits = all_in_slot || overflow.suffice();
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    const const_encoded_view stored{slot.data(), slot.size(), overflow.view(), &report};
    placed back(type, n, n, 0, 0);
    decode({e, on_device(back.view(type)).type, on_device(back.view(type)).dims, stored},
           on_device(back.view(type)), {}, device);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    // What the kernels read, the CPU reads: lost tiles are zeros for both.
    placed again(type, n, n, 0, 0);
    decode({e, again.view(type).type, again.view(type).dims, stored}, again.view(type), {}, {});
    ASSERT_EQ(back.take(type, n), again.take(type, n));
    ASSERT_EQ(back.take(type, n),
              reference::read(e, type, static_cast<std::size_t>(n), overflow.with_slot(slot)).values.bits);
    if (!fits) continue;
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);
    ASSERT_EQ(canonical(e, type, n, stored, exact), expected.bytes);
  }
  simt::set_schedule({});
}

/// A slot that is full while many blocks claim their bytes in it: no two may get the same.
TEST_P(device_random, many_blocks_overflow_at_once) {
  if (!is_sparse()) GTEST_SKIP() << "of fixed size";
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 16);
  for (int k = 0; k < tensors; ++k) {
    simt::set_schedule({simt::order::random, static_cast<std::uint32_t>(k) + 1, 8});
    generator random(static_cast<std::uint32_t>(k) + 99999);
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    const std::int64_t n = 60000 + random.below(40000);
    const tensor t = random.make(type, n);
    placed in(type, n, n, 0, 0);
    in.put(t);
    const std::size_t exact = reference::encode(e, t).bytes.size();
    const std::size_t fixed = bytes_before_payloads(GetParam(), n);
    buffer slot(fixed + (exact - fixed) * (1 + random.below(9)) / 10);
    buffer arena(exact);
    std::uint64_t claimed = 0;
    const overflow_arena overflow{arena.data(), arena.size(), &claimed};
    encode_report report{};
    encode(e, on_device(in.view(type)), {slot.data(), slot.size(), &overflow, &report}, {}, device);
    ASSERT_EQ(report.status, status_ok);
    placed back(type, n, n, 0, 0);
    decode({e,
            on_device(back.view(type)).type,
            on_device(back.view(type)).dims,
            {slot.data(), slot.size(), &overflow, &report}},
           on_device(back.view(type)), {}, device);
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);
  }
  simt::set_schedule({});
}

/// A counter so high that it goes through zero: the claims that take it there find no space. Those of blocks
/// after them begin with zero.
TEST_P(device_random, a_counter_that_wraps_finds_no_space) {
  if (!is_sparse()) GTEST_SKIP() << "of fixed size";
  const dtype type = GetParam().type;
  generator random(4711);
  const encoding e = random_form(random);
  const std::int64_t n = 20000;
  placed in(type, n, n, 0, 0);
  in.put(random.make(type, n));
  for (const std::uint64_t left : {16U, 2048U, 8192U}) {
    const buffer slot(bytes_before_payloads(GetParam(), n));
    buffer arena(encoded_bytes_bound(e, type, n));
    std::uint64_t claimed = std::uint64_t{0} - left;
    const overflow_arena overflow{arena.data(), arena.size(), &claimed};
    encode_report report{};
    encode(e, on_device(in.view(type)), {slot.data(), slot.size(), &overflow, &report}, {}, device);
    EXPECT_EQ(report.status, status_capacity) << left;
  }
}

/// Any bytes: nothing outside the buffers is touched, and the kernels make of them what the CPU makes.
TEST_P(device_random, mutated_bytes) {
  const dtype type = GetParam().type;
  const int tensors = std::max(1, tensors_per_pair() / 4);
  for (const scheduled_run& run : scheduled_runs(tensors)) {
    simt::set_schedule(run.schedule);
    SCOPED_TRACE(text_of(run));
    const int k = run.tensor;
    generator random(static_cast<std::uint32_t>(k) + 55555);
    encoding e = random_form(random);
    e.underflow = underflow_rule::keep_nonzero;
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    const std::int64_t inner = std::max<std::int64_t>(1, n);
    reference::encoded encoded = reference::encode(e, t);
    const std::size_t fixed = is_sparse() ? bytes_before_payloads(GetParam(), n) : encoded.bytes.size();
    const std::size_t payloads = encoded.bytes.size() - fixed;
    regions overflow(payloads, random);
    // Half of the sparse ones overflow.
    if (is_sparse() && random.below(2) == 0) {
      const buffer slot(fixed + random.below(payloads + 1));
      const reference::stored all = reference::place(e, t, overflow.with_slot(slot));
      encoded.bytes = all.slot;
      if (all.arena) std::copy(all.arena->bytes.begin(), all.arena->bytes.end(), overflow.arena().data());
      if (all.host) std::copy(all.host->bytes.begin(), all.host->bytes.end(), overflow.host().data());
    }
    buffer stored(encoded.bytes.size());
    std::copy(encoded.bytes.begin(), encoded.bytes.end(), stored.data());
    for (std::uint32_t changes = random.below(20); changes > 0 && stored.size() > 0; --changes) {
      const std::size_t range = is_sparse() && random.below(2) == 0 ? fixed : stored.size();
      stored.data()[random.below(range)] = static_cast<std::uint8_t>(random.below(256));
    }
    encode_report host_report{}, device_report{};
    host_report.flags = device_report.flags = random.below(2) * flag_mask_is_not_sign;
    const const_encoded_view for_host{stored.data(), stored.size(), overflow.view(), &host_report};
    const const_encoded_view for_device{stored.data(), stored.size(), overflow.view(), &device_report};

    const dtype target = decoded_type(GetParam(), random);
    placed by_host(target, n, inner, 0, 0), by_device(target, n, inner, 0, 0);
    decode({e, by_host.view(target).type, by_host.view(target).dims, for_host}, by_host.view(target), {}, {});
    decode({e, on_device(by_device.view(target)).type, on_device(by_device.view(target)).dims, for_device},
           on_device(by_device.view(target)), {}, device);
    ASSERT_TRUE(by_device.memory.guard_is_whole());
    ASSERT_EQ(device_report.status, host_report.status);
    ASSERT_EQ(by_device.take(target, n), by_host.take(target, n));

    if (is_sparse()) {
      std::vector<std::uint8_t> results[2];
      for (const bool on_host : {true, false}) {
        buffer out(fixed + payloads);
        encode_report report{};
        encode_report& input_report = on_host ? host_report : device_report;
        canonicalise({e, type, {n}, {stored.data(), stored.size(), overflow.view(), &input_report}},
                     {out.data(), out.size(), nullptr, &report}, on_host ? execution_context{} : device);
        ASSERT_TRUE(out.guard_is_whole());
        // Where not everything fits, it depends on the order what does.
        if ((report.status & status_capacity) == 0)
          results[on_host ? 0 : 1] = {out.data(), out.data() + report.slot_bytes};
      }
      if (!results[0].empty() && !results[1].empty()) {
        ASSERT_EQ(device_report.status, host_report.status);
      }
      device_report.status = host_report.status = status_ok;
    }

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
                  const execution_context& c) {
        relu_backward(in, {e, in.type, in.dims, stash}, out, rule, c);
      });
      compare([&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
                  const execution_context& c) {
        leaky_relu_backward(in, {e, in.type, in.dims, stash}, out, 0.1F, c);
      });
    }
    if (GetParam().name == "range_mask" ||
        (e.values == value_format::source && GetParam().name != "sign_mask")) {
      compare([&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
                  const execution_context& c) {
        clip_backward(in, {e, in.type, in.dims, stash}, out, -0.9999F, 6.0001F, rule, c);
      });
    }
  }
  simt::set_schedule({});
}

}  // namespace
}  // namespace stash
