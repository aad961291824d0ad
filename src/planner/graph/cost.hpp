// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Estimated times of ops and codecs on a machine: measured durations where the graph has them, else a
/// roofline (operations / sustained rate, bytes / memory rate, whichever is longer).

#include "planner/graph/machine.hpp"
#include "planner/plan.hpp"

namespace stash::planner {

/// Floating-point operations of an op for the whole batch: op::flops, else from kind and shapes; 0 for ops
/// that only move bytes.
double flops_of(const graph& g, const op& o);

/// ms of an op without what its alternative adds.
double op_ms(const graph& g, const op& o, const machine& m);

/// ms of an op's alternative in addition to op_ms().
double alternative_ms(const stash_alternative& a, const machine& m);

/// ms to make the stored form from `dense_bytes` dense bytes, or dense values from it.
double encode_ms(const encoding& stored, std::int64_t dense_bytes, std::int64_t stored_bytes,
                 const machine& m);
double decode_ms(const encoding& stored, std::int64_t dense_bytes, std::int64_t stored_bytes,
                 const machine& m);

/// ms to compute the target of a recipe again from its dense sources.
double recompute_ms(const graph& g, const recipe& r, const machine& m);

}  // namespace stash::planner
