#include "raw.hpp"

#include "dispatch.hpp"

namespace stash::kernels {
namespace {

template <class Bits>
void copy(const char* function, const device_tensor& from, const device_tensor& to, encode_report* report,
          const execution_context& context) {
  const copy_body<Bits> body{from, to, report};
  run_groups(function, context, body, groups_of(to.elements));
}

void copy(const char* function, std::size_t size, const device_tensor& from, const device_tensor& to,
          encode_report* report, const execution_context& context) {
  if (size == 4) return copy<std::uint32_t>(function, from, to, report, context);
  if (size == 2) return copy<std::uint16_t>(function, from, to, report, context);
  copy<std::uint8_t>(function, from, to, report, context);
}

/// Encoded bytes as a dense tensor of `elements` elements.
device_tensor bytes_of(const void* data, std::uint64_t elements) {
  return {const_cast<void*>(data), elements, elements, elements, true};
}

}  // namespace

void encode_raw(const encode_item& item, const execution_context& context) {
  const std::size_t size = size_of(item.input.type);
  const device_tensor input = device_tensor_of(item.input);
  const std::uint64_t padded = (input.elements * size + 15) / 16 * 16 / size;
  copy("encode", size, input, bytes_of(item.output.data, padded), item.output.report, context);
}

void decode_raw(const decode_item& item, const execution_context& context) {
  const device_tensor output = device_tensor_of(item.output);
  copy("decode", size_of(item.output.type), bytes_of(item.input.data, output.elements), output, nullptr,
       context);
}

}  // namespace stash::kernels
