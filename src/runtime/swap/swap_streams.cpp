// SPDX-License-Identifier: Apache-2.0
// Copies between a device and pinned memory of the host, enqueued in one stream for each direction. Nothing
// runs here but calls of the user: they enqueue what was asked for, and what may come back ahead of use.

#include <algorithm>
#include <utility>

#include "encoders/detail.hpp"
#include "encoders/device/device_memory.hpp"
#include "runtime/memory/deferred_free.hpp"
#include "runtime/memory/quiet_waits.hpp"
#include "runtime/memory/stash_access.hpp"
#include "runtime/swap/swap_core.hpp"

namespace stash::runtime {
namespace {

struct stream {
  stream() : handle(device::create_stream()) {}
  ~stream() { device::destroy_stream(handle); }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  void* handle;
};

/// Whoever asks the device next hears of errors.
void release_quietly(deferred_free& memory, std::size_t bytes, void* stream) noexcept {
  try {
    memory.release_until(bytes, stream);
  } catch (const std::exception&) {
  }
}

class swap_streams final : public swap_core {
 public:
  using swap_core::swap_core;
  ~swap_streams() override {
    while (reclaim_locked()) {
    }
  }
  swap_streams(const swap_streams&) = delete;
  swap_streams& operator=(const swap_streams&) = delete;

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
  /// A block on the host that copies still use, and the events after them (either may be null).
  struct retired {
    host_block block;
    device::event out, in;
  };

  void note_freed(std::size_t bytes, void* stream) noexcept override;
  void settle(void* stream) noexcept;
  void advance() override;
  void look() override;
  bool reclaim() override;
  bool reclaim_locked() noexcept;
  void release(const retired& block) noexcept;
  void enqueue_in(swap_record& r, const execution_context* context);
  unsigned char* allocate_here(std::size_t bytes);
  void give_back_here(swap_record& r, void* in_stream) noexcept;
  /// The new event comes after the work that `stream` has, and so after the old one.
  void replace_event(swap_record& r, void* stream);
  void end_in(swap_record& r) noexcept;

  stream out_, in_;
  std::vector<retired> retired_;
  deferred_free leaving_;    ///< of tensors given by move: their copies, in out_, use it last
  deferred_free after_use_;  ///< of what came back: layers, in their streams, use it last
};

/// Work of `stream` from now on comes after the work that `earlier` has.
void order(void* stream, void* earlier) {
  const device::event e = device::record_event(earlier);
  try {
    device::wait_in_stream(stream, e);
  } catch (...) {
    device::destroy_event(e);
    throw;
  }
  device::destroy_event(e);
}

void swap_streams::out(swap_record& r, stashed_tensor* owned, const execution_context& context) {
  const std::lock_guard lock(mutex_);
  look();
  add(r);
  try {
    order(out_.handle, context.stream);
    while (r.out.done != r.bytes) {
      const std::size_t offset = r.out.done, bytes = chunk_out(r, offset);
      hook_({true, r.name, offset, bytes});
      device::copy(r.host.data + offset, source_at(r, offset), bytes, out_.handle);
      r.out.done += bytes;
    }
    r.out.event = device::record_event(out_.handle);
  } catch (...) {
    ++counted_.failures;
    const swap_failure failure = current_failure();
    // What has been enqueued still reads and writes.
    wait_quietly(out_.handle);
    remove(r);
    throw_failure("swapper::swap_out", r, true, failure);
  }
  counted_.bytes_out += r.bytes;
  r.out.stage = swap_stage::ended;
  r.out.lent = owned == nullptr;
  if (owned == nullptr) return;
  leaving_.keep(stash_access::take_block(*owned), out_.handle);
  // In the caller's stream, where layers take memory next; it is not held up while that is within the limit.
  release_quietly(leaving_, options_.leaving_limit_bytes, context.stream);
}

void swap_streams::wait_out(swap_record& r, const execution_context& context) {
  device::wait_in_stream(context.stream, r.out.event);
  r.out.lent = false;
}

bool swap_streams::out_ended(swap_record& r) {
  return device::reached(r.out.event);
}

/// The stage is `ended` once the copy has been enqueued.
void swap_streams::enqueue_in(swap_record& r, const execution_context* context) {
  const bool own = !r.in.elsewhere;
  try {
    // Before memory is taken: what was freed before the tensor left is available then.
    device::wait_in_stream(in_.handle, r.out.event);
    if (own) {
      const std::size_t used = counted_.resident_bytes + r.bytes, limit = options_.residency_limit_bytes;
      after_use_.release_until(limit - std::min(limit, used), in_.handle);
      leaving_.release_until(SIZE_MAX, in_.handle);
      r.in.here = allocate_here(r.bytes);
      count_resident(r.bytes);
    } else if (context != nullptr) {
      order(in_.handle, context->stream);
    }
    unsigned char* const target = own ? r.in.here : r.in.to;
    for (std::size_t offset = 0; offset != r.bytes;) {
      const std::size_t bytes = std::min(options_.chunk_bytes, r.bytes - offset);
      hook_({false, r.name, offset, bytes});
      device::copy(target + offset, r.host.data + offset, bytes, in_.handle);
      offset += bytes;
    }
    // Of the same stream: whoever waits for the new one has waited for the old one.
    replace_event(r, in_.handle);
  } catch (...) {
    ++counted_.failures;
    wait_quietly(in_.handle);
    if (own && r.in.here != nullptr) give_back_here(r, in_.handle);
    throw;
  }
  counted_.bytes_in += r.bytes;
  r.in.begun = true;
  r.in.stream = in_.handle;
  r.in.stage = swap_stage::ended;
}

/// What is kept for later is given up before there is no memory.
unsigned char* swap_streams::allocate_here(std::size_t bytes) {
  const auto allocate = [&] {
    return static_cast<unsigned char*>(options_.memory->allocate(bytes, stash_access::alignment, in_.handle));
  };
  try {
    return allocate();
  } catch (const error& e) {
    if (e.code() != errc::out_of_memory || after_use_.kept_bytes() + leaving_.kept_bytes() == 0) throw;
  }
  after_use_.release_until(0, in_.handle);
  leaving_.release_until(0, in_.handle);
  return allocate();
}

void swap_streams::advance() {
  while (!closed_) {
    swap_record* const r = next_in(false);
    if (r == nullptr) return;
    try {
      enqueue_in(*r, nullptr);
    } catch (...) {
      r->in.failure = current_failure();
      r->in.given_up = true;
      r->in.stage = r->in.asked ? swap_stage::failed : swap_stage::none;
    }
  }
}

void swap_streams::begin_in(swap_record& r, const execution_context& /*context*/) {
  const std::lock_guard lock(mutex_);
  r.in.asked = true;
  if (r.in.stage == swap_stage::none || r.in.stage == swap_stage::failed) r.in.stage = swap_stage::queued;
  r.in.urgent = false;
  advance();
}

void swap_streams::begin_in_to(swap_record& r, void* to, const execution_context& context) {
  const std::lock_guard lock(mutex_);
  begin_elsewhere(r, to);
  if (r.in.forwarded) return;
  try {
    enqueue_in(r, &context);
  } catch (...) {
    r.in.failure = current_failure();
    r.in.stage = swap_stage::failed;
  }
}

void* swap_streams::wait_in(swap_record& r, const execution_context& context) {
  bool late = false;
  void* result = nullptr;
  {
    const std::lock_guard lock(mutex_);
    // What failed before this call is said by this call.
    if (r.in.stage == swap_stage::failed && !r.in.urgent) {
      r.in.urgent = true;
      throw_failure("swapped::wait_in", r, false, r.in.failure);
    }
    if (r.in.stage != swap_stage::ended) {
      if (r.in.stage != swap_stage::failed) r.in.late = true;
      try {
        enqueue_in(r, &context);
      } catch (...) {
        r.in.failure = current_failure();
        r.in.stage = swap_stage::failed;
        r.in.urgent = true;
        throw_failure("swapped::wait_in", r, false, r.in.failure);
      }
    }
    device::wait_in_stream(context.stream, r.in.event);
    r.in.urgent = r.in.asked = false;
    r.in.served = true;
    late = count_late(r);
    r.out.lent = false;
    result = r.in.here;
    if (r.in.elsewhere) {
      result = r.in.to;
      r.in.elsewhere = false;
      end_in(r);
    } else if (r.in.forwarded) {
      result = r.in.to;
      copy_here(result, r.in.here, r.bytes, context);
      if (r.in.handed) {
        // Whoever leaves it may do so in another stream.
        replace_event(r, context.stream);
        r.in.read = true;
        r.in.forwarded = false;
      } else {
        r.in.forwarded = false;
        give_back_here(r, context.stream);
        end_in(r);
        advance();
      }
    } else {
      r.in.handed = true;
      r.in.stream = context.stream;
    }
  }
  if (late) tell_late(r, 0);
  return result;
}

/// Keeps the event: the block on the host is read until it is reached.
void swap_streams::end_in(swap_record& r) noexcept {
  r.in.stage = swap_stage::none;
  r.in.begun = r.in.handed = false;
}

void swap_streams::replace_event(swap_record& r, void* stream) {
  const device::event e = device::record_event(stream);
  if (r.in.event != nullptr) device::destroy_event(r.in.event);
  r.in.event = e;
}

void swap_streams::give_back_here(swap_record& r, void* in_stream) noexcept {
  if (std::exchange(r.in.read, false)) {
    try {
      device::wait_in_stream(in_stream, r.in.event);
    } catch (const std::exception&) {
      wait_quietly_for(r.in.event);
    }
  }
  const kept_block block{options_.memory, std::exchange(r.in.here, nullptr), r.bytes};
  counted_.resident_bytes -= r.bytes;
  const std::size_t all = counted_.resident_bytes + after_use_.kept_bytes() + r.bytes;
  // For those that come next, whose memory is of in_.
  if (in_stream != in_.handle && !closed_ && more_may_come() && all <= options_.residency_limit_bytes) {
    after_use_.keep(block, in_stream);
    return;
  }
  options_.memory->deallocate(block.data, block.bytes, stash_access::alignment, in_stream);
  if (in_stream != in_.handle) note_freed(r.bytes, in_stream);
}

void swap_streams::note_freed(std::size_t bytes, void* stream) noexcept {
  after_use_.note(bytes, stream);
  settle(stream);
}

/// Nothing is kept for those that come next if none are left.
void swap_streams::settle(void* stream) noexcept {
  if (!more_may_come()) after_use_.free_in(stream);
}

void swap_streams::leave(swap_record& r, const execution_context& context) {
  const std::lock_guard lock(mutex_);
  if (!r.in.handed) return;
  if (r.in.forwarded) {
    // wait_in() still copies from it, and frees it, after what the context's stream does with it.
    device::wait_in_stream(context.stream, r.in.event);
    replace_event(r, context.stream);
    r.in.stream = context.stream;
    r.in.handed = false;
    return;
  }
  give_back_here(r, context.stream);
  end_in(r);
  advance();
}

void swap_streams::forget(swap_record& r) noexcept {
  const std::lock_guard lock(mutex_);
  remove(r);
  if (r.out.lent && r.out.event != nullptr) wait_quietly_for(r.out.event);
  if (r.in.stage == swap_stage::ended && r.in.elsewhere) wait_quietly_for(r.in.event);
  if (r.in.here != nullptr) give_back_here(r, r.in.stream);
  settle(in_.handle);
  if (records_.empty()) release_quietly(leaving_, SIZE_MAX, in_.handle);
  const retired block{std::exchange(r.host, {}), std::exchange(r.out.event, nullptr),
                      std::exchange(r.in.event, nullptr)};
  try {
    retired_.push_back(block);
  } catch (const std::bad_alloc&) {
    release(block);
  }
  look();
  advance();
}

void swap_streams::look() {
  const auto ended = [&](const retired& r) {
    if ((r.out != nullptr && !has_been_reached(r.out)) || (r.in != nullptr && !has_been_reached(r.in)))
      return false;
    release(r);
    return true;
  };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), ended), retired_.end());
}

bool swap_streams::reclaim() {
  const std::lock_guard lock(mutex_);
  return reclaim_locked();
}

bool swap_streams::reclaim_locked() noexcept {
  if (retired_.empty()) return false;
  release(retired_.front());
  retired_.erase(retired_.begin());
  return true;
}

/// Waits, if the copies have not ended.
void swap_streams::release(const retired& block) noexcept {
  for (const device::event e : {block.out, block.in}) {
    if (e == nullptr) continue;
    wait_quietly_for(e);
    device::destroy_event(e);
  }
  blocks_.give(block.block);
}

void swap_streams::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  wait_quietly(out_.handle);
  wait_quietly(in_.handle);
  leaving_.free_in(out_.handle);
  after_use_.free_in(in_.handle);
  while (reclaim_locked()) {
  }
}

void swap_streams::copy_here(void* to, const void* from, std::size_t bytes,
                             const execution_context& context) {
  if (bytes != 0) device::copy(to, from, bytes, context.stream);
}

}  // namespace

std::shared_ptr<swap_core> make_swap_streams(const swapper_options& options, const swap_hook& hook) {
  return std::make_shared<swap_streams>(options, hook);
}

}  // namespace stash::runtime
