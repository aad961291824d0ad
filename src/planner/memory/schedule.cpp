// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/schedule.hpp"

#include <algorithm>

#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

constexpr std::int64_t smallest_overflow_arena = 16384;

// One pass over the ops of a graph under one selection. One class: every op changes which buffers hold what,
// and what the next one does follows from that.
class pass {
 public:
  pass(const graph& g, const scheduler& facts, const selection& s) : g_(g), facts_(facts), s_(s) {
    dense_.assign(g.storages.size(), no_id);
    kept_.assign(g.storages.size(), no_id);
    host_.assign(g.storages.size(), no_id);
    arriving_.assign(g.storages.size(), no_id);
  }

  schedule run(double overflow_share) {
    std::int64_t sparse_bytes = 0;
    for (const stash_choice& c : s_.choices) {
      if (kept_sparsely(c)) sparse_bytes += c.bytes_after;
    }
    buffer_id overflow = no_id;
    out_.overflow_bytes = overflow_arena(sparse_bytes, overflow_share);
    if (out_.overflow_bytes > 0) overflow = new_buffer(no_id, buffer_form::overflow, out_.overflow_bytes);
    for (const storage_id s : g_.storages.ids()) {
      const storage& st = g_.storages[s];
      if (st.role == storage_role::image || st.role == storage_role::label) {
        dense_[s] = new_buffer(s, buffer_form::dense, st.bytes(g_.batch));
      }
    }
    for (const op_id i : g_.ops.ids()) {
      if (g_.ops[i].stage == op_stage::forward) forward(i);
      if (g_.ops[i].stage == op_stage::backward) backward(i);
    }
    if (overflow.valid()) out_.buffers[overflow].last_step = next_step() - 1;
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
      dense_[s] = new_dense(s);
      inputs.push_back(dense_[s]);
      out_.buffers.back().last_step = -1;  // until an op reads it
    }
    for (const op_id id : ops) {
      if (g_.op_at(id).stage == op_stage::forward) forward(id);
      if (g_.op_at(id).stage == op_stage::backward) backward(id);
    }
    const auto is_ours = [&](storage_id s) {
      return s.valid() && std::find(storages.begin(), storages.end(), s) != storages.end();
    };
    schedule_part part;
    for (const step_number k : out_.steps.ids())
      if (out_.steps[k].kind != step_kind::run && is_ours(step_owners_[k])) part.added.push_back(orders_[k]);
    for (const buffer_id b : out_.buffers.ids()) {
      const buffer& made = out_.buffers[b];
      if (!is_ours(buffer_owners_[b])) continue;
      const bool from_the_start = std::find(inputs.begin(), inputs.end(), b) != inputs.end();
      part.buffers.push_back({made.bytes, from_the_start ? step_order{} : orders_[made.first_step],
                              made.last_step < 0 ? step_order{} : orders_[made.last_step]});
    }
    return part;
  }

 private:
  void forget(const std::vector<op_id>& ops, const std::vector<storage_id>& storages) {
    out_ = {};
    orders_.clear();
    step_owners_.clear();
    buffer_owners_.clear();
    const auto clear = [&](storage_id s) { dense_[s] = kept_[s] = no_id; };
    std::for_each(storages.begin(), storages.end(), clear);
    for (const op_id id : ops)
      for_each_storage(g_.op_at(id), clear);
  }

  step_number next_step() const { return out_.steps.next_id(); }

  buffer_id new_buffer(storage_id s, buffer_form form, std::int64_t bytes) {
    buffer b;
    b.storage = s;
    b.form = form;
    b.bytes = aligned(bytes);
    b.first_step = b.last_step = next_step();
    buffer_owners_.push_back(!target_.valid() ? s : target_);
    return out_.buffers.push_back(b);
  }

  buffer_id new_dense(storage_id s) { return new_buffer(s, buffer_form::dense, g_.at(s).bytes(g_.batch)); }
  const stash_choice& choice(storage_id s) const { return s_.choices[s]; }

  // Every buffer of the step lives at least until it.
  void finish(step st) {
    const step_number now = next_step();
    for (const auto* list : {&st.inputs, &st.outputs, &st.optional_outputs, &st.stash}) {
      for (const buffer_id b : *list) {
        if (b.valid()) out_.buffers[b].last_step = now;
      }
    }
    step_owners_.push_back(!target_.valid() ? st.storage : target_);
    out_.steps.push_back(std::move(st));
    orders_.push_back(order_);
    ++order_.second;
  }

  buffer_id operand(const tensor_ref& ref) {
    buffer_id& b = dense_[ref.storage];
    if (!b.valid()) b = new_dense(ref.storage);
    return b;
  }

  void forward(op_id id) {
    const op& o = g_.op_at(id);
    step st;
    st.op = id;
    copy_at(tick_of(id));
    for (const tensor_ref& r : o.inputs)
      st.inputs.push_back(operand(r));
    for (const tensor_ref& r : o.outputs)
      st.outputs.push_back(operand(r));
    for (const storage_id s : o.optional_outputs) {
      const stash_choice& c = choice(s);
      if (c.kind == stash_kind::none) {
        st.optional_outputs.emplace_back(no_id);
        continue;
      }
      const buffer_form form = c.kind == stash_kind::raw ? buffer_form::dense : buffer_form::encoded;
      const buffer_id b = new_buffer(s, form, c.bytes_after);
      (c.kind == stash_kind::raw ? dense_ : kept_)[s] = b;
      st.optional_outputs.push_back(b);
    }
    order_ = {id, step_order::itself};
    finish(std::move(st));
    copy_at(tick_of(id) + 1);
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
        st.inputs = {dense_[s]};
        kept_[s] = new_buffer(s, buffer_form::encoded, c.bytes_after);
        st.outputs = {kept_[s]};
        order_ = {id, step_order::after, c.bytes_after, number};
        finish(std::move(st));
      }
      dense_[s] = no_id;
    }
  }

  // The device buffer that a swapped storage is kept in.
  buffer_id& kept_buffer(storage_id s) { return (choice(s).kind == stash_kind::raw ? dense_ : kept_)[s]; }

  void copy_at(tick_number now) {
    for (; next_copy_ < s_.copies.size() && s_.copies[next_copy_].at <= now; ++next_copy_) {
      const copy_event& e = s_.copies[next_copy_];
      const bool raw = choice(e.storage).kind == stash_kind::raw;
      buffer_id& kept = kept_buffer(e.storage);
      buffer_id& host = host_[e.storage];
      buffer_id& arriving = arriving_[e.storage];
      step st;
      st.kind = e.kind;
      st.storage = e.storage;
      if (e.kind == step_kind::copy_out || e.kind == step_kind::wait_out) {
        if (!host.valid()) host = new_buffer(e.storage, buffer_form::host, out_.buffers[kept].bytes);
        st.inputs = {kept};
        st.outputs = {host};
        if (e.kind == step_kind::wait_out) kept = no_id;
      } else {
        if (!arriving.valid()) {
          arriving = new_buffer(e.storage, raw ? buffer_form::dense : buffer_form::encoded,
                                out_.buffers[host].bytes);
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
    st.inputs = {kept_[s]};
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
    return no_id;
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
  // alone and that nobody needs after it, if there is one.
  buffer_id reusable(const recipe& r, std::size_t k, const stash_alternative& a,
                     const std::vector<dense_form>& passing) const {
    const op& o = g_.op_at(r.ops[k]);
    const storage_id made = o.outputs[0].storage;
    for (const tensor_ref& in : o.inputs) {
      const storage_id s = in.storage;
      const bool needed = s != made && (reads(a, s) || reads_from(r, k + 1, s));
      if (!needed && g_.at(s).bytes(g_.batch) == g_.at(made).bytes(g_.batch) && find(passing, s).valid())
        return find(passing, s);
    }
    return no_id;
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
      st.inputs.push_back(own.valid() ? own : there.valid() ? there : dense_[in.storage]);
    }
    const bool gates = st.storage == r.target && is_gated(g_, r) && adds_mask(choice(r.target));
    if (gates) st.inputs.push_back(kept_[r.target]);
    const buffer_id in_place = reusable(r, k, a, passing);
    for (const tensor_ref& out : o.outputs)
      st.outputs.push_back(in_place.valid() && st.outputs.empty() ? in_place : new_dense(out.storage));
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
    const recipe& r = g_.recipes[choice(target).recipe];
    target_ = target;
    std::vector<dense_form> passing;  // there for the recipe, and for nothing else yet
    for (const storage_id s : r.sources) {
      if (choice(s).kind != stash_kind::raw && !find(made, s).valid()) passing.push_back({s, decode(s)});
    }
    for (std::size_t k = 0; k < r.ops.size(); ++k) {
      const std::vector<tensor_ref>& outputs = g_.op_at(r.ops[k]).outputs;
      const bool there = std::all_of(outputs.begin(), outputs.end(),
                                     [&](const tensor_ref& t) { return find(made, t.storage).valid(); });
      if (!there) run_again(r, k, a, made, passing);
    }
    target_ = no_id;
    for (const dense_form& f : passing) {
      if (f.storage == target || reads(a, f.storage)) made.push_back(f);
    }
  }

  void backward(op_id id) {
    const op& o = g_.op_at(id);
    step st;
    st.op = id;
    const stash_alternative none;
    const bool has_reads = s_.alternative[id] >= 0;
    const stash_alternative& a = has_reads ? o.alternatives[s_.alternative[id]] : none;
    std::vector<dense_form> made;
    order_ = {id, step_order::before};
    for (std::size_t k = 0; k < a.reads.size(); ++k) {
      const stash_read& r = a.reads[k];
      order_.first = static_cast<std::int64_t>(k);
      const stash_choice& c = choice(r.storage);
      const bool direct = c.kind == stash_kind::raw || reads_directly(o.kind, r.what, c, r.slice.whole());
      if (direct || find(made, r.storage).valid()) continue;
      if (c.kind == stash_kind::recompute) {
        compute_again(r.storage, a, made);
      } else {
        made.push_back({r.storage, decode(r.storage)});
      }
    }
    copy_at(tick_of(id));
    for (const stash_read& r : a.reads) {
      const stash_choice& c = choice(r.storage);
      if (c.kind == stash_kind::raw) {
        st.stash.push_back(dense_[r.storage]);
      } else if (reads_directly(o.kind, r.what, c, r.slice.whole())) {
        st.stash.push_back(kept_[r.storage]);
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
    copy_at(tick_of(id) + 1);
  }

  const graph& g_;
  const scheduler& facts_;
  const selection& s_;
  schedule out_;
  id_vector<step_number, step_order> orders_;  // of the steps; of copies it says nothing
  step_order order_;                           // of the next one
  // Whose choice made the steps and buffers: of what a recipe makes on its way, its target's.
  id_vector<step_number, storage_id> step_owners_;
  id_vector<buffer_id, storage_id> buffer_owners_;
  storage_id target_ = no_id;                      // of the recipe that is being run
  id_vector<storage_id, buffer_id> dense_, kept_;  // current buffer of each storage, -1 if there is none
  id_vector<storage_id, buffer_id> host_, arriving_;
  std::size_t next_copy_ = 0;
};

}  // namespace

scheduler::scheduler(const graph& g)
    : g_(g),
      first_use_(g.storages.size(), no_id),
      last_forward_use_(g.storages.size(), no_id),
      last_use_(g.storages.size(), no_id) {
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    for (const auto* refs : {&o.inputs, &o.outputs}) {
      for (const tensor_ref& r : *refs) {
        const storage_id s = r.storage;
        if (!first_use_[s].valid()) first_use_[s] = i;
        last_use_[s] = i;
        if (o.stage == op_stage::forward) last_forward_use_[s] = i;
      }
    }
    for (const storage_id s : o.optional_outputs)
      first_use_[s] = i;
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
    chosen.choices[c.storages[k]] = f.choices[k];
  for (std::size_t k = 0; k < c.ops.size(); ++k)
    chosen.alternative[c.ops[k]] = f.alternatives[k];
  schedule_part part = state_->steps.run_part(ops, c.storages);
  for (const storage_id s : c.storages) {
    chosen.choices[s] = {};
    chosen.choices[s].kind = stash_kind::raw;
  }
  for (const op_id o : c.ops)
    chosen.alternative[o] = 0;
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

id_vector<step_number, std::int64_t> live_bytes(const schedule& s) {
  id_vector<step_number, std::int64_t> change(s.steps.size() + 1, 0);
  for (const buffer& b : s.buffers) {
    if (b.form == buffer_form::host) continue;
    change[b.first_step] += b.bytes;
    change[b.last_step + 1] -= b.bytes;
  }
  id_vector<step_number, std::int64_t> live(s.steps.size());
  std::int64_t sum = 0;
  for (const step_number i : live.ids())
    live[i] = sum += change[i];
  return live;
}

}  // namespace stash::planner
