// SPDX-License-Identifier: Apache-2.0
// What CUB users do: the non-zero values in a row, without a mask to find their positions again.

#include <cub/device/device_select.cuh>

#include "bench/gpu/baselines/baselines.hpp"
#include "bench/gpu/cuda_check.hpp"

namespace stash::gpu {
namespace {

template <class Bits>
struct is_nonzero {
  __device__ bool operator()(Bits value) const { return value != 0; }
};

template <class Bits>
prepared_case prepare_select(const map_form& form, map_source& maps) {
  const shared_map x = maps.after_relu(form);
  const auto values = std::make_shared<memory>(x->bytes());
  const auto selected = std::make_shared<memory>(sizeof(std::int64_t));
  const auto select = [=](void* workspace, std::size_t& bytes, void* stream) {
    check(cub::DeviceSelect::If(workspace, bytes, static_cast<const Bits*>(x->data()),
                                static_cast<Bits*>(values->data()),
                                static_cast<std::int64_t*>(selected->data()), x->elements(),
                                is_nonzero<Bits>{}, cuda_stream(stream)),
          "cub::DeviceSelect::If");
  };
  std::size_t bytes = 0;
  select(nullptr, bytes, nullptr);
  const auto workspace = std::make_shared<memory>(bytes);
  const auto run = [=](void* stream) {
    std::size_t size = workspace->size();
    select(workspace->data(), size, stream);
  };
  run(nullptr);
  std::int64_t count = 0;
  download(&count, selected->data(), sizeof count);
  const std::uint64_t kept = static_cast<std::uint64_t>(count) * sizeof(Bits);
  return unchecked(run, x->bytes() + kept, x->bytes(), kept);
}

}  // namespace

std::vector<measured_case> cub_baselines() {
  return {{"baseline/cub_select", takes_floats, [](const map_form& form, map_source& maps) {
             return form.type == dtype::f32 ? prepare_select<std::uint32_t>(form, maps)
                                            : prepare_select<std::uint16_t>(form, maps);
           }}};
}

}  // namespace stash::gpu
