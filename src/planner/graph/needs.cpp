// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/needs.hpp"

#include <algorithm>

namespace stash::planner {

namespace {

std::vector<value_format> lossy_values_of(policy p, const std::vector<value_format>& values) {
  switch (p) {
    case policy::fp16:
      return {value_format::fp16};
    case policy::fp10:
      return {value_format::fp10};
    case policy::fp8:
      return {value_format::fp8_e4m3};
    case policy::automatic:
    case policy::gist:
      return values;
    default:
      return {};
  }
}

}  // namespace

std::vector<value_format> lossy_values(policy p, const std::vector<value_format>& values, bool fine) {
  std::vector<value_format> formats = lossy_values_of(p, values);
  if (!fine || std::all_of(formats.begin(), formats.end(), is_fine)) return formats;
  std::erase_if(formats, [](value_format f) { return !is_fine(f); });
  if (std::find(formats.begin(), formats.end(), value_format::fp16) == formats.end())
    formats.push_back(value_format::fp16);
  return formats;
}

bool encodes(policy p) noexcept {
  return p != policy::none && p != policy::swap_only && p != policy::lms && p != policy::layrub;
}

bool swaps(policy p) noexcept {
  return p != policy::none && p != policy::gist;
}

bool alternative_allowed(policy p, op_kind kind, const op_attributes& attributes, const stash_alternative& a,
                         bool first) {
  if (encodes(p)) return true;
  if (kind == op_kind::generic) return first;
  if (kind == op_kind::batch_norm_backward && attributes.fused_relu) return a.form == "from_x_and_y";
  return a.form == "from_x" || a.form == "from_y" || a.form == "from_mask" || a.form == "from_probabilities";
}

bool kept_sparsely(const stash_choice& c) noexcept {
  return c.kind == stash_kind::encoded &&
         (c.stored.kind == encoding_kind::bitmap || c.stored.kind == encoding_kind::csr);
}

bool kept_exactly(const stash_choice& c) noexcept {
  return c.kind == stash_kind::raw || (kept_sparsely(c) && c.stored.values == value_format::source);
}

namespace {

bool encoded_serves(const encoding& e, need what) noexcept {
  switch (e.kind) {
    case encoding_kind::sign_mask:
      return what == need::sign || what == need::mask;
    case encoding_kind::window_index:
      return what == need::window;
    case encoding_kind::relu_pool:
      return what == need::sign_window;
    case encoding_kind::range_mask:
      return what == need::range;
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      if (what == need::sign || what == need::value) return true;
      if (what == need::fine_value) return is_fine(e.values);
      return (what == need::range || what == need::exact_value) && e.values == value_format::source;
    case encoding_kind::cast:
      return what == need::value || (what == need::fine_value && is_fine(e.values)) ||
             (what == need::sign && e.underflow == underflow_rule::keep_nonzero);
    case encoding_kind::raw:
    case encoding_kind::shape_only:
      break;
  }
  return false;
}

}  // namespace

bool adds_mask(const stash_choice& c) noexcept {
  return c.kind == stash_kind::recompute &&
         (c.stored.kind == encoding_kind::sign_mask || c.stored.kind == encoding_kind::range_mask);
}

bool is_gated(const graph& g, const recipe& r) {
  return r.ops.size() == 1 && g.op_at(r.ops[0]).kind == op_kind::batch_norm;
}

void kept_sources::add(const stash_choice& source) noexcept {
  // What is computed again itself is not kept.
  values = values && serves(source, need::value, nullptr);
  fine_values = fine_values && serves(source, need::fine_value, nullptr);
  exact = exact && kept_exactly(source);
}

bool serves(const stash_choice& c, need what, const kept_sources* sources) noexcept {
  switch (c.kind) {
    case stash_kind::none:
      return false;
    case stash_kind::raw:
      return what != need::window && what != need::sign_window;
    case stash_kind::encoded:
      return encoded_serves(c.stored, what);
    case stash_kind::recompute: {
      if (sources == nullptr || !sources->values) return false;
      if (what == need::exact_value) return sources->exact;
      if (what == need::sign) return c.stored.kind == encoding_kind::sign_mask || sources->exact;
      if (what == need::range) return c.stored.kind == encoding_kind::range_mask || sources->exact;
      if (what == need::fine_value) return sources->fine_values;
      return what == need::value;
    }
  }
  return false;
}

bool reads_directly(op_kind kind, need what, const stash_choice& c, bool whole) noexcept {
  if (c.kind != stash_kind::encoded && !adds_mask(c)) return false;
  const encoding_kind e = c.stored.kind;
  switch (what) {
    case need::window:
    case need::sign_window:
    case need::mask:
      return true;
    case need::sign:
      if (!whole) return false;
      if (kind == op_kind::leaky_relu_backward) return e == encoding_kind::sign_mask;
      return (kind == op_kind::relu_backward || kind == op_kind::relu_max_pool_backward ||
              kind == op_kind::batch_norm_backward || kind == op_kind::generic) &&
             (e == encoding_kind::sign_mask || e == encoding_kind::bitmap || e == encoding_kind::cast);
    case need::range:
      return whole && (kind == op_kind::relu6_backward || kind == op_kind::generic) &&
             e == encoding_kind::range_mask;
    case need::value:
    case need::fine_value:
    case need::exact_value:
      break;
  }
  return false;
}

}  // namespace stash::planner
