// SPDX-License-Identifier: Apache-2.0
// Maps whose element numbers need more than 32 bits. The host makes and checks them in chunks, so that it
// needs little memory: a map consists of one random chunk over and over, each time with other zeros at its
// start.

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "gpu/checks.hpp"

namespace stash::gpu {
namespace {

constexpr std::int64_t vec16_elements = std::int64_t{1} << 24;  // whole tiles, whole bytes of a mask

struct large_map {
  large_map(dtype t, std::int64_t n)
      : type(t), elements(n), chunk(static_cast<std::size_t>(std::min(vec16_elements, n)) * size_of(t)) {
    std::mt19937 random(5);
    for (std::size_t i = 0; i < chunk.size(); i += size_of(type)) {
      const auto r = static_cast<std::uint32_t>(random());
      // Half of them zero; no pattern of f16 is left out.
      for (std::size_t b = 0; b < size_of(type); ++b)
        chunk.data()[i + b] = (r & 1) != 0 ? 0 : static_cast<std::uint8_t>(r >> (8 + 8 * b));
    }
  }

  std::int64_t chunks() const { return (elements + vec16_elements - 1) / vec16_elements; }
  std::int64_t length(std::int64_t k) const {
    return std::min(vec16_elements, elements - k * vec16_elements);
  }
  /// The chunk as number k: k elements more at its start are zero than by chance.
  const std::uint8_t* number(std::int64_t k) {
    const auto zeros = static_cast<std::size_t>(std::min(k, length(k))) * size_of(type);
    std::fill_n(chunk.data(), zeros, std::uint8_t{0});
    return chunk.data();
  }
  std::size_t offset(std::int64_t k) const {
    return static_cast<std::size_t>(k * vec16_elements) * size_of(type);
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements) * size_of(type); }

  dtype type;
  std::int64_t elements;
  test::buffer chunk;
};

tensor_view dense_view(void* data, dtype type, std::int64_t elements, memory_space space) {
  return {data, type, space, {elements}, 0};
}

void mask(std::int64_t n, progress& p) {
  const encoding e{.kind = encoding_kind::sign_mask};
  const dtype type = dtype::u8;
  const std::size_t mask_bytes = encoded_bytes_bound(e, type, n);
  need_memory(static_cast<std::size_t>(n) + mask_bytes + (64U << 20));
  large_map map(type, n);
  const device_buffer x(buffer_mode::guarded, map.bytes());
  const device_buffer stored(buffer_mode::guarded, mask_bytes);
  const device_report report(buffer_mode::guarded);
  for (std::int64_t k = 0; k < map.chunks(); ++k)
    upload(x.data() + map.offset(k), map.number(k), static_cast<std::size_t>(map.length(k)));
  encode(e, dense_view(x.data(), type, n, memory_space::device),
         {stored.data(), stored.size(), nullptr, report.data()}, {}, device_context());
  expect_equal(report.read().status, status_ok, "status of encode");
  stored.expect_guards("mask");
  // Decoding overwrites the map with zeros and ones.
  decode({e,
          dense_view(x.data(), type, n, memory_space::device).type,
          dense_view(x.data(), type, n, memory_space::device).dims,
          {stored.data(), stored.size(), nullptr, report.data()}},
         dense_view(x.data(), type, n, memory_space::device), {}, device_context());
  expect_equal(report.read().status, status_ok, "status of decode");
  x.expect_guards("decoded values");

  large_map again(type, n);
  for (std::int64_t k = 0; k < again.chunks(); ++k, ++p.trials) {
    p.context = fmt::format("chunk {} of {}", k, again.chunks());
    const std::int64_t length = again.length(k);
    const std::uint8_t* values = again.number(k);
    const std::size_t bytes = encoded_bytes_bound(e, type, length);
    test::buffer expected(bytes);
    encode_report host_report{};
    encode(e, dense_view(again.chunk.data(), type, length, memory_space::host),
           {expected.data(), bytes, nullptr, &host_report}, {}, {});
    std::vector<std::uint8_t> found(bytes);
    download(found.data(), stored.data() + k * vec16_elements / 8, bytes);
    expect_same_bytes(found, {expected.data(), expected.data() + bytes}, "mask");
    std::vector<std::uint8_t> decoded(static_cast<std::size_t>(length));
    download(decoded.data(), x.data() + again.offset(k), decoded.size());
    const bool same =
        std::equal(decoded.begin(), decoded.end(), values,
                   [](std::uint8_t bit, std::uint8_t value) { return bit == (value != 0 ? 1 : 0); });
    expect(same, "decoded values differ");
  }
}

void values(std::int64_t n, progress& p) {
  const encoding e{.kind = encoding_kind::bitmap};
  const dtype type = dtype::f16;
  large_map map(type, n);
  const std::size_t slot_bytes = encoded_bytes_at_density(e, type, n, 0.55);
  need_memory(map.bytes() + slot_bytes + (64U << 20));
  const device_buffer x(buffer_mode::guarded, map.bytes());
  const device_buffer stored(buffer_mode::guarded, slot_bytes);
  const device_report report(buffer_mode::guarded);
  std::uint64_t nonzeros = 0;
  for (std::int64_t k = 0; k < map.chunks(); ++k) {
    const std::uint8_t* chunk = map.number(k);
    const auto length = static_cast<std::size_t>(map.length(k));
    for (std::size_t i = 0; i < length; ++i)
      nonzeros += (chunk[2 * i] | chunk[2 * i + 1]) != 0 ? 1 : 0;
    upload(x.data() + map.offset(k), chunk, length * 2);
  }
  encode(e, dense_view(x.data(), type, n, memory_space::device),
         {stored.data(), stored.size(), nullptr, report.data()}, {}, device_context());
  const encode_report found = report.read();
  expect_equal(found.status, status_ok, "status of encode");
  expect_equal(found.nonzeros, nonzeros, "nonzeros");
  stored.expect_guards("encoded bytes");
  fill(x.data(), 0xff, x.size(), nullptr);
  decode({e,
          dense_view(x.data(), type, n, memory_space::device).type,
          dense_view(x.data(), type, n, memory_space::device).dims,
          {stored.data(), stored.size(), nullptr, report.data()}},
         dense_view(x.data(), type, n, memory_space::device), {}, device_context());
  expect_equal(report.read().status, status_ok, "status of decode");
  x.expect_guards("decoded values");

  large_map again(type, n);
  for (std::int64_t k = 0; k < again.chunks(); ++k, ++p.trials) {
    p.context = fmt::format("chunk {} of {}", k, again.chunks());
    const std::uint8_t* chunk = again.number(k);
    std::vector<std::uint8_t> decoded(static_cast<std::size_t>(again.length(k)) * 2);
    download(decoded.data(), x.data() + again.offset(k), decoded.size());
    expect(std::equal(decoded.begin(), decoded.end(), chunk), "decoded values differ");
  }
}

}  // namespace

std::vector<named_check> large_checks(const check_setup& setup) {
  const std::int64_t n = setup.large_elements;
  if (n == 0) return {};
  return {{fmt::format("large/sign_mask_of_u8, {} elements", n), [n](progress& p) { mask(n, p); }},
          {fmt::format("large/bitmap_of_f16, {} elements", n), [n](progress& p) { values(n, p); }}};
}

}  // namespace stash::gpu
