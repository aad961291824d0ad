// SPDX-License-Identifier: Apache-2.0
#include "planner/time/simulator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace stash::planner {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

std::size_t index(std::int32_t i) {
  return static_cast<std::size_t>(i);
}

// One direction of the link.
struct engine {
  std::int32_t current = -1;  // transfer that is being copied
  double left = 0.0;          // ms at the full rate
};

}  // namespace

simulator::simulator(const step_problem& p) : p_(p), work_(p.ms), loaded_(p.items.size(), -1) {
  leaves_ = std::bit_ceil(std::max<std::size_t>(p.ms.size(), 1));
  held_now_.resize(p.ms.size());
  base_.resize(p.ms.size());
  change_.resize(p.ms.size() + 1);
  work_left_.resize(p.ms.size() + 1);
  tree_.resize(2 * leaves_);
  lazy_.resize(2 * leaves_);
  std::vector<std::vector<work_of_option>> at_step(p.ms.size());
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    first_option_.push_back(options_.size());
    const std::vector<item_option>& list = p.items[i].options;
    for (std::size_t o = 0; o < list.size(); ++o) {
      options_.push_back({held_.size(), work_steps_.size(), transfers_.size()});
      held_.insert(held_.end(), list[o].held.begin(), list[o].held.end());
      for (const added_work& w : list[o].work) {
        work_steps_.push_back(w.tick);
        at_step[index(w.tick)].push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(o), w.ms});
      }
      for (std::size_t t = 0; t < list[o].transfers.size(); ++t) {
        const transfer& x = list[o].transfers[t];
        transfers_.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(t), x.released,
                              x.needed, x.earliest, x.bytes, -1.0, -1.0, -1});
      }
    }
  }
  options_.push_back({held_.size(), work_steps_.size(), transfers_.size()});
  for (const std::vector<work_of_option>& list : at_step) {
    first_work_.push_back(added_.size());
    added_.insert(added_.end(), list.begin(), list.end());
  }
  first_work_.push_back(added_.size());
}

// Among those that are released at once, the one that is needed back last goes first.
bool simulator::released_before(std::int32_t a, std::int32_t b) const {
  const moving &x = transfers_[index(a)], &y = transfers_[index(b)];
  if (x.released != y.released) return x.released < y.released;
  return x.needed != y.needed ? x.needed > y.needed : a < b;
}

bool simulator::needed_before(std::int32_t a, std::int32_t b) const {
  const moving &x = transfers_[index(a)], &y = transfers_[index(b)];
  if (x.needed != y.needed) return x.needed < y.needed;
  return x.released != y.released ? x.released < y.released : a < b;
}

void simulator::put(std::int32_t transfer) {
  const auto sorted = [&](std::vector<std::int32_t>& list, auto before) {
    list.insert(std::upper_bound(list.begin(), list.end(), transfer, before), transfer);
  };
  sorted(by_release_, [&](std::int32_t a, std::int32_t b) { return released_before(a, b); });
  sorted(by_need_, [&](std::int32_t a, std::int32_t b) { return needed_before(a, b); });
}

void simulator::take(std::int32_t transfer) {
  const auto sorted = [&](std::vector<std::int32_t>& list, auto before) {
    list.erase(std::lower_bound(list.begin(), list.end(), transfer, before));
  };
  sorted(by_release_, [&](std::int32_t a, std::int32_t b) { return released_before(a, b); });
  sorted(by_need_, [&](std::int32_t a, std::int32_t b) { return needed_before(a, b); });
}

// From what was loaded before: a search changes few items at a time.
void simulator::load(const option_choice& choice) {
  std::int32_t begin = static_cast<std::int32_t>(base_.size()), end = 0;
  touched_.clear();
  const auto apply = [&](std::size_t item, std::int32_t option, bool in) {
    const loaded* const o = &options_[first_option_[item] + index(option)];
    for (std::size_t h = o[0].held; h < o[1].held; ++h) {
      const std::int64_t bytes = in ? held_[h].bytes : -held_[h].bytes;
      change_[index(held_[h].first)] += bytes;
      change_[index(held_[h].last) + 1] -= bytes;
      begin = std::min(begin, held_[h].first);
      end = std::max(end, held_[h].last + 1);
    }
    touched_.insert(touched_.end(), work_steps_.begin() + static_cast<std::ptrdiff_t>(o[0].work),
                    work_steps_.begin() + static_cast<std::ptrdiff_t>(o[1].work));
    for (std::size_t t = o[0].transfers; t < o[1].transfers; ++t)
      in ? put(static_cast<std::int32_t>(t)) : take(static_cast<std::int32_t>(t));
  };
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (loaded_[i] == choice[i]) continue;
    if (loaded_[i] >= 0) apply(i, loaded_[i], false);
    apply(i, choice[i], true);
    loaded_[i] = choice[i];
  }
  std::int64_t sum = 0;
  for (std::int32_t k = begin; k < end; ++k) {
    sum += change_[index(k)];
    change_[index(k)] = 0;
    held_now_[index(k)] += sum;
  }
  change_[index(end)] = 0;
  // Added up again in the order of items: what is loaded does not depend on what was loaded before.
  for (const std::int32_t k : touched_) {
    double ms = p_.ms[index(k)];
    for (std::size_t w = first_work_[index(k)]; w < first_work_[index(k) + 1]; ++w) {
      if (loaded_[index(added_[w].item)] == added_[w].option) ms += added_[w].ms;
    }
    work_[index(k)] = ms;
  }
}

void simulator::find_least() {
  work_left_.back() = 0.0;
  for (std::size_t k = work_.size(); k-- > 0;)
    work_left_[k] = work_left_[k + 1] + work_[k];
  copies_before_.resize(by_need_.size() + 1);
  copies_end_.resize(by_need_.size() + 1);
  copies_before_[0] = 0.0;
  for (std::size_t n = 0; n < by_need_.size(); ++n) {
    const auto bytes = static_cast<double>(transfers_[index(by_need_[n])].bytes);
    copies_before_[n + 1] = copies_before_[n] + p_.link.latency_ms + bytes / p_.link.in_rate;
  }
  copies_end_.back() = 0.0;
  for (std::size_t n = by_need_.size(); n-- > 0;) {
    const double end = copies_before_[n + 1] + work_left_[index(transfers_[index(by_need_[n])].needed)];
    copies_end_[n] = std::max(copies_end_[n + 1], end);
  }
}

void simulator::build_tree() {
  std::fill(lazy_.begin(), lazy_.end(), 0);
  std::fill(tree_.begin() + static_cast<std::ptrdiff_t>(leaves_), tree_.end(), 0);
  std::copy(base_.begin(), base_.end(), tree_.begin() + static_cast<std::ptrdiff_t>(leaves_));
  for (std::size_t n = leaves_ - 1; n >= 1; --n)
    tree_[n] = std::max(tree_[2 * n], tree_[2 * n + 1]);
}

// Bottom-up segment tree with sums that stay at the nodes.
std::int64_t simulator::largest(std::int32_t first, std::int32_t last) const {
  std::int64_t left_best = std::numeric_limits<std::int64_t>::min(), right_best = left_best;
  if (first > last) return left_best;
  std::size_t l = index(first) + leaves_, r = index(last) + leaves_;
  left_best = tree_[l];
  right_best = tree_[r];
  while (l / 2 != r / 2) {
    if (l % 2 == 0) left_best = std::max(left_best, tree_[l + 1]);
    if (r % 2 == 1) right_best = std::max(right_best, tree_[r - 1]);
    l /= 2;
    r /= 2;
    left_best += lazy_[l];
    right_best += lazy_[r];
  }
  std::int64_t best = std::max(left_best, right_best);
  for (l /= 2; l >= 1; l /= 2)
    best += lazy_[l];
  return best;
}

void simulator::add(std::int32_t first, std::int32_t last, std::int64_t bytes) {
  if (first > last) return;
  std::size_t l = index(first) + leaves_, r = index(last) + leaves_;
  const auto touch = [&](std::size_t n) {
    tree_[n] += bytes;
    lazy_[n] += bytes;
  };
  touch(l);
  if (l != r) touch(r);
  const auto pull = [&](std::size_t n) { tree_[n] = std::max(tree_[2 * n], tree_[2 * n + 1]) + lazy_[n]; };
  while (l / 2 != r / 2) {
    if (l % 2 == 0) touch(l + 1);
    if (r % 2 == 1) touch(r - 1);
    l /= 2;
    r /= 2;
    pull(l);
    pull(r);
  }
  for (l /= 2; l >= 1; l /= 2)
    pull(l);
}

simulated simulator::run(const option_choice& choice, double give_up_ms, timeline_record* record) {
  return run(choice, give_up_ms, record, nullptr);
}

simulated simulator::run_late(const option_choice& choice, timeline_record& record) {
  const simulated early = run(choice, never, &record, nullptr);
  if (!early.feasible || record.transfers.empty()) return early;
  // Backwards in the order in which the link works: each ends when it is needed or the next one begins.
  std::vector<double> not_before(record.transfers.size(), 0.0);
  double next = never;
  for (std::size_t n = by_need_.size(); n-- > 0;) {
    const moving& x = transfers_[index(by_need_[n])];
    const simulated_transfer& t = record.transfers[index(x.record)];
    const double end = std::min(next, record.begin[index(x.needed)]);
    const double begin = end - (t.in_end - t.in_begin);
    next = std::max(t.in_begin, begin);
    not_before[index(x.record)] = next;
  }
  timeline_record late;
  const simulated again = run(choice, never, &late, &not_before);
  if (!again.feasible || again.ms > early.ms * (1.0 + 1e-12)) {
    // What was found first is the record that the caller gets.
    return run(choice, never, &record, nullptr);
  }
  record = std::move(late);
  return again;
}

simulated simulator::run(const option_choice& choice, double give_up_ms, timeline_record* record,
                         const std::vector<double>* not_before) {
  load(choice);
  simulated result;
  const auto steps = static_cast<std::int32_t>(p_.ms.size());
  for (std::int32_t k = 0; k < steps; ++k) {
    base_[index(k)] = p_.fixed[index(k)] + held_now_[index(k)];
    result.peak = std::max(result.peak, base_[index(k)]);
  }
  if (result.peak > p_.limit) {
    const auto fullest = std::find(base_.begin(), base_.end(), result.peak);
    result.missing = result.peak - p_.limit;
    result.missing_step = static_cast<std::int32_t>(fullest - base_.begin());
  }
  if (record != nullptr) {
    record->begin.assign(p_.ms.size(), 0.0);
    record->end.assign(p_.ms.size(), 0.0);
    record->transfers.clear();
  }
  if (result.missing > 0) return result;
  for (const std::int32_t m : by_need_)
    transfers_[index(m)].out_done = transfers_[index(m)].in_done = -1.0;
  const link_model& link = p_.link;
  if (!by_need_.empty() && !(link.out_rate > 0.0 && link.in_rate > 0.0)) return result;
  // The sums below are in another order than the clock's: what comes this close is simulated to its end.
  const double hopeless = give_up_ms * (1.0 + 1e-12);
  find_least();
  if (std::max(work_left_[0], copies_end_[0]) > hopeless) return result;
  if (!by_need_.empty()) build_tree();
  if (record != nullptr) {
    std::vector<std::int32_t> by_item = by_need_;
    std::sort(by_item.begin(), by_item.end());
    for (const std::int32_t m : by_item) {
      moving& x = transfers_[index(m)];
      x.record = static_cast<std::int32_t>(record->transfers.size());
      simulated_transfer t;
      t.item = x.item;
      t.index = x.index;
      record->transfers.push_back(t);
    }
  }
  double now = 0.0, compute_end = never;
  bool computing = false;
  std::int32_t k = 0;
  std::int64_t pending_out = 0, prefetched = 0, on_host = 0;
  std::size_t released = 0, next_out = 0, next_in = 0, arrived_needs = 0, next_off_host = 0;
  engine out, in;
  // Bytes in use while step k runs or waits to run.
  const auto used = [&] { return base_[index(std::min(k, steps - 1))] + pending_out + prefetched; };
  const auto note_peak = [&] { result.peak = std::max(result.peak, used()); };
  while (true) {
    // ---- start what can start
    if (out.current < 0 && next_out < released) {
      const std::int32_t m = by_release_[next_out];
      if (on_host + transfers_[index(m)].bytes <= link.host_bytes) {
        ++next_out;
        out = {m, link.latency_ms + static_cast<double>(transfers_[index(m)].bytes) / link.out_rate};
        on_host += transfers_[index(m)].bytes;
        result.host_peak = std::max(result.host_peak, on_host);
        if (record != nullptr) record->transfers[index(transfers_[index(m)].record)].out_begin = now;
      }
    }
    double may_begin = 0.0;
    if (in.current < 0 && next_in < by_need_.size()) {
      const std::int32_t m = by_need_[next_in];
      moving& x = transfers_[index(m)];
      if (not_before != nullptr) may_begin = (*not_before)[index(x.record)];
      if (x.out_done >= 0.0 && may_begin <= now && x.earliest <= k) {
        const bool due = x.needed <= k;
        const std::int64_t before = computing || k == 0 ? 0 : base_[index(k) - 1] + pending_out + prefetched;
        const std::int64_t now_used = std::max(used(), before);
        const bool fits =
            due ? now_used <= p_.limit
                : now_used + x.bytes <= p_.limit && largest(k + 1, x.needed - 1) + x.bytes <= p_.limit;
        if (fits) {
          ++next_in;
          in = {m, link.latency_ms + static_cast<double>(x.bytes) / link.in_rate};
          if (!due) {
            prefetched += x.bytes;
            add(k, x.needed - 1, x.bytes);
          }
          note_peak();
          if (record != nullptr) {
            record->transfers[index(x.record)].in_begin = now;
            record->transfers[index(x.record)].taken = k;
          }
        }
      }
    }
    if (!computing && k < steps) {
      while (arrived_needs < next_in && transfers_[index(by_need_[arrived_needs])].in_done >= 0.0)
        ++arrived_needs;
      const bool all_there =
          arrived_needs >= by_need_.size() || transfers_[index(by_need_[arrived_needs])].needed > k;
      if (all_there && used() <= p_.limit) {
        computing = true;
        compute_end = now + work_[index(k)];
        note_peak();
        if (record != nullptr) record->begin[index(k)] = now;
        const std::int64_t before = on_host;
        for (; next_off_host < arrived_needs && transfers_[index(by_need_[next_off_host])].needed <= k;
             ++next_off_host)
          on_host -= transfers_[index(by_need_[next_off_host])].bytes;
        if (on_host < before && out.current < 0 && next_out < released) continue;  // it may fit now
      }
    }
    if (!computing && k >= steps) break;
    // ---- advance to the next end of anything
    const bool both = out.current >= 0 && in.current >= 0;
    const double rate = both ? link.contention : 1.0;
    const double out_end = out.current >= 0 ? now + out.left / rate : never;
    const double in_end = in.current >= 0 ? now + in.left / rate : never;
    double wake = never;
    if (may_begin > now) wake = may_begin;
    const double next = std::min({compute_end, out_end, in_end, wake});
    if (next == never) {  // a step waits for memory that nothing will free
      result.missing = std::max<std::int64_t>(1, used() - p_.limit);
      result.missing_step = k;
      result.host_is_full = next_out < released;
      if (result.host_is_full) {
        const std::int64_t leaving = transfers_[index(by_release_[next_out])].bytes;
        result.missing = std::max(result.missing, on_host + leaving - link.host_bytes);
      }
      return result;
    }
    if (next > give_up_ms) return result;
    const double computed = computing ? compute_end + work_left_[index(k) + 1] : next + work_left_[index(k)];
    // The copy that runs may have the link to itself from now on.
    const double arrived = in.current >= 0 ? now + in.left : next;
    const double copied = arrived + copies_end_[next_in] - copies_before_[next_in];
    if (std::max(computed, copied) > hopeless) return result;
    const double elapsed = (next - now) * rate;
    out.left -= elapsed;
    in.left -= elapsed;
    now = next;
    if (out_end == next) {
      moving& x = transfers_[index(out.current)];
      x.out_done = now;
      pending_out -= x.bytes;
      if (record != nullptr) {
        record->transfers[index(x.record)].out_end = now;
        record->transfers[index(x.record)].freed = computing ? k : k - 1;
      }
      out = {};
    }
    if (in_end == next) {
      moving& x = transfers_[index(in.current)];
      x.in_done = now;
      if (record != nullptr) record->transfers[index(x.record)].in_end = now;
      in = {};
    }
    if (compute_end == next) {
      if (record != nullptr) record->end[index(k)] = now;
      computing = false;
      compute_end = never;
      while (released < by_release_.size() && transfers_[index(by_release_[released])].released == k) {
        pending_out += transfers_[index(by_release_[released])].bytes;
        ++released;
      }
      ++k;
      // What was fetched for this step is now part of what it holds; the others are still held in addition.
      prefetched = 0;
      for (std::size_t n = next_in; n-- > 0;) {
        const moving& x = transfers_[index(by_need_[n])];
        if (x.needed <= k) break;
        prefetched += x.bytes;
      }
    }
  }
  result.feasible = true;
  result.ms = now;
  return result;
}

}  // namespace stash::planner
