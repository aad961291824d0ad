// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/list_shapes.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "optimizer/graph/list_sources.hpp"

namespace stash_tf {

namespace {

using tensorflow::OpInfo;
using tensorflow::grappler::GraphProperties;

class finder {
 public:
  finder(const graph_view& graph, const GraphProperties& known, const std::set<std::int64_t>& symbols,
         std::map<source, listed_shape>* shapes)
      : graph_(graph), known_(known), symbols_(symbols), shapes_(shapes) {}

  bool run() {
    std::map<source, listed_shape> found;
    for (int i = 0; i < graph_.size(); ++i) {
      const std::string& op = graph_.op(i);
      const bool stack = op == "TensorListStack";
      if (op != "TensorListPopBack" && op != "TensorListGetItem" && !stack) continue;
      const source tensor{i, op == "TensorListPopBack" ? 1 : 0};
      if (shapes_->count(tensor) != 0 || graph_.inputs(i).empty()) continue;
      if (const auto shape = shape_of(tensor); shape && unknown_dims(*shape) == 0) continue;
      std::optional<listed_shape> shape = element_of(graph_.inputs(i)[0]);
      if (!shape) continue;
      if (stack) {
        const std::int64_t count = elements_of(i);
        if (count < 0) continue;
        shape->dims.insert(shape->dims.begin(), count);
      }
      shape->stand_in = stand_in_name(graph_, tensor);
      found.emplace(tensor, std::move(*shape));
    }
    shapes_->insert(found.begin(), found.end());
    return !found.empty();
  }

 private:
  const OpInfo::TensorProperties* properties_of(const source& tensor) const {
    const auto listed = shapes_->find(tensor);
    if (listed != shapes_->end() && known_.HasOutputProperties(listed->second.stand_in))
      return &known_.GetOutputProperties(listed->second.stand_in)[0];
    if (tensor.is_control() || !known_.HasOutputProperties(graph_.name(tensor.node))) return nullptr;
    const auto& all = known_.GetOutputProperties(graph_.name(tensor.node));
    return at(tensor.port) < all.size() ? &all[at(tensor.port)] : nullptr;
  }

  std::optional<listed_shape> shape_of(const source& tensor) const {
    const OpInfo::TensorProperties* p = properties_of(tensor);
    if (p == nullptr || p->shape().unknown_rank()) return std::nullopt;
    listed_shape shape;
    shape.type = p->dtype();
    for (const auto& d : p->shape().dim()) {
      const bool batch = symbols_.count(d.size()) != 0;
      shape.dims.push_back(batch ? listed_shape::batch : std::max(d.size(), listed_shape::unknown));
    }
    return shape;
  }

  // The elements of a list, by what was put into it. Where that has several shapes, what they have in common.
  std::optional<listed_shape> element_of(const source& list) const {
    const list_sources from = sources_of_list(graph_, list);
    std::optional<listed_shape> common;
    bool differ = false;
    const auto consider = [&](const std::optional<listed_shape>& shape) {
      if (!shape) return;
      if (!common) {
        common = shape;
      } else {
        differ = differ || !join(*shape, &*common);
      }
    };
    for (const source& s : from.elements)
      consider(shape_of(s));
    for (const source& s : from.wholes) {
      std::optional<listed_shape> whole = shape_of(s);
      if (!whole || whole->dims.empty()) continue;
      whole->dims.erase(whole->dims.begin());
      consider(whole);
    }
    return differ ? std::nullopt : common;
  }

  // Whether both may be shapes of one list: dimensions that differ are not known, and those that one of them
  // knows are.
  static bool join(const listed_shape& shape, listed_shape* common) {
    if (shape.dims.size() != common->dims.size() || shape.type != common->type) return false;
    for (std::size_t k = 0; k < shape.dims.size(); ++k) {
      std::int64_t& known = common->dims[k];
      if (known == listed_shape::unknown) {
        known = shape.dims[k];
      } else if (shape.dims[k] != listed_shape::unknown && shape.dims[k] != known) {
        return false;
      }
    }
    return true;
  }

  static std::ptrdiff_t unknown_dims(const listed_shape& shape) {
    return std::count(shape.dims.begin(), shape.dims.end(), listed_shape::unknown);
  }

  // -1: not known.
  std::int64_t elements_of(int stack) const {
    const auto& attr = graph_.node(stack).attr();
    const auto count = attr.find("num_elements");
    if (count != attr.end() && count->second.i() >= 0) return count->second.i();
    const OpInfo::TensorProperties* p = properties_of({stack, 0});
    const bool known = p != nullptr && !p->shape().unknown_rank() && p->shape().dim_size() > 0;
    return known ? std::max<std::int64_t>(p->shape().dim(0).size(), -1) : -1;
  }

  const graph_view& graph_;
  const GraphProperties& known_;
  const std::set<std::int64_t>& symbols_;
  std::map<source, listed_shape>* shapes_;
};

}  // namespace

std::string stand_in_name(const graph_view& graph, const source& tensor) {
  std::string name = "stash_shape_of_" + std::to_string(tensor.node) + "_" + std::to_string(tensor.port);
  while (graph.find(name) >= 0)
    name += "_";
  return name;
}

bool add_shapes_out_of_lists(const graph_view& graph, const GraphProperties& known,
                             const std::set<std::int64_t>& symbols, std::map<source, listed_shape>* shapes) {
  return finder(graph, known, symbols, shapes).run();
}

tensorflow::GraphDef with_stand_ins(const tensorflow::GraphDef& graph, const graph_view& view,
                                    const std::map<source, listed_shape>& shapes) {
  tensorflow::GraphDef result = graph;
  for (int i = 0; i < view.size(); ++i) {
    for (std::size_t k = 0; k < view.inputs(i).size(); ++k) {
      const auto it = shapes.find(view.inputs(i)[k]);
      if (it != shapes.end()) result.mutable_node(i)->set_input(static_cast<int>(k), it->second.stand_in);
    }
  }
  for (const auto& [tensor, s] : shapes) {
    tensorflow::NodeDef* n = result.add_node();
    n->set_name(s.stand_in);
    n->set_op("Placeholder");
    (*n->mutable_attr())["dtype"].set_type(s.type);
    tensorflow::TensorShapeProto* shape = (*n->mutable_attr())["shape"].mutable_shape();
    for (const std::int64_t d : s.dims)
      shape->add_dim()->set_size(std::max(d, listed_shape::unknown));
  }
  return result;
}

void add_symbols_of_stand_ins(const GraphProperties& known, const std::map<source, listed_shape>& shapes,
                              std::set<std::int64_t>* symbols) {
  for (const auto& [tensor, s] : shapes) {
    if (!known.HasOutputProperties(s.stand_in)) continue;
    const auto& shape = known.GetOutputProperties(s.stand_in)[0].shape();
    for (int k = 0; k < shape.dim_size(); ++k)
      if (s.dims[at(k)] == listed_shape::batch && shape.dim(k).size() < listed_shape::unknown)
        symbols->insert(shape.dim(k).size());
  }
}

}  // namespace stash_tf
