// SPDX-License-Identifier: Apache-2.0
#include "simt/device_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "encoders/device/device_memory.hpp"
#include "simt/recording.hpp"
#include "simt/simt.hpp"
#include "stash/error.hpp"

namespace simt {
namespace {

std::atomic<long> allocations_left{-1};
std::atomic<int> allocations_to_fail{0};
std::atomic<std::size_t> allocations{0}, copies{0}, waits{0}, blocks{0};

std::atomic<long> copies_left{-1};
std::atomic<std::size_t> objects{0};

/// Something that a stream has still to do.
struct work {
  enum class kind { write, copy, free, wait } what;
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;               ///< copy
  std::vector<unsigned char> content;  ///< write
  void* other = nullptr;               ///< wait: for this stream,
  std::uint64_t until = 0;             ///< up to this item of its work
};

struct queue {
  std::deque<work> waiting;
  std::uint64_t finished = 0;  ///< work items that are done
  std::uint64_t end() const { return finished + waiting.size(); }
  bool own = false;  ///< made by create_stream(): nothing happens before somebody waits
};

// Recursive: a stream that waits for another one finishes that.
std::recursive_mutex mutex;
/// Where streams that are made begin to count their work: a new one may have the name of an old one, and
/// positions in that have been passed.
std::uint64_t finished_by_old_streams = 0;
std::map<void*, queue>& queues() {
  static std::map<void*, queue> streams;
  return streams;
}

void finish(void* stream, std::uint64_t until) {
  const std::lock_guard lock(mutex);
  queue& q = queues()[stream];
  while (!q.waiting.empty() && q.finished < until) {
    const work w = std::move(q.waiting.front());
    q.waiting.pop_front();
    ++q.finished;
    switch (w.what) {
      case work::kind::write:
        std::memcpy(w.to, w.content.data(), w.content.size());
        break;
      case work::kind::copy:
        std::memcpy(w.to, w.from, w.bytes);
        break;
      case work::kind::free:
        std::free(w.to);
        break;
      case work::kind::wait:
        finish(w.other, w.until);
        break;
    }
  }
}

void finish(void* stream) {
  finish(stream, UINT64_MAX);
}

void* take(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  if (allocations_left == 0) {
    if (--allocations_to_fail <= 0) allocations_left = -1;
    return nullptr;
  }
  if (allocations_left > 0) --allocations_left;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(data, 0xa5, bytes);  // nobody may rely on zeros
  ++blocks;
  return data;
}

void enqueue_copy(void* to, const void* from, std::size_t bytes, void* stream) {
  const auto* source = static_cast<const unsigned char*>(from);
  const std::lock_guard lock(mutex);
  queue& q = queues()[stream];
  if (q.own) {
    q.waiting.push_back({work::kind::copy, to, from, bytes});
  } else {
    // Kernels that are launched after this run at once and may change the source.
    q.waiting.push_back({work::kind::write, to, nullptr, 0, {source, source + bytes}});
  }
}

/// A position in the work of a stream; in recorded work another one at every launch.
struct stream_position {
  void* stream;
  std::uint64_t until;
};

void enqueue_wait(void* stream, const stream_position& position) {
  const std::lock_guard lock(mutex);
  queue& q = queues()[stream];
  if (q.own) {
    q.waiting.push_back({work::kind::wait, nullptr, nullptr, 0, {}, position.stream, position.until});
  } else {
    // Kernels that are launched after this run at once.
    finish(position.stream, position.until);
  }
}

[[noreturn]] void refuse(const char* call) {
  throw stash::error(
      stash::errc::device_failure,
      std::string(call) + ": context: expected work that can be recorded, got a call that cannot");
}

/// Calls that CUDA refuses, or cannot repeat, in a stream that is recorded.
void not_recorded(const char* call, void* stream) {
  if (spoil(stream, call)) refuse(call);
}

}  // namespace

void set_allocations_left(long count, int failures) {
  allocations_left = count;
  allocations_to_fail = failures;
}
void set_copies_left(long count) {
  copies_left = count;
}
std::size_t streams_and_events() {
  return objects;
}
device_calls calls_so_far() {
  return {allocations, copies, waits, launches_so_far()};
}
std::size_t blocks_in_use() {
  return blocks;
}

}  // namespace simt

namespace stash::encoders::device {
namespace {

/// Remembers its position in its stream, and whether somebody has waited or asked.
struct emulated_event {
  std::shared_ptr<simt::stream_position> at;
  std::shared_ptr<const simt::recorded_position> recorded;  ///< null: of work that is not recorded
  bool waited = false, asked = false;
};

class emulated_memory final : public memory_calls {
 public:
  void check_available(std::string_view /*function*/) const override {}

  void* allocate(std::size_t bytes, void* stream) const override {
    simt::not_recorded("device_memory", stream);
    return simt::take(bytes, 256);
  }
  void deallocate(void* data, void* stream) const noexcept override {
    --simt::blocks;
    simt::spoil(stream, "memory that is freed");
    const std::lock_guard lock(simt::mutex);
    simt::queue& q = simt::queues()[stream];
    if (q.own && !q.waiting.empty()) {
      q.waiting.push_back({simt::work::kind::free, data});
    } else {
      std::free(data);
    }
  }
  void* allocate_pinned(std::size_t bytes) const override { return simt::take(bytes, 4096); }
  void deallocate_pinned(void* data) const noexcept override {
    --simt::blocks;
    std::free(data);
  }

  void clear(void* data, std::size_t bytes, void* stream) const override {
    simt::enqueue(stream, [=] { std::memset(data, 0, bytes); });
  }

  void copy(void* to, const void* from, std::size_t bytes, void* stream) const override {
    ++simt::copies;
    if (simt::copies_left >= 0 && simt::copies_left-- == 0) {
      simt::copies_left = -1;
      throw error(errc::device_failure, "copy: context: expected a device that copies, got one told to fail");
    }
    simt::enqueue(stream, [=] { simt::enqueue_copy(to, from, bytes, stream); });
  }

  void wait_for_stream(void* stream) const override {
    ++simt::waits;
    simt::not_recorded("wait", stream);
    simt::finish(stream);
  }

  void* create_stream() const override {
    const std::lock_guard lock(simt::mutex);
    auto* const stream = new char;
    simt::queue& q = simt::queues()[stream];
    q.own = true;
    q.finished = simt::finished_by_old_streams;
    ++simt::objects;
    return stream;
  }
  void destroy_stream(void* stream) const noexcept override {
    const std::lock_guard lock(simt::mutex);
    simt::finish(stream);
    simt::finished_by_old_streams = std::max(simt::finished_by_old_streams, simt::queues()[stream].finished);
    simt::queues().erase(stream);
    delete static_cast<char*>(stream);
    --simt::objects;
  }

  event record_event(void* stream) const override {
    auto e = std::make_unique<emulated_event>();
    e->at = std::make_shared<simt::stream_position>(simt::stream_position{stream, 0});
    simt::enqueue(stream, [at = e->at] {
      const std::lock_guard lock(simt::mutex);
      at->until = simt::queues()[at->stream].end();
    });
    if (simt::is_recorded(stream)) e->recorded = simt::position_of(stream);
    ++simt::objects;
    return e.release();
  }
  bool reached(event e) const override {
    // The first question comes too early, every later one does not.
    const std::lock_guard lock(simt::mutex);
    auto& known = *static_cast<emulated_event*>(e);
    if (known.recorded != nullptr) simt::refuse("event");
    if (known.waited) return true;
    if (!std::exchange(known.asked, true)) return false;
    simt::finish(known.at->stream, known.at->until);
    known.waited = true;
    return true;
  }
  void wait_for_event(event e) const override {
    ++simt::waits;
    const std::lock_guard lock(simt::mutex);
    auto& known = *static_cast<emulated_event*>(e);
    if (known.recorded != nullptr) simt::refuse("event");
    simt::finish(known.at->stream, known.at->until);
    known.waited = true;
  }
  void wait_in_stream(void* stream, event e) const override {
    const auto& known = *static_cast<const emulated_event*>(e);
    if (known.recorded == nullptr) {
      // A recording cannot wait for work outside of it.
      simt::not_recorded("event", stream);
    } else if (!simt::continue_after(stream, *known.recorded)) {
      simt::refuse("event");
    }
    simt::enqueue(stream, [stream, at = known.at] { simt::enqueue_wait(stream, *at); });
  }
  void destroy_event(event e) const noexcept override {
    delete static_cast<emulated_event*>(e);
    --simt::objects;
  }
};

constinit const emulated_memory memory_of_emulator;
const backend emulator{&memory_of_emulator, &built_kernels()};
[[maybe_unused]] const bool registered = (register_backend(&emulator), true);

}  // namespace
}  // namespace stash::encoders::device
