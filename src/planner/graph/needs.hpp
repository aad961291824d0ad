// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The needs table (docs/needs.md) as code: which stored forms serve which needs, what a policy may use, and
/// what kernels read without decoding.

#include <vector>

#include "planner/plan.hpp"

namespace stash::planner {

/// The value formats that a policy adds to the lossless ones; `values` are those that the user allows.
/// `fine`: for readers that want 16 bits at least (need fine_value), which get fp16 in place of anything
/// narrower.
std::vector<value_format> lossy_values(policy p, const std::vector<value_format>& values, bool fine);

/// Whether values of this format have 16 bits at least, each for itself.
constexpr bool is_fine(value_format f) noexcept {
  return f == value_format::source || f == value_format::fp16 || f == value_format::bf16;
}

/// Whether a need is met by dense values alone, which encoded bytes have to be decoded to.
constexpr bool wants_values(need what) noexcept {
  return what == need::value || what == need::fine_value || what == need::exact_value;
}

/// Whether a policy encodes or computes anything again, and whether its plans may use the host.
bool encodes(policy p) noexcept;
bool swaps(policy p) noexcept;

/// Whether `p` may use this alternative at all (policy none: what an unencoded framework would read).
/// `first`: it is the op's first one.
bool alternative_allowed(policy p, op_kind kind, const op_attributes& attributes, const stash_alternative& a,
                         bool first);

/// Whether the kept form is a bitmap or csr, whose size depends on the values.
bool kept_sparsely(const stash_choice& c) noexcept;

/// Whether a kept form gives back the source bits: raw, or a lossless value encoding.
bool kept_exactly(const stash_choice& c) noexcept;

/// Whether one bit or two are kept per value in addition to what a map is computed again from.
bool adds_mask(const stash_choice& c) noexcept;

/// Whether a sign mask sets values to zero where a recipe's sources have lost the signs: for a norm and its
/// ReLU. Of other recipes a mask only answers readers that take its bits.
bool is_gated(const graph& g, const recipe& r);

/// What the kept forms of a recipe's sources have in common.
struct kept_sources {
  bool values = true;       ///< all give values
  bool fine_values = true;  ///< of 16 bits at least
  bool exact = true;        ///< the source bits

  void add(const stash_choice& source) noexcept;
};

/// Whether `c` serves `what`. `sources` are those of its recipe, null if `c` does not recompute.
bool serves(const stash_choice& c, need what, const kept_sources* sources) noexcept;

/// Whether the kernel of `kind` takes the kept bytes as they are (the read covers the whole storage if
/// `whole`). True also for recomputed storages whose sign mask answers the read.
bool reads_directly(op_kind kind, need what, const stash_choice& c, bool whole) noexcept;

}  // namespace stash::planner
