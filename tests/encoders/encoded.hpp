// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory for what an encoder writes.

#include <cstdint>
#include <cstring>
#include <vector>

#include "stash/encoding.hpp"
#include "support/closed_bytes.hpp"

namespace stash::test {

/// Encoded bytes with a guard after them and a report. A sanitizer sees who reads or writes the guard.
class encoded {
 public:
  explicit encoded(std::size_t bytes, std::uint8_t fill = 0xcd)
      : bytes_(bytes),
        memory_(filled(bytes, fill)),
        guard_(data() + bytes, memory_.data() + memory_.size()) {}
  encoded(encoded&&) noexcept = default;

  std::uint8_t* data() { return memory_.front().bytes; }
  encoded_view out() { return {data(), bytes_, nullptr, &report}; }
  const_encoded_view in() { return {data(), bytes_, nullptr, &report}; }
  std::vector<std::uint8_t> all() { return {data(), data() + bytes_}; }
  bool guard_intact() const { return guard_.are(guard_value); }

  encode_report report;

 private:
  static constexpr std::uint8_t guard_value = 0xa5;
  struct alignas(16) chunk {
    std::uint8_t bytes[16];
  };
  static std::vector<chunk> filled(std::size_t bytes, std::uint8_t fill) {
    std::vector<chunk> memory((bytes + 15) / 16 + 1);
    std::memset(memory.data(), guard_value, memory.size() * sizeof(chunk));
    std::memset(memory.data(), fill, bytes);
    return memory;
  }

  std::size_t bytes_;
  std::vector<chunk> memory_;
  stash_test::closed_bytes guard_;
};

}  // namespace stash::test
