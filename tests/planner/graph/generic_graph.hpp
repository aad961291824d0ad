// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Graphs of generic ops, built op by op.

#include <string>
#include <utility>
#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::planner::testing {

class generic_graph {
 public:
  generic_graph() {
    g_.name = "odd";
    g_.batch = 2;
  }

  storage_id add(storage_role role, std::int64_t elements, double density = 0.5, dtype type = dtype::f32) {
    storage s;
    s.name = "s" + std::to_string(g_.storages.size());
    s.role = role;
    s.type = type;
    s.shape = {elements};
    s.bytes_per_sample = elements * static_cast<std::int64_t>(size_of(type));
    s.density = density;
    g_.storages.push_back(s);
    return storage_id(g_.storages.size()) - 1;
  }
  storage_id map(std::int64_t elements, double density = 0.5, dtype type = dtype::f32) {
    return add(storage_role::feature_map, elements, density, type);
  }

  op& forward(std::vector<storage_id> inputs, std::vector<storage_id> outputs) {
    return generic(op_stage::forward, inputs, outputs);
  }
  op& backward(std::vector<std::vector<stash_read>> alternatives) {
    op& o = generic(op_stage::backward, {}, {});
    for (std::vector<stash_read>& reads : alternatives)
      o.alternatives.push_back({"a" + std::to_string(o.alternatives.size()), std::move(reads)});
    return o;
  }
  void again(storage_id target, std::vector<storage_id> sources, std::vector<op_id> ops) {
    g_.recipes.push_back({target, std::move(sources), std::move(ops)});
  }
  graph& made() { return g_; }

 private:
  op& generic(op_stage stage, const std::vector<storage_id>& inputs, const std::vector<storage_id>& outputs) {
    op o;
    o.name = "op" + std::to_string(g_.ops.size());
    o.kind = op_kind::generic;
    o.stage = stage;
    for (const storage_id s : inputs)
      o.inputs.push_back({s});
    for (const storage_id s : outputs)
      o.outputs.push_back({s});
    return g_.ops.emplace_back(std::move(o));
  }
  graph g_;
};

inline stash_read read(storage_id s, need what) {
  stash_read r;
  r.storage = s;
  r.what = what;
  r.slice = {s, 0, 0};
  return r;
}

}  // namespace stash::planner::testing
