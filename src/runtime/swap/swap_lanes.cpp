// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "runtime/swap/swap_lanes.hpp"

namespace stash::runtime {

swap_threads::swap_threads(swap_work& work) : work_(work), ended_(work.program.tasks.size(), 0) {
  for (const swap_lane lane : {swap_lane::out, swap_lane::in}) {
    if (!work.order[index(lane)].empty()) threads_.emplace_back([this, lane] { serve(lane); });
  }
}

swap_threads::~swap_threads() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_)
    t.join();
}

void swap_threads::serve(swap_lane lane) {
  std::uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || run_ != seen; });
      if (closing_) return;
      seen = run_;
    }
    run_lane(lane, [&](std::int32_t task) {
      const std::int64_t total = work_.bytes_to_copy(task);
      while (work_.copied[static_cast<std::size_t>(task)] < total) {
        if (stopping()) return false;
        work_.copy_chunk(task, total);
      }
      return true;
    });
    {
      const std::lock_guard lock(mutex_);
      --busy_;
    }
    changed_.notify_all();
  }
}

bool swap_threads::wait_for(const std::vector<std::int32_t>& tasks) {
  if (tasks.empty()) return !stopping();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    if (stopping()) return true;
    for (const std::int32_t t : tasks) {
      if (ended_[static_cast<std::size_t>(t)] == 0) return false;
    }
    return true;
  });
  return !stopping();
}

void swap_threads::stop(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    stopping_ = true;
  }
  changed_.notify_all();
}

template <class Execute>
void swap_threads::run_lane(swap_lane lane, Execute execute) {
  try {
    for (const std::int32_t task : work_.order[index(lane)]) {
      const auto t = static_cast<std::size_t>(task);
      work_.announce(swap_action::wait, task, work_.waits[t].size());
      if (!wait_for(work_.waits[t])) return;
      work_.times[t].begin = work_.seconds();
      if (!execute(task)) {
        stop(nullptr);
        return;
      }
      work_.end_of(task);
      if (work_.signals[t] == 0) continue;
      work_.announce(swap_action::signal, task);
      {
        const std::lock_guard lock(mutex_);
        ended_[t] = 1;
      }
      changed_.notify_all();
    }
  } catch (...) {
    stop(std::current_exception());
  }
}

bool swap_threads::run(const std::function<bool(std::int32_t)>& compute) {
  {
    const std::lock_guard lock(mutex_);
    std::fill(ended_.begin(), ended_.end(), 0);
    stopping_ = false;
    failure_ = nullptr;
    busy_ = static_cast<int>(threads_.size());
    ++run_;
  }
  changed_.notify_all();
  run_lane(swap_lane::compute, compute);
  std::exception_ptr failure;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return busy_ == 0; });
    failure = std::exchange(failure_, nullptr);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  return !stopping();
}

}  // namespace stash::runtime
