#include "optimizer/footprint.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "optimizer/needs.hpp"
#include "optimizer/rewrite.hpp"
#include "optimizer/scratch.hpp"

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

// Encoders on CPUs guess how much room a sparse form takes, and a little more.
std::int64_t guessed_in_vain(const block_choice& c) {
  const bool sparse = absl::StartsWith(c.encoding, "bitmap") || absl::StartsWith(c.encoding, "csr");
  return sparse ? c.stored_bytes / 32 : 0;
}

bool may_take_input(const std::string& op) {
  return may_write_in_place(op) || op == "StashReluGrad" || op == "StashRelu6Grad" ||
         op == "StashLeakyReluGrad";
}

class simulation {
 public:
  simulation(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes, const step& of,
             const choices& chosen, run_order order, std::vector<simulated_op>* ran)
      : graph_(graph), original_(original), sizes_(sizes), step_(of), order_(order), ran_(ran) {
    for (std::size_t k = 0; k < of.blocks.size() && k < chosen.blocks.size(); ++k) {
      const std::string name = original.tensor_name(of.blocks[k].tensor);
      dense_[name] = of.blocks[k].size.bytes();
      stored_[name] = chosen.blocks[k].stored_bytes;
      if (!of.on_device) stored_[name] += guessed_in_vain(chosen.blocks[k]);
      stored_[name + bits_suffix] = chosen.blocks[k].bits_bytes;
    }
    for (std::size_t k = 0; k < of.poolings.size() && k < chosen.pooling_bytes.size(); ++k)
      stored_[original.name(of.poolings[k].forward) + ":cells"] = chosen.pooling_bytes[k];
  }

  footprint run() {
    find_encoders();
    waiting_.assign(at(graph_.size()), 0);
    for (int i = 0; i < graph_.size(); ++i) {
      for (const source& s : graph_.inputs(i))
        if (!is_next_iteration(graph_.op(s.node))) ++waiting_[at(i)];
      if (waiting_[at(i)] == 0) queue_.push_back(i);
    }
    while (!at_once_.empty() || !queue_.empty() || !copies_.empty()) {
      std::deque<int>& from = !at_once_.empty() ? at_once_ : !queue_.empty() ? queue_ : copies_;
      if (&from == &queue_ && order_ != run_order::as_executor) bring_best_to_front();
      const int i = from.front();
      from.pop_front();
      const bool ends = &from == &copies_;
      if (!ends) begin(i);
      if (!ends && is_move(graph_.op(i))) {
        copies_.push_back(i);
      } else {
        end(i);
      }
    }
    return peak_;
  }

 private:
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();

  struct buffer {
    std::int64_t bytes = 0;
    int holders = 0;
    bool on_host = false;
  };

  static bool is_move(const std::string& op) { return op == "StashSwapOut" || op == "StashSwapIn"; }

  std::int64_t& live_in(const buffer& b) { return b.on_host ? live_.host_bytes : live_.peak_bytes; }

  std::int64_t bytes_of(const source& tensor) const {
    const tensorflow::NodeDef& n = graph_.node(tensor.node);
    if (is_move(n.op())) return bytes_of(graph_.inputs(tensor.node)[0]);
    const auto named = n.attr().find("tensor");
    if (named != n.attr().end()) {
      const std::string& name = named->second.s();
      const bool stored =
          (n.op() == "StashEncode" && tensor.port == 0) || (n.op() == "StashMaxPool" && tensor.port == 1);
      const auto& table = n.op() == "StashDecode" ? dense_ : stored_;
      if (stored || n.op() == "StashDecode") {
        const auto it = table.find(name);
        return it == table.end() ? 0 : it->second;
      }
    }
    if (tensor.node >= original_.size()) return 0;
    const tensor_size* size = sizes_.find(tensor);
    return size == nullptr ? 0 : size->bytes();
  }

  void begin(int i) {
    const std::string& op = graph_.op(i);
    const bool has_scratch = !step_.on_device && i < original_.size() && op == original_.op(i);
    const std::int64_t scratch = has_scratch ? scratch_bytes(original_, i, sizes_, step_.threads) : 0;
    simulated_op now{i, scratch, largest_input(i)};
    std::map<int, int> readers;  // by port
    for (const reader& r : graph_.readers(i))
      if (r.port >= 0) ++readers[r.port];
    for (const auto& [port, count] : readers) {
      const source tensor{i, port};
      if (is_given(op)) continue;
      if ((is_alias(op) || is_control_flow(op)) && !graph_.inputs(i).empty()) {
        const auto it = buffer_of_.find(graph_.inputs(i)[0]);
        if (it == buffer_of_.end()) continue;
        buffer_of_[tensor] = it->second;
        buffers_[at(it->second)].holders += count;
        continue;
      }
      const std::int64_t bytes = bytes_of(tensor);
      if (bytes == 0) continue;
      const int taken = port == 0 && may_take_input(op) ? dying_input(i, bytes) : -1;
      if (taken >= 0) {
        // Earlier, while others still read that buffer, it would have taken one of its own.
        if (shared(i)) now.takes += bytes;
        buffer_of_[tensor] = taken;
        buffers_[at(taken)].holders += count;
        continue;
      }
      buffer_of_[tensor] = static_cast<int>(buffers_.size());
      buffers_.push_back({bytes, count, op == "StashSwapOut"});
      live_in(buffers_.back()) += bytes;
      if (!buffers_.back().on_host) now.takes += bytes;
    }
    now.holds = std::max(now.holds, now.takes);
    if (ran_ != nullptr) ran_->push_back(now);
    if (live_.peak_bytes + scratch > peak_.peak_bytes) {
      peak_.peak_bytes = live_.peak_bytes + scratch;
      peak_.kept_for_bits = kept_for_bits();
    }
    peak_.host_bytes = std::max(peak_.host_bytes, live_.host_bytes);
  }

  void end(int i) {
    if (const auto decoder = decodes_.find(i); decoder != decodes_.end()) --decoding_[decoder->second];
    for (const source& s : graph_.inputs(i)) {
      // Results stay until the caller has them, behind the end.
      if (s.is_control() || is_result(graph_.op(i))) continue;
      const auto it = buffer_of_.find(s);
      if (it == buffer_of_.end()) continue;
      buffer& b = buffers_[at(it->second)];
      if (--b.holders == 0) live_in(b) -= b.bytes;
    }
    release(i);
  }

  // Encoded tensors whose decoders have run all, so that only readers of bits are left.
  std::vector<std::string> kept_for_bits() const {
    std::vector<std::string> names;
    for (const int encoder : encoders_) {
      const auto it = buffer_of_.find({encoder, 0});
      if (it == buffer_of_.end() || buffers_[at(it->second)].holders == 0) continue;
      const auto decoding = decoding_.find(encoder);
      if (decoding != decoding_.end() && decoding->second == 0)
        names.push_back(graph_.node(encoder).attr().at("tensor").s());
    }
    return names;
  }

  // Decoders of this encoder that have not run yet, through the host or not.
  void find_encoders() {
    for (int i = 0; i < graph_.size(); ++i) {
      if (graph_.op(i) != "StashDecode") continue;
      source from = graph_.inputs(i)[0];
      while (is_move(graph_.op(from.node)))
        from = graph_.inputs(from.node)[0];
      if (decoding_.emplace(from.node, 0).second) encoders_.push_back(from.node);
      ++decoding_[from.node];
      decodes_[i] = from.node;
    }
  }

  std::int64_t largest_input(int i) const {
    std::int64_t largest = 0;
    for (const source& s : graph_.inputs(i)) {
      const auto it = buffer_of_.find(s);
      if (it != buffer_of_.end()) largest = std::max(largest, buffers_[at(it->second)].bytes);
    }
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

  // By how many bytes memory would grow, or fall, if the node ran now, and behind it the one that alone reads
  // its result and has waited for that only: a gradient that is added to a sum at once costs nothing.
  std::int64_t growth(int i) const {
    std::int64_t sum = own_growth(i);
    const std::int64_t result = bytes_of({i, 0});
    int next = only_reader(i);
    while (next >= 0 && is_alias(graph_.op(next)))
      next = only_reader(next);
    if (next >= 0) sum += std::min<std::int64_t>(0, own_growth(next) - result);
    return sum;
  }

  // -1: there is none, or it waits for others, too.
  int only_reader(int i) const {
    const std::vector<reader>& readers = graph_.readers(i);
    if (readers.size() != 1 || readers[0].port < 0) return -1;
    return waiting_[at(readers[0].node)] == 1 ? readers[0].node : -1;
  }

  std::int64_t own_growth(int i) const {
    if (is_alias(graph_.op(i)) || is_control_flow(graph_.op(i))) return 0;
    std::set<int> ports;
    for (const reader& r : graph_.readers(i))
      if (r.port >= 0) ports.insert(r.port);
    std::int64_t sum = 0;
    for (const int port : ports)
      sum += bytes_of({i, port});
    std::map<int, int> held;  // how often, by buffer
    for (const source& s : graph_.inputs(i)) {
      const auto it = s.is_control() ? buffer_of_.end() : buffer_of_.find(s);
      if (it != buffer_of_.end()) ++held[it->second];
    }
    for (const auto& [number, times] : held)
      if (buffers_[at(number)].holders == times) sum -= buffers_[at(number)].bytes;
    return sum;
  }

  // The forward pass stays before the backward pass. Thousands may be ready in an unrolled loop.
  void bring_best_to_front() {
    constexpr std::size_t most = 64;
    std::size_t best = 0;
    std::int64_t least = is_backward(queue_.front()) ? growth(queue_.front()) : lowest;
    for (std::size_t k = 1; k < std::min(queue_.size(), most) && least > lowest; ++k) {
      const std::int64_t now = is_backward(queue_[k]) ? growth(queue_[k]) : lowest;
      if (now >= least || (now > 0 && order_ == run_order::frees_first)) continue;
      best = k;
      least = now;
    }
    const int i = queue_[best];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(best));
    queue_.push_front(i);
  }

  int dying_input(int i, std::int64_t bytes) const {
    for (const source& s : graph_.inputs(i)) {
      if (s.is_control()) continue;
      const auto it = buffer_of_.find(s);
      if (it == buffer_of_.end()) continue;
      const buffer& b = buffers_[at(it->second)];
      if (b.holders == 1 && b.bytes == bytes) return it->second;
    }
    return -1;
  }

  // As the executor: cheap nodes follow at once; of the others all but the last go to the front of the queue,
  // and so does that one if a cheap node goes before.
  void release(int i) {
    if (is_next_iteration(graph_.op(i))) return;
    int last = -1;
    for (const reader& r : graph_.readers(i)) {
      if (--waiting_[at(r.node)] != 0) continue;
      if (is_cheap(graph_.op(r.node))) {
        at_once_.push_back(r.node);
      } else {
        if (last >= 0) queue_.push_front(last);
        last = r.node;
      }
    }
    if (last < 0) return;
    if (at_once_.empty() && order_ == run_order::as_executor) {
      at_once_.push_back(last);
    } else {
      queue_.push_front(last);
    }
  }

  const graph_view& graph_;
  const graph_view& original_;
  const tensor_sizes& sizes_;
  const step& step_;
  run_order order_;
  std::vector<simulated_op>* ran_;
  std::map<std::string, std::int64_t> dense_, stored_;
  std::vector<int> encoders_;    // with decoders
  std::map<int, int> decoding_;  // decoders that have not run, by encoder
  std::map<int, int> decodes_;   // encoder, by decoder
  std::vector<int> waiting_;
  std::deque<int> at_once_, queue_, copies_;
  std::map<source, int> buffer_of_;
  std::vector<buffer> buffers_;
  footprint live_, peak_;
};

}  // namespace

footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& of, const choices& chosen, run_order order,
                              std::vector<simulated_op>* ran) {
  return simulation(graph, original, sizes, of, chosen, order, ran).run();
}

}  // namespace stash_tf
