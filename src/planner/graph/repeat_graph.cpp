// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/repeat_graph.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

bool has_copies(storage_role role) {
  return role == storage_role::feature_map || role == storage_role::gradient ||
         role == storage_role::auxiliary || role == storage_role::saved_statistic;
}

/// Ids of one copy in terms of the original's.
class copy_of {
 public:
  copy_of(const graph& g, graph& to, int number, std::int32_t forward_ops)
      : suffix_(number == 0 ? "" : fmt::format("#{}", number + 1)), skipped_ops_(forward_ops * number) {
    for (const storage_id i : g.storages.ids()) {
      storages_.push_back(i);
      if (number == 0 || !has_copies(g.storages[i].role)) continue;
      storages_.back() = storage_id(to.storages.size());
      to.storages.push_back(g.storages[i]);
      to.storages.back().name += suffix_;
    }
  }

  storage_id operator()(storage_id s) const { return storages_[s]; }
  op_id forward_op(op_id o) const { return o.valid() ? o + skipped_ops_ : o; }

  op operator()(const op& from) const {
    op o = from;
    o.name += suffix_;
    o.forward_op = forward_op(o.forward_op);
    for (auto* const tensors : {&o.inputs, &o.outputs}) {
      for (tensor_ref& r : *tensors)
        r.storage = (*this)(r.storage);
    }
    for (auto* const ids : {&o.optional_outputs, &o.parameters, &o.parameters_written}) {
      for (storage_id& s : *ids)
        s = (*this)(s);
    }
    for (stash_alternative& a : o.alternatives) {
      for (stash_read& r : a.reads)
        r.storage = r.slice.storage = (*this)(r.storage);
    }
    return o;
  }

  recipe operator()(recipe r) const {
    r.target = (*this)(r.target);
    for (storage_id& s : r.sources)
      s = (*this)(s);
    for (op_id& o : r.ops)
      o = forward_op(o);
    return r;
  }

 private:
  std::string suffix_;
  std::int32_t skipped_ops_;
  id_vector<storage_id, storage_id> storages_;
};

}  // namespace

graph repeat_graph(const graph& g, int times) {
  if (times < 1) {
    throw error(errc::invalid_argument,
                fmt::format("repeat_graph: times: expected at least 1, got {}", times));
  }
  check_graph(g);
  graph result;
  result.name = times == 1 ? g.name : fmt::format("{} x {}", g.name, times);
  result.batch = g.batch;
  result.classes = g.classes;
  result.storages = g.storages;
  std::int32_t forward_ops = 0;
  for (const op& o : g.ops)
    forward_ops += o.stage == op_stage::forward ? 1 : 0;
  const std::size_t parts = g.ops.size() + g.storages.size() + 1;
  if (parts > 100'000'000 / static_cast<std::size_t>(times)) {
    throw error(
        errc::invalid_argument,
        fmt::format("repeat_graph: times: expected at most 10^8 ops and storages, got {} of them {} times",
                    parts, times));
  }
  std::vector<copy_of> copies;
  copies.reserve(static_cast<std::size_t>(times));
  for (int k = 0; k < times; ++k)
    copies.emplace_back(g, result, k, forward_ops);
  const auto add = [&](const copy_of& copy, op_stage stage) {
    for (const op& o : g.ops) {
      if (o.stage == stage) result.ops.push_back(copy(o));
    }
  };
  for (const copy_of& copy : copies)
    add(copy, op_stage::forward);
  std::for_each(copies.rbegin(), copies.rend(), [&](const copy_of& copy) { add(copy, op_stage::backward); });
  add(copies.front(), op_stage::update);
  for (const copy_of& copy : copies) {
    for (const recipe& r : g.recipes)
      result.recipes.push_back(copy(r));
  }
  check_graph(result);
  return result;
}

}  // namespace stash::planner
