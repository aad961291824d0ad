// SPDX-License-Identifier: Apache-2.0
// Whether policy and rules allow what the plan picked, and whether each stored form serves every need of the
// chosen alternatives (docs/needs.md). What is refused here is what the bound on the time counts as no
// choice.

#include <algorithm>
#include <array>
#include <string>

#include "planner/verify/validator_bound.hpp"
#include "stash/error.hpp"

namespace stash::planner::validation {
namespace {

bool policy_is_known(policy p) {
  return p <= policy::layrub;
}

// Policies that leave every map as it is, on the device or on the host.
bool keeps_dense(policy p) {
  return p == policy::none || p == policy::swap_only || p == policy::lms || p == policy::layrub;
}

// The unencoded baseline reads dense maps only and asks no forward op for anything but dropout's mask.
bool baseline_allows(const op& o, const stash_alternative& a) {
  if (o.kind == op_kind::generic) return &a == &o.alternatives.front();
  if (o.kind == op_kind::batch_norm_backward && o.attributes.fused_relu) return a.form == "from_x_and_y";
  return a.form == "from_x" || a.form == "from_y" || a.form == "from_mask" || a.form == "from_probabilities";
}

// The recipe that computes the storage again; null where the choice names none of its own.
const recipe* recipe_for(const graph& g, storage_id target, const stash_choice& c) {
  if (!g.recipes.contains(c.recipe)) return nullptr;
  const recipe& r = g.recipes[c.recipe];
  return r.target == target ? &r : nullptr;
}

bool keeps_values(const stash_choice& c) {
  return c.kind == stash_kind::raw ||
         (c.kind == stash_kind::encoded &&
          (c.stored.kind == encoding_kind::bitmap || c.stored.kind == encoding_kind::csr ||
           c.stored.kind == encoding_kind::cast));
}

bool keeps_exact_values(const stash_choice& c) {
  return c.kind == stash_kind::raw ||
         (c.kind == stash_kind::encoded &&
          (c.stored.kind == encoding_kind::bitmap || c.stored.kind == encoding_kind::csr) &&
          c.stored.values == value_format::source);
}

class choice_checker {
 public:
  choice_checker(const plan& p, finding_list& found)
      : p_(p), g_(p.network), found_(found), copies_(g_.storages.size(), {0, 0, 0, 0}) {
    for (const step& s : p.steps) {
      if (s.kind < step_kind::copy_out || s.kind > step_kind::wait_in) continue;
      if (!g_.storages.contains(s.storage)) continue;
      const auto kind = static_cast<std::size_t>(s.kind) - static_cast<std::size_t>(step_kind::copy_out);
      ++copies_[s.storage][kind];
    }
  }

  void run() {
    if (!policy_is_known(p_.chosen_policy)) {
      found_.add(plan_fault::illegal_encoding, "policy: unknown number {}",
                 static_cast<int>(p_.chosen_policy));
    }
    for (std::size_t i = 0; i < g_.storages.size() && !found_.full(); ++i) {
      check_choice(storage_id(i));
    }
    for (std::size_t i = 0; i < g_.ops.size() && !found_.full(); ++i) {
      check_reads(op_id(i));
    }
  }

 private:
  void illegal(storage_id s, std::string_view why) {
    found_.add(plan_fault::illegal_encoding, "storage {}: {}", g_.storages[s].name, why);
  }

  void check_choice(storage_id s) {
    const stash_choice& c = p_.choices[s];
    if (c.swapped) check_swapped(s, c);
    check_figures(s, c);
    switch (c.kind) {
      case stash_kind::none:
        return;
      case stash_kind::raw:
        return check_rules(s, "raw");
      case stash_kind::encoded:
      case stash_kind::recompute:
        break;
      default:
        illegal(s, "unknown kind of choice");
        return;
    }
    if (keeps_dense(p_.chosen_policy)) illegal(s, "the policy keeps everything raw");
    if (c.kind == stash_kind::encoded) {
      check_encoded(s, c);
      try {
        check_rules(s, to_string(c.stored));
      } catch (const error& wrong) {
        if (wrong.code() == errc::out_of_memory) throw;
        return;  // has no name: an unknown form, which was reported
      }
    } else {
      check_rules(s, "recompute");
      check_recompute(s, c);
    }
  }

  // Bytes before and after, and the density that they were computed with.
  void check_figures(storage_id s, const stash_choice& c) {
    const storage& block = g_.storages[s];
    const bool kept = c.kind != stash_kind::none;
    // What a forward op writes in addition to its outputs saves nothing: without the plan it would not be
    // there.
    const std::int64_t before = block.role == storage_role::auxiliary ? 0 : block.bytes(g_.batch);
    if (c.bytes_before != before &&
        (kept || (c.bytes_before != 0 && c.bytes_before != block.bytes(g_.batch)))) {
      found_.add(plan_fault::bad_totals, "storage {}: bytes_before: reported {}, is {}", block.name,
                 c.bytes_before, before);
    }
    const std::optional<std::int64_t> after = kept_bytes(c, block, g_.batch, p_.slot_margin);
    if (after && c.bytes_after != *after) {
      found_.add(plan_fault::bad_totals, "storage {}: bytes_after: reported {}, is {}", block.name,
                 c.bytes_after, *after);
    }
    const bool sparse = c.kind == stash_kind::encoded &&
                        (c.stored.kind == encoding_kind::bitmap || c.stored.kind == encoding_kind::csr);
    if (sparse && c.density < block.density) {
      found_.add(plan_fault::bad_size, "storage {}: sized for a density of {}, the graph says {}", block.name,
                 c.density, block.density);
    }
  }

  void check_swapped(storage_id s, const stash_choice& c) {
    const storage_role role = g_.storages[s].role;
    if (role != storage_role::feature_map && role != storage_role::auxiliary && role != storage_role::image)
      illegal(s, "only maps and images are swapped");
    if (c.kind != stash_kind::raw && !stored_form(c)) illegal(s, "swapped, but nothing of it is kept");
    if (p_.chosen_policy == policy::none || p_.chosen_policy == policy::gist)
      illegal(s, "the policy moves nothing");
    check_rules(s, "swap");
    if (!p_.swap) illegal(s, "swapped in a plan that moves nothing");
    if (p_.model && !(p_.model->out_bytes_per_second > 0.0 && p_.model->in_bytes_per_second > 0.0))
      illegal(s, "swapped on a machine without a link");
    const std::optional<std::int64_t> kept = kept_bytes(c, g_.storages[s], g_.batch, p_.slot_margin);
    if (kept && round_up(*kept) < p_.smallest_swap) illegal(s, "swapped, but smaller than what may move");
    if (copies_[s] != std::array{1, 1, 1, 1}) illegal(s, "swapped, but not copied to the host and back once");
  }

  // What the user says of this tensor.
  void check_rules(storage_id s, std::string_view form) {
    const std::string& name = g_.storages[s].name;
    if (rules_allow(p_.tensors, name, form)) return;
    found_.add(plan_fault::illegal_encoding, "storage {}: the rules for tensors do not allow {}", name, form);
  }

  void check_encoded(storage_id s, const stash_choice& c) {
    const storage& block = g_.storages[s];
    if (block.role == storage_role::image || block.role == storage_role::label) {
      illegal(s, "images and labels stay raw");
    }
    switch (c.stored.kind) {
      case encoding_kind::shape_only:
      case encoding_kind::sign_mask:
        break;
      case encoding_kind::range_mask:
        if (c.stored.lower != 0.0F || c.stored.upper != 6.0F) illegal(s, "bounds that are not ReLU6's");
        break;
      case encoding_kind::window_index:
      case encoding_kind::relu_pool:
        if (block.role != storage_role::auxiliary || block.window_taps != c.stored.window_taps) {
          illegal(s, "a pooling code for another window, or for no pooling at all");
        }
        break;
      case encoding_kind::cast:
        if (c.stored.values == value_format::source) illegal(s, "a cast to the source's own format");
        [[fallthrough]];
      case encoding_kind::bitmap:
      case encoding_kind::csr:
        if (!policy_allows_values(p_, c.stored.values) && !is_floor(s, c.stored.values)) {
          illegal(s, "the policy does not allow this value format");
        }
        break;
      default:
        illegal(s, "not an encoded form");
        return;
    }
    if (!slot_bytes(c.stored, block, g_.batch, 1.0)) illegal(s, "the encoding has no meaning for its type");
  }

  // Readers of the chosen alternatives that want 16 bits get fp16 where the policy would round further.
  bool is_floor(storage_id s, value_format values) const {
    if (!stands_for_narrower(p_, values)) return false;
    for (const op_id k : g_.ops.ids()) {
      const stash_alternative* a = chosen_alternative(p_, k);
      if (a == nullptr) continue;
      for (const stash_read& r : a->reads)
        if (r.storage == s && r.what == need::fine_value) return true;
    }
    return false;
  }

  void check_recompute(storage_id s, const stash_choice& c) {
    const recipe* const r = recipe_for(g_, s, c);
    if (r == nullptr) {
      illegal(s, "the graph offers no such recipe for it");
      return;
    }
    for (const storage_id source : r->sources)
      if (!keeps_values(p_.choices[source])) illegal(s, "a recipe needs kept sources");
    const bool norm = g_.ops[r->ops.back()].kind == op_kind::batch_norm;
    if (c.stored.kind == encoding_kind::sign_mask) {
      if (norm && r->ops.size() != 1) illegal(s, "only a norm and its ReLU alone can be gated by a mask");
    } else if (c.stored.kind == encoding_kind::range_mask) {
      if (norm) illegal(s, "a norm and its ReLU are gated by signs");
    } else if (c.stored.kind != encoding_kind::shape_only) {
      illegal(s, "recompute stores a mask or nothing");
    }
  }

  void check_reads(op_id id) {
    const op& o = g_.ops[id];
    const stash_alternative* a = chosen_alternative(p_, id);
    if (a == nullptr) return;
    if (keeps_dense(p_.chosen_policy) && !baseline_allows(o, *a)) {
      found_.add(plan_fault::illegal_encoding, "op {}: the policy does not allow {}", o.name, a->form);
    }
    for (const stash_read& r : a->reads) {
      check_read(o, r);
    }
  }

  void check_read(const op& o, const stash_read& r) {
    const storage& s = g_.storages[r.storage];
    const stash_choice& c = p_.choices[r.storage];
    if (serves(r.storage, c, r.what)) return;
    const bool cast_sign =
        r.what == need::sign && c.kind == stash_kind::encoded && c.stored.kind == encoding_kind::cast;
    if (cast_sign) {
      found_.add(plan_fault::lost_sign, "op {}: reads the sign of {} from a cast that rounds to zero", o.name,
                 s.name);
    } else {
      found_.add(plan_fault::illegal_encoding, "op {}: the stored form of {} does not serve {}", o.name,
                 s.name, to_string(r.what));
    }
  }

  // A gated map has its signs whatever the sources have lost.
  bool recomputed_serves(storage_id s, const stash_choice& c, need what) const {
    const recipe* const r = recipe_for(g_, s, c);
    if (r == nullptr) return false;
    const auto all = [&](auto&& holds) {
      return std::all_of(r->sources.begin(), r->sources.end(),
                         [&](storage_id source) { return holds(p_.choices[source]); });
    };
    switch (what) {
      case need::value:
        return true;
      case need::fine_value:
        return all([](const stash_choice& x) { return has_16_bits(x.stored.values); });
      case need::sign:
        return c.stored.kind == encoding_kind::sign_mask || all(keeps_exact_values);
      case need::range:
        return c.stored.kind == encoding_kind::range_mask || all(keeps_exact_values);
      case need::exact_value:
        return all(keeps_exact_values);
      default:
        return false;
    }
  }

  bool serves(storage_id s, const stash_choice& c, need what) const {
    if (c.kind == stash_kind::none) return false;
    if (c.kind == stash_kind::raw) return what != need::window && what != need::sign_window;
    if (c.kind == stash_kind::recompute) {
      return recomputed_serves(s, c, what);
    }
    const encoding& e = c.stored;
    switch (what) {
      case need::sign:
        return e.kind == encoding_kind::sign_mask || e.kind == encoding_kind::bitmap ||
               e.kind == encoding_kind::csr ||
               (e.kind == encoding_kind::cast && e.underflow == underflow_rule::keep_nonzero);
      case need::range:
        return e.kind == encoding_kind::range_mask || keeps_exact_values(c);
      case need::exact_value:
        return keeps_exact_values(c);
      case need::value:
        return keeps_values(c);
      case need::fine_value:
        return keeps_values(c) && has_16_bits(c.stored.values);
      case need::mask:
        return e.kind == encoding_kind::sign_mask;
      case need::window:
        return e.kind == encoding_kind::window_index;
      case need::sign_window:
        return e.kind == encoding_kind::relu_pool;
    }
    return false;
  }

  const plan& p_;
  const graph& g_;
  finding_list& found_;
  id_vector<storage_id, std::array<int, 4>>
      copies_;  ///< per storage: steps copy_out, wait_out, copy_in, wait_in
};

}  // namespace

void check_choices(const plan& p, finding_list& found) {
  choice_checker(p, found).run();
}

}  // namespace stash::planner::validation
