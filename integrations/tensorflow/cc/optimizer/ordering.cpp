#include "optimizer/ordering.hpp"

#include <deque>
#include <map>
#include <set>
#include <string>

namespace stash_tf {

namespace {

// Input of the gradient that a layer got from above; -1 for other ops.
int used_up(const std::string& op) {
  if (op == "BiasAddGrad") return 0;
  if (op == "Conv2DBackpropFilter" || op == "Conv3DBackpropFilterV2" ||
      op == "DepthwiseConv2dNativeBackpropFilter")
    return 2;
  return -1;
}

int carried_on(const std::string& op) {
  if (op == "Conv2DBackpropInput" || op == "Conv3DBackpropInputV2" ||
      op == "DepthwiseConv2dNativeBackpropInput")
    return 2;
  return -1;
}

}  // namespace

std::vector<std::pair<int, int>> weight_gradients_first(const graph_view& graph, const step& of) {
  std::map<source, std::vector<int>> users, carriers;
  for (int i = 0; i < graph.size(); ++i) {
    if (!of.backward[static_cast<std::size_t>(i)]) continue;
    if (const int k = used_up(graph.op(i)); k >= 0)
      users[graph.inputs(i)[static_cast<std::size_t>(k)]].push_back(i);
    if (const int k = carried_on(graph.op(i)); k >= 0)
      carriers[graph.inputs(i)[static_cast<std::size_t>(k)]].push_back(i);
  }
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [dy, list] : carriers) {
    const auto first = users.find(dy);
    if (first == users.end() || !of.backward[static_cast<std::size_t>(dy.node)]) continue;
    for (const int carrier : list)
      for (const int user : first->second)
        if (graph.node(user).device() == graph.node(carrier).device()) pairs.emplace_back(user, carrier);
  }
  return pairs;
}

std::vector<int> execution_order(const graph_view& graph, const step& of,
                                 const std::vector<std::pair<int, int>>& pairs) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<int> waiting(at(graph.size()), 0);
  std::vector<std::vector<int>> then(at(graph.size()));
  for (const auto& [first, second] : pairs) {
    then[at(first)].push_back(second);
    ++waiting[at(second)];
  }
  std::deque<int> ready, later;
  for (int i = 0; i < graph.size(); ++i) {
    for (const source& s : graph.inputs(i))
      if (!is_next_iteration(graph.op(s.node))) ++waiting[at(i)];
    if (waiting[at(i)] == 0) (of.backward[at(i)] ? later : ready).push_back(i);
  }
  std::vector<int> order;
  while (!ready.empty() || !later.empty()) {
    // Nothing of the forward pass waits for the backward pass.
    std::deque<int>& queue = ready.empty() ? later : ready;
    const int i = queue.front();
    queue.pop_front();
    order.push_back(i);
    const auto release = [&](int next) {
      if (--waiting[at(next)] == 0) (of.backward[at(next)] ? later : ready).push_back(next);
    };
    if (!is_next_iteration(graph.op(i)))
      for (const reader& r : graph.readers(i))
        release(r.node);
    for (const int next : then[at(i)])
      release(next);
  }
  return order;
}

}  // namespace stash_tf
