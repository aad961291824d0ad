// SPDX-License-Identifier: Apache-2.0
// Bitmap against the independent encoder and decoder, overflow, and hostile bytes.

#include <gtest/gtest.h>

#include <array>

#include "encoders/reference.hpp"

namespace {

using namespace stash;
using namespace stash_test;

const std::vector<encoding> all_bitmaps{make_encoding("bitmap"), make_encoding("bitmap_fp16"),
                                        make_encoding("bitmap_fp16", underflow_rule::keep_nonzero),
                                        make_encoding("bitmap_fp8"),
                                        make_encoding("bitmap_fp8", underflow_rule::keep_nonzero)};

std::vector<float> decode_all(const encoding& e, const guarded_buffer& slot, const overflow_arena* arena,
                              encode_report& report, std::size_t count) {
  std::vector<float> values(count, -9.0f);
  decode({e, view_of(values).type, view_of(values).dims, {slot.data(), slot.size(), arena, &report}},
         view_of(values), {}, {});
  return values;
}

TEST(bitmap, matches_the_reference) {
  const std::int64_t counts[] = {1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 3000, 5121};
  for (const encoding& e : all_bitmaps) {
    for (const std::int64_t count : counts) {
      for (const double density : {0.0, 0.02, 0.5, 0.97, 1.0}) {
        for (const flavour kind : {flavour::positive, flavour::mixed, flavour::special}) {
          const std::vector<float> values =
              make_values(count, density, kind, static_cast<std::uint32_t>(count));
          const std::size_t size = encoded_bytes_exact(e, view_of(values), {});
          const reference_bitmap expected = reference_bitmap_encode(values, e, size);
          ASSERT_EQ(expected.slot.size(), size);
          guarded_buffer slot(size);
          encode_report report;
          encode(e, view_of(values), {slot.data(), size, nullptr, &report}, {}, {});
          ASSERT_EQ(slot.copy(), expected.slot) << to_string(e) << ' ' << count << ' ' << density;
          EXPECT_TRUE(slot.guards_intact());
          EXPECT_EQ(report.status, expected.status);
          EXPECT_EQ(report.flags, expected.flags);
          EXPECT_EQ(report.nonzeros, expected.nonzeros);
          EXPECT_EQ(report.slot_bytes, size);

          const std::vector<float> back = decode_all(e, slot, nullptr, report, values.size());
          const reference_decoded decoded =
              reference_bitmap_decode(slot.data(), size, nullptr, e.values, values.size());
          ASSERT_EQ(bits_of(back), decoded.bits);
          EXPECT_EQ(report.status, status_ok);
          if (is_lossless(e)) {
            ASSERT_EQ(bits_of(back), bits_of(values));
          }
        }
      }
    }
  }
}

TEST(bitmap, flag_says_whether_the_mask_is_the_sign) {
  const auto flags_of = [](std::vector<float> values) {
    guarded_buffer slot(encoded_bytes_bound(parse_encoding("bitmap"), dtype::f32, 8));
    encode_report report;
    values.resize(8, 0.0f);
    encode(parse_encoding("bitmap"), view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
    return report.flags;
  };
  EXPECT_EQ(flags_of({1, 0, from_bits(1), from_bits(0x7f800000)}), 0u);
  EXPECT_EQ(flags_of({1, -1}), flag_mask_is_not_sign);
  EXPECT_EQ(flags_of({1, -0.0f}), flag_mask_is_not_sign);
  EXPECT_EQ(flags_of({from_bits(0x7f800001)}), flag_mask_is_not_sign);
  EXPECT_EQ(flags_of({from_bits(0x80000001)}), flag_mask_is_not_sign);
}

TEST(overflow, every_slot_arena_and_host_size_matches_the_reference) {
  std::vector<float> values = make_values(7 * 1024 + 100, 0.4, flavour::special, 3);
  std::fill(values.begin() + 2 * 1024, values.begin() + 3 * 1024, 0.0f);      // an empty tile
  std::fill(values.begin() + 5 * 1024 + 3, values.begin() + 6 * 1024, 0.0f);  // a short one that fits late
  std::size_t turn = 0;
  for (const encoding& e : all_bitmaps) {
    const std::size_t full = encoded_bytes_exact(e, view_of(values), {});
    const std::size_t fixed =
        encoded_bytes_at_density(e, dtype::f32, static_cast<std::int64_t>(values.size()), 0);
    std::vector<std::size_t> sizes{full + 32, full, full - 1, full - 16, fixed, fixed + 15, fixed + 16};
    for (std::size_t size = fixed + 112; size < full; size += 800)
      sizes.push_back(size);
    for (const std::size_t slot_bytes : sizes) {
      for (const std::int64_t arena_bytes : {-1, 0, 200, 1000, 5000, 40000}) {
        // In turn; what a slot lacks is at most some ten thousand bytes.
        const std::int64_t host_bytes = std::array{-1, 0, 1700, 8000, 50000}[turn++ % 5];
        const std::uint64_t counter = arena_bytes == 5000 ? 160 : 0;
        const std::uint64_t host_counter = host_bytes == 8000 ? 48 : 0;
        const reference_bitmap expected =
            reference_bitmap_encode(values, e, slot_bytes, arena_bytes, counter, host_bytes, host_counter);
        guarded_buffer slot(slot_bytes);
        guarded_buffer memory(arena_bytes > 0 ? static_cast<std::size_t>(arena_bytes) : 0);
        guarded_buffer host(host_bytes > 0 ? static_cast<std::size_t>(host_bytes) : 0);
        std::uint64_t claimed = counter;
        std::uint64_t host_claimed = host_counter;
        const overflow_arena arena{memory.data(), memory.size(), arena_bytes < 0 ? nullptr : &claimed,
                                   host.data(),   host.size(),   host_bytes < 0 ? nullptr : &host_claimed};
        const overflow_arena* overflow = arena_bytes < 0 && host_bytes < 0 ? nullptr : &arena;
        encode_report report;
        encode(e, view_of(values), {slot.data(), slot_bytes, overflow, &report}, {}, {});

        std::vector<std::uint8_t> expected_slot = expected.slot;
        expected_slot.resize(slot_bytes, 0xcd);
        ASSERT_EQ(slot.copy(), expected_slot) << to_string(e) << ' ' << slot_bytes << ' ' << arena_bytes;
        ASSERT_TRUE(slot.guards_intact());
        ASSERT_TRUE(memory.guards_intact());
        ASSERT_TRUE(host.guards_intact());
        EXPECT_EQ(report.status, expected.status);
        EXPECT_EQ(report.nonzeros, expected.nonzeros);
        EXPECT_EQ(report.slot_bytes, expected.slot.size());
        EXPECT_EQ(report.overflow_bytes, overflow == nullptr ? 0 : expected.claimed);
        EXPECT_EQ(claimed, counter + (arena_bytes < 0 ? 0 : expected.claimed));
        EXPECT_EQ(host_claimed, host_counter + (host_bytes < 0 ? 0 : expected.host_claimed));
        for (std::size_t i = 0; i < counter; ++i)
          ASSERT_EQ(memory.data()[i], 0xcd);
        for (std::size_t i = 0; i < host_counter; ++i)
          ASSERT_EQ(host.data()[i], 0xcd);
        if (arena_bytes < 0 || expected.host_claimed == 0) {
          EXPECT_TRUE(
              std::equal(expected.arena_part.begin(), expected.arena_part.end(), memory.data() + counter));
        }
        if (expected.status == status_ok) {
          EXPECT_TRUE(
              std::equal(expected.host_part.begin(), expected.host_part.end(), host.data() + host_counter));
        }

        encode_report decode_report;
        const std::vector<float> back = decode_all(e, slot, overflow, decode_report, values.size());
        const reference_decoded decoded =
            reference_bitmap_decode(slot.data(), slot_bytes, overflow, e.values, values.size());
        ASSERT_EQ(bits_of(back), decoded.bits);
        EXPECT_EQ(decode_report.status, decoded.status);
        EXPECT_EQ(decode_report.status, expected.status);
        if (is_lossless(e) && expected.status == status_ok) {
          ASSERT_EQ(bits_of(back), bits_of(values));
        }
      }
    }
  }
}

TEST(overflow, one_tile_too_many_without_an_arena_loses_only_that_tile) {
  const encoding e = parse_encoding("bitmap");
  const std::vector<float> values = make_values(4096, 0.5, flavour::positive, 8);
  const std::size_t full = encoded_bytes_exact(e, view_of(values), {});
  guarded_buffer slot(full - 16);
  encode_report report;
  encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  EXPECT_EQ(report.status, status_capacity);
  const auto nonzeros = std::count_if(values.begin(), values.end(), [](float v) { return v != 0; });
  EXPECT_EQ(report.nonzeros, static_cast<std::uint64_t>(nonzeros));
  const std::vector<float> back = decode_all(e, slot, nullptr, report, values.size());
  EXPECT_EQ(report.status, status_capacity);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(back[i], i < 3072 ? values[i] : 0.0f) << i;
}

TEST(overflow, reports_accumulate_with_the_callers_zero) {
  const encoding e = parse_encoding("bitmap");
  const std::vector<float> values{1, 0, 2};
  guarded_buffer slot(48);
  encode_report report;
  encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  EXPECT_EQ(report.nonzeros, 4u);
  EXPECT_EQ(report.slot_bytes, 96u);
}

// A counter that others left there, so high that it goes through zero: the claim that takes it there finds no
// memory. Those after it begin with zero.
TEST(overflow, a_counter_that_wraps_finds_no_space) {
  const std::vector<float> values = make_values(4 * 1024, 0.5, flavour::positive, 12);
  for (const char* name : {"bitmap", "csr_fp8"}) {
    const encoding e = parse_encoding(name);
    const std::size_t bound = encoded_bytes_bound(e, dtype::f32, 4 * 1024);
    for (const std::uint64_t left : {16U, 2048U, 8192U}) {
      for (const bool on_host : {false, true}) {
        guarded_buffer slot(1024), memory(bound);
        std::uint64_t claimed = std::uint64_t{0} - left;
        const overflow_arena arena =
            on_host ? overflow_arena{nullptr, 0, nullptr, memory.data(), memory.size(), &claimed}
                    : overflow_arena{memory.data(), memory.size(), &claimed};
        encode_report report;
        encode(e, view_of(values), {slot.data(), slot.size(), &arena, &report}, {}, {});
        EXPECT_EQ(report.status, status_capacity) << name << ' ' << left;
        for (std::size_t i = 0; i < memory.size(); ++i)
          ASSERT_EQ(memory.data()[i], 0xcd) << name << ' ' << left << ' ' << i;
      }
    }
  }
}

// --- hostile bytes ---------------------------------------------------------------------------------------

TEST(corrupt, each_kind_of_bad_entry_is_reported_and_the_other_tiles_survive) {
  const encoding e = parse_encoding("bitmap");
  const std::vector<float> values = make_values(3 * 1024, 0.5, flavour::positive, 4);
  const std::size_t size = encoded_bytes_exact(e, view_of(values), {});
  std::uint64_t claimed = 0;
  guarded_buffer memory(64);
  const overflow_arena arena{memory.data(), memory.size(), &claimed};
  const overflow_arena both{memory.data(), memory.size(), &claimed, memory.data(), memory.size(), &claimed};
  struct bad_entry {
    std::uint32_t entry;
    const overflow_arena* arena;
    std::uint32_t status;
  };
  const bad_entry cases[] = {
      {0xc0000000, nullptr, status_capacity},
      {0xffffffff, nullptr, status_capacity},
      {0x80000000, nullptr, status_corrupt},  // host overflow without one
      {0x80000000, &arena, status_corrupt},
      {0x80000000, &both, status_corrupt},  // too small
      {0xbfffffff, &both, status_corrupt},
      {0x40000000, nullptr, status_corrupt},  // arena without an arena
      {0x40000000, &arena, status_corrupt},   // arena too small
      {0x7fffffff, &arena, status_corrupt},
      {0x00000000, nullptr, status_corrupt},  // inside the mask
      {0x00000018, nullptr, status_corrupt},  // inside the table: mask 384 bytes, table 16
      {static_cast<std::uint32_t>(size / 16 - 1), nullptr, status_corrupt},  // ends past the slot
      {0x3fffffff, nullptr, status_corrupt},
  };
  for (const bad_entry& bad : cases) {
    guarded_buffer slot(size);
    encode_report report;
    encode(e, view_of(values), {slot.data(), size, nullptr, &report}, {}, {});
    std::memcpy(slot.data() + 384 + 4, &bad.entry, 4);
    const std::vector<float> back = decode_all(e, slot, bad.arena, report, values.size());
    EXPECT_EQ(report.status, bad.status) << std::hex << bad.entry;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(to_bits(back[i]), i / 1024 == 1 ? 0 : to_bits(values[i]))
          << std::hex << bad.entry << ' ' << i;
    }
  }
}

TEST(corrupt, entries_of_empty_tiles_are_ignored) {
  const encoding e = parse_encoding("bitmap");
  std::vector<float> values(1024, 0.0f);
  guarded_buffer slot(encoded_bytes_exact(e, view_of(values), {}));
  encode_report report;
  encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  std::memset(slot.data() + 128, 0xff, 4);
  EXPECT_EQ(bits_of(decode_all(e, slot, nullptr, report, values.size())), bits_of(values));
  EXPECT_EQ(report.status, status_ok);
}

TEST(corrupt, random_mutations_decode_as_the_reference_decodes) {
  std::mt19937 random(99);
  std::size_t reported = 0;
  for (int round = 0; round < 4000; ++round) {
    const encoding& e = all_bitmaps[static_cast<std::size_t>(round) % all_bitmaps.size()];
    const auto count = static_cast<std::int64_t>(1 + random() % 3500);
    const std::vector<float> values =
        make_values(count, 0.3, flavour::special, static_cast<std::uint32_t>(random()));
    const std::size_t fixed = encoded_bytes_at_density(e, dtype::f32, count, 0);
    const std::size_t full = encoded_bytes_exact(e, view_of(values), {});
    const std::size_t slot_bytes = fixed + random() % (full - fixed + 40);
    const std::size_t arena_bytes = random() % 2000;
    const std::size_t host_bytes = random() % 2000;
    // Exact heap blocks, so that the address sanitizer sees the first byte out of bounds.
    const auto block = [](std::size_t bytes) {
      return std::unique_ptr<void, void (*)(void*)>(std::aligned_alloc(16, (bytes + 15) / 16 * 16),
                                                    std::free);
    };
    const auto slot = block(slot_bytes);
    const auto memory = block(arena_bytes + 1);
    const auto host = block(host_bytes + 1);
    std::memset(memory.get(), 0, arena_bytes);
    std::memset(host.get(), 0, host_bytes);
    std::uint64_t claimed = 0;
    std::uint64_t host_claimed = 0;
    const overflow_arena arena{memory.get(), arena_bytes, &claimed, host.get(), host_bytes, &host_claimed};
    encode_report report;
    encode(e, view_of(values), {slot.get(), slot_bytes, &arena, &report}, {}, {});
    auto* bytes = static_cast<std::uint8_t*>(slot.get());
    const std::size_t slot_used = report.slot_bytes;
    std::memset(bytes + slot_used, 0, slot_bytes - slot_used);
    for (std::size_t hits = 1 + random() % 40; hits > 0; --hits) {
      const std::size_t range = random() % 4 == 0 ? slot_bytes : fixed;
      bytes[random() % range] ^= static_cast<std::uint8_t>(1u << (random() % 8));
    }

    encode_report decode_report;
    std::vector<float> back(values.size(), -9.0f);
    decode({e, view_of(back).type, view_of(back).dims, {slot.get(), slot_bytes, &arena, &decode_report}},
           view_of(back), {}, {});
    const reference_decoded expected =
        reference_bitmap_decode(bytes, slot_bytes, &arena, e.values, values.size());
    ASSERT_EQ(bits_of(back), expected.bits) << round;
    ASSERT_EQ(decode_report.status, expected.status) << round;
    reported += decode_report.status != 0 ? 1 : 0;
  }
  EXPECT_GT(reported, 400u) << "the mutations hardly ever hit anything";
}

TEST(corrupt, any_bytes_are_safe_for_every_encoding) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto count = static_cast<std::int64_t>(random() % 2600);
    for (const char* name : {"raw", "sign_mask", "fp16", "fp8", "bitmap", "bitmap_fp8"}) {
      const encoding e = parse_encoding(name);
      const std::size_t fixed = encoded_bytes_at_density(e, dtype::f32, count, 0);
      std::vector<std::uint8_t> bytes(fixed + (e.kind == encoding_kind::bitmap ? random() % 5000 : 0));
      guarded_buffer slot(bytes.size());
      for (std::size_t i = 0; i < slot.size(); ++i)
        slot.data()[i] = static_cast<std::uint8_t>(random());
      guarded_buffer target(static_cast<std::size_t>(count) * 4);
      encode_report report;
      const dtype type = e.kind == encoding_kind::sign_mask ? dtype::u8 : dtype::f32;
      decode({e, type, {count}, {slot.data(), slot.size(), nullptr, &report}},
             {target.data(), type, memory_space::host, {count}, 0}, {}, {});
      ASSERT_TRUE(target.guards_intact());
      ASSERT_TRUE(slot.guards_intact());
    }
  }
}

}  // namespace
