// Random tensors through the library and through the reference of docs/format.md: the same bytes, the same
// decoded values, the same report. STASH_RANDOM_TENSORS sets how many tensors each pair of encoding and type
// gets.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "format/reference.hpp"
#include "stash/batch.hpp"
#include "stash/csr.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

using reference::tensor;

/// Memory with 16-byte alignment plus an offset, and a guard behind it.
class buffer {
 public:
  explicit buffer(std::size_t bytes, std::size_t offset = 0)
      : memory_(bytes + offset + 64, 0xa5), bytes_(bytes) {
    void* start = memory_.data();
    std::size_t space = memory_.size();
    start = std::align(16, bytes + offset, start, space);
    data_ = static_cast<std::uint8_t*>(start) + offset;
  }
  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  bool guard_is_whole() const {
    const std::uint8_t* end = memory_.data() + memory_.size();
    return std::all_of(static_cast<const std::uint8_t*>(data_ + bytes_), end,
                       [](std::uint8_t b) { return b == 0xa5; });
  }

 private:
  std::vector<std::uint8_t> memory_;
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_;
};

/// Two threads, ranges cut at odd places.
void two_threads(void*, std::int64_t count, std::int64_t, range_function body, void* state) {
  const std::int64_t cut = count / 3;
  std::thread other([&] {
    if (cut > 0) body(state, 0, cut);
  });
  body(state, cut, count);
  other.join();
}

class generator {
 public:
  explicit generator(std::uint32_t seed) : random_(seed) {}

  std::int64_t size() {
    static constexpr std::int64_t edges[] = {0,    1,    2,    3,    15,   16,   17,   31,   32,   33,   95,
                                             96,   97,   255,  256,  257,  1019, 1020, 1021, 1023, 1024, 1025,
                                             2047, 2048, 2049, 3071, 3072, 3073, 4095, 4096, 4097};
    if (below(3) != 0) return edges[below(std::size(edges))];
    return static_cast<std::int64_t>(below(6000));
  }

  tensor make(dtype type, std::int64_t count) {
    static constexpr double densities[] = {0, 0.01, 0.1, 0.2, 0.5, 0.9, 1};
    const double density = densities[below(std::size(densities))];
    const auto pattern = below(3);  // iid, dead channels, clusters
    const auto kind = below(4);     // ReLU output, any bits, special values, values around a few boundaries
    const std::uint32_t channels = 1 + below(40), cluster = 1 + below(700);
    tensor t;
    t.type = type;
    bool dead = false;
    std::vector<bool> dead_channel(channels);
    for (std::size_t c = 0; c < channels; ++c)
      dead_channel[c] = uniform() > density;
    for (std::int64_t i = 0; i < count; ++i) {
      if (pattern == 0 || (pattern == 2 && static_cast<std::uint32_t>(i) % cluster == 0))
        dead = uniform() > density;
      if (pattern == 1) dead = dead_channel[static_cast<std::size_t>(i) % channels];
      t.bits.push_back(dead ? 0 : value(type, kind));
    }
    return t;
  }

  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }

 private:
  double uniform() { return static_cast<double>(random_()) / 4294967296.0; }

  std::uint32_t value(dtype type, std::uint32_t kind) {
    const auto r = static_cast<std::uint32_t>(random_());
    static constexpr std::uint32_t special[] = {
        0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x7f800000, 0xff800000, 0x7f800001,
        0x7fc00000, 0xffc12345, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, 0x40c00000, 0x33000000,
        0x33800000, 0x38800000, 0x387fc000, 0x477fe000, 0x477ff000, 0x43e00000, 0x43e80000, 0x3b000000,
        0x3a800000, 0x36800000, 0x37000000, 0x47600000, 0x47680000, 0x00008000, 0x00010000, 0x40e00000};
    std::uint32_t f32 = r;
    if (kind == 0)
      f32 = std::bit_cast<std::uint32_t>(std::abs(std::ldexp(static_cast<float>(r % 4096) + 1, -10)));
    if (kind == 2) f32 = special[r % std::size(special)];
    if (kind == 3) f32 = special[r % std::size(special)] + (r >> 8) % 5 - 2;
    if (type == dtype::f32) return f32;
    if (kind == 1) return r & 0xffff;
    return reference::narrow(type == dtype::f16 ? value_format::fp16 : value_format::bf16,
                             underflow_rule::keep_nonzero, f32);
  }

  std::mt19937 random_;
};

std::size_t width(dtype type) {
  return type == dtype::f32 ? 4 : type == dtype::u8 ? 1 : 2;
}

/// The tensor in memory, `inner` elements dense and `gap` more between rows; `offset` bytes off alignment.
struct placed {
  buffer memory;
  shape dims;
  std::int64_t pitch;

  placed(dtype type, std::int64_t count, std::int64_t inner, std::int64_t gap, std::size_t offset)
      : memory(static_cast<std::size_t>(count / inner * (inner + gap)) * width(type), offset),
        dims{count / inner, inner},
        pitch(inner + gap) {}
  std::size_t at(std::int64_t i) const {
    return static_cast<std::size_t>(i / dims.inner() * pitch + i % dims.inner());
  }
  void put(const tensor& t) {
    for (std::int64_t i = 0; i < t.count(); ++i)
      std::memcpy(memory.data() + at(i) * width(t.type), &t.bits[static_cast<std::size_t>(i)], width(t.type));
  }
  std::vector<std::uint32_t> take(dtype type, std::int64_t count) const {
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(&bits[static_cast<std::size_t>(i)], memory.data() + at(i) * width(type), width(type));
    return bits;
  }
  tensor_view view(dtype type) const { return {memory.data(), type, memory_space::host, dims, pitch}; }
};

std::int64_t divisor(std::int64_t count, generator& random) {
  for (int tries = 0; tries < 10; ++tries) {
    const auto d = static_cast<std::int64_t>(1 + random.below(80));
    if (count % d == 0) return d;
  }
  return std::max<std::int64_t>(1, count);
}

struct pair_under_test {
  std::string name;
  dtype type;
};

std::vector<pair_under_test> pairs() {
  std::vector<pair_under_test> all;
  const std::vector<std::string> formats{"fp16",       "bf16",       "fp10",       "fp8",
                                         "fp8_e5m2",   "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3",
                                         "mxfp6_e3m2", "mxfp4_e2m1"};
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (const std::string name : {"raw", "sign_mask", "range_mask", "bitmap", "csr"})
      all.push_back({name, type});
    for (const std::string& format : formats) {
      const bool sixteen = format == "fp16" || format == "bf16";
      if (type == dtype::f32 || !sixteen) all.push_back({format, type});
      all.push_back({"bitmap_" + format, type});
      all.push_back({"csr_" + format, type});
    }
  }
  return all;
}

int tensors_per_pair() {
  const char* wanted = std::getenv("STASH_RANDOM_TENSORS");
  return wanted == nullptr ? 120 : std::atoi(wanted);
}

class random_tensors : public ::testing::TestWithParam<pair_under_test> {
 protected:
  encoding random_form(generator& random) {
    encoding e = parse_encoding(GetParam().name);
    e.underflow = static_cast<underflow_rule>(random.below(2));
    e.rule = static_cast<framework_rule>(random.below(2));
    if (random.below(3) == 0) e.lower = -1.0F;
    if (random.below(3) == 0) e.upper = INFINITY;
    return e;
  }
  bool is_mask() const { return GetParam().name == "sign_mask" || GetParam().name == "range_mask"; }
  bool is_sparse() const {
    return GetParam().name.starts_with("bitmap") || GetParam().name.starts_with("csr");
  }
};

std::string name_of_pair(const ::testing::TestParamInfo<pair_under_test>& tested) {
  constexpr const char* types[] = {"f32", "f16", "bf16"};
  return tested.param.name + "_of_" + types[static_cast<int>(tested.param.type)];
}

INSTANTIATE_TEST_SUITE_P(format, random_tensors, ::testing::ValuesIn(pairs()), name_of_pair);

TEST_P(random_tensors, as_the_reference) {
  const dtype type = GetParam().type;
  const int tensors = tensors_per_pair();
  for (int k = 0; k < tensors; ++k) {
    generator random(static_cast<std::uint32_t>(k));
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    const std::int64_t inner = divisor(n, random);
    const std::int64_t gap = random.below(2) == 0 ? 0 : random.below(9);
    placed in(type, n, inner, gap, width(type) * random.below(16));
    in.put(t);
    execution_context context;
    if (k % 4 == 3) context.parallel_for = two_threads;

    const reference::encoded expected = reference::encode(e, t);
    // Large buffers take another way through the library than exact ones.
    const std::size_t exact = encoded_bytes_exact(e, in.view(type), context);
    ASSERT_EQ(exact, expected.bytes.size());
    const std::size_t bound = encoded_bytes_bound(e, type, n);
    ASSERT_LE(exact, bound);
    buffer out(random.below(2) == 0 ? exact : bound + 16 * random.below(9));
    encode_report report{};
    encode(e, in.view(type), {out.data(), out.size(), nullptr, &report}, {}, context);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(out.guard_is_whole());
    ASSERT_EQ(std::vector<std::uint8_t>(out.data(), out.data() + exact), expected.bytes);
    ASSERT_EQ(report.slot_bytes, expected.bytes.size());
    if (is_sparse()) {
      ASSERT_EQ(report.nonzeros, expected.nonzeros);
      ASSERT_EQ((report.flags & flag_mask_is_not_sign) != 0, expected.mask_is_not_sign);
      const double density = n == 0 ? 0 : static_cast<double>(expected.nonzeros) / static_cast<double>(n);
      ASSERT_LE(exact, encoded_bytes_at_density(e, type, n, density));
    }

    const dtype target = is_mask() ? dtype::u8 : type;
    placed back(target, n, inner, random.below(2) == 0 ? 0 : random.below(9),
                width(target) * random.below(16));
    decode(e, {out.data(), out.size(), nullptr, &report}, back.view(target), {}, context);
    ASSERT_EQ(report.status, status_ok);
    ASSERT_TRUE(back.memory.guard_is_whole());
    ASSERT_EQ(back.take(target, n), reference::decode(e, t).bits);
  }
}

/// Small slots, with an arena: what does not fit lies there, and nothing is lost or written elsewhere.
TEST_P(random_tensors, overflow_and_canonical_bytes) {
  if (!is_sparse()) GTEST_SKIP() << "of fixed size";
  const dtype type = GetParam().type;
  const int tensors = tensors_per_pair() / 2;
  for (int k = 0; k < tensors; ++k) {
    generator random(static_cast<std::uint32_t>(k) + 77777);
    SCOPED_TRACE(k);
    const encoding e = random_form(random);
    const std::int64_t n = random.size() + 1;
    const tensor t = random.make(type, n);
    placed in(type, n, n, 0, 0);
    in.put(t);
    execution_context context;
    if (k % 2 == 1) context.parallel_for = two_threads;
    const reference::encoded expected = reference::encode(e, t);
    const std::size_t exact = expected.bytes.size();
    const auto count = static_cast<std::size_t>(n);
    const std::size_t places = GetParam().name.starts_with("csr") ? (count + 255) / 256 * 2 : (count + 7) / 8;
    const std::size_t fixed = (places + 15) / 16 * 16 + ((count + 1023) / 1024 * 4 + 15) / 16 * 16;
    const std::size_t payloads = exact - fixed;
    buffer slot(fixed + random.below(payloads + 1));
    buffer arena_memory(64 + (random.below(3) == 0 ? payloads / 2 : payloads) / 16 * 16);
    std::uint64_t claimed = 64;
    const overflow_arena arena{arena_memory.data(), arena_memory.size(), &claimed};
    encode_report report{};
    encode(e, in.view(type), {slot.data(), slot.size(), &arena, &report}, {}, context);
    ASSERT_TRUE(slot.guard_is_whole());
    ASSERT_TRUE(arena_memory.guard_is_whole());
    ASSERT_TRUE(std::all_of(arena_memory.data(), arena_memory.data() + 64, [](auto b) { return b == 0xa5; }));
    ASSERT_EQ(report.nonzeros, expected.nonzeros);
    ASSERT_EQ(report.slot_bytes + report.overflow_bytes, exact);
    ASSERT_EQ(claimed, 64 + report.overflow_bytes);
    const bool fits = claimed <= arena_memory.size();
    ASSERT_EQ(report.status, fits ? status_ok : status_capacity);
    const const_encoded_view stored{slot.data(), slot.size(), &arena, &report};
    placed back(type, n, n, 0, 0);
    decode(e, stored, back.view(type), {}, context);
    ASSERT_TRUE(back.memory.guard_is_whole());
    if (!fits) continue;
    ASSERT_EQ(report.status, status_ok);
    ASSERT_EQ(back.take(type, n), reference::decode(e, t).bits);

    buffer canonical(exact);
    encode_report canonical_report{};
    canonicalise(e, type, n, stored, {canonical.data(), canonical.size(), nullptr, &canonical_report},
                 context);
    ASSERT_EQ(canonical_report.status | report.status, status_ok);
    ASSERT_TRUE(canonical.guard_is_whole());
    ASSERT_EQ(std::vector<std::uint8_t>(canonical.data(), canonical.data() + exact), expected.bytes);
    ASSERT_EQ(canonical_report.nonzeros, expected.nonzeros);
    ASSERT_EQ(canonical_report.flags & flag_mask_is_not_sign, report.flags & flag_mask_is_not_sign);
    if (exact >= fixed + 16) {
      encode_report small{};
      canonicalise(e, type, n, stored, {canonical.data(), exact - 16, nullptr, &small}, context);
      ASSERT_EQ(small.status, status_capacity);
    }
  }
}

/// Any bytes: nothing outside the buffers is touched, whatever they say.
TEST_P(random_tensors, mutated_bytes) {
  const dtype type = GetParam().type;
  const int tensors = tensors_per_pair();
  for (int k = 0; k < tensors; ++k) {
    generator random(static_cast<std::uint32_t>(k) + 55555);
    const encoding e = random_form(random);
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    placed in(type, n, std::max<std::int64_t>(1, n), 0, 0);
    in.put(t);
    const std::size_t exact = encoded_bytes_exact(e, in.view(type), {});
    buffer stored(exact);
    encode_report report{};
    encode(e, in.view(type), {stored.data(), stored.size(), nullptr, &report}, {}, {});
    for (std::uint32_t changes = 1 + random.below(20); changes > 0 && exact > 0; --changes)
      stored.data()[random.below(exact)] = static_cast<std::uint8_t>(random.below(256));
    const dtype target = is_mask() ? dtype::u8 : type;
    placed back(target, n, std::max<std::int64_t>(1, n), 0, 0);
    const const_encoded_view bytes{stored.data(), stored.size(), nullptr, &report};
    decode(e, bytes, back.view(target), {}, {});
    ASSERT_TRUE(back.memory.guard_is_whole());
    if (!is_sparse()) continue;
    buffer canonical(exact);
    encode_report canonical_report{};
    canonicalise(e, type, n, bytes, {canonical.data(), canonical.size(), nullptr, &canonical_report}, {});
    ASSERT_TRUE(canonical.guard_is_whole());
    if (!GetParam().name.starts_with("csr")) continue;
    const auto rows = static_cast<std::size_t>((n + 255) / 256);
    std::vector<std::uint32_t> offsets(rows + 1), columns(static_cast<std::size_t>(n) + 1);
    buffer values(static_cast<std::size_t>(n) * width(type));
    try {
      csr_export32(e, bytes, n, {offsets.data(), columns.data(), values.data(), type, n}, {});
    } catch (const error& damaged) {
      ASSERT_EQ(damaged.code(), errc::corrupt_data) << damaged.what();
    }
    ASSERT_TRUE(values.guard_is_whole());
  }
}

TEST(csr_export, is_conventional_csr) {
  for (std::uint32_t k = 0; k < 60; ++k) {
    generator random(k);
    const dtype type = static_cast<dtype>(k % 3);
    const encoding e = parse_encoding(k % 2 == 0 ? "csr" : "csr_fp8");
    const std::int64_t n = random.size();
    const tensor t = random.make(type, n);
    placed in(type, n, std::max<std::int64_t>(1, n), 0, 0);
    in.put(t);
    buffer stored(encoded_bytes_exact(e, in.view(type), {}));
    encode_report report{};
    encode(e, in.view(type), {stored.data(), stored.size(), nullptr, &report}, {}, {});
    const auto count = static_cast<std::int64_t>(report.nonzeros);
    std::vector<std::uint32_t> offsets(static_cast<std::size_t>((n + 255) / 256) + 1, 99);
    std::vector<std::uint32_t> columns(static_cast<std::size_t>(count) + 1, 99);
    buffer values(static_cast<std::size_t>(count) * width(type));
    csr32_view out{offsets.data(), columns.data(), values.data(), type, count};
    ASSERT_EQ(csr_export32(e, {stored.data(), stored.size(), nullptr, &report}, n, out, {}), count);
    ASSERT_EQ(columns.back(), 99U);
    ASSERT_TRUE(values.guard_is_whole());
    const std::vector<std::uint32_t> expected = reference::decode(e, t).bits;
    ASSERT_EQ(offsets.front(), 0U);
    ASSERT_EQ(offsets.back(), static_cast<std::uint32_t>(count));
    std::vector<std::uint32_t> dense(static_cast<std::size_t>(n), 0);
    for (std::size_t row = 0; row + 1 < offsets.size(); ++row) {
      for (std::size_t i = offsets[row]; i < offsets[row + 1]; ++i)
        std::memcpy(&dense[row * 256 + columns[i]], values.data() + i * width(type), width(type));
    }
    ASSERT_EQ(dense, expected);
    if (count > 0) {
      out.capacity = count - 1;
      EXPECT_THROW(csr_export32(e, {stored.data(), stored.size(), nullptr, &report}, n, out, {}), error);
    }
  }
}

TEST(batch, does_what_single_calls_do) {
  const std::vector<std::string> names{"raw",        "sign_mask", "bitmap",     "csr_fp10",
                                       "mxfp4_e2m1", "fp16",      "bitmap_bf16"};
  for (const bool threads : {false, true}) {
    execution_context context;
    if (threads) context.parallel_for = two_threads;
    generator random(5);
    std::vector<std::unique_ptr<placed>> tensors, results;
    std::vector<buffer> single, together;
    std::vector<encode_report> reports(names.size()), batch_reports(names.size());
    std::vector<encode_item> items;
    std::vector<decode_item> back;
    for (std::size_t i = 0; i < names.size(); ++i) {
      // One is large enough to be cut.
      const std::int64_t n = i == 2 ? 300000 : random.size() + 1;
      tensors.push_back(std::make_unique<placed>(dtype::f32, n, n, 0, 0));
      tensors.back()->put(random.make(dtype::f32, n));
      results.push_back(std::make_unique<placed>(i == 1 ? dtype::u8 : dtype::f32, n, n, 0, 0));
      const std::size_t bytes =
          encoded_bytes_exact(parse_encoding(names[i]), tensors[i]->view(dtype::f32), {});
      single.emplace_back(bytes);
      together.emplace_back(bytes);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      const encoding e = parse_encoding(names[i]);
      encode(e, tensors[i]->view(dtype::f32), {single[i].data(), single[i].size(), nullptr, &reports[i]}, {},
             {});
      items.push_back({e,
                       tensors[i]->view(dtype::f32),
                       {together[i].data(), together[i].size(), nullptr, &batch_reports[i]}});
      back.push_back({e,
                      {together[i].data(), together[i].size(), nullptr, &batch_reports[i]},
                      results[i]->view(i == 1 ? dtype::u8 : dtype::f32)});
    }
    encode_batch(items, {}, context);
    decode_batch(back, {}, context);
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(std::memcmp(single[i].data(), together[i].data(), single[i].size()), 0) << names[i];
      EXPECT_EQ(reports[i].nonzeros, batch_reports[i].nonzeros) << names[i];
      placed alone(i == 1 ? dtype::u8 : dtype::f32, results[i]->dims.elements(), results[i]->dims.inner(), 0,
                   0);
      decode(items[i].how, {single[i].data(), single[i].size(), nullptr, &reports[i]},
             alone.view(i == 1 ? dtype::u8 : dtype::f32), {}, {});
      EXPECT_EQ(std::memcmp(alone.memory.data(), results[i]->memory.data(), alone.memory.size()), 0)
          << names[i];
    }
    // A wrong item is named, and nothing has been written.
    std::memset(together[0].data(), 0x5a, together[0].size());
    items.back().output.bytes = 0;
    try {
      encode_batch(items, {}, context);
      FAIL();
    } catch (const error& wrong) {
      EXPECT_NE(std::string(wrong.what()).find("items[6]"), std::string::npos) << wrong.what();
    }
    EXPECT_EQ(together[0].data()[0], 0x5a);
  }
}

}  // namespace
}  // namespace stash
