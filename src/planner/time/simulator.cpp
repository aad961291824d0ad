// SPDX-License-Identifier: Apache-2.0
#include "planner/time/simulator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace stash::planner {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

}  // namespace

simulator::simulator(const step_problem& p) : p_(p), work_(p.ms), loaded_(p.items.size(), -1) {
  leaves_ = std::bit_ceil(std::max<std::size_t>(p.ms.size(), 1));
  held_now_.resize(p.ms.size());
  base_.resize(p.ms.size());
  change_.resize(p.ms.size() + 1);
  work_left_.resize(p.ms.size() + 1);
  tree_.resize(2 * leaves_);
  lazy_.resize(2 * leaves_);
  id_vector<joined_step, std::vector<work_of_option>> at_step(p.ms.size());
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    first_option_.push_back(options_.size());
    const id_vector<std::int32_t, item_option>& list = p.items[i].options;
    for (std::size_t o = 0; o < list.size(); ++o) {
      options_.push_back({held_.size(), work_steps_.size(), transfers_.size()});
      held_.insert(held_.end(), list[o].held.begin(), list[o].held.end());
      for (const added_work& w : list[o].work) {
        work_steps_.push_back(w.tick);
        at_step[w.tick].push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(o), w.ms});
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
  const moving &x = transfers_[a], &y = transfers_[b];
  if (x.released != y.released) return x.released < y.released;
  return x.needed != y.needed ? x.needed > y.needed : a < b;
}

bool simulator::needed_before(std::int32_t a, std::int32_t b) const {
  const moving &x = transfers_[a], &y = transfers_[b];
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
    const loaded* const o = &options_[first_option_[item] + position_of(option)];
    for (std::size_t h = o[0].held; h < o[1].held; ++h) {
      const std::int64_t bytes = in ? held_[h].bytes : -held_[h].bytes;
      change_[held_[h].first] += bytes;
      change_[position_of(held_[h].last) + 1] -= bytes;
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
    sum += change_[k];
    change_[k] = 0;
    held_now_[k] += sum;
  }
  change_[end] = 0;
  // Added up again in the order of items: what is loaded does not depend on what was loaded before.
  for (const std::int32_t k : touched_) {
    double ms = p_.ms[k];
    for (std::size_t w = first_work_[k]; w < first_work_[k + 1]; ++w) {
      if (loaded_[added_[w].item] == added_[w].option) ms += added_[w].ms;
    }
    work_[k] = ms;
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
    const auto bytes = static_cast<double>(transfers_[by_need_[n]].bytes);
    copies_before_[n + 1] = copies_before_[n] + p_.link.latency_ms + bytes / p_.link.in_rate;
  }
  copies_end_.back() = 0.0;
  for (std::size_t n = by_need_.size(); n-- > 0;) {
    const double end = copies_before_[n + 1] + work_left_[transfers_[by_need_[n]].needed];
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
  std::size_t l = position_of(first) + leaves_, r = position_of(last) + leaves_;
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
  std::size_t l = position_of(first) + leaves_, r = position_of(last) + leaves_;
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
  id_vector<std::int32_t, double> not_before(record.transfers.size(), 0.0);
  double next = never;
  for (std::size_t n = by_need_.size(); n-- > 0;) {
    const moving& x = transfers_[by_need_[n]];
    const simulated_transfer& t = record.transfers[x.record];
    const double end = std::min(next, record.begin[x.needed]);
    const double begin = end - (t.in_end - t.in_begin);
    next = std::max(t.in_begin, begin);
    not_before[x.record] = next;
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

// One run over time: what is under way, and how far the queues of copies are.
class simulator::clock {
 public:
  clock(simulator& s, timeline_record* record, const id_vector<std::int32_t, double>* not_before,
        simulated& result)
      : s_(s),
        link_(s.p_.link),
        steps_(static_cast<joined_step>(s.p_.ms.size())),
        record_(record),
        not_before_(not_before),
        result_(result) {}

  // To the end, or until that is later than `give_up_ms`.
  void run(double give_up_ms, double hopeless) {
    while (true) {
      start_out();
      const double wake = start_in();
      if (!computing_ && step_ < steps_ && start_step()) continue;
      if (!computing_ && step_ >= steps_) break;
      const double rate = out_.current >= 0 && in_.current >= 0 ? link_.contention : 1.0;
      const double out_end = out_.current >= 0 ? now_ + out_.left / rate : never;
      const double in_end = in_.current >= 0 ? now_ + in_.left / rate : never;
      const double next = std::min({compute_end_, out_end, in_end, wake});
      if (next == never) return note_missing();
      if (next > give_up_ms || least_end(next) > hopeless) return;
      const double elapsed = (next - now_) * rate;
      out_.left -= elapsed;
      in_.left -= elapsed;
      now_ = next;
      if (out_end == next) end_out();
      if (in_end == next) end_in();
      if (compute_end_ == next) end_step();
    }
    result_.feasible = true;
    result_.ms = now_;
  }

 private:
  // Bytes in use while the step runs or waits to run.
  std::int64_t used() const { return s_.base_[std::min(step_, steps_ - 1)] + pending_out_ + prefetched_; }
  // While compute waits, what the step before held still counts.
  std::int64_t used_before() const {
    return computing_ || step_ == 0 ? 0 : s_.base_[step_ - 1] + pending_out_ + prefetched_;
  }
  void note_peak() { result_.peak = std::max(result_.peak, used()); }

  void start_out() {
    if (out_.current >= 0 || next_out_ >= released_) return;
    const std::int32_t m = s_.by_release_[next_out_];
    const moving& x = s_.transfers_[m];
    if (on_host_ + x.bytes > link_.host_bytes) return;
    ++next_out_;
    out_ = {m, link_.latency_ms + static_cast<double>(x.bytes) / link_.out_rate};
    on_host_ += x.bytes;
    result_.host_peak = std::max(result_.host_peak, on_host_);
    if (record_ != nullptr) record_->transfers[x.record].out_begin = now_;
  }

  // When the next copy back may begin, if it is too early for it.
  double start_in() {
    if (in_.current >= 0 || next_in_ >= s_.by_need_.size()) return never;
    const std::int32_t m = s_.by_need_[next_in_];
    const moving& x = s_.transfers_[m];
    const double may_begin = not_before_ != nullptr ? (*not_before_)[x.record] : 0.0;
    if (x.out_done >= 0.0 && may_begin <= now_ && x.earliest <= step_ && fits(x)) fetch(m);
    if (may_begin > now_) return may_begin;
    return never;
  }

  bool fits(const moving& x) const {
    const std::int64_t now_used = std::max(used(), used_before());
    if (x.needed <= step_) return now_used <= s_.p_.limit;
    return now_used + x.bytes <= s_.p_.limit && s_.largest(step_ + 1, x.needed - 1) + x.bytes <= s_.p_.limit;
  }

  void fetch(std::int32_t m) {
    const moving& x = s_.transfers_[m];
    ++next_in_;
    in_ = {m, link_.latency_ms + static_cast<double>(x.bytes) / link_.in_rate};
    if (x.needed > step_) {
      prefetched_ += x.bytes;
      s_.add(step_, x.needed - 1, x.bytes);
    }
    note_peak();
    if (record_ == nullptr) return;
    record_->transfers[x.record].in_begin = now_;
    record_->transfers[x.record].taken = step_;
  }

  // True if what leaves the host for this step lets a copy begin that did not fit there.
  bool start_step() {
    while (arrived_ < next_in_ && s_.transfers_[s_.by_need_[arrived_]].in_done >= 0.0)
      ++arrived_;
    const bool all_there =
        arrived_ >= s_.by_need_.size() || s_.transfers_[s_.by_need_[arrived_]].needed > step_;
    if (!all_there || used() > s_.p_.limit) return false;
    computing_ = true;
    compute_end_ = now_ + s_.work_[step_];
    note_peak();
    if (record_ != nullptr) record_->begin[step_] = now_;
    const std::int64_t before = on_host_;
    for (; off_host_ < arrived_ && s_.transfers_[s_.by_need_[off_host_]].needed <= step_; ++off_host_)
      on_host_ -= s_.transfers_[s_.by_need_[off_host_]].bytes;
    return on_host_ < before && out_.current < 0 && next_out_ < released_;
  }

  // A step waits for memory that nothing will free.
  void note_missing() {
    result_.missing = std::max<std::int64_t>(1, used() - s_.p_.limit);
    result_.missing_step = step_;
    result_.host_is_full = next_out_ < released_;
    if (!result_.host_is_full) return;
    const std::int64_t leaving = s_.transfers_[s_.by_release_[next_out_]].bytes;
    result_.missing = std::max(result_.missing, on_host_ + leaving - link_.host_bytes);
  }

  // No run that is here, and goes on at `next`, ends before this.
  double least_end(double next) const {
    const double computed =
        computing_ ? compute_end_ + s_.work_left_[step_ + 1] : next + s_.work_left_[step_];
    // The copy that runs may have the link to itself from now on.
    const double arrived = in_.current >= 0 ? now_ + in_.left : next;
    return std::max(computed, arrived + s_.copies_end_[next_in_] - s_.copies_before_[next_in_]);
  }

  void end_out() {
    moving& x = s_.transfers_[out_.current];
    x.out_done = now_;
    pending_out_ -= x.bytes;
    if (record_ != nullptr) {
      record_->transfers[x.record].out_end = now_;
      record_->transfers[x.record].freed = computing_ ? step_ : step_ - 1;
    }
    out_ = {};
  }

  void end_in() {
    moving& x = s_.transfers_[in_.current];
    x.in_done = now_;
    if (record_ != nullptr) record_->transfers[x.record].in_end = now_;
    in_ = {};
  }

  void end_step() {
    if (record_ != nullptr) record_->end[step_] = now_;
    computing_ = false;
    compute_end_ = never;
    while (released_ < s_.by_release_.size() && s_.transfers_[s_.by_release_[released_]].released == step_) {
      pending_out_ += s_.transfers_[s_.by_release_[released_]].bytes;
      ++released_;
    }
    ++step_;
    // What was fetched for this step is now part of what it holds; the others are still held in addition.
    prefetched_ = 0;
    for (std::size_t n = next_in_; n-- > 0;) {
      const moving& x = s_.transfers_[s_.by_need_[n]];
      if (x.needed <= step_) break;
      prefetched_ += x.bytes;
    }
  }

  // One direction of the link.
  struct engine {
    std::int32_t current = -1;  // transfer that is being copied
    double left = 0.0;          // ms at the full rate
  };

  simulator& s_;
  const link_model& link_;
  const joined_step steps_;
  timeline_record* const record_;
  const id_vector<std::int32_t, double>* const not_before_;
  simulated& result_;
  double now_ = 0.0, compute_end_ = never;
  bool computing_ = false;
  joined_step step_ = 0;  // that runs, or waits to run
  std::int64_t pending_out_ = 0, prefetched_ = 0, on_host_ = 0;
  // How many transfers, in order of release, are free to leave and have begun to; in order of need, have
  // begun to come back, are there, and are off the host.
  std::size_t released_ = 0, next_out_ = 0, next_in_ = 0, arrived_ = 0, off_host_ = 0;
  engine out_, in_;
};

// What is held in each step; false if that is too much.
bool simulator::fits_alone(simulated& result) {
  for (const joined_step k : base_.ids()) {
    base_[k] = p_.fixed[k] + held_now_[k];
    result.peak = std::max(result.peak, base_[k]);
  }
  if (result.peak <= p_.limit) return true;
  result.missing = result.peak - p_.limit;
  result.missing_step = base_.id_of(std::find(base_.begin(), base_.end(), result.peak));
  return false;
}

void simulator::list_transfers(timeline_record& record) {
  std::vector<std::int32_t> by_item = by_need_;
  std::sort(by_item.begin(), by_item.end());
  for (const std::int32_t m : by_item) {
    moving& x = transfers_[m];
    x.record = static_cast<std::int32_t>(record.transfers.size());
    simulated_transfer t;
    t.item = x.item;
    t.index = x.index;
    record.transfers.push_back(t);
  }
}

simulated simulator::run(const option_choice& choice, double give_up_ms, timeline_record* record,
                         const id_vector<std::int32_t, double>* not_before) {
  load(choice);
  simulated result;
  const bool fits = fits_alone(result);
  if (record != nullptr) {
    record->begin.assign(p_.ms.size(), 0.0);
    record->end.assign(p_.ms.size(), 0.0);
    record->transfers.clear();
  }
  if (!fits) return result;
  for (const std::int32_t m : by_need_)
    transfers_[m].out_done = transfers_[m].in_done = -1.0;
  if (!by_need_.empty() && !(p_.link.out_rate > 0.0 && p_.link.in_rate > 0.0)) return result;
  // The sums below are in another order than the clock's: what comes this close is simulated to its end.
  const double hopeless = give_up_ms * (1.0 + 1e-12);
  find_least();
  if (std::max(work_left_[0], copies_end_[0]) > hopeless) return result;
  if (!by_need_.empty()) build_tree();
  if (record != nullptr) list_transfers(*record);
  clock(*this, record, not_before, result).run(give_up_ms, hopeless);
  return result;
}

}  // namespace stash::planner
