// SPDX-License-Identifier: Apache-2.0
// The way between host and device, one direction alone and both at once.

#include "bench/gpu/baselines/baselines.hpp"
#include "bench/gpu/cuda_check.hpp"

namespace stash::gpu {
namespace {

/// An event that only orders streams.
struct order_event {
  order_event() {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~order_event() { (void)cudaEventDestroy(event); }
  order_event(const order_event&) = delete;
  order_event& operator=(const order_event&) = delete;
  /// What is enqueued in `later` from now on waits for what is in `earlier`.
  void between(cudaStream_t earlier, cudaStream_t later) const {
    check(cudaEventRecord(event, earlier), "cudaEventRecord");
    check(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
  }
  cudaEvent_t event = nullptr;
};

struct link {
  explicit link(std::size_t size) : bytes(size), up_host(size), down_host(size), up(size), down(size) {
    fill(down.data(), 1, bytes, nullptr);
    wait_for_device();
  }
  void to_device(cudaStream_t in) const {
    check(cudaMemcpyAsync(up.data(), up_host.bytes(), bytes, cudaMemcpyHostToDevice, in), "cudaMemcpyAsync");
  }
  void to_host(cudaStream_t in) const {
    check(cudaMemcpyAsync(down_host.bytes(), down.data(), bytes, cudaMemcpyDeviceToHost, in),
          "cudaMemcpyAsync");
  }
  std::size_t bytes;
  pinned up_host, down_host;
  memory up, down;
  stream other;
  order_event fork, join;
};

bool only_f32(dtype type) {
  return type == dtype::f32;  // bytes have no type here
}

}  // namespace

std::vector<measured_case> link_baselines() {
  const auto one_way = [](bool up) {
    return [up](const map_form& form, map_source&) {
      const auto l = std::make_shared<link>(static_cast<std::size_t>(form.bytes));
      return unchecked(
          [=](void* stream) {
            if (up) {
              l->to_device(cuda_stream(stream));
            } else {
              l->to_host(cuda_stream(stream));
            }
          },
          l->bytes, l->bytes);
    };
  };
  const auto both_ways = [](const map_form& form, map_source&) {
    const auto l = std::make_shared<link>(static_cast<std::size_t>(form.bytes));
    return unchecked(
        [=](void* stream) {
          const cudaStream_t first = cuda_stream(stream), second = cuda_stream(l->other.handle());
          l->fork.between(first, second);
          l->to_device(first);
          l->to_host(second);
          l->join.between(second, first);
        },
        2 * l->bytes, 2 * l->bytes);
  };
  return {{"baseline/host_to_device", only_f32, one_way(true), false},
          {"baseline/device_to_host", only_f32, one_way(false), false},
          {"baseline/both_directions", only_f32, both_ways, false}};
}

}  // namespace stash::gpu
