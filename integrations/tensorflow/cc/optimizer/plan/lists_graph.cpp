// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/lists_graph.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "optimizer/plan/graph_storages.hpp"

namespace stash_tf {

using nlohmann::json;

std::string make_lists_graph(const step& analysis) {
  json storages = json::array(), ops = json::array(), outputs = json::array();
  const auto add_op = [&](std::string name, const char* stage) -> json& {
    ops.push_back({{"name", std::move(name)},
                   {"kind", "generic"},
                   {"label", "while"},
                   {"stage", stage},
                   {"inputs", json::array()},
                   {"outputs", json::array()}});
    return ops.back();
  };
  add_op("forward loops", "forward");
  add_op("what follows", "forward");
  std::int64_t all = 0;
  for (const listed_block& b : analysis.lists) {
    const tensor_size& size = b.element.size;
    const std::int64_t trips = std::max<std::int64_t>(b.trips, 1);
    const auto id = storages.size();
    const std::string name = "list " + std::to_string(id);
    all += size.bytes() * trips;
    storages.push_back({{"name", name},
                        {"role", "feature_map"},
                        {"type", type_name(size.type)},
                        {"shape", {size.elements * trips}},
                        {"bytes_per_sample", size.bytes() * trips},
                        {"density", 1}});
    outputs.push_back({{"storage", id}});
    json reads = json::array();
    for (const std::string& need : all_needs(b))
      reads.push_back({{"storage", id}, {"need", need}});
    add_op("backward loop of " + name, "backward")["alternatives"] =
        json::array({{{"form", "from_list"}, {"reads", std::move(reads)}}});
  }
  ops[0]["outputs"] = std::move(outputs);
  // The peak lies between the passes, where every list is full. A backward loop decodes one element at a
  // time, not a whole list, as this graph has it.
  storages.push_back({{"name", "all else"},
                      {"role", "feature_map"},
                      {"type", "s32"},
                      {"shape", {all / 4 + 1}},
                      {"bytes_per_sample", (all / 4 + 1) * 4},
                      {"density", 1}});
  ops[1]["outputs"] = json::array({{{"storage", storages.size() - 1}}});
  json graph = {{"format", "stash.graph"},         {"version", 1},
                {"name", "lists of loops"},        {"batch", 1},
                {"storages", std::move(storages)}, {"ops", std::move(ops)}};
  return graph.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace stash_tf
