// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/candidates.hpp"

#include <algorithm>

#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

encoding of_kind(encoding_kind kind) {
  encoding e;
  e.kind = kind;
  return e;
}

}  // namespace

bool has(const std::vector<reader>& readers, need what) {
  return std::any_of(readers.begin(), readers.end(), [what](const reader& r) { return r.what == what; });
}

// Of one storage.
class candidate_forms::list {
 public:
  list(const candidate_forms& all, storage_id id, const std::vector<reader>& readers)
      : all_(all), id_(id), s_(all.g_.at(id)), dense_(s_.bytes(all.g_.batch)), readers_(readers) {
    base_.bytes_before = s_.role == storage_role::auxiliary ? 0 : dense_;
    base_.density = s_.density;
  }

  std::vector<stash_choice> made() {
    if (readers_.empty()) return {base_};
    add(stash_kind::raw, {});
    const bool is_input = s_.role == storage_role::image || s_.role == storage_role::label;
    if (is_input || !encodes(all_.options_.chosen_policy)) return std::move(result_);
    if (s_.role == storage_role::auxiliary) {
      add_code();
      return std::move(result_);
    }
    // Integers, as in maps of other libraries' graphs, have no sparse and no narrower form.
    if (s_.type != dtype::s32) add(stash_kind::encoded, of_kind(encoding_kind::sign_mask));
    if (s_.type == dtype::u8 || s_.type == dtype::s32) return std::move(result_);
    if (has(readers_, need::range)) add(stash_kind::encoded, of_kind(encoding_kind::range_mask));
    add_values();
    for (const recipe_id number : all_.recipes_of_[id_])
      add_recipe(number);
    return std::move(result_);
  }

 private:
  void add(stash_kind kind, const encoding& e, recipe_id recipe = no_id) {
    if (!all_.allowed(s_, kind, e)) return;
    stash_choice choice = base_;
    choice.kind = kind;
    choice.stored = e;
    choice.recipe = recipe;
    choice.bytes_after = all_.kept_bytes(s_, choice);
    const bool fits = kind == stash_kind::recompute ||
                      std::all_of(readers_.begin(), readers_.end(),
                                  [&](const reader& r) { return serves(choice, r.what, nullptr); });
    // What takes no less than the map itself only adds to the combinations.
    const bool useless = kind == stash_kind::encoded && s_.role != storage_role::auxiliary &&
                         all_.options_.force.empty() && !result_.empty() &&
                         result_.front().kind == stash_kind::raw && choice.bytes_after >= dense_;
    if (fits && !useless) result_.push_back(choice);
  }

  // What only a forward op can write.
  void add_code() {
    // What a generic op keeps in addition to its outputs stays as it is.
    if (std::any_of(readers_.begin(), readers_.end(), [](const reader& r) { return wants_values(r.what); }))
      return;
    encoding e = of_kind(has(readers_, need::mask)     ? encoding_kind::sign_mask
                         : has(readers_, need::window) ? encoding_kind::window_index
                                                       : encoding_kind::relu_pool);
    e.window_taps = static_cast<std::uint16_t>(s_.window_taps);
    add(stash_kind::encoded, e);
  }

  void add_values() {
    encoding bitmap = of_kind(encoding_kind::bitmap);
    add_sparse(bitmap);
    for (const value_format lossy :
         lossy_values(all_.options_.chosen_policy, all_.options_.values, has(readers_, need::fine_value))) {
      if (!is_narrower(lossy, s_.type)) continue;
      bitmap.values = lossy;
      bitmap.underflow = has(readers_, need::sign) ? underflow_rule::keep_nonzero : underflow_rule::to_zero;
      add_sparse(bitmap);
      encoding cast = bitmap;
      cast.kind = encoding_kind::cast;
      add(stash_kind::encoded, cast);
    }
  }

  // csr holds the same values and serves the same needs, but no kernel reads it: it is worth a choice only
  // where it is smaller.
  void add_sparse(const encoding& bitmap) {
    add(stash_kind::encoded, bitmap);
    encoding csr = bitmap;
    csr.kind = encoding_kind::csr;
    stash_choice as_bitmap = base_, as_csr = base_;
    as_bitmap.kind = as_csr.kind = stash_kind::encoded;
    as_bitmap.stored = bitmap;
    as_csr.stored = csr;
    if (all_.kept_bytes(s_, as_csr) < all_.kept_bytes(s_, as_bitmap) || all_.options_.force == to_string(csr))
      add(stash_kind::encoded, csr);
  }

  void add_recipe(recipe_id number) {
    const recipe& r = all_.g_.recipes[number];
    add(stash_kind::recompute, of_kind(encoding_kind::shape_only), number);
    // Instead of exact sources: the zeros of the ReLU in a norm, or what readers want to know of bits alone.
    // What a longer recipe makes by a norm has neither.
    const bool answers = all_.g_.op_at(r.ops.back()).kind != op_kind::batch_norm;
    if (is_gated(all_.g_, r) || (answers && has(readers_, need::sign)))
      add(stash_kind::recompute, of_kind(encoding_kind::sign_mask), number);
    if (answers && has(readers_, need::range))
      add(stash_kind::recompute, of_kind(encoding_kind::range_mask), number);
  }

  const candidate_forms& all_;
  const storage_id id_;
  const storage& s_;
  const std::int64_t dense_;
  const std::vector<reader>& readers_;
  stash_choice base_;
  std::vector<stash_choice> result_;
};

std::vector<stash_choice> candidate_forms::of(storage_id id, const std::vector<reader>& readers) const {
  return list(*this, id, readers).made();
}

// What the user says of this tensor.
bool candidate_forms::allowed(const storage& s, stash_kind kind, const encoding& e) const {
  const tensor_rule* const rule = rule_for(options_.tensors, s.name);
  if (rule == nullptr) return true;
  const std::string form = kind == stash_kind::raw         ? "raw"
                           : kind == stash_kind::recompute ? "recompute"
                                                           : to_string(e);
  const bool named = std::find(rule->forms.begin(), rule->forms.end(), form) != rule->forms.end();
  return named != rule->deny;
}

std::int64_t candidate_forms::kept_bytes(const storage& s, const stash_choice& c) const {
  const std::int64_t n = s.elements(g_.batch);
  if (c.kind == stash_kind::raw) return s.bytes(g_.batch);
  if (c.kind == stash_kind::none || c.stored.kind == encoding_kind::shape_only) return 0;
  const double density = std::min(1.0, s.density * (1.0 + margin_));
  return static_cast<std::int64_t>(encoded_bytes_at_density(c.stored, s.type, n, density));
}

}  // namespace stash::planner
