#include "simt/device_memory.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "encoders/device_memory.hpp"
#include "simt/simt.hpp"

namespace simt {
namespace {

std::atomic<long> allocations_left{-1};
std::atomic<std::size_t> allocations{0}, copies{0}, waits{0}, blocks{0};

/// A copy to the host: its bytes are taken at once, since kernels behind it may change the source, and
/// written when the stream is waited for.
struct pending_copy {
  void* to;
  std::vector<unsigned char> bytes;
};

std::mutex mutex;
std::map<void*, std::vector<pending_copy>>& pending() {
  static std::map<void*, std::vector<pending_copy>> streams;
  return streams;
}

void finish(void* stream) {
  const std::lock_guard lock(mutex);
  for (const pending_copy& copy : pending()[stream])
    std::memcpy(copy.to, copy.bytes.data(), copy.bytes.size());
  pending()[stream].clear();
}

void* take(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if (allocations_left >= 0 && allocations_left-- == 0) {
    allocations_left = -1;
    return nullptr;
  }
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(data, 0xa5, bytes);  // nobody may rely on zeros
  ++blocks;
  return data;
}

}  // namespace

void set_allocations_left(long count) {
  allocations_left = count;
}
device_calls calls_so_far() {
  return {allocations, copies, waits, launches_so_far()};
}
std::size_t blocks_in_use() {
  return blocks;
}

}  // namespace simt

namespace stash::detail::device {

void* allocate(std::size_t bytes, void* /*stream*/) {
  return simt::take(bytes, 256);
}
void deallocate(void* data, void* /*stream*/) noexcept {
  --simt::blocks;
  std::free(data);
}
void* allocate_pinned(std::size_t bytes) {
  return simt::take(bytes, 4096);
}
void deallocate_pinned(void* data) noexcept {
  --simt::blocks;
  std::free(data);
}

void clear(void* data, std::size_t bytes, void* /*stream*/) {
  std::memset(data, 0, bytes);
}

void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  ++simt::copies;
  const auto* source = static_cast<const unsigned char*>(from);
  const std::lock_guard lock(simt::mutex);
  simt::pending()[stream].push_back({to, {source, source + bytes}});
}

void wait_for_stream(void* stream) {
  ++simt::waits;
  simt::finish(stream);
}

/// Remembers its stream, and whether somebody has waited.
struct emulated_event {
  void* stream;
  bool waited;
};

event record_event(void* stream) {
  return new emulated_event{stream, false};
}
bool reached(event e) {
  // The first question comes too early, every later one does not.
  auto& known = *static_cast<emulated_event*>(e);
  if (known.waited) return true;
  simt::finish(known.stream);
  known.waited = true;
  return false;
}
void wait_for_event(event e) {
  ++simt::waits;
  auto& known = *static_cast<emulated_event*>(e);
  simt::finish(known.stream);
  known.waited = true;
}
void destroy_event(event e) noexcept {
  delete static_cast<emulated_event*>(e);
}

}  // namespace stash::detail::device
