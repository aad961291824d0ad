// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Fat binaries for tests, laid out as nvcc does it.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace stash::ptx {

/// PTX or machine code for one architecture.
struct fat_entry {
  std::string payload;
  std::uint32_t architecture = 90;
  std::uint16_t kind = 1;  ///< 1: PTX, 2: ELF
  std::uint64_t flags = 0x11;
  std::uint32_t compressed_bytes = 0;
  std::uint64_t text_bytes = 0;
  std::uint32_t header_bytes = 64;
};

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

inline constexpr std::size_t container_header_bytes = 16;

inline std::vector<std::byte> made_fat_binary(std::initializer_list<fat_entry> entries) {
  std::vector<std::byte> bytes(container_header_bytes);
  for (const fat_entry& e : entries) {
    const std::size_t at = bytes.size();
    bytes.resize(at + e.header_bytes + e.payload.size());
    put(bytes, at, e.kind);
    put(bytes, at + 2, std::uint16_t{0x101});
    put(bytes, at + 4, e.header_bytes);
    put(bytes, at + 8, std::uint64_t{e.payload.size()});
    put(bytes, at + 16, e.compressed_bytes);
    put(bytes, at + 28, e.architecture);
    put(bytes, at + 40, e.flags);
    put(bytes, at + 56, e.text_bytes);
    std::memcpy(bytes.data() + at + e.header_bytes, e.payload.data(), e.payload.size());
  }
  put(bytes, 0, std::uint32_t{0xba55ed50});
  put(bytes, 4, std::uint16_t{1});
  put(bytes, 6, static_cast<std::uint16_t>(container_header_bytes));
  put(bytes, 8, std::uint64_t{bytes.size() - container_header_bytes});
  return bytes;
}

/// What programs register.
struct fat_registration {
  std::uint32_t magic = 0x466243b1, version = 1;
  const void* data = nullptr;
  const void* file = nullptr;
};

}  // namespace stash::ptx
