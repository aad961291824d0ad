// SPDX-License-Identifier: Apache-2.0
#include "elementwise/raw.hpp"

#include "tiles/dispatch.hpp"

namespace stash::kernels {
namespace {

template <class Bits>
void copy(const device_tensor& from, const device_tensor& to, encode_report* report, launches& call) {
  const copy_body<Bits> body{from, to, report};
  run_groups(call, body, groups_of(to.elements));
}

void copy(std::size_t size, const device_tensor& from, const device_tensor& to, encode_report* report,
          launches& call) {
  if (size == 4) return copy<std::uint32_t>(from, to, report, call);
  if (size == 2) return copy<std::uint16_t>(from, to, report, call);
  copy<std::uint8_t>(from, to, report, call);
}

/// Encoded bytes as a dense tensor of `elements` elements.
device_tensor bytes_of(const void* data, std::uint64_t elements) {
  return {const_cast<void*>(data), elements, elements, elements, true};
}

}  // namespace

void encode_raw(const encode_item& item, launches& to) {
  const std::size_t size = size_of(item.input.type);
  const device_tensor input = device_tensor_of(item.input);
  const std::uint64_t padded = (input.elements * size + 15) / 16 * 16 / size;
  copy(size, input, bytes_of(item.output.data, padded), item.output.report, to);
}

void decode_raw(const decode_item& item, launches& to) {
  const device_tensor output = device_tensor_of(item.output);
  copy(size_of(item.output.type), bytes_of(item.input.bytes.data, output.elements), output, nullptr, to);
}

}  // namespace stash::kernels
