// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a plan over buffers that hold not bytes but what these bytes are: of which storage, in
// which form, written by which op, and how exactly. A step that reads anything else is a finding.

#include <algorithm>

#include "planner/verify/validator_bound.hpp"
#include "planner/verify/validator_internal.hpp"

namespace stash::planner::validation {
namespace {

enum class quality : std::uint8_t {
  rounded,      // values of reduced precision; small ones may have become zero
  keeps_signs,  // values of reduced precision, none of them turned into zero
  exact,
};

// What a buffer holds. storage == no_id: nothing that may be read.
struct content {
  storage_id storage = no_id;
  bool encoded = false;
  quality values = quality::exact;
  writer_list writers;  // per part of the storage
  bool fine = true;     // if not exact, then of 16 bits at least
};

quality quality_of(const encoding& e) {
  if (e.values == value_format::source) return quality::exact;
  return e.underflow == underflow_rule::keep_nonzero ? quality::keeps_signs : quality::rounded;
}

// Whether the kernel takes the encoded bytes for this need.
bool kernel_takes(op_kind kind, need what, encoding_kind stored, bool whole) {
  switch (what) {
    case need::sign:
      if (!whole) return false;
      if (kind == op_kind::leaky_relu_backward) return stored == encoding_kind::sign_mask;
      return (kind == op_kind::relu_backward || kind == op_kind::relu_max_pool_backward ||
              kind == op_kind::batch_norm_backward || kind == op_kind::generic) &&
             (stored == encoding_kind::sign_mask || stored == encoding_kind::bitmap ||
              stored == encoding_kind::cast);
    case need::mask:
      return (kind == op_kind::dropout_backward || kind == op_kind::generic) &&
             stored == encoding_kind::sign_mask;
    case need::window:
      return stored == encoding_kind::window_index &&
             (kind == op_kind::max_pool_backward || kind == op_kind::relu_max_pool_backward ||
              kind == op_kind::generic);
    case need::sign_window:
      return stored == encoding_kind::relu_pool &&
             (kind == op_kind::relu_max_pool_backward || kind == op_kind::generic);
    case need::range:
      return whole && (kind == op_kind::relu6_backward || kind == op_kind::generic) &&
             stored == encoding_kind::range_mask;
    case need::value:
    case need::fine_value:
    case need::exact_value:
      return false;
  }
  return false;
}

bool meet(const graph_history& h, const tensor_ref& a, const tensor_ref& b) {
  return a.storage == b.storage && h.parts(a).meets(h.parts(b));
}

// One class: what a step may do follows from the state of all buffers, which every kind of step changes.
class replayer {
 public:
  replayer(const plan& p, const graph_history& history, finding_list& found)
      : p_(p),
        g_(p.network),
        h_(history),
        found_(found),
        contents_(p.buffers.size()),
        ran_(g_.ops.size()),
        run_again_(g_.ops.size()) {
    for (const buffer_id i : p.buffers.ids()) {
      const buffer& b = p.buffers[i];
      if (b.form != buffer_form::dense || !g_.storages.contains(b.storage)) continue;
      contents_[i] = {b.storage, false, quality::exact, h_.initial(g_, b.storage)};
      // What begins later, of an image, is what comes back from the host.
      if (b.first_step > 0) contents_[i].writers.assign(contents_[i].writers.size(), nobody);
    }
    for (const storage_id s : p.choices.ids()) {
      const stash_choice& c = p.choices[s];
      if (c.kind != stash_kind::recompute || !g_.recipes.contains(c.recipe)) continue;
      const recipe& r = g_.recipes[c.recipe];
      if (r.target != s) continue;
      for (const op_id o : r.ops)
        run_again_[o] = true;
    }
  }

  void run() {
    skip_updates();
    for (std::size_t i = 0; i < p_.steps.size() && !found_.full(); ++i) {
      now_ = static_cast<std::int64_t>(i);
      const step& s = p_.steps[i];
      switch (s.kind) {
        case step_kind::run:
          run_op(s);
          break;
        case step_kind::encode:
          encode(s);
          break;
        case step_kind::decode:
          decode(s);
          break;
        case step_kind::recompute:
          recompute(s);
          break;
        case step_kind::copy_out:
        case step_kind::copy_in:
          begin_copy(s);
          break;
        case step_kind::wait_out:
        case step_kind::wait_in:
          end_copy(s);
          break;
        default:
          found_.add(plan_fault::bad_reference, "step {}: unknown kind {}", now_, static_cast<int>(s.kind));
      }
    }
    if (g_.ops.contains(due_)) {
      found_.add(plan_fault::bad_order, "the steps end before op {} has run", g_.ops[due_].name);
    }
    for (const copying& c : copies_) {
      found_.add(plan_fault::bad_order, "the copy of {} to buffer {} never ends", name(c.storage), c.to);
    }
  }

 private:
  // ---- reading and writing buffers -----------------------------------------------------------------

  std::string_view name(storage_id s) const {
    if (!s.valid()) return "nothing";
    return g_.storages[s].name;
  }
  std::string writer_name(writer_id w) const {
    if (w == outside) return "from outside";
    return w == nobody ? "never written" : "as written by " + g_.ops[w].name;
  }
  content& content_of(buffer_id b) { return contents_[b]; }

  // Reports use outside the buffer's lifetime and goes on; false if there is no such buffer.
  bool touch(buffer_id id, bool host = false) {
    if (!p_.buffers.contains(id)) {
      found_.add(plan_fault::bad_reference, "step {}: buffer {} of {}", now_, id, p_.buffers.size());
      return false;
    }
    const buffer& b = p_.buffers[id];
    if (b.form == buffer_form::overflow || (b.form == buffer_form::host) != host ||
        !g_.storages.contains(b.storage)) {
      found_.add(plan_fault::bad_reference, "step {}: buffer {} is no operand", now_, id);
      return false;
    }
    if (now_ < b.first_step || now_ > b.last_step) {
      found_.add(plan_fault::bad_lifetime, "step {}: touches buffer {}, alive from {} to {}", now_, id,
                 b.first_step, b.last_step);
    }
    return true;
  }

  bool length_is(const char* list, std::size_t actual, std::size_t expected) {
    if (actual == expected) return true;
    found_.add(plan_fault::bad_reference, "step {}: {}: {} entries, expected {}", now_, list, actual,
               expected);
    return false;
  }

  // The buffer holds these parts of the storage in this state (`expected` begins at parts.begin).
  bool holds(buffer_id id, storage_id s, bool encoded, part_range parts, const writer_id* expected) {
    const content& c = content_of(id);
    if (c.storage != s || c.encoded != encoded) {
      found_.add(plan_fault::missing_value, "step {}: buffer {} holds {}{}, expected {}{}", now_, id,
                 c.encoded ? "encoded " : "", name(c.storage), encoded ? "encoded " : "", name(s));
      return false;
    }
    for (std::size_t i = parts.begin; i < parts.end; ++i) {
      const writer_id due = expected[i - parts.begin];
      if (c.writers[i] == due && due != nobody) continue;
      found_.add(plan_fault::missing_value, "step {}: buffer {} holds {} {}, expected it {}", now_, id,
                 name(s), writer_name(c.writers[i]), writer_name(due));
      return false;
    }
    return true;
  }

  bool holds_stash(buffer_id id, const tensor_ref& ref, bool encoded) {
    const part_range parts = h_.parts(ref);
    return holds(id, ref.storage, encoded, parts, h_.after_forward(ref.storage).data() + parts.begin);
  }

  void demand_exact(buffer_id id) {
    if (content_of(id).values == quality::exact) return;
    found_.add(plan_fault::illegal_encoding, "step {}: reads rounded values of {} where exact ones are due",
               now_, name(content_of(id).storage));
  }

  // `adopt`: the buffer may have been made for another storage (recompute over its source).
  void write_dense(buffer_id id, const tensor_ref& ref, op_id writer, quality values, bool adopt = false) {
    content& c = content_of(id);
    const buffer& b = p_.buffers[id];
    const bool made_for_it = b.form == buffer_form::dense && (adopt || b.storage == ref.storage);
    if (!made_for_it || b.bytes < g_.storages[ref.storage].bytes(g_.batch)) {
      found_.add(made_for_it ? plan_fault::bad_size : plan_fault::bad_reference,
                 "step {}: writes {} to buffer {}, made for {}{}", now_, name(ref.storage), id,
                 b.form == buffer_form::dense ? "" : "encoded ", name(b.storage));
      c = {};
      return;
    }
    if (c.storage != ref.storage || h_.covers_all(ref)) {
      c = {ref.storage, false, values, writer_list(h_.part_count(ref.storage), nobody)};
    }
    c.values = std::min(c.values, values);
    const part_range parts = h_.parts(ref);
    std::fill(c.writers.begin() + static_cast<std::ptrdiff_t>(parts.begin),
              c.writers.begin() + static_cast<std::ptrdiff_t>(parts.end), writer);
  }

  void write_encoded(buffer_id id, storage_id s, writer_list writers) {
    const buffer& b = p_.buffers[id];
    if (b.form != buffer_form::encoded || b.storage != s) {
      found_.add(plan_fault::bad_reference, "step {}: writes encoded {} to buffer {}, made for {}{}", now_,
                 name(s), id, b.form == buffer_form::encoded ? "encoded " : "", name(b.storage));
      content_of(id) = {};
      return;
    }
    content_of(id) = {s, true, quality::exact, std::move(writers)};
  }

  // ---- run -----------------------------------------------------------------------------------------

  void skip_updates() {
    while (g_.ops.contains(due_) && g_.ops[due_].stage == op_stage::update) {
      ++due_;
    }
  }

  void check_turn(op_id id) {
    const op& o = g_.ops[id];
    if (o.stage == op_stage::update) {
      found_.add(plan_fault::bad_order, "step {}: runs {}, which is the executor's to run", now_, o.name);
      return;
    }
    if (id != due_) {
      found_.add(plan_fault::bad_order, "step {}: runs {} where {} is due", now_, o.name,
                 g_.ops.contains(due_) ? std::string_view(g_.ops[due_].name) : "nothing");
    }
    due_ = id + 1;
    skip_updates();
  }

  // -1 is right for operands outside the map region and only for them.
  bool touch_operand(buffer_id id, const tensor_ref& ref) {
    if (g_.storages[ref.storage].batch_proportional()) return touch(id);
    if (id != no_id) {
      found_.add(plan_fault::bad_reference, "step {}: buffer {} for {}, which lies outside the map region",
                 now_, id, name(ref.storage));
    }
    return false;
  }

  void run_op(const step& s) {
    if (!g_.ops.contains(s.op)) {
      found_.add(plan_fault::bad_reference, "step {}: op {}", now_, s.op);
      return;
    }
    check_turn(s.op);
    ran_[s.op] = true;
    const op& o = g_.ops[s.op];
    const stash_alternative* alternative = chosen_alternative(p_, s.op);
    // A wrong alternative has been reported; its stash list cannot be judged.
    const bool judge_stash = alternative != nullptr || o.alternatives.empty();
    const std::size_t reads = alternative == nullptr ? 0 : alternative->reads.size();
    const bool lengths =
        length_is("inputs", s.inputs.size(), o.inputs.size()) &&
        length_is("outputs", s.outputs.size(), o.outputs.size()) &&
        length_is("optional_outputs", s.optional_outputs.size(), o.optional_outputs.size()) &&
        (!judge_stash || length_is("stash", s.stash.size(), reads));
    if (!lengths) return;

    for (std::size_t i = 0; i < o.inputs.size(); ++i) {
      if (!touch_operand(s.inputs[i], o.inputs[i])) continue;
      const tensor_ref& ref = o.inputs[i];
      if (holds(s.inputs[i], ref.storage, false, h_.parts(ref), h_.input(s.op, i).data())) {
        demand_exact(s.inputs[i]);
      }
    }
    for (std::size_t i = 0; i < reads; ++i) {
      if (touch(s.stash[i])) read_stash(o, alternative->reads[i], s.stash[i]);
    }
    check_sharing(s, o);
    for (std::size_t i = 0; i < o.outputs.size(); ++i) {
      if (!touch_operand(s.outputs[i], o.outputs[i])) continue;
      keep_rest_of_batch(s, o, i);
      write_dense(s.outputs[i], o.outputs[i], s.op, quality::exact);
    }
    for (std::size_t i = 0; i < o.optional_outputs.size(); ++i) {
      if (s.optional_outputs[i] == no_id || !touch(s.optional_outputs[i])) continue;
      write_optional(s.optional_outputs[i], o.optional_outputs[i], s.op);
    }
  }

  // An op on a part of the batch leaves the other samples as they were: they must be there.
  void keep_rest_of_batch(const step& s, const op& o, std::size_t i) {
    const bool whole = o.batch_begin == 0 && (o.batch_end == -1 || o.batch_end == g_.batch);
    const writer_list& before = h_.before_output(s.op, i);
    const bool fresh = std::all_of(before.begin(), before.end(), [](writer_id w) { return w == nobody; });
    if (!whole && !fresh) {
      holds(s.outputs[i], o.outputs[i].storage, false, h_.parts(o.outputs[i]), before.data());
    }
  }

  void write_optional(buffer_id id, storage_id s, op_id writer) {
    const stash_choice& c = p_.choices[s];
    if (c.kind == stash_kind::raw) {
      write_dense(id, {s, 0, 0}, writer, quality::exact);
    } else if (c.kind == stash_kind::encoded) {
      write_encoded(id, s, writer_list(h_.part_count(s), writer));
    } else {
      found_.add(plan_fault::illegal_encoding, "step {}: writes {}, which the plan does not keep", now_,
                 name(s));
    }
  }

  // In place exactly where the graph says so; nothing else that a step touches shares a buffer.
  void check_sharing(const step& s, const op& o) {
    for (std::size_t i = 0; i < s.outputs.size(); ++i) {
      const buffer_id out = s.outputs[i];
      if (out == no_id) continue;
      for (std::size_t k = 0; k < s.inputs.size(); ++k) {
        check_pair(out, o.outputs[i], s.inputs[k], o.inputs[k]);
      }
      for (std::size_t k = 0; k < i; ++k) {
        if (s.outputs[k] == out &&
            (o.outputs[k].storage != o.outputs[i].storage || meet(h_, o.outputs[k], o.outputs[i]))) {
          shared(out);
        }
      }
      if (std::count(s.stash.begin(), s.stash.end(), out) > 0) shared(out);
      if (std::count(s.optional_outputs.begin(), s.optional_outputs.end(), out) > 0) shared(out);
    }
    for (const buffer_id extra : s.optional_outputs) {
      if (extra == no_id) continue;
      if (std::count(s.inputs.begin(), s.inputs.end(), extra) > 0 ||
          std::count(s.optional_outputs.begin(), s.optional_outputs.end(), extra) > 1) {
        shared(extra);
      }
    }
  }

  void check_pair(buffer_id out, const tensor_ref& written, buffer_id in, const tensor_ref& read) {
    if (meet(h_, written, read) && out != in) {
      found_.add(plan_fault::bad_reference, "step {}: {} is written in place, but to buffer {} instead of {}",
                 now_, name(written.storage), out, in);
    }
    if (written.storage != read.storage && out == in) shared(out);
  }

  void shared(buffer_id id) {
    found_.add(plan_fault::bad_overlap, "step {}: writes buffer {} while it is read or written as another",
               now_, id);
  }

  void read_stash(const op& o, const stash_read& r, buffer_id id) {
    const bool encoded = p_.buffers[id].form == buffer_form::encoded;
    if (!holds_stash(id, encoded ? tensor_ref{r.storage, 0, 0} : r.slice, encoded)) return;
    if (encoded) {
      const std::optional<encoding> stored = stored_form(p_.choices[r.storage]);
      if (!stored || !kernel_takes(o.kind, r.what, stored->kind, h_.covers_all(r.slice))) {
        found_.add(plan_fault::illegal_encoding, "step {}: {} cannot take {} of {} from encoded bytes", now_,
                   to_string(o.kind), to_string(r.what), name(r.storage));
      }
      return;
    }
    const quality have = content_of(id).values;
    switch (r.what) {
      case need::sign:
        if (have == quality::rounded) {
          found_.add(plan_fault::lost_sign, "step {}: {} reads the sign of {} from rounded values", now_,
                     o.name, name(r.storage));
        }
        break;
      case need::value:
        break;
      case need::fine_value:
        if (!content_of(id).fine) {
          found_.add(plan_fault::illegal_encoding,
                     "step {}: {} reads values of {} of fewer than 16 bits, which do not do for it", now_,
                     o.name, name(r.storage));
        }
        break;
      case need::range:
      case need::mask:
      case need::exact_value:
        demand_exact(id);
        break;
      default:
        found_.add(plan_fault::illegal_encoding, "step {}: {} cannot take {} from dense {}", now_,
                   to_string(o.kind), to_string(r.what), name(r.storage));
    }
  }

  // ---- copies --------------------------------------------------------------------------------------

  // A copy between its begin and its wait. What it reads must still be there at the end, and nobody else may
  // have written where it writes.
  struct copying {
    storage_id storage;
    buffer_id from, to;
    content moved;
  };

  bool copy_operands(const step& s, bool out) {
    if (!check_shape(s, 1)) return false;
    const bool reads = touch(s.inputs[0], !out), writes = touch(s.outputs[0], out);
    if (!reads || !writes) return false;
    const buffer &from = p_.buffers[s.inputs[0]], &to = p_.buffers[s.outputs[0]];
    if (from.storage != s.storage || to.storage != s.storage || from.bytes != to.bytes) {
      found_.add(plan_fault::bad_reference, "step {}: copies buffer {} to {}, which do not belong together",
                 now_, s.inputs[0], s.outputs[0]);
      return false;
    }
    const stash_choice& c = p_.choices[s.storage];
    const buffer_form kept = c.kind == stash_kind::raw ? buffer_form::dense : buffer_form::encoded;
    if (!c.swapped || (out ? from : to).form != kept) {
      found_.add(plan_fault::illegal_encoding, "step {}: {} is not swapped in this form", now_,
                 name(s.storage));
      return false;
    }
    return true;
  }

  static bool same(const content& a, const content& b) {
    return a.storage == b.storage && a.encoded == b.encoded && a.values == b.values && a.writers == b.writers;
  }

  void begin_copy(const step& s) {
    const bool out = s.kind == step_kind::copy_out;
    if (!copy_operands(s, out)) return;
    const content& source = content_of(s.inputs[0]);
    const bool complete =
        source.storage == s.storage &&
        std::none_of(source.writers.begin(), source.writers.end(), [](writer_id w) { return w == nobody; });
    if (!complete) {
      found_.add(plan_fault::missing_value, "step {}: copies {}, which is not in buffer {}", now_,
                 name(s.storage), s.inputs[0]);
    }
    content_of(s.outputs[0]) = {};
    copies_.push_back({s.storage, s.inputs[0], s.outputs[0], source});
  }

  void end_copy(const step& s) {
    if (!copy_operands(s, s.kind == step_kind::wait_out)) return;
    const auto at_work = std::find_if(copies_.begin(), copies_.end(), [&](const copying& c) {
      return c.storage == s.storage && c.from == s.inputs[0] && c.to == s.outputs[0];
    });
    if (at_work == copies_.end()) {
      found_.add(plan_fault::missing_value, "step {}: waits for a copy of {} that has not begun", now_,
                 name(s.storage));
      return;
    }
    if (!same(at_work->moved, content_of(s.inputs[0])) || content_of(s.outputs[0]).storage != no_id) {
      found_.add(plan_fault::missing_value, "step {}: {} was written while it was copied", now_,
                 name(s.storage));
    }
    content_of(s.outputs[0]) = std::move(at_work->moved);
    copies_.erase(at_work);
  }

  // ---- encode, decode, recompute -------------------------------------------------------------------

  bool check_shape(const step& s, std::size_t max_inputs) {
    if (!g_.storages.contains(s.storage)) {
      found_.add(plan_fault::bad_reference, "step {}: storage {}", now_, s.storage);
      return false;
    }
    if (s.inputs.empty() || s.inputs.size() > max_inputs) {
      found_.add(plan_fault::bad_reference, "step {}: inputs: {} entries", now_, s.inputs.size());
      return false;
    }
    return length_is("outputs", s.outputs.size(), 1) &&
           length_is("optional_outputs", s.optional_outputs.size(), 0) &&
           length_is("stash", s.stash.size(), 0);
  }

  bool touch_both(const step& s) {
    const bool reads = touch(s.inputs[0]);
    return touch(s.outputs[0]) && reads;
  }

  void encode(const step& s) {
    if (!check_shape(s, 1) || !touch_both(s)) return;
    const std::optional<encoding> stored = stored_form(p_.choices[s.storage]);
    const bool encodable =
        stored && (stored->kind == encoding_kind::sign_mask || stored->kind == encoding_kind::range_mask ||
                   stored->kind == encoding_kind::bitmap || stored->kind == encoding_kind::csr ||
                   stored->kind == encoding_kind::cast);
    if (!encodable) {
      found_.add(plan_fault::illegal_encoding, "step {}: {} has no stored form that encode writes", now_,
                 name(s.storage));
    }
    // Whether this is the state that the readers want is checked where they read.
    const content& dense = content_of(s.inputs[0]);
    writer_list seen(h_.part_count(s.storage), nobody);
    if (dense.storage == s.storage && !dense.encoded) seen = dense.writers;
    if (holds(s.inputs[0], s.storage, false, {0, seen.size()}, seen.data())) demand_exact(s.inputs[0]);
    write_encoded(s.outputs[0], s.storage, std::move(seen));
  }

  void decode(const step& s) {
    if (!check_shape(s, 1) || !touch_both(s)) return;
    const stash_choice& c = p_.choices[s.storage];
    const bool bytes = g_.storages[s.storage].type == dtype::u8;
    const bool decodable =
        c.kind == stash_kind::encoded &&
        (c.stored.kind == encoding_kind::bitmap || c.stored.kind == encoding_kind::csr ||
         c.stored.kind == encoding_kind::cast || (c.stored.kind == encoding_kind::sign_mask && bytes));
    if (!decodable) {
      found_.add(plan_fault::illegal_encoding, "step {}: the stored form of {} has no dense values", now_,
                 name(s.storage));
    }
    const content& stored = content_of(s.inputs[0]);
    writer_list seen(h_.part_count(s.storage), nobody);
    if (stored.storage == s.storage && stored.encoded) seen = stored.writers;
    holds(s.inputs[0], s.storage, true, {0, seen.size()}, seen.data());
    write_dense(s.outputs[0], {s.storage, 0, 0}, nobody, quality_of(c.stored));
    content& out = content_of(s.outputs[0]);
    if (out.storage != s.storage) return;
    out.writers = std::move(seen);
    out.fine = has_16_bits(c.stored.values);
  }

  // Whether the op belongs to a recipe by which some storage is computed again.
  bool is_run_again(op_id o) const { return run_again_[o]; }

  // Whether the op is the last of the recipe of what it makes, with a mask that gates it.
  bool is_gated(const step& s) const {
    const stash_choice& c = p_.choices[s.storage];
    return c.kind == stash_kind::recompute && c.stored.kind == encoding_kind::sign_mask &&
           g_.ops[s.op].kind == op_kind::batch_norm && g_.recipes.contains(c.recipe) &&
           g_.recipes[c.recipe].target == s.storage && g_.recipes[c.recipe].ops.back() == s.op;
  }

  void recompute(const step& s) {
    const bool known = g_.ops.contains(s.op) && g_.storages.contains(s.storage) && is_run_again(s.op) &&
                       g_.ops[s.op].outputs[0].storage == s.storage;
    if (!known) {
      const bool there = g_.storages.contains(s.storage);
      const bool chosen = there && p_.choices[s.storage].kind == stash_kind::recompute;
      found_.add(there && !chosen ? plan_fault::illegal_encoding : plan_fault::bad_reference,
                 "step {}: storage {} is not to be recomputed by op {}", now_, s.storage, s.op);
      for (const buffer_id b : s.outputs)
        if (touch(b)) content_of(b) = {};
      return;
    }
    const op& o = g_.ops[s.op];
    const bool gated = is_gated(s);
    if (!length_is("inputs", s.inputs.size(), o.inputs.size() + (gated ? 1 : 0)) ||
        !length_is("outputs", s.outputs.size(), o.outputs.size()) ||
        !length_is("optional_outputs", s.optional_outputs.size(), 0) ||
        !length_is("stash", s.stash.size(), 0))
      return;
    bool touched = true;
    for (const auto* list : {&s.inputs, &s.outputs}) {
      for (const buffer_id b : *list)
        touched = touch(b) && touched;
    }
    if (!touched) return;
    if (!ran_[s.op]) {
      found_.add(plan_fault::missing_value, "step {}: {} has not run, its statistics are not there", now_,
                 o.name);
    }
    bool exact = true, fine = true;
    for (std::size_t i = 0; i < o.inputs.size(); ++i) {
      const bool held =
          holds(s.inputs[i], o.inputs[i].storage, false, h_.parts(o.inputs[i]), h_.input(s.op, i).data());
      exact = exact && held && content_of(s.inputs[i]).values == quality::exact;
      fine =
          fine && held && (content_of(s.inputs[i]).values == quality::exact || content_of(s.inputs[i]).fine);
    }
    if (gated) holds_stash(s.inputs.back(), {s.storage, 0, 0}, true);
    // After a rounded source the mask answers sign needs, not the recomputed values.
    for (std::size_t i = 0; i < s.outputs.size(); ++i) {
      const bool in_place = std::find(s.inputs.begin(), s.inputs.end(), s.outputs[i]) != s.inputs.end();
      write_dense(s.outputs[i], o.outputs[i], s.op, exact ? quality::exact : quality::rounded, in_place);
      content_of(s.outputs[i]).fine = fine;
    }
  }

  const plan& p_;
  const graph& g_;
  const graph_history& h_;
  finding_list& found_;
  id_vector<buffer_id, content> contents_;
  std::vector<copying> copies_;
  id_vector<op_id, bool> ran_, run_again_;
  std::int64_t now_ = 0;
  op_id due_ = op_id(0);
};

}  // namespace

void check_steps(const plan& p, const graph_history& history, finding_list& found) {
  replayer(p, history, found).run();
}

}  // namespace stash::planner::validation
