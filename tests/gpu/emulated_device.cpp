// SPDX-License-Identifier: Apache-2.0
// A device made of the host: kernels run in the emulator, and its memory can only be touched by kernels and
// by the copies below. Everything else that follows a device pointer dies at once, as it would with a GPU.

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <new>

#include "bench/gpu/device.hpp"
#include "simt/recording.hpp"
#include "simt/simt.hpp"

namespace stash::gpu {
namespace {

/// Address space that blocks are cut from; it is used from the start again when all have been freed.
class device_heap {
 public:
  static constexpr std::size_t capacity = std::size_t{1} << 31;

  device_heap() {
    void* start =
        ::mmap(nullptr, capacity + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::uint8_t*>(start) + (page - reinterpret_cast<std::uintptr_t>(start) % page);
    // Opening and closing takes time for each page; where there are no large ones it only takes longer.
    ::madvise(start_, capacity, MADV_HUGEPAGE);
    simt::around_launches([] { instance().open(); }, [] { instance().close(); });
  }
  static device_heap& instance() {
    static device_heap heap;
    return heap;
  }

  void* take(std::size_t bytes) {
    const std::size_t begin = (used_ + 255) / 256 * 256;
    if (bytes > capacity - begin) throw failure("emulated device: out of memory");
    used_ = begin + bytes;
    ++blocks_;
    return start_ + begin;
  }
  void give_back() noexcept {
    if (--blocks_ == 0) used_ = 0;
  }

  void open() noexcept { protect(PROT_READ | PROT_WRITE); }
  void close() noexcept { protect(PROT_NONE); }

 private:
  static constexpr std::size_t page = std::size_t{2} << 20;  // a large one

  void protect(int access) noexcept { ::mprotect(start_, (used_ + page - 1) / page * page, access); }

  std::uint8_t* start_ = nullptr;
  std::size_t used_ = 0;
  std::size_t blocks_ = 0;
};

struct opened {
  opened() { device_heap::instance().open(); }
  ~opened() { device_heap::instance().close(); }
  opened(const opened&) = delete;
  opened& operator=(const opened&) = delete;
};

/// What the runtime refuses while a stream is recorded, and what the recording does not survive.
void not_while_recording(const char* call) {
  if (simt::spoil(call)) throw failure(std::string(call) + ": a stream is recorded");
}

}  // namespace

std::string why_no_device() {
  return {};
}

bool is_emulated() {
  return true;
}

device_facts facts() {
  device_facts f;
  f.name = "emulator";
  f.built_for = "the host";
  f.memory_bytes = f.free_bytes = device_heap::capacity;
  f.l2_bytes = 1 << 20;
  return f;
}

memory::memory(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  not_while_recording("memory");
  data_.reset(device_heap::instance().take(bytes));
}

void memory::release::operator()(void*) const noexcept {
  simt::spoil("memory that is freed");
  device_heap::instance().give_back();
}

pinned::pinned(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  not_while_recording("pinned");
  data_.reset(::operator new(bytes));
}

void pinned::release::operator()(void* data) const noexcept {
  ::operator delete(data);
}

// Kernels run when they are launched, so that a stream is only a name.
stream::stream() : handle_(::operator new(1)) {}

void stream::wait() const {
  if (simt::spoil(handle(), "wait")) throw failure("wait: the stream is recorded");
}

void stream::release::operator()(void* handle) const noexcept {
  ::operator delete(handle);
}

void wait_for_device() {
  not_while_recording("wait_for_device");
}

void upload(void* to_device, const void* from_host, std::size_t bytes) {
  not_while_recording("upload");
  const opened scope;
  if (bytes != 0) std::memcpy(to_device, from_host, bytes);
}

void download(void* to_host, const void* from_device, std::size_t bytes) {
  not_while_recording("download");
  const opened scope;
  if (bytes != 0) std::memcpy(to_host, from_device, bytes);
}

// The emulator has no pool.
pool_watch::pool_watch() = default;

std::uint64_t pool_watch::most_bytes() const {
  return before_;
}

std::uint64_t pool_watch::most_used_bytes() const {
  return used_before_;
}

void fill(void* device, std::uint8_t value, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  simt::enqueue(stream, [=] {
    const opened scope;
    std::memset(device, value, bytes);
  });
}

void copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  simt::enqueue(stream, [=] {
    const opened scope;
    std::memcpy(to, from, bytes);
  });
}

struct graph::recorded {
  simt::recording work;
};

graph::graph(const stream& in, const std::function<void()>& enqueue) try
    : recorded_(std::make_shared<recorded>(recorded{{in.handle(), enqueue}})) {
} catch (const simt::not_recordable& problem) {
  throw failure(problem.what());
}

void graph::launch() {
  recorded_->work.launch();
}

void graph::launch_in(void* /*stream*/) {
  launch();
}

struct stopwatch::marks {
  std::chrono::steady_clock::time_point begin, end;
};

stopwatch::stopwatch() : marks_(std::make_shared<marks>()) {}

void stopwatch::start(void* /*stream*/) {
  marks_->begin = std::chrono::steady_clock::now();
}

void stopwatch::stop(void* /*stream*/) {
  marks_->end = std::chrono::steady_clock::now();
}

double stopwatch::seconds() const {
  return std::chrono::duration<double>(marks_->end - marks_->begin).count();
}

}  // namespace stash::gpu
