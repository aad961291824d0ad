// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/recipes.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <string>
#include <utility>

#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"

namespace stash_tf {

namespace {

// For one map.
constexpr int most_cheap_ops = 8;
constexpr int most_ops = 24;

// A byte that a costly op reads or writes weighs as much as so many of a cheap one.
constexpr std::int64_t weight_of_costly = 8;

// A tensor so much smaller than the map is kept for it: factors and offsets of channels.
constexpr std::int64_t small_part = 16;

}  // namespace

bool is_cheap(const std::string& op) {
  static const std::set<std::string> ops = {
      // of one value
      "Abs", "Cast", "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "Inv", "LeakyRelu", "Log", "Log1p",
      "LogicalNot", "Neg", "Reciprocal", "Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid", "Sign", "Softplus",
      "Softsign", "Sqrt", "Square", "Tanh", "_UnaryOpsComposition",
      // of two and more
      "Add", "AddN", "AddV2", "BiasAdd", "DivNoNan", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual",
      "LogicalAnd", "LogicalOr", "Maximum", "Minimum", "Mul", "MulNoNan", "NotEqual", "RealDiv", "Select",
      "SelectV2", "SquaredDifference", "Sub",
      // that move elements
      "ConcatV2", "MirrorPad", "Pad", "PadV2", "Transpose"};
  return ops.count(op) != 0;
}

bool is_costly(const std::string& op) {
  static const std::set<std::string> ops = {"AvgPool",
                                            "BatchMatMulV2",
                                            "Conv2D",
                                            "Conv3D",
                                            "DepthwiseConv2dNative",
                                            "Einsum",
                                            "FusedBatchNormV3",
                                            "MatMul",
                                            "Max",
                                            "MaxPool",
                                            "Mean",
                                            "Min",
                                            "Softmax",
                                            "Sum"};
  return ops.count(op) != 0;
}

recipes::recipes(const graph_view& graph, const step& analysis, const control_flow& flow,
                 const settings& request, copyable which, const tensor_sizes& sizes)
    : graph_(graph),
      step_(analysis),
      flow_(flow),
      min_bytes_(request.min_bytes),
      lossy_(is_lossy(request)),
      which_(which),
      bits_(request),
      sizes_(sizes),
      rank_(graph.positions(analysis.order)) {
  for (const pooling& p : analysis.poolings)
    by_index_.insert({p.backward, p.relu_backward});
  choose();
}

void recipes::choose() {
  do {
    choose_among_paid();
  } while (lossy_ && find_unpaid());
}

void recipes::choose_among_paid() {
  chosen_.clear();
  kept_.clear();
  wanted_.clear();
  made_of_.clear();
  std::vector<int> blocks;
  for (std::size_t k = 0; k < step_.blocks.size(); ++k)
    blocks.push_back(static_cast<int>(k));
  std::sort(blocks.begin(), blocks.end(), [&](int a, int b) { return position(a) < position(b); });
  for (const int k : blocks) {
    const stashed_block& b = step_.blocks[at(k)];
    recipe r;
    if (may_go(b, &r) && is_allowed(r) && (!lossy_ || saved_by(b) > 0)) {
      chosen_.insert(k);
      made_of_.emplace(k, std::move(r));
    } else if (has_values(b)) {
      kept_.insert(b.root);
      wanted_[b.root] = b.raw_because.empty() ? wanted_of(b) : exactness::exact;
    }
  }
}

std::vector<int> recipes::blocks() const {
  std::vector<int> blocks(chosen_.begin(), chosen_.end());
  const auto turn = [&](int k) { return rank_[at(first_reader(step_.blocks[at(k)]).node)]; };
  std::stable_sort(blocks.begin(), blocks.end(), [&](int a, int b) { return turn(a) < turn(b); });
  return blocks;
}

bool recipes::stays(const source& s, std::int64_t map_bytes) const {
  const source root = root_of(graph_, s);
  const std::string& op = graph_.op(root.node);
  if (kept_.count(root) != 0 || op == "Const") return true;
  // What gradients read as well; an update leaves a value alone that somebody holds.
  if (op == "ReadVariableOp" && !step_.backward[at(root.node)] && flow_.frame(root.node) == 0) return true;
  const tensor_size* size = sizes_.find(s);
  return size != nullptr && (size->bytes() < min_bytes_ || size->bytes() * small_part <= map_bytes);
}

bool recipes::serves(const stash_reader& r) const {
  return !lossy_ || bits_for(graph_, r).empty();
}

const stash_reader& recipes::first_reader(const stashed_block& b) const {
  const auto turn = [&](const stash_reader& r) {
    return serves(r) ? rank_[at(r.node)] : std::numeric_limits<int>::max();
  };
  return *std::min_element(b.readers.begin(), b.readers.end(),
                           [&](const stash_reader& x, const stash_reader& y) { return turn(x) < turn(y); });
}

bool recipes::may_run(const std::string& op) const {
  return is_cheap(op) || (which_ == copyable::all && is_costly(op));
}

// Whether somebody reads its values, so that keeping them is no more than what happens anyway.
bool recipes::has_values(const stashed_block& b) const {
  return std::any_of(b.readers.begin(), b.readers.end(), [&](const stash_reader& r) {
    return bits_for(graph_, r).empty() && by_index_.count(r.node) == 0;
  });
}

exactness recipes::wanted_of(const stashed_block& b) const {
  exactness wanted = exactness::none;
  for (const stash_reader& r : b.readers)
    wanted = std::max(wanted, exactness_of(r.needs));
  return wanted;
}

// Of what the copies read. Rounded values that are kept still have their signs, those that are made of
// rounded ones may not.
exactness recipes::wanted_of_copy(const stashed_block& b) const {
  const auto is_value = [](const std::string& need) { return need == "value" || need == "fine_value"; };
  for (const stash_reader& r : b.readers)
    if (serves(r) && !std::all_of(r.needs.begin(), r.needs.end(), is_value)) return exactness::exact;
  return exactness::fine;
}

bool recipes::may_go(const stashed_block& b, recipe* r) const {
  if (!b.raw_because.empty() || b.size.type == tensorflow::DT_BOOL || !has_values(b) ||
      flow_.frame(b.root.node) != 0)
    return false;
  for (const stash_reader& reading : b.readers)
    if (by_index_.count(reading.node) != 0 || flow_.frame(reading.node) != 0 ||
        !flow_.may_wait(reading.node, b.root.node))
      return false;
  const stash_reader& first = first_reader(b);
  if (first.gate < 0 || rank_[at(first.gate)] >= rank_[at(first.node)]) return false;
  return can_copy(b.root, b.size.bytes(), first.gate, wanted_of_copy(b), r);
}

// Whether what it is made of may be kept as exactly as it asks for: never for it alone where it asks for all
// bits, and not where that would not pay.
bool recipes::is_allowed(const recipe& r) const {
  if (!lossy_) return true;
  return std::all_of(r.from.begin(), r.from.end(), [&](const auto& asked) {
    const bool wider = asked.second > wanted_.at(asked.first);
    return !wider || (asked.second != exactness::exact && unpaid_.count(asked.first) == 0);
  });
}

// Bits that are not kept without the map. A sign that its values would have told needs a bit of its own.
double recipes::saved_by(const stashed_block& b) const {
  const double each = bits_.of(graph_, b, wanted_of(b)) - (b.bits == "sign_mask" ? 1 : 0);
  return each * static_cast<double>(b.size.elements);
}

// Bits that are kept in addition because a map has to be as exact as those ask for that are made of it.
double recipes::added_for(const source& from) const {
  const stashed_block& b = step_.blocks[at(step_.block_of.at(from))];
  if (wanted_.at(from) >= exactness::fine) return 0;
  const double each = bits_.of(graph_, b, exactness::fine) - bits_.of(graph_, b, wanted_.at(from));
  return each * static_cast<double>(b.size.elements);
}

// Finds maps that would have to be kept more exactly for less than that takes; whether there are any.
bool recipes::find_unpaid() {
  std::map<source, double> gain;
  for (const auto& [k, r] : made_of_) {
    std::vector<source> wider;
    for (const auto& [from, asked] : r.from)
      if (added_for(from) > 0) wider.push_back(from);
    for (const source& from : wider)
      gain[from] += saved_by(step_.blocks[at(k)]) / static_cast<double>(wider.size());
  }
  const std::size_t before = unpaid_.size();
  for (const auto& [from, saved] : gain)
    if (saved <= added_for(from)) unpaid_.insert(from);
  return unpaid_.size() > before;
}

// `wanted`: how exact it has to be.
bool recipes::can_copy(const source& s, std::int64_t map_bytes, int gate, exactness wanted, recipe* r) const {
  if (s.is_control() || s.port != 0) return false;
  const std::string& op = graph_.op(s.node);
  const bool view = is_alias(op);
  const int most = which_ == copyable::all ? most_ops : most_cheap_ops;
  if ((!view && (!may_run(op) || ++r->ops > most)) || is_held_elsewhere(op) || step_.backward[at(s.node)] ||
      flow_.frame(s.node) != 0 || !flow_.may_wait(s.node, gate) || sizes_.find(s) == nullptr)
    return false;
  const std::vector<source>& inputs = graph_.inputs(s.node);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const source& in = inputs[k];
    if (in.is_control()) continue;
    const bool continuous =
        exactness_of(needs_of_input(graph_, s.node, static_cast<int>(k))) == exactness::value;
    const exactness here = continuous ? wanted : exactness::exact;
    if (const source root = root_of(graph_, in); kept_.count(root) != 0) {
      r->from[root] = std::max(r->from[root], here);
    } else if (!stays(in, map_bytes) && !can_copy(in, map_bytes, gate, here, r)) {
      return false;
    }
  }
  return true;
}

std::set<source> recipes::keep_what_fits(headroom* spare) {
  std::set<source> fitting;
  for (const int k : chosen_)
    for (const int node : copied_for(k))
      users_[node].push_back(k);
  // What a map spares only falls as others stay: one that still spares the most when it is looked at again is
  // the best one.
  std::priority_queue<std::pair<double, int>> best;
  const auto worth = [&](int k) {
    return static_cast<double>(spared_by(k)) / static_cast<double>(step_.blocks[at(k)].size.bytes());
  };
  for (const int k : chosen_)
    best.emplace(worth(k), k);
  while (!best.empty()) {
    const int k = best.top().second;
    best.pop();
    const double now = worth(k);
    if (!best.empty() && now < best.top().first) {
      best.emplace(now, k);
    } else if (fits(k, spare)) {
      kept_.insert(step_.blocks[at(k)].root);
      fitting.insert(step_.blocks[at(k)].root);
      chosen_.erase(k);
    }
  }
  return fitting;
}

bool recipes::fits(int block, headroom* spare) const {
  const stashed_block& b = step_.blocks[at(block)];
  return spare->take(b.root.node, first_reader(b).gate, b.size.bytes());
}

std::int64_t recipes::spared_by(int block) {
  const source root = step_.blocks[at(block)].root;
  const std::vector<int>& users = users_[root.node];
  const auto work = [&] {
    std::int64_t sum = 0;
    for (const int k : users)
      if (chosen_.count(k) != 0) sum += work_for(k);
    return sum;
  };
  const std::int64_t before = work();
  kept_.insert(root);
  const std::int64_t after = work();
  kept_.erase(root);
  return before - after;
}

std::int64_t recipes::work_for(int block) const {
  std::int64_t sum = 0;
  for (const int node : copied_for(block))
    sum += work_of(node);
  return sum;
}

std::int64_t recipes::work_of(int node) const {
  if (is_alias(graph_.op(node))) return 0;
  std::int64_t bytes = sizes_.find({node, 0})->bytes();
  for (const source& in : graph_.inputs(node))
    if (const tensor_size* size = in.is_control() ? nullptr : sizes_.find(in); size != nullptr)
      bytes += size->bytes();
  return is_costly(graph_.op(node)) ? bytes * weight_of_costly : bytes;
}

std::set<int> recipes::copied_for(int block) const {
  const stashed_block& b = step_.blocks[at(block)];
  std::set<int> nodes;
  if (!stays(b.root, b.size.bytes())) add_copied(b.root, b.size.bytes(), &nodes);
  return nodes;
}

void recipes::add_copied(const source& s, std::int64_t map_bytes, std::set<int>* nodes) const {
  if (!nodes->insert(s.node).second) return;
  for (const source& in : graph_.inputs(s.node))
    if (!in.is_control() && !stays(in, map_bytes)) add_copied(in, map_bytes, nodes);
}

}  // namespace stash_tf
