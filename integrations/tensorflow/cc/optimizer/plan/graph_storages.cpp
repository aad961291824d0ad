// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/graph_storages.hpp"

#include <algorithm>
#include <utility>

#include "optimizer/graph/views.hpp"

namespace stash_tf {

using nlohmann::json;

const char* type_name(tensorflow::DataType type) {
  switch (type) {
    case tensorflow::DT_FLOAT:
      return "f32";
    case tensorflow::DT_HALF:
      return "f16";
    case tensorflow::DT_BFLOAT16:
      return "bf16";
    case tensorflow::DT_BOOL:
      return "u8";
    default:
      return "s32";  // bytes that can only stay as they are
  }
}

std::string unique_name(std::string name, std::set<std::string>* taken) {
  while (!taken->insert(name).second)
    name += "'";
  return name;
}

int graph_storages::add(const new_storage& added) {
  const bool opaque = std::string(added.type) == "s32";
  const std::int64_t words = std::max<std::int64_t>((added.bytes + 3) / 4, 1);
  json s = {{"name", unique_name(added.name, &names_)},
            {"role", added.role},
            {"type", added.type},
            {"shape", {opaque ? words : added.elements}},
            {"bytes_per_sample", opaque ? words * 4 : added.bytes},
            {"density", added.density}};
  if (added.window_taps > 0) s["window_taps"] = added.window_taps;
  all_.push_back(std::move(s));
  return static_cast<int>(all_.size()) - 1;
}

int graph_storages::of(const source& tensor) const {
  const auto it = of_.find(root_of(graph_, tensor));
  return it == of_.end() ? -1 : it->second;
}

int graph_storages::block_of(const source& tensor) const {
  const auto it = step_.block_of.find(root_of(graph_, tensor));
  return it == step_.block_of.end() ? -1 : it->second;
}

bool graph_storages::is_settled(const source& tensor) const {
  const int block = block_of(tensor);
  return block < 0 || !step_.blocks[at(block)].raw_because.empty();
}

bool graph_storages::is_shared(const source& tensor) const {
  if (viewed_input(graph_, sizes_, tensor) < 0) return false;
  const source held = held_in(graph_, sizes_, tensor);
  return is_settled(tensor) && is_settled(held);
}

bool graph_storages::is_of_forward(const source& tensor) const {
  return !step_.backward[at(root_of(graph_, tensor).node)];
}

}  // namespace stash_tf
