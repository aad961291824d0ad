// SPDX-License-Identifier: Apache-2.0
// Gist (Jain et al., ISCA 2018): what is stored follows from what kind of layers write and read a map.

#include <algorithm>
#include <array>
#include <string_view>

#include "planner/baselines/policies.hpp"
#include "planner/graph/needs.hpp"
#include "planner/memory/options.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

class gist {
 public:
  gist(const graph& g, value_format narrow, double margin) : g_(g), narrow_(narrow), margin_(margin) {}

  configuration decide(const component& c, const id_vector<storage_id, std::vector<reader>>& fixed) const {
    configuration f;
    for (const op_id o : c.ops)
      f.alternatives.push_back(alternative(g_.op_at(o)));
    for (const storage_id s : c.storages) {
      std::vector<reader> readers = fixed[s];
      for (std::size_t k = 0; k < c.ops.size(); ++k) {
        for (const stash_read& r : g_.op_at(c.ops[k]).alternatives[f.alternatives[k]].reads) {
          if (r.storage == s) readers.push_back({c.ops[k], r.what, r.slice.whole()});
        }
      }
      f.choices.push_back(keep(g_.at(s), readers));
      const stash_choice& choice = f.choices.back();
      f.kept_bytes += aligned(choice.bytes_after);
      if (choice.kind != stash_kind::encoded) continue;
      f.codec_bytes += choice.bytes_before;
      for (const reader& r : readers) {
        if (!reads_directly(g_.op_at(r.op).kind, r.what, choice, r.whole))
          f.codec_bytes += choice.bytes_before;
      }
    }
    return f;
  }

 private:
  // Codes instead of maps where the op can do with them, else what frameworks read. A norm joined with a ReLU
  // takes the sign from its output, so that its input may be rounded.
  static std::int32_t alternative(const op& o) {
    constexpr std::array<std::string_view, 5> preferred{"from_code", "from_index_and_y", "from_index",
                                                        "from_x_and_y", "from_mask"};
    for (const std::string_view form : preferred) {
      for (std::size_t a = 0; a < o.alternatives.size(); ++a) {
        if (o.alternatives[a].form == form) return static_cast<std::int32_t>(a);
      }
    }
    return 0;
  }

  stash_choice keep(const storage& s, const std::vector<reader>& readers) const {
    stash_choice choice;
    choice.bytes_before = s.role == storage_role::auxiliary ? 0 : s.bytes(g_.batch);
    choice.density = s.density;
    if (readers.empty()) return choice;
    const auto wants = [&](need what) {
      return std::any_of(readers.begin(), readers.end(), [what](const reader& r) { return r.what == what; });
    };
    const auto as_kind = [&](encoding_kind kind) {
      stash_choice x = choice;
      x.kind = stash_kind::encoded;
      x.stored.kind = kind;
      return x;
    };
    stash_choice raw = choice;
    raw.kind = stash_kind::raw;
    raw.bytes_after = s.bytes(g_.batch);
    if (s.role == storage_role::auxiliary) {
      if (std::any_of(readers.begin(), readers.end(), [](const reader& r) { return wants_values(r.what); }))
        return raw;
      stash_choice code = as_kind(wants(need::mask)     ? encoding_kind::sign_mask
                                  : wants(need::window) ? encoding_kind::window_index
                                                        : encoding_kind::relu_pool);
      code.stored.window_taps = static_cast<std::uint16_t>(s.window_taps);
      return sized(s, code);
    }
    if (s.role != storage_role::feature_map || s.type == dtype::s32 || s.type == dtype::u8) return raw;
    for (const encoding_kind mask : {encoding_kind::sign_mask, encoding_kind::range_mask}) {
      const stash_choice bits = as_kind(mask);
      if (std::all_of(readers.begin(), readers.end(), [&](const reader& r) {
            return serves(bits, r.what, nullptr) &&
                   reads_directly(g_.op_at(r.op).kind, r.what, bits, r.whole);
          }))
        return sized(s, bits);
    }
    const bool exact = wants(need::exact_value) || wants(need::range);
    const value_format narrow = wants(need::fine_value) && !is_fine(narrow_) ? value_format::fp16 : narrow_;
    const underflow_rule underflow =
        wants(need::sign) && !exact ? underflow_rule::keep_nonzero : underflow_rule::to_zero;
    stash_choice best = raw;
    const auto offer = [&](stash_choice x) {
      x.stored.values = exact ? value_format::source : narrow;
      x.stored.underflow = underflow;
      x = sized(s, x);
      if (x.bytes_after < best.bytes_after) best = x;
    };
    // Reduced precision everywhere; below the break-even of csr, csr with reduced values.
    if (!exact && is_narrower(narrow, s.type)) offer(as_kind(encoding_kind::cast));
    if (s.density < 1.0) offer(as_kind(encoding_kind::csr));
    return best;
  }

  stash_choice sized(const storage& s, stash_choice c) const {
    const double density = std::min(1.0, s.density * (1.0 + margin_));
    c.bytes_after =
        static_cast<std::int64_t>(encoded_bytes_at_density(c.stored, s.type, s.elements(g_.batch), density));
    return c;
  }

  const graph& g_;
  value_format narrow_;
  double margin_;
};

}  // namespace

plan_options gist_values(plan_options options) {
  if (options.values.empty()) options.values = {value_format::fp16};
  options.values.resize(1);
  return options;
}

option_set gist_options(const graph& g, const plan_options& options, double margin) {
  if (!options.tensors.empty() || !options.force.empty()) {
    throw error(errc::invalid_argument,
                "make_plan: policy: expected no rules for tensors and no forced encoding with gist, which "
                "decides by layer pairs alone");
  }
  plan_options frameworks = options;
  frameworks.chosen_policy = policy::none;
  option_set set = make_options(g, frameworks, margin);
  const gist rule(g, options.values.empty() ? value_format::fp16 : options.values.front(), margin);
  for (component& c : set.components)
    c.configurations = {rule.decide(c, set.fixed_readers)};
  return set;
}

}  // namespace stash::planner
