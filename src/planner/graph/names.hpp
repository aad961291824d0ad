// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The names of all enumerations of graphs and plans, in one file: to_string() and the JSON readers and
/// writers use these tables, so that a name can always be read back.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "planner/graph/graph.hpp"
#include "planner/plan.hpp"
#include "stash/encoding.hpp"
#include "stash/tensor_view.hpp"

namespace stash::planner {

template <class Enum>
struct enum_name {
  Enum value;
  std::string_view name;
};

/// Specialised below for every enumeration that has names; the index of an entry is its enumerator's value.
template <class Enum>
inline constexpr std::array<enum_name<Enum>, 0> names_of{};

template <>
inline constexpr std::array names_of<node_kind>{
    enum_name<node_kind>{node_kind::input, "input"},
    enum_name<node_kind>{node_kind::conv2d, "conv2d"},
    enum_name<node_kind>{node_kind::dense, "dense"},
    enum_name<node_kind>{node_kind::relu, "relu"},
    enum_name<node_kind>{node_kind::leaky_relu, "leaky_relu"},
    enum_name<node_kind>{node_kind::relu6, "relu6"},
    enum_name<node_kind>{node_kind::max_pool, "max_pool"},
    enum_name<node_kind>{node_kind::avg_pool, "avg_pool"},
    enum_name<node_kind>{node_kind::global_avg_pool, "global_avg_pool"},
    enum_name<node_kind>{node_kind::batch_norm, "batch_norm"},
    enum_name<node_kind>{node_kind::add, "add"},
    enum_name<node_kind>{node_kind::concat, "concat"},
    enum_name<node_kind>{node_kind::dropout, "dropout"},
    enum_name<node_kind>{node_kind::lrn, "lrn"},
    enum_name<node_kind>{node_kind::flatten, "flatten"},
    enum_name<node_kind>{node_kind::softmax_cross_entropy, "softmax_cross_entropy"},
};

template <>
inline constexpr std::array names_of<op_kind>{
    enum_name<op_kind>{op_kind::conv2d, "conv2d"},
    enum_name<op_kind>{op_kind::conv2d_backward_weights, "conv2d_backward_weights"},
    enum_name<op_kind>{op_kind::conv2d_backward_data, "conv2d_backward_data"},
    enum_name<op_kind>{op_kind::dense, "dense"},
    enum_name<op_kind>{op_kind::dense_backward_weights, "dense_backward_weights"},
    enum_name<op_kind>{op_kind::dense_backward_data, "dense_backward_data"},
    enum_name<op_kind>{op_kind::relu, "relu"},
    enum_name<op_kind>{op_kind::relu_backward, "relu_backward"},
    enum_name<op_kind>{op_kind::leaky_relu, "leaky_relu"},
    enum_name<op_kind>{op_kind::leaky_relu_backward, "leaky_relu_backward"},
    enum_name<op_kind>{op_kind::relu6, "relu6"},
    enum_name<op_kind>{op_kind::relu6_backward, "relu6_backward"},
    enum_name<op_kind>{op_kind::max_pool, "max_pool"},
    enum_name<op_kind>{op_kind::max_pool_backward, "max_pool_backward"},
    enum_name<op_kind>{op_kind::relu_max_pool, "relu_max_pool"},
    enum_name<op_kind>{op_kind::relu_max_pool_backward, "relu_max_pool_backward"},
    enum_name<op_kind>{op_kind::avg_pool, "avg_pool"},
    enum_name<op_kind>{op_kind::avg_pool_backward, "avg_pool_backward"},
    enum_name<op_kind>{op_kind::global_avg_pool, "global_avg_pool"},
    enum_name<op_kind>{op_kind::global_avg_pool_backward, "global_avg_pool_backward"},
    enum_name<op_kind>{op_kind::batch_norm, "batch_norm"},
    enum_name<op_kind>{op_kind::batch_norm_backward, "batch_norm_backward"},
    enum_name<op_kind>{op_kind::add, "add"},
    enum_name<op_kind>{op_kind::copy, "copy"},
    enum_name<op_kind>{op_kind::accumulate, "accumulate"},
    enum_name<op_kind>{op_kind::dropout, "dropout"},
    enum_name<op_kind>{op_kind::dropout_backward, "dropout_backward"},
    enum_name<op_kind>{op_kind::lrn, "lrn"},
    enum_name<op_kind>{op_kind::lrn_backward, "lrn_backward"},
    enum_name<op_kind>{op_kind::softmax_cross_entropy, "softmax_cross_entropy"},
    enum_name<op_kind>{op_kind::softmax_cross_entropy_backward, "softmax_cross_entropy_backward"},
    enum_name<op_kind>{op_kind::sgd_update, "sgd_update"},
    enum_name<op_kind>{op_kind::generic, "generic"},
};

template <>
inline constexpr std::array names_of<storage_role>{
    enum_name<storage_role>{storage_role::image, "image"},
    enum_name<storage_role>{storage_role::label, "label"},
    enum_name<storage_role>{storage_role::feature_map, "feature_map"},
    enum_name<storage_role>{storage_role::gradient, "gradient"},
    enum_name<storage_role>{storage_role::auxiliary, "auxiliary"},
    enum_name<storage_role>{storage_role::weight, "weight"},
    enum_name<storage_role>{storage_role::weight_gradient, "weight_gradient"},
    enum_name<storage_role>{storage_role::momentum, "momentum"},
    enum_name<storage_role>{storage_role::statistic, "statistic"},
    enum_name<storage_role>{storage_role::saved_statistic, "saved_statistic"},
};

template <>
inline constexpr std::array names_of<op_stage>{
    enum_name<op_stage>{op_stage::forward, "forward"},
    enum_name<op_stage>{op_stage::backward, "backward"},
    enum_name<op_stage>{op_stage::update, "update"},
};

template <>
inline constexpr std::array names_of<need>{
    enum_name<need>{need::sign, "sign"},
    enum_name<need>{need::range, "range"},
    enum_name<need>{need::mask, "mask"},
    enum_name<need>{need::window, "window"},
    enum_name<need>{need::sign_window, "sign_window"},
    enum_name<need>{need::value, "value"},
    enum_name<need>{need::fine_value, "fine_value"},
    enum_name<need>{need::exact_value, "exact_value"},
};

template <>
inline constexpr std::array names_of<policy>{
    enum_name<policy>{policy::none, "none"}, enum_name<policy>{policy::lossless, "lossless"},
    enum_name<policy>{policy::fp16, "fp16"}, enum_name<policy>{policy::fp8, "fp8"},
    enum_name<policy>{policy::fp10, "fp10"}, enum_name<policy>{policy::automatic, "auto"},
    enum_name<policy>{policy::gist, "gist"}, enum_name<policy>{policy::swap_only, "swap-only"},
    enum_name<policy>{policy::lms, "lms"},   enum_name<policy>{policy::layrub, "layrub"},
};

template <>
inline constexpr std::array names_of<stash_kind>{
    enum_name<stash_kind>{stash_kind::none, "none"},
    enum_name<stash_kind>{stash_kind::raw, "raw"},
    enum_name<stash_kind>{stash_kind::encoded, "encoded"},
    enum_name<stash_kind>{stash_kind::recompute, "recompute"},
};

template <>
inline constexpr std::array names_of<buffer_form>{
    enum_name<buffer_form>{buffer_form::dense, "dense"},
    enum_name<buffer_form>{buffer_form::encoded, "encoded"},
    enum_name<buffer_form>{buffer_form::overflow, "overflow"},
    enum_name<buffer_form>{buffer_form::host, "host"},
};

template <>
inline constexpr std::array names_of<step_kind>{
    enum_name<step_kind>{step_kind::run, "run"},
    enum_name<step_kind>{step_kind::encode, "encode"},
    enum_name<step_kind>{step_kind::decode, "decode"},
    enum_name<step_kind>{step_kind::recompute, "recompute"},
    enum_name<step_kind>{step_kind::copy_out, "copy_out"},
    enum_name<step_kind>{step_kind::wait_out, "wait_out"},
    enum_name<step_kind>{step_kind::copy_in, "copy_in"},
    enum_name<step_kind>{step_kind::wait_in, "wait_in"},
};

template <>
inline constexpr std::array names_of<dtype>{
    enum_name<dtype>{dtype::f32, "f32"},   enum_name<dtype>{dtype::f16, "f16"},
    enum_name<dtype>{dtype::bf16, "bf16"}, enum_name<dtype>{dtype::u8, "u8"},
    enum_name<dtype>{dtype::s32, "s32"},
};

template <>
inline constexpr std::array names_of<encoding_kind>{
    enum_name<encoding_kind>{encoding_kind::raw, "raw"},
    enum_name<encoding_kind>{encoding_kind::shape_only, "shape_only"},
    enum_name<encoding_kind>{encoding_kind::sign_mask, "sign_mask"},
    enum_name<encoding_kind>{encoding_kind::window_index, "window_index"},
    enum_name<encoding_kind>{encoding_kind::relu_pool, "relu_pool"},
    enum_name<encoding_kind>{encoding_kind::bitmap, "bitmap"},
    enum_name<encoding_kind>{encoding_kind::cast, "cast"},
    enum_name<encoding_kind>{encoding_kind::range_mask, "range_mask"},
    enum_name<encoding_kind>{encoding_kind::csr, "csr"},
};

template <>
inline constexpr auto names_of<value_format> = [] {
  std::array<enum_name<value_format>, value_formats.size() + 1> names{};
  names[0] = {value_format::source, "source"};
  for (const value_format_info& row : value_formats)
    names[static_cast<std::size_t>(row.format)] = {row.format, row.enumerator};
  return names;
}();

template <>
inline constexpr std::array names_of<underflow_rule>{
    enum_name<underflow_rule>{underflow_rule::to_zero, "to_zero"},
    enum_name<underflow_rule>{underflow_rule::keep_nonzero, "keep_nonzero"},
};

template <>
inline constexpr std::array names_of<framework_rule>{
    enum_name<framework_rule>{framework_rule::tensorflow, "tensorflow"},
    enum_name<framework_rule>{framework_rule::pytorch, "pytorch"},
};

/// Name of an enumerator; "unknown" for a value that has none.
template <class Enum>
constexpr std::string_view name_of(Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < names_of<Enum>.size() ? names_of<Enum>[index].name : std::string_view("unknown");
}

/// Inverse of name_of; nothing for a name that is not in the table.
template <class Enum>
constexpr std::optional<Enum> value_of_name(std::string_view name) noexcept {
  for (const enum_name<Enum>& entry : names_of<Enum>) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

/// All names of an enumeration, separated by ", ".
template <class Enum>
std::string list_of_names() {
  std::string list;
  for (const enum_name<Enum>& entry : names_of<Enum>) {
    if (!list.empty()) list += ", ";
    list += entry.name;
  }
  return list;
}

/// Whether every entry stands at the index of its value (name_of relies on it).
template <class Enum>
constexpr bool names_are_in_order() noexcept {
  for (std::size_t i = 0; i < names_of<Enum>.size(); ++i) {
    if (static_cast<std::size_t>(names_of<Enum>[i].value) != i) return false;
  }
  return !names_of<Enum>.empty();
}

}  // namespace stash::planner
