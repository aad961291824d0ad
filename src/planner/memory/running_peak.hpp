// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The peak of a schedule while one component after another changes its configuration, without building the
/// schedule anew: a change costs what its component is large, times the logarithm of the number of ops.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/live_sums.hpp"
#include "planner/memory/schedule.hpp"

namespace stash::planner {

/// Index of the chosen configuration of every component.
using picks = std::vector<std::size_t>;

class running_peak {
 public:
  /// The first step at which most bytes are live.
  struct moment {
    std::int64_t bytes = 0;
    op_id op = no_id;      ///< -1: nothing runs
    std::size_t step = 0;  ///< number among the steps of its op
  };

  /// All arguments have to outlive this.
  running_peak(const scheduler& facts, const option_set& options, const plan_options& plan, picks start);

  const picks& current() const noexcept { return current_; }
  void pick(std::size_t component, std::size_t configuration);

  /// As the schedule of the current picks has it.
  moment top() const;
  /// Whether a buffer of one of the component's storages is live then.
  bool is_live(std::size_t component, const moment& m) const;
  /// Steps besides those of ops that were added since the beginning, whether they were taken out again or
  /// not.
  std::int64_t added_steps() const noexcept { return added_steps_; }
  /// How many steps lie between the ends of the buffer of the component that lives longest.
  std::int32_t longest_life(std::size_t component);
  /// What would be live then with another configuration; nothing where only pick() tells.
  std::optional<std::int64_t> bytes_with(std::size_t component, std::size_t configuration, const moment& m);

 private:
  using life = schedule_part::life;

  op_id op_of(const step_order& p) const { return !p.op.valid() ? first_op_ : p.op; }
  std::size_t step_of(const step_order& p) const;
  std::int32_t position(const step_order& p) const;
  const schedule_part& part(std::size_t component, std::size_t configuration);
  const schedule_part& part_now(std::size_t component) const {
    return *parts_[component][current_[component]];
  }
  void enter(const schedule_part& p);
  void leave(const schedule_part& p);
  void count_steps(op_id op) const;
  void recount(op_id op);
  std::int64_t arena() const { return overflow_arena(sparse_bytes_, plan_.overflow_share); }

  const scheduler& facts_;
  const option_set& options_;
  const plan_options& plan_;
  picks current_;
  part_builder builder_;
  op_id first_op_ = no_id;                                        // that runs
  std::vector<std::vector<op_id>> ops_of_;                        // that touch a component
  std::vector<std::vector<std::optional<schedule_part>>> parts_;  // by component and configuration
  std::vector<schedule_part> others_;                             // storages without a choice
  id_vector<op_id, std::vector<step_order>> steps_;               // by op, in their order
  id_vector<op_id, std::vector<const life*>> ends_;               // buffers that begin or end in an op
  id_vector<op_id, std::int64_t> most_;                           // by op: of these, what is live at once
  mutable std::vector<std::int64_t> change_;                      // count_steps()
  std::vector<op_id> changed_;                                    // ops to count again
  live_sums live_;
  std::int64_t sparse_bytes_ = 0;
  std::int64_t added_steps_ = 0;
  id_vector<op_id, std::int32_t> before_;  // steps before each op
  bool moved_ = true;                      // before_ is old
};

}  // namespace stash::planner
