// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

// A layout upside down is a layout too. Slots of sparse maps are seldom full to the brim, so the one with a
// dense buffer on top is taken: then the planned height is the height that a step really touches.
bool put_dense_on_top(std::vector<buffer>& buffers, std::int64_t height) {
  std::int64_t top = 0, mirrored_top = 0;
  for (const buffer& b : buffers) {
    if (b.form != buffer_form::dense) continue;
    top = std::max(top, b.offset + b.bytes);
    mirrored_top = std::max(mirrored_top, height - b.offset);
  }
  if (mirrored_top <= top) return false;
  for (buffer& b : buffers)
    b.offset = height - b.offset - b.bytes;
  return true;
}

// Where the same buffers lie in another placement, before it was turned upside down; -1: it does not have
// them. A storage has one buffer of a form after the other: their number distinguishes them.
std::vector<std::int64_t> offsets_like(const std::vector<buffer>& maps, const placement& like) {
  std::map<std::tuple<storage_id, buffer_form, int>, std::int64_t> known;
  std::map<std::pair<storage_id, buffer_form>, int> count;
  for (const buffer& b : like.steps.buffers) {
    const int number = count[{b.storage, b.form}]++;
    known[{b.storage, b.form, number}] =
        like.mirrored ? like.height - b.offset - b.bytes : b.offset - like.steps.overflow_bytes;
  }
  count.clear();
  std::vector<std::int64_t> offsets;
  for (const buffer& b : maps) {
    const auto at = known.find({b.storage, b.form, count[{b.storage, b.form}]++});
    offsets.push_back(at == known.end() ? -1 : at->second);
  }
  return offsets;
}

std::vector<buffer> host_buffers(const placement& p) {
  std::vector<buffer> on_host;
  for (const buffer& b : p.steps.buffers) {
    if (b.form == buffer_form::host) on_host.push_back(b);
  }
  return on_host;
}

// The op of a step; encode, decode and recompute belong to the op that follows or precedes them.
op_id op_near(const schedule& s, step_number step) {
  for (step_number i = step; i < s.steps.next_id(); ++i) {
    if (s.steps[i].kind == step_kind::run) return s.steps[i].op;
  }
  return no_id;
}

}  // namespace

placement place(schedule s, std::optional<std::int64_t> capacity, std::int64_t work, const placement* like) {
  placement result;
  result.steps = std::move(s);
  id_vector<buffer_id, buffer>& buffers = result.steps.buffers;
  // The overflow arena lives all the time: it lies at the bottom, whatever the others do.
  std::vector<buffer> maps, everything;
  for (const buffer& b : buffers) {
    if (b.form == buffer_form::host) continue;
    everything.push_back(b);
    if (b.form != buffer_form::overflow) maps.push_back(b);
  }
  result.max_live = max_live(blocks_of(everything), buffer_alignment);
  const std::int64_t bottom = result.steps.overflow_bytes;
  layout_problem problem{blocks_of(maps), buffer_alignment, {}};
  if (capacity) problem.capacity = std::max<std::int64_t>(0, *capacity - bottom);
  if (like != nullptr && !like->steps.buffers.empty()) problem.hint = {offsets_like(maps, *like), like->way};
  layout_limits limits;
  limits.work = work;
  const layout_solution layout = solve_layout(problem, limits);
  for (std::size_t i = 0; i < maps.size(); ++i)
    maps[i].offset = layout.offsets[i];
  result.mirrored = put_dense_on_top(maps, layout.height);
  std::size_t map = 0;
  for (buffer& b : buffers) {
    if (b.form == buffer_form::overflow) {
      b.offset = 0;
    } else if (b.form != buffer_form::host) {
      b.offset = bottom + maps[map++].offset;
    }
  }
  result.height = layout.height + bottom;
  result.way = layout.way;
  return result;
}

void place_on_host(placement& p) {
  const std::vector<buffer> on_host = host_buffers(p);
  if (!p.laid_out) {
    p.host_bytes = max_live(blocks_of(on_host), buffer_alignment);
    return;
  }
  const layout_result host = make_layout(blocks_of(on_host), buffer_alignment);
  std::size_t copy = 0;
  for (buffer& b : p.steps.buffers) {
    if (b.form == buffer_form::host) b.offset = host.offsets[copy++];
  }
  p.host_bytes = host.height;
}

std::int64_t bytes_on_host(const placement& p) {
  const std::vector<layout_block> blocks = blocks_of(host_buffers(p));
  return p.laid_out ? make_layout(blocks, buffer_alignment).height : max_live(blocks, buffer_alignment);
}

placement without_layout(schedule s) {
  placement result;
  result.laid_out = false;
  result.steps = std::move(s);
  std::vector<buffer> on_device;
  for (const buffer& b : result.steps.buffers) {
    if (b.form != buffer_form::host) on_device.push_back(b);
  }
  result.height = result.max_live = max_live(blocks_of(on_device), buffer_alignment);
  return result;
}

id_vector<step_number, std::int64_t> bytes_above(const placement& p, std::int64_t capacity) {
  if (!p.laid_out) {
    id_vector<step_number, std::int64_t> above = live_bytes(p.steps);
    for (std::int64_t& bytes : above)
      bytes = std::max<std::int64_t>(0, bytes - capacity);
    return above;
  }
  id_vector<step_number, std::int64_t> change(p.steps.steps.size() + 1, 0);
  for (const buffer& b : p.steps.buffers) {
    const std::int64_t out = std::min(b.bytes, b.offset + b.bytes - capacity);
    if (b.form == buffer_form::host || out <= 0) continue;
    change[b.first_step] += out;
    change[b.last_step + 1] -= out;
  }
  id_vector<step_number, std::int64_t> above;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i + 1 < change.size(); ++i)
    above.push_back(sum += change[i]);
  return above;
}

std::vector<fixed_life> passing_gradients(const graph& g) {
  id_vector<storage_id, op_id> first(g.storages.size(), no_id), last(g.storages.size(), no_id);
  for (const op_id i : g.ops.ids()) {
    const op& o = g.ops[i];
    for (const storage_id s : o.parameters_written) {
      if (!first[s].valid()) first[s] = i;
    }
    if (o.kind != op_kind::sgd_update || o.stage != op_stage::backward) continue;
    for (const storage_id s : o.parameters)
      last[s] = i;
  }
  std::vector<fixed_life> list;
  for (const storage_id s : g.storages.ids()) {
    if (g.storages[s].role == storage_role::weight_gradient && last[s].valid())
      list.push_back({s, std::max(first[s], op_id(0)), last[s]});
  }
  return list;
}

std::int64_t parameter_bytes(const graph& g) {
  std::int64_t sum = 0;
  for (const storage& s : g.storages) {
    if (!s.batch_proportional()) sum += aligned(s.bytes(g.batch));
  }
  id_vector<op_id, std::int64_t> change(g.ops.size() + 1, 0);
  for (const fixed_life& x : passing_gradients(g)) {
    const std::int64_t bytes = aligned(g.at(x.storage).bytes(g.batch));
    sum -= bytes;
    change[x.first] += bytes;
    change[x.last + 1] -= bytes;
  }
  std::int64_t live = 0, most = 0;
  for (const std::int64_t c : change)
    most = std::max(most, live += c);
  return sum + most;
}

std::int64_t workspace_bytes(const graph& g) {
  std::int64_t most = 0;
  for (const op& o : g.ops)
    most = std::max(most, o.workspace_bytes);
  return aligned(most);
}

bool overflow_arena_matters(const placement& p) {
  constexpr std::int64_t parts = 4096;
  return p.steps.overflow_bytes > p.height / parts;
}

[[noreturn]] void refuse_budget(const graph& g, const placement& smallest, std::int64_t fixed,
                                std::int64_t budget) {
  const id_vector<step_number, std::int64_t> live = live_bytes(smallest.steps);
  const step_number at = live.id_of(std::max_element(live.begin(), live.end()));
  std::vector<const buffer*> alive;
  for (const buffer& b : smallest.steps.buffers) {
    if (b.first_step <= at && at <= b.last_step && b.storage.valid() && b.form != buffer_form::host)
      alive.push_back(&b);
  }
  std::stable_sort(alive.begin(), alive.end(),
                   [](const buffer* a, const buffer* b) { return a->bytes > b->bytes; });
  std::string tensors;
  for (std::size_t i = 0; i < alive.size() && i < 6; ++i) {
    tensors += fmt::format("{}{} ({}, {} bytes)", i == 0 ? "" : ", ", shortened(g.at(alive[i]->storage).name),
                           to_string(alive[i]->form), alive[i]->bytes);
  }
  if (alive.size() > 6) tensors += fmt::format(" and {} smaller ones", alive.size() - 6);
  const op_id o = op_near(smallest.steps, at);
  throw error(
      errc::infeasible_budget,
      fmt::format(
          "make_plan: budget: expected at least {} bytes, got {}: while {} runs, these must be in memory "
          "at once: {}; in addition {} bytes of weights, gradients, momentum and workspace",
          smallest.height + fixed, budget, o.valid() ? shortened(g.op_at(o).name) : "the last op", tensors,
          fixed));
}

}  // namespace stash::planner
