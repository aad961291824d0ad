// SPDX-License-Identifier: Apache-2.0
#include "tiles/csr_export.hpp"

#include "common/chunk_scan.hpp"
#include "tiles/dispatch.hpp"
#include "backend.hpp"

namespace stash::kernels {

void device_kernels::csr_export32(const encoded_tensor& input, const csr32_view& out,
                                  const execution_context& context) const {
  constexpr const char* function = "csr_export32";
  const const_tensor_view shape_of{nullptr, out.type, memory_space::device, shape{input.elements()}, 0};
  const device_tiles job = device_tiles_of(input.how, shape_of, input.bytes);
  const device_csr32 target{out.row_offsets, out.columns, out.values,
                            static_cast<std::uint64_t>(out.capacity)};
  const std::uint64_t tiles = tiles_of(job.dense.elements);
  launch(function, context, (tiles + tile_threads - 1) / tile_threads, tile_threads, measure_rows, job,
         target);
  const std::uint64_t rows = (job.dense.elements + csr_row_elements - 1) / csr_row_elements;
  scan_with_sums(function, context, out.row_offsets + 1, rows, store_row_offset{job, target});
  with_element(out.type, [&](auto bits) {
    const auto kernel = input.how.values == value_format::source ? list_entries<decltype(bits), false>
                                                                 : list_entries<decltype(bits), true>;
    launch(function, context, tile_blocks(job.dense.elements), tile_threads, kernel, job, target);
  });
}

}  // namespace stash::kernels
