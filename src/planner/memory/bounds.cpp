// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/bounds.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

// What one storage of a component occupies under one configuration.
class occupancy {
 public:
  occupancy(const scheduler& facts, const stash_choice& c, storage_id s, std::vector<reader> readers)
      : facts_(facts), choice_(c), s_(s), readers_(std::move(readers)) {
    const storage& st = facts.network().at(s);
    dense_ = st.bytes(facts.network().batch);
    auxiliary_ = st.role == storage_role::auxiliary;
    image_ = st.role == storage_role::image;
    for (const reader& r : readers_)
      last_ = std::max(last_, r.op);
  }

  // While op `t` runs.
  std::int64_t during(op_id t) const {
    if (t < facts_.first_use(s_)) return image_ ? dense_ : 0;
    if (in_forward_use(t)) return dense_;
    if (t > last_) return 0;
    if (choice_.kind == stash_kind::raw || !decoded_for(t)) return choice_.bytes_after;
    return t == last_ ? dense_ : dense_ + choice_.bytes_after;
  }

  // Between op `t` and the next one, while nothing of this storage is being encoded or decoded.
  std::int64_t after(op_id t) const {
    if (t < facts_.first_use(s_)) return image_ ? dense_ : 0;
    if (in_forward_use(t) && in_forward_use(t + 1)) return dense_;
    return t >= last_ ? 0 : choice_.bytes_after;
  }

  // Between op `t` and the next one, at the worst moment of its own encode or decode step.
  std::int64_t codec_after(op_id t) const {
    const bool kept = choice_.kind != stash_kind::raw && choice_.bytes_after > 0 && !auxiliary_;
    const bool encodes = kept && t == facts_.last_forward_use(s_) && t < last_;
    const bool decodes = kept && choice_.kind == stash_kind::encoded && decoded_for(t + 1);
    return encodes || decodes ? dense_ + choice_.bytes_after : after(t);
  }

  op_id first() const { return image_ ? op_id(0) : facts_.first_use(s_); }
  op_id last() const { return std::max(last_, facts_.last_forward_use(s_)); }

  // Ops from which on what it occupies may be another than for the op before.
  void add_changes(std::vector<op_id>* ops) const {
    const op_id done = facts_.last_forward_use(s_);
    ops->insert(ops->end(), {facts_.first_use(s_), done, done + 1, last_, last_ + 1});
    for (const reader& r : readers_)
      ops->insert(ops->end(), {r.op - 1, r.op, r.op + 1});
  }

 private:
  bool in_forward_use(op_id t) const {
    return !auxiliary_ && t >= facts_.first_use(s_) && t <= facts_.last_forward_use(s_);
  }
  bool decoded_for(op_id t) const {
    return std::any_of(readers_.begin(), readers_.end(), [&](const reader& r) {
      return r.op == t && !reads_directly(facts_.network().op_at(t).kind, r.what, choice_, r.whole);
    });
  }

  const scheduler& facts_;
  stash_choice choice_;
  storage_id s_;
  std::vector<reader> readers_;
  std::int64_t dense_ = 0;
  bool auxiliary_ = false, image_ = false;
  op_id last_ = no_id;
};

// Bytes over time: while op t runs, and between t and t + 1.
using per_op = id_vector<op_id, std::int64_t>;
struct timeline {
  per_op during, after;
};

// The largest of any range of numbers.
class range_maximum {
 public:
  explicit range_maximum(std::vector<std::int64_t> numbers) : of_power_{std::move(numbers)} {
    for (std::size_t width = 1; 2 * width <= of_power_[0].size(); width *= 2) {
      const std::vector<std::int64_t>& half = of_power_.back();
      std::vector<std::int64_t> both(half.size() - width);
      for (std::size_t i = 0; i < both.size(); ++i)
        both[i] = std::max(half[i], half[i + width]);
      of_power_.push_back(std::move(both));
    }
  }

  // Of [first, end), which is not empty.
  std::int64_t operator()(op_id first, op_id end) const {
    std::size_t power = 0;
    while (position_of(end - first) >> (power + 1) != 0)
      ++power;
    const std::vector<std::int64_t>& most = of_power_[power];
    return std::max(most[position_of(first)], most[position_of(end) - (std::size_t{1} << power)]);
  }

 private:
  std::vector<std::vector<std::int64_t>> of_power_;  // of 2^k numbers from each one on
};

// Adds a number to [first, end) of a row that differences stand for.
void add(op_id first, op_id end, std::int64_t bytes, per_op* differences) {
  (*differences)[first] += bytes;
  (*differences)[end] -= bytes;
}

void sum_up(per_op* differences) {
  std::partial_sum(differences->begin(), differences->end(), differences->begin());
  differences->pop_back();
}

// All storages of one component under one configuration.
std::vector<occupancy> occupancies(const scheduler& facts, const option_set& options, const component& c,
                                   const configuration& f) {
  std::vector<occupancy> result;
  for (std::size_t k = 0; k < c.storages.size(); ++k) {
    std::vector<reader> readers = options.fixed_readers[c.storages[k]];
    for (std::size_t i = 0; i < c.ops.size(); ++i) {
      const op& o = facts.network().op_at(c.ops[i]);
      for (const stash_read& r : o.alternatives[f.alternatives[i]].reads) {
        if (r.storage == c.storages[k]) readers.push_back({c.ops[i], r.what, r.slice.whole()});
      }
    }
    result.emplace_back(facts, f.choices[k], c.storages[k], std::move(readers));
  }
  return result;
}

// What no configuration of a component gets below, whether it was enumerated or not: nothing is decoded, and
// only what ops with a single alternative read is kept.
std::vector<occupancy> least_occupancies(const scheduler& facts, const option_set& options,
                                         const component& c) {
  std::vector<occupancy> result;
  for (std::size_t k = 0; k < c.storages.size(); ++k) {
    stash_choice kept;
    kept.kind = stash_kind::raw;
    kept.bytes_after = c.least_bytes[k];
    result.emplace_back(facts, kept, c.storages[k], options.fixed_readers[c.storages[k]]);
  }
  return result;
}

struct component_bound {
  op_id first = op_id(0), last = no_id;
  // Ops from which on something is another than before, from `first` on, and last + 1.
  std::vector<op_id> changes;
  std::vector<std::int64_t> least_during, least_after;  // of any configuration, from each change to the next
  std::vector<std::vector<occupancy>> configurations;
};

component_bound make_bound(const scheduler& facts, const option_set& options, const component& c) {
  component_bound b;
  b.first = op_id(facts.network().ops.size());
  if (!c.least_bytes.empty()) b.configurations.push_back(least_occupancies(facts, options, c));
  for (const configuration& f : c.configurations) {
    if (c.least_bytes.empty()) b.configurations.push_back(occupancies(facts, options, c, f));
  }
  std::vector<op_id> changes;
  for (const auto& all : b.configurations) {
    for (const occupancy& o : all) {
      if (!o.last().valid()) continue;
      b.first = std::min(b.first, std::max(o.first(), op_id(0)));
      b.last = std::max(b.last, o.last());
      o.add_changes(&changes);
    }
  }
  if (b.first > b.last) return b;
  changes.push_back(b.first);
  changes.push_back(b.last + 1);
  std::sort(changes.begin(), changes.end());
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  for (const op_id t : changes)
    if (b.first <= t && t <= b.last + 1) b.changes.push_back(t);
  for (std::size_t k = 0; k + 1 < b.changes.size(); ++k) {
    const op_id t = b.changes[k];
    std::int64_t during = std::numeric_limits<std::int64_t>::max(), after = during;
    for (const auto& f : b.configurations) {
      std::int64_t d = 0, a = 0;
      for (const occupancy& o : f) {
        d += o.during(t);
        a += o.after(t);
      }
      during = std::min(during, d);
      after = std::min(after, a);
    }
    b.least_during.push_back(during);
    b.least_after.push_back(after);
  }
  return b;
}

}  // namespace

wall working_set_wall(const graph& g) {
  wall result;
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    if (o.stage == op_stage::update) continue;
    std::set<storage_id> operands;
    for (const auto* refs : {&o.inputs, &o.outputs}) {
      for (const tensor_ref& r : *refs)
        operands.insert(r.storage);
    }
    const auto sum = [&](const std::set<storage_id>& set) {
      std::int64_t bytes = 0;
      for (const storage_id s : set) {
        if (g.at(s).batch_proportional()) bytes += g.at(s).bytes(g.batch);
      }
      return bytes;
    };
    std::int64_t bytes = o.alternatives.empty() ? sum(operands) : std::numeric_limits<std::int64_t>::max();
    for (const stash_alternative& a : o.alternatives) {
      std::set<storage_id> all = operands;
      for (const stash_read& r : a.reads) {
        if (wants_values(r.what)) all.insert(r.storage);
      }
      bytes = std::min(bytes, sum(all));
    }
    if (bytes > result.bytes) result = {bytes, i};
  }
  return result;
}

std::int64_t peak_bound(const scheduler& facts, const option_set& options) {
  const graph& g = facts.network();
  timeline live{per_op(g.ops.size() + 1, 0), per_op(g.ops.size() + 1, 0)};
  id_vector<storage_id, bool> in_component(g.storages.size(), false);
  for (const component& c : options.components) {
    for (const storage_id s : c.storages)
      in_component[s] = true;
  }
  // Dense whatever is chosen: gradients, labels, maps that nobody stashes.
  for (const storage_id s : g.storages.ids()) {
    const storage& st = g.storages[s];
    const storage_id id = s;
    if (in_component[s] || !facts.last_use(id).valid()) continue;
    const bool from_start = st.role == storage_role::image || st.role == storage_role::label;
    const op_id first = from_start ? op_id(0) : facts.first_use(id), last = facts.last_use(id);
    add(first, last + 1, st.bytes(g.batch), &live.during);
    add(first, last, st.bytes(g.batch), &live.after);
  }
  std::vector<component_bound> bounds;
  for (const component& c : options.components) {
    const component_bound& b = bounds.emplace_back(make_bound(facts, options, c));
    for (std::size_t k = 0; k + 1 < b.changes.size(); ++k) {
      add(b.changes[k], b.changes[k + 1], b.least_during[k], &live.during);
      add(b.changes[k], b.changes[k + 1], b.least_after[k], &live.after);
    }
  }
  sum_up(&live.during);
  sum_up(&live.after);
  std::int64_t bound = 0;
  for (const timeline* part = &live; const auto* list : {&part->during, &part->after}) {
    for (const std::int64_t bytes : *list)
      bound = std::max(bound, bytes);
  }
  // A plan gives every component one configuration: with any of them, the component's own encode and decode
  // steps and its bytes at other times add to the least of all others.
  const range_maximum most_during(live.during.list()), most_after(live.after.list());
  for (const component_bound& b : bounds) {
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (const auto& f : b.configurations) {
      std::int64_t worst = 0;
      for (std::size_t k = 0; k + 1 < b.changes.size(); ++k) {
        const op_id t = b.changes[k], end = b.changes[k + 1];
        std::int64_t during = most_during(t, end) - b.least_during[k];
        std::int64_t after = most_after(t, end) - b.least_after[k], transient = 0;
        for (const occupancy& o : f) {
          during += o.during(t);
          after += o.after(t);
          transient = std::max(transient, o.codec_after(t) - o.after(t));
        }
        worst = std::max({worst, during, after + transient});
      }
      best = std::min(best, worst);
    }
    if (!b.configurations.empty()) bound = std::max(bound, best);
  }
  return bound;
}

}  // namespace stash::planner
