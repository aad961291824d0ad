// SPDX-License-Identifier: Apache-2.0
#include "planner/time/timeline_of_choice.hpp"

#include <algorithm>

namespace stash::planner {
timeline_of_choice::timeline_of_choice(const graph& g, const option_set& options, const problem& ticks,
                                       const step_problem& steps)
    : g_(g), options_(options), ticks_(ticks), steps_(steps) {
  const auto first =
      std::find_if(g.ops.begin(), g.ops.end(), [](const op& o) { return o.stage == op_stage::update; });
  first_update_ = tick_of(g.ops.id_of(first));
}

selection timeline_of_choice::select(const option_choice& choice, const timeline_record& record) const {
  selection s;
  s.choices.resize(g_.storages.size());
  s.alternative.assign(g_.ops.size(), -1);
  for (const op_id i : g_.ops.ids()) {
    if (!g_.ops[i].alternatives.empty()) s.alternative[i] = 0;
  }
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const component& c = options_.components[i];
    const item_option& o = steps_.items[i].options[choice[i]];
    const configuration& f = c.configurations[o.configuration];
    for (std::size_t k = 0; k < c.storages.size(); ++k) {
      s.choices[c.storages[k]] = f.choices[k];
      s.choices[c.storages[k]].swapped = k < 32 && ((o.swapped >> k) & 1U) != 0;
    }
    for (std::size_t k = 0; k < c.ops.size(); ++k)
      s.alternative[c.ops[k]] = f.alternatives[k];
  }
  s.copies = copies_of(choice, record);
  return s;
}

// The tick of a step that is shown with the work that codecs of small items add to the step: the last one. In
// a step that reaches into the update stage it is the last op before that, since codecs never run after it.
std::int32_t timeline_of_choice::carrier(std::size_t step) const {
  const std::int32_t first = steps_.first_tick[step], last = steps_.first_tick[step + 1] - 1;
  const std::int32_t before_updates = first_update_ - 2;
  return first <= before_updates && before_updates < last ? before_updates : last;
}

// Begin of every tick on the compute stream.
id_vector<tick_number, double> timeline_of_choice::tick_begins(const timeline_record& record) const {
  id_vector<tick_number, double> begin(ticks_.tick_ms.size(), 0.0);
  for (std::size_t k = 0; k + 1 < steps_.first_tick.size(); ++k) {
    const std::int32_t carrying = carrier(k);
    double at = record.begin[k];
    for (std::int32_t t = steps_.first_tick[k]; t <= carrying; ++t) {
      begin[t] = at;
      at += ticks_.tick_ms[t];
    }
    at = record.end[k];
    for (std::int32_t t = steps_.first_tick[k + 1] - 1; t > carrying; --t) {
      at -= ticks_.tick_ms[t];
      begin[t] = std::max(at, begin[carrying]);
    }
  }
  return begin;
}

id_vector<tick_number, double> timeline_of_choice::tick_ends(
    const timeline_record& record, const id_vector<tick_number, double>& begin) const {
  id_vector<tick_number, double> end = begin;
  for (std::size_t i = 0; i < end.size(); ++i)
    end[i] += ticks_.tick_ms[i];
  for (std::size_t k = 0; k + 1 < steps_.first_tick.size(); ++k) {
    if (steps_.first_tick[k] == steps_.first_tick[k + 1]) continue;
    const std::int32_t carrying = carrier(k), last = steps_.first_tick[k + 1] - 1;
    if (carrying < last) end[carrying] = begin[carrying + 1];
    end[last] = record.end[k];
  }
  return end;
}

tick_times timeline_of_choice::times_of(const option_choice& choice, const timeline_record& record) const {
  tick_times t;
  t.begin = tick_begins(record);
  t.end = tick_ends(record, t.begin);
  for (const simulated_transfer& x : record.transfers) {
    const item_option& o = ticks_.items[x.item].options[choice[x.item]];
    const storage_id s =
        options_.components[x.item].storages[position_of(o.transfers[position_of(x.index)].form)];
    t.swaps.push_back({s, x.out_begin, x.out_end, x.in_begin, x.in_end});
  }
  return t;
}

std::vector<copy_event> timeline_of_choice::copies_of(const option_choice& choice,
                                                      const timeline_record& record) const {
  struct timed {
    copy_event event;
    double ms;
    int rank;  // of events of one moment: ends before begins
  };
  const id_vector<tick_number, double> begin = tick_begins(record);
  const auto tick_from = [&](double ms) {
    return static_cast<std::int32_t>(std::lower_bound(begin.begin(), begin.end(), ms) - begin.begin());
  };
  // A copy back has its bytes from its beginning on: while the op runs that runs then, or from the next op on
  // where none runs. The sums of durations may differ from the clock in their last digits.
  const id_vector<tick_number, double> end = tick_ends(record, begin);
  const double rounding = begin.empty() ? 0.0 : 1e-9 * begin.back();
  const auto tick_at = [&](double ms) {
    const auto after = std::upper_bound(begin.begin(), begin.end(), ms + rounding);
    const auto next = static_cast<std::int32_t>(after - begin.begin());
    return next > 0 && ms < end[next - 1] - rounding ? next - 1 : next;
  };
  std::vector<timed> events;
  id_vector<std::int32_t, simulated_transfer> transfers = record.transfers;
  std::stable_sort(
      transfers.begin(), transfers.end(),
      [](const simulated_transfer& a, const simulated_transfer& b) { return a.in_begin < b.in_begin; });
  std::int32_t latest_in = 0;
  for (const simulated_transfer& t : transfers) {
    const component& c = options_.components[t.item];
    const item_option& o = ticks_.items[t.item].options[choice[t.item]];
    const transfer& x = o.transfers[position_of(t.index)];
    const storage_id s = c.storages[position_of(x.form)];
    const std::int32_t out = std::clamp(tick_from(t.out_begin), x.released + 1, x.needed);
    const std::int32_t out_done = std::clamp(tick_from(t.out_end), out, x.needed);
    // Copies back stay in the order of their beginnings, also after one that only just got to the host.
    const std::int32_t in = std::clamp(tick_at(t.in_begin), std::max(out_done, latest_in), x.needed);
    latest_in = in;
    events.push_back({{out, step_kind::copy_out, s}, t.out_begin, 2});
    events.push_back({{out_done, step_kind::wait_out, s}, t.out_end, 0});
    events.push_back({{in, step_kind::copy_in, s}, t.in_begin, 3});
    events.push_back({{x.needed, step_kind::wait_in, s}, t.in_end, 1});
  }
  std::stable_sort(events.begin(), events.end(), [](const timed& a, const timed& b) {
    if (a.event.at != b.event.at) return a.event.at < b.event.at;
    return a.ms != b.ms ? a.ms < b.ms : a.rank < b.rank;
  });
  std::vector<copy_event> copies;
  copies.reserve(events.size());
  for (const timed& e : events)
    copies.push_back(e.event);
  return copies;
}

id_vector<step_number, joined_step> timeline_of_choice::steps_of(const schedule& s) const {
  id_vector<step_number, joined_step> steps(s.steps.size(), 0);
  std::int32_t tick = 0;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const bool is_run = s.steps[i].kind == step_kind::run;
    if (is_run) tick = tick_of(s.steps[i].op);
    const auto next = std::upper_bound(steps_.first_tick.begin(), steps_.first_tick.end(), tick);
    steps[i] = static_cast<std::int32_t>(next - steps_.first_tick.begin()) - 1;
    if (is_run) ++tick;
  }
  return steps;
}

id_vector<joined_step, std::int64_t> timeline_of_choice::most_above(const placement& placed,
                                                                    std::int64_t capacity) const {
  const id_vector<step_number, joined_step> step = steps_of(placed.steps);
  const id_vector<step_number, std::int64_t> above = bytes_above(placed, capacity);
  id_vector<std::int32_t, std::int64_t> most(steps_.ms.size(), 0);
  for (std::size_t i = 0; i < above.size(); ++i)
    most[step[i]] = std::max(most[step[i]], above[i]);
  return most;
}

}  // namespace stash::planner
