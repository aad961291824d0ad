// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_positions.hpp"

#include <algorithm>

#include "backend.hpp"
#include "pool/pool_axes.hpp"

namespace stash::kernels {
namespace {

pool_job job_of(const shape& y, const shape& x, const pool_window& window) {
  pool_job job{};
  set_axes(job, geometry_of(x, y, window));
  const std::int64_t channels = window.layout == pool_layout::channels_first ? 1 : x.inner();
  job.channels = static_cast<std::uint64_t>(channels);
  job.by_units = divisor_of(std::max<std::int64_t>(channels, 1));
  job.y_units = static_cast<std::uint64_t>(y.elements());
  return job;
}

}  // namespace

void device_kernels::encode_window_index(const std::int64_t* flat, const shape& y, const shape& x,
                                         const pool_window& window, const encoded_view& index,
                                         const execution_context& context) const {
  const code_plane plane = plane_of(index, y.elements(), tap_bits(window));
  launch("encode_window_index", context, pool_blocks(plane.bytes * 8 / plane.bits), pool_threads,
         pool_codes_of_positions, job_of(y, x, window), flat, plane, index.report);
}

void device_kernels::decode_window_index(const encoded_tensor& index, const shape& x,
                                         const pool_window& window, std::int64_t* flat,
                                         const execution_context& context) const {
  const pool_job job = job_of(index.dims, x, window);
  launch("decode_window_index", context, pool_blocks(job.y_units), pool_threads, pool_positions_of_codes, job,
         static_cast<const std::uint8_t*>(index.bytes.data), tap_bits(window), flat, index.bytes.report);
}

}  // namespace stash::kernels
