// SPDX-License-Identifier: Apache-2.0
// Kernels between positions of argmaxes and window_index against their slow definition and the CPU, under
// every schedule.

#include "encoders/pooling/window_index_cases.hpp"
#include "simt/kernel_tests.hpp"

namespace stash::test {
namespace {

/// Positions in memory of exactly their size.
struct exact_positions {
  explicit exact_positions(const std::vector<std::int64_t>& values)
      : memory(std::make_unique<std::int64_t[]>(values.size())), count(values.size()) {
    std::copy(values.begin(), values.end(), memory.get());
  }
  std::vector<std::int64_t> values() const { return {memory.get(), memory.get() + count}; }

  std::unique_ptr<std::int64_t[]> memory;
  std::size_t count;
};

void expect_encoded(const window_index_case& c, const std::vector<std::int64_t>& flat) {
  bool corrupt = false;
  const std::vector<std::uint8_t> expected = c.encoded(flat, corrupt);
  const buffer by_device(c.bytes()), by_host(c.bytes());
  encode_report device_report, host_report;
  const exact_positions from(flat);
  encode_window_index(from.memory.get(), c.y, c.x, c.g.window,
                      {by_device.data(), by_device.size(), nullptr, &device_report}, device);
  encode_window_index(from.memory.get(), c.y, c.x, c.g.window,
                      {by_host.data(), by_host.size(), nullptr, &host_report}, {});
  ASSERT_EQ(std::vector<std::uint8_t>(by_device.data(), by_device.data() + by_device.size()), expected);
  ASSERT_EQ(std::memcmp(by_host.data(), by_device.data(), by_host.size()), 0);
  ASSERT_TRUE(by_device.guard_is_whole());
  ASSERT_EQ(std::memcmp(&device_report, &host_report, sizeof(encode_report)), 0);
  ASSERT_EQ(device_report.status, corrupt ? status_corrupt : status_ok);
}

void expect_decoded(const window_index_case& c, const buffer& plane) {
  bool corrupt = false;
  const std::vector<std::int64_t> expected = c.decoded(plane.data(), corrupt);
  const exact_positions flat(std::vector<std::int64_t>(c.count(), -3));
  encode_report report;
  decode_window_index(
      {window_index_of(c.g.window), dtype::f32, c.y, {plane.data(), plane.size(), nullptr, &report}}, c.x,
      c.g.window, flat.memory.get(), device);
  ASSERT_EQ(flat.values(), expected);
  ASSERT_EQ(report.status, corrupt ? status_corrupt : status_ok);
}

void check(const window_index_case& c, std::mt19937& random) {
  std::vector<std::int64_t> flat = c.random_positions(random);
  expect_encoded(c, flat);
  if (testing::Test::HasFatalFailure()) return;
  bool corrupt = true;
  const std::vector<std::uint8_t> codes = c.encoded(flat, corrupt);
  const buffer plane(c.bytes());
  std::copy(codes.begin(), codes.end(), plane.data());
  expect_decoded(c, plane);
  if (testing::Test::HasFatalFailure()) return;
  for (std::size_t i = 0; i < plane.size(); ++i)
    plane.data()[i] = static_cast<std::uint8_t>(random());
  expect_decoded(c, plane);
  c.damage(flat, random);
  expect_encoded(c, flat);
}

TEST(device_window_index, of_random_layers_is_as_defined) {
  for (const scheduled_run& run : scheduled_runs(random_layers(150))) {
    std::mt19937 random(static_cast<std::uint32_t>(run.tensor));
    const window_index_case c(random_geometry(random));
    SCOPED_TRACE(testing::Message() << text_of(run) << ": " << describe(c.g));
    simt::set_schedule(run.schedule);
    check(c, random);
    if (HasFatalFailure()) return;
  }
  simt::set_schedule({});
}

TEST(device_window_index, at_edges_of_words_and_windows) {
  std::mt19937 random(5);
  int k = 0;
  for (const geometry& g : window_index_edges()) {
    SCOPED_TRACE(describe(g));
    simt::set_schedule(schedule_of(++k));
    check(window_index_case(g), random);
    if (HasFatalFailure()) return;
  }
  simt::set_schedule({});
}

/// x is not touched, so that it may be larger than any memory.
TEST(device_window_index, in_planes_beyond_32_bits) {
  pool_window window{3, 3, 340000, 2147483647, 1, 1};
  window.layout = pool_layout::channels_first;
  const shape x{1, 1, 1 << 20, std::int64_t{1} << 34}, y{1, 1, 3, 5};
  std::vector<std::int64_t> flat, back(15);
  for (std::int64_t i = 0; i < 15; ++i) {
    const std::int64_t row = i / 5 * 340000 + 1, column = i % 5 * 2147483647;
    flat.push_back(row * x[3] + column + 1);
  }
  const buffer plane(16);
  encode_report report;
  encode_window_index(flat.data(), y, x, window, {plane.data(), 16, nullptr, &report}, device);
  for (std::int64_t i = 0; i < 15; ++i)
    EXPECT_EQ(plane.data()[i / 2] >> (i % 2 * 4) & 15, 8) << i;
  decode_window_index({window_index_of(window), dtype::f32, y, {plane.data(), 16, nullptr, &report}}, x,
                      window, back.data(), device);
  EXPECT_EQ(back, flat);
  EXPECT_EQ(report.status, status_ok);
}

TEST(device_window_index, of_nothing_needs_no_launch) {
  encode_report report;
  const std::size_t before = simt::launches_so_far();
  encode_window_index(nullptr, {0, 2, 2, 3}, {0, 4, 4, 3}, {}, {nullptr, 0, nullptr, &report}, device);
  decode_window_index({window_index_of({}), dtype::f32, {0, 2, 2, 3}, {nullptr, 0, nullptr, &report}},
                      {0, 4, 4, 3}, {}, nullptr, device);
  EXPECT_EQ(simt::launches_so_far(), before);
  EXPECT_EQ(report.status, status_ok);
}

}  // namespace
}  // namespace stash::test
