// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What swappers of the host and of a device share: the tensors, their order, what may come back ahead of
/// use, and what is counted. Copies are made by the two classes derived from this (swap_threads,
/// swap_streams).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/memory/host_blocks.hpp"
#include "runtime/swap/swap_record.hpp"
#include "stash/swap.hpp"

namespace stash::runtime {

/// The calls are those of `swapped` and `swapper`, whose arguments have been checked; all but the constructor
/// may be made by several threads, for one record by one at a time.
class swap_core {
 public:
  swap_core(const swapper_options& options, const swap_hook& hook);
  virtual ~swap_core() = default;
  swap_core(const swap_core&) = delete;
  swap_core& operator=(const swap_core&) = delete;

  memory_space space() const noexcept { return options_.space; }
  /// Whether this process was forked from the one that made the swapper: its threads are not here, and its
  /// locks may be held by them for good. Nothing but abandon() may be called then.
  bool elsewhere() const noexcept;
  /// `self`, which is this, is never destroyed: even that would wait for threads.
  void abandon(const std::shared_ptr<swap_core>& self) noexcept;
  bool closed() const;
  /// Memory on the host; empty if there is none.
  host_block take_block(std::size_t bytes);
  void give_block(host_block block) noexcept { blocks_.give(block); }
  std::size_t host_limit() const noexcept { return blocks_.limit(); }
  std::size_t host_bytes() const noexcept { return blocks_.bytes_in_use(); }

  /// Begins. `owned`, if not null, is moved from if this succeeds, as is nothing if it throws.
  virtual void out(swap_record& r, stashed_tensor* owned, const execution_context& context) = 0;
  virtual void wait_out(swap_record& r, const execution_context& context) = 0;
  virtual bool out_ended(swap_record& r) = 0;
  virtual void begin_in(swap_record& r, const execution_context& context) = 0;
  virtual void begin_in_to(swap_record& r, void* to, const execution_context& context) = 0;
  virtual void* wait_in(swap_record& r, const execution_context& context) = 0;
  virtual void leave(swap_record& r, const execution_context& context) = 0;
  /// What failed on its way to the caller's memory goes there no longer.
  void abandon_elsewhere(swap_record& r) noexcept;
  /// The same; throws error(invalid_argument) for a tensor that is on its way to the caller's memory.
  void claim(std::string_view function, swap_record& r);
  /// Whether the tensor is, or begins to be, in this swapper's memory.
  bool comes_here(const swap_record& r) const;
  /// Whether memory that wait_in() has said waits for leave().
  bool handed_out(const swap_record& r) const;
  /// Of a record that wait_in() brought to this swapper's memory.
  stashed_tensor take(swap_record& r, std::string name, const execution_context& context) noexcept;
  /// The same memory as a tensor that must not outlive it and is undone by stash_access::release().
  stashed_tensor borrow(swap_record& r, std::string name, const execution_context& context) noexcept;
  /// Neither this nor a thread of it knows the record afterwards.
  virtual void forget(swap_record& r) noexcept = 0;
  void reached(std::int64_t position);
  swap_statistics statistics();
  /// Waits for what was asked for and refuses everything but forget() from then on.
  virtual void close() noexcept = 0;

  /// Copies near memory to near memory, or host to host, at once or after the work of the stream.
  virtual void copy_here(void* to, const void* from, std::size_t bytes, const execution_context& context) = 0;

 protected:
  /// So much of `memory` was freed, or handed over, after the work of this stream. Called with the
  /// lock, before advance().
  virtual void note_freed(std::size_t /*bytes*/, void* /*stream*/) noexcept {}
  /// Memory was freed, or there is more to bring back. Called with the lock.
  virtual void advance() = 0;
  /// Looks again which copies have ended. Called with the lock.
  virtual void look() {}
  /// Waits for memory on the host that is given up but still copied from; false if there is none.
  virtual bool reclaim() { return false; }

  /// Whether the tensor is on its way to the caller's memory, and neither way has failed.
  static bool goes_elsewhere(const swap_record& r) noexcept;
  /// Throws error(invalid_argument) if the tensor is on its way to the caller's memory already.
  void begin_elsewhere(swap_record& r, void* to);
  void add(swap_record& r);
  void remove(swap_record& r) noexcept;
  /// Whether `a` goes before `b`.
  static bool before(const swap_record& a, bool a_urgent, const swap_record& b, bool b_urgent) noexcept;
  /// The next to come back: what is under way, was asked for, or may come ahead of use and fits; null if
  /// none.
  swap_record* next_in(bool only_asked) noexcept;
  /// Whether any tensor that was not used in this round is not here.
  bool more_may_come() const noexcept;
  void count_resident(std::size_t bytes) noexcept;
  /// Whether somebody waited who is served now and has not been told of yet. Called with the lock; what is
  /// counted is told after it.
  bool count_late(swap_record& r) noexcept;
  /// Tells who listens, without the lock, that the tensor was not there in time.
  void tell_late(const swap_record& r, std::size_t there) const noexcept;
  /// Bytes of the source that lie in one run from `offset` on, at most a chunk.
  std::size_t chunk_out(const swap_record& r, std::size_t offset) const noexcept;
  static const unsigned char* source_at(const swap_record& r, std::size_t offset) noexcept;

  swapper_options options_;  ///< resources are not null
  swap_hook hook_;
  host_blocks blocks_;
  mutable std::mutex mutex_;
  std::vector<swap_record*> records_;
  bool closed_ = false;
  swap_statistics counted_;

 private:
  bool may_come_ahead(const swap_record& r) const noexcept;
  bool fits(const swap_record& r) const noexcept;

  const long process_;
  std::atomic<bool> abandoned_ = false;
  std::shared_ptr<swap_core> self_;        ///< of an abandoned one
  std::uint64_t numbers_ = 0, known_ = 0;  ///< known: tensors from this number on went out after reached()
  bool started_ = false;                   ///< reached() was called
  std::int64_t position_ = 0;
};

/// Inside a catch block: what is being thrown.
swap_failure current_failure() noexcept;
/// Throws error(failure.code), which names the tensor and the direction.
[[noreturn]] void throw_failure(std::string_view function, const swap_record& r, bool out,
                                const swap_failure& failure);

std::shared_ptr<swap_core> make_swap_threads(const swapper_options& options, const swap_hook& hook);
std::shared_ptr<swap_core> make_swap_streams(const swapper_options& options, const swap_hook& hook);

/// For tests: a swapper whose copies are watched.
struct swap_access {
  static std::unique_ptr<swapper> make(const swapper_options& options, const swap_hook& hook);
};

}  // namespace stash::runtime
