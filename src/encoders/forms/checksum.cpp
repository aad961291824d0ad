// SPDX-License-Identifier: Apache-2.0
#include "encoders/detail.hpp"
#include "encoders/format/codecs.hpp"

namespace stash::encoders {
namespace {

std::uint64_t mix(std::uint64_t bits, std::uint64_t index) noexcept {
  std::uint64_t u = bits + (index + 1) * 0x9e3779b97f4a7c15;
  u = (u ^ (u >> 29)) * 0xbf58476d1ce4e5b9;
  return u ^ (u >> 32);
}

template <class T>
std::uint64_t part(const T* values, std::int64_t first, std::int64_t length) noexcept {
  std::uint64_t result = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    T bits;
    std::memcpy(&bits, values + i, sizeof(T));
    result += mix(bits, static_cast<std::uint64_t>(first + i));
  }
  return result;
}

template <class T>
std::uint64_t sum(const const_tensor_view& view, const execution_context& context) {
  std::atomic<std::uint64_t> total{0};
  for_each_tile(context, view.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    T buffer[tile_elements];
    total.fetch_add(part(read_run(view, first, length, buffer), first, length), std::memory_order_relaxed);
  });
  return total.load();
}

}  // namespace

std::uint64_t checksum(const const_tensor_view& view, const execution_context& context) {
  switch (size_of(view.type)) {
    case 1:
      return sum<std::uint8_t>(view, context);
    case 2:
      return sum<std::uint16_t>(view, context);
    default:
      return sum<std::uint32_t>(view, context);
  }
}

std::uint64_t checksum_of_run(dtype type, const void* values, std::int64_t first,
                              std::int64_t length) noexcept {
  if (size_of(type) == 2) return part(static_cast<const std::uint16_t*>(values), first, length);
  return part(static_cast<const std::uint32_t*>(values), first, length);
}

}  // namespace stash::encoders
