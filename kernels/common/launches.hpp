// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The launches of one call: at once, or gathered, so that jobs of one kernel share a launch.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/jobs.hpp"
#include "common/launch.hpp"

namespace stash::kernels {

/// Runs a job in `blocks` blocks; nothing for none. `Kernels` names a kernel for one job and for many:
///     using job = ...;                            a plain value
///     static constexpr unsigned threads = ...;    of a block
///     template <unsigned Most> static constexpr auto kernel = ...;   takes a job_list<job, Most>
template <class Kernels>
void launch_one(const char* function, const execution_context& context, const typename Kernels::job& job,
                std::uint64_t blocks) {
  launch(function, context, blocks, Kernels::threads, Kernels::template kernel<1>,
         job_list<typename Kernels::job, 1>{{job}, {static_cast<std::uint32_t>(blocks)}});
}

template <class Kernels>
inline const char kind_of = 0;  ///< its address distinguishes kernels

/// What one call launches; add() with kernels as launch_one() takes them.
class launches {
 public:
  launches(const char* function, const execution_context& context, bool gather = false)
      : function_(function), context_(context), gather_(gather) {}
  launches(const launches&) = delete;
  launches& operator=(const launches&) = delete;

  const char* function() const noexcept { return function_; }
  const execution_context& context() const noexcept { return context_; }

  /// Calls `all`, which adds all jobs: once, or where jobs are gathered once for each kernel that they need.
  template <class All>
  void run(const All& all) {
    do {
      current_ = nullptr;
      others_ = false;
      all();
      if (current_ != nullptr) {
        (this->*flush_)();
        done_[kinds_++] = current_;
      }
      first_ = false;
    } while (others_);
  }

  /// Runs a job, now or, within run(), with others of its kernel.
  template <class Kernels>
  void add(const typename Kernels::job& job, std::uint64_t blocks) {
    if (blocks == 0) return;
    if (!gather_) return launch_one<Kernels>(function_, context_, job, blocks);
    if (blocks > max_blocks / 2) {
      if (first_) launch_one<Kernels>(function_, context_, job, blocks);
      return;
    }
    const char* const kind = &kind_of<Kernels>;
    if (std::find(done_, done_ + kinds_, kind) != done_ + kinds_) return;
    // No space to remember another kind: this is the last turn.
    if (kinds_ == most_kinds) return launch_one<Kernels>(function_, context_, job, blocks);
    if (current_ == nullptr) {
      current_ = kind;
      flush_ = &launches::flush<Kernels>;
      count_ = 0;
    }
    if (kind != current_) {
      others_ = true;
      return;
    }
    jobs_of<Kernels>& list = gathered<Kernels>();
    if (count_ == most_jobs || blocks_before(list) + blocks > max_blocks) flush<Kernels>();
    const std::uint64_t before = blocks_before(list);
    list.job[count_] = job;
    list.end[count_++] = static_cast<std::uint32_t>(before + blocks);
  }

 private:
  static constexpr std::size_t most_kinds = 64;
  static constexpr std::size_t most_list_bytes = 8192;

  template <class Kernels>
  using jobs_of = job_list<typename Kernels::job, most_jobs>;

  /// Of this thread, and one for all kernels: it is too much for the stack of a call that must not allocate,
  /// and threads that never call have to have it, too.
  template <class Kernels>
  static jobs_of<Kernels>& gathered() {
    static_assert(sizeof(jobs_of<Kernels>) <= most_list_bytes);
    static_assert(std::is_trivially_copyable_v<jobs_of<Kernels>>);
    return *static_cast<jobs_of<Kernels>*>(list_memory());
  }
  static void* list_memory() {
    alignas(16) thread_local unsigned char memory[most_list_bytes];
    return memory;
  }

  template <class List>
  std::uint64_t blocks_before(const List& list) const {
    return count_ == 0 ? 0 : list.end[count_ - 1];
  }

  template <class Kernels>
  void flush() {
    if (count_ == 0) return;
    jobs_of<Kernels>& list = gathered<Kernels>();
    const std::uint32_t blocks = list.end[count_ - 1];
    std::fill(list.end + count_, list.end + most_jobs, blocks);
    count_ = 0;
    launch(function_, context_, blocks, Kernels::threads, Kernels::template kernel<most_jobs>, list);
  }

  const char* function_;
  const execution_context& context_;
  bool gather_;
  bool first_ = true;
  bool others_ = false;  ///< there are jobs of other kernels
  const char* current_ = nullptr;
  void (launches::*flush_)() = nullptr;
  unsigned count_ = 0;
  const char* done_[most_kinds] = {};
  std::size_t kinds_ = 0;
};

}  // namespace stash::kernels
