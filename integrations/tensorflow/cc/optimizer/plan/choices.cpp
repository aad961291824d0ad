// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/choices.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "optimizer/plan/lists_graph.hpp"
#include "stash/c_api.h"

namespace stash_tf {

namespace {

using nlohmann::json;

// Of the search for the fastest plan: TensorFlow waits for it, and a step may need several.
constexpr std::int32_t evaluations = 500;

struct answer {
  std::int32_t code = STASH_OK;
  std::string message;
  json plan;
};

answer ask(const std::string& graph, const settings& request, std::int64_t budget) {
  std::string values;
  for (const std::string& v : request.values)
    values += (values.empty() ? "" : ",") + v;
  stash_plan_options options = STASH_INIT(stash_plan_options);
  options.policy = request.policy.c_str();
  options.budget_bytes = budget;
  options.values = request.policy == "auto" ? values.c_str() : nullptr;
  // Sparse forms get as many bytes as they turn out to need.
  options.slot_margin = -1;
  options.overflow_share = -1;
  options.no_layout = 1;  // TensorFlow places buffers itself
  if (request.swap) {
    options.model = request.machine.c_str();
    options.swap = 1;
    options.evaluations = evaluations;
  }
  char* text = nullptr;
  answer a;
  a.code = stash_plan(graph.c_str(), &options, &text);
  const std::unique_ptr<char, void (*)(char*)> owner(text, stash_free_text);
  if (a.code != STASH_OK) {
    a.message = stash_last_error_message();
    return a;
  }
  a.plan = json::parse(text);
  return a;
}

std::string format_suffix(const json& stored) {
  const std::string values = stored.value("values", "source");
  if (values == "source") return "";
  return values == "fp8_e4m3" ? "fp8" : values;
}

std::string encoding_name(const json& stored) {
  const std::string kind = stored.value("kind", "raw");
  const std::string format = format_suffix(stored);
  if (kind == "cast") return format;
  return format.empty() ? kind : kind + "_" + format;
}

// By storage.
std::vector<host_stay> stays_on_host(const json& plan) {
  std::vector<host_stay> stays(plan["choices"].size());
  std::vector<std::size_t> ending;  // copies to the host that end before the next op
  int op = 0;
  for (const json& s : plan["steps"]) {
    const std::string kind = s["kind"];
    if (kind == "run") {
      op = s["op"];
      for (const std::size_t id : ending)
        stays[id].out_by = op;
      ending.clear();
    } else if (kind == "copy_out" || kind == "wait_out" || kind == "copy_in") {
      const auto id = s["storage"].get<std::size_t>();
      stays[id].moves = true;
      if (kind == "wait_out") ending.push_back(id);
      if (kind == "copy_in") stays[id].in_from = op;
    }
  }
  return stays;
}

// Which readers take the bits that may be kept in addition to a block.
void choose_bits(const planner_graph& g, const step& analysis, const json& plan,
                 const std::vector<host_stay>& stays, choices* result) {
  std::map<int, std::size_t> op_of_node;
  for (std::size_t op = 0; op < g.node_of_op.size(); ++op)
    op_of_node[g.node_of_op[op]] = op;
  for (std::size_t k = 0; k < analysis.blocks.size(); ++k) {
    const int bits = g.bits_of_block[k];
    if (bits < 0) continue;
    block_choice& c = result->blocks[k];
    for (const stash_reader& r : analysis.blocks[k].readers) {
      const auto op = op_of_node.find(r.node);
      if (op == op_of_node.end()) continue;
      const int chosen = plan["alternative"][op->second];
      if (chosen < 0) continue;
      const json& alternative = plan["network"]["ops"][op->second]["alternatives"][at(chosen)];
      for (const json& read : alternative["reads"])
        if (read["storage"] == bits) c.bit_readers.insert(r.node);
    }
    if (c.bit_readers.empty()) continue;
    c.bits_bytes = plan["choices"][at(bits)].value("bytes_after", std::int64_t{0});
    if (analysis.blocks[k].movable) c.bits_on_host = stays[at(bits)];
  }
}

// The form of block `k`, of which all readers read the same or bits in addition.
block_choice choice_of_block(const planner_graph& g, const stashed_block& b, std::size_t k, const json& kept,
                             const std::vector<host_stay>& stays) {
  block_choice c;
  c.stored_bytes = b.size.bytes();
  if (const int id = g.storage_of_block[k]; id >= 0) {
    const json& choice = kept[at(id)];
    c.reason = choice.value("reason", "");
    if (b.movable) c.on_host = stays[at(id)];
    if (choice["kind"] == "encoded") {
      c.encoding = encoding_name(choice["stored"]);
      c.keep_nonzero = choice["stored"].value("underflow", "") == "keep_nonzero";
      c.stored_bytes = choice.value("bytes_after", c.stored_bytes);
    } else if (choice["kind"] == "none" && g.exact_cast_of_block[k] >= 0) {
      // Everybody reads the narrower original instead.
      c.encoding = b.exact_cast;
      c.stored_bytes = b.size.bytes() / 2;
      c.reason = "a cast of a narrower tensor: storing it in that format loses nothing";
      if (b.movable) c.on_host = stays[at(g.exact_cast_of_block[k])];
    } else if (choice["kind"] == "none") {
      c.stored_bytes = 0;
    }
  }
  if (b.raw_because.empty()) return c;
  c.encoding.clear();
  c.stored_bytes = b.size.bytes();
  c.reason = b.raw_because;
  return c;
}

void choose_pooling(const planner_graph& g, std::size_t k, const json& plan,
                    const std::vector<host_stay>& stays, choices* result) {
  pooling_choice c = pooling_choice::from_maps;
  std::int64_t bytes = 0;
  host_stay on_host;
  if (const int op = g.op_of_pooling[k]; op >= 0) {
    const int chosen = plan["alternative"][at(op)];
    const json& alternatives = plan["network"]["ops"][at(op)]["alternatives"];
    const std::string form = chosen < 0 ? "" : alternatives[at(chosen)].value("form", "");
    if (form == "from_code") c = pooling_choice::joint;
    if (form == "from_index") c = pooling_choice::from_index;
    if (c != pooling_choice::from_maps) {
      const auto id = at(g.storage_of_pooling[k]);
      bytes = plan["choices"][id].value("bytes_after", std::int64_t{0});
      on_host = stays[id];
    }
  }
  result->poolings.push_back(c);
  result->pooling_bytes.push_back(bytes);
  result->taps_on_host.push_back(on_host);
}

}  // namespace

choices plan(const planner_graph& g, const step& analysis, const settings& request,
             std::int64_t budget_bytes) {
  choices result;
  const answer a = ask(g.json, request, budget_bytes);
  if (a.code == STASH_INFEASIBLE_BUDGET) {
    result.infeasible = a.message;
    return result;
  }
  if (a.code != STASH_OK) throw std::runtime_error("the planner refuses the step: " + a.message);
  const std::vector<host_stay> stays = stays_on_host(a.plan);
  for (std::size_t k = 0; k < analysis.blocks.size(); ++k)
    result.blocks.push_back(choice_of_block(g, analysis.blocks[k], k, a.plan["choices"], stays));
  choose_bits(g, analysis, a.plan, stays, &result);
  for (std::size_t k = 0; k < analysis.poolings.size(); ++k)
    choose_pooling(g, k, a.plan, stays, &result);
  return result;
}

std::vector<block_choice> plan_lists(const step& analysis, const settings& request) {
  std::vector<block_choice> result(analysis.lists.size());
  for (std::size_t k = 0; k < result.size(); ++k) {
    const stashed_block& b = analysis.lists[k].element;
    result[k].stored_bytes = b.size.bytes();
    result[k].reason = b.raw_because;
  }
  if (analysis.lists.empty()) return result;
  settings without_moves = request;
  without_moves.swap = false;
  const answer a = ask(make_lists_graph(analysis), without_moves, 0);
  if (a.code != STASH_OK) throw std::runtime_error("the planner refuses the lists of the step: " + a.message);
  for (std::size_t k = 0; k < result.size(); ++k) {
    const listed_block& b = analysis.lists[k];
    if (!b.element.raw_because.empty()) continue;
    const json& choice = a.plan["choices"][k];
    block_choice& c = result[k];
    c.reason = choice.value("reason", "");
    if (choice["kind"] != "encoded") continue;
    const json& stored = choice["stored"];
    const std::string kind = stored.value("kind", "raw");
    if (kind == "bitmap" || kind == "csr") continue;
    c.encoding = encoding_name(stored);
    c.keep_nonzero = stored.value("underflow", "") == "keep_nonzero";
    const std::int64_t trips = std::max<std::int64_t>(b.trips, 1);
    c.stored_bytes = (choice.value("bytes_after", c.stored_bytes * trips) + trips - 1) / trips;
  }
  return result;
}

}  // namespace stash_tf
