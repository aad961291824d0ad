// SPDX-License-Identifier: Apache-2.0
// Buffers as blocks of memory, and the sizes that a plan reports about them.

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "planner/verify/validator_internal.hpp"

namespace stash::planner::validation {
namespace {

bool has_sane_range(const buffer& b) {
  return b.offset >= 0 && b.bytes >= 0 && b.offset <= largest_size && b.bytes <= largest_size;
}

bool has_sane_steps(const plan& p, const buffer& b) {
  return b.first_step >= 0 && b.first_step <= b.last_step && p.steps.contains(b.last_step);
}

void check_range(const plan& p, buffer_id i, finding_list& found) {
  const buffer& b = p.buffers[i];
  if (!has_sane_range(b) || b.offset % buffer_alignment != 0 || b.bytes % buffer_alignment != 0) {
    found.add(plan_fault::bad_alignment, "buffer {}: offset {}, {} bytes", i, b.offset, b.bytes);
  }
  if (!has_sane_steps(p, b)) {
    found.add(plan_fault::bad_lifetime, "buffer {}: steps {} to {} of {}", i, b.first_step, b.last_step,
              p.steps.size());
  }
}

void check_no_offset(const plan& p, buffer_id i, finding_list& found) {
  if (p.buffers[i].offset != 0) {
    found.add(plan_fault::bad_alignment, "buffer {}: offset {} in a plan that is not laid out", i,
              p.buffers[i].offset);
  }
}

void check_dense(const plan& p, buffer_id i, finding_list& found) {
  const buffer& b = p.buffers[i];
  const storage& s = p.network.storages[b.storage];
  if (!s.batch_proportional()) {
    found.add(plan_fault::bad_reference, "buffer {}: {} lies outside the map region", i, s.name);
  }
  if (b.bytes < s.bytes(p.network.batch)) {
    found.add(plan_fault::bad_size, "buffer {}: {} bytes, {} needs {}", i, b.bytes, s.name,
              s.bytes(p.network.batch));
  }
  const bool is_input = s.role == storage_role::image || s.role == storage_role::label;
  // An image that comes back from the host gets a buffer of its own.
  const bool returned = s.role == storage_role::image && p.choices[b.storage].swapped;
  if (is_input && b.first_step != 0 && !returned) {
    found.add(plan_fault::bad_lifetime, "buffer {}: {} is there before step 0, not from step {}", i, s.name,
              b.first_step);
  }
}

void check_encoded(const plan& p, buffer_id i, finding_list& found) {
  const buffer& b = p.buffers[i];
  const storage& s = p.network.storages[b.storage];
  const stash_choice& c = p.choices[b.storage];
  const std::optional<encoding> stored = stored_form(c);
  if (!stored) {
    found.add(plan_fault::illegal_encoding, "buffer {}: {} has no stored form", i, s.name);
    return;
  }
  if (!(c.density >= 0.0 && c.density <= 1.0)) {
    found.add(plan_fault::bad_size, "buffer {}: {} is sized for a density of {}", i, s.name, c.density);
    return;
  }
  const std::optional<std::int64_t> needed = slot_bytes(*stored, s, p.network.batch, c.density);
  const std::optional<std::int64_t> kept = kept_bytes(c, s, p.network.batch, p.slot_margin);
  if (needed && kept && b.bytes < std::max(*needed, *kept)) {
    found.add(plan_fault::bad_size, "buffer {}: {} bytes, the slot of {} needs {}", i, b.bytes, s.name,
              std::max(*needed, *kept));
  }
}

// As large as the device buffers that it is copied from and to; the steps say which these are.
void check_host(const plan& p, buffer_id i, finding_list& found) {
  const buffer& b = p.buffers[i];
  if (!p.choices[b.storage].swapped) {
    found.add(plan_fault::bad_reference, "buffer {}: host memory for {}, which is not swapped", i,
              p.network.storages[b.storage].name);
  }
}

void check_overflow(const plan& p, finding_list& found) {
  int count = 0;
  for (const buffer_id i : p.buffers.ids()) {
    const buffer& b = p.buffers[i];
    if (b.form != buffer_form::overflow) continue;
    ++count;
    if (b.storage != no_id) {
      found.add(plan_fault::bad_reference, "buffer {}: the overflow arena belongs to no storage", i);
    }
    if (b.bytes < p.overflow_bytes) {
      found.add(plan_fault::bad_size, "buffer {}: {} bytes for an overflow arena of {}", i, b.bytes,
                p.overflow_bytes);
    }
    if (b.first_step != 0 ||
        static_cast<std::int64_t>(b.last_step) + 1 != static_cast<std::int64_t>(p.steps.size())) {
      found.add(plan_fault::bad_lifetime, "buffer {}: the overflow arena is not alive in all steps", i);
    }
  }
  if (p.overflow_bytes < 0) found.add(plan_fault::bad_size, "overflow_bytes: {}", p.overflow_bytes);
  if (count > 1 || (count == 0 && p.overflow_bytes > 0)) {
    found.add(plan_fault::bad_reference, "{} buffers for an overflow arena of {} bytes", count,
              p.overflow_bytes);
  }
}

// A buffer beginning or ending to be alive. Within one step all beginnings come before all ends.
struct event {
  std::int64_t position;  // 2 * first_step + 1, or 2 * last_step + 2
  bool begins;
  buffer_id buffer;
};

// Of the map region or of the host arena.
std::vector<event> events_of(const plan& p, bool host) {
  std::vector<event> events;
  for (const buffer_id i : p.buffers.ids()) {
    const buffer& b = p.buffers[i];
    if ((b.form == buffer_form::host) != host) continue;
    if (!has_sane_range(b) || !has_sane_steps(p, b) || b.bytes == 0) continue;
    events.push_back({2 * static_cast<std::int64_t>(b.first_step) + 1, true, i});
    events.push_back({2 * static_cast<std::int64_t>(b.last_step) + 2, false, i});
  }
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    return std::tie(a.position, a.buffer) < std::tie(b.position, b.buffer);
  });
  return events;
}

// Sweep over the steps with the living buffers in order of their offsets: as long as these are disjoint, a
// new one can only meet its neighbours. One that overlaps is reported and left out, which keeps it so.
void check_overlap(const plan& p, bool host, finding_list& found) {
  std::set<std::pair<std::int64_t, buffer_id>> alive;
  const auto meet = [&p](buffer_id a, buffer_id b) {
    const buffer& x = p.buffers[a];
    const buffer& y = p.buffers[b];
    return x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
  };
  for (const event& e : events_of(p, host)) {
    const std::pair<std::int64_t, buffer_id> key{p.buffers[e.buffer].offset, e.buffer};
    if (!e.begins) {
      alive.erase(key);
      continue;
    }
    const auto next = alive.lower_bound(key);
    std::optional<buffer_id> other;
    if (next != alive.end() && meet(next->second, e.buffer)) other = next->second;
    if (next != alive.begin() && meet(std::prev(next)->second, e.buffer)) other = std::prev(next)->second;
    if (!other) {
      alive.insert(key);
    } else {
      found.add(plan_fault::bad_overlap, "buffers {} and {} share bytes while both are alive", *other,
                e.buffer);
    }
  }
}

// Sums wrap around instead of overflowing: buffers that do not overlap cannot get that far.
std::int64_t sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

std::int64_t largest_live(const plan& p, bool host) {
  std::int64_t live = 0, largest = 0;
  for (const event& e : events_of(p, host)) {
    const std::int64_t bytes = p.buffers[e.buffer].bytes;
    live = sum(live, e.begins ? bytes : -bytes);
    largest = std::max(largest, live);
  }
  return largest;
}

// Bytes alive while the first backward op runs; 0 if none does.
std::int64_t live_at_boundary(const plan& p) {
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const step& s = p.steps[i];
    if (s.kind != step_kind::run || !p.network.ops.contains(s.op)) continue;
    if (p.network.ops[s.op].stage != op_stage::backward) continue;
    const auto now = static_cast<std::int64_t>(i);
    std::int64_t live = 0;
    for (const buffer& b : p.buffers) {
      if (b.form != buffer_form::host && has_sane_range(b) && b.first_step <= now && now <= b.last_step)
        live = sum(live, b.bytes);
    }
    return live;
  }
  return 0;
}

std::int64_t dense_sum(const graph& g, const std::set<storage_id>& storages) {
  std::int64_t bytes = 0;
  for (const storage_id s : storages) {
    if (g.storages[s].batch_proportional()) bytes = sum(bytes, g.storages[s].bytes(g.batch));
  }
  return bytes;
}

bool reads_dense(need what) {
  return what == need::value || what == need::fine_value || what == need::exact_value;
}

// What one op cannot do without: its operands, and the dense reads of its cheapest alternative.
std::int64_t working_set(const graph& g, const op& o) {
  std::set<storage_id> operands;
  for (const tensor_ref& ref : o.inputs) {
    operands.insert(ref.storage);
  }
  for (const tensor_ref& ref : o.outputs) {
    operands.insert(ref.storage);
  }
  if (o.alternatives.empty()) return dense_sum(g, operands);
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  for (const stash_alternative& a : o.alternatives) {
    std::set<storage_id> all = operands;
    for (const stash_read& r : a.reads) {
      if (reads_dense(r.what)) all.insert(r.storage);
    }
    smallest = std::min(smallest, dense_sum(g, all));
  }
  return smallest;
}

// What the best layout of the unencoded graph lies between: the largest sum of what is there at once whatever
// alternatives are read, and the sum of all buffers.
struct height_range {
  std::int64_t least = 0, most = 0;
};

class unencoded_heights {
 public:
  explicit unencoded_heights(const graph& g) : g_(g), live_(g.ops.size() + 1, 0), last_(g.storages.size()) {}

  height_range run() {
    const auto is_step = [](const op& o) { return o.stage != op_stage::update; };
    if (std::none_of(g_.ops.begin(), g_.ops.end(), is_step)) return {};  // nothing runs, nothing is there
    for (const storage_id s : g_.storages.ids()) {
      const storage_role role = g_.storages[s].role;
      const bool is_input = role == storage_role::image || role == storage_role::label;
      if (is_input && counts(s)) begin(s, op_id(0));
      // Codes are there or not, in a form that is no larger.
      if (role == storage_role::auxiliary)
        most_ = sum(most_, round_up(std::max(g_.storages[s].bytes(g_.batch), elements(s))));
    }
    for (const op_id t : g_.ops.ids()) {
      if (is_step(g_.ops[t])) visit(g_.ops[t], t);
    }
    std::int64_t now = 0, least = 0;
    for (const std::int64_t change : live_)
      least = std::max(least, now = sum(now, change));
    return {least, most_};
  }

 private:
  bool counts(storage_id s) const {
    return g_.storages[s].batch_proportional() && g_.storages[s].role != storage_role::auxiliary;
  }
  std::int64_t elements(storage_id s) const { return elements_of(g_.storages[s], g_.batch); }
  std::int64_t bytes(storage_id s) const { return round_up(g_.storages[s].bytes(g_.batch)); }

  // A buffer that is there from op t on.
  void begin(storage_id s, op_id t) {
    most_ = sum(most_, bytes(s));
    hold(s, t, t);
    last_[s] = t;
  }

  void hold(storage_id s, op_id first, op_id last) {
    live_[first] = sum(live_[first], bytes(s));
    live_[last + 1] = sum(live_[last + 1], -bytes(s));
  }

  // A use of what was there before: since the last use it was not gone.
  void extend(storage_id s, op_id t) {
    if (!last_[s].valid()) return begin(s, t);
    if (last_[s] == t) return;
    hold(s, last_[s] + 1, t);
    last_[s] = t;
  }

  void visit(const op& o, op_id t) {
    for (const tensor_ref& r : o.inputs) {
      if (counts(r.storage)) extend(r.storage, t);
    }
    for (const storage_id s : always_read(o)) {
      if (counts(s)) extend(s, t);
    }
    for (const tensor_ref& r : o.outputs) {
      const storage_id s = r.storage;
      if (!counts(s) || last_[s] == t) continue;
      // What is only written may have been gone before.
      if (r.whole() || !last_[s].valid()) {
        begin(s, t);
      } else {
        hold(s, t, t);
        last_[s] = t;
      }
    }
  }

  // By all alternatives.
  static std::vector<storage_id> always_read(const op& o) {
    std::vector<storage_id> list;
    if (o.alternatives.empty()) return list;
    for (const stash_read& r : o.alternatives.front().reads) {
      const bool always =
          std::all_of(o.alternatives.begin(), o.alternatives.end(), [&](const stash_alternative& a) {
            return std::any_of(a.reads.begin(), a.reads.end(),
                               [&](const stash_read& x) { return x.storage == r.storage; });
          });
      if (always) list.push_back(r.storage);
    }
    return list;
  }

  const graph& g_;
  id_vector<op_id, std::int64_t> live_;  ///< changes
  id_vector<storage_id, op_id> last_;    ///< use
  std::int64_t most_ = 0;
};

class totals_checker {
 public:
  totals_checker(const plan& p, finding_list& found) : p_(p), found_(found) {}

  void run() {
    const plan_sizes& sizes = p_.sizes;
    std::int64_t peak = 0, host = 0, workspace = 0, wall = 0;
    for (const buffer& b : p_.buffers) {
      if (!has_sane_range(b)) continue;
      std::int64_t& end = b.form == buffer_form::host ? host : peak;
      end = std::max(end, b.offset + b.bytes);
    }
    if (!p_.laid_out) {
      peak = largest_live(p_, false);
      host = largest_live(p_, true);
    }
    const std::int64_t parameters = fixed_size_bytes(p_.network);
    for (const op& o : p_.network.ops) {
      workspace = std::max(workspace, round_up(o.workspace_bytes));
      wall = std::max(wall, working_set(p_.network, o));
    }
    const std::int64_t static_bytes = sum(parameters, workspace);
    const std::int64_t total = sum(peak, static_bytes);
    expect("planned_peak", sizes.planned_peak, peak);
    expect("host_bytes", sizes.host_bytes, host);
    expect("parameter_bytes", sizes.parameter_bytes, parameters);
    expect("workspace_bytes", sizes.workspace_bytes, workspace);
    expect("planned_peak_total", sizes.planned_peak_total, total);
    expect("baseline_peak_total", sizes.baseline_peak_total, sum(sizes.baseline_peak, static_bytes));
    const height_range unencoded = unencoded_heights(p_.network).run();
    if (sizes.baseline_peak < unencoded.least || sizes.baseline_peak > unencoded.most) {
      found_.add(plan_fault::bad_totals, "baseline_peak: reported {}, lies between {} and {}",
                 sizes.baseline_peak, unencoded.least, unencoded.most);
    }
    expect("max_live", sizes.max_live, largest_live(p_, false));
    expect("boundary", sizes.boundary, live_at_boundary(p_));
    expect("wall", sizes.wall, wall);
    const bool names_wall = p_.network.ops.contains(sizes.wall_op) &&
                            working_set(p_.network, p_.network.ops[sizes.wall_op]) == wall;
    if (!names_wall && !p_.network.ops.empty()) {
      found_.add(plan_fault::bad_totals, "wall_op: {} does not need the reported bytes", sizes.wall_op);
    }
    // What is on the host is below the bound of plans that keep everything on the device.
    const bool swaps =
        std::any_of(p_.choices.begin(), p_.choices.end(), [](const stash_choice& c) { return c.swapped; });
    if (sizes.bound < 0 || (sizes.bound > peak && !swaps)) {
      found_.add(plan_fault::bad_totals, "bound: {} with a planned peak of {}", sizes.bound, peak);
    } else if (sizes.bound > 0) {
      if (const std::int64_t proven = least_peak(p_); sizes.bound > proven)
        found_.add(plan_fault::bad_totals, "bound: {}, but no more than {} is proven", sizes.bound, proven);
    }
    if (p_.model && p_.model->host_bytes > 0 && host > p_.model->host_bytes) {
      found_.add(plan_fault::over_budget, "{} bytes on the host with a limit of {}", host,
                 p_.model->host_bytes);
    }
    if (p_.budget_bytes < 0) found_.add(plan_fault::bad_totals, "budget_bytes: {}", p_.budget_bytes);
    if (p_.budget_bytes > 0 && total > p_.budget_bytes) {
      found_.add(plan_fault::over_budget, "{} bytes with a budget of {}", total, p_.budget_bytes);
    }
    // Where no budget was given it is the machine's memory.
    const std::int64_t memory = p_.model ? p_.model->memory_bytes : 0;
    if (p_.budget_bytes == 0 && memory > 0 && total > memory) {
      found_.add(plan_fault::over_budget, "{} bytes on a machine with {}", total, memory);
    }
  }

 private:
  void expect(const char* what, std::int64_t reported, std::int64_t own) {
    if (reported != own) found_.add(plan_fault::bad_totals, "{}: reported {}, is {}", what, reported, own);
  }

  const plan& p_;
  finding_list& found_;
};

}  // namespace

std::int64_t fixed_size_bytes(const graph& g) {
  id_vector<storage_id, std::int64_t> updates(g.storages.size(), 0);  // that are still to come
  const auto visit_updated = [&g](const op& o, const auto& visit) {
    if (o.kind != op_kind::sgd_update || o.stage != op_stage::backward) return;
    for (const storage_id s : o.parameters) {
      if (g.storages.contains(s) && g.storages[s].role == storage_role::weight_gradient) visit(s);
    }
  };
  for (const op& o : g.ops)
    visit_updated(o, [&](storage_id s) { ++updates[s]; });
  std::int64_t always = 0, now = 0, most = 0;
  id_vector<storage_id, bool> passing(g.storages.size()), there(g.storages.size());
  for (const storage_id s : g.storages.ids()) {
    passing[s] = updates[s] > 0;
    if (!passing[s] && !g.storages[s].batch_proportional())
      always = sum(always, round_up(g.storages[s].fixed_bytes));
  }
  for (const op& o : g.ops) {
    for (const storage_id s : o.parameters_written) {
      if (!g.storages.contains(s) || !passing[s] || there[s]) continue;
      there[s] = true;
      now = sum(now, round_up(g.storages[s].fixed_bytes));
    }
    most = std::max(most, now);
    visit_updated(o, [&](storage_id s) {
      if (--updates[s] == 0 && there[s]) now = sum(now, -round_up(g.storages[s].fixed_bytes));
    });
  }
  return sum(always, most);
}

void check_buffers(const plan& p, finding_list& found) {
  for (const buffer_id i : p.buffers.ids()) {
    if (found.full()) break;
    const buffer& b = p.buffers[i];
    check_range(p, i, found);
    if (!p.laid_out) check_no_offset(p, i, found);
    if (b.form == buffer_form::overflow) continue;
    if (!p.network.storages.contains(b.storage)) {
      found.add(plan_fault::bad_reference, "buffer {}: storage {}", i, b.storage);
    } else if (b.form == buffer_form::dense) {
      check_dense(p, i, found);
    } else if (b.form == buffer_form::encoded) {
      check_encoded(p, i, found);
    } else if (b.form == buffer_form::host) {
      check_host(p, i, found);
    } else {
      found.add(plan_fault::bad_reference, "buffer {}: unknown form {}", i, static_cast<int>(b.form));
    }
  }
  check_overflow(p, found);
  if (!p.laid_out) return;
  check_overlap(p, false, found);
  check_overlap(p, true, found);
}

void check_totals(const plan& p, finding_list& found) {
  totals_checker(p, found).run();
}

}  // namespace stash::planner::validation
