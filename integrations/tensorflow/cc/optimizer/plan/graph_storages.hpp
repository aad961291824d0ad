// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The storages of the planner's graph: which tensor of the step lies in which.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/shapes.hpp"

namespace stash_tf {

/// As graphs of the planner have it; "s32" for bytes that can only stay as they are.
const char* type_name(tensorflow::DataType type);

/// `name` with as many marks after it as make it differ from all in `taken`, where it is put.
std::string unique_name(std::string name, std::set<std::string>* taken);

/// A storage that is to be added.
struct new_storage {
  std::string name;
  const char* role;
  const char* type;
  std::int64_t elements, bytes;
  double density = 1;
  int window_taps = 0;
};

class graph_storages {
 public:
  /// Refers to all of them.
  graph_storages(const graph_view& graph, const step& analysis, const tensor_sizes& sizes)
      : graph_(graph), step_(analysis), sizes_(sizes) {}

  /// Returns its number.
  int add(const new_storage& added);
  /// From now on the tensor lies in storage `id`.
  void put(const source& tensor, int id) { of_[tensor] = id; }
  /// Storage of a tensor that has been computed; -1 where it is too small or not ours.
  int of(const source& tensor) const;

  /// The block that a tensor belongs to; -1: none.
  int block_of(const source& tensor) const;
  /// A tensor of the forward pass that stays as it is and where it is: the planner has nothing to decide.
  bool is_settled(const source& tensor) const;
  /// Where a view stays as it is and so does what it is a view of, they are one storage to the planner. (A
  /// form of its own makes it a tensor of its own.)
  bool is_shared(const source& tensor) const;
  /// Of the forward pass, whatever the name it goes by in the backward pass.
  bool is_of_forward(const source& tensor) const;

  const nlohmann::json& all() const { return all_; }

 private:
  const graph_view& graph_;
  const step& step_;
  const tensor_sizes& sizes_;
  std::map<source, int> of_;
  std::set<std::string> names_;
  nlohmann::json all_ = nlohmann::json::array();
};

}  // namespace stash_tf
