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
  pass(const graph& g, const scheduler& facts, const selection& s) : g_(g), facts_(facts), s_(s) {
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
      if (out_.steps[k].kind != step_kind::run && is_ours(step_owners_[k])) part.added.push_back(orders_[k]);
    for (std::size_t b = 0; b < out_.buffers.size(); ++b) {
      const buffer& made = out_.buffers[b];
      if (!is_ours(buffer_owners_[b])) continue;
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
    step_owners_.clear();
    buffer_owners_.clear();
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
    buffer_owners_.push_back(target_ < 0 ? s : target_);
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
    step_owners_.push_back(target_ < 0 ? st.storage : target_);
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
      if (c.kind == stash_kind::encoded || adds_mask(c)) {
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

  // Dense forms that were made for one op.
  struct dense_form {
    storage_id storage;
    buffer_id buffer;
  };
  static buffer_id find(const std::vector<dense_form>& forms, storage_id s) {
    for (const dense_form& f : forms) {
      if (f.storage == s) return f.buffer;
    }
    return -1;
  }
  static bool reads(const stash_alternative& a, storage_id s) {
    return std::any_of(a.reads.begin(), a.reads.end(), [s](const stash_read& r) { return r.storage == s; });
  }
  bool reads_from(const recipe& r, std::size_t first, storage_id s) const {
    return std::any_of(r.ops.begin() + static_cast<std::ptrdiff_t>(first), r.ops.end(), [&](op_id o) {
      const std::vector<tensor_ref>& inputs = g_.op_at(o).inputs;
      return std::any_of(inputs.begin(), inputs.end(), [s](const tensor_ref& t) { return t.storage == s; });
    });
  }

  // A buffer in which the k-th op of a recipe can work in place: of an input that is there for the recipe
  // alone and that nobody needs after it. -1: there is none.
  buffer_id reusable(const recipe& r, std::size_t k, const stash_alternative& a,
                     const std::vector<dense_form>& passing) const {
    const op& o = g_.op_at(r.ops[k]);
    const storage_id made = o.outputs[0].storage;
    for (const tensor_ref& in : o.inputs) {
      const storage_id s = in.storage;
      const bool needed = s != made && (reads(a, s) || reads_from(r, k + 1, s));
      if (!needed && g_.at(s).bytes(g_.batch) == g_.at(made).bytes(g_.batch) && find(passing, s) >= 0)
        return find(passing, s);
    }
    return -1;
  }

  // Runs the k-th op of the target's recipe; `passing` holds what it makes afterwards.
  void run_again(const recipe& r, std::size_t k, const stash_alternative& a,
                 const std::vector<dense_form>& made, std::vector<dense_form>& passing) {
    const op& o = g_.op_at(r.ops[k]);
    step st;
    st.kind = step_kind::recompute;
    st.op = r.ops[k];
    st.storage = o.outputs[0].storage;
    for (const tensor_ref& in : o.inputs) {
      const buffer_id own = find(passing, in.storage), there = find(made, in.storage);
      st.inputs.push_back(own >= 0 ? own : there >= 0 ? there : dense_[index(in.storage)]);
    }
    const bool gates = st.storage == r.target && is_gated(g_, r) && adds_mask(choice(r.target));
    if (gates) st.inputs.push_back(kept_[index(r.target)]);
    const buffer_id in_place = reusable(r, k, a, passing);
    for (const tensor_ref& out : o.outputs)
      st.outputs.push_back(in_place >= 0 && st.outputs.empty() ? in_place : new_dense(out.storage));
    const std::vector<buffer_id> written = st.outputs;
    finish(std::move(st));
    for (std::size_t n = 0; n < written.size(); ++n) {
      const dense_form out{o.outputs[n].storage, written[n]};
      std::erase_if(passing,
                    [&](const dense_form& f) { return f.buffer == out.buffer || f.storage == out.storage; });
      passing.push_back(out);
    }
  }

  // Runs the target's recipe for an op that reads `a`. `made`: dense forms that are there for this op; what
  // it reads of the new ones is added.
  void compute_again(storage_id target, const stash_alternative& a, std::vector<dense_form>& made) {
    const recipe& r = g_.recipes[index(choice(target).recipe)];
    target_ = target;
    std::vector<dense_form> passing;  // there for the recipe, and for nothing else yet
    for (const storage_id s : r.sources) {
      if (choice(s).kind != stash_kind::raw && find(made, s) < 0) passing.push_back({s, decode(s)});
    }
    for (std::size_t k = 0; k < r.ops.size(); ++k) {
      const std::vector<tensor_ref>& outputs = g_.op_at(r.ops[k]).outputs;
      const bool there = std::all_of(outputs.begin(), outputs.end(),
                                     [&](const tensor_ref& t) { return find(made, t.storage) >= 0; });
      if (!there) run_again(r, k, a, made, passing);
    }
    target_ = -1;
    for (const dense_form& f : passing) {
      if (f.storage == target || reads(a, f.storage)) made.push_back(f);
    }
  }

  void backward(op_id id) {
    const op& o = g_.op_at(id);
    step st;
    st.op = id;
    const stash_alternative none;
    const bool has_reads = s_.alternative[index(id)] >= 0;
    const stash_alternative& a = has_reads ? o.alternatives[index(s_.alternative[index(id)])] : none;
    std::vector<dense_form> made;
    order_ = {id, step_order::before};
    for (std::size_t k = 0; k < a.reads.size(); ++k) {
      const stash_read& r = a.reads[k];
      order_.first = static_cast<std::int64_t>(k);
      const stash_choice& c = choice(r.storage);
      const bool direct = c.kind == stash_kind::raw || reads_directly(o.kind, r.what, c, r.slice.whole());
      if (direct || find(made, r.storage) >= 0) continue;
      if (c.kind == stash_kind::recompute) {
        compute_again(r.storage, a, made);
      } else {
        made.push_back({r.storage, decode(r.storage)});
      }
    }
    copy_at(2 * id);
    for (const stash_read& r : a.reads) {
      const stash_choice& c = choice(r.storage);
      if (c.kind == stash_kind::raw) {
        st.stash.push_back(dense_[index(r.storage)]);
      } else if (reads_directly(o.kind, r.what, c, r.slice.whole())) {
        st.stash.push_back(kept_[index(r.storage)]);
      } else {
        st.stash.push_back(find(made, r.storage));
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

  const graph& g_;
  const scheduler& facts_;
  const selection& s_;
  schedule out_;
  std::vector<step_order> orders_;  // of the steps; of copies it says nothing
  step_order order_;                // of the next one
  // Whose choice made the steps and buffers: of what a recipe makes on its way, its target's.
  std::vector<storage_id> step_owners_, buffer_owners_;
  storage_id target_ = -1;               // of the recipe that is being run
  std::vector<buffer_id> dense_, kept_;  // current buffer of each storage, -1 if there is none
  std::vector<buffer_id> host_, arriving_;
  std::size_t next_copy_ = 0;
};

}  // namespace

scheduler::scheduler(const graph& g)
    : g_(g),
      first_use_(g.storages.size(), -1),
      last_forward_use_(g.storages.size(), -1),
      last_use_(g.storages.size(), -1) {
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
}

schedule scheduler::build(const selection& s, const plan_options& options) const {
  return pass(g_, *this, s).run(options.overflow_share);
}

// With a selection of which each part changes only what is its own.
struct part_builder::state {
  explicit state(const scheduler& facts) : g(facts.network()), steps(g, facts, chosen) {
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

part_builder::part_builder(const scheduler& facts) : state_(std::make_unique<state>(facts)) {}

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
