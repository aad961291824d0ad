// SPDX-License-Identifier: Apache-2.0
// What the swap engine makes of the link: maps that go to the host, come back, or do both at once, enqueued
// as a training step enqueues them. Next to them stand baseline/device_to_host and its kin: single pinned
// copies.

#include <cstring>
#include <memory>

#include "bench/gpu/cases.hpp"
#include "runtime/swap/swap_device.hpp"
#include "stash/memory.hpp"

namespace stash::gpu {
namespace {

using runtime::swap_lane;
using runtime::swap_program;
using runtime::swap_side;

constexpr std::int64_t maps = 8;  // that the bytes are divided among

class moved_maps {
 public:
  moved_maps(std::int64_t bytes, bool out, bool in)
      : each_(std::max<std::int64_t>(256, bytes / maps)),
        device_(device_memory().allocate(size(), 256)),
        host_(pinned_memory().allocate(size(), 4096)),
        engine_(program(out, in), {static_cast<std::byte*>(device_), static_cast<std::byte*>(host_)}) {
    std::memset(host_, 1, size());
    fill(device_, 2, size(), nullptr);
    wait_for_device();
  }
  ~moved_maps() {
    device_memory().deallocate(device_, size(), 256);
    pinned_memory().deallocate(host_, size(), 4096);
  }
  moved_maps(const moved_maps&) = delete;
  moved_maps& operator=(const moved_maps&) = delete;

  void enqueue(void* stream) {
    engine_.enqueue(stream, [](std::int32_t) {});
  }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(maps * each_); }

 private:
  // Space for maps that leave and, apart from those, maps that return.
  std::size_t size() const { return static_cast<std::size_t>(2 * maps * each_); }

  swap_program program(bool out, bool in) const {
    swap_program p;
    for (std::int32_t i = 0; i < 2 * maps; ++i) {
      p.blocks.push_back({swap_side::device, i * each_, each_});
      p.blocks.push_back({swap_side::host, i * each_, each_});
    }
    for (std::int32_t i = 0; i < maps; ++i) {
      const auto there = 2 * i, back = 2 * (static_cast<std::int32_t>(maps) + i);
      if (out)
        p.tasks.push_back({swap_lane::out, {{there, false}, {there + 1, true}}, each_, nullptr, "map"});
      if (in) p.tasks.push_back({swap_lane::in, {{back + 1, false}, {back, true}}, each_, nullptr, "map"});
    }
    p.edges = order_edges(p);
    return p;
  }

  std::int64_t each_;
  void* device_;
  void* host_;
  runtime::device_swap_engine engine_;
};

measured_case swap_case(const char* name, bool out, bool in) {
  return {name, [](dtype type) { return type == dtype::f32; },  // bytes have no type here
          [out, in](const map_form& form, map_source&) -> prepared_case {
            const auto moved = std::make_shared<moved_maps>(form.bytes, out, in);
            const std::uint64_t bytes = moved->bytes() * (out && in ? 2 : 1);
            return {[](void*) {}, [moved](void* stream) { moved->enqueue(stream); }, [] {}, bytes, bytes,
                    bytes};
          },
          false};
}

}  // namespace

std::vector<measured_case> swap_cases() {
  return {swap_case("swap/to_host", true, false), swap_case("swap/to_device", false, true),
          swap_case("swap/both_directions", true, true)};
}

}  // namespace stash::gpu
