// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Maps whose numbers of elements, groups and bytes need more than 32 bits, in a program that has little
/// memory: only their ends are touched, of every grid only the last blocks run, and what those make of the
/// end is what the CPU makes of it as a map of its own.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "simt/kernel_tests.hpp"

namespace stash::test {

/// Address space full of zeros, of which what is touched becomes memory. Nothing can be touched after it.
class reserved {
 public:
  explicit reserved(std::uint64_t bytes)
      : bytes_(bytes), mapped_((bytes + 2 * page - 1) / page * page), memory_(map(mapped_)) {
    ::mprotect(memory_ + mapped_ - page, page, PROT_NONE);
  }
  ~reserved() { ::munmap(memory_, mapped_); }
  reserved(const reserved&) = delete;
  reserved& operator=(const reserved&) = delete;

  std::uint8_t* data() const { return memory_ + (mapped_ - page - (bytes_ + 15) / 16 * 16); }
  std::uint64_t size() const { return bytes_; }
  void write(std::uint64_t at, const void* from, std::size_t bytes) const {
    std::memcpy(data() + at, from, bytes);
  }
  std::vector<std::uint8_t> read(std::uint64_t at, std::size_t bytes) const {
    return {data() + at, data() + at + bytes};
  }

  /// What all maps of a test take together, at most.
  static constexpr std::uint64_t most = std::uint64_t{1} << 40;
  static bool there_is_memory() {
    void* const all = reserve(most);
    if (all == MAP_FAILED) return false;
    ::munmap(all, most);
    return true;
  }

 private:
  static constexpr std::uint64_t page = 4096;

  static void* reserve(std::uint64_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  static std::uint8_t* map(std::uint64_t bytes) {
    void* const memory = reserve(bytes);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::uint8_t*>(memory);
  }

  std::uint64_t bytes_, mapped_;
  std::uint8_t* memory_;
};

/// Only the last blocks of every launch run, in their order.
class large_maps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!reserved::there_is_memory()) GTEST_SKIP() << "no address space of " << reserved::most << " bytes";
    simt::set_schedule({.last_blocks = blocks});
  }
  void TearDown() override { simt::set_schedule({}); }

  std::uint64_t blocks = 8;
};

/// A large map that ends with the elements of a small one. Both start with zeros.
class ending_map {
 public:
  ending_map(dtype type, const shape& all, const shape& end, std::int64_t pitch = 0)
      : type_(type),
        all_(all),
        end_(end),
        pitch_(pitch),
        far_(bytes(all)),
        near_(bytes(end)),
        before_(far_.size() - near_.size()) {
    std::memset(near_.data(), 0, near_.size());
  }

  tensor_view far() const { return {far_.data(), type_, memory_space::device, all_, pitch_}; }
  tensor_view near() const { return {near_.data(), type_, memory_space::host, end_, pitch_}; }
  /// Both end with these values. Gaps stay as they are.
  void set(const tensor& t) {
    const std::int64_t inner = end_.inner(), step = pitch_ == 0 ? inner : pitch_;
    const std::size_t size = size_of(type_);
    for (std::int64_t i = 0; i < t.count(); ++i) {
      std::memcpy(near_.data() + static_cast<std::size_t>(i / inner * step + i % inner) * size,
                  &t.bits[static_cast<std::size_t>(i)], size);
    }
    far_.write(before_, near_.data(), near_.size());
  }
  void expect_same(const char* what) const {
    const std::vector<std::uint8_t> found = far_.read(before_, near_.size());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), near_.data())) << what;
    EXPECT_TRUE(near_.guard_is_whole());
  }

 private:
  std::uint64_t bytes(const shape& s) const {
    const std::int64_t inner = s.inner(), step = pitch_ == 0 ? inner : pitch_;
    return static_cast<std::uint64_t>(s.elements() / inner * step - (step - inner)) * size_of(type_);
  }

  dtype type_;
  shape all_, end_;
  std::int64_t pitch_;
  reserved far_;
  buffer near_;
  std::uint64_t before_;
};

/// So many elements have so many bytes of a plane.
struct plane {
  std::uint64_t elements, bytes;
  std::uint64_t size(std::int64_t count) const {
    const std::uint64_t whole = (static_cast<std::uint64_t>(count) + elements - 1) / elements * bytes;
    return (whole + 15) / 16 * 16;
  }
};

/// Encoded bytes in planes, of a large map and of its end. What comes before the end fills whole blocks of
/// each plane of 16 bytes.
class ending_planes {
 public:
  ending_planes(std::vector<plane> planes, std::int64_t all, std::int64_t end)
      : planes_(std::move(planes)), all_(all), end_(end), far_(size(all)), near_(size(end)) {}

  encoded_view far_out() { return {far_.data(), far_.size(), nullptr, &far_report}; }
  encoded_view near_out() { return {near_.data(), near_.size(), nullptr, &near_report}; }
  const_encoded_view far_in() { return {far_.data(), far_.size(), nullptr, &far_report}; }
  const_encoded_view near_in() { return {near_.data(), near_.size(), nullptr, &near_report}; }
  void expect_same(const char* what) const {
    std::uint64_t far_at = 0, near_at = 0;
    for (const plane& p : planes_) {
      const auto bytes = static_cast<std::size_t>(p.size(end_));
      const std::vector<std::uint8_t> found = far_.read(far_at + p.size(all_) - bytes, bytes);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), near_.data() + near_at)) << what;
      far_at += p.size(all_);
      near_at += bytes;
    }
    EXPECT_EQ(far_report.status, status_ok) << what;
    EXPECT_TRUE(near_.guard_is_whole());
  }

  encode_report far_report{}, near_report{};

 private:
  std::uint64_t size(std::int64_t count) const {
    std::uint64_t sum = 0;
    for (const plane& p : planes_)
      sum += p.size(count);
    return sum;
  }

  std::vector<plane> planes_;
  std::int64_t all_, end_;
  reserved far_;
  buffer near_;
};

// What element-wise calls and tiles are tried on: the number of elements before the end is a multiple of
// every kernel's block, the end is ragged everywhere.
inline constexpr std::int64_t elements_before = 3 * (std::int64_t{1} << 31);
inline constexpr std::int64_t elements_at_end = 3 * 8192 + 77;
inline constexpr std::int64_t elements_in_all = elements_before + elements_at_end;
/// Elements before the end whose groups of eight are more than 32 bits count.
inline constexpr std::int64_t very_many = 3 * (std::int64_t{1} << 35);

/// Values of all kinds, and zeros.
inline tensor ending_values(dtype type, std::int64_t count, std::uint32_t seed) {
  generator random(seed);
  tensor all;
  all.type = type;
  while (all.count() < count) {
    const tensor part = random.make(type, std::min<std::int64_t>(1500, count - all.count()));
    all.bits.insert(all.bits.end(), part.bits.begin(), part.bits.end());
  }
  return all;
}

inline ending_map ended_map(dtype type, std::int64_t before = elements_before) {
  return {type, shape{before + elements_at_end}, shape{elements_at_end}};
}

}  // namespace stash::test
