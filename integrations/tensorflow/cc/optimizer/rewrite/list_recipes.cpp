// SPDX-License-Identifier: Apache-2.0
#include "optimizer/rewrite/list_recipes.hpp"

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
      : graph_(graph), flow_(flow), lossy_(lossy), step_(*analysis), rank_(graph.positions(analysis->order)) {}

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
      recipe_ = {k, {}, {}, {}};
      ops_ = 0;
      target_ = &step_.lists[at(k)];
      if (!may_go(*target_) || !can_copy(target_->list.element) || recipe_.from.empty() || !is_worth_it())
        continue;
      gone_.insert(k);
      if (lossy_)
        for (const int from : recipe_.from)
          step_.lists[at(from)].also_needs = {"fine_value"};
      found.push_back(std::move(recipe_));
    }
    return found;
  }

 private:
  bool may_go(const listed_block& b) const {
    if (!b.element.raw_because.empty() || b.element.size.type == tensorflow::DT_BOOL) return false;
    // A copy is made when its first reader's turn has come, and a shape may be asked for long before.
    const bool has_shape = b.element.size.batch_dims == 0 && !b.element.size.is_odd;
    return std::all_of(b.element.readers.begin(), b.element.readers.end(), [&](const stash_reader& r) {
      if (reads_shape(graph_, r.node)) return has_shape;
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
      const bool continuous = needs_of_input(graph_, s.node, static_cast<int>(k)) ==
                              std::vector<std::string>{"value"};
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
    return together(b.list.push, target_->list.push) && together(b.list.pop, target_->list.pop);
  }

  // Rounded sources cost more bytes than before if they get 16 bits instead of eight.
  bool is_worth_it() const {
    if (!lossy_) return true;
    std::int64_t more = 0;
    for (const int k : recipe_.from) {
      const std::vector<std::string> needs = all_needs(step_.lists[at(k)]);
      const bool wide = contains(needs, "fine_value") || contains(needs, "exact_value");
      if (!wide) more += step_.lists[at(k)].element.size.elements;
    }
    const bool fine = contains(all_needs(*target_), "fine_value");
    return more < target_->element.size.elements * (fine ? 2 : 1);
  }

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
