// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What ops and codecs take on a machine, and which forms it has: one interface for machines as they are and
/// for those that are pinned for comparison with published policies.

#include <memory>

#include "planner/graph/machine.hpp"
#include "planner/plan.hpp"

namespace stash::planner {

class cost_model {
 public:
  virtual ~cost_model() = default;

  /// ms of an op without what its alternative adds.
  virtual double op_ms(const graph& g, const op& o) const = 0;
  /// ms of an op's alternative in addition to op_ms().
  virtual double alternative_ms(const stash_alternative& a) const = 0;
  /// ms to make the stored form from `dense_bytes` dense bytes, or dense values from it.
  virtual double codec_ms(const encoding& stored, std::int64_t dense_bytes,
                          std::int64_t stored_bytes) const = 0;
  /// Whether a storage may be kept so on this machine, where there is a choice.
  virtual bool has_form(const stash_choice& c) const noexcept = 0;
  /// Options as this machine's plans have them. Throws error(invalid_argument) for a policy that it cannot
  /// follow: that is never another plan.
  virtual plan_options followed(plan_options options) const = 0;

  /// ms to compute the target of a recipe again from its dense sources.
  double recompute_ms(const graph& g, const recipe& r) const;
};

/// The costs of a machine: measured durations where the graph has them, else a roofline (operations /
/// sustained rate, bytes / memory rate, whichever is longer). Of a pinned one: see machine::pinned.
std::unique_ptr<const cost_model> cost_model_of(const machine& m);

/// Floating-point operations of an op for the whole batch: op::flops, else from kind and shapes; 0 for ops
/// that only move bytes.
double flops_of(const graph& g, const op& o);

/// Bytes that an operand covers.
double bytes_of(const graph& g, const tensor_ref& r);

/// The two kinds, for cost_model_of().
std::unique_ptr<const cost_model> roofline_cost_model(const machine& m);
std::unique_ptr<const cost_model> pinned_cost_model(const machine& m);

}  // namespace stash::planner
