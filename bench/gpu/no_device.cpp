// SPDX-License-Identifier: Apache-2.0
// For programs that may be built without CUDA: the device that there is not. Whoever asks why_no_device()
// first reaches nothing else.

#include "bench/gpu/cases.hpp"
#include "bench/gpu/device.hpp"

namespace stash::gpu {
namespace {

constexpr const char* reason =
    "this build has no CUDA back end: configure it with -DSTASH_ENABLE_CUDA=ON, which needs nvcc";

}  // namespace

std::string why_no_device() {
  return reason;
}

bool is_emulated() {
  return false;
}

device_facts facts() {
  throw failure(reason);
}

memory::memory(std::size_t /*bytes*/) : size_(0) {
  throw failure(reason);
}
void memory::release::operator()(void*) const noexcept {}

pinned::pinned(std::size_t /*bytes*/) : size_(0) {
  throw failure(reason);
}
void pinned::release::operator()(void*) const noexcept {}

stream::stream() {
  throw failure(reason);
}
void stream::release::operator()(void*) const noexcept {}
void stream::wait() const {}

void wait_for_device() {}
void upload(void*, const void*, std::size_t) {}
void download(void*, const void*, std::size_t) {}
void fill(void*, std::uint8_t, std::size_t, void*) {}
void copy_on_device(void*, const void*, std::size_t, void*) {}

graph::graph(const stream&, const std::function<void()>&) {}
void graph::launch_in(void*) {}

struct stopwatch::marks {};
stopwatch::stopwatch() {}
void stopwatch::start(void*) {}
void stopwatch::stop(void*) {}
double stopwatch::seconds() const {
  return 0;
}

std::vector<measured_case> baseline_cases() {
  return {};
}
void copy_by_kernel(void*, const void*, std::size_t, void*) {}
void read_by_kernel(const void*, std::size_t, void*, void*) {}

}  // namespace stash::gpu
