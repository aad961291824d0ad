// SPDX-License-Identifier: Apache-2.0
#include "tiles/canonicalise.hpp"

#include "common/chunk_scan.hpp"
#include "tiles/dispatch.hpp"
#include "backend.hpp"
#include "elementwise/raw.hpp"

namespace stash::kernels {

namespace {

template <bool Columns>
void run(const device_tiles& from, const device_tiles& to, const execution_context& context) {
  constexpr const char* function = "canonicalise";
  const std::uint64_t blocks = tile_blocks(from.dense.elements);
  launch(function, context, blocks, tile_threads, measure_tiles<Columns>, from, to);
  auto* const table = reinterpret_cast<std::uint32_t*>(to.data + to.table_offset);
  scan_with_sums(function, context, table, tiles_of(to.dense.elements), store_tile_offset{to});
  launch(function, context, blocks, tile_threads, copy_payloads<Columns>, from, to);
}

}  // namespace

void device_kernels::canonicalise(const encoded_tensor& input, const encoded_view& output,
                                  const execution_context& context) const {
  const std::int64_t elements = input.elements();
  if (elements == 0) return;
  // The dense form is not touched; only its shape counts.
  const const_tensor_view shape_of{nullptr, input.type, memory_space::device, shape{elements}, 0};
  const device_tiles from = device_tiles_of(input.how, shape_of, input.bytes);
  const device_tiles to =
      device_tiles_of(input.how, shape_of, encoded_view{output.data, output.bytes, nullptr, output.report});
  if (input.how.kind == encoding_kind::csr) {
    run<true>(from, to, context);
  } else {
    run<false>(from, to, context);
  }
}

void device_kernels::copy_encoded(const void* from, void* to, std::size_t bytes, encode_report* report,
                                  const execution_context& context) const {
  const std::uint64_t words = bytes / 4;
  const copy_body<std::uint32_t> body{
      {const_cast<void*>(from), words, words, words, true}, {to, words, words, words, true}, report};
  run_groups("canonicalise", context, body, groups_of(words));
}

}  // namespace stash::kernels
