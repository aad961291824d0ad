// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"
#include "tiles/dispatch.hpp"
#include "tiles/tiles_decode.hpp"
#include "tiles/tiles_encode.hpp"

namespace stash::kernels {
namespace {

/// Calls body(bits, narrow, columns), the last two as std::bool_constant.
template <class Body>
void with_tile_kind(const encoding& e, dtype type, const Body& body) {
  with_element(type, [&](auto bits) {
    const bool narrow = e.values != value_format::source;
    if (e.kind == encoding_kind::csr) {
      return narrow ? body(bits, std::true_type{}, std::true_type{})
                    : body(bits, std::false_type{}, std::true_type{});
    }
    return narrow ? body(bits, std::true_type{}, std::false_type{})
                  : body(bits, std::false_type{}, std::false_type{});
  });
}

}  // namespace

void encode_tiled(const encode_item& item, const workspace_view& workspace, launches& to) {
  device_tiles job = device_tiles_of(item.how, item.input, item.output);
  if (to.context().canonical) {
    job.sums.words = static_cast<std::uint64_t*>(workspace.data);
    clear(to.function(), to.context(), workspace.data,
          encoders::canonical_workspace_bytes(item.input.elements()));
  }
  with_tile_kind(item.how, item.input.type, [&](auto bits, auto narrow, auto columns) {
    to.add<encode_tiles_kernels<decltype(bits), narrow, columns>>(job, tile_blocks(job.dense.elements));
  });
}

void decode_tiled(const decode_item& item, launches& to) {
  const device_tiles job = device_tiles_of(item.input.how, item.output, item.input.bytes);
  with_tile_kind(item.input.how, item.output.type, [&](auto bits, auto narrow, auto columns) {
    to.add<decode_tiles_kernels<decltype(bits), narrow, columns>>(job, tile_blocks(job.dense.elements));
  });
}

void device_kernels::count(const encoding& e, const const_tensor_view& input, encode_report* report,
                           const execution_context& context) const {
  const device_tiles job = device_tiles_of(e, input, encoded_view{nullptr, 0, nullptr, report});
  with_element(input.type, [&](auto bits) {
    const auto kernel =
        e.kind == encoding_kind::csr ? count_tiles<decltype(bits), true> : count_tiles<decltype(bits), false>;
    launch("encoded_bytes", context, tile_blocks(job.dense.elements), tile_threads, kernel, job);
  });
}

}  // namespace stash::kernels
