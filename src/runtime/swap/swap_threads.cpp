// SPDX-License-Identifier: Apache-2.0
// Copies between two regions of host memory, made by one thread for each direction.

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "encoders/detail.hpp"
#include "runtime/memory/stash_access.hpp"
#include "runtime/swap/swap_core.hpp"

namespace stash::runtime {
namespace {

template <class Run>
std::thread made(const Run& run) {
  try {
    return std::thread(run);
  } catch (const std::system_error& e) {
    encoders::fail(errc::out_of_memory, "swapper", "threads", "resources for two", e.code().message());
  }
}

class swap_threads final : public swap_core {
 public:
  swap_threads(const swapper_options& options, const swap_hook& hook) : swap_core(options, hook) {
    out_thread_ = made([this] { run_out(); });
    try {
      in_thread_ = made([this] { run_in(); });
    } catch (...) {
      stop(out_thread_, out_work_, out_stops_);
      throw;
    }
  }
  ~swap_threads() override { swap_threads::close(); }
  swap_threads(const swap_threads&) = delete;
  swap_threads& operator=(const swap_threads&) = delete;

  void out(swap_record& r, stashed_tensor* owned, const execution_context& context) override;
  void wait_out(swap_record& r, const execution_context& context) override;
  bool out_ended(swap_record& r) override;
  void begin_in(swap_record& r, const execution_context& context) override;
  void begin_in_to(swap_record& r, void* to, const execution_context& context) override;
  void* wait_in(swap_record& r, const execution_context& context) override;
  void leave(swap_record& r, const execution_context& context) override;
  void forget(swap_record& r) noexcept override;
  void close() noexcept override;
  void copy_here(void* to, const void* from, std::size_t bytes, const execution_context& context) override;

 private:
  using locked = std::unique_lock<std::mutex>;

  void advance() override { in_work_.notify_one(); }
  void run_out();
  void run_in();
  swap_record* next_out() noexcept;
  void copy_out_chunk(locked& lock, swap_record& r);
  void copy_in_chunk(locked& lock, swap_record& r);
  void await_out(locked& lock, swap_record& r, std::string_view function);
  void give_back(locked& lock, swap_record& r) noexcept;
  void give_back_here(locked& lock, swap_record& r) noexcept;
  void stop(std::thread& thread, std::condition_variable& work, bool& stops) noexcept;

  std::condition_variable out_work_, in_work_;  ///< for the threads
  std::condition_variable changed_;             ///< for those who wait: a copy ended or failed
  bool out_stops_ = false, in_stops_ = false;
  std::thread out_thread_, in_thread_;
};

void swap_threads::out(swap_record& r, stashed_tensor* owned, const execution_context& /*context*/) {
  const std::lock_guard lock(mutex_);
  add(r);
  if (owned != nullptr) r.out.owned = std::move(*owned);
  r.out.stage = r.bytes == 0 ? swap_stage::ended : swap_stage::queued;
  out_work_.notify_one();
}

swap_record* swap_threads::next_out() noexcept {
  swap_record* first = nullptr;
  for (swap_record* r : records_) {
    if (r->out.stage != swap_stage::queued || r->forgotten) continue;
    if (first == nullptr || before(*r, r->out.urgent, *first, first->out.urgent)) first = r;
  }
  return first;
}

void swap_threads::run_out() {
  locked lock(mutex_);
  for (;;) {
    swap_record* const r = next_out();
    if (r != nullptr) {
      copy_out_chunk(lock, *r);
    } else if (out_stops_) {
      return;
    } else {
      out_work_.wait(lock);
    }
  }
}

void swap_threads::copy_out_chunk(locked& lock, swap_record& r) {
  const std::size_t offset = r.out.done, bytes = chunk_out(r, offset);
  r.busy_out = true;
  lock.unlock();
  bool copied = true;
  swap_failure failure;
  try {
    hook_({true, r.name, offset, bytes});
    std::memcpy(r.host.data + offset, source_at(r, offset), bytes);
  } catch (...) {
    copied = false;
    failure = current_failure();
  }
  lock.lock();
  if (copied) {
    r.out.done += bytes;
    counted_.bytes_out += bytes;
    if (r.out.done == r.bytes) {
      stashed_tensor source = std::move(r.out.owned);
      // The memory resource is the caller's, and may take its time.
      lock.unlock();
      source.reset();
      lock.lock();
      r.out.stage = swap_stage::ended;
    }
  } else {
    ++counted_.failures;
    // What has been copied stays copied: the source is the same when this is tried again.
    r.out.failure = failure;
    r.out.told = false;
    r.out.stage = swap_stage::failed;
  }
  r.busy_out = false;
  if (r.out.stage != swap_stage::queued || r.forgotten) {
    changed_.notify_all();
    in_work_.notify_one();
  }
}

void swap_threads::run_in() {
  locked lock(mutex_);
  for (;;) {
    swap_record* const r = next_in(in_stops_);
    if (r != nullptr) {
      copy_in_chunk(lock, *r);
    } else if (in_stops_) {
      return;
    } else {
      in_work_.wait(lock);
    }
  }
}

void swap_threads::copy_in_chunk(locked& lock, swap_record& r) {
  const bool allocates = !r.in.begun && !r.in.elsewhere;
  if (allocates) count_resident(r.bytes);
  r.in.stage = swap_stage::queued;
  r.in.begun = true;
  r.busy_in = true;
  const std::size_t offset = r.in.done, bytes = std::min(options_.chunk_bytes, r.bytes - offset);
  unsigned char* target = r.in.elsewhere ? r.in.to : r.in.here;
  lock.unlock();
  bool copied = true;
  swap_failure failure;
  try {
    if (allocates)
      target = static_cast<unsigned char*>(options_.memory->allocate(r.bytes, stash_access::alignment));
    if (bytes != 0) {
      hook_({false, r.name, offset, bytes});
      std::memcpy(target + offset, r.host.data + offset, bytes);
    }
  } catch (...) {
    copied = false;
    failure = current_failure();
  }
  lock.lock();
  if (!r.in.elsewhere) r.in.here = target;
  if (copied) {
    r.in.done += bytes;
    counted_.bytes_in += bytes;
    if (r.in.done == r.bytes) r.in.stage = swap_stage::ended;
  } else {
    ++counted_.failures;
    if (!r.in.elsewhere) give_back_here(lock, r);
    r.in.begun = false;
    r.in.done = 0;
    r.in.failure = failure;
    r.in.given_up = true;
    r.in.stage = r.in.asked ? swap_stage::failed : swap_stage::none;
  }
  r.busy_in = false;
  if (r.in.stage != swap_stage::queued || r.forgotten) changed_.notify_all();
}

void swap_threads::give_back_here(locked& lock, swap_record& r) noexcept {
  unsigned char* const here = std::exchange(r.in.here, nullptr);
  counted_.resident_bytes -= r.bytes;
  if (here == nullptr) return;
  lock.unlock();
  options_.memory->deallocate(here, r.bytes, stash_access::alignment);
  lock.lock();
}

void swap_threads::await_out(locked& lock, swap_record& r, std::string_view function) {
  if (r.out.stage == swap_stage::failed && r.out.told) {
    r.out.stage = swap_stage::queued;
    out_work_.notify_one();
  }
  r.out.urgent = true;
  changed_.wait(lock, [&] { return r.out.stage != swap_stage::queued; });
  r.out.urgent = false;
  if (r.out.stage == swap_stage::ended) return;
  r.out.told = true;
  throw_failure(function, r, true, r.out.failure);
}

void swap_threads::wait_out(swap_record& r, const execution_context& /*context*/) {
  locked lock(mutex_);
  await_out(lock, r, "swapped::wait_out");
}

bool swap_threads::out_ended(swap_record& r) {
  const std::lock_guard lock(mutex_);
  return r.out.stage == swap_stage::ended;
}

void swap_threads::begin_in(swap_record& r, const execution_context& /*context*/) {
  const std::lock_guard lock(mutex_);
  r.in.asked = true;
  if (r.in.stage == swap_stage::none || r.in.stage == swap_stage::failed) {
    r.in.stage = swap_stage::queued;
    r.in.urgent = false;
  }
  in_work_.notify_one();
}

void swap_threads::begin_in_to(swap_record& r, void* to, const execution_context& /*context*/) {
  const std::lock_guard lock(mutex_);
  begin_elsewhere(r, to);
  if (r.in.elsewhere) r.in.stage = swap_stage::queued;
  in_work_.notify_one();
}

void* swap_threads::wait_in(swap_record& r, const execution_context& /*context*/) {
  std::size_t there = r.bytes;
  bool late = false;
  void* result = nullptr;
  {
    locked lock(mutex_);
    const bool was_late = r.in.stage != swap_stage::ended && !r.in.urgent && r.in.stage != swap_stage::failed;
    if (r.in.stage != swap_stage::ended) there = r.in.done;
    await_out(lock, r, "swapped::wait_in");
    if (was_late) r.in.late = true;
    // What failed before this call is said by this call.
    if (r.in.stage == swap_stage::none || (r.in.stage == swap_stage::failed && r.in.urgent)) {
      r.in.stage = swap_stage::queued;
    }
    r.in.asked = r.in.urgent = true;
    in_work_.notify_one();
    changed_.wait(lock, [&] { return r.in.stage != swap_stage::queued; });
    // `urgent` stays set after a failure that somebody has heard of.
    if (r.in.stage == swap_stage::failed) throw_failure("swapped::wait_in", r, false, r.in.failure);
    r.in.urgent = r.in.asked = false;
    r.in.served = true;
    late = count_late(r);
    result = r.in.here;
    if (!r.in.elsewhere && !r.in.forwarded) r.in.handed = true;
    if (r.in.elsewhere) {
      result = r.in.to;
      r.in.stage = swap_stage::none;
      r.in.elsewhere = r.in.begun = false;
      r.in.done = 0;
    }
  }
  if (r.in.forwarded) {
    result = r.in.to;
    if (r.bytes != 0) std::memcpy(result, r.in.here, r.bytes);
    locked lock(mutex_);
    r.in.forwarded = false;
    if (!r.in.handed) give_back(lock, r);
  }
  if (late) tell_late(r, there);
  return result;
}

void swap_threads::leave(swap_record& r, const execution_context& /*context*/) {
  locked lock(mutex_);
  if (!r.in.handed) return;
  r.in.handed = false;
  // wait_in() still copies from it, and gives it back.
  if (!r.in.forwarded) give_back(lock, r);
}

void swap_threads::give_back(locked& lock, swap_record& r) noexcept {
  r.in.stage = swap_stage::none;
  r.in.begun = r.in.handed = false;
  r.in.done = 0;
  give_back_here(lock, r);
  in_work_.notify_one();
}

void swap_threads::forget(swap_record& r) noexcept {
  locked lock(mutex_);
  r.forgotten = true;
  changed_.wait(lock, [&] { return !r.busy_out && !r.busy_in; });
  remove(r);
  const bool here = r.in.begun && !r.in.elsewhere;
  if (here) give_back_here(lock, r);
  lock.unlock();
  r.out.owned.reset();
  blocks_.give(std::exchange(r.host, {}));
  in_work_.notify_one();
}

void swap_threads::stop(std::thread& thread, std::condition_variable& work, bool& stops) noexcept {
  {
    const std::lock_guard lock(mutex_);
    stops = true;
  }
  work.notify_one();
  if (thread.joinable()) thread.join();
}

void swap_threads::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  stop(out_thread_, out_work_, out_stops_);
  // What comes back may have waited for its way out.
  stop(in_thread_, in_work_, in_stops_);
}

void swap_threads::copy_here(void* to, const void* from, std::size_t bytes,
                             const execution_context& /*context*/) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

}  // namespace

std::shared_ptr<swap_core> make_swap_threads(const swapper_options& options, const swap_hook& hook) {
  return std::make_shared<swap_threads>(options, hook);
}

}  // namespace stash::runtime
