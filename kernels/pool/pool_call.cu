// SPDX-License-Identifier: Apache-2.0
#include "pool/pool_call.hpp"

#include <algorithm>

#include "pool/pool_axes.hpp"

namespace stash::kernels {

std::int64_t pitch_of(const const_tensor_view& map, const pool_window& window) {
  return window.layout == pool_layout::channels_first ? 1 : map.pitch();
}

namespace {

/// Slices are samples where no window goes through two of them.
void take_slices_for_samples(pool_geometry& layer) {
  const pool_axis& d = layer.depth;
  if (d.kernel != 1 || d.stride != 1 || d.pad != 0 || d.in != d.out) return;
  layer.samples *= d.in;
  layer.depth = whole_axis;
}

pool_job job_of(const pool_geometry& layer, pool_strategy strategy, const const_tensor_view& x,
                framework_rule rule) {
  pool_job job{};
  set_axes(job, layer);
  const unsigned width = width_of(strategy);
  job.channels = static_cast<std::uint64_t>(layer.channels);
  job.by_units = divisor_of(std::max<std::int64_t>(layer.channels / width, 1));
  job.x_units = static_cast<std::uint64_t>(layer.x_values()) / width;
  job.y_units = static_cast<std::uint64_t>(layer.y_values()) / width;
  job.x_pitch = static_cast<std::uint64_t>(layer.x_pitch);
  job.y_pitch = static_cast<std::uint64_t>(layer.y_pitch);
  job.type = element_type_of(x.type);
  job.nan_wins = rule == framework_rule::pytorch;
  return job;
}

}  // namespace

pool_call call_of(const pool_request& request, pool_source source, const const_tensor_view& x,
                  const const_tensor_view& y, const const_tensor_view* third) {
  const auto aligned = [](const const_tensor_view& map) { return device_tensor_of(map).vectors; };
  pool_geometry layer = geometry_of(x.dims, y.dims, request.window);
  take_slices_for_samples(layer);
  layer.element_bytes = static_cast<unsigned>(size_of(x.type));
  layer.x_pitch = pitch_of(x, request.window);
  layer.y_pitch = pitch_of(y, request.window);
  layer.searched_pitch = source == pool_source::x ? pitch_of(*third, request.window) : 0;
  layer.aligned = aligned(x) && aligned(y) && (third == nullptr || aligned(*third));
  const pool_strategy strategy = choose(layer, source);
  return {request.name, request.context, x.type, layer, strategy, job_of(layer, strategy, x, request.rule)};
}

}  // namespace stash::kernels
