// SPDX-License-Identifier: Apache-2.0
#include "planner/trace/trace_ops.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::planner::traces {
namespace {

constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();

bool is_allocation(std::string_view name) {
  static constexpr std::string_view list[] = {
      "aten::empty",          "aten::empty_like",        "aten::empty_strided",
      "aten::empty_permuted", "aten::new_empty",         "aten::resize_",
      "aten::resize_as_",     "aten::new_empty_strided", "aten::empty_quantized"};
  return is_one_of(name, list);
}

// They write a value that does not depend on anything: what calls them does more than they.
bool is_filling(std::string_view name) {
  static constexpr std::string_view list[] = {"aten::fill_", "aten::zero_"};
  return is_one_of(name, list);
}

// They change how a tensor sees its storage, not the storage, although their name or signature says "in
// place".
bool changes_view_only(std::string_view name) {
  static constexpr std::string_view list[] = {"aten::detach_", "aten::squeeze_",      "aten::unsqueeze_",
                                              "aten::t_",      "aten::transpose_",    "aten::as_strided_",
                                              "aten::set_",    "aten::swapaxes_",     "aten::swapdims_",
                                              "aten::rename_", "aten::requires_grad_"};
  return is_one_of(name, list);
}

// Kernels of libraries: whatever copies they make on the way, they do the work themselves.
bool is_kernel(std::string_view name) {
  static constexpr std::string_view list[] = {"aten::mm",
                                              "aten::addmm",
                                              "aten::bmm",
                                              "aten::baddbmm",
                                              "aten::addmm_",
                                              "aten::baddbmm_",
                                              "aten::_addmm_activation",
                                              "aten::cudnn_convolution",
                                              "aten::cudnn_convolution_transpose",
                                              "aten::cudnn_convolution_add_relu",
                                              "aten::cudnn_convolution_relu",
                                              "aten::miopen_convolution",
                                              "aten::mkldnn_convolution",
                                              "aten::slow_conv2d_forward",
                                              "aten::_slow_conv2d_forward",
                                              "aten::_slow_conv2d_backward",
                                              "aten::thnn_conv2d_forward",
                                              "aten::_conv_depthwise2d",
                                              "aten::convolution_backward",
                                              "aten::cudnn_convolution_backward",
                                              "aten::cudnn_convolution_backward_input",
                                              "aten::cudnn_convolution_backward_weight",
                                              "aten::native_batch_norm",
                                              "aten::native_batch_norm_backward",
                                              "aten::cudnn_batch_norm",
                                              "aten::cudnn_batch_norm_backward",
                                              "aten::miopen_batch_norm",
                                              "aten::miopen_batch_norm_backward",
                                              "aten::native_layer_norm",
                                              "aten::native_layer_norm_backward",
                                              "aten::native_group_norm",
                                              "aten::native_group_norm_backward",
                                              "aten::native_dropout",
                                              "aten::native_dropout_backward",
                                              "aten::_softmax",
                                              "aten::_softmax_backward_data",
                                              "aten::_log_softmax",
                                              "aten::_log_softmax_backward_data",
                                              "aten::nll_loss_forward",
                                              "aten::nll_loss_backward",
                                              "aten::nll_loss2d_forward",
                                              "aten::nll_loss2d_backward",
                                              "aten::embedding_dense_backward",
                                              "aten::max_pool2d_with_indices",
                                              "aten::max_pool2d_with_indices_backward",
                                              "aten::avg_pool2d_backward",
                                              "aten::_adaptive_avg_pool2d_backward",
                                              "aten::_cudnn_rnn",
                                              "aten::_cudnn_rnn_backward",
                                              "aten::_scaled_dot_product_flash_attention",
                                              "aten::_scaled_dot_product_flash_attention_backward",
                                              "aten::_scaled_dot_product_efficient_attention",
                                              "aten::_scaled_dot_product_efficient_attention_backward",
                                              "aten::_scaled_dot_product_cudnn_attention",
                                              "aten::_scaled_dot_product_cudnn_attention_backward"};
  return is_one_of(name, list);
}

bool is_operator(const trace_node& n) {
  if (n.backend == "triton") return true;
  const std::size_t colons = n.name.find("::");
  return colons != std::string::npos && colons != 0 && n.name.find(' ') == std::string::npos;
}

bool is_backward_label(std::string_view name) {
  if (name.starts_with("autograd::engine::evaluate_function")) return true;
  // ReluBackward0, torch::autograd::CopyBackwards
  const std::size_t last = name.find_last_not_of("0123456789");
  return last != std::string_view::npos && last + 1 < name.size() &&
         name.substr(0, last + 1).ends_with("Backward");
}

bool is_update_label(std::string_view name) {
  return name.starts_with("Optimizer.step") || name.starts_with("Optimizer.zero_grad") ||
         name == "## optimizer ##";
}

bool contains_loss(std::string_view name) {
  return name.find("loss") != std::string_view::npos || name.find("Loss") != std::string_view::npos ||
         name.find("cross_entropy") != std::string_view::npos;
}

/// What calls inherit from those around them.
struct mark {
  bool backward = false;
  bool update = false;
  bool loss = false;
  bool in_kernel = false;  // inside an operator that does its work itself: only allocations and views count
  bool in_work = false;    // the same, but calls inside may work too; what only fills does not count
  std::int64_t sequence = -1;
};

/// The calls as a tree. What is in a circle of parents is not in it.
struct call_tree {
  std::vector<std::size_t> parent;
  std::vector<std::size_t> order;             // parents before children
  std::vector<std::int64_t> last_descendant;  // its id

  explicit call_tree(const std::vector<trace_node>& nodes) {
    const std::size_t n = nodes.size();
    parent.assign(n, nobody);
    last_descendant.resize(n);
    std::vector<std::size_t> first_child(n, nobody), next(n, nobody);
    for (std::size_t i = n; i-- > 0;) {
      last_descendant[i] = nodes[i].id;
      if (nodes[i].parent == nodes[i].id) continue;
      const auto at = std::lower_bound(nodes.begin(), nodes.end(), nodes[i].parent,
                                       [](const trace_node& a, std::int64_t id) { return a.id < id; });
      if (at == nodes.end() || at->id != nodes[i].parent) continue;
      parent[i] = static_cast<std::size_t>(at - nodes.begin());
      next[i] = first_child[parent[i]];
      first_child[parent[i]] = i;
    }
    std::vector<std::size_t> open;
    for (std::size_t root = n; root-- > 0;) {
      if (parent[root] == nobody) open.push_back(root);
    }
    while (!open.empty()) {
      const std::size_t i = open.back();
      open.pop_back();
      order.push_back(i);
      for (std::size_t child = first_child[i]; child != nobody; child = next[child])
        open.push_back(child);
    }
    for (std::size_t k = order.size(); k-- > 0;) {
      const std::size_t i = order[k];
      if (parent[i] == nobody) continue;
      last_descendant[parent[i]] = std::max(last_descendant[parent[i]], last_descendant[i]);
    }
  }
};

/// Storages that a call itself is known to write: what its signature says, and results that are no arguments.
std::vector<std::int64_t> written_storages(const trace_node& n, std::int32_t device) {
  std::vector<std::int64_t> arguments, written;
  for (const trace_value& v : n.inputs) {
    for (const trace_tensor& x : v.tensors) {
      if (counts(x, device)) arguments.push_back(x.storage);
    }
  }
  std::sort(arguments.begin(), arguments.end());
  for (const trace_value& v : n.outputs) {
    for (const trace_tensor& x : v.tensors) {
      if (counts(x, device) && !std::binary_search(arguments.begin(), arguments.end(), x.storage))
        written.push_back(x.storage);
    }
  }
  if (changes_view_only(n.name)) return written;
  for (const std::size_t i : mutated_inputs(n, parameters_of(n.schema))) {
    for (const trace_tensor& x : n.inputs[i].tensors) {
      if (counts(x, device)) written.push_back(x.storage);
    }
  }
  return written;
}

bool mentions(const trace_node& n, std::int32_t device) {
  const auto any = [device](const std::vector<trace_value>& values) {
    return std::any_of(values.begin(), values.end(), [device](const trace_value& v) {
      return std::any_of(v.tensors.begin(), v.tensors.end(),
                         [device](const trace_tensor& x) { return counts(x, device); });
    });
  };
  return any(n.inputs) || any(n.outputs);
}

enum class verdict : std::uint8_t { label, allocation, view, filling, composite, work, kernel };

/// Decides from the leaves up: an operator is primitive if its calls inside only allocate, view and fill, or
/// if it writes something that none of them does.
std::vector<verdict> judge(const trace& t, const call_tree& tree, std::int32_t device) {
  std::vector<verdict> verdicts(t.nodes.size(), verdict::label);
  std::vector<std::unordered_set<std::int64_t>> inside(t.nodes.size());  // storages that work inside writes
  std::vector<bool> works(t.nodes.size(), false);
  for (std::size_t k = tree.order.size(); k-- > 0;) {
    const std::size_t i = tree.order[k];
    const trace_node& n = t.nodes[i];
    std::unordered_set<std::int64_t> mine = std::move(inside[i]);
    verdict v = verdict::label;
    if (is_operator(n) && mentions(n, device)) {
      const std::vector<std::int64_t> written =
          n.backend == "triton" ? std::vector<std::int64_t>{} : written_storages(n, device);
      const bool alone = std::any_of(written.begin(), written.end(),
                                     [&](std::int64_t s) { return mine.find(s) == mine.end(); });
      if (is_allocation(n.name)) {
        v = verdict::allocation;
      } else if (n.backend == "triton" || (is_kernel(n.name) && !written.empty())) {
        v = verdict::kernel;
      } else if (written.empty()) {
        v = works[i] ? verdict::composite : verdict::view;
      } else if (is_filling(n.name)) {
        v = verdict::filling;
      } else {
        v = alone ? verdict::work : verdict::composite;
      }
      if (v == verdict::work || v == verdict::kernel) {
        works[i] = true;
        mine.insert(written.begin(), written.end());
      }
    }
    verdicts[i] = v;
    const std::size_t p = tree.parent[i];
    if (p == nobody) continue;
    works[p] = works[p] || works[i];
    if (inside[p].size() < mine.size()) std::swap(inside[p], mine);
    inside[p].insert(mine.begin(), mine.end());
  }
  return verdicts;
}

}  // namespace

std::vector<parameter> parameters_of(std::string_view schema) {
  std::vector<parameter> list;
  const std::size_t open = schema.find('(');
  if (open == std::string_view::npos) return list;
  int depth = 0;
  std::size_t begin = open + 1;
  const auto take = [&](std::size_t end) {
    std::string_view text = schema.substr(begin, end - begin);
    begin = end + 1;
    while (text.starts_with(' '))
      text.remove_prefix(1);
    if (text.empty() || text == "*") return;
    parameter p;
    p.mutated = text.find('!') != std::string_view::npos;
    const std::size_t space = text.find(' ');
    p.name = text.substr(space == std::string_view::npos ? text.size() : space + 1);
    p.name = p.name.substr(0, p.name.find('='));
    list.push_back(p);
  };
  for (std::size_t i = open + 1; i < schema.size(); ++i) {
    const char c = schema[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ',' && depth == 0) take(i);
    if ((c == ')' || c == ']') && --depth < 0) {
      take(i);
      return list;
    }
  }
  return {};
}

std::vector<std::size_t> mutated_inputs(const trace_node& n, const std::vector<parameter>& parameters) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < std::min(parameters.size(), n.inputs.size()); ++i) {
    if (parameters[i].mutated) list.push_back(i);
  }
  // Signatures of communication have no marks.
  if (list.empty() && n.name.ends_with('_') && !n.name.ends_with("__") && !n.inputs.empty())
    list.push_back(0);
  return list;
}

std::vector<trace_event> events_of(const trace& t, const trace_iteration& iteration, std::int32_t device) {
  const call_tree tree(t.nodes);
  const std::vector<verdict> verdicts = judge(t, tree, device);
  std::vector<mark> marks(t.nodes.size());
  std::vector<trace_event> events;
  std::int64_t first_backward = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_backward = -1;
  for (const std::size_t i : tree.order) {
    const trace_node& n = t.nodes[i];
    mark m = tree.parent[i] == nobody ? mark{} : marks[tree.parent[i]];
    m.backward = m.backward || is_backward_label(n.name);
    m.update = m.update || is_update_label(n.name);
    m.loss = m.loss || contains_loss(n.name);
    if (n.sequence >= 0) m.sequence = n.sequence;
    const verdict v = verdicts[i];
    const bool fills = v == verdict::filling && !m.in_work;
    const bool works = !m.in_kernel && (v == verdict::work || v == verdict::kernel || fills);
    if (n.id >= iteration.first_id && n.id < iteration.end_id) {
      trace_event e{i, tree.last_descendant[i], event_kind::view, op_stage::forward, m.sequence, m.loss};
      if (works) {
        e.kind = event_kind::work;
        e.stage = m.update ? op_stage::update : m.backward ? op_stage::backward : op_stage::forward;
        if (e.stage == op_stage::backward) {
          first_backward = std::min(first_backward, n.id);
          last_backward = std::max(last_backward, n.id);
        }
        events.push_back(e);
      } else if (v == verdict::allocation || v == verdict::view) {
        if (v == verdict::allocation) e.kind = event_kind::allocation;
        events.push_back(e);
      }
    }
    m.in_work = m.in_work || works;
    m.in_kernel = m.in_kernel || (works && v == verdict::kernel);
    marks[i] = m;
  }
  // What belongs to no autograd node runs forward before the first of them, and is the optimizer's after the
  // last.
  for (trace_event& e : events) {
    if (e.kind != event_kind::work || e.stage != op_stage::forward) continue;
    const std::int64_t id = t.nodes[e.node].id;
    if (id > last_backward) {
      e.stage = op_stage::update;
    } else if (id > first_backward) {
      e.stage = op_stage::backward;
    }
  }
  std::sort(events.begin(), events.end(), [](const trace_event& a, const trace_event& b) {
    return a.moment != b.moment ? a.moment < b.moment : a.node > b.node;
  });
  return events;
}

void find_iterations(trace& t) {
  t.iterations.clear();
  constexpr std::string_view marker = "ProfilerStep#";
  for (const trace_node& n : t.nodes) {
    if (!n.name.starts_with(marker)) continue;
    trace_iteration it;
    const char* const begin = n.name.data() + marker.size();
    std::from_chars(begin, n.name.data() + n.name.size(), it.number);
    it.first_id = n.id;
    if (!t.iterations.empty()) t.iterations.back().end_id = n.id;
    t.iterations.push_back(it);
  }
  if (t.nodes.empty()) return;
  if (t.iterations.empty()) t.iterations.push_back({0, t.nodes.front().id, 0, false});
  t.iterations.back().end_id = t.nodes.back().id + 1;
  for (trace_iteration& it : t.iterations) {
    bool forward = false;
    const auto first = std::lower_bound(t.nodes.begin(), t.nodes.end(), it.first_id,
                                        [](const trace_node& n, std::int64_t id) { return n.id < id; });
    for (auto at = first; at != t.nodes.end() && at->id < it.end_id; ++at) {
      const trace_node& n = *at;
      if (is_backward_label(n.name)) {
        it.complete = forward;
        break;
      }
      forward = forward || is_operator(n);
    }
  }
}

const trace_iteration& iteration_of(const trace& t, const trace_options& options) {
  if (options.iteration) {
    for (const trace_iteration& it : t.iterations) {
      if (it.number == *options.iteration) return it;
    }
    throw error(errc::invalid_argument,
                fmt::format("graph_of: iteration: expected one of the {} of the trace ({} to {}), got {}",
                            t.iterations.size(), t.iterations.empty() ? 0 : t.iterations.front().number,
                            t.iterations.empty() ? 0 : t.iterations.back().number, *options.iteration));
  }
  std::vector<const trace_iteration*> complete;
  for (const trace_iteration& it : t.iterations) {
    if (it.complete) complete.push_back(&it);
  }
  if (complete.empty()) {
    throw error(errc::bad_format,
                fmt::format("graph_of: expected an iteration with a backward stage, got {} without",
                            t.iterations.size()));
  }
  return *complete[complete.size() / 2];
}

std::int32_t device_of(const trace& t, const trace_iteration& iteration, const trace_options& options) {
  if (!options.device.empty()) {
    const auto at = std::find(t.devices.begin(), t.devices.end(), options.device);
    if (at != t.devices.end()) return static_cast<std::int32_t>(at - t.devices.begin());
    throw error(errc::invalid_argument,
                fmt::format("graph_of: device: expected one that the trace has, got '{}'",
                            shortened(options.device)));
  }
  std::vector<std::size_t> mentions(t.devices.size(), 0);
  for (const trace_node& n : t.nodes) {
    if (n.id < iteration.first_id || n.id >= iteration.end_id) continue;
    for (const auto* values : {&n.inputs, &n.outputs}) {
      for (const trace_value& v : *values) {
        for (const trace_tensor& x : v.tensors) {
          if (counts(x, x.device)) ++mentions[static_cast<std::size_t>(x.device)];
        }
      }
    }
  }
  // A training step on an accelerator mentions the processor's memory too, with many small numbers.
  for (std::size_t i = 0; i < mentions.size(); ++i) {
    const bool accelerator = t.devices[i].find("cpu") == std::string::npos;
    if (accelerator && mentions[i] > 0) mentions[i] += t.nodes.size() * std::size_t{1000};
  }
  const auto most = std::max_element(mentions.begin(), mentions.end());
  return most == mentions.end() ? 0 : static_cast<std::int32_t>(most - mentions.begin());
}

}  // namespace stash::planner::traces
