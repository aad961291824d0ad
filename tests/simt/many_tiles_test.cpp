// Tensors of so many tiles or rows that several blocks sum up their sizes: what kernels make of the CPU's
// encoded form is what the CPU makes of it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "common/chunk_scan.hpp"
#include "encoders/values.hpp"
#include "simt/simt.hpp"
#include "stash/csr.hpp"
#include "stash/encoding.hpp"

namespace stash {
namespace {

constexpr execution_context device{memory_space::device};
constexpr dtype type = dtype::f16;
constexpr auto chunk = static_cast<std::int64_t>(kernels::chunked_words::chunk);

struct encoded_map {
  encoded_map(const char* name, std::int64_t elements)
      : e(parse_encoding(name)), n(elements), bytes(encoded_bytes_bound(e, type, n)), memory(make(bytes)) {
    // Few values, in tiles and rows that differ, and none in many.
    std::vector<std::uint16_t> values(static_cast<std::size_t>(n));
    std::mt19937 dice(5);
    for (std::int64_t i = 0; i < n; i += 1 + static_cast<std::int64_t>(dice() % 2000))
      values[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(1 + dice() % 0x7bff);
    // Some that are full.
    for (std::int64_t i = n / 3; i < n / 3 + 5000; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(1 + i % 0x7bff);
    encode(e, {values.data(), type, memory_space::host, shape{n}, 0}, {memory.get(), bytes, nullptr, &report},
           {}, {});
  }

  static std::unique_ptr<std::uint8_t, decltype(&std::free)> make(std::size_t bytes) {
    return {static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), &std::free};
  }
  const_encoded_view view() { return {memory.get(), bytes, nullptr, &report}; }

  encoding e;
  std::int64_t n;
  std::size_t bytes;
  std::unique_ptr<std::uint8_t, decltype(&std::free)> memory;
  encode_report report{};
};

TEST(many_tiles, canonicalise_in_several_chunks) {
  encoded_map map("bitmap", 2 * chunk * 1024 + 77);
  const std::size_t used = map.report.slot_bytes;
  // Also into a slot that ends within the payloads of the second chunk.
  for (const std::size_t room : {used, used - 65536}) {
    SCOPED_TRACE(room);
    const auto by_host = encoded_map::make(room), by_device = encoded_map::make(room);
    std::memset(by_host.get(), 7, room);
    std::memset(by_device.get(), 7, room);
    encode_report host_report{}, device_report{};
    canonicalise(map.e, type, map.n, map.view(), {by_host.get(), room, nullptr, &host_report}, {});
    canonicalise(map.e, type, map.n, map.view(), {by_device.get(), room, nullptr, &device_report}, device);
    EXPECT_EQ(host_report.status, room == used ? status_ok : status_capacity);
    EXPECT_EQ(std::memcmp(&host_report, &device_report, sizeof(encode_report)), 0);
    if (room != used) continue;  // which tiles are lost is not said
    const auto differs = std::mismatch(by_host.get(), by_host.get() + room, by_device.get()).first;
    EXPECT_EQ(differs - by_host.get(), static_cast<std::ptrdiff_t>(room)) << "the first byte that differs";
  }
}

TEST(many_tiles, csr_export32_in_several_chunks) {
  encoded_map map("csr", 3 * chunk * csr_row_elements + 77);
  const auto rows = static_cast<std::size_t>((map.n + csr_row_elements - 1) / csr_row_elements);
  const auto room = static_cast<std::size_t>(map.report.nonzeros);
  struct arrays {
    std::vector<std::uint32_t> offsets, columns;
    std::vector<std::uint16_t> values;
  };
  const auto make = [&] {
    return arrays{std::vector<std::uint32_t>(rows + 1, 7), std::vector<std::uint32_t>(room, 7),
                  std::vector<std::uint16_t>(room, 7)};
  };
  const auto view = [&](arrays& a, std::size_t capacity) {
    return csr32_view{a.offsets.data(), a.columns.data(), a.values.data(), type,
                      static_cast<std::int64_t>(capacity)};
  };
  arrays by_host = make(), by_device = make(), refused = make();
  csr_export32(map.e, map.view(), map.n, view(by_host, room), {});
  ASSERT_EQ(csr_export32(map.e, map.view(), map.n, view(by_device, room), device), -1);
  EXPECT_EQ(map.report.status, status_ok);
  EXPECT_EQ(by_device.offsets, by_host.offsets);
  EXPECT_EQ(by_device.columns, by_host.columns);
  EXPECT_EQ(by_device.values, by_host.values);
  csr_export32(map.e, map.view(), map.n, view(refused, room - 1), device);
  EXPECT_EQ(map.report.status, status_capacity);
  EXPECT_EQ(refused.columns, make().columns);
}

}  // namespace
}  // namespace stash
