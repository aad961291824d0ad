// SPDX-License-Identifier: Apache-2.0
// What the validator derives from the graph alone: safe references, the state that every operand sees, and
// whether the chosen alternatives read what the needs table says.

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "planner/verify/validator_internal.hpp"

namespace stash::planner::validation {
namespace {

std::int64_t channels_of(const storage& s) {
  return s.shape.empty() ? 1 : s.shape.back();
}

bool sizes_are_sane(const storage& s, std::int64_t batch) {
  if (s.fixed_bytes < 0 || s.fixed_bytes > largest_size) return false;
  if (s.bytes_per_sample < 0 || s.bytes_per_sample > (largest_size - s.fixed_bytes) / batch) return false;
  std::int64_t n = s.batch_proportional() ? batch : 1;
  for (const std::int64_t d : s.shape) {
    if (d < 1 || n > largest_size / d) return false;
    n *= d;
  }
  const auto element = static_cast<std::int64_t>(size_of(s.type));
  return element > 0 && n * element <= s.bytes(batch);
}

bool ref_is_sane(const graph& g, const tensor_ref& ref) {
  if (!g.storages.contains(ref.storage)) return false;
  const std::int64_t channels = channels_of(g.storages[ref.storage]);
  if (ref.whole()) return ref.channel_begin == 0;
  return ref.channel_begin >= 0 && ref.channels > 0 && ref.channels <= channels &&
         ref.channel_begin <= channels - ref.channels;
}

bool op_is_sane(const graph& g, const op& o) {
  const auto ref_ok = [&g](const tensor_ref& ref) { return ref_is_sane(g, ref); };
  const auto storage_ok = [&g](storage_id s) { return g.storages.contains(s); };
  const auto read_ok = [&g](const stash_read& r) {
    return r.storage == r.slice.storage && ref_is_sane(g, r.slice);
  };
  const auto alternative_ok = [&](const stash_alternative& a) {
    return std::all_of(a.reads.begin(), a.reads.end(), read_ok);
  };
  return std::all_of(o.inputs.begin(), o.inputs.end(), ref_ok) &&
         std::all_of(o.outputs.begin(), o.outputs.end(), ref_ok) &&
         std::all_of(o.optional_outputs.begin(), o.optional_outputs.end(), storage_ok) &&
         std::all_of(o.alternatives.begin(), o.alternatives.end(), alternative_ok) &&
         (o.forward_op == no_id || g.ops.contains(o.forward_op)) && o.batch_begin >= 0 && o.batch_end >= -1 &&
         o.workspace_bytes >= 0 && o.workspace_bytes <= largest_size;
}

// Everything a recipe reads is a source or was made by it before, and every source is read. What else makes
// one right shows when its steps are replayed.
bool recipe_is_sane(const graph& g, const recipe& r) {
  const auto map = [&g](storage_id s) {
    return g.storages.contains(s) && g.storages[s].role == storage_role::feature_map;
  };
  if (r.ops.empty() || r.ops.size() > most_recipe_ops || !map(r.target) ||
      !std::all_of(r.sources.begin(), r.sources.end(), map))
    return false;
  std::set<storage_id> there(r.sources.begin(), r.sources.end()), read;
  op_id before = no_id;
  for (const op_id number : r.ops) {
    if (number <= before || !g.ops.contains(number)) return false;
    before = number;
    const op& o = g.ops[number];
    if (o.stage != op_stage::forward || o.inputs.empty() || o.outputs.empty()) return false;
    for (const tensor_ref& t : o.inputs) {
      if (!there.contains(t.storage)) return false;
      read.insert(t.storage);
    }
    for (const tensor_ref& made : o.outputs)
      there.insert(made.storage);
  }
  const std::vector<tensor_ref>& last = g.ops[r.ops.back()].outputs;
  const bool made =
      std::any_of(last.begin(), last.end(), [&r](const tensor_ref& t) { return t.storage == r.target; });
  return made && std::all_of(r.sources.begin(), r.sources.end(),
                             [&](storage_id s) { return s != r.target && read.contains(s); });
}

// Which operand of the forward op a read means.
enum class operand : std::uint8_t { x, y, auxiliary };

struct table_read {
  operand from;
  need what;
};

struct table_row {
  op_kind kind;
  bool fused;  // batch_norm_backward with the relu after the norm
  std::string_view form;
  std::size_t reads;
  std::array<table_read, 2> read;
};

constexpr table_read unused{operand::x, need::value};

constexpr std::array<table_row, 17> needs_table{{
    {op_kind::conv2d_backward_weights, false, "from_x", 1, {{{operand::x, need::value}, unused}}},
    {op_kind::dense_backward_weights, false, "from_x", 1, {{{operand::x, need::value}, unused}}},
    {op_kind::relu_backward, false, "from_y", 1, {{{operand::y, need::sign}, unused}}},
    {op_kind::leaky_relu_backward, false, "from_y", 1, {{{operand::y, need::sign}, unused}}},
    {op_kind::relu6_backward, false, "from_y", 1, {{{operand::y, need::range}, unused}}},
    {op_kind::max_pool_backward, false, "from_index", 1, {{{operand::auxiliary, need::window}, unused}}},
    {op_kind::max_pool_backward, false, "from_x", 1, {{{operand::x, need::exact_value}, unused}}},
    {op_kind::relu_max_pool_backward,
     false,
     "from_code",
     1,
     {{{operand::auxiliary, need::sign_window}, unused}}},
    {op_kind::relu_max_pool_backward,
     false,
     "from_index_and_y",
     2,
     {{{operand::auxiliary, need::window}, {operand::y, need::sign}}}},
    {op_kind::relu_max_pool_backward, false, "from_x", 1, {{{operand::x, need::exact_value}, unused}}},
    {op_kind::batch_norm_backward, false, "from_x", 1, {{{operand::x, need::value}, unused}}},
    {op_kind::batch_norm_backward, true, "from_x", 1, {{{operand::x, need::exact_value}, unused}}},
    {op_kind::batch_norm_backward,
     true,
     "from_x_and_y",
     2,
     {{{operand::x, need::value}, {operand::y, need::sign}}}},
    {op_kind::dropout_backward, false, "from_seed", 0, {{unused, unused}}},
    {op_kind::dropout_backward, false, "from_mask", 1, {{{operand::auxiliary, need::mask}, unused}}},
    {op_kind::lrn_backward, false, "from_x", 1, {{{operand::x, need::value}, unused}}},
    {op_kind::softmax_cross_entropy_backward,
     false,
     "from_probabilities",
     1,
     {{{operand::y, need::exact_value}, unused}}},
}};

const table_row* find_row(const op& o, std::string_view form) {
  const bool fused = o.kind == op_kind::batch_norm_backward && o.attributes.fused_relu;
  for (const table_row& row : needs_table) {
    if (row.kind == o.kind && row.fused == fused && row.form == form) return &row;
  }
  return nullptr;
}

bool may_run_without_stash(op_kind kind) {
  return std::none_of(needs_table.begin(), needs_table.end(),
                      [kind](const table_row& row) { return row.kind == kind && row.reads > 0; });
}

// The read names the operand, and nothing has overwritten it between the forward op and backward.
bool read_fits(const graph& g, const graph_history& history, op_id forward, const stash_read& read,
               const table_read& rule) {
  if (read.what != rule.what) return false;
  const op& f = g.ops[forward];
  const part_range range = history.parts(read.slice);
  const writer_list& last = history.after_forward(read.storage);
  if (rule.from == operand::x) {
    if (f.inputs.empty() || f.inputs[0].storage != read.storage) return false;
    const part_range seen = history.parts(f.inputs[0]);
    return seen.begin == range.begin && seen.end == range.end &&
           std::equal(history.input(forward, 0).begin(), history.input(forward, 0).end(),
                      last.begin() + static_cast<std::ptrdiff_t>(range.begin));
  }
  if (rule.from == operand::auxiliary) {
    return history.covers_all(read.slice) && std::find(f.optional_outputs.begin(), f.optional_outputs.end(),
                                                       read.storage) != f.optional_outputs.end();
  }
  if (f.outputs.empty() || f.outputs[0].storage != read.storage) return false;
  const part_range made = history.parts(f.outputs[0]);
  return made.begin == range.begin && made.end == range.end &&
         std::all_of(last.begin() + static_cast<std::ptrdiff_t>(range.begin),
                     last.begin() + static_cast<std::ptrdiff_t>(range.end),
                     [forward](writer_id w) { return w == forward; });
}

bool alternative_fits(const graph& g, const graph_history& history, const op& o, const stash_alternative& a) {
  // A generic op reads what its author says it reads.
  if (o.kind == op_kind::generic) return true;
  const table_row* row = find_row(o, a.form);
  if (row == nullptr || row->reads != a.reads.size()) return false;
  if (!g.ops.contains(o.forward_op)) return false;
  for (std::size_t i = 0; i < a.reads.size(); ++i) {
    if (!read_fits(g, history, o.forward_op, a.reads[i], row->read[i])) return false;
  }
  return true;
}

}  // namespace

void check_references(const graph& g, finding_list& found) {
  if (g.batch < 1 || g.batch > largest_size) {
    found.add(plan_fault::bad_graph, "batch: {}", g.batch);
    return;
  }
  std::int64_t total = 0;
  for (const storage& s : g.storages) {
    if (!sizes_are_sane(s, g.batch)) {
      found.add(plan_fault::bad_graph, "storage {}: shape and bytes do not fit", s.name);
    } else if (total <= largest_total) {
      total += s.bytes(g.batch);
    }
  }
  if (total > largest_total) found.add(plan_fault::bad_graph, "storages: more than 2^60 bytes in total");
  for (const op& o : g.ops) {
    if (!op_is_sane(g, o)) found.add(plan_fault::bad_graph, "op {}: an operand is out of range", o.name);
  }
  for (const recipe_id i : g.recipes.ids()) {
    if (!recipe_is_sane(g, g.recipes[i])) {
      found.add(plan_fault::bad_graph, "recipe {} of storage {}: does not fit its ops", i,
                g.recipes[i].target);
    }
  }
}

graph_history::graph_history(const graph& g) {
  for (const storage& s : g.storages) {
    cuts_.push_back({0, channels_of(s)});
  }
  const auto cut = [this](const tensor_ref& ref) {
    if (ref.whole()) return;
    std::vector<std::int64_t>& c = cuts_[ref.storage];
    c.push_back(ref.channel_begin);
    c.push_back(ref.channel_begin + ref.channels);
  };
  for (const op& o : g.ops) {
    std::for_each(o.inputs.begin(), o.inputs.end(), cut);
    std::for_each(o.outputs.begin(), o.outputs.end(), cut);
    for (const stash_alternative& a : o.alternatives) {
      for (const stash_read& r : a.reads) {
        cut(r.slice);
      }
    }
  }
  for (std::vector<std::int64_t>& c : cuts_) {
    std::sort(c.begin(), c.end());
    c.erase(std::unique(c.begin(), c.end()), c.end());
  }

  id_vector<storage_id, writer_list> now;
  for (const storage_id s : g.storages.ids()) {
    now.push_back(initial(g, s));
  }
  forward_ = now;
  const auto slice = [&](const tensor_ref& ref) {
    const part_range r = parts(ref);
    const writer_list& w = now[ref.storage];
    return writer_list(w.begin() + static_cast<std::ptrdiff_t>(r.begin),
                       w.begin() + static_cast<std::ptrdiff_t>(r.end));
  };
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    std::vector<writer_list>& inputs = inputs_.emplace_back();
    std::vector<writer_list>& outputs = outputs_.emplace_back();
    for (const tensor_ref& ref : o.inputs) {
      inputs.push_back(slice(ref));
    }
    for (const tensor_ref& ref : o.outputs) {
      outputs.push_back(slice(ref));
    }
    const auto write = [&](const tensor_ref& ref) {
      const part_range r = parts(ref);
      for (std::size_t part = r.begin; part < r.end; ++part) {
        now[ref.storage][part] = i;
        if (o.stage == op_stage::forward) {
          forward_[ref.storage][part] = i;
        }
      }
    };
    std::for_each(o.outputs.begin(), o.outputs.end(), write);
    for (const storage_id s : o.optional_outputs) {
      write({s, 0, 0});
    }
  }
}

part_range graph_history::parts(const tensor_ref& ref) const {
  if (ref.whole()) return {0, part_count(ref.storage)};
  const std::vector<std::int64_t>& c = cuts_[ref.storage];
  const auto position = [&c](std::int64_t channel) {
    return static_cast<std::size_t>(std::lower_bound(c.begin(), c.end(), channel) - c.begin());
  };
  return {position(ref.channel_begin), position(ref.channel_begin + ref.channels)};
}

bool graph_history::covers_all(const tensor_ref& ref) const {
  const part_range r = parts(ref);
  return r.begin == 0 && r.end == part_count(ref.storage);
}

writer_list graph_history::initial(const graph& g, storage_id s) const {
  const storage_role role = g.storages[s].role;
  const bool is_input = role == storage_role::image || role == storage_role::label;
  return writer_list(part_count(s), is_input ? outside : nobody);
}

void check_alternatives(const plan& p, const graph_history& history, finding_list& found) {
  const graph& g = p.network;
  for (const op_id i : g.ops.ids()) {
    if (found.full()) break;
    const op& o = g.ops[i];
    const std::int32_t number = p.alternative[i];
    if (o.alternatives.empty()) {
      if (number != -1) {
        found.add(plan_fault::bad_reference, "op {}: alternative {} of an op without any", o.name, number);
      }
      if (!may_run_without_stash(o.kind)) {
        found.add(plan_fault::bad_graph, "op {}: {} must read a stash", o.name, to_string(o.kind));
      }
      continue;
    }
    const stash_alternative* chosen = chosen_alternative(p, i);
    if (chosen == nullptr) {
      found.add(plan_fault::bad_reference, "op {}: alternative {} of {}", o.name, number,
                o.alternatives.size());
    } else if (!alternative_fits(g, history, o, *chosen)) {
      found.add(plan_fault::bad_graph, "op {}: {} does not read what its gradient needs", o.name,
                chosen->form);
    }
  }
}

}  // namespace stash::planner::validation
