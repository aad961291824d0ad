// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/footprint.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "optimizer/graph/buffers.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/needs.hpp"
#include "optimizer/graph/views.hpp"
#include "optimizer/plan/work.hpp"
#include "optimizer/plan/workspace.hpp"
#include "optimizer/simulate/executor_iterations.hpp"
#include "optimizer/simulate/folding.hpp"
#include "optimizer/simulate/output_sizes.hpp"
#include "optimizer/simulate/tensor_lists.hpp"
#include "optimizer/simulate/variable_reads.hpp"

namespace stash_tf {

namespace {

// Kernels that the executor runs at once where they become ready; the others go through the thread's queue.
bool is_cheap(const std::string& op) {
  static const std::set<std::string> ops = {"Const",        "NoOp",  "ReadVariableOp", "VarHandleOp", "_Arg",
                                            "_Retval",      "Shape", "ShapeN",         "Size",        "Rank",
                                            "StridedSlice", "Pack",  "IteratorGetNext"};
  return ops.count(op) != 0 || is_alias(op) || is_control_flow(op);
}

bool is_result(const std::string& op) {
  return op == "_Retval" || op == "_DeviceRetval";
}

bool may_take_input(const std::string& op) {
  return may_write_in_place(op) || op == "StashReluGrad" || op == "StashRelu6Grad" ||
         op == "StashLeakyReluGrad";
}

class simulation {
 public:
  simulation(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
             const step& analysis, const choices& chosen, run_order order, std::vector<simulated_op>* ran)
      : graph_(graph),
        original_(original),
        sizes_(sizes),
        step_(analysis),
        outputs_(graph, original, sizes, analysis, chosen),
        order_(order),
        ran_(ran),
        views_(views_of(graph, sizes)),
        sorted_(graph.topological_order()),
        position_(graph.positions(sorted_)),
        folded_(folded_nodes(graph, sorted_, outputs_, analysis.on_device)),
        loops_(graph, sorted_),
        plan_(graph, loops_),
        iterations_(graph, loops_, plan_.simulated()),
        variables_(graph, &buffers_),
        lists_(graph, sizes, loops_, plan_, &iterations_, &buffers_) {}

  footprint run() {
    find_encoders();
    for (int i = 0; i < graph_.size(); ++i)
      cheap_.push_back(folded_[at(i)] || is_cheap(graph_.op(i)) || is_found_cheap(i));
    // TensorFlow has a node in front of all that begin: the cheap ones are done before anything that they
    // make ready.
    for (const task& t : iterations_.first())
      (cheap_[at(t.node)] ? at_once_ : queue_).push_back(t);
    while (!at_once_.empty() || !queue_.empty() || !copies_.empty()) {
      std::deque<task>& from = !at_once_.empty() ? at_once_ : !queue_.empty() ? queue_ : copies_;
      if (&from == &queue_ && chooses()) bring_best_to_front();
      const task t = from.front();
      from.pop_front();
      const bool ends = &from == &copies_;
      if (!ends) begin(t);
      if (!ends && is_move(graph_.op(t.node))) {
        copies_.push_back(t);
      } else {
        end(t);
      }
    }
    for (const int encoder : kept_for_bits_)
      peak_.kept_for_bits.push_back(graph_.node(encoder).attr().at("tensor").s());
    peak_.unknown_lists =
        plan_.is_unknown() || (loops_.size() > 1 && (lists_.is_unknown() || !iterations_.is_complete()));
    return peak_;
  }

 private:
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();

  std::int64_t bytes_of(const source& tensor) const { return outputs_.bytes(tensor); }

  static std::vector<std::vector<int>> views_of(const graph_view& graph, const tensor_sizes& sizes) {
    std::vector<std::vector<int>> views(at(graph.size()));
    for (int i = 0; i < graph.size(); ++i) {
      const bool hands_on = is_control_flow(graph.op(i));
      const std::set<int> read = graph.ports_read(i);
      if (read.empty()) continue;
      for (int port = 0; port <= *read.rbegin(); ++port)
        views[at(i)].push_back(hands_on ? (graph.inputs(i).empty() ? -1 : 0)
                                        : viewed_input(graph, sizes, {i, port}));
    }
    return views;
  }

  void begin(task t) {
    const int i = t.node;
    const std::int64_t workspace = workspace_of(i);
    const std::int64_t before = buffers_.live_bytes();
    simulated_op now{i, 0, largest_input(t), 0};
    if (!lists_.run(t)) now.takes = make_outputs(t);
    now.takes += workspace + buffers_.live_bytes() - before;
    now.holds = std::max(now.holds, now.takes);
    now.live = buffers_.live_bytes() + workspace;
    if (ran_ != nullptr && iterations_.is_first(t.run)) ran_->push_back(now);
    if (now.live > peak_.peak_bytes) {
      peak_.peak_bytes = now.live;
      kept_for_bits_ = kept_for_bits();
    }
    peak_.host_bytes = std::max(peak_.host_bytes, buffers_.host_bytes());
  }

  std::int64_t workspace_of(int i) const {
    const bool known = !step_.on_device && i < original_.size() && graph_.op(i) == original_.op(i);
    return known ? workspace_bytes(original_, i, sizes_, step_.threads) : 0;
  }

  // The executor measures what kernels take, and lets those that turn out to take little follow at once as
  // well. Outside of loops that is hundreds of steps later.
  bool is_found_cheap(int i) const {
    constexpr std::int64_t often = 16;
    constexpr double little_work = 128 * 1024;     // multiplications and additions
    constexpr std::int64_t few_bytes = 96 * 1024;  // read and written
    if (i >= original_.size() || loops_[loops_.loop_of(i)].trips < often) return false;
    if (flops_of(original_, i, sizes_) > little_work) return false;
    std::int64_t bytes = bytes_of({i, 0});
    for (const source& s : graph_.inputs(i))
      if (!s.is_control()) bytes += bytes_of(s);
    return bytes <= few_bytes;
  }

  // Returns how much more it would have taken if others still read what it writes over.
  std::int64_t make_outputs(task t) {
    const int i = t.node;
    const std::string& op = graph_.op(i);
    std::int64_t more = 0;
    variables_.update(i);
    const int readers = op == "ReadVariableOp" ? iterations_.readers(t, 0) : 0;
    if (readers > 0) iterations_.set_value(t, 0, variables_.read(i, readers, bytes_of({i, 0})));
    if (is_held_elsewhere(op) || folded_[at(i)]) return 0;
    for (const int port : graph_.ports_read(i)) {
      const int count = iterations_.readers(t, port);
      if (count == 0) continue;
      const int from = handed_on_from(i, port);
      if (from >= 0) {
        const int b = handed_on(t, from);
        buffers_.hold(b, count);
        iterations_.set_value(t, port, b);
        continue;
      }
      const std::int64_t bytes = bytes_of({i, port});
      if (bytes == 0) continue;
      const int taken = port == 0 && may_take_input(op) ? dying_input(t, bytes) : buffers::none;
      if (taken >= 0) {
        // Earlier, while others still read that buffer, it would have taken one of its own.
        if (shared(i)) more += bytes;
        buffers_.hold(taken, count);
      }
      iterations_.set_value(t, port, taken >= 0 ? taken : buffers_.add(bytes, count, op == "StashSwapOut"));
    }
    return more;
  }

  // The input whose buffer an output is handed on in; -1: none. Orders ask for ready nodes again and again.
  int handed_on_from(int i, int port) const { return views_[at(i)][at(port)]; }

  // That input's buffer, or that of the one which the iteration begins with.
  int handed_on(task t, int from) const {
    const std::vector<source>& inputs = graph_.inputs(t.node);
    if (!is_merge(graph_.op(t.node))) return iterations_.value(t, inputs[at(from)]);
    for (const source& s : inputs)
      if (const int b = iterations_.value(t, s); b >= 0) return b;
    return buffers::none;
  }

  void end(task t) {
    const int i = t.node;
    const bool first = iterations_.is_first(t.run);
    if (const auto decoder = decodes_.find(i); first && decoder != decodes_.end())
      if (--decoding_[decoder->second] == 0) decoded_.insert(number_[decoder->second]);
    if (first && decoding_.count(i) != 0) encoder_run_[i] = t.run;
    // Results stay until the caller has them, after the end.
    if (!is_result(graph_.op(i)))
      for (const source& s : graph_.inputs(i))
        if (!iterations_.holds(s)) buffers_.release(iterations_.value(t, s));
    release(t);
    for (const int b : iterations_.left())
      buffers_.release(b);
  }

  // Encoders whose decoders have run all and whose result is there yet, so that only readers of bits are
  // left.
  std::vector<int> kept_for_bits() {
    std::vector<int> kept;
    for (auto it = decoded_.begin(); it != decoded_.end();) {
      const int encoder = encoders_[at(*it)];
      const auto run = encoder_run_.find(encoder);
      const int b = run == encoder_run_.end() ? buffers::none : iterations_.output({encoder, run->second}, 0);
      if (b < 0 || buffers_.holders(b) == 0) {
        it = decoded_.erase(it);
        continue;
      }
      kept.push_back(encoder);
      ++it;
    }
    return kept;
  }

  // Decoders of this encoder that have not run yet, through the host or not.
  void find_encoders() {
    for (int i = 0; i < graph_.size(); ++i) {
      if (graph_.op(i) != "StashDecode") continue;
      source from = graph_.inputs(i)[0];
      while (is_move(graph_.op(from.node)))
        from = graph_.inputs(from.node)[0];
      if (graph_.op(from.node) != "StashEncode") continue;  // out of a list
      if (decoding_.emplace(from.node, 0).second) {
        number_[from.node] = static_cast<int>(encoders_.size());
        encoders_.push_back(from.node);
      }
      ++decoding_[from.node];
      decodes_[i] = from.node;
    }
  }

  std::int64_t largest_input(task t) const {
    std::int64_t largest = 0;
    for (const source& s : graph_.inputs(t.node))
      largest = std::max(largest, buffers_.bytes(iterations_.value(t, s)));
    return largest;
  }

  // Whether an input has other readers.
  bool shared(int i) const {
    for (const source& s : graph_.inputs(i)) {
      if (s.is_control()) continue;
      for (const reader& r : graph_.readers(s.node))
        if (r.port == s.port && r.node != i) return true;
    }
    return false;
  }

  bool is_backward(int i) const {
    return i < original_.size() ? step_.backward[at(i)] : graph_.op(i) == "StashDecode";
  }

  // By how many bytes memory would grow, or fall, if the node ran now, and after it the one that alone reads
  // its result and has waited for that only: a gradient that is added to a sum at once costs nothing.
  std::int64_t growth(task t) const {
    std::int64_t sum = own_growth(t);
    const std::int64_t result = bytes_of({t.node, 0});
    int next = only_reader(t);
    while (next >= 0 && is_alias(graph_.op(next)))
      next = only_reader({next, t.run});
    if (next >= 0) sum += std::min<std::int64_t>(0, own_growth({next, t.run}) - result);
    return sum;
  }

  // -1: there is none, or it waits for others, too.
  int only_reader(task t) const {
    const std::vector<reader>& readers = graph_.readers(t.node);
    if (readers.size() != 1 || readers[0].port < 0) return -1;
    const int next = readers[0].node;
    return loops_.loop_of(next) == loops_.loop_of(t.node) && iterations_.waits_for_one({next, t.run}) ? next
                                                                                                      : -1;
  }

  std::int64_t own_growth(task t) const {
    if (is_control_flow(graph_.op(t.node))) return 0;
    std::int64_t sum = 0;
    for (const int port : graph_.ports_read(t.node)) {
      if (handed_on_from(t.node, port) >= 0) return 0;
      sum += bytes_of({t.node, port});
    }
    std::map<int, int> held;  // how often, by buffer
    for (const source& s : graph_.inputs(t.node))
      if (const int b = iterations_.value(t, s); b >= 0) ++held[b];
    for (const auto& [number, times] : held)
      if (buffers_.holders(number) == times) sum -= buffers_.bytes(number);
    return sum;
  }

  // What there is while the node runs, in all.
  std::int64_t needed(task t) const {
    std::int64_t sum = buffers_.live_bytes() + workspace_of(t.node);
    if (is_control_flow(graph_.op(t.node))) return sum;
    for (const int port : graph_.ports_read(t.node)) {
      if (handed_on_from(t.node, port) >= 0) continue;
      const std::int64_t bytes = bytes_of({t.node, port});
      const bool in_place = port == 0 && may_take_input(graph_.op(t.node)) && dying_input(t, bytes) >= 0;
      if (!in_place) sum += bytes;
    }
    return sum;
  }

  bool chooses() const {
    return order_.backward != backward_order::as_executor || order_.forward != forward_order::as_executor;
  }

  // The forward pass stays before the backward pass, and loops run as TensorFlow runs them.
  std::int64_t rank(task t) const {
    constexpr std::int64_t few = 8;
    if (iterations_.trips(t.run) > few) return lowest;
    if (!is_backward(t.node)) return rank_in_forward_pass(t);
    if (order_.backward == backward_order::as_executor) return 0;
    if (order_.backward != backward_order::below_bound) return growth(t);
    const std::int64_t sum = needed(t);
    return sum <= order_.bound ? lowest : sum;
  }

  std::int64_t rank_in_forward_pass(task t) const {
    switch (order_.forward) {
      case forward_order::as_executor:
        return lowest;
      case forward_order::least_growth:
        return lowest / 2 + growth(t);
      case forward_order::least_growth_with_backward:
        return growth(t);
      case forward_order::least_growth_kept_last:
        return (is_kept(t.node) ? lowest / 4 : lowest / 2) + growth(t);
      case forward_order::most_growth:
        return lowest / 2 - growth(t);
    }
    return lowest;
  }

  // Whether the backward pass reads what a node makes, in any form.
  bool is_kept(int i) const {
    const std::vector<reader>& readers = graph_.readers(i);
    return std::any_of(readers.begin(), readers.end(), [&](const reader& r) {
      return r.port >= 0 && (is_backward(r.node) || graph_.op(r.node) == "StashEncode");
    });
  }

  // Among ready nodes of equal rank the smallest one goes first.
  int rank_by_reader(int i) const {
    const bool read_first = order_.backward == backward_order::least_growth;
    if (!is_backward(i) || !(read_first || order_.backward == backward_order::least_growth_read_last))
      return 0;
    int first = graph_.size();
    for (const reader& r : graph_.readers(i))
      if (r.port >= 0) first = std::min(first, position_[at(r.node)]);
    return read_first ? first : -first;
  }

  // Thousands may be ready in an unrolled loop.
  void bring_best_to_front() {
    constexpr std::size_t most = 64;
    std::size_t best = 0;
    std::int64_t least = rank(queue_.front());
    int least_of_reader = rank_by_reader(queue_.front().node);
    for (std::size_t k = 1; k < std::min(queue_.size(), most) && least > lowest; ++k) {
      const std::int64_t now = rank(queue_[k]);
      if (now > least || (now > 0 && order_.backward == backward_order::frees_first)) continue;
      const int of_reader = rank_by_reader(queue_[k].node);
      if (now == least && of_reader >= least_of_reader) continue;
      best = k;
      least = now;
      least_of_reader = of_reader;
    }
    const task t = queue_[best];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(best));
    queue_.push_front(t);
  }

  int dying_input(task t, std::int64_t bytes) const {
    for (const source& s : graph_.inputs(t.node)) {
      if (s.is_control()) continue;
      const int b = iterations_.value(t, s);
      if (b >= 0 && buffers_.holders(b) == 1 && buffers_.bytes(b) == bytes) return b;
    }
    return buffers::none;
  }

  // As the executor: cheap nodes follow at once; of the others all but the last go to the front of the queue,
  // and so does that one if a cheap node goes before.
  void release(task t) {
    std::optional<task> last;
    for (const task& next : iterations_.end(t)) {
      if (cheap_[at(next.node)]) {
        at_once_.push_back(next);
      } else {
        if (last) queue_.push_front(*last);
        last = next;
      }
    }
    if (!last) return;
    if (at_once_.empty() && !chooses()) {
      at_once_.push_back(*last);
    } else {
      queue_.push_front(*last);
    }
  }

  const graph_view& graph_;
  const graph_view& original_;
  const tensor_sizes& sizes_;
  const step& step_;
  const output_sizes outputs_;
  run_order order_;
  std::vector<simulated_op>* ran_;
  const std::vector<std::vector<int>> views_;  // by node and port: handed_on_from()
  std::vector<int> encoders_;                  // with decoders
  std::map<int, int> number_;                  // of an encoder among these
  std::set<int> decoded_;                      // numbers of those whose decoders have run all
  std::vector<int> kept_for_bits_;
  std::map<int, int> decoding_;  // decoders that have not run, by encoder
  std::map<int, int> decodes_;   // encoder, by decoder
  std::map<int, int> encoder_run_;
  std::vector<bool> cheap_;
  std::deque<task> at_once_, queue_, copies_;
  const std::vector<int> sorted_;    // topologically
  const std::vector<int> position_;  // among these, by node
  const std::vector<bool> folded_;
  const loops loops_;
  const loop_plan plan_;
  executor_iterations iterations_;
  buffers buffers_;
  variable_reads variables_;
  list_ops lists_;
  footprint peak_;
};

}  // namespace

footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& analysis, const choices& chosen, run_order order,
                              std::vector<simulated_op>* ran) {
  return simulation(graph, original, sizes, analysis, chosen, order, ran).run();
}

}  // namespace stash_tf
