// SPDX-License-Identifier: Apache-2.0
// STASH_VERIFY=1. The variable is read once, so it is set before anything else runs and has its own program.

#include <gtest/gtest.h>

#include "encoders/support.hpp"

namespace {

using namespace stash;
using namespace stash_test;

[[maybe_unused]] const int set_before_main = setenv("STASH_VERIFY", "1", 1);

/// docs/format.md, "Checksum", one element at a time.
std::uint64_t reference_checksum(const std::vector<float>& values) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t u = to_bits(values[i]) + (i + 1) * 0x9E3779B97F4A7C15u;
    const std::uint64_t w = (u ^ (u >> 29)) * 0xBF58476D1CE4E5B9u;
    sum += w ^ (w >> 32);
  }
  return sum;
}

TEST(verify, lossless_encodings_leave_the_checksum_and_pass_it) {
  EXPECT_TRUE(verification_enabled());
  const std::vector<float> values = make_values(3000, 0.5, flavour::special, 1);
  for (const char* name : {"raw", "bitmap"}) {
    const encoding e = parse_encoding(name);
    guarded_buffer slot(encoded_bytes_bound(e, dtype::f32, 3000));
    encode_report report;
    encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
    EXPECT_NE(report.flags & flag_has_checksum, 0u);
    EXPECT_EQ(report.checksum, reference_checksum(values));
    std::vector<float> back(values.size());
    decode({e, view_of(back).type, view_of(back).dims, {slot.data(), slot.size(), nullptr, &report}},
           view_of(back), {}, {});
    EXPECT_EQ(report.status, status_ok);
  }
}

TEST(verify, changed_and_exchanged_values_are_noticed) {
  std::vector<float> values = make_values(3000, 0.9, flavour::positive, 1);
  values[0] = 1;
  values[1] = 2;
  const encoding e = parse_encoding("raw");
  guarded_buffer slot(encoded_bytes_bound(e, dtype::f32, 3000));
  std::vector<float> back(values.size());
  encode_report report;
  encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  slot.data()[4000] ^= 1;
  decode({e, view_of(back).type, view_of(back).dims, {slot.data(), slot.size(), nullptr, &report}},
         view_of(back), {}, {});
  EXPECT_EQ(report.status, status_verification);

  report = {};
  encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
  std::swap_ranges(slot.data(), slot.data() + 4, slot.data() + 4);
  decode({e, view_of(back).type, view_of(back).dims, {slot.data(), slot.size(), nullptr, &report}},
         view_of(back), {}, {});
  EXPECT_EQ(report.status, status_verification);
}

TEST(verify, canonical_bytes_keep_the_checksum) {
  const std::vector<float> values = make_values(3000, 0.5, flavour::special, 1);
  std::vector<std::uint16_t> halves(values.size());
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i] = static_cast<std::uint16_t>(to_bits(values[i]) >> 16);
  const const_tensor_view narrow{halves.data(), dtype::bf16, memory_space::host, {3000}, 0};
  for (const const_tensor_view& x : {const_tensor_view(view_of(values)), narrow}) {
    for (const char* name : {"raw", "bitmap", "csr"}) {
      const encoding e = parse_encoding(name);
      const std::size_t fixed =
          e.kind == encoding_kind::raw ? 0 : encoded_bytes_at_density(e, x.type, 3000, 0);
      const std::size_t bound = encoded_bytes_bound(e, x.type, 3000);
      // A slot for all of it, and for a part of it.
      for (const bool overflows : {false, true}) {
        if (overflows && fixed == 0) continue;
        guarded_buffer slot(bound), canonical(bound), arena_bytes(bound);
        std::vector<float> back(values.size());
        const tensor_view y{back.data(), x.type, memory_space::host, {3000}, 0};
        std::uint64_t claimed = 0;
        const overflow_arena arena{arena_bytes.data(), bound, &claimed};
        encode_report report, canonical_report;
        const std::size_t slot_bytes = overflows ? fixed + (x.type == dtype::f32 ? 2896 : 1712) : bound;
        encode(e, x, {slot.data(), slot_bytes, &arena, &report}, {}, {});
        ASSERT_EQ(report.overflow_bytes != 0, overflows);
        const const_encoded_view stored{slot.data(), slot_bytes, &arena, &report};
        const auto to_canonical = [&] {
          canonical_report = {};
          canonicalise({e, x.type, {3000}, stored}, {canonical.data(), bound, nullptr, &canonical_report},
                       {});
        };
        const const_encoded_view bytes{canonical.data(), bound, nullptr, &canonical_report};
        to_canonical();
        EXPECT_EQ(report.status, status_ok);
        EXPECT_NE(canonical_report.flags & flag_has_checksum, 0u) << name;
        EXPECT_EQ(canonical_report.checksum, report.checksum);
        decode({e, y.type, y.dims, bytes}, y, {}, {});
        EXPECT_EQ(canonical_report.status, status_ok) << name;
        canonical.data()[fixed + 4] ^= 1;
        decode({e, y.type, y.dims, bytes}, y, {}, {});
        EXPECT_EQ(canonical_report.status, status_verification) << name;

        // Bytes that are damaged already do not become right by being copied.
        slot.data()[fixed + 4] ^= 1;
        to_canonical();
        EXPECT_EQ(report.status, status_verification) << name;
        EXPECT_EQ(canonical_report.status, status_ok) << name;
        decode({e, y.type, y.dims, bytes}, y, {}, {});
        EXPECT_EQ(canonical_report.status, status_verification) << name;
      }
    }
  }
}

TEST(verify, lossy_encodings_and_reports_without_a_checksum_are_left_alone) {
  const std::vector<float> values = make_values(100, 0.9, flavour::positive, 1);
  std::vector<float> back(values.size());
  for (const char* name : {"fp16", "bitmap_fp8"}) {
    const encoding e = parse_encoding(name);
    guarded_buffer slot(encoded_bytes_bound(e, dtype::f32, 100));
    encode_report report;
    encode(e, view_of(values), {slot.data(), slot.size(), nullptr, &report}, {}, {});
    EXPECT_EQ(report.flags & flag_has_checksum, 0u);
    guarded_buffer canonical(slot.size());
    encode_report canonical_report;
    report.flags |= flag_has_checksum;  // of nothing
    canonicalise({e, dtype::f32, {100}, {slot.data(), slot.size(), nullptr, &report}},
                 {canonical.data(), canonical.size(), nullptr, &canonical_report}, {});
    EXPECT_EQ(canonical_report.flags & flag_has_checksum, 0u);
    decode({e, view_of(back).type, view_of(back).dims, {slot.data(), slot.size(), nullptr, &report}},
           view_of(back), {}, {});
    EXPECT_EQ(report.status, status_ok);
  }
  guarded_buffer slot(400);
  encode_report fresh;
  decode({parse_encoding("raw"),
          view_of(back).type,
          view_of(back).dims,
          {slot.data(), slot.size(), nullptr, &fresh}},
         view_of(back), {}, {});
  EXPECT_EQ(fresh.status, status_ok);
}

}  // namespace
