// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_exact.hpp"

#include <limits>

#include "planner/layout/layout_exact_state.hpp"

namespace stash::planner::placing {
namespace {

using number = exact_state::number;

/// One run, without recursion: there are as many decisions as blocks, and more.
class walk {
 public:
  walk(exact_state& state, exact_rule rule, std::size_t blocks, std::int64_t work, work_budget& budget)
      : state_(state), rule_(rule), budget_(budget), until_(budget.used() + work), ready_(blocks) {}

  exact_outcome run() {
    for (bool possible = state_.propagate();; possible = possible && state_.propagate()) {
      if (possible && state_.left() == 0) return exact_outcome::found;
      if (budget_.used() > until_ || budget_.over()) return exact_outcome::limit;
      ++nodes_;
      if (possible) {
        const number who = choose();
        decide(who);
        possible = state_.place(who);
      } else {
        possible = backtrack();
        if (!possible) return exact_outcome::none;
      }
    }
  }
  std::int64_t nodes() const noexcept { return nodes_; }

 private:
  struct decision {
    number who = 0;
    bool lifted = false;       ///< the second way is being tried
    std::int64_t offset = 0;   ///< where the block lies at least then
    std::size_t trail = 0;     ///< its length before
    block_set why_not_placed;  ///< if lifted
  };
  /// Whether a block is ready, if it was asked for since the last decision.
  struct readiness {
    std::int64_t node = -1;
    bool ready = false;
  };

  bool ready(number who) {
    readiness& r = ready_[static_cast<std::size_t>(who)];
    if (r.node != nodes_) r = {nodes_, state_.ready(who)};
    return r.ready;
  }

  double score(const exact_state::section& s) const {
    const double level =
        static_cast<double>(state_.lowest(s.lowest)) / static_cast<double>(state_.capacity() + 1);
    const double candidates = s.candidates;
    switch (rule_) {
      case exact_rule::lowest:
        return level + 1e-6 * candidates;
      case exact_rule::fewest:
        return level + candidates;
      default:
        return (level + 0.1) * candidates;
    }
  }

  /// A block that is ready: there is one, as none can lie lower than the lowest of all.
  number choose() {
    budget_.spend(static_cast<std::int64_t>(state_.sections().size()));
    double least = std::numeric_limits<double>::infinity();
    const exact_state::section* chosen = nullptr;
    for (const exact_state::section& s : state_.sections()) {
      if (s.lowest < 0) continue;
      const double own = score(s);
      if (own >= least || !ready(s.lowest)) continue;
      least = own;
      chosen = &s;
    }
    number first = chosen->lowest;
    const std::int64_t level = state_.lowest(first);
    for (const number* who = state_.begin_of(*chosen); who != state_.end_of(*chosen); ++who) {
      if (*who < first && state_.lowest(*who) == level && ready(*who)) first = *who;
    }
    return first;
  }

  void decide(number who) {
    if (depth_ == decisions_.size()) decisions_.push_back({0, false, 0, 0, block_set(ready_.size())});
    decision& d = decisions_[depth_++];
    d.who = who;
    d.lifted = false;
    d.offset = state_.lifted(who);
    d.trail = state_.trail();
  }

  /// After a failure: to the last decision that mattered and has a second way, which is taken. False if there
  /// is none.
  bool backtrack() {
    for (; depth_ > 0; --depth_) {
      decision& d = decisions_[depth_ - 1];
      if (!state_.undo(d.trail, d.who)) continue;
      state_.explanation().insert(d.who);
      if (!d.lifted) {
        d.lifted = true;
        d.why_not_placed = state_.explanation();
        if (state_.lift(d.who, d.offset)) return true;
        // What the lift itself needs is all that is wrong with it.
      }
      state_.explanation().insert(d.why_not_placed);
      state_.explain_lift(d.who, d.offset);
    }
    return false;
  }

  exact_state& state_;
  exact_rule rule_;
  work_budget& budget_;
  std::int64_t until_;
  std::int64_t nodes_ = 0;
  std::vector<decision> decisions_;  ///< the first depth_ of them
  std::size_t depth_ = 0;
  std::vector<readiness> ready_;
};

}  // namespace

exact_search::exact_search(const instance& problem) : problem_(problem), conflicts_(problem.items.size()) {
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    for (std::size_t j = i + 1; j < problem.items.size() && problem.items[j].first < problem.items[i].last;
         ++j) {
      if (!problem.conflict(problem.items[i], problem.items[j])) continue;
      conflicts_[i].push_back(static_cast<std::uint32_t>(j));
      conflicts_[j].push_back(static_cast<std::uint32_t>(i));
    }
  }
}

exact_outcome exact_search::run(std::int64_t capacity, const std::vector<std::uint32_t>& order,
                                exact_rule rule, std::int64_t work, work_budget& budget,
                                std::vector<std::int64_t>& offsets) {
  for (const item& it : problem_.items) {
    if (it.fixed >= 0 && it.fixed + it.size > capacity) return exact_outcome::none;
  }
  exact_state state(problem_, conflicts_, capacity / problem_.grain * problem_.grain, order, budget);
  walk w(state, rule, order.size(), work, budget);
  exact_outcome result = w.run();
  nodes_ += w.nodes();
  if (result == exact_outcome::found) {
    offsets.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      offsets[order[i]] = state.offset(i);
  }
  if (result == exact_outcome::none && problem_.windows) result = exact_outcome::limit;
  return result;
}

}  // namespace stash::planner::placing
