// SPDX-License-Identifier: Apache-2.0
#include "elementwise/cast.hpp"

#include "encoders/format/value_codec.hpp"
#include "tiles/dispatch.hpp"

namespace stash::kernels {

device_cast device_cast_of(const encoding& e, dtype source, std::uint64_t elements, const void* data) {
  const encoders::value_codec codec{e.values, e.underflow, source};
  const auto count = static_cast<std::int64_t>(elements);
  const auto pad16 = [](std::uint64_t bytes) { return (bytes + 15) / 16 * 16; };
  device_cast c{};
  c.scales = static_cast<std::uint8_t*>(const_cast<void*>(data));
  c.scale_bytes = pad16(codec.scale_bytes(count));
  c.codes = c.scales + c.scale_bytes;
  c.bytes = pad16(codec.element_bytes(count));
  c.conversion = conversion_of(e.values, e.underflow);
  return c;
}

void encode_cast(const encode_item& item, launches& to) {
  const device_tensor input = device_tensor_of(item.input);
  const element_type type = element_type_of(item.input.type);
  const device_cast output = device_cast_of(item.how, item.input.type, input.elements, item.output.data);
  with_element(item.input.type, [&](auto bits) {
    using element = decltype(bits);
    with_code_size(item.how.values, [&](auto size, auto scales) {
      constexpr unsigned code_bits = decltype(size)::value;
      constexpr bool scaled = decltype(scales)::value;
      if constexpr (code_bits == 10) {
        const cast_fp10_body<element> body{input, type, output, item.output.report};
        run_groups(to, body, (output.bytes + 31) / 32);
      } else if constexpr (sizeof(element) == 2 && scaled && code_bits < 8) {
        const cast_short_body<code_bits> body{input, type, output, item.output.report};
        const std::uint64_t for_codes = (output.bytes + 4 * code_bits - 1) / (4 * code_bits);
        run_groups(to, body, for_codes > output.scale_bytes ? for_codes : output.scale_bytes);
      } else if constexpr (code_bits < 8 * sizeof(element)) {
        const cast_encode_body<element, code_bits, scaled> body{input, type, output, item.output.report};
        // Eight codes are as many bytes as a code has bits; a scale is for four groups.
        const std::uint64_t for_codes = (output.bytes + code_bits - 1) / code_bits;
        const std::uint64_t for_scales = output.scale_bytes * 4;
        run_groups(to, body, for_codes > for_scales ? for_codes : for_scales);
      }
    });
  });
}

void decode_cast(const decode_item& item, launches& to) {
  const device_tensor output = device_tensor_of(item.output);
  const device_cast input =
      device_cast_of(item.input.how, item.output.type, output.elements, item.input.bytes.data);
  with_element(item.output.type, [&](auto bits) {
    using element = decltype(bits);
    with_code_size(item.input.how.values, [&](auto size, auto scales) {
      constexpr unsigned code_bits = decltype(size)::value;
      constexpr bool scaled = decltype(scales)::value;
      if constexpr (code_bits < 8 * sizeof(element)) {
        const cast_decode_body<element, code_bits, scaled> body{input, output,
                                                                element_type_of(item.output.type)};
        run_groups(to, body, groups_of(output.elements));
      }
    });
  });
}

}  // namespace stash::kernels
