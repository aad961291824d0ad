// SPDX-License-Identifier: Apache-2.0
#include "planner/budget_planner.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "planner/baselines/policies.hpp"
#include "planner/budget_problem.hpp"
#include "planner/budget_refusal.hpp"
#include "planner/budget_rules.hpp"
#include "planner/budget_search.hpp"
#include "planner/memory/placement.hpp"
#include "planner/time/timeline.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

// What a choice adds to compute and link.
plan_load load_of(const option_choice& choice, const problem& ticks) {
  plan_load load;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const item_option& o = ticks.items[i].options[choice[i]];
    for (const added_work& w : o.work)
      load.added_ms += w.ms;
    for (const transfer& t : o.transfers) {
      load.moved_bytes += t.bytes;
      load.out_ms += static_cast<double>(t.bytes) / ticks.link.out_rate + ticks.link.latency_ms;
      load.in_ms += static_cast<double>(t.bytes) / ticks.link.in_rate + ticks.link.latency_ms;
    }
  }
  return load;
}

bound_certificate certificate_of(const dual_prices& d, const step_problem& steps, std::int64_t capacity) {
  bound_certificate c;
  c.limit_bytes = capacity;
  c.first_tick = steps.first_tick.list();
  c.transfer_limits = d.limits;
  for_each_price_row(d, [&](const std::string& name, const std::vector<double>& list) {
    bound_certificate::row_prices row{name, {}};
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (list[k] != 0.0) row.list.emplace_back(static_cast<std::int32_t>(k), list[k]);
    }
    if (!row.list.empty()) c.prices.push_back(std::move(row));
  });
  return c;
}

// What is known of the least time of any plan. `certified`: by these prices.
struct known_bound {
  double ms = 0.0;
  bool certified = false;
  dual_prices prices;
};

known_bound bound_of_rule(const budget_problem& b) {
  known_bound bound{least_ms(b.steps), false, {}};
  // Gist's options are one per storage: a bound for these says nothing.
  if (!b.options.relax || !can_relax() || b.options.chosen_policy == policy::gist) return bound;
  relaxed r = relax(b.steps, relaxed_steps(b.steps.ms.size()), b.options.stop);
  if (r.solved) bound = {bound_from(b.steps, r.prices), true, std::move(r.prices)};
  return bound;
}

plan plan_of(const budget_problem& b, std::int64_t requested, std::int64_t capacity, const timed_choice& best,
             const known_bound& bound) {
  plan_options own = b.options;
  own.budget_bytes = requested;
  plan p = assemble(b.g, own, b.facts, best);
  if (bound.certified) p.certificate = certificate_of(bound.prices, b.steps, capacity);
  p.times = {b.options.model->name, b.unplanned_ms, best.ms, std::min(bound.ms, best.ms), bound.certified};
  set_timeline(p, *b.options.model, best.times);
  // The search knows fewer choices than there are; the bound is one over all of them.
  p.times.bound_ms = std::min(p.times.bound_ms, proven_bound_ms(p));
  return p;
}

}  // namespace

class budget_planner::state {
 public:
  state(const graph& g, const plan_options& options) : b_(g, options) {}

  plan make(std::int64_t requested) {
    const std::int64_t memory = b_.options.model->memory_bytes;
    const std::int64_t budget = requested != 0 ? requested : memory > 0 ? memory : b_.no_limit();
    return has_rule(b_.options.chosen_policy) ? make_by_rule(requested, budget) : make(requested, budget);
  }

  const plan_load& load() const { return load_; }

  double greedy_ms(std::int64_t budget) {
    b_.steps.limit = budget - b_.static_bytes;
    simulator sim(b_.steps);
    const simulated s = sim.run(greedy_largest_first(b_.steps, sim));
    return s.feasible ? s.ms : -1.0;
  }

  std::int64_t baseline() const { return b_.baseline.height + b_.static_bytes; }
  std::int64_t static_bytes() const { return b_.static_bytes; }

 private:
  plan make(std::int64_t requested, std::int64_t budget) {
    const std::int64_t capacity = budget - b_.static_bytes;
    searched s = search_within(b_, capacity, known_);
    for (timed_choice& u :
         unplanned_within(b_, capacity, s.fits ? s.fitted.ms : std::numeric_limits<double>::infinity()))
      known_.push_back(std::move(u));
    const timed_choice& best = best_of(s, budget, capacity);
    plan p = plan_of(b_, requested, capacity, best, {s.bound_ms, s.certified, std::move(s.prices)});
    load_ = load_of(best.choice, b_.ticks);
    return p;
  }

  // More capacity lets prefetches start earlier, which now and then costs time: what was made for less is a
  // plan too.
  const timed_choice& best_of(searched& s, std::int64_t budget, std::int64_t capacity) {
    const timed_choice* best = s.fits ? &s.fitted : nullptr;
    for (const timed_choice& known : known_) {
      if (known.where.height <= capacity && (best == nullptr || known.ms <= best->ms)) best = &known;
    }
    if (best == &s.fitted) return known_.emplace_back(std::move(s.fitted));
    if (best != nullptr) return *best;
    timed_choice simple = small_.within(capacity);
    if (simple.where.height > capacity)
      refuse_budget(b_.g, small_.enough(capacity, s.missing, known_), b_.static_bytes, budget);
    return known_.emplace_back(std::move(simple));
  }

  plan make_by_rule(std::int64_t requested, std::int64_t budget) {
    const placed_rule best = follow_rule(b_, budget);
    load_ = load_of(best.decision.choice, b_.ticks);
    load_.parameters = best.decision.parameters;
    return plan_of(b_, requested, budget - b_.static_bytes, best.placed, bound_of_rule(b_));
  }

  budget_problem b_;
  small_plans small_{b_};
  std::vector<timed_choice> known_;
  plan_load load_;
};

budget_planner::budget_planner(const graph& g, const plan_options& options) {
  if (!options.model) {
    throw error(errc::invalid_argument, "budget_planner: options: expected a model of the machine, got none");
  }
  check_total_bytes(g);
  state_ = std::make_unique<state>(g, options);
}

budget_planner::~budget_planner() = default;

plan budget_planner::make(std::int64_t budget_bytes) {
  return state_->make(budget_bytes);
}

const plan_load& budget_planner::load() const {
  return state_->load();
}

double budget_planner::greedy_ms(std::int64_t budget_bytes) {
  return state_->greedy_ms(budget_bytes);
}

std::int64_t budget_planner::baseline_bytes() const {
  return state_->baseline();
}

std::int64_t budget_planner::static_bytes() const {
  return state_->static_bytes();
}

}  // namespace stash::planner
