// SPDX-License-Identifier: Apache-2.0
// Tensors of so many tiles or rows that several blocks sum up their sizes: what kernels make of the CPU's
// encoded form is what the CPU makes of it.

#include <algorithm>
#include <random>

#include "common/chunk_scan.hpp"
#include "simt/kernel_tests.hpp"

namespace stash {
namespace {

using namespace test;

constexpr dtype type = dtype::f16;
constexpr auto chunk = static_cast<std::int64_t>(kernels::chunked_words::chunk);

struct encoded_map {
  encoded_map(const char* name, std::int64_t elements)
      : e(parse_encoding(name)), n(elements), bytes(encoded_bytes_bound(e, type, n)) {
    // Few values, in tiles and rows that differ, and none in many.
    std::vector<std::uint16_t> values(static_cast<std::size_t>(n));
    std::mt19937 dice(5);
    for (std::int64_t i = 0; i < n; i += 1 + static_cast<std::int64_t>(dice() % 2000))
      values[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(1 + dice() % 0x7bff);
    // Some that are full.
    for (std::int64_t i = n / 3; i < n / 3 + 5000; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(1 + i % 0x7bff);
    encode(e, {values.data(), type, memory_space::host, shape{n}, 0},
           {bytes.data(), bytes.size(), nullptr, &report}, {}, {});
  }
  const_encoded_view view() { return {bytes.data(), bytes.size(), nullptr, &report}; }

  encoding e;
  std::int64_t n;
  buffer bytes;
  encode_report report{};
};

TEST(many_tiles, canonicalise_in_several_chunks) {
  encoded_map map("bitmap", 2 * chunk * tile_elements + 77);
  const std::size_t used = map.report.slot_bytes;
  canonical(map.e, type, map.n, map.view(), used);

  // A slot that ends within the payloads of the second chunk. Which tiles are lost is not said.
  buffer by_host(used - 65536), by_device(used - 65536);
  encode_report host_report{}, device_report{};
  canonicalise({map.e, type, {map.n}, map.view()}, {by_host.data(), by_host.size(), nullptr, &host_report},
               {});
  canonicalise({map.e, type, {map.n}, map.view()},
               {by_device.data(), by_device.size(), nullptr, &device_report}, device);
  EXPECT_EQ(host_report.status, status_capacity);
  EXPECT_EQ(std::memcmp(&host_report, &device_report, sizeof(encode_report)), 0);
  EXPECT_TRUE(by_device.guard_is_whole());
}

TEST(many_tiles, csr_export32_in_several_chunks) {
  encoded_map map("csr", 3 * chunk * csr_row_elements + 77);
  expect_export_of_cpu(map.e, map.view(), type, map.n, static_cast<std::size_t>(map.report.nonzeros));
}

}  // namespace
}  // namespace stash
