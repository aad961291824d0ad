// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_device.hpp"

#include <array>
#include <utility>

#include "encoders/device/device_memory.hpp"
#include "runtime/swap/swap_lanes.hpp"

namespace stash::runtime {

namespace device = stash::encoders::device;

namespace {

/// An event that goes when this does: work that waits for it is not affected.
class mark {
 public:
  mark() = default;
  explicit mark(void* stream) : event_(device::record_event(stream)) {}
  mark(mark&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  mark& operator=(mark&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~mark() {
    if (event_ != nullptr) device::destroy_event(event_);
  }
  void hold_back(void* stream) const { device::wait_in_stream(stream, event_); }

 private:
  device::event event_ = nullptr;
};

}  // namespace

struct device_swap_engine::streams {
  streams() : out(device::create_stream()) {
    try {
      in = device::create_stream();
    } catch (...) {
      device::destroy_stream(out);
      throw;
    }
  }
  ~streams() {
    device::destroy_stream(out);
    device::destroy_stream(in);
  }
  streams(const streams&) = delete;
  streams& operator=(const streams&) = delete;

  void* stream_of(swap_lane lane, void* compute) const {
    return lane == swap_lane::compute ? compute : lane == swap_lane::out ? out : in;
  }
  /// The copies' streams go on after what `compute` holds, or the other way round.
  void fork(void* compute) const {
    const mark begin(compute);
    begin.hold_back(out);
    begin.hold_back(in);
  }
  void join(void* compute) const {
    mark(out).hold_back(compute);
    mark(in).hold_back(compute);
  }

  void* out;
  void* in = nullptr;
};

device_swap_engine::device_swap_engine(swap_program program, const swap_memory& memory,
                                       device_swap_settings settings)
    : settings_(std::move(settings)) {
  swap_settings work;
  work.chunk_bytes = settings_.chunk_bytes;
  work.before = settings_.before;
  work_ = std::make_unique<swap_work>(std::move(program), memory, std::move(work), settings_.allow_races);
  streams_ = std::make_unique<streams>();
}

device_swap_engine::~device_swap_engine() {
  try {
    device::wait_for_stream(streams_->out);
    device::wait_for_stream(streams_->in);
  } catch (const std::exception&) {
    // A device that is lost has nothing to wait for.
  }
}

const swap_program& device_swap_engine::program() const noexcept {
  return work_->program;
}

void device_swap_engine::enqueue(void* stream, const std::function<void(std::int32_t)>& compute) {
  streams_->fork(stream);
  try {
    lane(stream, compute);
  } catch (...) {
    try {
      streams_->join(stream);
    } catch (const std::exception&) {
      // The first failure is the one to report.
    }
    throw;
  }
  streams_->join(stream);
}

void device_swap_engine::lane(void* stream, const std::function<void(std::int32_t)>& compute) {
  const std::size_t n = work_->program.tasks.size();
  std::vector<mark> ended(n);
  for (std::size_t t = 0; t < n; ++t) {
    const auto id = static_cast<std::int32_t>(t);
    const swap_task& task = work_->program.tasks[t];
    void* const own = streams_->stream_of(task.lane, stream);
    work_->on(swap_action::wait, id, work_->waits[t].size(),
              [&](std::size_t i) { ended[static_cast<std::size_t>(work_->waits[t][i])].hold_back(own); });
    if (task.lane == swap_lane::compute) {
      compute(id);
    } else {
      const std::int64_t bytes = settings_.sizes_are_known ? work_->bytes_to_copy(id) : task.bytes;
      const std::int64_t chunk = settings_.chunk_bytes;
      work_->on(swap_action::copy, id, static_cast<std::size_t>((bytes + chunk - 1) / chunk),
                [&](std::size_t i) {
                  const std::int64_t done = static_cast<std::int64_t>(i) * chunk;
                  device::copy(work_->block(id, 1) + done, work_->block(id, 0) + done,
                               static_cast<std::size_t>(std::min(chunk, bytes - done)), own);
                });
    }
    work_->on(swap_action::signal, id, work_->signals[t] != 0 ? 1 : 0,
              [&](std::size_t) { ended[t] = mark(own); });
  }
}

}  // namespace stash::runtime
