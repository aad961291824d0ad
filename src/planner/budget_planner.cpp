// SPDX-License-Identifier: Apache-2.0
#include "planner/budget_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "planner/baselines/policies.hpp"
#include "planner/graph/needs.hpp"
#include "planner/memory/bounds.hpp"
#include "planner/memory/placement.hpp"
#include "planner/memory/search.hpp"
#include "planner/time/fastest.hpp"
#include "planner/time/items.hpp"
#include "planner/time/layout_fit.hpp"
#include "planner/time/timeline.hpp"
#include "planner/time/timeline_of_choice.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr int most_attempts = 8;
constexpr int rounds_of_rule = 12;
constexpr std::size_t most_steps_of_thorough = 5000;
// What a limit is lowered by at least, as a part of the capacity: less would seldom change anything.
constexpr std::int64_t least_parts_of_capacity = 2000;

// How closely the smallest budget is told.
constexpr std::int64_t parts_of_named_budget = 100;

// More than any step takes, but for those that no machine runs.
constexpr std::int64_t plenty = std::int64_t{1} << 52;

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

class budget_planner::state {
 public:
  state(const graph& g, const plan_options& options)
      : g_(g), options_(options), facts_(g_), static_bytes_(parameter_bytes(g_) + workspace_bytes(g_)) {
    options_.swap = options.swap && swaps(options.chosen_policy);
    if (options.model->pinned) {
      if (options.chosen_policy != policy::automatic) {
        throw error(
            errc::invalid_argument,
            fmt::format("budget_planner: options: expected policy auto for the machine {}, which is pinned "
                        "for comparison (raw, fp16 and swap), got {}",
                        options.model->name, to_string(options.chosen_policy)));
      }
      options_.values = {value_format::fp16};
    }
    if (options_.chosen_policy == policy::gist) {
      if (options_.values.empty()) options_.values = {value_format::fp16};
      options_.values.resize(1);
      set_ = gist_options(g_, options_, options_.slot_margin);
    } else {
      set_ = make_options(g_, options_, options_.slot_margin);
    }
    item_rules rules;
    rules.swap = options_.swap;
    rules.smallest_swap = options_.smallest_swap;
    rules.overflow_share = options_.overflow_share;
    rules.move_images = !has_rule(options_.chosen_policy);  // the papers' rules know maps only
    rules.pinned = pinned_storages();
    problem_ = make_problem(g_, set_, *options_.model, rules, plenty);
    steps_ = compress(problem_);
    for (const double ms : problem_.tick_ms)
      unplanned_ms_ += ms;
    plan_options none = options_;
    none.chosen_policy = policy::none;
    none.tensors.clear();
    none.force.clear();
    const option_set raw = make_options(g_, none, 0.0);
    const search finder(facts_, raw, none);
    const picks dense = finder.least_work();
    baseline_ = place_within(options_, finder.build(dense));
    for (const bool as_baseline : {true, false})
      unplanned_.push_back({without_codecs(raw, dense, as_baseline), unplanned_ms_});
  }

  plan make(std::int64_t budget) {
    const std::int64_t requested = budget;
    if (budget == 0) budget = options_.model->memory_bytes > 0 ? options_.model->memory_bytes : no_limit();
    const std::int64_t capacity = budget - static_bytes_;
    if (has_rule(options_.chosen_policy)) return make_by_rule(requested, budget);
    searched s = search_within(capacity);
    add_unplanned(capacity, s.fits ? s.fitted.ms : std::numeric_limits<double>::infinity());
    // More capacity lets prefetches start earlier, which now and then costs time: what was made for less is a
    // plan too.
    const placed_choice* best = s.fits ? &s.fitted : nullptr;
    for (const placed_choice& known : known_) {
      if (known.where.height <= capacity && (best == nullptr || known.ms <= best->ms)) best = &known;
    }
    if (best == nullptr) {
      placed_choice simple = simple_plan(capacity);
      if (simple.where.height > capacity) refuse(budget, capacity, s.missing);
      best = &known_.emplace_back(std::move(simple));
    } else if (best == &s.fitted) {
      best = &known_.emplace_back(std::move(s.fitted));
    }
    plan_options own = options_;
    own.budget_bytes = requested;
    plan p = assemble(g_, own, facts_, best->chosen, best->where);
    if (s.certified) p.certificate = certificate_of(s.prices, capacity);
    p.times = {options_.model->name, unplanned_ms_, best->ms, std::min(s.bound_ms, best->ms), s.certified};
    set_timeline(p, *options_.model, best->times);
    say_proven_bound(p);
    count_load(best->choice);
    return p;
  }

  const plan_load& load() const { return load_; }

  double greedy_ms(std::int64_t budget) {
    steps_.limit = budget - static_bytes_;
    simulator sim(steps_);
    const simulated s = sim.run(greedy_largest_first(steps_, sim));
    return s.feasible ? s.ms : -1.0;
  }

  std::int64_t baseline() const { return baseline_.height + static_bytes_; }
  std::int64_t static_bytes() const { return static_bytes_; }

 private:
  std::int64_t no_limit() const { return std::max(plenty, baseline()); }

  // The fastest choice for a capacity. With `certified`, the relaxation's prices and bound.
  struct searched {
    placed_choice fitted;
    bool fits = false;         ///< its layout does
    std::int64_t missing = 0;  ///< no choice was found: bytes that the nearest one lacks
    bool certified = false;
    double bound_ms = 0.0;
    dual_prices prices;
  };
  searched search_within(std::int64_t capacity) {
    const std::int64_t host = problem_.link.host_bytes;
    searched result = search_within(capacity, host);
    if (result.fits || host == INT64_MAX) return result;
    // What fits device and host is hard to find where both are short. A choice that does not know of the
    // host's limit may keep it, too.
    searched other = search_within(capacity, INT64_MAX);
    result.fits = other.fits && beyond_host(other.fitted.where) == 0;
    if (result.fits) result.fitted = std::move(other.fitted);
    return result;
  }

  searched search_within(std::int64_t capacity, std::int64_t host) {
    searched result;
    std::int64_t limit = capacity;
    steps_.link.host_bytes = host;
    // Layout needs more than what is live now and then, on the device and on the host: ask for less until it
    // fits.
    for (int attempt = 0; attempt <= most_attempts; ++attempt) {
      steps_.limit = limit;
      fastest_limits limits;
      limits.evaluations = options_.evaluations;
      limits.seed = options_.seed;
      limits.relax = options_.relax;
      limits.stop = options_.stop;
      // The prices of little less memory are much the same, and so are the choices.
      if (attempt > 0) {
        limits.evaluations /= 4;
        limits.relax = false;
        if (result.certified) limits.prices = &result.prices;
        limits.starts.push_back(result.fitted.choice);
      }
      for (const placed_choice& known : known_) {
        if (known.where.height <= capacity) limits.starts.push_back(known.choice);
      }
      fastest_choice found = find_fastest(steps_, limits);
      if (attempt == 0) {
        result.bound_ms = found.bound_ms;
        result.certified = found.relaxed;
        result.prices = found.prices;
      } else {
        found.relaxed = result.certified;
        found.prices = result.prices;
      }
      result.missing = found.missing;
      if (!found.found) break;
      // More rounds are worth their time where layouts are quick and nothing else was tried yet.
      const bool thorough = attempt == 0 && steps_.ms.size() <= most_steps_of_thorough;
      result.fitted = fitter_.fit(found, capacity, thorough);
      result.fits = result.fitted.where.height <= capacity;
      const bool capped = result.fits && host != INT64_MAX;
      if (const std::int64_t beyond = capped ? beyond_host(result.fitted.where) : 0; beyond > 0) {
        result.fits = false;
        steps_.link.host_bytes = std::max<std::int64_t>(0, steps_.link.host_bytes - beyond);
        continue;
      }
      if (result.fits) break;
      limit -= std::max(result.fitted.where.height - capacity, capacity / least_parts_of_capacity) *
               (1 + attempt / 2);
    }
    return result;
  }

  // What the host arena takes above what the machine has for it.
  std::int64_t beyond_host(const placement& where) const {
    const std::int64_t most = problem_.link.host_bytes;
    return most == INT64_MAX ? 0 : std::max<std::int64_t>(0, bytes_on_host(where) - most);
  }

  // What a rule makes of a limit on maps, with its layout.
  struct placed_rule {
    ruled decision;
    placed_choice placed;
  };
  std::optional<placed_rule> by_rule(std::int64_t limit, std::int64_t capacity, std::int64_t host) {
    problem ticks = problem_;
    ticks.link.host_bytes = host;
    const ruled decision =
        apply_rule(options_.chosen_policy, {g_, set_, limit, static_bytes_, options_.swap_all}, ticks);
    steps_ = compress(ticks);
    steps_.limit = limit;
    simulator sim(steps_);
    std::optional<placed_rule> lowest;
    for (int round = 0; round < rounds_of_rule; ++round) {
      timeline_record record;
      const option_choice& c = decision.choice;
      const simulated s = decision.late ? sim.run_late(c, record)
                                        : sim.run(c, std::numeric_limits<double>::infinity(), &record);
      if (!s.feasible) break;
      placed_choice p = place_choice(c, s, record, capacity, quick_layout_work);
      const placement where = p.where;
      if (!lowest || where.height < lowest->placed.where.height) lowest = {decision, std::move(p)};
      if (where.height <= capacity || options_.chosen_policy == policy::gist) break;
      tighten(where, capacity);
    }
    return lowest;
  }

  plan make_by_rule(std::int64_t requested, std::int64_t budget) {
    const std::int64_t capacity = budget - static_bytes_;
    std::optional<placed_rule> result;
    std::int64_t limit = capacity, host = problem_.link.host_bytes;
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
      result = by_rule(limit, capacity, host);
      if (!result) break;
      const placement& where = result->placed.where;
      const std::int64_t beyond = where.height <= capacity ? beyond_host(where) : 0;
      if (where.height <= capacity && beyond == 0) break;
      if (beyond > 0) {
        host = std::max<std::int64_t>(0, host - beyond);
        result.reset();
      } else {
        limit -= where.height - capacity;
      }
    }
    // What does not fit with less still says what would do.
    std::int64_t more = std::max(capacity, working_set_wall(g_).bytes);
    for (int attempt = 0; !result && attempt < 400; ++attempt, more += more / 24 + 1) {
      result = by_rule(more, more, host);
      if (result && beyond_host(result->placed.where) > 0) result.reset();
    }
    if (!result) refuse_host(budget);
    if (result->placed.where.height > capacity)
      refuse_budget(g_, result->placed.where, static_bytes_, budget);
    steps_ = compress(problem_);
    steps_.limit = capacity;
    double bound = least_ms(steps_);
    relaxed r;
    // Gist's options are one per storage: a bound for these says nothing.
    if (options_.relax && can_relax() && options_.chosen_policy != policy::gist)
      r = relax(steps_, relaxed_steps(steps_.ms.size()), options_.stop);
    if (r.solved) bound = bound_from(steps_, r.prices);
    plan_options own = options_;
    own.budget_bytes = requested;
    count_load(result->decision.choice);
    load_.parameters = result->decision.parameters;
    plan p = assemble(g_, own, facts_, result->placed.chosen, std::move(result->placed.where));
    if (r.solved) p.certificate = certificate_of(r.prices, capacity);
    p.times = {options_.model->name, unplanned_ms_, result->placed.ms, std::min(bound, result->placed.ms),
               r.solved};
    set_timeline(p, *options_.model, result->placed.times);
    say_proven_bound(p);
    return p;
  }

  // A rule that moves more than the host can take, whatever the budget.
  [[noreturn]] void refuse_host(std::int64_t budget) const {
    const std::int64_t host = problem_.link.host_bytes;
    throw error(
        errc::infeasible_budget,
        fmt::format("make_plan: budget: expected one that policy {} can meet{}, got {}",
                    to_string(options_.chosen_policy),
                    host == INT64_MAX ? "" : fmt::format(" with {} bytes on the host", host), budget));
  }

  // The search knows fewer choices than there are; the bound is one over all of them.
  static void say_proven_bound(plan& p) { p.times.bound_ms = std::min(p.times.bound_ms, proven_bound_ms(p)); }

  // What a choice adds to compute and link.
  void count_load(const option_choice& choice) {
    load_ = {};
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const item_option& o = problem_.items[i].options[index(choice[i])];
      for (const added_work& w : o.work)
        load_.added_ms += w.ms;
      for (const transfer& t : o.transfers) {
        load_.moved_bytes += t.bytes;
        load_.out_ms += static_cast<double>(t.bytes) / problem_.link.out_rate + problem_.link.latency_ms;
        load_.in_ms += static_cast<double>(t.bytes) / problem_.link.in_rate + problem_.link.latency_ms;
      }
    }
  }

  bound_certificate certificate_of(const dual_prices& d, std::int64_t capacity) const {
    bound_certificate c;
    c.limit_bytes = capacity;
    c.first_tick = steps_.first_tick;
    for_each_price_row(d, [&](const char* name, const std::vector<double>& list) {
      bound_certificate::row_prices row{name, {}};
      for (std::size_t k = 0; k < list.size(); ++k) {
        if (list[k] != 0.0) row.list.emplace_back(static_cast<std::int32_t>(k), list[k]);
      }
      if (!row.list.empty()) c.prices.push_back(std::move(row));
    });
    return c;
  }

  // Takes from the steps in which blocks stand out of the capacity what they stand out.
  void tighten(const placement& placed, std::int64_t capacity) {
    const std::vector<std::int32_t> step = view_.steps_of(placed.steps);
    std::vector<std::int64_t> out(steps_.ms.size(), 0);
    if (!placed.laid_out) out = view_.most_above(placed, capacity);
    for (const buffer& b : placed.steps.buffers) {
      if (b.form == buffer_form::host || b.offset + b.bytes <= capacity) continue;
      for (std::int32_t k = step[index(b.first_step)]; k <= step[index(b.last_step)]; ++k)
        out[index(k)] = std::max(out[index(k)], b.offset + b.bytes - capacity);
    }
    for (std::size_t k = 0; k < out.size(); ++k)
      steps_.fixed[k] += out[k];
  }

  // Storages that the user does not let go to the host.
  std::vector<char> pinned_storages() const {
    std::vector<char> list(g_.storages.size(), 0);
    for (std::size_t s = 0; s < list.size(); ++s) {
      const tensor_rule* const rule = rule_for(options_.tensors, g_.storages[s].name);
      if (rule == nullptr) continue;
      const bool named = std::find(rule->forms.begin(), rule->forms.end(), "swap") != rule->forms.end();
      list[s] = named == rule->deny ? 1 : 0;
    }
    return list;
  }

  // What picks of configurations are without moving anything.
  option_choice unmoved(const picks& configurations) const {
    option_choice choice(steps_.items.size(), 0);
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const std::vector<item_option>& options = steps_.items[i].options;
      const auto at = std::find_if(options.begin(), options.end(), [&](const item_option& o) {
        return o.swapped == 0 && index(o.configuration) == configurations[i];
      });
      if (at != options.end()) choice[i] = static_cast<std::int32_t>(at - options.begin());
    }
    return choice;
  }

  // Of every component what the baseline does with it, where that is allowed and `as_baseline`; else what
  // adds least work, and of such the one that keeps least.
  option_choice without_codecs(const option_set& raw, const picks& dense, bool as_baseline) const {
    option_choice choice;
    for (std::size_t i = 0; i < set_.components.size(); ++i) {
      const component& c = set_.components[i];
      const std::vector<item_option>& options = problem_.items[i].options;
      std::tuple<bool, double, std::int64_t> best{true, std::numeric_limits<double>::infinity(), 0};
      std::int32_t chosen = 0;
      for (std::size_t o = 0; o < options.size(); ++o) {
        if (options[o].swapped != 0) continue;
        const configuration& f = c.configurations[index(options[o].configuration)];
        const bool other =
            !as_baseline || i >= raw.components.size() || !decides_alike(c, f, raw.components[i], dense[i]);
        double work = 0.0;
        for (const added_work& w : options[o].work)
          work += w.ms;
        const std::tuple cost(other, work, f.kept_bytes);
        if (cost >= best) continue;
        best = cost;
        chosen = static_cast<std::int32_t>(o);
      }
      choice.push_back(chosen);
    }
    return choice;
  }

  static bool decides_alike(const component& c, const configuration& f, const component& other,
                            std::size_t pick) {
    const configuration& picked = other.configurations[pick];
    return c.storages == other.storages && c.ops == other.ops && f.alternatives == picked.alternatives &&
           std::equal(f.choices.begin(), f.choices.end(), picked.choices.begin(), picked.choices.end(),
                      [](const stash_choice& a, const stash_choice& b) {
                        return a.kind == b.kind && to_string(a.stored) == to_string(b.stored);
                      });
  }

  // If the maps fit as they are, no plan needs to be slower than the unplanned step. The search may
  // miss that: where steps are joined it counts more bytes than a layout takes.
  void add_unplanned(std::int64_t capacity, double ms) {
    for (unplanned_choice& u : unplanned_) {
      if (u.ms >= ms || u.max_live > capacity) continue;
      steps_.limit = no_limit();
      timeline_record record;
      simulator sim(steps_);
      u.ms = sim.run(u.choice, std::numeric_limits<double>::infinity(), &record).ms;
      if (u.ms >= ms) continue;
      selection chosen = view_.select(u.choice, record);
      schedule steps = facts_.build(chosen, options_);
      u.max_live = without_layout(steps).max_live;
      if (u.max_live > capacity) continue;
      placement where = place_within(options_, std::move(steps), capacity, quick_layout_work, &baseline_);
      if (where.height > capacity) continue;
      known_.push_back(
          {u.choice, std::move(chosen), std::move(where), view_.times_of(u.choice, record), u.ms});
      ms = u.ms;
    }
  }

  placed_choice place_choice(const option_choice& choice, const simulated& s, const timeline_record& record,
                             std::optional<std::int64_t> capacity = {},
                             std::int64_t work = default_layout_work) const {
    selection chosen = view_.select(choice, record);
    placement where = place_within(options_, facts_.build(chosen, options_), capacity, work);
    return {choice, std::move(chosen), std::move(where), view_.times_of(choice, record), s.ms};
  }

  // What is smallest without moving anything. Where maps are small, the arena for overflow of sparse forms is
  // larger than what they save.
  const placed_choice& unmoved_plan() {
    if (unmoved_) return *unmoved_;
    steps_.limit = no_limit();
    const search finder(facts_, set_, options_);
    for (const bool sparse : {true, false}) {
      if (!sparse && !overflow_arena_matters(unmoved_->where)) break;
      const option_choice choice = unmoved(finder.smallest_peak(sparse));
      timeline_record record;
      simulator sim(steps_);
      const simulated s = sim.run(choice, std::numeric_limits<double>::infinity(), &record);
      placed_choice p = place_choice(choice, s, record);
      if (!unmoved_ || p.where.height < unmoved_->where.height) unmoved_ = std::move(p);
    }
    return *unmoved_;
  }

  // What the search begins with under a limit on live bytes; its layout may be higher. Nothing if that does
  // not fit, and by how much.
  std::optional<placed_choice> first_plan(std::int64_t limit, std::int64_t& missing) {
    steps_.limit = limit;
    steps_.link.host_bytes = problem_.link.host_bytes;
    fastest_limits limits;
    limits.evaluations = 0;
    limits.relax = false;
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
      const fastest_choice found = find_fastest(steps_, limits);
      missing = found.missing;
      if (!found.found) break;
      timeline_record record;
      simulator sim(steps_);
      const simulated s = sim.run_late(found.choice, record);
      placed_choice placed = place_choice(found.choice, s, record);
      missing = beyond_host(placed.where);
      if (missing == 0) return placed;
      steps_.link.host_bytes = std::max<std::int64_t>(0, steps_.link.host_bytes - missing);
    }
    return {};
  }

  placed_choice simple_plan(std::int64_t limit) {
    std::int64_t missing = 0;
    std::optional<placed_choice> m = first_plan(limit, missing);
    return m && m->where.height <= unmoved_plan().where.height ? *m : unmoved_plan();
  }

  // A plan within little more than `capacity`, found without searching.
  placement quick_plan_above(std::int64_t capacity, std::int64_t missing) {
    const placement& unmoved = unmoved_plan().where;
    std::int64_t limit = std::max<std::int64_t>(capacity, 0) + std::max<std::int64_t>(missing, 1);
    for (int attempt = 0; attempt < 60 && limit < unmoved.height; ++attempt) {
      missing = 0;
      std::optional<placed_choice> m = first_plan(limit, missing);
      if (!m) {
        limit += std::max(missing, limit / 64 + 1);
        continue;
      }
      if (m->where.height > capacity && m->where.height <= limit) return std::move(m->where);
      limit = std::max(limit + limit / 256 + 1, m->where.height);
    }
    return unmoved;
  }

  // Names a budget for which make() has a plan.
  [[noreturn]] void refuse(std::int64_t budget, std::int64_t capacity, std::int64_t missing) {
    placement enough = options_.smallest_budget ? unmoved_plan().where : quick_plan_above(capacity, missing);
    std::int64_t too_little = std::max(capacity, working_set_wall(g_).bytes);
    while (options_.smallest_budget && enough.height - too_little > enough.height / parts_of_named_budget) {
      const std::int64_t between = too_little + (enough.height - too_little) / 2;
      searched s = search_within(between);
      if (s.fits) {
        enough = std::move(s.fitted.where);
        enough.height = between;  // the search for less is another one
      } else {
        too_little = between;
      }
    }
    refuse_budget(g_, enough, static_bytes_, budget);
  }

  graph g_;
  plan_options options_;
  scheduler facts_;
  option_set set_;
  problem problem_;
  step_problem steps_;
  timeline_of_choice view_{g_, set_, problem_, steps_};
  layout_fitter fitter_{steps_, view_, facts_, options_};
  std::int64_t static_bytes_ = 0;
  placement baseline_;  ///< nothing encoded or moved
  double unplanned_ms_ = 0.0;
  std::vector<placed_choice> known_;
  /// A choice that encodes and moves nothing, or as little as is allowed.
  struct unplanned_choice {
    option_choice choice;
    double ms = 0.0;            ///< at least
    std::int64_t max_live = 0;  ///< at least
  };
  std::vector<unplanned_choice> unplanned_;
  std::optional<placed_choice> unmoved_;  ///< the smallest plan without transfers
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
