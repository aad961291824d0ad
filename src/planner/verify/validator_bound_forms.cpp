// SPDX-License-Identifier: Apache-2.0
// What a plan may choose: every form of a storage that policy, types and the user's rules allow, and which
// forms an op can read (docs/needs.md).

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "planner/graph/names.hpp"
#include "planner/verify/validator_bound.hpp"
#include "stash/error.hpp"

namespace stash::planner::validation {
namespace {

bool keeps_dense(policy p) {
  return p == policy::none || p == policy::swap_only || p == policy::lms || p == policy::layrub;
}

// * stands for any text.
bool fits(std::string_view pattern, std::string_view text) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  text.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  // Parts between stars are found from left to right, the last one at the end.
  while (true) {
    const std::size_t next = pattern.find('*');
    const std::string_view part = pattern.substr(0, next);
    if (next == std::string_view::npos)
      return text.size() >= part.size() && text.substr(text.size() - part.size()) == part;
    const std::size_t found = text.find(part);
    if (found == std::string_view::npos) return false;
    text.remove_prefix(found + part.size());
    pattern.remove_prefix(next + 1);
  }
}

bool is_sparse(const encoding& e) {
  return e.kind == encoding_kind::bitmap || e.kind == encoding_kind::csr;
}

bool gives_values(const legal_form& f) {
  return f.kind == stash_kind::raw ||
         (f.kind == stash_kind::encoded && (is_sparse(f.stored) || f.stored.kind == encoding_kind::cast));
}

bool gives_exact_values(const legal_form& f) {
  return f.kind == stash_kind::raw ||
         (f.kind == stash_kind::encoded && is_sparse(f.stored) && f.stored.values == value_format::source);
}

// Ops whose kernels look at bits instead of values.
bool takes_signs(op_kind kind, encoding_kind stored) {
  switch (kind) {
    case op_kind::leaky_relu_backward:
      return stored == encoding_kind::sign_mask;
    case op_kind::relu_backward:
    case op_kind::relu_max_pool_backward:
    case op_kind::batch_norm_backward:
    case op_kind::generic:
      return stored == encoding_kind::sign_mask || stored == encoding_kind::bitmap ||
             stored == encoding_kind::cast;
    default:
      return false;
  }
}

bool takes_ranges(op_kind kind) {
  return kind == op_kind::relu6_backward || kind == op_kind::generic;
}

access read_encoded(const op& o, const stash_read& r, const encoding& e) {
  const bool whole = r.slice.whole();
  switch (r.what) {
    case need::mask:
      return e.kind == encoding_kind::sign_mask ? access::direct : access::illegal;
    case need::window:
      return e.kind == encoding_kind::window_index ? access::direct : access::illegal;
    case need::sign_window:
      return e.kind == encoding_kind::relu_pool ? access::direct : access::illegal;
    case need::range:
      if (is_sparse(e) && e.values == value_format::source) return access::decoded;
      return e.kind == encoding_kind::range_mask && whole && takes_ranges(o.kind) ? access::direct
                                                                                  : access::illegal;
    case need::sign:
      if (whole && takes_signs(o.kind, e.kind)) return access::direct;
      return is_sparse(e) || e.kind == encoding_kind::cast ? access::decoded : access::illegal;
    case need::value:
      return is_sparse(e) || e.kind == encoding_kind::cast ? access::decoded : access::illegal;
    case need::fine_value:
      return (is_sparse(e) || e.kind == encoding_kind::cast) && has_16_bits(e.values) ? access::decoded
                                                                                      : access::illegal;
    case need::exact_value:
      return is_sparse(e) && e.values == value_format::source ? access::decoded : access::illegal;
  }
  return access::illegal;
}

}  // namespace

bool policy_allows_values(const plan& p, value_format values) {
  if (values == value_format::source) return true;
  switch (p.chosen_policy) {
    case policy::fp16:
      return values == value_format::fp16;
    case policy::fp10:
      return values == value_format::fp10;
    case policy::fp8:
      return values == value_format::fp8_e4m3;
    case policy::automatic:
    case policy::gist:
      return std::find(p.values.begin(), p.values.end(), values) != p.values.end();
    default:
      return false;
  }
}

bool has_16_bits(value_format values) {
  return values == value_format::source || values == value_format::fp16 || values == value_format::bf16;
}

bool stands_for_narrower(const plan& p, value_format values) {
  return values == value_format::fp16 &&
         std::any_of(value_formats.begin(), value_formats.end(), [&p](const value_format_info& f) {
           return f.bits != 16 && policy_allows_values(p, f.format);
         });
}

const tensor_rule* last_rule(const std::vector<tensor_rule>& rules, std::string_view name) {
  const auto rule = std::find_if(rules.rbegin(), rules.rend(),
                                 [name](const tensor_rule& r) { return fits(r.pattern, name); });
  return rule == rules.rend() ? nullptr : &*rule;
}

bool rules_allow(const std::vector<tensor_rule>& rules, std::string_view name, std::string_view form) {
  const tensor_rule* const r = last_rule(rules, name);
  if (r == nullptr) return true;
  const bool named = std::find(r->forms.begin(), r->forms.end(), form) != r->forms.end();
  return r->deny ? !named : named;
}

legal_set::legal_set(const plan& p)
    : p_(p),
      g_(p.network),
      stashed_(g_.storages.size(), 0),
      stays_(g_.storages.size(), 0),
      fine_(g_.storages.size(), 0),
      signs_(g_.storages.size(), 0),
      ranges_(g_.storages.size(), 0),
      lives_(g_.storages.size()),
      recipes_of_(g_.storages.size()) {
  moves_ = p.swap && p.model && p.chosen_policy != policy::none && p.chosen_policy != policy::gist;
  op_id number = no_id;
  for (const op& o : g_.ops) {
    const auto use = [&, t = ++number](storage_id s) {
      dense_life& l = lives_[s];
      if (!l.first.valid()) l.first = t;
      if (o.stage == op_stage::forward) l.last_forward = t;
      l.last = t;
    };
    for (const tensor_ref& r : o.inputs)
      use(r.storage);
    for (const tensor_ref& r : o.outputs)
      use(r.storage);
    for (const storage_id s : o.optional_outputs)
      use(s);
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        stashed_[r.storage] = 1;
        if (r.what == need::fine_value) fine_[r.storage] = 1;
        if (r.what == need::sign) signs_[r.storage] = 1;
        if (r.what == need::range) ranges_[r.storage] = 1;
      }
    }
  }
  for (const recipe_id i : g_.recipes.ids()) {
    const recipe& r = g_.recipes[i];
    const bool kept =
        std::all_of(r.sources.begin(), r.sources.end(), [this](storage_id s) { return stashed(s); });
    if (stashed(r.target) && kept) recipes_of_[r.target].push_back(i);
  }
  for (const storage_id s : g_.storages.ids())
    stays_[s] = rules_allow(p.tensors, g_.storages[s].name, "swap") ? 0 : 1;
}

std::vector<std::int32_t> legal_set::alternatives(op_id t) const {
  const op& o = g_.ops[t];
  std::vector<std::int32_t> list;
  for (std::size_t a = 0; a < o.alternatives.size(); ++a) {
    const std::string& form = o.alternatives[a].form;
    const bool fused_norm = o.kind == op_kind::batch_norm_backward && o.attributes.fused_relu;
    bool may = true;
    // An op with one way to run runs that way.
    if (keeps_dense(p_.chosen_policy) && o.alternatives.size() > 1) {
      if (o.kind == op_kind::generic) {
        may = a == 0;
      } else {
        may = fused_norm ? form == "from_x_and_y"
                         : form == "from_x" || form == "from_y" || form == "from_mask" ||
                               form == "from_probabilities";
      }
    }
    if (may) list.push_back(static_cast<std::int32_t>(a));
  }
  return list;
}

bool legal_set::value_format_allowed(storage_id s, value_format f) const {
  return policy_allows_values(p_, f) || (fine_[s] != 0 && stands_for_narrower(p_, f));
}

bool legal_set::gates(const recipe& r) const {
  return r.ops.size() == 1 && g_.ops[r.ops[0]].kind == op_kind::batch_norm;
}

// One list, whose order is that of the proof: what is legal for a storage is read here from top to bottom.
std::vector<legal_form> legal_set::forms(storage_id id, bool casts_only, double margin) const {
  const storage& s = g_.storages[id];
  const std::int64_t n = elements_of(s, g_.batch);
  const double density = s.density * (1.0 + margin);
  const auto bytes_of = [&](const encoding& e) -> std::int64_t {
    try {
      return static_cast<std::int64_t>(
          encoded_bytes_at_density(e, s.type, n, density >= 0.0 && density < 1.0 ? density : 1.0));
    } catch (const error& wrong) {
      if (wrong.code() == errc::out_of_memory) throw;
      return -1;  // has no meaning for this type
    }
  };
  std::vector<legal_form> list(1);
  if (allowed(s, "raw")) {
    legal_form raw;
    raw.kind = stash_kind::raw;
    raw.kept = round_up(s.bytes(g_.batch));
    list.push_back(raw);
  }
  const bool is_input = s.role == storage_role::image || s.role == storage_role::label;
  if (is_input || keeps_dense(p_.chosen_policy)) return list;
  const auto add = [&](const encoding& e) {
    if (casts_only && e.kind != encoding_kind::cast) return;
    const std::int64_t bytes = bytes_of(e);
    if (bytes < 0 || bytes > largest_size || !allowed(s, to_string(e))) return;
    legal_form f;
    f.kind = stash_kind::encoded;
    f.stored = e;
    f.kept = round_up(bytes);
    if (is_sparse(e)) {
      const double share = static_cast<double>(f.kept) * p_.overflow_share;
      f.overflow = share > 0.0 ? std::trunc(std::min(share, static_cast<double>(largest_size))) : 0.0;
    }
    list.push_back(f);
  };
  encoding mask, range;
  mask.kind = encoding_kind::sign_mask;
  range.kind = encoding_kind::range_mask;
  if (s.role == storage_role::auxiliary) {
    // Forward ops write their codes themselves: there is no other form.
    add(mask);
    for (const encoding_kind kind : {encoding_kind::window_index, encoding_kind::relu_pool}) {
      encoding code;
      code.kind = kind;
      code.window_taps = static_cast<std::uint16_t>(s.window_taps);
      add(code);
    }
    return list;
  }
  const bool integers = s.type == dtype::u8 || s.type == dtype::s32;
  if (s.type != dtype::s32) add(mask);
  if (!integers) {
    add(range);
    const auto add_values = [&](value_format values) {
      encoding e;
      e.values = values;
      if (values != value_format::source) e.underflow = underflow_rule::keep_nonzero;
      e.kind = encoding_kind::bitmap;
      const std::int64_t as_bitmap = bytes_of(e);
      add(e);
      // A csr that is no smaller takes as long and is read by nobody directly: the bitmap stands for it.
      e.kind = encoding_kind::csr;
      if (bytes_of(e) < as_bitmap) add(e);
      e.kind = encoding_kind::cast;
      if (values != value_format::source) add(e);
    };
    add_values(value_format::source);
    for (const value_format_info& f : value_formats) {
      if (value_format_allowed(id, f.format)) add_values(f.format);
    }
  }
  if (casts_only || !allowed(s, "recompute")) return list;
  for (const recipe_id number : recipes(id)) {
    legal_form form;
    form.kind = stash_kind::recompute;
    form.stored.kind = encoding_kind::shape_only;
    form.again = &g_.recipes[number];
    form.gated = gates(*form.again);
    list.push_back(form);
    const auto add_masked = [&](const encoding& e) {
      legal_form masked = form;
      masked.stored = e;
      masked.kept = round_up(std::max<std::int64_t>(0, bytes_of(e)));
      list.push_back(masked);
    };
    const bool answers = g_.ops[form.again->ops.back()].kind != op_kind::batch_norm;
    if (!integers && (form.gated || (answers && signs_[id] != 0))) add_masked(mask);
    if (!integers && answers && ranges_[id] != 0) add_masked(range);
  }
  return list;
}

void source_forms::add(const legal_form& f) {
  values = values && gives_values(f);
  exact = exact && gives_exact_values(f);
  fine_values = fine_values && (f.kind != stash_kind::encoded || has_16_bits(f.stored.values));
}

access legal_set::read(const op& o, const stash_read& r, const legal_form& f, const source_forms& sources) {
  switch (f.kind) {
    case stash_kind::none:
      return access::illegal;
    case stash_kind::raw:
      return r.what == need::window || r.what == need::sign_window ? access::illegal : access::direct;
    case stash_kind::encoded:
      return read_encoded(o, r, f.stored);
    case stash_kind::recompute:
      break;
  }
  if (!sources.values) return access::illegal;
  const encoding_kind mask = f.stored.kind;
  const access from_values = sources.exact ? access::recomputed : access::illegal;
  switch (r.what) {
    case need::exact_value:
      return from_values;
    case need::fine_value:
      return sources.fine_values ? access::recomputed : access::illegal;
    case need::value:
      return access::recomputed;
    case need::sign:
      if (mask != encoding_kind::sign_mask) return from_values;
      if (r.slice.whole() && takes_signs(o.kind, mask)) return access::direct;
      return f.gated ? access::recomputed : from_values;
    case need::range:
      if (mask == encoding_kind::range_mask && r.slice.whole() && takes_ranges(o.kind)) return access::direct;
      return from_values;
    default:
      return access::illegal;
  }
}

bool legal_set::movable(storage_id id, std::int64_t kept) const {
  const storage_role role = g_.storages[id].role;
  return moves_ && p_.model->out_bytes_per_second > 0.0 && p_.model->in_bytes_per_second > 0.0 &&
         (role == storage_role::feature_map || role == storage_role::auxiliary ||
          role == storage_role::image) &&
         stays_[id] == 0 && kept > 0 && kept >= p_.smallest_swap;
}

}  // namespace stash::planner::validation
