// SPDX-License-Identifier: Apache-2.0
// The least that storages which depend on each other can cost under the prices: over all their
// configurations one by one, or, where these are too many, from below by elimination of one choice after the
// other.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

// Configurations of one group that are looked at one by one.
constexpr double most_configurations = 20000;
// Entries of one table of the elimination.
constexpr std::size_t largest_table = std::size_t{1} << 18;

// A function of a few choices.
struct factor {
  std::vector<std::size_t> variables;  // ascending
  std::vector<double> table;           // the first variable changes slowest
};

// One class: exact costs and bounds from below price the same lives under the same certificate.
class group {
 public:
  group(const plan& p, const legal_set& legal, const tick_prices& prices, const choice_group& c)
      : g_(p.network),
        times_(time_model_of(*p.model)),
        margin_(p.slot_margin),
        legal_(legal),
        prices_(prices),
        c_(c),
        choices_(g_, legal, c, times_->casts_only(), margin_) {
    for (const storage_id s : c.storages)
      dense_.push_back(round_up(g_.storages[s].bytes(g_.batch)));
  }

  group_cost run(std::int64_t& budget) {
    group_cost result = search(budget);
    // What only a code can serve keeps all its forms.
    if (!result.legal && times_->casts_only()) {
      choices_ = group_choices(g_, legal_, c_, false, margin_);
      result = search(budget);
    }
    result.movable.assign(prices_.classes(), 0.0);
    for (std::size_t k = 0; k < choices_.forms.size(); ++k) {
      double kept = 0.0;
      // Even for the group's last reader there must be time to be away.
      const std::int32_t released = released_after(k);
      const bool leaves = released >= 0 && !c_.ops.empty() && away(released, tick_of(c_.ops.back()) - 1);
      std::int64_t movable = 0;
      for (const legal_form& f : choices_.forms[k]) {
        kept = std::max(kept, static_cast<double>(f.kept) + f.overflow);
        if (leaves && legal_.movable(c_.storages[k], f.kept)) movable = std::max(movable, f.kept);
      }
      for (std::size_t c = 0; c < result.movable.size(); ++c)
        result.movable[c] += static_cast<double>(prices_.counted(movable, c));
      result.most_bytes += kept + static_cast<double>(dense_[k]);
    }
    for (std::size_t i = 0; i < c_.ops.size(); ++i) {
      for (const auto& reads : choices_.reads[i]) {
        for (const local_read& r : reads)
          result.most_bytes += static_cast<double>(dense_[r.storage]);
      }
    }
    return result;
  }

 private:
  using local_read = group_choices::local_read;
  // Ops that read a kept form.
  struct life {
    op_id first = no_id, last = no_id;
    bool decoded_last = false;
    void add(op_id t, bool decoded) {
      if (!first.valid()) first = t;
      decoded_last = decoded || (last == t && decoded_last);
      last = t;
    }
  };

  // ---- what single choices cost ---------------------------------------------------------------------

  // What work costs, and how long it takes.
  struct cost {
    sum_t priced = 0.0L;
    double work = 0.0;
  };
  void work(cost& c, std::int32_t tick, double ms) const {
    c.priced += static_cast<sum_t>(prices_.work(tick)) * ms;
    c.work += ms;
  }
  void decode(cost& c, std::size_t k, const legal_form& f, op_id t) const {
    work(c, tick_of(t) - 1, times_->codec_time(f.stored.kind, dense_[k], f.kept));
  }
  void hold_dense(cost& c, std::size_t k, op_id t) const {
    c.priced += static_cast<sum_t>(dense_[k]) * prices_.hold(tick_of(t) - 1, tick_of(t));
  }
  void run_again(cost& c, op_id o, op_id t) const { work(c, tick_of(t) - 1, times_->op_time(g_, g_.ops[o])); }

  // The dense life in the forward stage, and the encoder.
  void forward(cost& c, std::size_t k, const legal_form& f, bool read) const {
    const storage_id s = c_.storages[k];
    const storage_role role = g_.storages[s].role;
    const dense_life& l = legal_.life(s);
    if (role == storage_role::image || role == storage_role::auxiliary || !l.last_forward.valid()) return;
    c.priced += static_cast<sum_t>(dense_[k]) * prices_.hold(tick_of(l.first), tick_of(l.last_forward));
    if (read && f.stores())
      work(c, tick_of(l.last_forward) + 1, times_->codec_time(f.stored.kind, dense_[k], f.kept));
  }

  // The tick after which the kept form may leave; -1: never.
  std::int32_t released_after(std::size_t k) const {
    const dense_life& l = legal_.life(c_.storages[k]);
    return l.last_forward.valid() ? tick_of(l.last_forward) + 1 : -1;
  }
  static bool away(std::int32_t released, std::int32_t needed) { return needed > released + 2; }

  // The kept form, on the device or for a while on the host.
  sum_t keep(std::size_t k, const legal_form& f, const life& reads) const {
    if (f.kept == 0 || !reads.first.valid()) return 0.0L;
    const storage_id s = c_.storages[k];
    const storage_role role = g_.storages[s].role;
    const dense_life& l = legal_.life(s);
    const std::int32_t released = released_after(k);
    std::int32_t first = std::max(released, 0);
    if (role == storage_role::image) first = 0;
    if (role == storage_role::auxiliary) first = std::max(tick_of(l.first), 0);
    const std::int32_t needed = tick_of(reads.first) - 1;
    const std::int32_t last = tick_of(reads.last) - (reads.decoded_last ? 1 : 0);
    const auto end = static_cast<std::int32_t>(2 * g_.ops.size()) - 2;
    sum_t sum = static_cast<sum_t>(f.kept) * prices_.hold(first, last) + f.overflow * prices_.hold(0, end);
    if (released >= 0 && away(released, needed) && legal_.movable(s, f.kept))
      sum += std::min(sum_t{0.0L}, prices_.move(released, needed, f.kept));
    return sum;
  }

  // ---- all configurations ---------------------------------------------------------------------------

  group_cost search(std::int64_t& budget) {
    const double all = choices_.configurations(most_configurations);
    if (all > most_configurations || all > static_cast<double>(budget)) return eliminate();
    budget -= static_cast<std::int64_t>(all);
    return enumerate();
  }

  group_cost enumerate() {
    group_cost best;
    best.priced = best.work = impossible;
    lives_.assign(choices_.forms.size(), {});
    choices_.each([&](const configuration& x) {
      cost c;
      if (!evaluate(x, c)) return;
      best.priced = std::min(best.priced, static_cast<double>(c.priced));
      best.work = std::min(best.work, c.work);
      best.most_work = std::max(best.most_work, c.work);
    });
    best.legal = best.priced < impossible;
    return best;
  }

  // One complete configuration; false if it is not legal.
  bool evaluate(const configuration& x, cost& c) {
    std::fill(lives_.begin(), lives_.end(), life{});
    for (std::size_t i = 0; i < c_.ops.size(); ++i) {
      const std::int32_t number = x.picked[i];
      if (alternatives_of(i) > 1)
        work(c, tick_of(c_.ops[i]), times_->alternative_time(g_.ops[c_.ops[i]].alternatives[number]));
      if (!evaluate_reads(i, choices_.reads[i][number], x, c)) return false;
    }
    for (std::size_t k = 0; k < choices_.forms.size(); ++k) {
      forward(c, k, *x.form[k], lives_[k].first.valid());
      c.priced += keep(k, *x.form[k], lives_[k]);
    }
    return true;
  }

  std::size_t alternatives_of(std::size_t i) const { return g_.ops[c_.ops[i]].alternatives.size(); }

  bool evaluate_reads(std::size_t i, const std::vector<local_read>& reads, const configuration& x, cost& c) {
    const op_id t = c_.ops[i];
    decoded_.clear();
    run_again_.clear();
    const auto decoded_already = [&](std::size_t k) {
      return std::find(decoded_.begin(), decoded_.end(), k) != decoded_.end();
    };
    const auto reads_it = [&](std::size_t k) {
      return std::any_of(reads.begin(), reads.end(),
                         [k](const local_read& r) { return position_of(r.storage) == k; });
    };
    for (const local_read& r : reads) {
      const std::size_t k = position_of(r.storage);
      const legal_form& form = *x.form[k];
      switch (legal_set::read(g_.ops[t], *r.read, form, sources_in(x, form))) {
        case access::illegal:
          return false;
        case access::direct:
          lives_[k].add(t, false);
          break;
        case access::decoded:
          lives_[k].add(t, true);
          if (decoded_already(k)) break;
          decoded_.push_back(k);
          decode(c, k, *x.form[k], t);
          hold_dense(c, k, t);
          break;
        case access::recomputed: {
          lives_[k].add(t, false);
          if (decoded_already(k)) break;
          decoded_.push_back(k);
          hold_dense(c, k, t);
          for (const op_id o : form.again->ops) {
            if (std::find(run_again_.begin(), run_again_.end(), o) != run_again_.end()) continue;
            run_again_.push_back(o);
            run_again(c, o, t);
          }
          for (const std::int32_t from : form.sources) {
            const std::size_t s = position_of(from);
            const legal_form& source = *x.form[s];
            lives_[s].add(t, source.kind != stash_kind::raw);
            if (source.kind == stash_kind::raw || decoded_already(s)) continue;
            decoded_.push_back(s);
            decode(c, s, source, t);
            // Another map may be computed in its place, unless the op reads the source too.
            if (reads_it(s)) hold_dense(c, s, t);
          }
          break;
        }
      }
    }
    return true;
  }

  // ---- from below -----------------------------------------------------------------------------------
  // Every storage is charged for the reads that it has under all alternatives, every op for what it decodes.
  // What depends on more than one op and one storage with its source is left out.

  group_cost eliminate() {
    group_cost result;
    result.exact = false;
    sizes_.clear();
    factors_.clear();
    for (const auto& list : choices_.forms)
      sizes_.push_back(list.size());
    for (const auto& list : choices_.alternatives)
      sizes_.push_back(list.size());
    for (std::size_t k = 0; k < choices_.forms.size(); ++k)
      add_storage(k);
    for (std::size_t i = 0; i < c_.ops.size(); ++i)
      add_op(i);
    result.priced = least_sum();
    result.legal = result.priced < impossible;
    for (const std::size_t size : sizes_)
      result.legal = result.legal && size > 0;
    for (const op_id t : c_.ops) {
      for (const stash_alternative& a : g_.ops[t].alternatives)
        result.most_work += times_->alternative_time(a);
    }
    return result;
  }

  bool always_read(std::size_t i, std::size_t k) const {
    return std::all_of(choices_.alternatives[i].begin(), choices_.alternatives[i].end(), [&](std::int32_t a) {
      const std::vector<local_read>& reads = choices_.reads[i][a];
      return std::any_of(reads.begin(), reads.end(),
                         [k](const local_read& r) { return position_of(r.storage) == k; });
    });
  }
  // Whether some recipe computes `target` from `k`.
  bool is_source(std::size_t k, std::size_t target) const {
    const std::vector<std::int32_t>& all = choices_.sources[target];
    return std::binary_search(all.begin(), all.end(), static_cast<std::int32_t>(k));
  }

  // Whether the op may read the storage, itself or to compute another one again.
  bool may_read(std::size_t i, std::size_t k) const {
    return std::any_of(choices_.reads[i].begin(), choices_.reads[i].end(),
                       [&](const std::vector<local_read>& reads) {
                         return std::any_of(reads.begin(), reads.end(), [&](const local_read& r) {
                           return position_of(r.storage) == k || is_source(k, position_of(r.storage));
                         });
                       });
  }
  bool may_decode(std::size_t i, std::size_t k, const legal_form& f) const {
    if (f.kind != stash_kind::encoded) return false;
    return std::any_of(choices_.reads[i].begin(), choices_.reads[i].end(),
                       [&](const std::vector<local_read>& reads) {
                         return std::any_of(reads.begin(), reads.end(), [&](const local_read& r) {
                           if (position_of(r.storage) != k) return is_source(k, position_of(r.storage));
                           return legal_set::read(g_.ops[c_.ops[i]], *r.read, f, {}) == access::decoded;
                         });
                       });
  }

  void add_storage(std::size_t k) {
    factor own{{k}, {}};
    for (const legal_form& f : choices_.forms[k]) {
      life certain;
      sum_t alone = 0.0L;  // nobody reads it, or one op
      for (std::size_t i = 0; i < c_.ops.size(); ++i) {
        if (!may_read(i, k)) continue;
        life single;
        single.add(c_.ops[i], may_decode(i, k, f));
        if (always_read(i, k)) certain.add(c_.ops[i], single.decoded_last);
        alone = std::min(alone, keep(k, f, single));
      }
      cost c;
      forward(c, k, f, certain.first.valid());
      c.priced += certain.first.valid() ? keep(k, f, certain) : alone;
      own.table.push_back(static_cast<double>(c.priced));
    }
    factors_.push_back(std::move(own));
  }

  void add_op(std::size_t i) {
    const op_id t = c_.ops[i];
    const std::size_t variable = choices_.forms.size() + i;
    factor own{{variable}, {}};
    for (const std::int32_t a : choices_.alternatives[i]) {
      cost c;
      if (alternatives_of(i) > 1) work(c, tick_of(t), times_->alternative_time(g_.ops[t].alternatives[a]));
      own.table.push_back(static_cast<double>(c.priced));
    }
    factors_.push_back(std::move(own));
    std::vector<std::size_t> read;
    for (const auto& reads : choices_.reads[i]) {
      for (const local_read& r : reads)
        read.push_back(position_of(r.storage));
    }
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (const std::size_t k : read)
      add_reads(i, k);
  }

  // What the op's reads of one storage cost, by alternative, its form and its sources' forms. Where there are
  // too many sources for a table, these are taken to be kept raw, which costs least.
  void add_reads(std::size_t i, std::size_t k) {
    const std::vector<std::int32_t>& sources = choices_.sources[k];
    factor f;
    f.variables = {k, choices_.forms.size() + i};
    for (const std::int32_t s : sources)
      f.variables.push_back(position_of(s));
    std::sort(f.variables.begin(), f.variables.end());
    if (entries_of(f) > largest_table) {
      f.variables = {k, choices_.forms.size() + i};
      std::sort(f.variables.begin(), f.variables.end());
    }
    f.table.resize(entries_of(f));
    std::vector<std::size_t> value(f.variables.size(), 0);
    for (std::size_t e = 0; e < f.table.size(); ++e) {
      std::size_t rest = e;
      for (std::size_t n = f.variables.size(); n-- > 0;) {
        value[n] = rest % sizes_[f.variables[n]];
        rest /= sizes_[f.variables[n]];
      }
      const auto value_of = [&](std::size_t v) -> std::optional<std::size_t> {
        const auto at = std::find(f.variables.begin(), f.variables.end(), v);
        if (at == f.variables.end()) return std::nullopt;
        return value[static_cast<std::size_t>(at - f.variables.begin())];
      };
      f.table[e] = read_cost(i, k, choices_.alternatives[i][*value_of(choices_.forms.size() + i)],
                             choices_.forms[k][*value_of(k)], value_of);
    }
    factors_.push_back(std::move(f));
  }

  std::size_t entries_of(const factor& f) const {
    std::size_t entries = 1;
    for (const std::size_t v : f.variables)
      entries *= sizes_[v];
    return entries;
  }

  // `value_of`: number of the form of a storage, if it is known.
  template <class ValueOf>
  double read_cost(std::size_t i, std::size_t k, std::int32_t a, const legal_form& f,
                   const ValueOf& value_of) const {
    const op_id t = c_.ops[i];
    const std::vector<local_read>& reads = choices_.reads[i][a];
    const auto form_of = [&](std::int32_t s) -> const legal_form* {
      const std::optional<std::size_t> number = value_of(position_of(s));
      return number ? &choices_.forms[s][*number] : nullptr;
    };
    source_forms sources;
    for (const std::int32_t s : f.sources)
      if (const legal_form* const form = form_of(s); form != nullptr) sources.add(*form);
    bool decoded = false, recomputed = false;
    for (const local_read& r : reads) {
      if (position_of(r.storage) != k) continue;
      const access how = legal_set::read(g_.ops[t], *r.read, f, sources);
      if (how == access::illegal) return impossible;
      decoded = decoded || how == access::decoded;
      recomputed = recomputed || how == access::recomputed;
    }
    cost c;
    if (decoded) {
      decode(c, k, f, t);
      hold_dense(c, k, t);
    }
    if (recomputed) {
      // What other recipes for this op run as well is not charged twice: only who ends with it pays for it.
      run_again(c, f.again->ops.back(), t);
      hold_dense(c, k, t);
      for (const std::int32_t s : f.sources) {
        const legal_form* const form = form_of(s);
        if (form != nullptr && form->kind == stash_kind::encoded && pays_for(s, k, reads))
          decode(c, position_of(s), *form, t);
      }
    }
    return static_cast<double>(c.priced);
  }

  // Others that the op reads may need the decoded source too, and so may the op: only the first is charged.
  bool pays_for(std::int32_t source, std::size_t k, const std::vector<local_read>& reads) const {
    const auto needs_it = [&](const local_read& r) {
      return r.storage == source || is_source(position_of(source), position_of(r.storage));
    };
    const auto first = std::find_if(reads.begin(), reads.end(), needs_it);
    const bool read_itself =
        std::any_of(reads.begin(), reads.end(), [&](const local_read& r) { return r.storage == source; });
    return !read_itself && position_of(first->storage) == k;
  }

  // The least sum of all factors over all values of the variables, or less: a bucket whose table would be too
  // large is split.
  double least_sum() {
    double sum = 0.0;
    std::vector<char> done(sizes_.size(), 0);
    for (std::size_t round = 0; round < sizes_.size(); ++round) {
      const std::size_t v = next_variable(done);
      done[v] = 1;
      if (sizes_[v] == 0) return impossible;
      std::vector<factor> bucket, others;
      for (factor& f : factors_)
        (std::find(f.variables.begin(), f.variables.end(), v) != f.variables.end() ? bucket : others)
            .push_back(std::move(f));
      factors_ = std::move(others);
      std::stable_sort(bucket.begin(), bucket.end(), [](const factor& a, const factor& b) {
        return a.variables.size() > b.variables.size();
      });
      std::vector<factor> merged;
      for (const factor& f : bucket) {
        const auto fits = std::find_if(merged.begin(), merged.end(), [&](const factor& m) {
          return entries_of(joined(m.variables, f.variables)) <= largest_table;
        });
        if (fits == merged.end()) {
          merged.push_back(f);
        } else {
          *fits = add(*fits, f);
        }
      }
      for (const factor& f : merged) {
        factor rest = without(f, v);
        if (rest.variables.empty()) {
          sum += rest.table[0];
        } else {
          factors_.push_back(std::move(rest));
        }
      }
    }
    return sum;
  }

  std::size_t entries_of(const std::vector<std::size_t>& variables) const {
    std::size_t n = 1;
    for (const std::size_t v : variables) {
      n *= sizes_[v];
      if (n > largest_table) return largest_table + 1;
    }
    return n;
  }
  static std::vector<std::size_t> joined(const std::vector<std::size_t>& a,
                                         const std::vector<std::size_t>& b) {
    std::vector<std::size_t> all;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
    return all;
  }

  // The one whose neighbours have the fewest combinations.
  std::size_t next_variable(const std::vector<char>& done) const {
    std::vector<std::vector<std::size_t>> scope(sizes_.size());
    for (const factor& f : factors_) {
      for (const std::size_t v : f.variables) {
        if (entries_of(scope[v]) <= largest_table) scope[v] = joined(scope[v], f.variables);
      }
    }
    std::size_t best = sizes_.size(), least = 0;
    for (std::size_t v = 0; v < sizes_.size(); ++v) {
      if (done[v]) continue;
      const std::size_t n = entries_of(scope[v]);
      if (best == sizes_.size() || n < least) {
        best = v;
        least = n;
      }
    }
    return best;
  }

  // Position of the entry of `f` for each entry over `all`, one after the other.
  template <class Visit>
  void walk(const std::vector<std::size_t>& all, const factor& f, Visit visit) const {
    std::vector<std::size_t> stride(all.size(), 0), value(all.size(), 0);
    std::size_t n = 1;
    for (std::size_t i = f.variables.size(); i-- > 0;) {
      const auto position = std::lower_bound(all.begin(), all.end(), f.variables[i]) - all.begin();
      stride[static_cast<std::size_t>(position)] = n;
      n *= sizes_[f.variables[i]];
    }
    std::size_t entries = 1;
    for (const std::size_t v : all)
      entries *= sizes_[v];
    std::size_t at_entry = 0;
    for (std::size_t e = 0; e < entries; ++e) {
      visit(e, at_entry);
      for (std::size_t i = all.size(); i-- > 0;) {
        at_entry += stride[i];
        if (++value[i] < sizes_[all[i]]) break;
        at_entry -= stride[i] * sizes_[all[i]];
        value[i] = 0;
      }
    }
  }

  factor add(const factor& a, const factor& b) const {
    factor sum{joined(a.variables, b.variables), {}};
    std::size_t entries = 1;
    for (const std::size_t v : sum.variables)
      entries *= sizes_[v];
    sum.table.assign(entries, 0.0);
    for (const factor* f : {&a, &b})
      walk(sum.variables, *f, [&](std::size_t e, std::size_t from) { sum.table[e] += f->table[from]; });
    return sum;
  }

  factor without(const factor& f, std::size_t v) const {
    factor rest;
    for (const std::size_t x : f.variables) {
      if (x != v) rest.variables.push_back(x);
    }
    std::size_t entries = 1;
    for (const std::size_t x : rest.variables)
      entries *= sizes_[x];
    rest.table.assign(entries, impossible);
    walk(f.variables, rest,
         [&](std::size_t e, std::size_t to) { rest.table[to] = std::min(rest.table[to], f.table[e]); });
    return rest;
  }

  const graph& g_;
  const std::unique_ptr<const time_model> times_;
  double margin_;
  const legal_set& legal_;
  const tick_prices& prices_;
  const choice_group& c_;
  group_choices choices_;
  id_vector<std::int32_t, std::int64_t> dense_;
  std::vector<life> lives_;  // of the configuration at hand
  std::vector<std::size_t> decoded_;
  std::vector<op_id> run_again_;    // for the op at hand
  std::vector<std::size_t> sizes_;  // per variable: storages, then ops
  std::vector<factor> factors_;
};

}  // namespace

group_cost cheapest(const plan& p, const legal_set& legal, const tick_prices& prices, const choice_group& c,
                    std::int64_t& budget) {
  return group(p, legal, prices, c).run(budget);
}

}  // namespace stash::planner::validation
