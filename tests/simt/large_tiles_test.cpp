// SPDX-License-Identifier: Apache-2.0
// bitmap and csr of maps of more elements than 32 bits count, with payloads that lie more than 8 GiB after
// the start of their region, as if tiles before them had filled it.

#include "encoders/device/backend.hpp"
#include "simt/large_maps.hpp"
#include "stash/relu.hpp"

namespace stash {
namespace {

using namespace test;

constexpr std::uint64_t taken = std::uint64_t{9} << 30;    ///< bytes of others before the payloads
constexpr std::uint64_t region = std::uint64_t{12} << 30;  ///< space for payloads
constexpr std::uint64_t counted = std::uint64_t{5} << 32;  ///< non-zeros of others
constexpr std::uint64_t chunk = std::uint64_t{1024} * 8;   ///< words that one block sums up

enum class where : std::uint32_t { slot, arena, host };

/// Where the parts of an encoded map lie.
struct parts {
  parts(const encoding& e, std::int64_t elements)
      : presence(e.kind == encoding_kind::csr ? plane{csr_row_elements, 2} : plane{8, 1}),
        table(presence.size(elements)),
        payloads(table + plane{tile_elements, 4}.size(elements)) {}
  plane presence;  ///< row ends or mask
  std::uint64_t table, payloads;
};

/// A map of tiles at the end of a large one, encoded by kernels, and by the CPU as a map of its own.
class ended_tiles {
 public:
  ended_tiles(const char* name, dtype type, where payloads_in = where::slot)
      : e(parse_encoding(name)),
        x(ended_map(type)),
        far_parts(e, elements_in_all),
        near_parts(e, elements_at_end),
        slot(far_parts.payloads + (payloads_in == where::slot ? region : 0)),
        overflow(payloads_in == where::slot ? 0 : region),
        near(encoded_bytes_bound(e, type, elements_at_end)),
        in_(payloads_in) {
    x.set(ending_values(type, elements_at_end, 5));
    far_report.nonzeros = counted;
    if (in_ == where::slot) far_report.slot_bytes = far_parts.payloads + taken;
    if (in_ == where::arena) view_ = {overflow.data(), region, &claimed};
    if (in_ == where::host) view_ = {nullptr, 0, nullptr, overflow.data(), region, &claimed};
    encode(e, x.far(), {slot.data(), slot.size(), arena(), &far_report}, {}, device);
    encode(e, x.near(), near_out(), {}, {});
  }

  const overflow_arena* arena() const { return in_ == where::slot ? nullptr : &view_; }
  const_encoded_view far_in() { return {slot.data(), slot.size(), arena(), &far_report}; }
  encoded_view near_out() { return {near.data(), near.size(), nullptr, &near_report}; }
  const_encoded_view near_in() { return {near.data(), near.size(), nullptr, &near_report}; }
  std::size_t payload_bytes() const {
    return static_cast<std::size_t>(near_report.slot_bytes - near_parts.payloads);
  }

  /// In `found`, row ends or masks, entries and payloads are those of the CPU, which lie `first` bytes after
  /// the start of `region`.
  void expect_same(const reserved& found, where in, const reserved& holds_payloads,
                   std::uint64_t first) const {
    const auto bytes = static_cast<std::size_t>(near_parts.table);
    expect_bytes(found.read(far_parts.table - bytes, bytes), 0, "row ends or masks");
    const std::size_t tiles = (elements_at_end + tile_elements - 1) / tile_elements;
    const std::vector<std::uint8_t> entries =
        found.read(far_parts.table + elements_before / tile_elements * 4, tiles * 4);
    const auto near_entry = [&](std::size_t t) {
      std::uint32_t entry = 0;
      std::memcpy(&entry, near.data() + near_parts.table + 4 * t, 4);
      return t < tiles ? entry : static_cast<std::uint32_t>(near_report.slot_bytes / 16);
    };
    for (std::size_t t = 0; t < tiles; ++t) {
      // An empty tile never leaves the slot.
      if (in != where::slot && near_entry(t) == near_entry(t + 1)) continue;
      std::uint32_t entry = 0;
      std::memcpy(&entry, entries.data() + 4 * t, 4);
      const auto expected = near_entry(t) + static_cast<std::uint32_t>((first - near_parts.payloads) / 16);
      EXPECT_EQ(entry, static_cast<std::uint32_t>(in) << 30 | expected) << "tile " << t;
    }
    expect_bytes(holds_payloads.read(first, payload_bytes()), near_parts.payloads, "payloads");
  }

  encoding e;
  ending_map x;
  parts far_parts, near_parts;
  reserved slot, overflow;
  buffer near;
  encode_report far_report{}, near_report{};
  std::uint64_t claimed = taken;

 private:
  void expect_bytes(const std::vector<std::uint8_t>& found, std::uint64_t at, const char* what) const {
    EXPECT_TRUE(std::equal(found.begin(), found.end(), near.data() + at)) << what;
  }

  where in_;
  overflow_arena view_;
};

using large_tiles = large_maps;

const char* const names[] = {"bitmap", "csr", "bitmap_fp8", "csr_mxfp4_e2m1"};

TEST_F(large_tiles, encode_decode_and_gradients) {
  for (const char* const name : names) {
    for (const dtype type : {dtype::f32, dtype::f16}) {
      SCOPED_TRACE(std::string(name) + (type == dtype::f32 ? " of f32" : " of f16"));
      ended_tiles t(name, type);
      const std::uint64_t first = t.far_parts.payloads + taken;
      ASSERT_GT(t.payload_bytes(), 0U);
      t.expect_same(t.slot, where::slot, t.slot, first);
      EXPECT_EQ(t.far_report.slot_bytes, first + t.payload_bytes());
      EXPECT_EQ(t.far_report.nonzeros, counted + t.near_report.nonzeros);
      EXPECT_EQ(t.far_report.flags, t.near_report.flags);

      const ending_map y = ended_map(type), dx = ended_map(type);
      decode({t.e, y.far().type, y.far().dims, t.far_in()}, y.far(), {}, device);
      decode({t.e, y.near().type, y.near().dims, t.near_in()}, y.near(), {}, {});
      y.expect_same("decoded values");
      t.e.underflow = underflow_rule::keep_nonzero;
      relu_backward(t.x.far(), {t.e, t.x.far().type, t.x.far().dims, t.far_in()}, dx.far(),
                    framework_rule::pytorch, device);
      relu_backward(t.x.near(), {t.e, t.x.near().type, t.x.near().dims, t.near_in()}, dx.near(),
                    framework_rule::pytorch, {});
      dx.expect_same("dx");
      EXPECT_EQ(t.far_report.status, status_ok);
    }
  }
}

TEST_F(large_tiles, overflow_far_past_the_start_of_a_region) {
  for (const where in : {where::arena, where::host}) {
    for (const char* const name : {"bitmap", "csr_mxfp4_e2m1"}) {
      SCOPED_TRACE(name);
      ended_tiles t(name, dtype::f32, in);
      t.expect_same(t.slot, in, t.overflow, taken);
      EXPECT_EQ(t.claimed, taken + t.payload_bytes());
      EXPECT_EQ(t.far_report.overflow_bytes, t.payload_bytes());
      const ending_map y = ended_map(dtype::f32);
      decode({t.e, y.far().type, y.far().dims, t.far_in()}, y.far(), {}, device);
      decode({t.e, y.near().type, y.near().dims, t.near_in()}, y.near(), {}, {});
      y.expect_same("decoded values");
      EXPECT_EQ(t.far_report.status, status_ok);
    }
  }
}

TEST_F(large_tiles, counted_sizes) {
  for (const char* const name : names) {
    SCOPED_TRACE(name);
    ended_tiles t(name, dtype::f32);
    encode_report report{};
    report.nonzeros = counted;
    report.slot_bytes = taken;
    encoders::device::kernels().count(t.e, t.x.far(), &report, device);
    EXPECT_EQ(report.nonzeros, counted + t.near_report.nonzeros);
    EXPECT_EQ(report.slot_bytes, taken + t.payload_bytes());
  }
}

/// The sum of chunk `c`, which no block that runs belongs to, as the block that made it would leave it: in
/// the chunk's last word.
void set_sum_of_chunk(std::uint8_t* words, std::uint64_t c, std::uint32_t sum) {
  const std::uint32_t word = sum << 9;
  std::memcpy(words + (c * chunk + chunk - 1) * 4, &word, 4);
}

TEST_F(large_tiles, canonicalise) {
  constexpr std::uint32_t units = 8'000'000;  // of 16 bytes, in each of so many chunks:
  constexpr std::uint64_t chunks = 75;
  constexpr std::uint64_t before = chunks * units * 16;
  static_assert(before > std::uint64_t{1} << 33);
  for (const char* const name : names) {
    SCOPED_TRACE(name);
    ended_tiles t(name, dtype::f16);
    const reserved out(t.far_parts.payloads + region);
    for (std::uint64_t c = 0; c < chunks; ++c)
      set_sum_of_chunk(out.data() + t.far_parts.table, 7 * c, units);
    encode_report report{};
    report.nonzeros = counted;
    canonicalise({t.e, dtype::f16, {elements_in_all}, t.far_in()}, {out.data(), out.size(), nullptr, &report},
                 device);
    t.expect_same(out, where::slot, out, t.far_parts.payloads + before);
    EXPECT_EQ(report.slot_bytes, t.far_parts.payloads + before + t.payload_bytes());
    EXPECT_EQ(report.nonzeros, counted + t.near_report.nonzeros);
    EXPECT_EQ(report.status | t.far_report.status, status_ok);
  }
}

TEST_F(large_tiles, csr_export32) {
  constexpr std::uint32_t entries = 2'000'000;  // in each of so many chunks of rows:
  constexpr std::uint64_t chunks = 2000;
  constexpr std::uint64_t before = chunks * entries, capacity = 0xffffffff;
  static_assert(before > std::uint64_t{1} << 31 && before < capacity);
  constexpr std::int64_t rows_before = elements_before / csr_row_elements;
  for (const dtype type : {dtype::f32, dtype::f16}) {
    for (const char* const name : {"csr", "csr_mxfp4_e2m1"}) {
      SCOPED_TRACE(name);
      ended_tiles t(name, type);
      const auto listed = static_cast<std::size_t>(t.near_report.nonzeros);
      const std::size_t rows = (elements_at_end + csr_row_elements - 1) / csr_row_elements;
      exported_csr expected(type, rows, listed);
      csr_export32({t.e, expected.view(listed).type, {elements_at_end}, t.near_in()}, expected.view(listed),
                   {});

      const reserved offsets((static_cast<std::uint64_t>(rows_before) + rows + 1) * 4), columns(capacity * 4),
          values(capacity * width(type));
      for (std::uint64_t c = 0; c < chunks; ++c)
        set_sum_of_chunk(offsets.data() + 4, c, entries);
      csr_export32(
          {t.e, type, {elements_in_all}, t.far_in()},
          {reinterpret_cast<std::uint32_t*>(offsets.data()), reinterpret_cast<std::uint32_t*>(columns.data()),
           values.data(), type, static_cast<std::int64_t>(capacity)},
          device);
      EXPECT_EQ(t.far_report.status, status_ok);
      std::vector<std::uint32_t> found(rows + 1);
      const std::vector<std::uint8_t> bytes = offsets.read(rows_before * 4, (rows + 1) * 4);
      std::memcpy(found.data(), bytes.data(), bytes.size());
      for (std::uint32_t& offset : found)
        offset -= static_cast<std::uint32_t>(before);
      EXPECT_EQ(found, expected.offsets);
      const std::vector<std::uint8_t> column_bytes = columns.read(before * 4, listed * 4);
      EXPECT_EQ(std::memcmp(column_bytes.data(), expected.columns.data(), column_bytes.size()), 0);
      EXPECT_EQ(values.read(before * width(type), listed * width(type)), expected.values);
    }
  }
}

}  // namespace
}  // namespace stash
