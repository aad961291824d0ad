// SPDX-License-Identifier: Apache-2.0
#include "optimizer/lists/list_rewriter.hpp"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "optimizer/rewrite/node_edits.hpp"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace stash_tf {

using tensorflow::GraphDef;
using tensorflow::NodeDef;

namespace {

tensor_size sized(tensorflow::DataType type, std::int64_t elements, const tensor_size& like) {
  tensor_size s;
  s.type = type;
  s.elements = elements;
  s.dims = {elements};
  s.per_sample = like.per_sample;
  s.batch_dims = like.batch_dims;
  return s;
}

void set_value(const tensorflow::Tensor& value, NodeDef* constant) {
  (*constant->mutable_attr())["dtype"].set_type(value.dtype());
  value.AsProtoTensorContent((*constant->mutable_attr())["value"].mutable_tensor());
}

std::string output_name(const std::string& node, int port) {
  return port == 0 ? node : absl::StrCat(node, ":", port);
}

}  // namespace

bool is_mask(const std::string& encoding) {
  return absl::EndsWith(encoding, "_mask");
}

list_rewriter::list_rewriter(const graph_view& graph, const step& analysis, const control_flow& flow,
                             const loops& all, const std::vector<list_recipe>& again,
                             const std::vector<block_choice>& chosen, tensor_sizes* sizes, GraphDef* result)
    : graph_(graph),
      step_(analysis),
      flow_(flow),
      loops_(all),
      again_(again),
      chosen_(chosen),
      sizes_(sizes),
      result_(result),
      names_(*result),
      rank_(graph.positions(analysis.order)) {
  for (int i = 0; i < graph.size(); ++i)
    if (graph.op(i) == "LoopCond") deciding_[flow.frame(i)] = flow.deciding_variable(i);
  for (const list_recipe& r : again_) {
    if (r.like >= 0) like_[r.list] = r.like;
    for (const int from : r.from)
      copied_from_[from].push_back(r.list);
  }
}

void list_rewriter::encode(int k) {
  const listed_block& b = step_.lists[at(k)];
  const std::string& form = chosen_[at(k)].encoding;
  const std::string stored = encoded(b, chosen_[at(k)]);
  node(b.list.first.node)->set_input(b.list.first.input, list_of_bytes(b.list.begin));
  take_bytes(b.list.pop);
  NodeDef* push = node(b.list.push);
  push->set_input(1, stored);
  (*push->mutable_attr())["element_dtype"].set_type(tensorflow::DT_UINT8);
  changed(push);
  sizes_->set({b.list.pop, 1}, sized(tensorflow::DT_UINT8, chosen_[at(k)].stored_bytes, b.element.size));
  if (is_mask(form) && b.element.size.type != tensorflow::DT_BOOL) {
    for (const stash_reader& r : b.element.readers)
      if (!reads_shape(graph_, r.node))
        take_bits(graph_.op(r.node), form, popped(b), graph_.tensor_name(b.list.element), node(r.node));
    serve_shapes(k);
  } else {
    serve(k, value_of(k));
  }
  hold_back(b.list.push);
}

void list_rewriter::compute_again(const list_recipe& r) {
  const listed_block& b = step_.lists[at(r.list)];
  std::map<int, std::string> made;
  for (const int constant : r.constants)
    made[constant] = copy_of_constant(constant, b.list.pop);
  const int gate = gate_of(b);
  for (const int i : r.again) {
    NodeDef copy = copied_node(graph_.node(i), names_.take(graph_.name(i) + "/stash_again"));
    for (const source& s : graph_.inputs(i))
      if (!s.is_control()) copy.add_input(input_of_copy(s, r, made));
    if (gate >= 0) add_control_edge(&copy, graph_.name(gate));
    made[i] = copy.name();
    add(std::move(copy), *sizes_->find({i, 0}));
  }
  serve(r.list, input_of_copy(b.list.element, r, made));
  empty(b);
}

void list_rewriter::keep_once(const loop_invariant& v) {
  const listed_block& b = step_.lists[at(v.list)];
  for (const int i : v.nodes)
    copy_before_loop(i, loops_[v.forward]);
  const source& element = b.list.element;
  NodeDef enter = made(graph_.name(b.list.pop) + "/stash_once", "Enter", b.list.pop);
  enter.add_input(output_name(once_.at(element.node), element.port));
  describe_enter(loops_.loop_of(b.list.pop), b.element.size.type, &enter);
  serve(v.list, add(std::move(enter), b.element.size));
  empty(b);
}

void list_rewriter::drop(int k) {
  serve_shapes(k);
  empty(step_.lists[at(k)]);
}

void list_rewriter::copy_before_loop(int i, const loop& body) {
  if (once_.count(i) != 0) return;
  NodeDef copy = copied_node(graph_.node(i), names_.take(graph_.name(i) + "/stash_once"));
  for (const source& s : graph_.inputs(i)) {
    if (s.is_control()) continue;
    if (const auto before = once_.find(s.node); before != once_.end()) {
      copy.add_input(output_name(before->second, s.port));
    } else {  // an Enter of the loop
      copy.add_input(graph_.tensor_name(graph_.inputs(s.node)[0]));
    }
  }
  const bool reads = copy.op() == "ReadVariableOp";
  if (reads)
    for (const int enter : body.enters)
      for (const source& s : graph_.inputs(enter))
        if (s.is_control()) add_control_edge(&copy, graph_.name(s.node));
  once_[i] = copy.name();
  if (reads)
    for (const int enter : body.enters)
      add_control_edge(node(enter), copy.name());
  sizes_->add_like(i);
  *result_->add_node() = std::move(copy);
}

void list_rewriter::empty(const listed_block& b) {
  for (const int list_op : {b.list.push, b.list.pop}) {
    NodeDef* n = node(list_op);
    change_op(n, "Identity", {n->input(0)}, {});
    (*n->mutable_attr())["T"].set_type(tensorflow::DT_VARIANT);
  }
}

NodeDef* list_rewriter::node(int i) {
  return result_->mutable_node(i);
}

void list_rewriter::changed(NodeDef* n) {
  n->mutable_attr()->erase("_output_shapes");
  (*n->mutable_attr())[mark].set_b(true);
}

NodeDef list_rewriter::made(const std::string& base_name, const char* op, int like) {
  NodeDef n;
  n.set_name(names_.take(base_name));
  n.set_op(op);
  n.set_device(graph_.node(like).device());
  (*n.mutable_attr())[mark].set_b(true);
  return n;
}

std::string list_rewriter::add(NodeDef n, tensor_size size) {
  sizes_->add(std::move(size));
  *result_->add_node() = std::move(n);
  return result_->node(result_->node_size() - 1).name();
}

std::string list_rewriter::popped(const listed_block& b) const {
  return graph_.name(b.list.pop) + ":1";
}

std::string list_rewriter::encoded(const listed_block& b, const block_choice& choice) {
  std::string& name = encoders_[{b.list.element, choice.encoding}];
  if (!name.empty()) return name;
  const std::string tensor = graph_.tensor_name(b.list.element);
  NodeDef n = made(graph_.name(b.list.element.node) + "/stash_encode", "StashEncode", b.list.push);
  n.add_input(tensor);
  describe_encoding(b.element.size.type, choice, tensor, &n);
  return name = add(std::move(n), sized(tensorflow::DT_UINT8, choice.stored_bytes, b.element.size));
}

const std::string& list_rewriter::list_of_bytes(int begin) {
  std::string& name = empty_[begin];
  if (!name.empty()) return name;
  NodeDef n = graph_.node(begin);
  n.set_name(names_.take(graph_.name(begin) + "/stash_bytes"));
  n.mutable_attr()->erase("_class");
  n.set_input(0, any_shape(graph_.inputs(begin)[0], n, begin));
  (*n.mutable_attr())["element_dtype"].set_type(tensorflow::DT_UINT8);
  changed(&n);
  return name = add(std::move(n), sized(tensorflow::DT_VARIANT, 0, {}));
}

void list_rewriter::take_bytes(int pop) {
  const std::string any = any_shape(graph_.inputs(pop)[1], graph_.node(pop), pop);
  NodeDef* n = node(pop);
  n->set_input(1, any);
  (*n->mutable_attr())["element_dtype"].set_type(tensorflow::DT_UINT8);
  changed(n);
}

std::string list_rewriter::any_shape(const source& shape, const NodeDef& list_op, int like) {
  const auto& attrs = list_op.attr();
  const auto given = attrs.find("shape_type");
  const bool wide = given != attrs.end() && given->second.type() == tensorflow::DT_INT64;
  std::string& name = any_shapes_[{shape.node, wide}];
  if (!name.empty()) return name;
  const tensorflow::DataType type = wide ? tensorflow::DT_INT64 : tensorflow::DT_INT32;
  NodeDef n = made(graph_.name(like) + "/stash_any_shape", "Const", like);
  tensorflow::Tensor minus_one(type, tensorflow::TensorShape({}));
  if (wide) {
    minus_one.scalar<std::int64_t>()() = -1;
  } else {
    minus_one.scalar<std::int32_t>()() = -1;
  }
  set_value(minus_one, &n);
  if (flow_.frame(like) == 0) return name = add(std::move(n), sized(type, 1, {}));
  return name = constant_of_loop(std::move(n), sized(type, 1, {}), like, shape.node);
}

std::string list_rewriter::constant_of_loop(NodeDef constant, tensor_size size, int like, int before) {
  const int loop = flow_.frame(like);
  const bool on_host = !absl::StrContains(constant.device(), "GPU");
  if (loops_[loop].parent != 0 || loops_[loop].enters.empty() || !on_host) {
    add_control_edge(&constant, graph_.name(before));
    return add(std::move(constant), std::move(size));
  }
  NodeDef enter = made(constant.name() + "/stash_enter", "Enter", like);
  enter.add_input(constant.name());
  describe_enter(loop, constant.attr().at("dtype").type(), &enter);
  add(std::move(constant), size);
  return add(std::move(enter), std::move(size));
}

void list_rewriter::describe_enter(int loop, tensorflow::DataType type, NodeDef* enter) const {
  auto& attrs = *enter->mutable_attr();
  attrs["T"].set_type(type);
  attrs["frame_name"] = graph_.node(loops_[loop].enters.front()).attr().at("frame_name");
  attrs["parallel_iterations"].set_i(loops_[loop].parallel_iterations);
  attrs["is_constant"].set_b(true);
}

int list_rewriter::gate_of(const listed_block& b) const {
  const stash_reader* first = nullptr;
  const auto consider = [&](const listed_block& other) {
    for (const stash_reader& r : other.element.readers)
      if (!reads_shape(graph_, r.node) && (first == nullptr || rank_[at(r.node)] < rank_[at(first->node)]))
        first = &r;
  };
  consider(b);
  const auto k = static_cast<int>(&b - step_.lists.data());
  if (const auto copied = copied_from_.find(k); copied != copied_from_.end())
    for (const int list : copied->second)
      consider(step_.lists[at(list)]);
  // A derivative's gate may come after others that read the same element.
  const bool tells = first != nullptr && first->gate >= 0 && !step_.folded[at(first->gate)] &&
                     rank_[at(first->gate)] < rank_[at(first->node)] &&
                     flow_.may_wait(b.list.pop, first->gate);
  return tells ? first->gate : -1;
}

std::string list_rewriter::value_of(int k) {
  const listed_block& b = step_.lists[at(k)];
  const block_choice& choice = chosen_[at(k)];
  if (choice.encoding.empty()) return popped(b);
  std::string& name = decoders_[k];
  if (!name.empty()) return name;
  const std::string tensor = graph_.tensor_name(b.list.element);
  NodeDef n = made(graph_.name(b.list.pop) + "/stash_decode", "StashDecode", b.list.pop);
  n.add_input(popped(b));
  n.add_input(dims_of(k));
  if (const int gate = gate_of(b); gate >= 0) add_control_edge(&n, graph_.name(gate));
  describe_encoding(b.element.size.type, choice, tensor, &n);
  return name = add(std::move(n), b.element.size);
}

const std::string& list_rewriter::dims_of(int k) {
  std::string& name = dims_[k];
  if (!name.empty()) return name;
  const listed_block& b = step_.lists[at(k)];
  const tensor_size& size = b.element.size;
  const auto rank = static_cast<std::int64_t>(size.dims.size());
  const bool is_raw = chosen_[at(k)].encoding.empty();
  if (const auto like = like_.find(k); size.batch_dims != 0 && like != like_.end())
    return name = dims_of(like->second);
  const bool is_known = size.batch_dims == 0;
  NodeDef n = made(graph_.name(b.list.pop) + "/stash_dims",
                   is_known ? "Const"
                   : is_raw ? "Shape"
                            : "StashDims",
                   b.list.pop);
  auto& attrs = *n.mutable_attr();
  if (is_known) {
    tensorflow::Tensor dims(tensorflow::DT_INT64, tensorflow::TensorShape({rank}));
    std::copy(size.dims.begin(), size.dims.end(), dims.vec<std::int64_t>().data());
    set_value(dims, &n);
    std::string& known = known_dims_[{flow_.frame(b.list.pop), n.device(), size.dims}];
    if (known.empty())
      known = constant_of_loop(std::move(n), sized(tensorflow::DT_INT64, rank, {}), b.list.pop, b.list.pop);
    return name = known;
  }
  if (is_raw) {
    n.add_input(popped(b));
    attrs["T"].set_type(size.type);
    attrs["out_type"].set_type(tensorflow::DT_INT64);
  } else {
    n.add_input(popped(b));
    attrs["T"].set_type(size.type);
    attrs["encoding"].set_s(chosen_[at(k)].encoding);
    attrs["tensor"].set_s(graph_.tensor_name(b.list.element));
    for (std::size_t axis = 0; axis < size.dims.size(); ++axis)
      attrs["known"].mutable_list()->add_i(static_cast<int>(axis) == size.batch_dim ? -1 : size.dims[axis]);
  }
  return name = add(std::move(n), sized(tensorflow::DT_INT64, rank, {}));
}

void list_rewriter::serve(int k, const std::string& value) {
  for (const stash_reader& r : step_.lists[at(k)].element.readers) {
    if (reads_shape(graph_, r.node)) continue;
    node(r.node)->set_input(r.input, value);
    node(r.node)->mutable_attr()->erase("_output_shapes");
  }
  serve_shapes(k);
}

void list_rewriter::serve_shapes(int k) {
  const listed_block& b = step_.lists[at(k)];
  for (const stash_reader& r : b.element.readers) {
    if (!reads_shape(graph_, r.node)) continue;
    const auto given = graph_.node(r.node).attr().find("out_type");
    const bool wide =
        given != graph_.node(r.node).attr().end() && given->second.type() == tensorflow::DT_INT64;
    const std::string shape = wide ? dims_of(k) : narrow_dims_of(k);
    for (const reader& asking : graph_.readers(r.node)) {
      if (asking.port != r.input) continue;
      node(asking.node)->set_input(asking.input, shape);
      node(asking.node)->mutable_attr()->erase("_output_shapes");
    }
    node(r.node)->set_input(r.input, nothing(b));
    node(r.node)->mutable_attr()->erase("_output_shapes");
  }
}

const std::string& list_rewriter::narrow_dims_of(int k) {
  std::string& name = narrow_dims_[k];
  if (!name.empty()) return name;
  const int pop = step_.lists[at(k)].list.pop;
  const std::string& dims = dims_of(k);
  NodeDef n = made(graph_.name(pop) + "/stash_shape", "Cast", pop);
  n.add_input(dims);
  (*n.mutable_attr())["SrcT"].set_type(tensorflow::DT_INT64);
  (*n.mutable_attr())["DstT"].set_type(tensorflow::DT_INT32);
  return name = add(std::move(n), sized(tensorflow::DT_INT32, 0, {}));
}

std::string list_rewriter::nothing(const listed_block& b) {
  NodeDef n = made(graph_.name(b.list.pop) + "/stash_nothing", "Const", b.list.pop);
  const tensorflow::Tensor empty(b.element.size.type, tensorflow::TensorShape({0}));
  (*n.mutable_attr())["dtype"].set_type(b.element.size.type);
  empty.AsProtoTensorContent((*n.mutable_attr())["value"].mutable_tensor());
  add_control_edge(&n, graph_.name(b.list.pop));
  return add(std::move(n), sized(b.element.size.type, 0, {}));
}

std::string list_rewriter::input_of_copy(const source& s, const list_recipe& r,
                                         const std::map<int, std::string>& made) {
  if (const auto copy = made.find(s.node); copy != made.end()) return copy->second;
  for (const int k : r.from)
    if (step_.lists[at(k)].list.element == s) return value_of(k);
  return graph_.tensor_name(s);
}

std::string list_rewriter::copy_of_constant(int constant, int pop) {
  NodeDef copy = copied_node(graph_.node(constant), names_.take(graph_.name(constant) + "/stash_again"));
  const tensor_size* size = sizes_->find({constant, 0});
  return constant_of_loop(std::move(copy), size == nullptr ? sized(tensorflow::DT_INT32, 0, {}) : *size, pop,
                          pop);
}

void list_rewriter::hold_back(int push) {
  const auto deciding = deciding_.find(flow_.frame(push));
  if (deciding != deciding_.end() && deciding->second >= 0 && flow_.may_hold_back(deciding->second, push))
    add_control_edge(node(deciding->second), graph_.name(push));
}

}  // namespace stash_tf
