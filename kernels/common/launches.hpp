#pragma once
/// \file
/// The launches of one call: at once, or gathered, so that jobs of one kernel share a launch.

#include <cstddef>
#include <cstdint>

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

/// What one call launches; add() with kernels as launch_one() takes them.
class launches {
 public:
  launches(const char* function, const execution_context& context, bool gather = false)
      : function_(function), context_(context), gather_(gather) {}
  /// What was gathered and not launched is forgotten.
  ~launches() {
    for (std::size_t i = 0; i < kinds_; ++i)
      gathered_[i](*this, false);
  }
  launches(const launches&) = delete;
  launches& operator=(const launches&) = delete;

  const char* function() const noexcept { return function_; }
  const execution_context& context() const noexcept { return context_; }

  /// Runs a job, now or with flush().
  template <class Kernels>
  void add(const typename Kernels::job& job, std::uint64_t blocks) {
    if (blocks == 0) return;
    if (!gather_ || blocks > max_blocks / 2 || kinds_ == most_kinds) {
      return launch_one<Kernels>(function_, context_, job, blocks);
    }
    pending_jobs<Kernels>& p = pending<Kernels>();
    if (!p.known) {
      p.known = true;
      gathered_[kinds_++] = &finish<Kernels>;
    }
    const std::uint64_t before = p.count == 0 ? 0 : p.list.end[p.count - 1];
    if (p.count == most_jobs || before + blocks > max_blocks) {
      run<Kernels>(p);
      return add<Kernels>(job, blocks);
    }
    p.list.job[p.count] = job;
    p.list.end[p.count++] = static_cast<std::uint32_t>(before + blocks);
  }

  /// Launches what was gathered.
  void flush() {
    for (std::size_t i = 0; i < kinds_; ++i)
      gathered_[i](*this, true);
  }

 private:
  static constexpr std::size_t most_kinds = 64;

  template <class Kernels>
  struct pending_jobs {
    bool known = false;
    unsigned count = 0;
    job_list<typename Kernels::job, most_jobs> list;
  };
  /// Of this thread: a list is several KiB, too much for a stack of a call that must not allocate.
  template <class Kernels>
  static pending_jobs<Kernels>& pending() {
    thread_local pending_jobs<Kernels> jobs;
    return jobs;
  }

  template <class Kernels>
  void run(pending_jobs<Kernels>& p) {
    if (p.count == 0) return;
    const std::uint32_t blocks = p.list.end[p.count - 1];
    for (unsigned i = p.count; i < most_jobs; ++i)
      p.list.end[i] = blocks;
    p.count = 0;
    launch(function_, context_, blocks, Kernels::threads, Kernels::template kernel<most_jobs>, p.list);
  }

  template <class Kernels>
  static void finish(launches& self, bool launch_them) {
    pending_jobs<Kernels>& p = pending<Kernels>();
    if (launch_them) return self.run<Kernels>(p);
    p.known = false;
    p.count = 0;
  }

  const char* function_;
  const execution_context& context_;
  bool gather_;
  void (*gathered_[most_kinds])(launches&, bool) = {};
  std::size_t kinds_ = 0;
};

}  // namespace stash::kernels
