// SPDX-License-Identifier: Apache-2.0
#include "planner/choice_reason.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/graph/cost.hpp"
#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

bool policy_has(const plan_options& options, value_format f) {
  const std::vector<value_format> formats = lossy_values(options.chosen_policy, options.values, false);
  return std::find(formats.begin(), formats.end(), f) != formats.end();
}

bool any_wants(const std::vector<reader>& readers, need what) {
  return std::any_of(readers.begin(), readers.end(), [what](const reader& r) { return r.what == what; });
}

std::string image_reason(dtype type) {
  const std::size_t bytes = size_of(type);
  return fmt::format("images are kept as they came, {} per value", bytes == 1   ? "one byte"
                                                                   : bytes == 2 ? "two bytes"
                                                                                : "four bytes");
}

/// Whether the user's rules leave fewer forms than there are. Moving to the host is no form.
bool has_rule(const storage& s, const plan_options& options) {
  const tensor_rule* const rule = rule_for(options.tensors, s.name);
  if (rule == nullptr) return false;
  return !rule->deny || std::any_of(rule->forms.begin(), rule->forms.end(),
                                    [](const std::string& form) { return form != "swap"; });
}

std::string raw_reason(const stash_choice& c, const storage& s, const plan_options& options,
                       const std::vector<reader>& readers) {
  if (s.role == storage_role::image) return image_reason(s.type);
  if (!encodes(options.chosen_policy)) return "the policy encodes nothing";
  if (has_rule(s, options)) return "a rule for this tensor says how it may be kept";
  if (options.force == "raw") return "keeping tensors as they are was asked for";
  const bool value =
      std::any_of(readers.begin(), readers.end(), [](const reader& r) { return wants_values(r.what); });
  if (s.role == storage_role::auxiliary && value)
    return "what an op keeps in addition to its outputs stays as it is";
  if (s.type == dtype::s32 || (s.type == dtype::u8 && value)) return "integers have no smaller form";
  const bool may_round = !lossy_values(options.chosen_policy, options.values, false).empty() &&
                         !any_wants(readers, need::exact_value);
  if (c.density >= 1.0 && value && !may_round)
    return "dense values are needed, and no allowed encoding keeps them in less";
  if (options.budget_bytes > 0) return "the budget is met without encoding it";
  if (options.model) return "the machine's memory suffices without encoding it";
  return "keeping it costs nothing at the peak, so no time is spent on encoding it";
}

std::string encoded_reason(const stash_choice& c, const plan_options& options,
                           const std::vector<reader>& readers) {
  switch (c.stored.kind) {
    case encoding_kind::sign_mask:
      return any_wants(readers, need::mask) ? "backward needs only which values were kept"
                                            : "backward needs only the sign";
    case encoding_kind::window_index:
      return "backward needs only the argmax of each window";
    case encoding_kind::relu_pool:
      return "backward needs only the argmax and whether the gradient passes";
    case encoding_kind::range_mask:
      return "backward needs only which values lie between the bounds";
    case encoding_kind::csr:
    case encoding_kind::bitmap:
      return fmt::format("about {:.0f} % of the values are zero; the mask also answers the sign",
                         100.0 * (1.0 - c.density));
    case encoding_kind::cast:
      if (!policy_has(options, c.stored.values))
        return "a reader needs 16 bits at least, and too few values are zero for a bitmap";
      return "the policy allows fewer bits, and too few values are zero for a bitmap";
    case encoding_kind::raw:
    case encoding_kind::shape_only:
      break;
  }
  return "";
}

std::string recompute_reason(const id_vector<storage_id, stash_choice>& choices, const graph& g,
                             storage_id id, const plan_options& options, const std::vector<reader>& readers) {
  const stash_choice& c = choices[id];
  const recipe& r = g.recipes[c.recipe];
  kept_sources kept;
  std::string sources, ops;
  for (const storage_id s : r.sources) {
    kept.add(choices[s]);
    sources += (sources.empty() ? "" : ", ") + g.at(s).name;
  }
  for (const op_id o : r.ops)
    ops += (ops.empty() ? "" : ", ") + g.op_at(o).name;
  std::string text = r.ops.size() > 1 || r.sources.size() > 1
                         ? fmt::format("computed again from {} by {}", sources, ops)
                     : g.op_at(r.ops[0]).kind == op_kind::batch_norm
                         ? std::string("computed again from the kept input of the norm")
                         : fmt::format("computed again from the kept input of {}", ops);
  const bool gated = is_gated(g, r);
  text += adds_mask(c) && gated ? ", gated by one bit per value"
          : kept.exact          ? ", bit for bit"
                                : ", as exactly as that is kept";
  if (adds_mask(c) && !gated) text += "; a mask says where the gradient passes";
  if (options.model) {
    const auto times = std::count_if(readers.begin(), readers.end(), [&](const reader& x) {
      return !reads_directly(g.op_at(x.op).kind, x.what, c, x.whole);
    });
    text += fmt::format(": +{:.3g} ms",
                        static_cast<double>(times) * cost_model_of(*options.model)->recompute_ms(g, r));
  }
  return text;
}

}  // namespace

std::string reason_for(const id_vector<storage_id, stash_choice>& choices, const graph& g, storage_id id,
                       const plan_options& options, const std::vector<reader>& readers) {
  const stash_choice& c = choices[id];
  if (readers.empty()) return "no chosen backward op reads it";
  switch (c.kind) {
    case stash_kind::none:
      return "no chosen backward op reads it";
    case stash_kind::raw:
      return raw_reason(c, g.at(id), options, readers);
    case stash_kind::recompute:
      return recompute_reason(choices, g, id, options, readers);
    case stash_kind::encoded:
      return encoded_reason(c, options, readers);
  }
  return "";
}

}  // namespace stash::planner
