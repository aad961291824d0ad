#include "planner/bounds.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "planner/needs.hpp"

namespace stash::planner {
namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

bool wants_dense(need what) {
  return what == need::value || what == need::exact_value || what == need::range;
}

// Bytes that one storage of a component occupies while op `t` runs, under one configuration.
std::int64_t occupied(const scheduler& facts, const stash_choice& c, storage_id s,
                      const std::vector<reader>& readers, op_id t) {
  const graph& g = facts.network();
  const std::int64_t dense = g.at(s).bytes(g.batch);
  const bool auxiliary = g.at(s).role == storage_role::auxiliary;
  const bool image = g.at(s).role == storage_role::image;  // there from the start
  if (t < facts.first_use(s)) return image ? dense : 0;
  if (!auxiliary && t <= facts.last_forward_use(s)) return dense;
  op_id last = -1;
  bool dense_now = false;
  for (const reader& r : readers) {
    last = std::max(last, r.op);
    if (r.op == t && !reads_directly(g.op_at(t).kind, r.what, c, r.whole)) dense_now = true;
  }
  if (t > last) return 0;
  if (c.kind == stash_kind::raw) return c.bytes_after;
  if (!dense_now) return c.bytes_after;
  return t == last ? dense : dense + c.bytes_after;
}

}  // namespace

wall working_set_wall(const graph& g) {
  wall result;
  for (std::size_t i = 0; i < g.ops.size(); ++i) {
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
        if (wants_dense(r.what)) all.insert(r.storage);
      }
      bytes = std::min(bytes, sum(all));
    }
    if (bytes > result.bytes) result = {bytes, static_cast<op_id>(i)};
  }
  return result;
}

std::int64_t peak_bound(const scheduler& facts, const option_set& options) {
  const graph& g = facts.network();
  std::vector<std::int64_t> live(g.ops.size(), 0);
  std::vector<bool> in_component(g.storages.size(), false);
  for (const component& c : options.components) {
    for (const storage_id s : c.storages)
      in_component[index(s)] = true;
  }
  // Dense whatever is chosen: gradients, labels, maps that nobody stashes.
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    const storage& st = g.storages[s];
    const auto id = static_cast<storage_id>(s);
    if (in_component[s] || facts.first_use(id) < 0) continue;
    const bool from_start = st.role == storage_role::image || st.role == storage_role::label;
    for (op_id t = from_start ? 0 : facts.first_use(id); t <= facts.last_use(id); ++t) {
      live[index(t)] += st.bytes(g.batch);
    }
  }
  for (const component& c : options.components) {
    // All readers under each configuration; the range of ops in which the component exists at all.
    std::vector<std::vector<std::vector<reader>>> readers;
    op_id first = static_cast<op_id>(g.ops.size()), last = -1;
    for (const configuration& f : c.configurations) {
      auto& per_storage = readers.emplace_back();
      for (const storage_id s : c.storages) {
        auto& list = per_storage.emplace_back(options.fixed_readers[index(s)]);
        for (std::size_t k = 0; k < c.ops.size(); ++k) {
          for (const stash_read& r : g.op_at(c.ops[k]).alternatives[index(f.alternatives[k])].reads) {
            if (r.storage == s) list.push_back({c.ops[k], r.what, r.slice.whole()});
          }
        }
        for (const reader& r : list)
          last = std::max(last, r.op);
        if (facts.first_use(s) >= 0) first = std::min(first, facts.first_use(s));
        last = std::max(last, facts.last_forward_use(s));
      }
    }
    const bool image = g.at(c.storages[0]).role == storage_role::image;
    for (op_id t = image ? 0 : first; t <= last; ++t) {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (std::size_t f = 0; f < c.configurations.size(); ++f) {
        std::int64_t bytes = 0;
        for (std::size_t k = 0; k < c.storages.size(); ++k) {
          bytes += occupied(facts, c.configurations[f].choices[k], c.storages[k], readers[f][k], t);
        }
        least = std::min(least, bytes);
      }
      live[index(t)] += least;
    }
  }
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

}  // namespace stash::planner
