// SPDX-License-Identifier: Apache-2.0
// Recorded work of the emulator: nothing of it happens while it is recorded, arguments are those of that
// time, memory is that of the launch, and what CUDA does not record is not recorded here.

#include "simt/recording.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/launch.hpp"
#include "encoders/device/device_memory.hpp"
#include "simt/device_memory.hpp"

namespace stash {
namespace {

using ::testing::HasSubstr;
namespace device = encoders::device;

int origin, unrelated;

execution_context in(void* stream) {
  return {memory_space::device, nullptr, nullptr, stream};
}

struct numbers {
  int value[4];
};

/// Adds a number of the arguments, which the host chose, to one in memory.
STASH_KERNEL(1) add(numbers chosen, const int* from, int* to) {
  const std::uint64_t i = kernels::block_rank();
  to[i] = from[i] + chosen.value[i];
}

std::string problem_of(const std::function<void()>& enqueue) {
  try {
    const simt::recording made(&origin, enqueue);
  } catch (const simt::not_recordable& problem) {
    return problem.what();
  }
  return "";
}

TEST(recording, launches_happen_when_they_are_launched) {
  std::vector<int> x{1, 2, 3, 4}, y(4, -1);
  numbers chosen{{10, 20, 30, 40}};
  const std::size_t before = simt::launches_so_far();
  const simt::recording made(&origin, [&] {
    kernels::launch("add", in(&origin), 4, 1, &add, chosen, x.data(), y.data());
    chosen = {};
  });
  EXPECT_EQ(simt::launches_so_far(), before);
  EXPECT_EQ(y, std::vector<int>(4, -1));
  made.launch();
  EXPECT_EQ(simt::launches_so_far(), before + 1);
  EXPECT_EQ(y, (std::vector<int>{11, 22, 33, 44}));
  x = {5, 6, 7, 8};
  made.launch();
  EXPECT_EQ(y, (std::vector<int>{15, 26, 37, 48}));
}

/// Wrong as a call of the library: it looks at memory to find its grid and its arguments.
void add_to_as_many_as_memory_says(void* stream, const int* count, const int* from, int* to) {
  const numbers chosen{{*count, *count, *count, *count}};
  kernels::launch("add", in(stream), static_cast<std::uint64_t>(*count), 1, &add, chosen, from, to);
}

TEST(recording, what_the_host_decided_stays_decided) {
  std::vector<int> x{1, 2, 3, 4}, y(4, -1);
  int count = 2;
  const simt::recording made(&origin,
                             [&] { add_to_as_many_as_memory_says(&origin, &count, x.data(), y.data()); });
  count = 4;
  made.launch();
  EXPECT_EQ(y, (std::vector<int>{3, 4, -1, -1}));
  add_to_as_many_as_memory_says(&origin, &count, x.data(), y.data());
  EXPECT_EQ(y, (std::vector<int>{5, 6, 7, 8}));
}

TEST(recording, kernels_copies_and_zeroes_in_their_order) {
  std::vector<int> host{1, 2, 3, 4}, x(4, -1), y(4, -1), back(4, -1);
  const simt::recording made(&origin, [&] {
    kernels::clear("clear", in(&origin), x.data(), 16);
    kernels::launch("add", in(&origin), 4, 1, &add, numbers{{1, 1, 1, 1}}, host.data(), x.data());
    device::clear(x.data(), 8, &origin);
    kernels::launch("add", in(&origin), 4, 1, &add, numbers{{5, 5, 5, 5}}, x.data(), y.data());
    device::copy(back.data(), y.data(), 16, &origin);
  });
  EXPECT_EQ(x, std::vector<int>(4, -1));
  for (const int k : {0, 10}) {
    std::iota(host.begin(), host.end(), k);
    made.launch();
    device::wait_for_stream(&origin);
    EXPECT_EQ(back, (std::vector<int>{5, 5, 8 + k, 9 + k}));
  }
}

class recorded_streams : public ::testing::Test {
 protected:
  recorded_streams() : other(device::create_stream()) {}
  ~recorded_streams() override {
    device::destroy_stream(other);
    EXPECT_EQ(simt::streams_and_events(), objects);
  }
  /// `after` continues after what `before` holds.
  static void order(void* before, void* after) {
    device::event e = device::record_event(before);
    device::wait_in_stream(after, e);
    device::destroy_event(e);
  }

  std::size_t objects = simt::streams_and_events();
  void* other;
};

TEST_F(recorded_streams, those_that_wait_are_recorded_too) {
  std::vector<int> x{1, 2, 3, 4}, y(4, -1), z(4, -1);
  const simt::recording made(&origin, [&] {
    kernels::launch("add", in(&origin), 4, 1, &add, numbers{{1, 1, 1, 1}}, x.data(), y.data());
    order(&origin, other);
    device::copy(z.data(), y.data(), 16, other);
    order(other, &origin);
    kernels::launch("add", in(&origin), 4, 1, &add, numbers{{1, 1, 1, 1}}, z.data(), x.data());
  });
  EXPECT_EQ(z, std::vector<int>(4, -1));
  for (const int k : {0, 2}) {
    made.launch();
    EXPECT_EQ(x, (std::vector<int>{3 + k, 4 + k, 5 + k, 6 + k}));
  }
}

TEST_F(recorded_streams, a_copy_that_nobody_waits_for) {
  std::vector<int> x(4), y(4);
  EXPECT_THAT(problem_of([&] {
                order(&origin, other);
                order(other, &origin);
                device::copy(y.data(), x.data(), 16, other);
              }),
              HasSubstr("never waits for"));
}

TEST_F(recorded_streams, unrelated_streams_are_not_recorded) {
  std::vector<int> x{1, 2, 3, 4}, y(4, -1), z(4, -1);
  const simt::recording made(&origin, [&] {
    kernels::launch("add", in(&origin), 4, 1, &add, numbers{}, x.data(), y.data());
    kernels::launch("add", in(&unrelated), 4, 1, &add, numbers{}, x.data(), z.data());
    std::thread([&] { device::copy(x.data(), z.data(), 16, &unrelated); }).join();
    device::wait_for_stream(&unrelated);
  });
  EXPECT_EQ(z, x);
  EXPECT_EQ(y, std::vector<int>(4, -1));
}

TEST_F(recorded_streams, events_from_outside) {
  device::event outside = device::record_event(&unrelated);
  device::event inside = nullptr;
  EXPECT_NE(problem_of([&] { EXPECT_THROW(device::wait_in_stream(&origin, outside), error); }), "");
  EXPECT_EQ(problem_of([&] {
              inside = device::record_event(&origin);
              EXPECT_THROW(device::wait_for_event(inside), error);
              EXPECT_THROW(device::reached(inside), error);
            }),
            "");
  EXPECT_THROW(device::wait_in_stream(&unrelated, inside), error);
  device::destroy_event(outside);
  device::destroy_event(inside);
}

TEST(recording, what_cannot_be_recorded_spoils_it) {
  EXPECT_THAT(problem_of([] { EXPECT_THROW(device::wait_for_stream(&origin), error); }), HasSubstr("wait"));
  EXPECT_THAT(problem_of([] { EXPECT_THROW(device::allocate(8, &origin), error); }),
              HasSubstr("device_memory"));
  void* const block = device::allocate(8, &origin);
  EXPECT_THAT(problem_of([&] { device::deallocate(block, &origin); }), HasSubstr("freed"));
  EXPECT_THAT(problem_of([] { simt::recording(&unrelated, [] {}); }), HasSubstr("expected no other one"));
  const simt::recording nothing(&origin, [] {});
  EXPECT_THAT(problem_of([&] { EXPECT_THROW(nothing.launch(), simt::not_recordable); }),
              HasSubstr("the launch of another one"));
}

TEST(recording, ends_when_the_caller_throws) {
  int x = 1, y = 0;
  EXPECT_THROW(simt::recording(&origin,
                               [&] {
                                 kernels::launch("add", in(&origin), 1, 1, &add, numbers{}, &x, &y);
                                 throw std::runtime_error("of the caller");
                               }),
               std::runtime_error);
  EXPECT_EQ(y, 0);
  kernels::launch("add", in(&origin), 1, 1, &add, numbers{}, &x, &y);
  EXPECT_EQ(y, 1);
}

}  // namespace
}  // namespace stash
