// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Work spent by the parts of the layout solver, and the question whether to go on.

#include <cstdint>
#include <functional>
#include <limits>

namespace stash::planner::placing {

class work_budget {
 public:
  /// Without a limit of work at first; `stop` must outlive this.
  explicit work_budget(const std::function<bool()>& stop) : stop_(&stop) {}

  /// over() once this much work is done in all.
  void limit(std::int64_t steps) { limit_ = steps; }

  void spend(std::int64_t steps) { used_ += steps; }
  std::int64_t used() const noexcept { return used_; }
  /// True once the limit is reached or stop() has returned true.
  bool over() { return used_ >= limit_ || stopped(); }
  /// stop() is a system call at worst: asked once in a millisecond or so.
  bool stopped() {
    if (!stopped_ && *stop_ && used_ >= next_question_) {
      next_question_ = used_ + 1'000'000;
      stopped_ = (*stop_)();
    }
    return stopped_;
  }

 private:
  std::int64_t limit_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t used_ = 0;
  std::int64_t next_question_ = 0;
  const std::function<bool()>* stop_;
  bool stopped_ = false;
};

}  // namespace stash::planner::placing
