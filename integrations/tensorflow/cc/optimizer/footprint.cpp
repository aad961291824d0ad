#include "optimizer/footprint.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "optimizer/needs.hpp"
#include "optimizer/rewrite.hpp"
#include "tensorflow/core/util/util.h"

namespace stash_tf {

namespace {

// Kernels that the executor runs at once where they become ready; the others go through the thread's queue.
bool is_cheap(const std::string& op) {
  static const std::set<std::string> ops = {"Const",        "NoOp",  "ReadVariableOp", "VarHandleOp", "_Arg",
                                            "_Retval",      "Shape", "ShapeN",         "Size",        "Rank",
                                            "StridedSlice", "Pack",  "IteratorGetNext"};
  return ops.count(op) != 0 || is_alias(op) || is_control_flow(op);
}

bool may_take_input(const std::string& op) {
  return may_write_in_place(op) || op == "StashReluGrad" || op == "StashRelu6Grad" ||
         op == "StashLeakyReluGrad";
}

class simulation {
 public:
  simulation(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes, const step& of,
             const choices& chosen)
      : graph_(graph), original_(original), sizes_(sizes), on_device_(of.on_device) {
    for (std::size_t k = 0; k < of.blocks.size() && k < chosen.blocks.size(); ++k) {
      const std::string name = original.tensor_name(of.blocks[k].tensor);
      dense_[name] = of.blocks[k].size.bytes();
      stored_[name] = chosen.blocks[k].stored_bytes;
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
    const bool has_scratch = i < original_.size() && !on_device_;
    const std::int64_t scratch = has_scratch ? scratch_bytes(original_, i, sizes_) : 0;
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
        buffer_of_[tensor] = taken;
        buffers_[at(taken)].holders += count;
        continue;
      }
      buffer_of_[tensor] = static_cast<int>(buffers_.size());
      buffers_.push_back({bytes, count, op == "StashSwapOut"});
      live_in(buffers_.back()) += bytes;
    }
    if (live_.peak_bytes + scratch > peak_.peak_bytes) {
      peak_.peak_bytes = live_.peak_bytes + scratch;
      peak_.kept_for_bits = kept_for_bits();
    }
    peak_.host_bytes = std::max(peak_.host_bytes, live_.host_bytes);
  }

  void end(int i) {
    if (const auto decoder = decodes_.find(i); decoder != decodes_.end()) --decoding_[decoder->second];
    for (const source& s : graph_.inputs(i)) {
      if (s.is_control()) continue;
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
    if (at_once_.empty()) {
      at_once_.push_back(last);
    } else {
      queue_.push_front(last);
    }
  }

  const graph_view& graph_;
  const graph_view& original_;
  const tensor_sizes& sizes_;
  bool on_device_;
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

std::int64_t scratch_bytes(const graph_view& graph, int node, const tensor_sizes& sizes) {
  const std::string& op = graph.op(node);
  const bool filter = op == "Conv2DBackpropFilter";
  if (!filter && op != "Conv2DBackpropInput") return 0;
  if (tensorflow::IsMKLEnabled()) return 0;
  const auto& inputs = graph.inputs(node);
  const tensor_size* dy = sizes.find(inputs[2]);
  const tensor_size* w = filter ? sizes.find({node, 0}) : sizes.find(inputs[1]);
  if (dy == nullptr || w == nullptr || dy->dims.size() != 4 || w->dims.size() != 4) return 0;
  // The kernels unfold as many images at once as fit 30 MiB together with what they are multiplied with.
  constexpr std::int64_t working_bytes = std::int64_t{30} << 20;
  const std::int64_t pixels = dy->dims[1] * dy->dims[2];
  const std::int64_t patch = w->dims[0] * w->dims[1] * w->dims[2];
  const std::int64_t channels = w->dims[3];
  const std::int64_t unit = pixels * patch + pixels * channels + patch * channels;
  if (unit <= 0) return 0;
  const std::int64_t element = element_bytes(dy->type);
  const std::int64_t images = (working_bytes / std::max<std::int64_t>(element, 1) + unit - 1) / unit;
  return images * pixels * patch * element;
}

footprint simulated_footprint(const graph_view& graph, const graph_view& original, const tensor_sizes& sizes,
                              const step& of, const choices& chosen) {
  return simulation(graph, original, sizes, of, chosen).run();
}

}  // namespace stash_tf
