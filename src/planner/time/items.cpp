// SPDX-License-Identifier: Apache-2.0
#include "planner/time/items.hpp"

#include <algorithm>
#include <set>

#include "planner/graph/cost.hpp"
#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

constexpr tick_number during(op_id t) {
  return tick_of(t);
}
constexpr tick_number before(op_id t) {
  return tick_of(t) - 1;
}
constexpr tick_number after(op_id t) {
  return tick_of(t) + 1;
}

// First and last ops that have a storage as a dense operand.
struct uses {
  op_id first = no_id, last_forward = no_id, last = no_id;
};

id_vector<storage_id, uses> uses_of(const graph& g) {
  id_vector<storage_id, uses> list(g.storages.size());
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    const op_id t = i;
    for (const auto* refs : {&o.inputs, &o.outputs}) {
      for (const tensor_ref& r : *refs) {
        uses& u = list[r.storage];
        if (!u.first.valid()) u.first = t;
        u.last = t;
        if (o.stage == op_stage::forward) u.last_forward = t;
      }
    }
    for (const storage_id s : o.optional_outputs) {
      uses& u = list[s];
      u.first = u.last_forward = u.last = t;
    }
  }
  return list;
}

// One class: forward life, kept form and reads of a storage make one option together.
class maker {
 public:
  maker(const graph& g, const option_set& options, const machine& m, const cost_model& costs,
        const item_rules& rules)
      : g_(g), options_(options), m_(m), costs_(costs), rules_(rules), uses_(uses_of(g)) {}

  problem run(std::int64_t limit) {
    problem p;
    p.limit = limit;
    if (rules_.swap) {
      p.link.out_rate = m_.out_bytes_per_second / 1e3;
      p.link.in_rate = m_.in_bytes_per_second / 1e3;
      p.link.latency_ms = 1e3 * m_.link_latency_seconds;
      p.link.contention = m_.contention;
      if (m_.host_bytes > 0) p.link.host_bytes = m_.host_bytes;
    }
    linked_ = p.link.out_rate > 0.0 && p.link.in_rate > 0.0;
    const std::size_t ticks = g_.ops.empty() ? 0 : 2 * g_.ops.size() - 1;
    p.tick_ms.assign(ticks, 0.0);
    for (const op_id t : g_.ops.ids())
      p.tick_ms[during(t)] = costs_.op_ms(g_, g_.ops[t]);
    p.fixed_bytes = fixed_bytes(ticks);
    for (const component& c : options_.components) {
      item& i = p.items.emplace_back();
      for (std::size_t f = 0; f < c.configurations.size(); ++f)
        add_options(i, c, f);
      i.small = std::all_of(c.storages.begin(), c.storages.end(), [&](storage_id s) {
        return aligned(g_.at(s).bytes(g_.batch)) < rules_.smallest_swap;
      });
      if (!i.small) continue;
      for (item_option& o : i.options) {
        for (held_bytes& h : o.held)
          h.passing = true;
      }
    }
    return p;
  }

 private:
  id_vector<tick_number, std::int64_t> fixed_bytes(std::size_t ticks) const {
    id_vector<storage_id, char> chosen(g_.storages.size(), 0);
    for (const component& c : options_.components) {
      for (const storage_id s : c.storages)
        chosen[s] = 1;
    }
    id_vector<tick_number, std::int64_t> change(ticks + 1, 0);
    for (const storage_id s : g_.storages.ids()) {
      const storage& st = g_.storages[s];
      const uses& u = uses_[s];
      if (chosen[s] || !u.first.valid() || !st.batch_proportional() || st.role == storage_role::auxiliary)
        continue;
      const bool is_input = st.role == storage_role::image || st.role == storage_role::label;
      const std::int64_t bytes = aligned(st.bytes(g_.batch));
      change[is_input ? 0 : during(u.first)] += bytes;
      change[after(u.last)] -= bytes;
    }
    std::int64_t sum = 0;
    id_vector<tick_number, std::int64_t> fixed(ticks);
    for (const tick_number t : fixed.ids())
      fixed[t] = sum += change[t];
    return fixed;
  }

  struct dense_use {
    op_id op;
    bool last;  // of the kept form
  };

  // What happens to one storage of a component under one configuration.
  struct kept_form {
    storage_id storage = no_id;
    const stash_choice* choice = nullptr;
    std::int64_t dense = 0, kept = 0;
    std::vector<op_id> reads;    // ops that need the kept form there, in order, without doubles
    std::vector<op_id> decodes;  // of these, those before which it is decoded
  };

  void add_options(item& i, const component& c, std::size_t configuration_index) {
    const configuration& f = c.configurations[configuration_index];
    std::vector<kept_form> forms;
    for (std::size_t k = 0; k < c.storages.size(); ++k) {
      kept_form form;
      form.storage = c.storages[k];
      form.choice = &f.choices[k];
      form.dense = aligned(g_.at(form.storage).bytes(g_.batch));
      form.kept = form.choice->kind == stash_kind::raw ? form.dense : aligned(form.choice->bytes_after);
      forms.push_back(form);
    }
    item_option base;
    base.configuration = static_cast<std::int32_t>(configuration_index);
    backward(base, c, f, forms);
    for (kept_form& form : forms)
      forward(base, form);
    // Which kept forms could move.
    std::vector<std::size_t> movable;
    for (std::size_t k = 0; k < forms.size() && linked_ && k < 32; ++k) {
      const kept_form& form = forms[k];
      const storage_role role = g_.at(form.storage).role;
      const bool map = role == storage_role::feature_map || role == storage_role::auxiliary ||
                       (role == storage_role::image && rules_.move_images);
      if (map && rules_.may_move(form.storage) && form.kept >= rules_.smallest_swap && !form.reads.empty() &&
          has_gap(form))
        movable.push_back(k);
    }
    constexpr std::size_t most_movable = 3;
    const std::size_t free = std::min(movable.size(), most_movable);
    // The largest ones are decided one by one, the rest with the first of them.
    std::stable_sort(movable.begin(), movable.end(),
                     [&](std::size_t a, std::size_t b) { return forms[a].kept > forms[b].kept; });
    for (std::uint32_t bits = 0; bits < (1U << free); ++bits) {
      item_option o = base;
      for (std::size_t m = 0; m < movable.size(); ++m) {
        if ((bits >> std::min(m, free > 0 ? free - 1 : 0)) & 1U) o.swapped |= 1U << movable[m];
      }
      for (std::size_t k = 0; k < forms.size(); ++k)
        keep(o, forms[k], k < 32 && ((o.swapped >> k) & 1U), static_cast<std::int32_t>(k));
      merge(o);
      i.options.push_back(std::move(o));
    }
  }

  bool stores(const stash_choice& c) const { return c.kind == stash_kind::encoded || adds_mask(c); }

  std::int32_t born(const kept_form& form) const {
    const storage& st = g_.at(form.storage);
    if (st.role == storage_role::image) return 0;
    if (st.role == storage_role::auxiliary) return during(uses_[form.storage].first);
    return after(uses_[form.storage].last_forward);
  }
  // After the encoders that follow the last forward use, before the decoders of the first backward one.
  std::int32_t released(const kept_form& form) const { return after(uses_[form.storage].last_forward); }
  static std::int32_t needed(const kept_form& form) { return before(form.reads.front()); }
  bool has_gap(const kept_form& form) const { return needed(form) > released(form) + 2; }

  // Dense life in the forward stage, and the encoder.
  void forward(item_option& o, const kept_form& form) const {
    const storage& st = g_.at(form.storage);
    const uses& u = uses_[form.storage];
    if (st.role == storage_role::image || st.role == storage_role::auxiliary) return;
    if (!u.first.valid()) return;
    o.held.push_back({during(u.first), during(u.last_forward), form.dense, false});
    if (!stores(*form.choice) || form.reads.empty()) return;
    // The encoder sees both.
    o.held.push_back({after(u.last_forward), after(u.last_forward), form.dense, true});
    o.work.push_back({after(u.last_forward), costs_.codec_ms(form.choice->stored, form.dense, form.kept)});
  }

  // The kept form between the stages.
  void keep(item_option& o, const kept_form& form, bool swapped, std::int32_t number) const {
    if (form.kept == 0 || form.reads.empty()) return;
    const storage& st = g_.at(form.storage);
    const bool raw_map = form.choice->kind == stash_kind::raw && st.role == storage_role::feature_map;
    const std::int32_t first = raw_map ? during(uses_[form.storage].last_forward) + 1 : born(form);
    const std::int32_t last = during(form.reads.back());
    // A form that is decoded for the last time is gone while that op runs.
    const bool decoded_last = !form.decodes.empty() && form.decodes.back() == form.reads.back();
    const std::int32_t end = decoded_last ? last - 1 : last;
    if (kept_sparsely(*form.choice)) {
      const auto share = static_cast<std::int64_t>(static_cast<double>(form.kept) * rules_.overflow_share);
      o.held.push_back({0, static_cast<std::int32_t>(2 * g_.ops.size()) - 2, share, false});
    }
    if (!swapped) {
      if (first <= end) o.held.push_back({first, end, form.kept, false});
      return;
    }
    const transfer t{released(form), needed(form), form.kept, number};
    if (first <= t.released) o.held.push_back({first, t.released, form.kept, false});
    if (t.needed <= end) o.held.push_back({t.needed, end, form.kept, false});
    o.transfers.push_back(t);
  }

  // Reads of the backward stage: which kept forms they need, and what is decoded or computed again for them.
  void backward(item_option& o, const component& c, const configuration& f,
                std::vector<kept_form>& forms) const {
    std::set<op_id> ops(c.ops.begin(), c.ops.end());
    for (const storage_id s : c.storages) {
      for (const reader& r : options_.fixed_readers[s])
        ops.insert(r.op);
    }
    for (const op_id t : ops) {
      const auto at = std::find(c.ops.begin(), c.ops.end(), t);
      const std::size_t number =
          at == c.ops.end() ? 0 : position_of(f.alternatives[static_cast<std::size_t>(at - c.ops.begin())]);
      const stash_alternative& a = g_.op_at(t).alternatives[number];
      if (const double ms = costs_.alternative_ms(a); ms > 0.0 && at != c.ops.end())
        o.work.push_back({during(t), ms});
      op_reads(*this, o, forms, t, a).add();
    }
  }

  // What one op reads under one alternative.
  class op_reads {
   public:
    op_reads(const maker& made_by, item_option& o, std::vector<kept_form>& forms, op_id t,
             const stash_alternative& a)
        : g_(made_by.g_), costs_(made_by.costs_), option_(o), forms_(forms), op_(t), alternative_(a) {}

    void add() {
      for (const stash_read& r : alternative_.reads) {
        kept_form* const form = form_of(r.storage);
        if (form == nullptr) continue;
        const stash_choice& choice = *form->choice;
        const bool direct = choice.kind == stash_kind::raw ||
                            reads_directly(g_.op_at(op_).kind, r.what, choice, r.slice.whole());
        if (direct) {
          read(*form);
        } else if (choice.kind == stash_kind::encoded) {
          if (decode(*form)) hold(form->dense, during(op_));
        } else if (choice.kind == stash_kind::recompute) {
          compute_again(*form);
        }
      }
    }

   private:
    kept_form* form_of(storage_id s) const {
      const auto found = std::find_if(forms_.begin(), forms_.end(),
                                      [s](const kept_form& form) { return form.storage == s; });
      return found == forms_.end() ? nullptr : &*found;
    }
    bool reads_it(storage_id s) const {
      return std::any_of(alternative_.reads.begin(), alternative_.reads.end(),
                         [s](const stash_read& r) { return r.storage == s; });
    }
    void read(kept_form& form) const {
      if (form.reads.empty() || form.reads.back() != op_) form.reads.push_back(op_);
    }
    // False if that has been done for this op.
    bool decode(kept_form& form) const {
      read(form);
      if (!form.decodes.empty() && form.decodes.back() == op_) return false;
      form.decodes.push_back(op_);
      option_.work.push_back({before(op_), costs_.codec_ms(form.choice->stored, form.dense, form.kept)});
      return true;
    }
    void hold(std::int64_t bytes, std::int32_t last) const {
      option_.held.push_back({before(op_), last, bytes, false});
    }

    void compute_again(kept_form& form) {
      const recipe& r = g_.recipes[form.choice->recipe];
      read(form);
      hold(form.dense, during(op_));
      for (const op_id o : r.ops) {
        if (std::find(run_again_.begin(), run_again_.end(), o) != run_again_.end()) continue;
        run_again_.push_back(o);
        option_.work.push_back({before(op_), costs_.op_ms(g_, g_.op_at(o))});
      }
      hold(largest_on_the_way(r), before(op_));
      for (const storage_id s : r.sources) {
        kept_form* const source = form_of(s);
        if (source == nullptr) continue;
        if (source->choice->kind == stash_kind::raw) {
          read(*source);
          continue;
        }
        // In place of a decoded source, unless this op reads the source as well or the sizes differ.
        const bool in_place = r.sources.size() == 1 && source->dense == form.dense && !reads_it(s);
        if (decode(*source) && !in_place) hold(source->dense, reads_it(s) ? during(op_) : before(op_));
      }
    }

    // Of what a recipe makes on its way to the target, the largest map that is not made in the target's
    // bytes.
    std::int64_t largest_on_the_way(const recipe& r) const {
      const std::int64_t target = aligned(g_.at(r.target).bytes(g_.batch));
      std::int64_t most = 0;
      for (const op_id number : r.ops) {
        for (const tensor_ref& made : g_.op_at(number).outputs) {
          const std::int64_t bytes = aligned(g_.at(made.storage).bytes(g_.batch));
          if (made.storage != r.target && bytes != target) most = std::max(most, bytes);
        }
      }
      return most;
    }

    const graph& g_;
    const cost_model& costs_;
    item_option& option_;
    std::vector<kept_form>& forms_;
    const op_id op_;
    const stash_alternative& alternative_;
    std::vector<op_id> run_again_;
  };

  // Work of one tick in one entry; spans of no bytes left out.
  static void merge(item_option& o) {
    std::sort(o.work.begin(), o.work.end(),
              [](const added_work& a, const added_work& b) { return a.tick < b.tick; });
    std::vector<added_work> work;
    for (const added_work& w : o.work) {
      if (!work.empty() && work.back().tick == w.tick) {
        work.back().ms += w.ms;
      } else {
        work.push_back(w);
      }
    }
    o.work = std::move(work);
    std::erase_if(o.held, [](const held_bytes& h) { return h.bytes == 0; });
  }

  const graph& g_;
  const option_set& options_;
  const machine& m_;
  const cost_model& costs_;
  const item_rules& rules_;
  id_vector<storage_id, uses> uses_;
  bool linked_ = false;
};

}  // namespace

problem make_problem(const graph& g, const option_set& options, const machine& m, const item_rules& rules,
                     std::int64_t limit) {
  return maker(g, options, m, *cost_model_of(m), rules).run(limit);
}

}  // namespace stash::planner
