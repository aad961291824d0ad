// SPDX-License-Identifier: Apache-2.0
#include "kernels/workers.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tensorflow/core/lib/core/threadpool.h"

namespace stash_tf {
namespace {

using tensorflow::thread::ThreadPool;

/// Waking a thread takes as long as the work of so many grains.
constexpr std::int64_t grains_of_a_thread = 4;
/// Whoever comes late still finds blocks, and nobody waits long for the last one.
constexpr std::int64_t blocks_of_a_thread = 16;
/// How often the caller looks whether the last blocks are done before it sleeps: some tens of microseconds.
constexpr int looks_before_sleep = 128;

/// A loop, shared by the caller and the workers that help it. The body's state is the caller's: it is there
/// while blocks are.
class shared_loop {
 public:
  using body_function = void (*)(void* state, std::int64_t begin, std::int64_t end);

  shared_loop(std::int64_t count, std::int64_t block, body_function body, void* state)
      : count_(count), block_(block), body_(body), state_(state), left_(count) {}

  bool has_blocks() const { return next_.load(std::memory_order_relaxed) < count_; }

  /// Takes blocks until none is left.
  void work() {
    while (has_blocks()) {
      const std::int64_t begin = next_.fetch_add(block_, std::memory_order_relaxed);
      if (begin >= count_) return;
      const std::int64_t end = std::min(count_, begin + block_);
      body_(state_, begin, end);
      if (left_.fetch_sub(end - begin, std::memory_order_acq_rel) == end - begin) {
        const std::lock_guard<std::mutex> lock(mutex_);
        done_.notify_one();
      }
    }
  }

  void wait() {
    const auto is_done = [this] { return left_.load(std::memory_order_acquire) == 0; };
    for (int look = 0; look < looks_before_sleep; ++look) {
      if (is_done()) return;
      std::this_thread::yield();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, is_done);
  }

 private:
  const std::int64_t count_, block_;
  const body_function body_;
  void* const state_;
  std::atomic<std::int64_t> next_{0}, left_;
  std::mutex mutex_;
  std::condition_variable done_;
};

/// Works on the loop, after handing half of the other helpers to come to each of those that are woken.
void help(const std::shared_ptr<shared_loop>& loop, ThreadPool* workers, std::int64_t helpers) {
  for (std::int64_t more = helpers - 1; more > 0 && loop->has_blocks();) {
    const std::int64_t others = (more + 1) / 2;
    workers->Schedule([loop, workers, others] { help(loop, workers, others); });
    more -= others;
  }
  loop->work();
}

}  // namespace

void run_on_workers(void* user, std::int64_t count, std::int64_t grain,
                    void (*body)(void* state, std::int64_t begin, std::int64_t end), void* state) {
  auto* workers = static_cast<ThreadPool*>(user);
  grain = std::max<std::int64_t>(1, grain);
  const std::int64_t threads =
      std::min<std::int64_t>(workers->NumThreads(), count / grain / grains_of_a_thread);
  if (threads <= 1) return body(state, 0, count);
  const std::int64_t blocks = threads * blocks_of_a_thread;
  const std::int64_t block = std::max(grain, (count + blocks - 1) / blocks);
  const auto loop = std::make_shared<shared_loop>(count, block, body, state);
  help(loop, workers, threads);
  loop->wait();
}

}  // namespace stash_tf
