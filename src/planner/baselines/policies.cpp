// SPDX-License-Identifier: Apache-2.0
#include "planner/baselines/policies.hpp"

#include <algorithm>
#include <bit>

#include "stash/error.hpp"

namespace stash::planner {
bool has_rule(policy p) noexcept {
  return p >= policy::gist;
}

ruled apply_rule(policy p, const rule_input& in, problem& ticks) {
  switch (p) {
    case policy::gist:  // its options leave no choice
      return {option_choice(ticks.items.size(), 0), false, {}};
    case policy::swap_only:
      return swap_only_rule(in, ticks);
    case policy::lms:
      return lms_rule(in, ticks);
    case policy::layrub:
      return layrub_rule(in, ticks);
    default:
      throw error(errc::internal, "apply_rule: policy: expected one that has a rule");
  }
}

std::uint32_t movable(const item& i) {
  std::uint32_t bits = 0;
  for (const item_option& o : i.options)
    bits |= o.swapped;
  return bits;
}

std::int32_t option_that_moves(const item& i, std::uint32_t required) {
  std::size_t best = 0;
  int fewest = 64;
  for (std::size_t o = 0; o < i.options.size(); ++o) {
    const std::uint32_t moved = i.options[o].swapped;
    if ((moved & required) != required || std::popcount(moved) >= fewest) continue;
    best = o;
    fewest = std::popcount(moved);
  }
  return static_cast<std::int32_t>(best);
}

id_vector<op_id, std::int32_t> levels_of(const graph& g, const option_set& options) {
  id_vector<op_id, std::int32_t> alternative(g.ops.size(), 0);
  for (const component& c : options.components) {
    for (std::size_t k = 0; k < c.ops.size(); ++k)
      alternative[c.ops[k]] = c.configurations.front().alternatives[k];
  }
  id_vector<storage_id, std::int32_t> writer(g.storages.size(), 0);
  id_vector<op_id, std::int32_t> level(g.ops.size(), 1);
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    std::int32_t before = 0;
    for (const tensor_ref& r : o.inputs)
      before = std::max(before, writer[r.storage]);
    for (const storage_id s : o.parameters)
      before = std::max(before, writer[s]);
    if (!o.alternatives.empty()) {
      for (const stash_read& r : o.alternatives[alternative[i]].reads)
        before = std::max(before, writer[r.storage]);
    }
    level[i] = before + 1;
    for (const tensor_ref& r : o.outputs)
      writer[r.storage] = std::max(writer[r.storage], level[i]);
    for (const auto* ids : {&o.optional_outputs, &o.parameters_written}) {
      for (const storage_id s : *ids)
        writer[s] = std::max(writer[s], level[i]);
    }
  }
  return level;
}

}  // namespace stash::planner
