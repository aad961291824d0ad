// Random tensors through the kernels, under every schedule, and through the reference of docs/format.md: the
// same canonical bytes, decoded values and reports. Device memory is ordinary memory here, exactly as large
// as it has to be. STASH_RANDOM_TENSORS sets how many tensors each pair of encoding and type gets.

#include <gtest/gtest.h>

#include "format/random_tensors.hpp"
#include "simt/simt.hpp"
#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/dropout.hpp"
#include "stash/error.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;
using device_random = random_pair;

constexpr execution_context device{memory_space::device};

constexpr std::size_t most_payload_bytes = 1024 * 5;  // csr of a full tile

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

/// Scratch memory of exactly this size.
struct workspace {
  explicit workspace(std::size_t bytes)
      : memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), size(bytes) {}
  ~workspace() { std::free(memory); }
  workspace(const workspace&) = delete;
  workspace& operator=(const workspace&) = delete;
  workspace_view view() const { return {memory, size}; }
  void* memory;
  std::size_t size;
};

/// Canonical bytes of what a device has stored, by the CPU and by kernels.
std::vector<std::uint8_t> canonical(const encoding& e, dtype type, std::int64_t n,
                                    const const_encoded_view& stored, std::size_t bytes) {
  std::vector<std::uint8_t> results[2];
  encode_report reports[2] = {};
  for (const bool on_host : {true, false}) {
    buffer out(bytes);
    encode_report& report = reports[on_host ? 0 : 1];
    canonicalise(e, type, n, stored, {out.data(), out.size(), nullptr, &report},
                 on_host ? execution_context{} : device);
    EXPECT_EQ(report.status | stored.report->status, status_ok);
    EXPECT_TRUE(out.guard_is_whole());
    results[on_host ? 0 : 1] = {out.data(), out.data() + bytes};
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(std::memcmp(&reports[0], &reports[1], sizeof(encode_report)), 0);
  return results[1];
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
    const std::int64_t n = random.size() + (k % 10 == 0 ? 25000 : 0);  // several blocks of tiles
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
    regions beside(payloads, random);
    encode_report report{};
    execution_context context = device;
    context.canonical = random.below(3) == 0;
    workspace workspace(workspace_bytes(e, type, n, context));
    encode(e, on_device(in.view(type)), {slot.data(), slot.size(), beside.view(), &report}, workspace.view(),
           context);
    ASSERT_TRUE(slot.guard_is_whole());
    ASSERT_TRUE(beside.are_whole());
    ASSERT_EQ(report.nonzeros, expected.nonzeros);
    ASSERT_LE(report.slot_bytes, slot.size());
    if (beside.view() != nullptr) {
      // A slot that was too small counts as used up, the last bytes that no payload fitted included.
      ASSERT_GE(report.slot_bytes + report.overflow_bytes, exact);
      const bool whole = !context.canonical && report.overflow_bytes > 0;
      ASSERT_LT(report.slot_bytes + report.overflow_bytes, exact + (whole ? most_payload_bytes : 1));
      if (whole) {
        ASSERT_EQ(report.slot_bytes, std::max(fixed, slot_bytes / 16 * 16));
      }
      ASSERT_EQ(beside.claimed, 64 + (beside.has_arena() ? report.overflow_bytes : 0));
      // Only what the arena does not hold goes to the host.
      const bool full = !beside.has_arena() || beside.claimed > beside.arena().size();
      ASSERT_LE(beside.host_claimed, 32 + report.overflow_bytes);
      ASSERT_EQ(beside.host_claimed > 32, beside.has_host() && full && report.overflow_bytes > 0);
    }
    const bool all_in_slot = slot_bytes / 16 * 16 >= exact;
    const bool fits = all_in_slot || beside.suffice();
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    const const_encoded_view stored{slot.data(), slot.size(), beside.view(), &report};
    placed back(type, n, n, 0, 0);
    decode(e, stored, on_device(back.view(type)), {}, device);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    // What the kernels read, the CPU reads: lost tiles are zeros for both.
    placed again(type, n, n, 0, 0);
    decode(e, stored, again.view(type), {}, {});
    ASSERT_EQ(back.take(type, n), again.take(type, n));
    ASSERT_EQ(back.take(type, n),
              reference::read(e, type, static_cast<std::size_t>(n), beside.with_slot(slot)).values.bits);
    if (!fits) continue;
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);
    ASSERT_EQ(canonical(e, type, n, stored, exact), expected.bytes);
  }
  simt::set_schedule({});
}

/// A slot that is full while many blocks claim their places in it: no two may get the same.
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
    const overflow_arena beside{arena.data(), arena.size(), &claimed};
    encode_report report{};
    encode(e, on_device(in.view(type)), {slot.data(), slot.size(), &beside, &report}, {}, device);
    ASSERT_EQ(report.status, status_ok);
    placed back(type, n, n, 0, 0);
    decode(e, {slot.data(), slot.size(), &beside, &report}, on_device(back.view(type)), {}, device);
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);
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
    reference::encoded encoded = reference::encode(e, t);
    const std::size_t fixed = is_sparse() ? bytes_before_payloads(GetParam(), n) : encoded.bytes.size();
    const std::size_t payloads = encoded.bytes.size() - fixed;
    regions beside(payloads, random);
    // Half of the sparse ones overflow.
    if (is_sparse() && random.below(2) == 0) {
      const buffer slot(fixed + random.below(payloads + 1));
      const reference::stored all = reference::place(e, t, beside.with_slot(slot));
      encoded.bytes = all.slot;
      if (all.arena) std::copy(all.arena->bytes.begin(), all.arena->bytes.end(), beside.arena().data());
      if (all.host) std::copy(all.host->bytes.begin(), all.host->bytes.end(), beside.host().data());
    }
    buffer stored(encoded.bytes.size());
    std::copy(encoded.bytes.begin(), encoded.bytes.end(), stored.data());
    for (std::uint32_t changes = random.below(20); changes > 0 && stored.size() > 0; --changes) {
      const std::size_t range = is_sparse() && random.below(2) == 0 ? fixed : stored.size();
      stored.data()[random.below(range)] = static_cast<std::uint8_t>(random.below(256));
    }
    encode_report host_report{}, device_report{};
    host_report.flags = device_report.flags = random.below(2) * flag_mask_is_not_sign;
    const const_encoded_view for_host{stored.data(), stored.size(), beside.view(), &host_report};
    const const_encoded_view for_device{stored.data(), stored.size(), beside.view(), &device_report};

    const dtype target = is_mask() ? dtype::u8 : type;
    placed by_host(target, n, inner, 0, 0), by_device(target, n, inner, 0, 0);
    decode(e, for_host, by_host.view(target), {}, {});
    decode(e, for_device, on_device(by_device.view(target)), {}, device);
    ASSERT_TRUE(by_device.memory.guard_is_whole());
    ASSERT_EQ(device_report.status, host_report.status);
    ASSERT_EQ(by_device.take(target, n), by_host.take(target, n));

    if (is_sparse()) {
      std::vector<std::uint8_t> results[2];
      for (const bool on_host : {true, false}) {
        buffer out(fixed + payloads);
        encode_report report{};
        encode_report& input_report = on_host ? host_report : device_report;
        canonicalise(e, type, n, {stored.data(), stored.size(), beside.view(), &input_report},
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
                  const execution_context& c) { relu_backward(in, e, stash, out, rule, c); });
      compare([&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
                  const execution_context& c) { leaky_relu_backward(in, e, stash, out, 0.1F, c); });
    }
    if (GetParam().name == "range_mask" ||
        (e.values == value_format::source && GetParam().name != "sign_mask")) {
      compare(
          [&](const tensor_view& in, const const_encoded_view& stash, const tensor_view& out,
              const execution_context& c) { clip_backward(in, e, stash, out, -0.9999F, 6.0001F, rule, c); });
    }
  }
  simt::set_schedule({});
}

/// Many maps of several kinds in few launches, in any mixture.
TEST(device_batch, is_single_calls_in_few_launches) {
  const char* const names[] = {"raw", "sign_mask", "bitmap", "csr_fp10", "mxfp4_e2m1", "fp16", "bitmap_bf16"};
  struct one {
    std::unique_ptr<placed> dense, back;
    std::unique_ptr<buffer> single, together;
    encode_report single_report{}, report{};
  };
  for (const bool in_order : {false, true}) {
    generator random(in_order ? 5 : 6);
    execution_context context = device;
    context.canonical = in_order;
    std::vector<one> maps(150);
    std::vector<encode_item> items;
    std::vector<decode_item> back;
    for (std::size_t i = 0; i < maps.size(); ++i) {
      schedule_number(static_cast<int>(i));
      const encoding e = parse_encoding(names[random.below(std::size(names))]);
      const bool mask = e.kind == encoding_kind::sign_mask;
      const std::int64_t n = i == 7 ? 30000 : random.size();
      one& m = maps[i];
      m.dense = std::make_unique<placed>(dtype::f32, n, std::max<std::int64_t>(1, n), 0, 0);
      m.dense->put(random.make(dtype::f32, n));
      const dtype target = mask ? dtype::u8 : dtype::f32;
      m.back = std::make_unique<placed>(target, n, std::max<std::int64_t>(1, n), 0, 0);
      const std::size_t bytes = encoded_bytes_bound(e, dtype::f32, n);
      m.single = std::make_unique<buffer>(bytes);
      m.together = std::make_unique<buffer>(bytes);
      const tensor_view input = on_device(m.dense->view(dtype::f32));
      encode(e, m.dense->view(dtype::f32), {m.single->data(), bytes, nullptr, &m.single_report}, {}, {});
      items.push_back({e, input, {m.together->data(), bytes, nullptr, &m.report}});
      back.push_back({e, {m.together->data(), bytes, nullptr, &m.report}, on_device(m.back->view(target))});
    }
    workspace workspace(batch_workspace_bytes(items, context));
    const std::size_t before = simt::launches_so_far();
    encode_batch(items, workspace.view(), context);
    const std::size_t encoding = simt::launches_so_far();
    decode_batch(back, {}, device);
    const std::size_t decoding = simt::launches_so_far() - encoding;
    EXPECT_LE(encoding - before, in_order ? 2 * maps.size() : 14U);
    EXPECT_LE(decoding, 14U);
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const one& m = maps[i];
      const std::size_t bytes = m.single_report.slot_bytes;
      const const_encoded_view stored{m.together->data(), m.together->size(), nullptr,
                                      items[i].output.report};
      ASSERT_EQ(m.report.nonzeros, m.single_report.nonzeros) << i;
      ASSERT_EQ(canonical(items[i].how, dtype::f32, items[i].input.elements(), stored, bytes),
                std::vector<std::uint8_t>(m.single->data(), m.single->data() + bytes))
          << i;
      placed expected(back[i].output.type, back[i].output.elements(),
                      std::max<std::int64_t>(1, back[i].output.elements()), 0, 0);
      encode_report report = m.single_report;
      decode(items[i].how, {m.single->data(), m.single->size(), nullptr, &report},
             expected.view(back[i].output.type), {}, {});
      ASSERT_EQ(m.back->take(back[i].output.type, back[i].output.elements()),
                expected.take(back[i].output.type, back[i].output.elements()))
          << i;
    }
  }
  simt::set_schedule({});
}

TEST(device_csr_export, is_the_one_of_the_cpu) {
  for (std::uint32_t k = 0; k < 200; ++k) {
    schedule_number(static_cast<int>(k));
    SCOPED_TRACE(k);
    generator random(k);
    const dtype type = static_cast<dtype>(k % 3);
    const encoding e = parse_encoding(k % 2 == 0 ? "csr" : "csr_fp8");
    const std::int64_t n = random.size() + (k % 5 == 0 ? 20000 : 0);
    const tensor t = random.make(type, n);
    const reference::encoded encoded = reference::encode(e, t);
    // Wherever the tiles lie.
    const std::size_t fixed = bytes_before_payloads({to_string(e), type}, n);
    const std::size_t payloads = encoded.bytes.size() - fixed;
    buffer stored(fixed + random.below(payloads + 1));
    regions beside(payloads, random);
    encode_report report{};
    if (n > 0) {
      placed in(type, n, n, 0, 0);
      in.put(t);
      encode(e, in.view(type), {stored.data(), stored.size(), beside.view(), &report}, {}, {});
    }
    if (report.status != status_ok) continue;
    const const_encoded_view input{stored.data(), stored.size(), beside.view(), &report};
    const std::size_t rows = static_cast<std::size_t>((n + 255) / 256);
    const std::size_t room = encoded.nonzeros;
    struct arrays {
      std::vector<std::uint32_t> offsets, columns;
      std::vector<std::uint8_t> values;
    };
    const auto make = [&] {
      return arrays{std::vector<std::uint32_t>(rows + 1, 7), std::vector<std::uint32_t>(room, 7),
                    std::vector<std::uint8_t>(room * width(type), 7)};
    };
    arrays by_host = make(), by_device = make(), refused = make();
    const auto view = [&](arrays& a, std::size_t capacity) {
      return csr32_view{a.offsets.data(), a.columns.data(), a.values.data(), type,
                        static_cast<std::int64_t>(capacity)};
    };
    csr_export32(e, input, n, view(by_host, room), {});
    ASSERT_EQ(csr_export32(e, input, n, view(by_device, room), device), -1);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_EQ(by_device.offsets, by_host.offsets);
    ASSERT_EQ(by_device.columns, by_host.columns);
    ASSERT_EQ(by_device.values, by_host.values);
    if (room == 0) continue;
    csr_export32(e, input, n, view(refused, room - 1), device);
    ASSERT_EQ(report.status, status_capacity);
    ASSERT_EQ(refused.columns, make().columns);
    ASSERT_EQ(refused.values, make().values);

    // Damaged bytes stay inside the arrays.
    for (int changes = 0; changes < 8; ++changes)
      stored.data()[random.below(stored.size())] = static_cast<std::uint8_t>(random.below(256));
    arrays damaged = make();
    csr_export32(e, input, n, view(damaged, room), device);
  }
  simt::set_schedule({});
}

TEST(device_dropout, is_the_one_of_the_cpu) {
  for (std::uint32_t k = 0; k < 60; ++k) {
    schedule_number(static_cast<int>(k));
    SCOPED_TRACE(k);
    generator random(k);
    const std::int64_t n = random.size();
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = k % 3 == 0 ? 3 : 0;
    placed x(dtype::f32, n, inner, gap, 0), host_y(dtype::f32, n, inner, 0, 0),
        device_y(dtype::f32, n, inner, 0, 0);
    x.put(random.make(dtype::f32, n));
    const dropout_key key{0x0123456789abcdefU + k, 0x0000000200000007U, k};
    const float probability = static_cast<float>(k % 10) / 10;
    const std::size_t bytes = encoded_bytes_bound(parse_encoding("sign_mask"), dtype::f32, n);
    buffer host_mask(bytes), device_mask(bytes);
    encode_report host_report{}, device_report{};
    dropout_forward(x.view(dtype::f32), host_y.view(dtype::f32),
                    {host_mask.data(), bytes, nullptr, &host_report}, probability, key, {});
    dropout_forward(on_device(x.view(dtype::f32)), on_device(device_y.view(dtype::f32)),
                    {device_mask.data(), bytes, nullptr, &device_report}, probability, key, device);
    ASSERT_EQ(device_y.take(dtype::f32, n), host_y.take(dtype::f32, n));
    ASSERT_EQ(std::memcmp(device_mask.data(), host_mask.data(), bytes), 0);
    ASSERT_EQ(std::memcmp(&device_report, &host_report, sizeof host_report), 0);
    for (const bool from_key : {false, true}) {
      placed host_dx(dtype::f32, n, inner, 0, 0), device_dx(dtype::f32, n, inner, 0, 0);
      const const_encoded_view mask{host_mask.data(), bytes, nullptr, &host_report};
      if (from_key) {
        dropout_backward(x.view(dtype::f32), host_dx.view(dtype::f32), probability, key, {});
        dropout_backward(on_device(x.view(dtype::f32)), on_device(device_dx.view(dtype::f32)), probability,
                         key, device);
      } else {
        dropout_backward(x.view(dtype::f32), mask, host_dx.view(dtype::f32), probability, {});
        dropout_backward(on_device(x.view(dtype::f32)), mask, on_device(device_dx.view(dtype::f32)),
                         probability, device);
      }
      ASSERT_EQ(device_dx.take(dtype::f32, n), host_dx.take(dtype::f32, n));
    }
  }
  simt::set_schedule({});
}

TEST(device_activations, are_those_of_the_cpu) {
  for (std::uint32_t k = 0; k < 180; ++k) {
    schedule_number(static_cast<int>(k));
    SCOPED_TRACE(k);
    generator random(k + 900);
    const auto type = static_cast<dtype>(k % 3);
    const std::int64_t n = random.size();
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = k % 4 == 0 ? 5 : 0;
    placed x(type, n, inner, gap, 0), host_y(type, n, inner, 0, 0), device_y(type, n, inner, 0, 0);
    x.put(random.make(type, n));
    const auto rule = static_cast<framework_rule>(random.below(2));
    const std::size_t bytes = encoded_bytes_bound(parse_encoding("sign_mask"), type, n);
    buffer host_mask(bytes), device_mask(bytes);
    encode_report host_report{}, device_report{};
    const auto compare = [&](const auto& layer) {
      for (const bool masked : {true, false}) {
        layer(x.view(type), host_y.view(type),
              encoded_view{masked ? host_mask.data() : nullptr, bytes, nullptr, &host_report},
              execution_context{});
        layer(on_device(x.view(type)), on_device(device_y.view(type)),
              encoded_view{masked ? device_mask.data() : nullptr, bytes, nullptr, &device_report}, device);
        ASSERT_EQ(device_y.take(type, n), host_y.take(type, n));
        ASSERT_TRUE(device_mask.guard_is_whole());
        ASSERT_EQ(std::memcmp(device_mask.data(), host_mask.data(), bytes), 0);
        ASSERT_EQ(std::memcmp(&device_report, &host_report, sizeof host_report), 0);
      }
    };
    compare([&](const tensor_view& in, const tensor_view& out, const encoded_view& mask,
                const execution_context& c) { relu_forward(in, out, mask, rule, c); });
    compare([&](const tensor_view& in, const tensor_view& out, const encoded_view& mask,
                const execution_context& c) { leaky_relu_forward(in, out, mask, 0.01F, c); });
    compare([&](const tensor_view& in, const tensor_view& out, const encoded_view& mask,
                const execution_context& c) { clip_forward(in, out, mask, -0.5F, 6.0F, rule, c); });
    const auto gradients = [&](const auto& layer) {
      layer(host_y.view(type), x.view(type), host_y.view(type), execution_context{});
      layer(on_device(device_y.view(type)), on_device(x.view(type)), on_device(device_y.view(type)), device);
      ASSERT_EQ(device_y.take(type, n), host_y.take(type, n));
    };
    gradients([&](const tensor_view& dy, const tensor_view& y, const tensor_view& dx,
                  const execution_context& c) { relu_backward(dy, y, dx, rule, c); });
    gradients([&](const tensor_view& dy, const tensor_view& y, const tensor_view& dx,
                  const execution_context& c) { leaky_relu_backward(dy, y, dx, -0.3F, c); });
    gradients([&](const tensor_view& dy, const tensor_view& y, const tensor_view& dx,
                  const execution_context& c) { clip_backward(dy, y, dx, 0.0F, 2.0F, rule, c); });
  }
  simt::set_schedule({});
}

}  // namespace
}  // namespace stash
