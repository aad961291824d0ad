// SPDX-License-Identifier: Apache-2.0
#include "planner/budget_problem.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/baselines/policies.hpp"
#include "planner/graph/cost.hpp"
#include "planner/graph/needs.hpp"
#include "planner/time/items.hpp"

namespace stash::planner {
namespace {

// More than any step takes, but for those that no machine runs.
constexpr std::int64_t plenty = std::int64_t{1} << 52;

// The user's options, as policy and machine have them.
plan_options effective(plan_options options) {
  options.swap = options.swap && swaps(options.chosen_policy);
  const auto prices = cost_model_of(*options.model);
  options = prices->followed(std::move(options));
  return options.chosen_policy == policy::gist ? gist_values(std::move(options)) : options;
}

// Storages that the user does not let go to the host.
id_vector<storage_id, char> staying_storages(const graph& g, const plan_options& options) {
  id_vector<storage_id, char> list(g.storages.size(), 0);
  for (const storage_id s : list.ids()) {
    const tensor_rule* const rule = rule_for(options.tensors, g.storages[s].name);
    if (rule == nullptr) continue;
    const bool named = std::find(rule->forms.begin(), rule->forms.end(), "swap") != rule->forms.end();
    list[s] = named == rule->deny ? 1 : 0;
  }
  return list;
}

problem ticks_of(const graph& g, const option_set& set, const plan_options& options) {
  item_rules rules;
  rules.swap = options.swap;
  rules.smallest_swap = options.smallest_swap;
  rules.overflow_share = options.overflow_share;
  rules.move_images = !has_rule(options.chosen_policy);  // the papers' rules know maps only
  rules.stays = staying_storages(g, options);
  return make_problem(g, set, *options.model, rules, plenty);
}

bool decides_alike(const component& c, const configuration& f, const component& other, std::size_t pick) {
  const configuration& picked = other.configurations[pick];
  return c.storages == other.storages && c.ops == other.ops && f.alternatives == picked.alternatives &&
         std::equal(f.choices.begin(), f.choices.end(), picked.choices.begin(), picked.choices.end(),
                    [](const stash_choice& a, const stash_choice& b) {
                      return a.kind == b.kind && to_string(a.stored) == to_string(b.stored);
                    });
}

// Of every component what the baseline does with it, where that is allowed and `as_baseline`; else what adds
// least work, and of such the one that keeps least.
option_choice without_codecs(const budget_problem& b, const option_set& raw, const picks& dense,
                             bool as_baseline) {
  option_choice choice;
  for (std::size_t i = 0; i < b.set.components.size(); ++i) {
    const component& c = b.set.components[i];
    const id_vector<std::int32_t, item_option>& options = b.ticks.items[i].options;
    std::tuple<bool, double, std::int64_t> best{true, std::numeric_limits<double>::infinity(), 0};
    std::int32_t chosen = 0;
    for (const std::int32_t o : options.ids()) {
      if (options[o].swapped != 0) continue;
      const configuration& f = c.configurations[options[o].configuration];
      const bool other =
          !as_baseline || i >= raw.components.size() || !decides_alike(c, f, raw.components[i], dense[i]);
      double work = 0.0;
      for (const added_work& w : options[o].work)
        work += w.ms;
      const std::tuple cost(other, work, f.kept_bytes);
      if (cost >= best) continue;
      best = cost;
      chosen = o;
    }
    choice.push_back(chosen);
  }
  return choice;
}

}  // namespace

budget_problem::budget_problem(const graph& network, const plan_options& wanted)
    : g(network),
      options(effective(wanted)),
      static_bytes(parameter_bytes(g) + workspace_bytes(g)),
      set(options.chosen_policy == policy::gist ? gist_options(g, options, options.slot_margin)
                                                : make_options(g, options, options.slot_margin)),
      ticks(ticks_of(g, set, options)),
      steps(compress(ticks)) {
  for (const double ms : ticks.tick_ms)
    unplanned_ms += ms;
  plan_options none = options;
  none.chosen_policy = policy::none;
  none.tensors.clear();
  none.force.clear();
  const option_set raw = make_options(g, none, 0.0);
  const search finder(facts, raw, none);
  const picks dense = finder.least_work();
  baseline = place_within(options, finder.build(dense));
  for (const bool as_baseline : {true, false})
    unplanned.push_back({without_codecs(*this, raw, dense, as_baseline), unplanned_ms});
}

std::int64_t budget_problem::no_limit() const {
  return std::max(plenty, baseline.height + static_bytes);
}

std::int64_t budget_problem::beyond_host(const placement& where) const {
  const std::int64_t most = ticks.link.host_bytes;
  return most == INT64_MAX ? 0 : std::max<std::int64_t>(0, bytes_on_host(where) - most);
}

timed_choice budget_problem::place_choice(const option_choice& choice, const simulated& s,
                                          const timeline_record& record, std::optional<std::int64_t> capacity,
                                          std::int64_t work) const {
  selection chosen = view.select(choice, record);
  placement where = place_within(options, facts.build(chosen, options), capacity, work);
  return {{std::move(chosen), std::move(where)}, choice, view.times_of(choice, record), s.ms};
}

}  // namespace stash::planner
