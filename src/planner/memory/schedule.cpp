// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/schedule.hpp"

#include <algorithm>

#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

constexpr std::int64_t smallest_overflow_arena = 16384;

// One pass over the ops of a graph under one selection.
class pass {
 public:
  pass(const graph& g, const scheduler& facts, const std::vector<std::int32_t>& recompute_rule,
       const selection& s)
      : g_(g), facts_(facts), recompute_rule_(recompute_rule), s_(s) {
    dense_.assign(g.storages.size(), -1);
    kept_.assign(g.storages.size(), -1);
    host_.assign(g.storages.size(), -1);
    arriving_.assign(g.storages.size(), -1);
  }

  schedule run(double overflow_share) {
    std::int64_t sparse_bytes = 0;
    for (const stash_choice& c : s_.choices) {
      if (kept_sparsely(c)) sparse_bytes += c.bytes_after;
    }
    buffer_id overflow = -1;
    out_.overflow_bytes = overflow_arena(sparse_bytes, overflow_share);
    if (out_.overflow_bytes > 0) overflow = new_buffer(-1, buffer_form::overflow, out_.overflow_bytes);
    for (std::size_t s = 0; s < g_.storages.size(); ++s) {
      const storage& st = g_.storages[s];
      if (st.role == storage_role::image || st.role == storage_role::label) {
        dense_[s] = new_buffer(static_cast<storage_id>(s), buffer_form::dense, st.bytes(g_.batch));
      }
    }
    for (std::size_t i = 0; i < g_.ops.size(); ++i) {
      const auto id = static_cast<op_id>(i);
      if (g_.ops[i].stage == op_stage::forward) forward(id);
      if (g_.ops[i].stage == op_stage::backward) backward(id);
    }
    if (overflow >= 0) out_.buffers[index(overflow)].last_step = next_step() - 1;
    // Lifetimes are steps: where nothing runs, nothing lives.
    if (out_.steps.empty()) out_.buffers.clear();
    return std::move(out_);
  }

  // These ops alone, as if there were no others: `storages` get what they have in the whole schedule.
  schedule_part run_part(const std::vector<op_id>& ops, const std::vector<storage_id>& storages) {
    forget(ops, storages);
    std::vector<buffer_id> inputs;
    for (const storage_id s : storages) {
      const storage& st = g_.at(s);
      if (st.role != storage_role::image && st.role != storage_role::label) continue;
      dense_[index(s)] = new_dense(s);
      inputs.push_back(dense_[index(s)]);
      out_.buffers.back().last_step = -1;  // until an op reads it
    }
    for (const op_id id : ops) {
      if (g_.op_at(id).stage == op_stage::forward) forward(id);
      if (g_.op_at(id).stage == op_stage::backward) backward(id);
    }
    const auto is_ours = [&](storage_id s) {
      return s >= 0 && std::find(storages.begin(), storages.end(), s) != storages.end();
    };
    schedule_part part;
    for (std::size_t k = 0; k < out_.steps.size(); ++k)
      if (out_.steps[k].kind != step_kind::run && is_ours(out_.steps[k].storage))
        part.added.push_back(orders_[k]);
    for (std::size_t b = 0; b < out_.buffers.size(); ++b) {
      const buffer& made = out_.buffers[b];
      if (!is_ours(made.storage)) continue;
      const bool from_the_start =
          std::find(inputs.begin(), inputs.end(), static_cast<buffer_id>(b)) != inputs.end();
      part.buffers.push_back({made.bytes, from_the_start ? step_order{} : orders_[index(made.first_step)],
                              made.last_step < 0 ? step_order{} : orders_[index(made.last_step)]});
    }
    return part;
  }

 private:
  void forget(const std::vector<op_id>& ops, const std::vector<storage_id>& storages) {
    out_ = {};
    orders_.clear();
    const auto clear = [&](storage_id s) { dense_[index(s)] = kept_[index(s)] = -1; };
    std::for_each(storages.begin(), storages.end(), clear);
    for (const op_id id : ops)
      for_each_storage(g_.op_at(id), clear);
  }

  std::int32_t next_step() const { return static_cast<std::int32_t>(out_.steps.size()); }

  buffer_id new_buffer(storage_id s, buffer_form form, std::int64_t bytes) {
    buffer b;
    b.storage = s;
    b.form = form;
    b.bytes = aligned(bytes);
    b.first_step = b.last_step = next_step();
    out_.buffers.push_back(b);
    return static_cast<buffer_id>(out_.buffers.size()) - 1;
  }

  buffer_id new_dense(storage_id s) { return new_buffer(s, buffer_form::dense, g_.at(s).bytes(g_.batch)); }
  const stash_choice& choice(storage_id s) const { return s_.choices[index(s)]; }

  // Every buffer of the step lives at least until it.
  void finish(step st) {
    const std::int32_t now = next_step();
    for (const auto* list : {&st.inputs, &st.outputs, &st.optional_outputs, &st.stash}) {
      for (const buffer_id b : *list) {
        if (b >= 0) out_.buffers[index(b)].last_step = now;
      }
    }
    out_.steps.push_back(std::move(st));
    orders_.push_back(order_);
    ++order_.second;
  }

  buffer_id operand(const tensor_ref& ref) {
    buffer_id& b = dense_[index(ref.storage)];
    if (b < 0) b = new_dense(ref.storage);
    return b;
  }

  void forward(op_id id) {
    const op& o = g_.op_at(id);
    step st;
    st.op = id;
    copy_at(2 * id);
    for (const tensor_ref& r : o.inputs)
      st.inputs.push_back(operand(r));
    for (const tensor_ref& r : o.outputs)
      st.outputs.push_back(operand(r));
    for (const storage_id s : o.optional_outputs) {
      const stash_choice& c = choice(s);
      if (c.kind == stash_kind::none) {
        st.optional_outputs.push_back(-1);
        continue;
      }
      const buffer_form form = c.kind == stash_kind::raw ? buffer_form::dense : buffer_form::encoded;
      const buffer_id b = new_buffer(s, form, c.bytes_after);
      (c.kind == stash_kind::raw ? dense_ : kept_)[index(s)] = b;
      st.optional_outputs.push_back(b);
    }
    order_ = {id, step_order::itself};
    finish(std::move(st));
    copy_at(2 * id + 1);
    encode_after(id);
  }

  // While one is encoded, its kept form comes on top of what is there; then its dense form, which is larger,
  // goes. So the one with the smallest kept form comes first: the others find more free memory.
  void encode_after(op_id id) {
    const op& o = g_.op_at(id);
    std::vector<std::pair<storage_id, std::int32_t>> done;  // with the number of the operand
    std::int32_t operand = 0;
    for (const auto* refs : {&o.inputs, &o.outputs}) {
      for (const tensor_ref& r : *refs) {
        const storage_id s = r.storage;
        const auto same = [s](const auto& d) { return d.first == s; };
        if (facts_.last_forward_use(s) == id && std::none_of(done.begin(), done.end(), same))
          done.emplace_back(s, operand);
        ++operand;
      }
    }
    std::stable_sort(done.begin(), done.end(), [&](const auto& a, const auto& b) {
      return choice(a.first).bytes_after < choice(b.first).bytes_after;
    });
    for (const auto& [s, number] : done) {
      const stash_choice& c = choice(s);
      if (c.kind == stash_kind::raw || g_.at(s).role != storage_role::feature_map) continue;
      const bool stores = c.kind == stash_kind::encoded ||
                          (c.kind == stash_kind::recompute && c.stored.kind == encoding_kind::sign_mask);
      if (stores) {
        step st;
        st.kind = step_kind::encode;
        st.storage = s;
        st.inputs = {dense_[index(s)]};
        kept_[index(s)] = new_buffer(s, buffer_form::encoded, c.bytes_after);
        st.outputs = {kept_[index(s)]};
        order_ = {id, step_order::after, c.bytes_after, number};
        finish(std::move(st));
      }
      dense_[index(s)] = -1;
    }
  }

  // The device buffer that a swapped storage is kept in.
  buffer_id& kept_buffer(storage_id s) {
    return (choice(s).kind == stash_kind::raw ? dense_ : kept_)[index(s)];
  }

  void copy_at(std::int32_t tick) {
    for (; next_copy_ < s_.copies.size() && s_.copies[next_copy_].tick <= tick; ++next_copy_) {
      const copy_event& e = s_.copies[next_copy_];
      const bool raw = choice(e.storage).kind == stash_kind::raw;
      buffer_id& kept = kept_buffer(e.storage);
      buffer_id& host = host_[index(e.storage)];
      buffer_id& arriving = arriving_[index(e.storage)];
      step st;
      st.kind = e.kind;
      st.storage = e.storage;
      if (e.kind == step_kind::copy_out || e.kind == step_kind::wait_out) {
        if (host < 0) host = new_buffer(e.storage, buffer_form::host, out_.buffers[index(kept)].bytes);
        st.inputs = {kept};
        st.outputs = {host};
        if (e.kind == step_kind::wait_out) kept = -1;
      } else {
        if (arriving < 0) {
          arriving = new_buffer(e.storage, raw ? buffer_form::dense : buffer_form::encoded,
                                out_.buffers[index(host)].bytes);
        }
        st.inputs = {host};
        st.outputs = {arriving};
        if (e.kind == step_kind::wait_in) kept = arriving;
      }
      finish(std::move(st));
    }
  }

  buffer_id decode(storage_id s) {
    step st;
    st.kind = step_kind::decode;
    st.storage = s;
    st.inputs = {kept_[index(s)]};
    const buffer_id b = new_dense(s);
    st.outputs = {b};
    finish(std::move(st));
    return b;
  }

  buffer_id recompute(storage_id target, bool source_needed_later, buffer_id& source_dense) {
    const recompute_rule& rule = g_.recompute[index(recompute_rule_[index(target)])];
    const bool decoded = choice(rule.source).kind != stash_kind::raw;
    if (source_dense < 0) source_dense = decoded ? decode(rule.source) : dense_[index(rule.source)];
    step st;
    st.kind = step_kind::recompute;
    st.op = rule.forward_op;
    st.storage = target;
    st.inputs = {source_dense};
    if (kept_[index(target)] >= 0) st.inputs.push_back(kept_[index(target)]);
    const bool in_place = decoded && !source_needed_later &&
                          g_.at(target).bytes(g_.batch) == g_.at(rule.source).bytes(g_.batch);
    const buffer_id b = in_place ? source_dense : new_dense(target);
    st.outputs = {b};
    finish(std::move(st));
    return b;
  }

  void backward(op_id id) {
    const op& o = g_.op_at(id);
    step st;
    st.op = id;
    const stash_alternative none;
    const bool reads = s_.alternative[index(id)] >= 0;
    const stash_alternative& a = reads ? o.alternatives[index(s_.alternative[index(id)])] : none;
    std::vector<std::pair<storage_id, buffer_id>> temporary;  // dense forms made for this op
    const auto made = [&](storage_id s) -> buffer_id {
      for (const auto& [storage, b] : temporary) {
        if (storage == s) return b;
      }
      return -1;
    };
    order_ = {id, step_order::before};
    for (std::size_t k = 0; k < a.reads.size(); ++k) {
      const stash_read& r = a.reads[k];
      order_.first = static_cast<std::int64_t>(k);
      const stash_choice& c = choice(r.storage);
      const bool direct = c.kind == stash_kind::raw || reads_directly(o.kind, r.what, c, r.slice.whole());
      if (direct || made(r.storage) >= 0) continue;
      if (c.kind != stash_kind::recompute) {
        temporary.emplace_back(r.storage, decode(r.storage));
        continue;
      }
      const storage_id source = g_.recompute[index(rule_of(r.storage))].source;
      const bool source_needed = std::any_of(a.reads.begin(), a.reads.end(),
                                             [&](const stash_read& x) { return x.storage == source; });
      buffer_id source_dense = made(source);
      temporary.emplace_back(r.storage, recompute(r.storage, source_needed, source_dense));
      if (source_needed && made(source) < 0) temporary.emplace_back(source, source_dense);
    }
    copy_at(2 * id);
    for (const stash_read& r : a.reads) {
      const stash_choice& c = choice(r.storage);
      if (c.kind == stash_kind::raw) {
        st.stash.push_back(dense_[index(r.storage)]);
      } else if (reads_directly(o.kind, r.what, c, r.slice.whole())) {
        st.stash.push_back(kept_[index(r.storage)]);
      } else {
        st.stash.push_back(made(r.storage));
      }
    }
    for (const tensor_ref& r : o.inputs)
      st.inputs.push_back(operand(r));
    for (const tensor_ref& r : o.outputs)
      st.outputs.push_back(operand(r));
    order_ = {id, step_order::itself};
    finish(std::move(st));
    copy_at(2 * id + 1);
  }

  std::int32_t rule_of(storage_id target) const { return recompute_rule_[index(target)]; }

  const graph& g_;
  const scheduler& facts_;
  const std::vector<std::int32_t>& recompute_rule_;
  const selection& s_;
  schedule out_;
  std::vector<step_order> orders_;       // of the steps; of copies it says nothing
  step_order order_;                     // of the next one
  std::vector<buffer_id> dense_, kept_;  // current buffer of each storage, -1 if there is none
  std::vector<buffer_id> host_, arriving_;
  std::size_t next_copy_ = 0;
};

}  // namespace

scheduler::scheduler(const graph& g)
    : g_(g),
      first_use_(g.storages.size(), -1),
      last_forward_use_(g.storages.size(), -1),
      last_use_(g.storages.size(), -1),
      recompute_rule_(g.storages.size(), -1) {
  for (std::size_t i = 0; i < g.ops.size(); ++i) {
    const op& o = g.ops[i];
    for (const auto* refs : {&o.inputs, &o.outputs}) {
      for (const tensor_ref& r : *refs) {
        const std::size_t s = index(r.storage);
        if (first_use_[s] < 0) first_use_[s] = static_cast<op_id>(i);
        last_use_[s] = static_cast<op_id>(i);
        if (o.stage == op_stage::forward) last_forward_use_[s] = static_cast<op_id>(i);
      }
    }
    for (const storage_id s : o.optional_outputs)
      first_use_[index(s)] = static_cast<op_id>(i);
  }
  for (std::size_t r = 0; r < g.recompute.size(); ++r) {
    recompute_rule_[index(g.recompute[r].target)] = static_cast<std::int32_t>(r);
  }
}

schedule scheduler::build(const selection& s, const plan_options& options) const {
  return pass(g_, *this, recompute_rule_, s).run(options.overflow_share);
}

// With a selection of which each part changes only what is its own.
struct part_builder::state {
  explicit state(const scheduler& facts, const std::vector<std::int32_t>& rules)
      : g(facts.network()), steps(g, facts, rules, chosen) {
    chosen.choices.resize(g.storages.size());
    for (stash_choice& c : chosen.choices)
      c.kind = stash_kind::raw;
    for (const op& o : g.ops)
      chosen.alternative.push_back(o.alternatives.empty() ? -1 : 0);
  }

  const graph& g;
  selection chosen;
  pass steps;
};

part_builder::part_builder(const scheduler& facts)
    : state_(std::make_unique<state>(facts, facts.recompute_rule_)) {}

part_builder::~part_builder() = default;

schedule_part part_builder::build(const std::vector<op_id>& ops, const component& c, const configuration& f) {
  selection& chosen = state_->chosen;
  for (std::size_t k = 0; k < c.storages.size(); ++k)
    chosen.choices[index(c.storages[k])] = f.choices[k];
  for (std::size_t k = 0; k < c.ops.size(); ++k)
    chosen.alternative[index(c.ops[k])] = f.alternatives[k];
  schedule_part part = state_->steps.run_part(ops, c.storages);
  for (const storage_id s : c.storages) {
    chosen.choices[index(s)] = {};
    chosen.choices[index(s)].kind = stash_kind::raw;
  }
  for (const op_id o : c.ops)
    chosen.alternative[index(o)] = 0;
  return part;
}

std::int64_t overflow_arena(std::int64_t sparse_bytes, double share) {
  if (sparse_bytes <= 0 || share <= 0) return 0;
  return aligned(std::max(smallest_overflow_arena,
                          static_cast<std::int64_t>(static_cast<double>(sparse_bytes) * share)));
}

std::vector<layout_block> blocks_of(const std::vector<buffer>& buffers) {
  std::vector<layout_block> blocks;
  blocks.reserve(buffers.size());
  for (const buffer& b : buffers)
    blocks.push_back({b.first_step, b.last_step + 1, b.bytes});
  return blocks;
}

std::vector<std::int64_t> live_bytes(const schedule& s) {
  std::vector<std::int64_t> change(s.steps.size() + 1, 0);
  for (const buffer& b : s.buffers) {
    if (b.form == buffer_form::host) continue;
    change[index(b.first_step)] += b.bytes;
    change[index(b.last_step) + 1] -= b.bytes;
  }
  std::vector<std::int64_t> live(s.steps.size());
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < live.size(); ++i)
    live[i] = sum += change[i];
  return live;
}

}  // namespace stash::planner
