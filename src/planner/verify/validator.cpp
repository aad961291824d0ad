// SPDX-License-Identifier: Apache-2.0
#include "planner/verify/validator.hpp"

#include <algorithm>
#include <exception>
#include <new>

#include "planner/verify/validator_internal.hpp"
#include "stash/error.hpp"

namespace stash::planner {

std::string_view to_string(plan_fault fault) noexcept {
  switch (fault) {
    case plan_fault::bad_graph:
      return "bad_graph";
    case plan_fault::bad_reference:
      return "bad_reference";
    case plan_fault::bad_order:
      return "bad_order";
    case plan_fault::bad_alignment:
      return "bad_alignment";
    case plan_fault::bad_overlap:
      return "bad_overlap";
    case plan_fault::bad_lifetime:
      return "bad_lifetime";
    case plan_fault::bad_size:
      return "bad_size";
    case plan_fault::missing_value:
      return "missing_value";
    case plan_fault::illegal_encoding:
      return "illegal_encoding";
    case plan_fault::lost_sign:
      return "lost_sign";
    case plan_fault::bad_totals:
      return "bad_totals";
    case plan_fault::over_budget:
      return "over_budget";
    case plan_fault::bad_bound:
      return "bad_bound";
    case plan_fault::bad_times:
      return "bad_times";
  }
  return "unknown";
}

std::vector<plan_finding> validate(const plan& p, double* proven_ms) {
  using namespace validation;
  if (proven_ms != nullptr) *proven_ms = 0.0;
  const graph& g = p.network;
  finding_list found;
  // Own checks first: they are what makes the rest of this function safe, whatever check_graph looks at.
  check_references(g, found);
  if (found.empty()) {
    try {
      check_graph(g);
    } catch (const std::bad_alloc&) {
      throw;  // says nothing of the plan
    } catch (const std::exception& e) {
      found.add(plan_fault::bad_graph, "{}", e.what());
    }
  }
  if (!found.empty()) return found.take();

  if (p.choices.size() != g.storages.size()) {
    found.add(plan_fault::bad_reference, "choices: {} for {} storages", p.choices.size(), g.storages.size());
  }
  if (p.alternative.size() != g.ops.size()) {
    found.add(plan_fault::bad_reference, "alternative: {} for {} ops", p.alternative.size(), g.ops.size());
  }
  std::int64_t total = 0;
  for (const buffer& b : p.buffers) {
    if (b.bytes >= 0 && b.bytes <= largest_size && total <= largest_total) total += b.bytes;
  }
  if (total > largest_total) found.add(plan_fault::bad_size, "buffers: more than 2^60 bytes in total");
  check_planned_order(p, found);
  if (!found.empty()) return found.take();

  const graph_history history(g);
  check_alternatives(p, history, found);
  check_choices(p, found);
  check_buffers(p, found);
  check_steps(p, history, found);
  check_totals(p, found);
  check_times(p, found);
  const double proven = check_bound(p, found);
  if (proven_ms != nullptr) *proven_ms = proven;
  return found.take();
}

double proven_bound_ms(const plan& p) {
  validation::finding_list found;
  validation::check_references(p.network, found);
  return found.empty() ? validation::check_bound(p, found) : 0.0;
}

std::int64_t proven_peak_bytes(const plan& p) {
  validation::finding_list found;
  validation::check_references(p.network, found);
  return found.empty() ? validation::least_peak(p) : 0;
}

namespace validation {

std::int64_t elements_of(const storage& s, std::int64_t batch) noexcept {
  std::int64_t n = s.batch_proportional() ? batch : 1;
  for (const std::int64_t d : s.shape) {
    n *= d;
  }
  return n;
}

std::optional<std::int64_t> slot_bytes(const encoding& e, const storage& s, std::int64_t batch,
                                       double density) {
  const std::int64_t n = elements_of(s, batch);
  try {
    const bool csr = e.kind == encoding_kind::csr;
    if (!csr && e.kind != encoding_kind::bitmap)
      return static_cast<std::int64_t>(encoded_bytes_bound(e, s.type, n));
    // The encoder refuses a slot too small for the mask plane or row ends and one table entry per tile.
    const std::int64_t prefix = csr ? (n + csr_row_elements - 1) / csr_row_elements * 2 : (n + 7) / 8;
    const std::int64_t fixed_part = prefix + (n + tile_elements - 1) / tile_elements * 4;
    const auto expected = static_cast<std::int64_t>(encoded_bytes_at_density(e, s.type, n, density));
    return std::max(fixed_part, expected);
  } catch (const error& wrong) {
    if (wrong.code() == errc::out_of_memory) throw;
    return std::nullopt;
  }
}

std::optional<encoding> stored_form(const stash_choice& c) noexcept {
  if (c.kind == stash_kind::encoded) return c.stored;
  const bool mask = c.stored.kind == encoding_kind::sign_mask || c.stored.kind == encoding_kind::range_mask;
  if (c.kind == stash_kind::recompute && mask) return c.stored;
  return std::nullopt;
}

std::optional<std::int64_t> kept_bytes(const stash_choice& c, const storage& s, std::int64_t batch,
                                       double margin) {
  if (c.kind == stash_kind::raw) return s.bytes(batch);
  const std::optional<encoding> stored = stored_form(c);
  if (!stored) return 0;
  const double density = c.density * (1.0 + margin);
  if (!(density >= 0.0)) return std::nullopt;
  try {
    return static_cast<std::int64_t>(
        encoded_bytes_at_density(*stored, s.type, elements_of(s, batch), std::min(1.0, density)));
  } catch (const error& wrong) {
    if (wrong.code() == errc::out_of_memory) throw;
    return std::nullopt;
  }
}

const stash_alternative* chosen_alternative(const plan& p, op_id op) noexcept {
  const alternative_list& offered = p.network.ops[op].alternatives;
  const std::int32_t chosen = p.alternative[op];
  return offered.contains(chosen) ? &offered[chosen] : nullptr;
}

}  // namespace validation
}  // namespace stash::planner
