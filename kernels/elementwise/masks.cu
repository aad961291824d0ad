// SPDX-License-Identifier: Apache-2.0
#include "elementwise/masks.hpp"

#include "tiles/dispatch.hpp"

namespace stash::kernels {
namespace {

template <class Bits, class Predicate>
void encode_with(const encode_item& item, launches& to, const Predicate& predicate) {
  const mask_encode_body<Bits, Predicate> body{
      device_tensor_of(item.input), device_plane_of(item.output, item.input.elements()), predicate};
  run_groups(to, body, body.plane.bytes);
}

}  // namespace

void encode_mask(const encode_item& item, launches& to) {
  if (item.input.type == dtype::u8) return encode_with<std::uint8_t>(item, to, nonzero_predicate{});
  const element_type type = element_type_of(item.input.type);
  const bool nan_passes = item.how.rule == framework_rule::pytorch;
  with_element(item.input.type, [&](auto bits) {
    if (item.how.kind == encoding_kind::sign_mask) {
      encode_with<decltype(bits)>(item, to, sign_predicate{type, nan_passes});
    } else {
      encode_with<decltype(bits)>(
          item, to,
          range_predicate_of(item.input.type, encoders::rounded_to(item.input.type, item.how.lower),
                             encoders::rounded_to(item.input.type, item.how.upper), nan_passes));
    }
  });
}

void decode_mask(const decode_item& item, launches& to) {
  const auto decode_to = [&](auto bits) {
    using element = decltype(bits);
    const auto one = item.output.type == dtype::u8 ? 1U : bits_in(item.output.type, 1.0F);
    const mask_decode_body<element> body{static_cast<const std::uint8_t*>(item.input.bytes.data),
                                         device_tensor_of(item.output), static_cast<element>(one)};
    run_groups(to, body, groups_of(body.output.elements));
  };
  if (item.output.type == dtype::u8) return decode_to(std::uint8_t{});
  with_element(item.output.type, decode_to);
}

}  // namespace stash::kernels
