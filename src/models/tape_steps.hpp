// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How the operations of a tape say what their gradients read, and what they cost.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/tape_record.hpp"

namespace stash::models::tape_record {

// Floating-point operations per element, for estimates.
inline constexpr double cheap = 1, transcendental = 8, soft_maximum = 5, normalise = 8, lstm_per_unit = 30;

inline double count(const std::vector<std::int64_t>& dims) {
  return static_cast<double>(elements(dims));
}

inline read of_input(std::size_t i, planner::need what = planner::need::value) {
  return {operand::input, i, what};
}

inline read of_output(std::size_t i, planner::need what = planner::need::value) {
  return {operand::output, i, what};
}

inline read of_auxiliary(std::size_t i, planner::need what) {
  return {operand::auxiliary, i, what};
}

inline backward_step step(std::string label, std::vector<std::size_t> targets, double flops) {
  backward_step s;
  s.label = std::move(label);
  s.targets = std::move(targets);
  s.flops = flops;
  return s;
}

/// The gradient of an element-wise op: dx in the bytes of dy.
inline backward_step elementwise(std::string label, double flops, std::vector<form> forms) {
  backward_step s = step(std::move(label), {0}, flops);
  s.forms = std::move(forms);
  s.in_place_target = 0;
  return s;
}

}  // namespace stash::models::tape_record
