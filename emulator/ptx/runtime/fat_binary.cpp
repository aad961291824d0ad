// SPDX-License-Identifier: Apache-2.0
#include "ptx/runtime/fat_binary.hpp"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace stash::ptx {
namespace {

constexpr std::uint32_t wrapper_magic = 0x466243b1, container_magic = 0xba55ed50;
constexpr std::uint16_t ptx_kind = 1;
constexpr std::uint64_t zstd_flag = 0x8000, lz4_flag = 0x2000;
constexpr std::uint64_t most_text_bytes = std::uint64_t{1} << 30;

struct wrapper {
  std::uint32_t magic, version;
  const std::byte* data;
};

[[noreturn]] void refuse(const std::string& expected, const std::string& got) {
  throw std::runtime_error("fat binary: expected " + expected + ", got " + got);
}

class reader {
 public:
  explicit reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t size() const { return bytes_.size(); }

  template <class T>
  T number(std::size_t offset) const {
    T value{};
    std::memcpy(&value, part(offset, sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> part(std::size_t offset, std::uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      refuse(std::to_string(size) + " bytes at " + std::to_string(offset),
             std::to_string(bytes_.size()) + " in all");
    return bytes_.subspan(offset, static_cast<std::size_t>(size));
  }

 private:
  std::span<const std::byte> bytes_;
};

struct entry {
  std::uint16_t kind = 0;
  std::uint32_t architecture = 0, compressed_bytes = 0;
  std::uint64_t flags = 0, text_bytes = 0;
  std::span<const std::byte> payload;
};

/// The entry at `offset`, which moves on to the next one.
entry next_entry(const reader& from, std::size_t& offset) {
  constexpr std::uint32_t least_header = 64;
  const auto header = from.number<std::uint32_t>(offset + 4);
  if (header < least_header)
    refuse("an entry with a header of 64 bytes or more", std::to_string(header) + " bytes");
  entry e;
  e.kind = from.number<std::uint16_t>(offset);
  e.compressed_bytes = from.number<std::uint32_t>(offset + 16);
  e.architecture = from.number<std::uint32_t>(offset + 28);
  e.flags = from.number<std::uint64_t>(offset + 40);
  e.text_bytes = from.number<std::uint64_t>(offset + 56);
  const auto payload_bytes = from.number<std::uint64_t>(offset + 8);
  from.part(offset, header);
  e.payload = from.part(offset + header, payload_bytes);
  offset += header + e.payload.size();
  return e;
}

std::string decompressed(const entry& e) {
  if (e.compressed_bytes > e.payload.size())
    refuse("compressed PTX of at most " + std::to_string(e.payload.size()) + " bytes",
           std::to_string(e.compressed_bytes));
  if (e.text_bytes > most_text_bytes)
    refuse("PTX of at most " + std::to_string(most_text_bytes) + " bytes", std::to_string(e.text_bytes));
  // Asked before so much memory is taken. zstd's own errors are numbers too large for any text.
  const unsigned long long stated = ZSTD_getFrameContentSize(e.payload.data(), e.compressed_bytes);
  if (stated != e.text_bytes)
    refuse("PTX compressed by zstd from " + std::to_string(e.text_bytes) + " bytes",
           stated < ZSTD_CONTENTSIZE_ERROR ? std::to_string(stated) : "no size");
  std::string text(static_cast<std::size_t>(e.text_bytes), '\0');
  const std::size_t result = ZSTD_decompress(text.data(), text.size(), e.payload.data(), e.compressed_bytes);
  if (ZSTD_isError(result) != 0) refuse("PTX compressed by zstd", ZSTD_getErrorName(result));
  return text;
}

std::string text_of(const entry& e) {
  const bool is_zstd = (e.flags & zstd_flag) != 0;
  if (const bool is_lz4 = (e.flags & lz4_flag) != 0; is_lz4 || (!is_zstd && e.compressed_bytes != 0))
    refuse("PTX that is plain or compressed by zstd",
           is_lz4 ? "one compressed by LZ4" : "one of flags " + std::to_string(e.flags));
  std::string text = is_zstd ? decompressed(e)
                             : std::string(reinterpret_cast<const char*>(e.payload.data()), e.payload.size());
  // Padded with zeros.
  if (const std::size_t end = text.find('\0'); end != std::string::npos) text.resize(end);
  return text;
}

}  // namespace

std::span<const std::byte> fat_binary_of(const void* registered) {
  wrapper w{};
  std::memcpy(&w, registered, sizeof w);
  if (w.magic != wrapper_magic || w.version != 1)
    refuse("a registration of version 1",
           "version " + std::to_string(w.version) + " of " + std::to_string(w.magic));
  constexpr std::size_t fixed = 16;
  const reader start({w.data, fixed});
  if (start.number<std::uint32_t>(0) != container_magic)
    refuse("a container", std::to_string(start.number<std::uint32_t>(0)));
  return {w.data, start.number<std::uint16_t>(6) + start.number<std::uint64_t>(8)};
}

std::string ptx_of(std::span<const std::byte> fat_binary, int newest) {
  const reader all(fat_binary);
  const auto magic = all.number<std::uint32_t>(0);
  const auto version = all.number<std::uint16_t>(4);
  if (magic != container_magic || version != 1)
    refuse("a container of version 1", "version " + std::to_string(version) + " of " + std::to_string(magic));
  const auto header = all.number<std::uint16_t>(6);
  const auto size = all.number<std::uint64_t>(8);
  const reader entries(all.part(header, size));
  entry best;
  for (std::size_t offset = 0; offset < entries.size();) {
    const entry e = next_entry(entries, offset);
    const bool usable = e.kind == ptx_kind && e.architecture <= static_cast<std::uint32_t>(newest);
    if (usable && e.architecture > best.architecture) best = e;
  }
  return best.kind == ptx_kind ? text_of(best) : std::string();
}

}  // namespace stash::ptx
