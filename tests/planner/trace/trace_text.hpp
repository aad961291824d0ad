// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Hand-written execution traces: calls in order, written in any of the schemas.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace stash::planner {

enum class trace_style : std::uint8_t {
  flat,     ///< 1.0.1: "inputs", "input_types", "parent"
  nested,   ///< 1.0.2 and later: "inputs": {"values", ...}, "ctrl_deps", "attrs"
  strides,  ///< 1.1.1: the same with strides
};

/// A mention of a tensor. The defaults fit a map that is large enough to be a feature map.
struct tensor_text {
  std::int64_t storage;
  std::vector<std::int64_t> shape{64, 1024};
  std::string type = "float";
  std::int64_t element_bytes = 4;
  std::int64_t offset = 0;
  std::string device = "cuda:0";
  std::int64_t id = 0;  ///< 0: storage + 1000
};

/// An argument: a tensor, a list of them, or the JSON text of something else.
struct argument_text {
  std::vector<tensor_text> tensors;
  bool list = false;
  std::string text;

  argument_text(tensor_text t) : tensors{std::move(t)} {}
  argument_text(std::vector<tensor_text> t) : tensors(std::move(t)), list(true) {}
  argument_text(const char* t) : text(t) {}
};

class trace_text {
 public:
  explicit trace_text(trace_style style = trace_style::nested, std::string schema = "1.1.0-chakra.0.0.4")
      : style_(style), schema_(std::move(schema)) {
    process_ = label("[pytorch|profiler|execution_trace|process]", 1);
    main_ = label("[pytorch|profiler|execution_trace|thread]", process_);
  }

  std::int64_t main_thread() const { return main_; }
  std::int64_t thread() { return label("[pytorch|profiler|execution_trace|thread]", process_); }

  std::int64_t label(std::string_view name, std::int64_t parent, std::int64_t sequence = -1) {
    return call(name, "", {}, {}, parent, sequence);
  }

  /// Returns the id. `signature` is what stands in parentheses after the name.
  std::int64_t call(std::string_view name, std::string_view signature,
                    const std::vector<argument_text>& inputs, const std::vector<argument_text>& outputs,
                    std::int64_t parent, std::int64_t sequence = -1) {
    const std::int64_t id = next_++;
    const std::string schema = signature.empty() ? "" : fmt::format("{}({})", name, signature);
    std::string node = fmt::format(R"({{"id": {}, "name": "{}", )", id, name);
    if (style_ == trace_style::flat) {
      node += fmt::format(R"("parent": {}, "fw_parent": 0, "seq_id": {}, "scope": 0, "tid": 1, "fw_tid": 0, )"
                          R"("rf_id": {}, "op_schema": "{}", )",
                          parent, sequence, id + 100, schema);
      node += fmt::format(R"("inputs": {}, "input_types": {}, "input_shapes": {}, )", values(inputs),
                          types(inputs), shapes(inputs));
      node += fmt::format(R"("outputs": {}, "output_types": {}, "output_shapes": {}}})", values(outputs),
                          types(outputs), shapes(outputs));
    } else {
      node += fmt::format(R"("ctrl_deps": {}, "inputs": {}, "outputs": {}, "attrs": [)", parent,
                          object(inputs), object(outputs));
      node += fmt::format(R"({{"name": "rf_id", "type": "uint64", "value": {}}},)", id + 100);
      node += fmt::format(R"({{"name": "seq_id", "type": "int64", "value": {}}},)", sequence);
      node += fmt::format(R"({{"name": "op_schema", "type": "string", "value": "{}"}}]}})", schema);
    }
    nodes_ += (nodes_.empty() ? "" : ",\n") + node;
    return id;
  }

  std::string text() const {
    return fmt::format(
        "{{\"schema\": \"{}\", \"pid\": 7, \"start_ts\": 1,\n\"nodes\": [\n{}\n],\n\"finish_ts\": 2}}",
        schema_, nodes_);
  }

 private:
  static std::string numbers(const std::vector<std::int64_t>& list) {
    return fmt::format("[{}]", fmt::join(list, ", "));
  }

  static std::string one(const tensor_text& t) {
    std::int64_t elements = 1;
    for (const std::int64_t d : t.shape)
      elements *= d;
    return fmt::format("[{}, {}, {}, {}, {}, \"{}\"]", t.id != 0 ? t.id : t.storage + 1000, t.storage,
                       t.offset, elements, t.element_bytes, t.device);
  }

  template <class Write>
  static std::string each(const std::vector<argument_text>& arguments, Write write, const char* other) {
    std::vector<std::string> parts;
    for (const argument_text& a : arguments) {
      std::vector<std::string> inner;
      for (const tensor_text& t : a.tensors)
        inner.push_back(write(t));
      const std::string joined = fmt::format("{}", fmt::join(inner, ", "));
      parts.push_back(!inner.empty()     ? (a.list ? "[" + joined + "]" : joined)
                      : other != nullptr ? other
                                         : a.text);
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }

  static std::string values(const std::vector<argument_text>& a) { return each(a, one, nullptr); }
  static std::string shapes(const std::vector<argument_text>& a) {
    return each(
        a, [](const tensor_text& t) { return numbers(t.shape); }, "[]");
  }
  static std::string types(const std::vector<argument_text>& arguments) {
    std::vector<std::string> parts;
    for (const argument_text& a : arguments) {
      std::vector<std::string> inner;
      for (const tensor_text& t : a.tensors)
        inner.push_back(fmt::format("Tensor({})", t.type));
      const std::string joined = fmt::format("{}", fmt::join(inner, ","));
      parts.push_back(fmt::format("\"{}\"", inner.empty() ? "Int"
                                            : a.list      ? "GenericList[" + joined + "]"
                                                          : joined));
    }
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }

  std::string object(const std::vector<argument_text>& a) const {
    const std::string strides =
        style_ == trace_style::strides ? fmt::format(R"(, "strides": {})", shapes(a)) : "";
    return fmt::format(R"({{"values": {}, "shapes": {}, "types": {}{}}})", values(a), shapes(a), types(a),
                       strides);
  }

  trace_style style_;
  std::string schema_;
  std::string nodes_;
  std::int64_t next_ = 1;
  std::int64_t process_ = 0;
  std::int64_t main_ = 0;
};

/// One step of a small network, as PyTorch records it: convolution, ReLU in place, dropout, dense layer,
/// loss. Storages: 10 image, 11 labels, 20 and 22 weights, 21 bias, 30 map of convolution and ReLU, 40 mask,
/// 41 dropped map, 42 logits, 43 log-probabilities, 44 loss; gradients 50 to 57. 30 is given out again in the
/// backward stage.
inline void add_small_step(trace_text& t, std::string_view step = "ProfilerStep#5") {
  const tensor_text image{10, {8, 4, 32, 32}}, labels{11, {8}, "long", 8}, kernel{20, {8, 4, 3, 3}},
      bias{21, {10}}, weight{22, {8192, 10}}, y{30, {8, 8, 32, 32}}, mask{40, {8, 8192}, "bool", 1},
      dropped{41, {8, 8192}}, logits{42, {8, 10}}, log{43, {8, 10}}, loss{44, {1}}, dloss{50, {1}},
      dlog{51, {8, 10}}, dlogits{52, {8, 10}}, dweight{53, {8192, 10}}, dbias{54, {10}},
      ddropped{55, {8, 8192}}, dy{56, {8, 8, 32, 32}}, dkernel{57, {8, 4, 3, 3}};
  const std::int64_t top = step.empty() ? t.main_thread() : t.label(step, t.main_thread());
  const std::int64_t convolution =
      t.call("aten::conv2d", "Tensor input, Tensor weight", {image, kernel}, {y}, top, 1);
  t.call("aten::cudnn_convolution", "Tensor self, Tensor weight, int[] padding", {image, kernel, "[1, 1]"},
         {y}, convolution);
  const std::int64_t relu = t.call("aten::relu_", "Tensor(a!) self", {y}, {y}, top, 2);
  t.call("aten::clamp_min_", "Tensor(a!) self, Scalar min", {y, "0"}, {y}, relu);
  tensor_text flat = y;
  flat.shape = {8, 8192};
  flat.id = 7;
  t.call("aten::view", "Tensor(a) self, int[] size", {y, "[8, -1]"}, {flat}, top, 3);
  const std::int64_t dropout = t.call("aten::native_dropout", "Tensor input, float p, bool? train",
                                      {flat, "0.25", "true"}, {dropped, mask}, top, 3);
  t.call("aten::empty_like", "Tensor self", {flat}, {dropped}, dropout);
  t.call("aten::empty_like", "Tensor self", {flat}, {mask}, dropout);
  t.call("aten::addmm", "Tensor self, Tensor mat1, Tensor mat2", {bias, dropped, weight}, {logits}, top, 4);
  const std::int64_t criterion =
      t.call("aten::cross_entropy_loss", "Tensor self, Tensor target", {logits, labels}, {loss}, top, 5);
  t.call("aten::_log_softmax", "Tensor self, int dim, bool half_to_float", {logits, "1", "false"}, {log},
         criterion, 5);
  t.call("aten::nll_loss_forward", "Tensor self, Tensor target", {log, labels}, {loss}, criterion, 6);
  const std::int64_t ones = t.call("aten::ones_like", "Tensor self", {loss}, {dloss}, top);
  t.call("aten::fill_", "Tensor(a!) self, Scalar value", {dloss, "1.0"}, {dloss}, ones);

  const std::int64_t backward = t.thread();
  const auto node = [&](const char* name, std::int64_t sequence) {
    return t.label(name, t.label(fmt::format("autograd::engine::evaluate_function: {}", name), backward),
                   sequence);
  };
  t.call("aten::nll_loss_backward", "Tensor grad_output, Tensor self, Tensor target", {dloss, log, labels},
         {dlog}, node("NllLossBackward0", 6));
  t.call("aten::_log_softmax_backward_data", "Tensor grad_output, Tensor output, int dim", {dlog, log, "1"},
         {dlogits}, node("LogSoftmaxBackward0", 5));
  const std::int64_t dense = node("AddmmBackward0", 4);
  t.call("aten::mm", "Tensor self, Tensor mat2", {dlogits, weight}, {ddropped}, dense);
  t.call("aten::mm", "Tensor self, Tensor mat2", {dropped, dlogits}, {dweight}, dense);
  t.call("aten::sum", "Tensor self, int[] dim", {dlogits, "[0]"}, {dbias}, dense);
  t.call("aten::native_dropout_backward", "Tensor grad_output, Tensor mask, float scale",
         {ddropped, mask, "1.3333"}, {dy}, node("NativeDropoutBackward0", 3));
  // Into the memory of the dropped map, which nobody needs any longer.
  const tensor_text through{41, {8, 8, 32, 32}};
  t.call("aten::threshold_backward", "Tensor grad_output, Tensor self, Scalar threshold", {dy, y, "0"},
         {through}, node("ReluBackward0", 2));
  const std::int64_t gradients = t.call(
      "aten::convolution_backward",
      "Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] "
      "padding, "
      "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask",
      {through, image, kernel, "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "false", "[0, 0]", "1",
       "[false, true, false]"},
      {dkernel}, node("ConvolutionBackward0", 1));
  t.call("aten::to", "Tensor(a) self", {through}, {through}, gradients);

  const std::int64_t optimizer = t.label("Optimizer.step#SGD.step", top);
  t.call("aten::_foreach_add_", "Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1",
         {std::vector{tensor_text{60, {8, 4, 3, 3}}, tensor_text{61, {10}}, tensor_text{62, {8192, 10}}},
          std::vector{dkernel, dbias, dweight}},
         {}, optimizer);
  t.call("aten::_foreach_add_", "Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1",
         {std::vector{kernel, bias, weight},
          std::vector{tensor_text{60, {8, 4, 3, 3}}, tensor_text{61, {10}}, tensor_text{62, {8192, 10}}}},
         {}, optimizer);
}

inline std::string small_trace(trace_style style = trace_style::nested,
                               const std::string& schema = "1.1.0-chakra.0.0.4") {
  trace_text t(style, schema);
  add_small_step(t);
  return t.text();
}

}  // namespace stash::planner
