// SPDX-License-Identifier: Apache-2.0
#include "planner/trace/trace_needs.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>

namespace stash::planner::traces {
namespace {

enum class use : std::uint8_t { shape, sign, range, mask, fine, exact };

struct argument_use {
  std::string_view op;
  std::string_view argument;
  use what;
};

// Arguments of backward operators that are not simply values. PyTorch's kernels look at these no further.
constexpr argument_use uses[] = {
    {"aten::threshold_backward", "self", use::sign},
    {"aten::leaky_relu_backward", "self", use::sign},
    {"aten::max_pool2d_with_indices_backward", "self", use::shape},
    {"aten::max_pool3d_with_indices_backward", "self", use::shape},
    {"aten::avg_pool2d_backward", "self", use::shape},
    {"aten::avg_pool3d_backward", "self", use::shape},
    {"aten::_adaptive_avg_pool2d_backward", "self", use::shape},
    {"aten::_adaptive_avg_pool3d_backward", "self", use::shape},
    {"aten::adaptive_max_pool2d_backward", "self", use::shape},
    {"aten::reflection_pad2d_backward", "self", use::shape},
    {"aten::replication_pad2d_backward", "self", use::shape},
    {"aten::nll_loss_backward", "self", use::shape},
    {"aten::nll_loss2d_backward", "self", use::shape},
    {"aten::native_dropout_backward", "mask", use::mask},
    {"aten::_masked_scale", "mask", use::mask},
    {"aten::masked_fill", "mask", use::mask},
    {"aten::masked_fill_", "mask", use::mask},
    {"aten::where", "condition", use::mask},
    {"aten::_log_softmax_backward_data", "output", use::exact},
    // Which side of a bound a value lies on.
    {"aten::hardtanh_backward", "self", use::range},
    {"aten::hardsigmoid_backward", "self", use::exact},
    {"aten::hardswish_backward", "self", use::exact},
    {"aten::hardshrink_backward", "self", use::exact},
    {"aten::softshrink_backward", "self", use::exact},
    // Derivatives such as 1 - y * y, which vanish where y is nearly one, and shares of one in many positions.
    {"aten::sigmoid_backward", "output", use::fine},
    {"aten::tanh_backward", "output", use::fine},
    {"aten::elu_backward", "self_or_result", use::fine},
    {"aten::_softmax_backward_data", "output", use::fine},
};

// Operators that take a few operations for each element and depend on nothing but their arguments.
constexpr std::string_view cheap[] = {"aten::gelu",
                                      "aten::silu",
                                      "aten::silu_",
                                      "aten::sigmoid",
                                      "aten::sigmoid_",
                                      "aten::tanh",
                                      "aten::tanh_",
                                      "aten::relu",
                                      "aten::relu_",
                                      "aten::clamp_min",
                                      "aten::clamp_min_",
                                      "aten::threshold",
                                      "aten::threshold_",
                                      "aten::hardtanh",
                                      "aten::hardtanh_",
                                      "aten::hardswish",
                                      "aten::hardswish_",
                                      "aten::hardsigmoid",
                                      "aten::hardsigmoid_",
                                      "aten::leaky_relu",
                                      "aten::leaky_relu_",
                                      "aten::elu",
                                      "aten::elu_",
                                      "aten::softplus",
                                      "aten::mul",
                                      "aten::mul_",
                                      "aten::div",
                                      "aten::div_",
                                      "aten::neg",
                                      "aten::pow",
                                      "aten::exp",
                                      "aten::erf",
                                      "aten::sqrt",
                                      "aten::rsqrt",
                                      "aten::square",
                                      "aten::sin",
                                      "aten::cos",
                                      "aten::where",
                                      "aten::masked_fill",
                                      "aten::_to_copy",
                                      "aten::copy_",
                                      "aten::native_layer_norm",
                                      "aten::native_group_norm",
                                      "aten::native_batch_norm",
                                      "aten::cudnn_batch_norm",
                                      "aten::miopen_batch_norm"};
// Cheap, too, but what they add up may come from everywhere.
constexpr std::string_view sums[] = {"aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::rsub"};

std::string_view text_of(const trace_node& n, std::size_t argument) {
  return argument < n.inputs.size() ? std::string_view(n.inputs[argument].text) : std::string_view();
}

/// The numbers of a list such as "[3, 3]"; of a single number that one.
std::vector<std::int64_t> numbers_of(std::string_view text) {
  std::vector<std::int64_t> list;
  for (std::size_t i = 0; i < text.size();) {
    std::int64_t number = 0;
    const auto [rest, status] = std::from_chars(text.data() + i, text.data() + text.size(), number);
    if (status == std::errc{}) {
      list.push_back(number);
      i = static_cast<std::size_t>(rest - text.data());
    } else {
      ++i;
    }
  }
  return list;
}

bool is_number(std::string_view text, double expected) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  return end != copy.c_str() && *end == '\0' && number == expected;
}

bool is_zero(std::string_view text) {
  return is_number(text, 0.0);
}

bool is_false(std::string_view text) {
  return text == "false" || text == "False";
}

/// Words of a list of booleans.
bool listed_true(std::string_view list, std::size_t index) {
  std::size_t at = 0;
  for (std::size_t i = 0;; ++i) {
    at = list.find_first_of("tTfF", at);
    if (at == std::string_view::npos) return true;
    if (i == index) return list[at] == 't' || list[at] == 'T';
    at = list.find_first_of(",]", at);
    if (at == std::string_view::npos) return true;
  }
}

bool is_float(trace_type type) {
  return type == trace_type::f32 || type == trace_type::f16 || type == trace_type::bf16;
}

const trace_tensor* tensor(const std::vector<trace_value>& values, std::size_t index) {
  return index < values.size() && values[index].tensors.size() == 1 ? values[index].tensors.data() : nullptr;
}

double elements(const trace_tensor* t) {
  return t == nullptr ? 0.0 : static_cast<double>(t->elements);
}

double dimension(const trace_tensor* t, std::size_t from_last) {
  if (t == nullptr || t->shape.size() <= from_last) return 0.0;
  return static_cast<double>(t->shape[t->shape.size() - 1 - from_last]);
}

/// 2 * outputs * what one output sums over: weights {out, in / groups, window} give the latter.
double convolution_flops(const trace_tensor* y, const trace_tensor* weight) {
  if (weight == nullptr || weight->shape.empty() || weight->shape[0] <= 0) return 0.0;
  return 2.0 * elements(y) * elements(weight) / static_cast<double>(weight->shape[0]);
}

/// {query, key, value, ...}: two products over all pairs.
double attention_flops(const trace_tensor* query, const trace_tensor* key) {
  return 4.0 * elements(query) * dimension(key, 1);
}

}  // namespace

bool runs_again(const trace_node& n) {
  return is_one_of(n.name, cheap);
}

bool sums_up(const trace_node& n) {
  return is_one_of(n.name, sums);
}

std::optional<need> need_of(const trace_node& n, std::size_t argument, trace_type type) {
  const std::vector<parameter> parameters = parameters_of(n.schema);
  const std::string_view name = argument < parameters.size() ? parameters[argument].name : std::string_view();
  // Without the output mask both gradients are computed.
  if (n.name == "aten::convolution_backward" && n.inputs.size() > 10) {
    const std::string_view output_mask = text_of(n, 10);
    if (name == "input" && !listed_true(output_mask, 1)) return std::nullopt;
    if (name == "weight" && !listed_true(output_mask, 0)) return std::nullopt;
  }
  const need plain = is_float(type) ? need::value : need::exact_value;
  const auto known = std::find_if(std::begin(uses), std::end(uses), [&](const argument_use& u) {
    return u.op == n.name && u.argument == name;
  });
  if (known == std::end(uses)) return plain;
  switch (known->what) {
    case use::shape:
      return std::nullopt;
    case use::sign:
      // The sign decides only where the threshold is 0, or the slope is positive.
      if (n.name == "aten::threshold_backward" && !is_zero(text_of(n, 2))) return need::exact_value;
      if (n.name == "aten::leaky_relu_backward" && text_of(n, 2).starts_with('-')) return need::exact_value;
      return is_float(type) ? need::sign : plain;
    case use::range:
      // Of a ReLU6, whose bounds a mask can say.
      return is_float(type) && is_number(text_of(n, 2), 0.0) && is_number(text_of(n, 3), 6.0)
                 ? need::range
                 : need::exact_value;
    case use::mask:
      return type == trace_type::boolean ? need::mask : plain;
    case use::exact:
      return need::exact_value;
    case use::fine:
      return is_float(type) ? need::fine_value : need::exact_value;
  }
  return plain;
}

double flops_of(const trace_node& n) {
  const std::string_view name = n.name;
  const trace_tensor* const a = tensor(n.inputs, 0);
  const trace_tensor* const b = tensor(n.inputs, 1);
  const trace_tensor* const c = tensor(n.inputs, 2);
  const trace_tensor* const y = tensor(n.outputs, 0);
  if (name == "aten::mm" || name == "aten::bmm") return 2.0 * elements(y) * dimension(a, 0);
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::_addmm_activation" ||
      name == "aten::addmm_" || name == "aten::baddbmm_") {
    return 2.0 * elements(y) * dimension(b, 0);
  }
  if (name == "aten::convolution_backward") {
    // Both gradients take as much as the forward pass; grad_output has its outputs.
    const double once = convolution_flops(a, c);
    const std::string_view output_mask = text_of(n, 10);
    return once * ((listed_true(output_mask, 0) ? 1.0 : 0.0) + (listed_true(output_mask, 1) ? 1.0 : 0.0));
  }
  if (name == "aten::cudnn_convolution_backward") return 2.0 * convolution_flops(b, c);
  if (name == "aten::cudnn_convolution_transpose") {
    if (b == nullptr || b->shape.empty() || b->shape[0] <= 0) return 0.0;
    return 2.0 * elements(a) * elements(b) / static_cast<double>(b->shape[0]);
  }
  if (name.find("conv") != std::string_view::npos && name.find("backward") == std::string_view::npos)
    return convolution_flops(y, b);
  if (name.find("_scaled_dot_product_") != std::string_view::npos) {
    // Backward: five products instead of two.
    if (name.ends_with("_backward")) return 2.5 * attention_flops(b, c);
    return attention_flops(a, b);
  }
  return 0.0;
}

std::optional<double> density_of(const trace_node& n, double relu_density) {
  const std::string_view name = n.name;
  if (name == "aten::relu" || name == "aten::relu_" || name == "aten::cudnn_convolution_relu" ||
      name == "aten::cudnn_convolution_add_relu") {
    return relu_density;
  }
  const bool clamps = name == "aten::clamp_min" || name == "aten::clamp_min_";
  const bool thresholds = (name == "aten::threshold" || name == "aten::threshold_") && is_zero(text_of(n, 2));
  if ((clamps || thresholds) && is_zero(text_of(n, 1))) return relu_density;
  if (name == "aten::native_dropout" && !is_false(text_of(n, 2))) {
    const std::string copy(text_of(n, 1));
    const double dropped = std::strtod(copy.c_str(), nullptr);
    if (dropped >= 0.0 && dropped <= 1.0) return 1.0 - dropped;
  }
  return std::nullopt;
}

std::int32_t window_taps_of(const trace_node& n) {
  if (n.name != "aten::max_pool2d_with_indices") return 0;
  const std::vector<std::int64_t> kernel = numbers_of(text_of(n, 1));
  if (kernel.empty() || kernel.size() > 2) return 0;
  const std::int64_t height = kernel.front();
  const std::int64_t width = kernel.back();
  if (height < 1 || width < 1 || height > 256 || width > 256 || height * width > 256) return 0;
  return static_cast<std::int32_t>(height * width);
}

}  // namespace stash::planner::traces
