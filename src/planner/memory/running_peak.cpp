// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/running_peak.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

constexpr std::int64_t never_live = std::numeric_limits<std::int64_t>::min() / 4;

std::int64_t sparse_bytes_of(const configuration& f) {
  std::int64_t sum = 0;
  for (const stash_choice& c : f.choices)
    if (kept_sparsely(c)) sum += c.bytes_after;
  return sum;
}

}  // namespace

running_peak::running_peak(const scheduler& facts, const option_set& options, const plan_options& plan,
                           picks start)
    : facts_(facts),
      options_(options),
      plan_(plan),
      current_(std::move(start)),
      builder_(facts),
      live_(facts.network().ops.size()) {
  const graph& g = facts_.network();
  steps_.resize(g.ops.size());
  ends_.resize(g.ops.size());
  most_.assign(g.ops.size(), 0);
  before_.assign(g.ops.size() + 1, 0);
  const std::size_t components = options_.components.size();
  // Whose ops are distinguished: components, and storages that belong to none.
  id_vector<storage_id, std::size_t> owner(g.storages.size());
  for (const storage_id s : owner.ids())
    owner[s] = components + position_of(s);
  for (std::size_t c = 0; c < components; ++c)
    for (const storage_id s : options_.components[c].storages)
      owner[s] = c;
  ops_of_.resize(components + owner.size());
  for (const op_id i : g.ops.ids()) {
    const op_id id = i;
    const op& o = g.ops[i];
    for_each_storage(o, [&](storage_id s) {
      std::vector<op_id>& ops = ops_of_[owner[s]];
      if (ops.empty() || ops.back() != id) ops.push_back(id);
    });
    const bool is_step = o.stage == op_stage::forward || o.stage == op_stage::backward;
    if (is_step && !first_op_.valid()) first_op_ = id;
    if (is_step) steps_[i].push_back({id, step_order::itself});
    changed_.push_back(id);
  }
  if (!first_op_.valid()) return;  // nothing runs, and nothing lives
  for (const component& c : options_.components)
    parts_.emplace_back(c.configurations.size());
  for (const storage_id s : owner.ids()) {
    if (owner[s] < components) continue;
    const component alone = {{s}, {}, {}, {}};
    const configuration none = {{}, {stash_choice{}}, 0, 0, {}};
    others_.push_back(builder_.build(ops_of_[owner[s]], alone, none));
  }
  for (const schedule_part& p : others_)
    enter(p);
  for (std::size_t c = 0; c < components; ++c) {
    sparse_bytes_ += sparse_bytes_of(options_.components[c].configurations[current_[c]]);
    enter(part(c, current_[c]));
  }
  for (const op_id o : std::exchange(changed_, {}))
    recount(o);
}

const schedule_part& running_peak::part(std::size_t component, std::size_t configuration) {
  std::optional<schedule_part>& p = parts_[component][configuration];
  const planner::component& c = options_.components[component];
  if (!p) p = builder_.build(ops_of_[component], c, c.configurations[configuration]);
  return *p;
}

void running_peak::enter(const schedule_part& p) {
  added_steps_ += static_cast<std::int64_t>(p.added.size());
  for (const step_order& s : p.added) {
    std::vector<step_order>& steps = steps_[s.op];
    steps.insert(std::lower_bound(steps.begin(), steps.end(), s), s);
    changed_.push_back(s.op);
  }
  for (const life& b : p.buffers) {
    const op_id first = op_of(b.first), last = op_of(b.last);
    live_.add(position_of(first) + 1, position_of(last), b.bytes);
    ends_[first].push_back(&b);
    if (last != first) ends_[last].push_back(&b);
    changed_.insert(changed_.end(), {first, last});
  }
  moved_ = moved_ || !p.added.empty();
}

void running_peak::leave(const schedule_part& p) {
  for (const step_order& s : p.added) {
    std::vector<step_order>& steps = steps_[s.op];
    steps.erase(std::lower_bound(steps.begin(), steps.end(), s));
    changed_.push_back(s.op);
  }
  for (const life& b : p.buffers) {
    const op_id first = op_of(b.first), last = op_of(b.last);
    live_.add(position_of(first) + 1, position_of(last), -b.bytes);
    for (const op_id end : {first, last}) {
      std::vector<const life*>& ends = ends_[end];
      ends.erase(std::remove(ends.begin(), ends.end(), &b), ends.end());
      changed_.push_back(end);
    }
  }
  moved_ = moved_ || !p.added.empty();
}

void running_peak::pick(std::size_t component, std::size_t configuration) {
  const id_vector<std::int32_t, planner::configuration>& all = options_.components[component].configurations;
  sparse_bytes_ += sparse_bytes_of(all[configuration]) - sparse_bytes_of(all[current_[component]]);
  if (first_op_.valid()) {
    leave(part_now(component));
    enter(part(component, configuration));
  }
  current_[component] = configuration;
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const op_id o : changed_)
    recount(o);
  changed_.clear();
}

std::size_t running_peak::step_of(const step_order& p) const {
  const std::vector<step_order>& steps = steps_[op_of(p)];
  return static_cast<std::size_t>(std::lower_bound(steps.begin(), steps.end(), p) - steps.begin());
}

// Sets change_ to what is live at each of the op's steps of the buffers that begin or end there.
void running_peak::count_steps(op_id op) const {
  change_.assign(steps_[op].size() + 1, 0);
  for (const life* b : ends_[op]) {
    const std::size_t first = op_of(b->first) == op ? step_of(b->first) : 0;
    const std::size_t last = op_of(b->last) == op ? step_of(b->last) : change_.size() - 2;
    change_[first] += b->bytes;
    change_[last + 1] -= b->bytes;
  }
  std::int64_t sum = 0;
  for (std::int64_t& c : change_)
    c = sum += c;
  change_.pop_back();
}

void running_peak::recount(op_id op) {
  std::int64_t most = never_live;
  if (!steps_[op].empty()) {
    count_steps(op);
    most = *std::max_element(change_.begin(), change_.end());
  }
  live_.add(position_of(op), position_of(op) + 1, most - most_[op]);
  most_[op] = most;
}

running_peak::moment running_peak::top() const {
  if (!first_op_.valid()) return {};
  moment m;
  m.op = op_id(live_.first_of_largest());
  m.bytes = live_.largest() + arena();
  count_steps(m.op);
  m.step = static_cast<std::size_t>(std::max_element(change_.begin(), change_.end()) - change_.begin());
  return m;
}

bool running_peak::is_live(std::size_t component, const moment& m) const {
  if (!m.op.valid()) return false;
  const std::vector<life>& buffers = part_now(component).buffers;
  return std::any_of(buffers.begin(), buffers.end(), [&](const life& b) {
    const op_id first = op_of(b.first), last = op_of(b.last);
    const bool begun = first < m.op || (first == m.op && step_of(b.first) <= m.step);
    return begun && (last > m.op || (last == m.op && step_of(b.last) >= m.step));
  });
}

std::int32_t running_peak::position(const step_order& p) const {
  return before_[op_of(p)] + static_cast<std::int32_t>(step_of(p));
}

std::int32_t running_peak::longest_life(std::size_t component) {
  if (!first_op_.valid()) return 0;
  if (moved_) {
    for (const op_id i : steps_.ids())
      before_[i + 1] = before_[i] + static_cast<std::int32_t>(steps_[i].size());
    moved_ = false;
  }
  std::int32_t longest = 0;
  for (const life& b : part_now(component).buffers)
    longest = std::max(longest, position(b.last) - position(b.first));
  return longest;
}

std::optional<std::int64_t> running_peak::bytes_with(std::size_t component, std::size_t configuration,
                                                     const moment& m) {
  if (!m.op.valid()) return 0;
  std::int64_t live = 0;
  for (const bool now : {true, false}) {
    const schedule_part& p = now ? part_now(component) : part(component, configuration);
    for (const life& b : p.buffers) {
      const op_id first = op_of(b.first), last = op_of(b.last);
      if (first == m.op || last == m.op) return std::nullopt;
      if (first < m.op && m.op < last) live += now ? -b.bytes : b.bytes;
    }
    for (const step_order& s : p.added)
      if (s.op == m.op) return std::nullopt;
  }
  const id_vector<std::int32_t, planner::configuration>& all = options_.components[component].configurations;
  const std::int64_t sparse =
      sparse_bytes_ + sparse_bytes_of(all[configuration]) - sparse_bytes_of(all[current_[component]]);
  return m.bytes + live - arena() + overflow_arena(sparse, plan_.overflow_share);
}

}  // namespace stash::planner
