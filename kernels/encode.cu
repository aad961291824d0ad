// The door of the device back end for encode() and decode().

#include "dispatch.hpp"
#include "encoders/device.hpp"

namespace stash::detail::device {

void check_available(std::string_view /*function*/) {}

void encode(const encode_item& item, const workspace_view& workspace, const execution_context& context) {
  if (item.input.elements() == 0) return;
  switch (item.how.kind) {
    case encoding_kind::raw:
      return kernels::encode_raw(item, context);
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
      return kernels::encode_mask(item, context);
    case encoding_kind::cast:
      return kernels::encode_cast(item, context);
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return kernels::encode_tiled(item, workspace, context);
    case encoding_kind::shape_only:
    case encoding_kind::window_index:
    case encoding_kind::relu_pool:
      return;
  }
}

void decode(const decode_item& item, const execution_context& context) {
  if (item.output.elements() == 0) return;
  switch (item.how.kind) {
    case encoding_kind::raw:
      return kernels::decode_raw(item, context);
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
      return kernels::decode_mask(item, context);
    case encoding_kind::cast:
      return kernels::decode_cast(item, context);
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return kernels::decode_tiled(item, context);
    case encoding_kind::shape_only:
    case encoding_kind::window_index:
    case encoding_kind::relu_pool:
      return;
  }
}

}  // namespace stash::detail::device
