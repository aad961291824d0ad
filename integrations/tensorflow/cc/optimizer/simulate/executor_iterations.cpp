// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/executor_iterations.hpp"

#include <algorithm>
#include <limits>

namespace stash_tf {

namespace {

constexpr int never = std::numeric_limits<int>::max();

bool is_constant(const graph_view& graph, int node) {
  const auto& attr = graph.node(node).attr();
  const auto it = attr.find("is_constant");
  return it != attr.end() && it->second.b();
}

int ports_of(const graph_view& graph, int node) {
  int ports = 0;
  for (const reader& r : graph.readers(node))
    ports = std::max(ports, r.port + 1);
  return ports;
}

}  // namespace

executor_iterations::executor_iterations(const graph_view& graph, const loops& all,
                                         std::vector<std::int64_t> trips)
    : graph_(graph), loops_(all), trips_(std::move(trips)) {
  const auto count = at(graph.size());
  role_.reserve(count);
  for (int i = 0; i < graph.size(); ++i)
    role_.push_back(role_of(graph, all, i));
  index_.resize(count);
  slot_.resize(count);
  waiting_first_.resize(at(all.size()));
  waiting_later_.resize(at(all.size()));
  slots_.assign(at(all.size()), 0);
  for (int i = 0; i < graph.size(); ++i) {
    const int loop = all.loop_of(i);
    index_[at(i)] = static_cast<int>(waiting_first_[at(loop)].size());
    slot_[at(i)] = slots_[at(loop)];
    slots_[at(loop)] += ports_of(graph, i);
    int now = 0;
    int later = 0;
    bool once = is_enter(graph.op(i));
    for (const source& s : graph.inputs(i)) {
      const bool from_before = role_[at(s.node)] == role::next;
      const bool from_outside = role_[at(s.node)] == role::enter;
      if (!from_before) ++now;
      if (!from_outside) ++later;
      once = once || (from_outside && role_[at(i)] != role::merge);
    }
    waiting_first_[at(loop)].push_back(now);
    waiting_later_[at(loop)].push_back(once || later == 0 ? never : later);
  }
}

executor_iterations::role executor_iterations::role_of(const graph_view& graph, const loops& all, int node) {
  const std::string& op = graph.op(node);
  if (is_enter(op)) return is_constant(graph, node) ? role::constant : role::enter;
  if (is_exit(op)) return role::exit;
  if (is_next_iteration(op)) return role::next;
  const auto& inputs = graph.inputs(node);
  if (is_merge(op)) {
    const bool repeats = std::any_of(inputs.begin(), inputs.end(),
                                     [&](const source& s) { return is_next_iteration(graph.op(s.node)); });
    return repeats && all.loop_of(node) > 0 ? role::merge : role::plain;
  }
  const bool decides = is_switch(op) && inputs.size() > 1 && graph.op(inputs[1].node) == "LoopCond" &&
                       all.loop_of(inputs[1].node) == all.loop_of(node) && all.loop_of(node) > 0;
  return decides ? role::switches : role::plain;
}

std::vector<task> executor_iterations::first() {
  all_.push_back({0, -1, 0, 0, waiting_first_[0], std::vector<int>(at(slots_[0]), buffers::none)});
  std::vector<task> ready;
  for (int i = 0; i < graph_.size(); ++i)
    if (loops_.loop_of(i) == 0 && waiting({i, 0}) == 0) ready.push_back({i, 0});
  all_[0].under_way = static_cast<int>(ready.size());
  to_come_ = static_cast<int>(waiting_first_[0].size());
  return ready;
}

std::vector<task> executor_iterations::end(task t) {
  std::vector<task> ready;
  if (role_[at(t.node)] == role::constant) {
    activation& a = activations_[at(all_[at(t.run)].activation)];
    a.arrived.push_back(t);
    const std::vector<int> iterations = a.iterations;
    for (const int run : iterations)
      bring({t.node, run}, &ready);
  } else if (role_[at(t.node)] == role::next) {
    hand_on(t, &ready);
  } else {
    bring(t, &ready);
  }
  if (t.run == 0) --to_come_;
  if (is_enter(graph_.op(t.node))) --activations_[at(all_[at(t.run)].activation)].enters_to_come;
  finish(t.run, &ready);
  return ready;
}

// To all that read what a task made.
void executor_iterations::bring(task t, std::vector<task>* ready) {
  for (const reader& r : graph_.readers(t.node))
    if (const int run = run_of_reader(t, r, ready); run >= 0) arrive({r.node, run}, ready);
}

bool executor_iterations::is_complete() const {
  return to_come_ == 0 &&
         std::all_of(activations_.begin(), activations_.end(), [](const activation& a) { return a.is_over; });
}

int executor_iterations::value(task t, const source& input) const {
  if (input.is_control()) return buffers::none;
  const int run = run_of_value(t, input);
  return run < 0 ? buffers::none : all_[at(run)].values[at(slot_[at(input.node)] + input.port)];
}

void executor_iterations::set_value(task t, int port, int value) {
  all_[at(t.run)].values[at(slot_[at(t.node)] + port)] = value;
}

int executor_iterations::readers(task t, int port) const {
  if (!is_chosen(t, port)) return 0;
  int count = 0;
  for (const reader& r : graph_.readers(t.node))
    if (r.port == port) ++count;
  return role_[at(t.node)] == role::constant ? std::min(count, 1) : count;
}

// Of a Switch that ends a loop only one side goes on; what comes after the last iteration never runs.
bool executor_iterations::is_chosen(task t, int port) const {
  const bool goes_on = number(t.run) < trips(t.run);
  if (role_[at(t.node)] == role::next) return goes_on;
  return role_[at(t.node)] != role::switches || port < 0 || (port > 0) == goes_on;
}

bool executor_iterations::is_first(int run) const {
  while (run >= 0 && number(run) == 0)
    run = parent_of(run);
  return run < 0;
}

int executor_iterations::parent_of(int run) const {
  const int activation = all_[at(run)].activation;
  return activation < 0 ? -1 : activations_[at(activation)].parent;
}

// The iteration in which the value was made that a task reads; -1: there is none for it.
int executor_iterations::run_of_value(task t, const source& input) const {
  const role own = role_[at(t.node)];
  if (own == role::enter || own == role::constant) {
    const int outside = parent_of(t.run);
    const int around = outside < 0 ? -1 : all_[at(outside)].activation;
    return around >= 0 && role_[at(input.node)] == role::constant ? activations_[at(around)].iterations[0]
                                                                  : outside;
  }
  if (own == role::exit) {
    const auto from = leaving_.find({t.run, t.node});
    return from == leaving_.end() ? -1 : from->second;
  }
  const std::int64_t now = number(t.run);
  const role made = role_[at(input.node)];
  const bool from_before = made == role::next;
  if (own == role::merge && from_before != (now > 0)) return -1;
  if (all_[at(t.run)].activation >= 0 && (from_before || made == role::constant)) {
    const std::vector<int>& iterations = activations_[at(all_[at(t.run)].activation)].iterations;
    return iterations[from_before ? static_cast<std::size_t>(now - 1) : 0];
  }
  return loops_.loop_of(input.node) == all_[at(t.run)].loop ? t.run : -1;
}

// -1: this reader does not run for it.
int executor_iterations::run_of_reader(task t, const reader& r, std::vector<task>* ready) {
  if (!is_chosen(t, r.port)) return -1;
  const int loop = loops_.loop_of(r.node);
  if (is_enter(graph_.op(r.node))) {
    if (loops_[loop].parent != all_[at(t.run)].loop) return -1;
    // What is there for all iterations is there for the last one, too, which only finds that it is over.
    if (role_[at(t.node)] == role::constant && number(t.run) >= trips(t.run)) return -1;
    return activations_[at(enter(loop, t.run, ready))].iterations[0];
  }
  if (role_[at(r.node)] == role::exit && all_[at(t.run)].loop != loop) {
    const int outside = parent_of(t.run);
    leaving_[{outside, r.node}] = t.run;
    return outside;
  }
  return loop == all_[at(t.run)].loop ? t.run : -1;
}

int executor_iterations::enter(int loop, int parent, std::vector<task>* ready) {
  const auto number = static_cast<int>(activations_.size());
  const auto [it, is_new] = entered_.emplace(std::make_pair(parent, loop), number);
  if (!is_new) return it->second;
  activation a;
  a.loop = loop;
  a.parent = parent;
  a.enters_to_come = static_cast<int>(loops_[loop].enters.size());
  activations_.push_back(std::move(a));
  ++all_[at(parent)].under_way;
  begin_iteration(number, ready);
  return number;
}

int executor_iterations::begin_iteration(int number, std::vector<task>* ready) {
  activation& a = activations_[at(number)];
  const auto run = static_cast<int>(all_.size());
  const auto& waiting = (a.iterations.empty() ? waiting_first_ : waiting_later_)[at(a.loop)];
  all_.push_back({a.loop, number, static_cast<std::int64_t>(a.iterations.size()), 0, waiting,
                  std::vector<int>(at(slots_[at(a.loop)]), buffers::none)});
  a.iterations.push_back(run);
  for (const task& t : a.arrived)
    bring({t.node, run}, ready);
  return run;
}

// Into the next iteration, which may have to wait until others are done.
void executor_iterations::hand_on(task next, std::vector<task>* ready) {
  const int number_of = all_[at(next.run)].activation;
  if (number_of < 0 || !is_chosen(next, 0)) return;
  activation& a = activations_[at(number_of)];
  const auto coming = static_cast<std::size_t>(number(next.run) + 1);
  if (coming >= a.iterations.size()) {
    if (a.iterations.size() - a.oldest >= at(loops_[a.loop].parallel_iterations)) {
      a.postponed.push_back(next);
      return;
    }
    begin_iteration(number_of, ready);
  }
  for (const reader& r : graph_.readers(next.node))
    arrive({r.node, a.iterations[coming]}, ready);
}

void executor_iterations::arrive(task t, std::vector<task>* ready) {
  int& waiting = all_[at(t.run)].waiting[at(index_[at(t.node)])];
  if (waiting == never || --waiting != 0) return;
  ready->push_back(t);
  ++all_[at(t.run)].under_way;
}

// Iterations end in their order, and a loop with its last one.
void executor_iterations::finish(int run, std::vector<task>* ready) {
  while (run >= 0) {
    --all_[at(run)].under_way;
    const int number = all_[at(run)].activation;
    if (number < 0 || activations_[at(number)].is_over) return;
    activation& a = activations_[at(number)];
    while (a.oldest < a.iterations.size()) {
      const bool begins = a.oldest == 0 && a.enters_to_come > 0;
      if (begins || all_[at(a.iterations[a.oldest])].under_way > 0) return;
      ++a.oldest;
      for (const task& next : std::exchange(a.postponed, {}))
        hand_on(next, ready);
    }
    a.is_over = true;
    for (const task& t : a.arrived)
      if (readers(t, 0) > 0) left_.push_back(output(t, 0));
    run = a.parent;
  }
}

}  // namespace stash_tf
