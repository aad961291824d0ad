// SPDX-License-Identifier: Apache-2.0
// Bytes that no plan of a graph gets below if nothing of it is ever on the host (docs/plan.md, "Sizes"): the
// largest sum, over time, of what is there whatever is chosen and the least that each group of choices can do
// with.

#include <algorithm>
#include <limits>
#include <vector>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

// Configurations of one group that are looked at one by one, and steps that this may take for all groups.
constexpr double most_configurations = 20'000;
constexpr double most_steps = 2e8;

// One storage of a group: where it is dense anyway, and what a configuration keeps of it.
struct kept_storage {
  std::int64_t dense = 0, kept = 0;
  bool encoded = false;                ///< by a step of its own
  bool decodes = false;                ///< by steps of their own
  std::int32_t born = 0;               ///< first tick
  std::int32_t released = -1;          ///< last tick of the forward pass that needs it dense
  std::int32_t last = -1;              ///< tick of the last op that reads the kept form
  std::vector<std::int32_t> dense_at;  ///< ticks of ops that need it dense again, ascending

  void read_at(std::int32_t tick, bool again) {
    last = std::max(last, tick);
    if (again && (dense_at.empty() || dense_at.back() != tick)) dense_at.push_back(tick);
  }
  bool is_dense_at(std::int32_t tick) const {
    return std::binary_search(dense_at.begin(), dense_at.end(), tick);
  }
  // Between ops: while it is not being encoded or decoded.
  std::int64_t bytes(std::int32_t tick) const {
    if (tick < born || tick > std::max(released, last)) return 0;
    if (tick <= released) return dense;
    if (!is_dense_at(tick)) return kept;
    return tick == last ? dense : dense + kept;
  }
  // The same, at the worst moment between two ops.
  std::int64_t most_bytes(std::int32_t tick) const {
    const bool encodes = encoded && tick == released + 1 && last > tick;
    const bool decoded_next = decodes && tick % 2 != 0 && is_dense_at(tick + 1);
    return encodes || decoded_next ? dense + kept : bytes(tick);
  }
};

class group_bytes {
 public:
  /// `casts_only`: as in time_model.
  group_bytes(const plan& p, const legal_set& legal, const choice_group& c, bool casts_only)
      : g_(p.network), c_(c), choices_(g_, legal, c, casts_only, 0.0) {
    for (const storage_id s : c.storages) {
      const storage_role role = g_.storages[s].role;
      const dense_life& l = legal.life(s);
      kept_storage& k = storages_.emplace_back();
      k.dense = round_up(g_.storages[s].bytes(g_.batch));
      k.born = role == storage_role::image || !l.first.valid() ? 0 : tick_of(l.first);
      if (role != storage_role::auxiliary && l.last_forward.valid()) k.released = tick_of(l.last_forward);
    }
    cut();
  }

  std::int32_t first() const { return cuts_.front(); }
  std::int32_t end() const { return cuts_.back(); }
  std::size_t segments() const { return cuts_.size() - 1; }
  std::int32_t cut(std::size_t i) const { return cuts_[i]; }

  // visit() for every configuration, with storages() as it keeps them; or once, with what none gets below,
  // where there are too many.
  template <class Visit>
  void each_configuration(double& budget, Visit visit) {
    const double n = choices_.configurations(most_configurations);
    const double steps = n * static_cast<double>(segments() * storages_.size());
    if (n > most_configurations || steps > budget) {
      keep_least();
      visit();
      return;
    }
    budget -= steps;
    choices_.each([&](const configuration& x) {
      if (keep(x)) visit();
    });
  }

  const id_vector<local_storage, kept_storage>& storages() const { return storages_; }

 private:
  // Ticks at which something may change, whatever is chosen.
  void cut() {
    for (const kept_storage& k : storages_)
      cuts_.insert(cuts_.end(), {k.born, k.released + 1, k.released + 2});
    for (const op_id t : c_.ops)
      cuts_.insert(cuts_.end(), {tick_of(t) - 1, tick_of(t), tick_of(t) + 1});
    const auto end = static_cast<std::int32_t>(2 * g_.ops.size()) - 1;
    for (std::int32_t& tick : cuts_)
      tick = std::clamp(tick, 0, end);
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  }

  // One configuration; false if it is not legal.
  bool keep(const configuration& x) {
    for (std::size_t k = 0; k < storages_.size(); ++k) {
      const legal_form& f = *x.form[k];
      const bool code = g_.storages[c_.storages[k]].role == storage_role::auxiliary;
      storages_[k].kept = f.kept;
      storages_[k].encoded = f.stores() && f.kept > 0 && !code;
      storages_[k].decodes = f.kind == stash_kind::encoded && f.kept > 0 && !code;
      storages_[k].last = -1;
      storages_[k].dense_at.clear();
    }
    for (std::size_t i = 0; i < c_.ops.size(); ++i) {
      const std::int32_t tick = tick_of(c_.ops[i]);
      for (const auto& [k, read] : choices_.reads[i][x.picked[i]]) {
        const access how = legal_set::read(g_.ops[c_.ops[i]], *read, *x.form[k], sources_in(x, *x.form[k]));
        if (how == access::illegal) return false;
        storages_[k].read_at(tick, how == access::decoded || how == access::recomputed);
        if (how != access::recomputed) continue;
        // In place of a source where that is decoded for it: sources are needed before the op, no longer.
        for (const std::int32_t from : x.form[k]->sources)
          storages_[from].read_at(tick - 1, false);
      }
    }
    return true;
  }

  // Of each storage the smallest form that serves those who read it in any case, never decoded.
  void keep_least() {
    for (std::size_t k = 0; k < storages_.size(); ++k) {
      storages_[k].encoded = storages_[k].decodes = false;
      storages_[k].last = -1;
      storages_[k].dense_at.clear();
      std::vector<legal_form> serving = choices_.forms[k];
      for (std::size_t i = 0; i < c_.ops.size(); ++i) {
        if (choices_.alternatives[i].size() != 1) continue;
        for (const group_choices::local_read& r : choices_.reads[i][choices_.alternatives[i][0]]) {
          if (position_of(r.storage) != k) continue;
          storages_[k].read_at(tick_of(c_.ops[i]), false);
          std::erase_if(serving, [&](const legal_form& f) { return !choices_.may_serve(i, *r.read, f); });
        }
      }
      storages_[k].kept = storages_[k].dense;
      for (const legal_form& f : serving)
        storages_[k].kept = std::min(storages_[k].kept, f.kept);
    }
  }

  const graph& g_;
  const choice_group& c_;
  const group_choices choices_;
  id_vector<local_storage, kept_storage> storages_;
  std::vector<std::int32_t> cuts_;  ///< nothing changes from one to the next
};

std::int64_t largest_between(const id_vector<std::int32_t, std::int64_t>& live, std::int32_t first,
                             std::int32_t end) {
  return *std::max_element(live.begin() + first, live.begin() + end);
}

constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();

class least_bytes {
 public:
  explicit least_bytes(const plan& p) : p_(p), legal_(p), groups_(groups_of(p.network, legal_)) {
    live_ =
        id_vector<std::int32_t, std::int64_t>(fixed_bytes(p.network, legal_, 2 * p.network.ops.size() - 1));
  }

  std::int64_t run() {
    double budget = most_steps;
    for (std::size_t n = 0; n < groups_.size(); ++n) {
      casts_only_.push_back(p_.model && time_model_of(*p_.model)->casts_only() ? 1 : 0);
      least_.push_back(least_of(n, budget));
      // What only a code can serve keeps all its forms.
      if (casts_only_[n] != 0 && !least_[n].empty() && least_[n][0] == unknown) {
        casts_only_[n] = 0;
        least_[n] = least_of(n, budget);
      }
      add(n);
    }
    std::int64_t bound = *std::max_element(live_.begin(), live_.end());
    budget = most_steps;
    for (std::size_t n = 0; n < groups_.size(); ++n)
      bound = std::max(bound, with_one_configuration(n, budget));
    return bound;
  }

 private:
  group_bytes group(std::size_t n) const { return {p_, legal_, groups_[n], casts_only_[n] != 0}; }

  // Per segment of the group's time.
  std::vector<std::int64_t> least_of(std::size_t n, double& budget) const {
    group_bytes g = group(n);
    std::vector<std::int64_t> least(g.segments(), unknown);
    g.each_configuration(budget, [&] {
      for (std::size_t i = 0; i < least.size(); ++i) {
        std::int64_t bytes = 0;
        for (const kept_storage& k : g.storages())
          bytes += k.bytes(g.cut(i));
        least[i] = std::min(least[i], bytes);
      }
    });
    return least;
  }

  void add(std::size_t n) {
    const group_bytes g = group(n);
    for (std::size_t i = 0; i < least_[n].size(); ++i) {
      if (least_[n][i] == unknown) least_[n][i] = 0;  // no configuration is legal
      for (std::int32_t t = g.cut(i); t < g.cut(i + 1); ++t)
        live_[t] += least_[n][i];
    }
  }

  // A plan gives every group one configuration: what that takes at all times, and while it is encoded or
  // decoded, comes on top of the least of all others.
  std::int64_t with_one_configuration(std::size_t n, double& budget) const {
    group_bytes g = group(n);
    std::vector<std::int64_t> others;
    for (std::size_t i = 0; i < g.segments(); ++i)
      others.push_back(largest_between(live_, g.cut(i), g.cut(i + 1)) - least_[n][i]);
    std::int64_t best = unknown;
    g.each_configuration(budget, [&] {
      std::int64_t worst = 0;
      for (std::size_t i = 0; i < others.size(); ++i) {
        std::int64_t bytes = 0, transient = 0;
        for (const kept_storage& k : g.storages()) {
          const std::int64_t calm = k.bytes(g.cut(i));
          bytes += calm;
          transient = std::max(transient, k.most_bytes(g.cut(i)) - calm);
        }
        worst = std::max(worst, others[i] + bytes + transient);
      }
      best = std::min(best, worst);
    });
    return best == unknown ? 0 : best;
  }

  const plan& p_;
  const legal_set legal_;
  const std::vector<choice_group> groups_;
  std::vector<char> casts_only_;                  ///< per group
  std::vector<std::vector<std::int64_t>> least_;  ///< per group and segment
  id_vector<std::int32_t, std::int64_t> live_;    ///< per tick: of all groups and what is there anyway
};

}  // namespace

std::vector<std::int64_t> fixed_bytes(const graph& g, const legal_set& legal, std::size_t ticks) {
  std::vector<std::int64_t> fixed(ticks + 1, 0);
  for (const storage_id s : g.storages.ids()) {
    const storage& x = g.storages[s];
    const storage_id id = s;
    const dense_life& l = legal.life(id);
    if (!l.first.valid() || legal.stashed(id) || !x.batch_proportional() || x.role == storage_role::auxiliary)
      continue;
    const bool is_input = x.role == storage_role::image || x.role == storage_role::label;
    const std::int64_t bytes = round_up(x.bytes(g.batch));
    fixed[is_input ? 0 : position_of(tick_of(l.first))] += bytes;
    fixed[position_of(tick_of(l.last)) + 1] -= bytes;
  }
  for (std::size_t t = 1; t < fixed.size(); ++t)
    fixed[t] += fixed[t - 1];
  fixed.resize(ticks);
  return fixed;
}

std::int64_t least_peak(const plan& p) {
  const std::size_t ops = p.network.ops.size();
  return ops == 0 || ops > most_ops ? 0 : least_bytes(p).run();
}

}  // namespace stash::planner::validation
