// SPDX-License-Identifier: Apache-2.0
// All 65,536 values of the 16-bit types, to every format that has fewer bits.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "format/reference.hpp"
#include "stash/encoding.hpp"

namespace stash {
namespace {

constexpr std::uint32_t all = 1U << 16;

TEST(casts16, of_every_value) {
  for (const dtype type : {dtype::f16, dtype::bf16}) {
    reference::tensor t;
    t.type = type;
    std::vector<std::uint16_t> x(all), back(all);
    for (std::uint32_t i = 0; i < all; ++i) {
      t.bits.push_back(i);
      x[i] = static_cast<std::uint16_t>(i);
    }
    for (const value_format_info& row : value_formats) {
      if (row.bits == 16) continue;
      const std::string name(row.name);
      const encoding e = parse_encoding(name);
      const reference::encoded expected = reference::encode(e, t);
      const reference::tensor decoded = reference::decode(e, t);
      const std::size_t size = encoded_bytes_bound(e, type, all);
      std::vector<std::uint8_t> memory(size + encoded_alignment);
      std::uint8_t* bytes =
          memory.data() +
          (16 - reinterpret_cast<std::uintptr_t>(memory.data()) % encoded_alignment) % encoded_alignment;
      ASSERT_EQ(size, expected.bytes.size());
      encode_report report;
      encode(e, {x.data(), type, memory_space::host, {all}, 0}, {bytes, size, nullptr, &report}, {}, {});
      EXPECT_EQ(std::memcmp(bytes, expected.bytes.data(), size), 0) << name;
      decode({e, type, {all}, {bytes, size, nullptr, &report}},
             {back.data(), type, memory_space::host, {all}, 0}, {}, {});
      for (std::uint32_t i = 0; i < all; ++i)
        ASSERT_EQ(back[i], decoded.bits[i]) << name << " of " << i;
    }
  }
}

}  // namespace
}  // namespace stash
