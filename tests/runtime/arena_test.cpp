// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/arena.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "stash/error.hpp"

namespace {

using stash::errc;
using stash::runtime::arena;
using stash::runtime::fill_pattern;
using stash::runtime::poison;
using stash::runtime::touched_bytes;

static_assert(!std::is_copy_constructible_v<arena> && !std::is_copy_assignable_v<arena>);
static_assert(std::is_nothrow_move_constructible_v<arena> && std::is_nothrow_move_assignable_v<arena>);

std::byte operator^(std::byte a, int b) {
  return a ^ static_cast<std::byte>(b);
}

TEST(arena, is_zeroed_writable_and_aligned) {
  for (const std::size_t bytes : {1U, 63U, 64U, 4095U, 4096U, 4097U, 1U << 20}) {
    const arena block(bytes);
    ASSERT_EQ(block.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 64, 0U);
    for (std::size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(block.data()[i], std::byte{0}) << i;
    block.data()[0] = block.data()[bytes - 1] = std::byte{7};
    EXPECT_EQ(block.data()[bytes - 1], std::byte{7});
  }
}

TEST(arena, of_zero_bytes_is_empty) {
  const arena none, zero(0);
  EXPECT_EQ(none.bytes(), 0U);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.bytes(), 0U);
  EXPECT_EQ(zero.data(), nullptr);
}

TEST(arena, that_cannot_be_had_names_its_size) {
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60}) {
    try {
      const arena block(bytes);
      FAIL() << "mapped " << bytes << " bytes";
    } catch (const stash::error& e) {
      EXPECT_EQ(e.code(), errc::out_of_memory);
      EXPECT_NE(std::string(e.what()).find(std::to_string(bytes)), std::string::npos) << e.what();
    }
  }
}

TEST(arena, moves) {
  arena a(100);
  std::byte* const start = a.data();
  arena b(std::move(a));
  EXPECT_EQ(b.data(), start);
  EXPECT_EQ(b.bytes(), 100U);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the moved-from state is what is tested
  EXPECT_EQ(a.bytes(), 0U);
  arena c(5000);
  c = std::move(b);
  EXPECT_EQ(c.data(), start);
  EXPECT_EQ(c.bytes(), 100U);
  EXPECT_EQ(b.data(), nullptr);  // NOLINT
  arena& same = c;
  c = std::move(same);
  EXPECT_EQ(c.data(), start);
  EXPECT_EQ(c.bytes(), 100U);
  c.data()[99] = std::byte{1};
}

TEST(pattern, untouched_is_zero_for_every_size_and_alignment) {
  for (std::size_t offset = 0; offset < 9; ++offset) {
    for (std::size_t size = 0; size <= 70; ++size) {
      std::vector<std::byte> block(offset + size + 8, std::byte{0x5C});
      fill_pattern(block.data() + offset, block.data() + offset + size);
      EXPECT_EQ(touched_bytes(block.data() + offset, block.data() + offset + size), 0U);
      for (std::size_t i = 0; i < offset; ++i)
        EXPECT_EQ(block[i], std::byte{0x5C});
      for (std::size_t i = offset + size; i < block.size(); ++i)
        EXPECT_EQ(block[i], std::byte{0x5C});
    }
  }
  EXPECT_EQ(touched_bytes(nullptr, nullptr), 0U);
  fill_pattern(nullptr, nullptr);
}

TEST(pattern, every_single_changed_byte_is_found_exactly) {
  for (const std::size_t size : {1U, 7U, 8U, 9U, 31U, 32U, 33U, 255U, 256U, 257U, 1023U, 1024U, 1025U}) {
    std::vector<std::byte> block(size);
    std::byte* const end = block.data() + size;
    fill_pattern(block.data(), end);
    for (std::size_t i = 0; i < size; ++i) {
      for (const int flipped : {1, 0x80}) {
        block[i] = block[i] ^ flipped;
        EXPECT_EQ(touched_bytes(block.data(), end), i + 1);
        block[i] = block[i] ^ flipped;
      }
    }
  }
}

TEST(pattern, the_highest_of_several_changes_counts) {
  std::vector<std::byte> block(1000);
  std::byte* const end = block.data() + block.size();
  fill_pattern(block.data(), end);
  for (const std::size_t i : {0U, 5U, 6U, 500U, 997U, 998U}) {
    block[i] = block[i] ^ 0xFF;
    EXPECT_EQ(touched_bytes(block.data(), end), i + 1);
  }
}

TEST(pattern, what_kernels_write_always_shows) {
  constexpr std::size_t size = 1 << 16;
  std::vector<std::byte> filled(size), written;
  std::byte* const begin = filled.data();
  fill_pattern(begin, begin + size);
  for (std::size_t i = 0; i < size; ++i)
    ASSERT_NE(filled[i], std::byte{0}) << i;
  // Copies from elsewhere in the block must differ from what they overwrite in (nearly) every word.
  for (const std::size_t shift : {1U, 8U, 64U, 256U, 4096U, 32768U}) {
    std::size_t equal_words = 0;
    for (std::size_t i = 0; i + shift + 8 <= size; i += 8) {
      equal_words += std::memcmp(begin + i, begin + i + shift, 8) == 0 ? 1U : 0U;
    }
    EXPECT_EQ(equal_words, 0U) << shift;
  }
}

TEST(pattern, finds_the_end_of_an_arena_that_was_partly_used) {
  const arena block(std::size_t{64} << 20);
  std::byte* const end = block.data() + block.bytes();
  fill_pattern(block.data(), end);
  EXPECT_EQ(touched_bytes(block.data(), end), 0U);
  std::memset(block.data() + 4096, 0, 1000);
  EXPECT_EQ(touched_bytes(block.data(), end), 5096U);
}

float float_at(const std::byte* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

TEST(poison, fills_exactly_the_range_with_signalling_nans) {
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t end = begin; end <= 40; ++end) {
      alignas(4) std::array<std::byte, 48> block{};
      poison(block.data() + begin, block.data() + end);
      for (std::size_t i = 0; i < block.size(); ++i) {
        const std::byte inside = std::byte{i % 4 == 3 ? std::uint8_t{0x7F} : std::uint8_t{0xA5}};
        EXPECT_EQ(block[i], i >= begin && i < end ? inside : std::byte{0}) << begin << ' ' << end << ' ' << i;
      }
      for (std::size_t i = (begin + 3) / 4 * 4; i + 4 <= end; i += 4) {
        std::uint32_t bits;
        std::memcpy(&bits, block.data() + i, sizeof bits);
        EXPECT_EQ(bits, 0x7FA5A5A5U);
        EXPECT_TRUE(std::isnan(float_at(block.data() + i)));
      }
    }
  }
  static_assert((0x7FA5A5A5U & 0x00400000U) == 0, "the quiet bit is clear");
}

TEST(arena, in_a_file) {
  const std::string folder = ::testing::TempDir();
  EXPECT_EQ(arena::in_file(folder, 0).data(), nullptr);
  arena a = arena::in_file(folder, 100'000);
  ASSERT_EQ(a.bytes(), 100'000U);
  EXPECT_EQ(a.data()[99'999], std::byte{0});
  fill_pattern(a.data(), a.data() + a.bytes());
  const arena moved = std::move(a);
  EXPECT_EQ(touched_bytes(moved.data(), moved.data() + moved.bytes()), 0U);
  const auto refusal = [](const std::string& where, std::size_t bytes) {
    try {
      arena::in_file(where, bytes);
    } catch (const stash::error& e) {
      return std::pair(e.code(), std::string(e.what()));
    }
    return std::pair(errc::ok, std::string());
  };
  EXPECT_EQ(refusal(folder + "/missing", 10).first, errc::io_failure);
  EXPECT_NE(refusal(folder + "/missing", 10).second.find("missing"), std::string::npos);
  EXPECT_EQ(refusal(folder, std::size_t{1} << 60).first, errc::out_of_memory);
}

}  // namespace
