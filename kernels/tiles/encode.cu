// SPDX-License-Identifier: Apache-2.0
// The device back end for encode() and decode(), one by one and in batches.

#include "tiles/dispatch.hpp"
#include "backend.hpp"

namespace stash::kernels {
namespace {

void encode_item_to(const encode_item& item, const workspace_view& workspace, launches& to) {
  if (item.input.elements() == 0) return;
  switch (item.how.kind) {
    case encoding_kind::raw:
      return encode_raw(item, to);
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
      return encode_mask(item, to);
    case encoding_kind::cast:
      return encode_cast(item, to);
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return encode_tiled(item, workspace, to);
    case encoding_kind::shape_only:
    case encoding_kind::window_index:
    case encoding_kind::relu_pool:
      return;
  }
}

void decode_item_to(const decode_item& item, launches& to) {
  if (item.output.elements() == 0) return;
  switch (item.input.how.kind) {
    case encoding_kind::raw:
      return decode_raw(item, to);
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
      return decode_mask(item, to);
    case encoding_kind::cast:
      return decode_cast(item, to);
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return decode_tiled(item, to);
    case encoding_kind::shape_only:
    case encoding_kind::window_index:
    case encoding_kind::relu_pool:
      return;
  }
}

}  // namespace

void device_kernels::encode(const encode_item& item, const workspace_view& workspace,
                            const execution_context& context) const {
  launches alone("encode", context);
  encode_item_to(item, workspace, alone);
}

void device_kernels::decode(const decode_item& item, const execution_context& context) const {
  launches alone("decode", context);
  decode_item_to(item, alone);
}

void device_kernels::encode_batch(std::span<const encode_item> items, const workspace_view& workspace,
                                  const execution_context& context) const {
  // In canonical order the items use one workspace, one after another.
  launches together("encode_batch", context, !context.canonical);
  together.run([&] {
    for (const encode_item& item : items)
      encode_item_to(item, workspace, together);
  });
}

void device_kernels::decode_batch(std::span<const decode_item> items,
                                  const execution_context& context) const {
  launches together("decode_batch", context, true);
  together.run([&] {
    for (const decode_item& item : items)
      decode_item_to(item, together);
  });
}

}  // namespace stash::kernels
