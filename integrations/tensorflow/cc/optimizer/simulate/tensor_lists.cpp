// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/tensor_lists.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "optimizer/graph/constants.hpp"
#include "optimizer/graph/list_sources.hpp"

namespace stash_tf {

namespace {

constexpr std::int64_t most_tasks = 40'000;     // that a simulation is worth
constexpr std::int64_t fewest_iterations = 96;  // several times as many as run at once
constexpr std::int64_t longest_list = 1 << 16;
// Of loops without lists, or of which nobody knows how often they run: what an iteration does not free lies
// in memory together with what the next one makes.
constexpr std::int64_t few_iterations = 2;

// A few numbers, however many.
bool is_shape(const std::string& op) {
  return op == "TensorListElementShape" || op == "TensorListLength" || op == "Shape" ||
         op == "VariableShape" || op == "BroadcastGradientArgs";
}

bool is_whole_loop(const std::string& op) {
  return op == "While" || op == "StatelessWhile";
}

bool is_loop_variable(const graph_view& graph, int merge) {
  const std::vector<source>& inputs = graph.inputs(merge);
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const source& s) { return is_next_iteration(graph.op(s.node)); });
}

}  // namespace

loop_plan::loop_plan(const graph_view& graph, const loops& all) : loops_(all) {
  std::vector<std::int64_t> nodes(at(all.size()), 0);
  std::vector<bool> has_lists(at(all.size()), false);
  std::vector<bool> has_branches(at(all.size()), false);
  bool whole_loops = false;
  bool lists = false;
  for (int i = 0; i < graph.size(); ++i) {
    ++nodes[at(all.loop_of(i))];
    if (is_merge(graph.op(i)) && !is_loop_variable(graph, i)) has_branches[at(all.loop_of(i))] = true;
    const bool on_list = is_list_op(graph.op(i));
    lists = lists || on_list;
    whole_loops = whole_loops || is_whole_loop(graph.op(i));
    for (int k = all.loop_of(i); on_list && k > 0; k = all[k].parent)
      has_lists[at(k)] = true;
  }
  unknown_ = lists && whole_loops;
  for (int k = 0; k < all.size(); ++k) {
    const bool known = all[k].trips >= 0;
    unknown_ = unknown_ || (has_lists[at(k)] && (!known || has_branches[at(k)]));
    const std::int64_t trips = known ? std::max<std::int64_t>(all[k].trips, 1) : few_iterations;
    trips_.push_back(has_lists[at(k)] ? trips : std::min(trips, few_iterations));
  }
  const auto tasks = [&] {
    double sum = 0;
    for (int k = 1; k < all.size(); ++k) {
      auto product = static_cast<double>(nodes[at(k)]);
      for (int l = k; l > 0; l = all[l].parent)
        product *= static_cast<double>(simulated(trips_[at(l)]));
      sum += product;
    }
    return sum;
  };
  while (most_ > fewest_iterations && tasks() > most_tasks)
    most_ = std::max(most_ / 2, fewest_iterations);
  // Loops within loops may still be too much, and what stands for several must not hold lists itself.
  bool too_much = tasks() > 10 * most_tasks;
  for (int k = 1; k < all.size(); ++k)
    too_much = too_much || (all[k].parent > 0 && has_lists[at(k)] && trips_[at(all[k].parent)] > most_);
  if (!too_much) return;
  unknown_ = true;
  std::fill(trips_.begin(), trips_.end(), 1);
}

std::vector<std::int64_t> loop_plan::simulated() const {
  std::vector<std::int64_t> times;
  times.reserve(trips_.size());
  for (const std::int64_t trips : trips_)
    times.push_back(simulated(trips));
  return times;
}

double loop_plan::weight(std::int64_t position, std::int64_t count) const {
  const std::int64_t edge = (most_ - middle()) / 2;
  if (count <= most_ || position < edge || position >= most_ - edge) return 1;
  return static_cast<double>(count - 2 * edge) / static_cast<double>(most_ - 2 * edge);
}

list_ops::list_ops(const graph_view& graph, const tensor_sizes& sizes, const loops& all,
                   const loop_plan& plan, executor_iterations* running, buffers* memory)
    : graph_(graph), sizes_(sizes), loops_(all), plan_(plan), running_(running), memory_(memory) {
  kind_.reserve(at(graph.size()));
  for (int i = 0; i < graph.size(); ++i)
    kind_.push_back(kind_of(graph.op(i)));
}

list_ops::kind list_ops::kind_of(const std::string& op) {
  if (op == "EmptyTensorList" || op == "TensorListReserve") return kind::begin;
  if (op == "TensorListFromTensor" || op == "TensorListSplit" || absl::StartsWith(op, "TensorListScatter"))
    return kind::from_tensor;
  if (op == "TensorListPushBack" || op == "TensorListPushBackBatch") return kind::push;
  if (op == "TensorListPopBack") return kind::pop;
  if (op == "TensorListGetItem") return kind::get;
  if (op == "TensorListSetItem") return kind::set;
  if (op == "TensorListResize" || op == "TensorListConcatLists") return kind::join;
  if (op == "OptionalFromValue") return kind::wrap;
  if (op == "OptionalGetValue") return kind::unwrap;
  // Of lists they make lists.
  if (op == "ZerosLike" || op == "AddN") return kind::like;
  return kind::none;
}

bool list_ops::run(task t) {
  const int first = graph_.inputs(t.node).empty() ? buffers::none : input(t, 0);
  switch (kind_[at(t.node)]) {
    case kind::none:
      return false;
    case kind::begin:
      set_output(t, 0, writable(t, buffers::none));
      return true;
    case kind::from_tensor:
      from_tensor(t);
      return true;
    case kind::push:
    case kind::set:
      write(t, first);
      return true;
    case kind::pop:
      pop(t, first);
      return true;
    case kind::get:
      get(t, first);
      return true;
    case kind::join:
      join(t, first);
      return true;
    case kind::like:
      return memory_->is_list(first) && copy(t, first);
    case kind::wrap:
      wrap(t);
      return true;
    case kind::unwrap:
      return unwrap(t, first);
  }
  return false;
}

int list_ops::input(task t, std::size_t k) const {
  const std::vector<source>& inputs = graph_.inputs(t.node);
  return k < inputs.size() ? running_->value(t, inputs[k]) : buffers::none;
}

void list_ops::set_output(task t, int port, int value) {
  if (running_->readers(t, port) > 0) running_->set_value(t, port, value);
}

// The list as the result of this task: itself, if nobody else holds it, or another with the same elements.
int list_ops::writable(task t, int list) {
  const int readers = running_->readers(t, 0);
  if (readers == 0) return buffers::none;
  if (memory_->is_list(list) && memory_->holders(list) == 1) {
    memory_->hold(list, readers);
    return list;
  }
  const int made = memory_->add_list(readers);
  share(list, made);
  return made;
}

void list_ops::share(int from, int to) {
  if (!memory_->is_list(from) || !memory_->is_list(to)) return;
  const std::vector<int> elements = memory_->elements(from);
  for (const int e : elements)
    memory_->append(to, e, 1);
}

void list_ops::join(task t, int list) {
  const int joined = writable(t, list);
  if (graph_.op(t.node) == "TensorListConcatLists") share(input(t, 1), joined);
  set_output(t, 0, joined);
}

bool list_ops::copy(task t, int list) {
  const int made = writable(t, buffers::none);
  const std::vector<int> elements = memory_->elements(list);
  for (const int e : elements)
    if (made >= 0) memory_->append(made, e < 0 ? e : memory_->add(memory_->bytes(e), 0), memory_->weight(e));
  set_output(t, 0, made);
  return true;
}

// Its slices are copied, each into memory of its own.
void list_ops::from_tensor(task t) {
  const bool goes_on = graph_.op(t.node) == "TensorListScatterIntoExistingList";
  const int list = writable(t, goes_on ? input(t, 0) : buffers::none);
  set_output(t, 0, list);
  const tensor_size* size = sizes_.find(graph_.inputs(t.node)[goes_on ? 1 : 0]);
  if (size == nullptr || size->dims.empty()) {
    unknown_ = true;
    return;
  }
  const std::int64_t count = size->dims[0];
  for (std::int64_t k = 0; k < plan_.simulated(count) && list >= 0; ++k)
    memory_->append(list, memory_->add(size->bytes() / count, 0), plan_.weight(k, count));
}

void list_ops::write(task t, int list) {
  const bool push = kind_[at(t.node)] == kind::push;
  const source& written = graph_.inputs(t.node)[push ? 1 : 2];
  const int element = running_->value(t, written);
  unknown_ =
      unknown_ || (element < 0 && sizes_.find(written) == nullptr && !is_shape(graph_.op(written.node)));
  const int result = writable(t, list);
  set_output(t, 0, result);
  if (result < 0) return;
  const double weight = plan_.weight(running_->number(t.run), loops_[loops_.loop_of(t.node)].trips);
  if (push) {
    memory_->append(result, element, weight);
  } else {
    memory_->put(result, position(t), element, weight);
  }
}

void list_ops::pop(task t, int list) {
  if (!memory_->is_list(list)) return;
  const int readers = running_->readers(t, 1);
  const int rest = writable(t, list);
  int element = buffers::none;
  if (rest >= 0) {
    element = memory_->pop(rest, readers);
  } else if (!memory_->elements(list).empty()) {
    element = memory_->elements(list).back();
    memory_->hold(element, readers);
  }
  set_output(t, 0, rest);
  set_output(t, 1, std::max(element, buffers::none));
}

void list_ops::wrap(task t) {
  const int optional = writable(t, buffers::none);
  set_output(t, 0, optional);
  if (optional < 0) return;
  for (const source& s : graph_.inputs(t.node))
    if (!s.is_control()) memory_->append(optional, running_->value(t, s), 1);
}

// False for those of iterators, which hold what they give.
bool list_ops::unwrap(task t, int optional) {
  if (!memory_->is_list(optional)) return false;
  const std::vector<int> components = memory_->elements(optional);
  for (int port = 0; port < static_cast<int>(components.size()); ++port) {
    const int readers = running_->readers(t, port);
    if (readers == 0 || components[at(port)] < 0) continue;
    memory_->hold(components[at(port)], readers);
    running_->set_value(t, port, components[at(port)]);
  }
  return true;
}

void list_ops::get(task t, int list) {
  const int readers = running_->readers(t, 0);
  if (!memory_->is_list(list) || readers == 0) return;
  const std::vector<int>& elements = memory_->elements(list);
  const int element =
      elements.empty() ? buffers::empty : elements[std::min(position(t), elements.size() - 1)];
  memory_->hold(element, readers);
  const tensor_size* size = sizes_.find({t.node, 0});
  // Zeros in place of what nobody has written.
  const bool made = element == buffers::empty && size != nullptr && size->bytes() > 0;
  set_output(t, 0, made ? memory_->add(size->bytes(), readers) : std::max(element, buffers::none));
}

// A loop is taken to go through a list one by one, unless it always takes the same.
std::size_t list_ops::position(task t) const {
  const source& index = graph_.inputs(t.node)[1];
  const std::optional<std::int64_t> constant = constant_integer(graph_, index.node);
  if (!constant) return static_cast<std::size_t>(running_->number(t.run));
  return static_cast<std::size_t>(std::clamp<std::int64_t>(*constant, 0, longest_list));
}

}  // namespace stash_tf
