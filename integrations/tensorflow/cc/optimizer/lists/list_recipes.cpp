// SPDX-License-Identifier: Apache-2.0
#include "optimizer/lists/list_recipes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "optimizer/graph/needs.hpp"
#include "optimizer/rewrite/recipes.hpp"

namespace stash_tf {

namespace {

constexpr int most_ops_again = 8;

bool contains(const std::vector<std::string>& needs, const char* name) {
  return std::find(needs.begin(), needs.end(), name) != needs.end();
}

class recipe_finder {
 public:
  recipe_finder(const graph_view& graph, const control_flow& flow, bool lossy, step* analysis)
      : graph_(graph),
        flow_(flow),
        lossy_(lossy),
        step_(*analysis),
        rank_(graph.positions(analysis->order)) {}

  std::vector<list_recipe> run() {
    std::vector<int> lists;
    for (std::size_t k = 0; k < step_.lists.size(); ++k) {
      lists.push_back(static_cast<int>(k));
      list_of_.emplace(step_.lists[k].list.element, static_cast<int>(k));
    }
    const auto position = [&](int k) { return rank_[at(step_.lists[at(k)].list.element.node)]; };
    std::stable_sort(lists.begin(), lists.end(), [&](int a, int b) { return position(a) < position(b); });
    std::vector<list_recipe> found;
    for (const int k : lists) {
      recipe_ = {k, {}, {}, {}, -1};
      ops_ = 0;
      target_ = &step_.lists[at(k)];
      if (!may_go(*target_) || !can_copy(target_->list.element) || recipe_.from.empty() || !has_shape() ||
          !is_worth_it())
        continue;
      gone_.insert(k);
      for (const int from : recipe_.from)
        step_.lists[at(from)].also_needs = {need_of_sources()};
      found.push_back(std::move(recipe_));
    }
    return found;
  }

 private:
  bool may_go(const listed_block& b) const {
    if (!b.element.raw_because.empty() || b.element.size.type == tensorflow::DT_BOOL) return false;
    return std::all_of(b.element.readers.begin(), b.element.readers.end(), [&](const stash_reader& r) {
      if (reads_shape(graph_, r.node)) return true;
      const auto is_value = [](const std::string& need) { return need == "value" || need == "fine_value"; };
      return bits_for(graph_, r).empty() &&
             (!lossy_ || std::all_of(r.needs.begin(), r.needs.end(), is_value));
    });
  }

  // Adds what has to be copied to the recipe.
  bool can_copy(const source& s) {
    if (s.is_control()) return true;
    if (std::find(recipe_.again.begin(), recipe_.again.end(), s.node) != recipe_.again.end())
      return s.port == 0;
    if (graph_.op(s.node) == "Const") {
      add(s.node, &recipe_.constants);
      return true;
    }
    if (const auto list = list_of_.find(s); list != list_of_.end() && list->second != recipe_.list) {
      if (gone_.count(list->second) == 0 && is_at_hand(step_.lists[at(list->second)])) {
        add(list->second, &recipe_.from);
        return true;
      }
    }
    const std::string& op = graph_.op(s.node);
    const bool view = is_alias(op);
    if (s.port != 0 || (!view && !is_cheap(op)) || step_.backward[at(s.node)] ||
        flow_.frame(s.node) != flow_.frame(target_->list.push) || (!view && ++ops_ > most_ops_again))
      return false;
    const std::vector<source>& inputs = graph_.inputs(s.node);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (!can_copy(inputs[k])) return false;
      const bool continuous =
          needs_of_input(graph_, s.node, static_cast<int>(k)) == std::vector<std::string>{"value"};
      if (lossy_ && !view && !inputs[k].is_control() && !continuous) return false;
    }
    recipe_.again.push_back(s.node);
    return true;
  }

  // Whether each iteration that needs it finds it in its list.
  bool is_at_hand(const listed_block& b) const {
    const auto together = [&](int one, int other) {
      return flow_.may_wait(one, other) && flow_.may_wait(other, one);
    };
    // A pop may wait for a gradient that needs the target.
    return together(b.list.push, target_->list.push) && together(b.list.pop, target_->list.pop) &&
           rank_[at(b.list.pop)] < first_read();
  }

  int first_read() const {
    int first = graph_.size();
    for (const stash_reader& r : target_->element.readers)
      first = std::min(first, rank_[at(r.node)]);
    return first;
  }

  // A copy is made when its first reader's turn has come, and a shape may be asked for long before: then it
  // has to be known, or that of another list.
  bool has_shape() {
    const tensor_size& size = target_->element.size;
    for (const int k : recipe_.from) {
      const tensor_size& other = step_.lists[at(k)].element.size;
      if (other.dims == size.dims && other.batch_dim == size.batch_dim && !other.is_odd) recipe_.like = k;
    }
    return !is_asked_for_shape(graph_, *target_) || size.is_fixed() || recipe_.like >= 0;
  }

  // What a list takes for each element with these needs, in eighths of a byte; about, for forms depend on the
  // policy.
  std::int64_t bits_of(const listed_block& b, const std::vector<std::string>& needs) const {
    const std::int64_t raw = 8 * b.element.size.bytes() / std::max<std::int64_t>(b.element.size.elements, 1);
    if (contains(needs, "exact_value")) return raw;
    if (contains(needs, "fine_value")) return lossy_ ? std::min<std::int64_t>(raw, 16) : raw;
    if (contains(needs, "value")) return lossy_ ? std::min<std::int64_t>(raw, 8) : raw;
    return needs.empty() ? 0 : 1;
  }

  // What it is made of may have to be kept in a wider form than without it.
  bool is_worth_it() const {
    std::int64_t more = 0;
    for (const int k : recipe_.from) {
      const listed_block& b = step_.lists[at(k)];
      std::vector<std::string> needs = all_needs(b);
      const std::int64_t before = bits_of(b, needs);
      needs.push_back(need_of_sources());
      more += (bits_of(b, needs) - before) * b.element.size.elements;
    }
    return more < bits_of(*target_, all_needs(*target_)) * target_->element.size.elements;
  }

  const char* need_of_sources() const { return lossy_ ? "fine_value" : "exact_value"; }

  static void add(int k, std::vector<int>* to) {
    if (std::find(to->begin(), to->end(), k) == to->end()) to->push_back(k);
  }

  const graph_view& graph_;
  const control_flow& flow_;
  const bool lossy_;
  step& step_;
  const std::vector<int> rank_;
  std::map<source, int> list_of_;  // by element
  std::set<int> gone_;
  list_recipe recipe_;
  const listed_block* target_ = nullptr;
  int ops_ = 0;
};

}  // namespace

std::vector<list_recipe> list_recipes(const graph_view& graph, const control_flow& flow, bool lossy,
                                      step* analysis) {
  return recipe_finder(graph, flow, lossy, analysis).run();
}

}  // namespace stash_tf
