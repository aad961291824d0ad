// SPDX-License-Identifier: Apache-2.0
#include "planner/search/fastest.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "planner/search/dice.hpp"
#include "planner/search/local_search.hpp"
#include "planner/search/mend.hpp"
#include "planner/search/option_facts.hpp"

namespace stash::planner {
namespace {

constexpr std::size_t most_small_repairs = 2000;  // and a quarter of the items more
constexpr std::int32_t most_random_repairs = 3000;
// So many choices are looked at one by one.
constexpr double most_choices = 4000;

// How far a choice that does not fit gets: whether what the device alone holds fits, up to which
// step it runs, what is missing there. Less is nearer to one that fits.
using progress = std::tuple<bool, std::int32_t, std::int64_t>;
progress progress_of(const simulated& s, std::int64_t limit) {
  return s.peak > limit ? progress(true, 0, s.missing) : progress(false, -s.missing_step, s.missing);
}

class finder {
 public:
  finder(const step_problem& p, const fastest_limits& limits)
      : p_(p), limits_(limits), sim_(p), dice_(limits.seed) {}

  fastest_choice run() {
    if (limits_.relax && limits_.prices == nullptr && can_relax()) {
      relaxed_ = relax(p_, relaxed_steps(p_.ms.size()), limits_.stop);
      if (relaxed_.infeasible) best_.impossible = true;
    }
    best_.relaxed = relaxed_.solved;
    best_.prices = relaxed_.prices;
    best_.bound_ms = relaxed_.solved ? bound_from(p_, relaxed_.prices) : least_ms(p_);
    costs_ = prices();
    for (const option_choice& start : limits_.starts) {
      if (start.size() != p_.items.size()) continue;
      consider(start);
      if ((limits_.prices != nullptr || !limits_.relax) && !best_.found) consider(repaired(start));
    }
    if (!best_.impossible) search();
    if (!best_.found) {
      best_.missing = nearest_missing_;
      best_.missing_step = nearest_step_;
    }
    return std::move(best_);
  }

 private:
  void search() {
    if (relaxed_.solved) consider(repaired(largest_share()));
    consider(repaired(cheapest()));
    // With the prices of a problem much like this one it was considered there.
    if (limits_.prices == nullptr || !best_.found) consider(greedy_largest_first(p_, sim_));
    if (few_choices()) return consider_all();
    if (!best_.found && host_was_full_) consider(any_that_fits());
    if (best_.found) improve();
  }

  bool few_choices() const {
    double choices = 1.0;
    for (const item& i : p_.items)
      choices *= static_cast<double>(i.options.size());
    return choices <= std::min<double>(most_choices, limits_.evaluations);
  }

  void consider_all() {
    option_choice c(p_.items.size(), 0);
    for (std::size_t i = 0; i < c.size();) {
      if (limits_.stop && limits_.stop()) return;
      consider(c);
      // The next number in a system with as many digits as there are items.
      for (i = 0; i < c.size() && position_of(++c[i]) == p_.items[i].options.size(); ++i)
        c[i] = 0;
    }
  }

  // One evaluation takes as long as the problem has steps.
  std::int32_t rounds_for(std::size_t steps) const {
    const double share =
        static_cast<double>(limits_.full_steps) / static_cast<double>(std::max<std::size_t>(steps, 1));
    return share >= 1.0 ? limits_.evaluations
                        : std::max<std::int32_t>(std::min(limits_.evaluations, 200),
                                                 static_cast<std::int32_t>(share * limits_.evaluations));
  }

  simulated evaluate(const option_choice& c, double give_up = std::numeric_limits<double>::infinity()) {
    ++best_.evaluations;
    return sim_.run(c, give_up);
  }

  void consider(const option_choice& c) {
    const simulated s = evaluate(c, best_.found ? best_.ms : std::numeric_limits<double>::infinity());
    if (!s.feasible) {
      if (nearest_step_ < 0 || s.missing < nearest_missing_) {
        nearest_missing_ = s.missing;
        nearest_step_ = s.missing_step;
      }
      return;
    }
    if (best_.found && s.ms >= best_.ms) return;
    best_.found = true;
    best_.ms = s.ms;
    best_.choice = c;
  }

  // What options cost: under the relaxation's prices, else their own time and a little for what they hold.
  option_costs prices() const {
    if (limits_.prices != nullptr) return priced_options(p_, *limits_.prices);
    if (relaxed_.solved) return priced_options(p_, relaxed_.prices);
    option_costs costs;
    for (const item& i : p_.items) {
      std::vector<double>& list = costs.emplace_back();
      for (const item_option& o : i.options)
        list.push_back(work_of(o) + link_ms(o, p_.link));
    }
    return costs;
  }

  option_choice cheapest() const {
    option_choice c;
    for (const std::vector<double>& costs : costs_)
      c.push_back(static_cast<std::int32_t>(std::min_element(costs.begin(), costs.end()) - costs.begin()));
    return c;
  }

  option_choice largest_share() const {
    option_choice c;
    for (const std::vector<double>& shares : relaxed_.shares)
      c.push_back(static_cast<std::int32_t>(std::max_element(shares.begin(), shares.end()) - shares.begin()));
    return c;
  }

  void note_full_host(const option_choice& c, const simulated& s) {
    const progress got = progress_of(s, p_.limit);
    if (host_was_full_ && got >= furthest_) return;
    host_was_full_ = true;
    got_furthest_ = c;
    furthest_ = got;
  }

  // While some step lacks memory: the change that costs least per byte it gains there. Once the host was
  // full, nothing counts that takes more of both.
  option_choice repaired(option_choice c) {
    const std::size_t most = std::min(4 * p_.items.size() + 16, p_.items.size() / 4 + most_small_repairs);
    bool host_was_full = false;
    for (std::size_t round = 0; round < most; ++round) {
      const simulated s = evaluate(c);
      if (s.feasible || s.missing_step < 0) break;
      host_was_full = host_was_full || s.host_is_full;
      if (s.host_is_full) note_full_host(c, s);
      const auto change = cheapest_mend(p_, costs_, c, s, {.spare_host = host_was_full});
      if (!change) break;
      c[change->item] = change->option;
    }
    return c;
  }

  // Where both device and host are short, the change that gains most at one step may be the wrong one for
  // another: changes at random, as long as they get no less far.
  option_choice any_that_fits() {
    option_choice c = got_furthest_, trial;
    simulated s = evaluate(c);
    const std::int32_t rounds = std::min(most_random_repairs, rounds_for(p_.ms.size()));
    std::vector<std::size_t> there;
    std::int32_t step = -1;
    for (std::int32_t n = 0; n < rounds && !s.feasible && s.missing_step >= 0; ++n) {
      if (n % 64 == 0 && limits_.stop && limits_.stop()) break;
      if (step != s.missing_step) {
        step = s.missing_step;
        there.clear();
        for (std::size_t i = 0; i < c.size(); ++i) {
          const id_vector<std::int32_t, item_option>& options = p_.items[i].options;
          if (options.size() > 1 && std::any_of(options.begin(), options.end(), [&](const item_option& o) {
                return held_or_moved_at(o, step) > 0;
              }))
            there.push_back(i);
        }
        if (there.empty()) break;
      }
      trial = c;
      for (std::size_t changes = 1 + dice_.below(3); changes > 0; --changes) {
        const std::size_t i = there[dice_.below(there.size())];
        trial[i] = static_cast<std::int32_t>(dice_.below(p_.items[i].options.size()));
      }
      const simulated other = evaluate(trial);
      if (!other.feasible && progress_of(other, p_.limit) > progress_of(s, p_.limit)) continue;
      std::swap(c, trial);
      s = other;
    }
    return c;
  }

  void improve() {
    const local_search_limits limits{rounds_for(p_.ms.size()), best_.bound_ms * (1.0 + 1e-6), limits_.stop};
    local_search_result found = search_nearby(p_, sim_, costs_, best_.choice, best_.ms, dice_, limits);
    best_.choice = std::move(found.choice);
    best_.ms = found.ms;
    best_.evaluations += found.evaluations;
  }

  const step_problem& p_;
  const fastest_limits& limits_;
  simulator sim_;
  dice dice_;
  relaxed relaxed_;
  option_costs costs_;
  fastest_choice best_;
  bool host_was_full_ = false;
  option_choice got_furthest_;  ///< of those for which the host was too small
  progress furthest_;
  std::int64_t nearest_missing_ = 0;
  std::int32_t nearest_step_ = -1;
};

}  // namespace

fastest_choice find_fastest(const step_problem& p, const fastest_limits& limits) {
  return finder(p, limits).run();
}

option_choice greedy_largest_first(const step_problem& p, simulator& sim) {
  option_choice c(p.items.size(), 0);
  struct target {
    std::int32_t dense = 0, small = 0, smallest = 0;
    double bytes = 0.0;
  };
  std::vector<target> targets(p.items.size());
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    const id_vector<std::int32_t, item_option>& options = p.items[i].options;
    target& t = targets[i];
    double least_work = std::numeric_limits<double>::infinity(), small = least_work, smallest = least_work;
    for (std::size_t o = 0; o < options.size(); ++o) {
      const bool stays = options[o].transfers.empty();
      const double work = work_of(options[o]), held = held_area(options[o]);
      const auto number = static_cast<std::int32_t>(o);
      if (stays && (work < least_work || (work == least_work && held < held_area(options[t.dense])))) {
        least_work = work;
        t.dense = number;
      }
      if (stays && held < small) {
        small = held;
        t.small = number;
      }
      if (held < smallest) {
        smallest = held;
        t.smallest = number;
      }
      for (const held_bytes& h : options[o].held)
        t.bytes = std::max(t.bytes, static_cast<double>(h.bytes));
    }
    c[i] = t.dense;
  }
  std::vector<std::size_t> order(p.items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return targets[a].bytes > targets[b].bytes; });
  for (const auto member : {&target::small, &target::smallest}) {
    // The number of items that change is found by bisection: holding less never needs more memory.
    const option_choice start = c;
    std::size_t low = 0, high = order.size();
    const auto changed = [&](std::size_t n) {
      option_choice x = start;
      for (std::size_t k = 0; k < n; ++k)
        x[order[k]] = targets[order[k]].*member;
      return x;
    };
    if (sim.run(start).feasible) return c;
    c = changed(high);
    if (!sim.run(c).feasible) continue;
    while (low + 1 < high) {
      const std::size_t middle = (low + high) / 2;
      (sim.run(changed(middle)).feasible ? high : low) = middle;
    }
    return changed(high);
  }
  return c;
}

}  // namespace stash::planner
