// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_core.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "encoders/detail.hpp"
#include "encoders/message.hpp"
#include "runtime/memory/stash_access.hpp"

namespace stash::runtime {

swap_core::swap_core(const swapper_options& options, const swap_hook& hook)
    : options_(options),
      hook_(hook),
      blocks_(*options.host, options.host_limit_bytes),
      process_(static_cast<long>(getpid())) {}

bool swap_core::elsewhere() const noexcept {
  return static_cast<long>(getpid()) != process_;
}

void swap_core::abandon(const std::shared_ptr<swap_core>& self) noexcept {
  if (!abandoned_.exchange(true)) self_ = self;
}

bool swap_core::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

host_block swap_core::take_block(std::size_t bytes) {
  for (;;) {
    const host_block block = blocks_.take(bytes);
    if (block.data != nullptr || !reclaim()) return block;
  }
}

void swap_core::abandon_elsewhere(swap_record& r) noexcept {
  const std::lock_guard lock(mutex_);
  if ((!r.in.elsewhere && !r.in.forwarded) || goes_elsewhere(r)) return;
  r.in.stage = swap_stage::none;
  r.in.elsewhere = r.in.forwarded = r.in.urgent = r.in.asked = false;
}

void swap_core::claim(std::string_view function, swap_record& r) {
  abandon_elsewhere(r);
  const std::lock_guard lock(mutex_);
  if (!goes_elsewhere(r)) return;
  encoders::fail(errc::invalid_argument, function, r.name.empty() ? "this" : shortened(r.name),
                 "a tensor that comes to the swapper's memory", "one that was asked for elsewhere");
}

bool swap_core::goes_elsewhere(const swap_record& r) noexcept {
  return (r.in.elsewhere || r.in.forwarded) && r.in.stage != swap_stage::failed &&
         r.out.stage != swap_stage::failed;
}

void swap_core::begin_elsewhere(swap_record& r, void* to) {
  if (goes_elsewhere(r)) {
    encoders::fail(errc::invalid_argument, "swapped::swap_in", r.name.empty() ? "this" : shortened(r.name),
                   "a tensor that is not under way to the caller's memory", "one that is");
  }
  r.in.asked = true;
  r.in.urgent = false;
  r.in.to = static_cast<unsigned char*>(to);
  r.in.forwarded = r.in.begun && !r.in.elsewhere;
  r.in.elsewhere = !r.in.forwarded;
}

bool swap_core::comes_here(const swap_record& r) const {
  const std::lock_guard lock(mutex_);
  return r.in.begun;
}

bool swap_core::handed_out(const swap_record& r) const {
  const std::lock_guard lock(mutex_);
  return r.in.handed;
}

stashed_tensor swap_core::borrow(swap_record& r, std::string name,
                                 const execution_context& context) noexcept {
  const std::lock_guard lock(mutex_);
  return stash_access::adopt(r.how, r.type, r.dims, std::move(name), *options_.memory, context.stream,
                             r.in.here, r.encoded_bytes);
}

stashed_tensor swap_core::take(swap_record& r, std::string name, const execution_context& context) noexcept {
  stashed_tensor tensor = borrow(r, std::move(name), context);
  const std::lock_guard lock(mutex_);
  r.in.here = nullptr;
  r.in.stage = swap_stage::none;
  r.in.asked = r.in.begun = r.in.handed = r.in.read = false;
  r.in.done = 0;
  counted_.resident_bytes -= r.bytes;
  note_freed(r.bytes, context.stream);
  advance();
  return tensor;
}

void swap_core::reached(std::int64_t position) {
  const std::lock_guard lock(mutex_);
  const bool new_round = !started_ || position < position_;
  for (swap_record* r : records_) {
    if (new_round) r->in.served = false;
    r->in.given_up = false;
  }
  started_ = true;
  position_ = position;
  known_ = numbers_;
  advance();
}

swap_statistics swap_core::statistics() {
  const std::lock_guard lock(mutex_);
  look();
  swap_statistics now = counted_;
  now.host_bytes = blocks_.bytes_in_use();
  now.host_peak_bytes = blocks_.peak_bytes();
  for (const swap_record* r : records_) {
    if (r->out.stage == swap_stage::queued) now.bytes_in_flight += r->bytes - r->out.done;
    if (r->in.stage == swap_stage::queued) now.bytes_in_flight += r->bytes - r->in.done;
  }
  return now;
}

void swap_core::add(swap_record& r) {
  records_.push_back(&r);
  r.number = numbers_++;
}

void swap_core::remove(swap_record& r) noexcept {
  const auto found = std::find(records_.begin(), records_.end(), &r);
  if (found == records_.end()) return;
  *found = records_.back();
  records_.pop_back();
}

bool swap_core::before(const swap_record& a, bool a_urgent, const swap_record& b, bool b_urgent) noexcept {
  if (a_urgent != b_urgent) return a_urgent;
  if (a.priority != b.priority) return a.priority > b.priority;
  const bool a_known = a.needed_at != swap_request::unknown, b_known = b.needed_at != swap_request::unknown;
  if (a_known != b_known) return a_known;
  if (a.needed_at != b.needed_at) return a.needed_at < b.needed_at;
  return a.number < b.number;
}

bool swap_core::may_come_ahead(const swap_record& r) const noexcept {
  if (!started_ || r.needed_at == swap_request::unknown || r.needed_at < position_) return false;
  // Neither difference can overflow where it is looked at.
  const auto distance = static_cast<std::uint64_t>(r.needed_at) - static_cast<std::uint64_t>(position_);
  return distance <= static_cast<std::uint64_t>(options_.ahead) && r.number < known_ && !r.in.served &&
         !r.in.given_up;
}

bool swap_core::fits(const swap_record& r) const noexcept {
  const std::size_t limit = options_.residency_limit_bytes;
  return r.bytes <= limit && counted_.resident_bytes <= limit - r.bytes;
}

swap_record* swap_core::next_in(bool only_asked) noexcept {
  swap_record *first = nullptr, *unlimited = nullptr;
  for (swap_record* r : records_) {
    if (r->out.stage != swap_stage::ended || r->busy_in || r->forgotten) continue;
    const bool takes_no_memory = r->in.begun || r->in.urgent || r->in.elsewhere;
    if (r->in.stage == swap_stage::none) {
      if (only_asked || !may_come_ahead(*r)) continue;
    } else if (r->in.stage != swap_stage::queued || (only_asked && !takes_no_memory)) {
      continue;
    }
    // What never fits must not stand in the way of what does.
    if (!takes_no_memory && r->bytes > options_.residency_limit_bytes) continue;
    if (first == nullptr || before(*r, r->in.urgent, *first, first->in.urgent)) first = r;
    if (takes_no_memory &&
        (unlimited == nullptr || before(*r, r->in.urgent, *unlimited, unlimited->in.urgent))) {
      unlimited = r;
    }
  }
  // Nobody overtakes the one that waits for memory, except those that need none.
  if (first != nullptr && first != unlimited && !fits(*first)) return unlimited;
  return first;
}

bool swap_core::more_may_come() const noexcept {
  return std::any_of(records_.begin(), records_.end(),
                     [](const swap_record* r) { return !r->in.begun && !r->in.served; });
}

void swap_core::count_resident(std::size_t bytes) noexcept {
  counted_.resident_bytes += bytes;
  counted_.resident_peak_bytes = std::max(counted_.resident_peak_bytes, counted_.resident_bytes);
}

bool swap_core::count_late(swap_record& r) noexcept {
  const bool late = std::exchange(r.in.late, false);
  if (late) ++counted_.late;
  return late;
}

void swap_core::tell_late(const swap_record& r, std::size_t there) const noexcept {
  options_.events({event_kind::late, r.name, r.bytes, there, -1});
}

std::size_t swap_core::chunk_out(const swap_record& r, std::size_t offset) const noexcept {
  const std::size_t end = offset < r.first_run ? r.first_run : r.bytes;
  return std::min(options_.chunk_bytes, end - offset);
}

const unsigned char* swap_core::source_at(const swap_record& r, std::size_t offset) noexcept {
  return offset < r.first_run ? r.from[0] + offset : r.from[1] + (offset - r.first_run);
}

swap_failure current_failure() noexcept {
  swap_failure failure;
  const auto note = [&](errc code, std::string_view text) {
    failure.code = code;
    std::memcpy(failure.cause.data(), text.data(), std::min(text.size(), failure.cause.size() - 1));
  };
  try {
    throw;
  } catch (const error& e) {
    note(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    note(errc::out_of_memory, "no memory");
  } catch (const std::exception& e) {
    note(errc::internal, e.what());
  } catch (...) {
    note(errc::internal, "an unknown exception");
  }
  return failure;
}

void throw_failure(std::string_view function, const swap_record& r, bool out, const swap_failure& failure) {
  encoders::fail(failure.code, function, r.name.empty() ? "tensor" : shortened(r.name),
                 fmt::format("{} bytes to be copied {} the host", r.bytes, out ? "to" : "from"),
                 failure.cause.data());
}

}  // namespace stash::runtime
