// SPDX-License-Identifier: Apache-2.0
// The buffers of the tests under the address sanitizer: one byte before or after the data is an error,
// although it lies in the same block of memory.

#include "support/closed_bytes.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "encoders/encoded.hpp"
#include "encoders/support.hpp"
#include "format/tensor_generator.hpp"

namespace {

/// The byte, read where no optimiser looks.
std::uint8_t byte_at(const std::uint8_t* data, std::ptrdiff_t i) {
  return static_cast<const volatile std::uint8_t*>(data)[i];
}

/// Reads and writes all bytes.
void touch(std::uint8_t* data, std::size_t size) {
  std::iota(data, data + size, std::uint8_t{1});
  std::uint8_t expected = 1;
  for (std::size_t i = 0; i < size; ++i)
    ASSERT_EQ(byte_at(data, static_cast<std::ptrdiff_t>(i)), expected++);
}

class closed_bytes_death_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!stash_test::bounds_are_watched) GTEST_SKIP() << "without the address sanitizer nobody looks";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  /// Before the data up to a granule, which is not looked at in part, and after them.
  static void expect_closed(const std::uint8_t* data, std::size_t size, std::ptrdiff_t before) {
    EXPECT_DEATH(byte_at(data, static_cast<std::ptrdiff_t>(size)), "use-after-poison|heap-buffer-overflow");
    EXPECT_DEATH(byte_at(data, -before), "use-after-poison|heap-buffer-overflow");
  }
};

TEST_F(closed_bytes_death_test, tensors) {
  for (const std::size_t size : {0U, 7U, 33U}) {
    for (const std::size_t offset : {0U, 2U, 24U}) {
      SCOPED_TRACE(testing::Message() << size << " bytes " << offset << " off");
      const stash::test::buffer b(size, offset);
      expect_closed(b.data(), size, 1 + static_cast<std::ptrdiff_t>(offset % 8));
    }
  }
}

TEST_F(closed_bytes_death_test, encoded_bytes) {
  for (const std::size_t size : {0U, 20U, 64U}) {
    SCOPED_TRACE(size);
    stash::test::encoded e(size);
    expect_closed(e.data(), size, 1);
    const stash_test::guarded_buffer b(size);
    expect_closed(b.data(), size, 1);
  }
}

/// The last row of a pitched tensor has no gap after it.
TEST_F(closed_bytes_death_test, gaps_after_the_last_row) {
  const stash::test::placed pitched(stash::dtype::f32, 12, 4, 3, 0);
  expect_closed(pitched.memory.data(), 4 * (4 + 7 + 7), 1);
}

TEST(closed_bytes, guards_are_looked_at_and_closed_again) {
  for (const std::size_t size : {0U, 1U, 7U, 8U, 33U}) {
    for (const std::size_t offset : {0U, 2U, 8U, 30U}) {
      stash::test::buffer first(size, offset);
      touch(first.data(), size);
      EXPECT_TRUE(first.guard_is_whole());
      const std::uint8_t* const data = first.data();
      const stash::test::buffer moved(std::move(first));
      EXPECT_EQ(moved.data(), data);
      touch(moved.data(), size);
      EXPECT_TRUE(moved.guard_is_whole());
    }
    stash::test::encoded e(size);
    touch(e.data(), size);
    EXPECT_TRUE(e.guard_intact());
    const stash_test::guarded_buffer b(size);
    touch(b.data(), size);
    EXPECT_TRUE(b.guards_intact());
  }
}

/// Without a sanitizer the guards are what finds a write.
TEST(closed_bytes, guards_tell_who_wrote) {
  if (stash_test::bounds_are_watched) GTEST_SKIP() << "the write itself is an error";
  stash::test::buffer after(9), before(9, 4);
  after.data()[9] = 0;
  before.data()[-1] = 0;
  EXPECT_FALSE(after.guard_is_whole());
  EXPECT_FALSE(before.guard_is_whole());
  stash::test::encoded e(16);
  e.data()[16] = 0;
  EXPECT_FALSE(e.guard_intact());
}

/// Freed memory can be had again, all of it.
TEST(closed_bytes, memory_is_freed_open) {
  std::vector<std::uint8_t> memory(64);
  { const stash_test::closed_bytes closed(memory.data(), memory.data() + memory.size()); }
  touch(memory.data(), memory.size());
}

}  // namespace
