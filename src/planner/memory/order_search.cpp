// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/order_search.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "planner/memory/step_tasks.hpp"

namespace stash::planner {
namespace {

// Touched buffers that all evaluations of one search may look at: about a second.
constexpr std::int64_t most_work = 200'000'000;

// Lower is better: the peak, how often it is reached, and the sum, which leads across plateaus.
using order_rank = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

order_rank rank_of(const std::vector<std::int64_t>& live) {
  std::int64_t peak = 0, times = 0, sum = 0;
  for (const std::int64_t bytes : live) {
    if (bytes > peak) {
      peak = bytes;
      times = 0;
    }
    times += bytes == peak ? 1 : 0;
    sum += bytes / buffer_alignment;
  }
  return {peak, times, sum};
}

// What may run next is what lets most bytes go, or makes fewest; of equals the first in the plan.
class greedy_order {
 public:
  explicit greedy_order(const step_tasks& tasks)
      : tasks_(tasks), waiting_(tasks.before.size(), 0), users_(tasks.bytes.size(), 0) {
    for (const step_number i : tasks.before.ids()) {
      waiting_[i] = static_cast<std::int32_t>(tasks.before[i].size());
      for (const buffer_id b : tasks.touches[i])
        ++users_[b];
    }
    left_ = users_;
  }

  task_list run() {
    for (const op_stage stage : {op_stage::forward, op_stage::backward, op_stage::update}) {
      ready_.clear();
      for (const step_number i : tasks_.before.ids())
        if (tasks_.stage[i] == stage && waiting_[i] == 0) ready_.push_back(i);
      while (!ready_.empty())
        take(best(), stage);
    }
    return std::move(order_);
  }

 private:
  std::int64_t change_of(step_number i) const {
    std::int64_t change = 0;
    for (const buffer_id b : tasks_.touches[i]) {
      if (left_[b] == users_[b]) change += tasks_.bytes[b];
      if (left_[b] == 1) change -= tasks_.bytes[b];
    }
    return change;
  }

  std::size_t best() const {
    std::size_t found = 0;
    std::int64_t least = change_of(ready_[0]);
    for (std::size_t k = 1; k < ready_.size(); ++k) {
      const std::int64_t change = change_of(ready_[k]);
      if (change < least || (change == least && ready_[k] < ready_[found])) {
        found = k;
        least = change;
      }
    }
    return found;
  }

  void take(std::size_t k, op_stage stage) {
    const step_number i = ready_[k];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(k));
    order_.push_back(i);
    for (const buffer_id b : tasks_.touches[i])
      --left_[b];
    for (const step_number next : tasks_.after[i])
      if (--waiting_[next] == 0 && tasks_.stage[next] == stage) ready_.push_back(next);
  }

  const step_tasks& tasks_;
  id_vector<step_number, std::int32_t> waiting_;
  id_vector<buffer_id, std::int32_t> users_, left_;
  task_list ready_, order_;
};

class peak_search {
 public:
  peak_search(const step_tasks& tasks, task_list order, std::int64_t work, const std::function<bool()>& stop)
      : tasks_(tasks),
        stop_(stop),
        order_(std::move(order)),
        work_(work),
        marked_(tasks.before.size(), false) {
    touched_ = 1;
    for (const std::vector<buffer_id>& list : tasks.touches)
      touched_ += static_cast<std::int64_t>(list.size());
    rank_ = measured(order_, profile_);
  }

  void run() {
    while (work_ > 0 && !(stop_ && stop_()) && improve())
      rank_ = measured(order_, profile_);
  }

  const task_list& order() const { return order_; }
  const order_rank& rank() const { return rank_; }

 private:
  order_rank measured(const task_list& order, live_profile& profile) {
    work_ -= touched_;
    measure(tasks_, order, profile);
    return rank_of(profile.live);
  }

  bool improve() {
    const auto top = std::max_element(profile_.live.begin(), profile_.live.end());
    peak_ = static_cast<std::size_t>(top - profile_.live.begin());
    place_.assign(order_.size(), 0);
    for (std::size_t k = 0; k < order_.size(); ++k)
      place_[order_[k]] = k;
    const std::vector<buffer_id>& used = tasks_.touches[order_[peak_]];
    for (const buffer_id b : tasks_.bytes.ids()) {
      const std::int32_t first = profile_.first[b], last = profile_.last[b];
      const auto peak = static_cast<std::int32_t>(peak_);
      if (first < 0 || first >= peak || last <= peak || tasks_.bytes[b] == 0) continue;
      if (std::binary_search(used.begin(), used.end(), b)) continue;
      if (work_ <= 0) return false;
      if (earlier(order_[static_cast<std::size_t>(last)]) || later(order_[static_cast<std::size_t>(first)]))
        return true;
    }
    return false;
  }

  op_stage stage_at(std::size_t place) const { return tasks_.stage[order_[place]]; }

  // `from` with what it needs (earlier) or what needs it (later) on this side of the peak; empty if the peak
  // itself is one of them.
  task_list with_related(step_number from, bool needs) {
    task_list set = {from};
    marked_[from] = true;
    bool holds_peak = from == order_[peak_];
    for (std::size_t k = 0; k < set.size() && !holds_peak; ++k) {
      for (const step_number other : needs ? tasks_.before[set[k]] : tasks_.after[set[k]]) {
        const bool between = needs ? place_[other] >= peak_ : place_[other] <= peak_;
        if (!between || marked_[other]) continue;
        marked_[other] = true;
        set.push_back(other);
        holds_peak = holds_peak || place_[other] == peak_;
      }
    }
    for (const step_number i : set)
      marked_[i] = false;
    if (holds_peak) set.clear();
    std::sort(set.begin(), set.end(), [this](step_number a, step_number b) { return place_[a] < place_[b]; });
    return set;
  }

  bool earlier(step_number user) {
    if (tasks_.stage[user] != stage_at(peak_)) return false;
    const task_list set = with_related(user, true);
    if (set.empty()) return false;
    std::size_t least = 0;  // the first place where all that the set depends on has run
    for (const step_number i : set)
      for (const step_number first : tasks_.before[i])
        if (place_[first] < peak_) least = std::max(least, place_[first] + 1);
    while (least < peak_ && stage_at(least) != stage_at(peak_))
      ++least;
    return accept(set, peak_) || accept(set, least);
  }

  bool later(step_number maker) {
    if (tasks_.stage[maker] != stage_at(peak_)) return false;
    const task_list set = with_related(maker, false);
    if (set.empty()) return false;
    std::size_t most = order_.size();
    for (const step_number i : set)
      for (const step_number next : tasks_.after[i])
        if (place_[next] > peak_) most = std::min(most, place_[next]);
    while (most > peak_ + 1 && stage_at(most - 1) != stage_at(peak_))
      --most;
    return accept(set, peak_ + 1) || accept(set, most);
  }

  // Takes the order in which `set` runs at `place` of today's order, if that is better.
  bool accept(const task_list& set, std::size_t place) {
    for (const step_number i : set)
      marked_[i] = true;
    trial_.clear();
    for (std::size_t k = 0; k <= order_.size(); ++k) {
      if (k == place) trial_.insert(trial_.end(), set.begin(), set.end());
      if (k < order_.size() && !marked_[order_[k]]) trial_.push_back(order_[k]);
    }
    for (const step_number i : set)
      marked_[i] = false;
    if (measured(trial_, other_) >= rank_) return false;
    order_ = trial_;
    return true;
  }

  const step_tasks& tasks_;
  const std::function<bool()>& stop_;
  task_list order_, trial_;
  std::int64_t work_, touched_ = 0;
  live_profile profile_, other_;
  order_rank rank_;
  std::size_t peak_ = 0;
  id_vector<step_number, std::size_t> place_;
  id_vector<step_number, bool> marked_;
};

// Updates are no steps; they follow as they are.
id_vector<op_id, op_id> ops_of(const plan& p, const task_list& order) {
  id_vector<op_id, op_id> ops;
  id_vector<op_id, bool> runs(p.network.ops.size(), false);
  for (const step_number i : order) {
    if (p.steps[i].kind != step_kind::run) continue;
    ops.push_back(p.steps[i].op);
    runs[p.steps[i].op] = true;
  }
  for (const op_id o : p.network.ops.ids())
    if (!runs[o]) ops.push_back(o);
  return ops;
}

}  // namespace

id_vector<op_id, op_id> lower_peak_order(const plan& p, const std::function<bool()>& stop) {
  const step_tasks tasks = tasks_of(p);
  task_list given;
  for (const step_number i : p.steps.ids())
    given.push_back(i);
  live_profile profile;
  measure(tasks, given, profile);
  const std::int64_t peak = std::get<0>(rank_of(profile.live));
  peak_search from_given(tasks, given, most_work / 2, stop);
  from_given.run();
  peak_search from_greedy(tasks, greedy_order(tasks).run(), most_work / 2, stop);
  from_greedy.run();
  const peak_search& best = from_greedy.rank() < from_given.rank() ? from_greedy : from_given;
  return ops_of(p, std::get<0>(best.rank()) < peak ? best.order() : given);
}

}  // namespace stash::planner
