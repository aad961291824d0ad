// SPDX-License-Identifier: Apache-2.0
// The relaxation over fewer steps: neighbours are joined, what holds for the long step is asked of its begin,
// its end and its fullest tick only. That proves a little less and takes much less time.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/time/relaxation.hpp"

namespace stash::planner {
namespace {

using part_number = std::int32_t;  // of joined steps

class joiner {
 public:
  joiner(const step_problem& p, std::int32_t most_steps)
      : p_(p), steps_(static_cast<std::int32_t>(p.ms.size())) {
    // Parts of few steps hide little: there even ones do.
    const bool few = steps_ / 4 < most_steps;
    id_vector<joined_step, char> begins = even_parts(few ? most_steps : std::max(most_steps * 2 / 3, 1));
    std::int64_t left = few ? 0 : most_steps - std::count(begins.begin(), begins.end(), 1);
    for (const std::int32_t k : by_change()) {
      if (left == 0) break;
      left -= begins[k] == 0 ? 1 : 0;
      begins[k] = 1;
    }
    for (std::int32_t k = 0; k < steps_; ++k) {
      if (begins[k] != 0) first_.push_back(k);
      part_of_.push_back(static_cast<std::int32_t>(first_.size()) - 1);
    }
    first_.push_back(steps_);
  }

  step_problem joined() const {
    step_problem j;
    j.link = p_.link;
    j.limit = p_.limit;
    for (std::size_t part = 0; part + 1 < first_.size(); ++part) {
      double ms = 0.0;
      std::int64_t fixed = 0;
      for (std::int32_t k = first_[part]; k < first_[part + 1]; ++k) {
        ms += p_.ms[k];
        fixed = std::max(fixed, p_.fixed[k]);
      }
      j.ms.push_back(ms);
      j.fixed.push_back(fixed);
      j.fixed_first.push_back(p_.fixed_first[first_[part]]);
      j.fixed_last.push_back(p_.fixed_last[first_[part + 1] - 1]);
      j.first_tick.push_back(p_.first_tick[first_[part]]);
    }
    j.first_tick.push_back(p_.first_tick.back());
    id_vector<joined_step, std::int64_t> change(position_of(steps_) + 1, 0);
    for (const item& i : p_.items) {
      item& to = j.items.emplace_back();
      to.small = i.small;
      for (const item_option& o : i.options)
        to.options.push_back(joined(o, change));
    }
    return j;
  }

  // Prices of parts as prices of the steps at which the parts' rows are asked.
  dual_prices spread(const dual_prices& d) const {
    dual_prices all;
    const auto at = [&](const std::vector<double>& from, std::vector<double>& to, auto step_at) {
      if (from.empty()) return;
      to.assign(position_of(steps_), 0.0);
      for (std::size_t part = 0; part + 1 < first_.size(); ++part)
        to[position_of(step_at(part))] = from[part];
    };
    const auto everywhere = [&](const std::vector<double>& from, std::vector<double>& to) {
      if (from.empty()) return;
      to.assign(position_of(steps_), 0.0);
      for (std::int32_t k = 0; k < steps_; ++k)
        to[position_of(k)] = from[position_of(part_of_[k])];
    };
    const auto first = [&](std::size_t part) { return first_[part]; };
    const auto last = [&](std::size_t part) { return first_[part + 1] - 1; };
    const auto fullest = [&](std::size_t part) {
      const auto begin = p_.fixed.begin();
      return static_cast<std::int32_t>(std::max_element(begin + first_[part], begin + first_[part + 1]) -
                                       begin);
    };
    for (const auto member : {&dual_prices::compute, &dual_prices::out, &dual_prices::in,
                              &dual_prices::both_out, &dual_prices::both_in})
      everywhere(d.*member, all.*member);
    at(d.host, all.host, last);
    at(d.end, all.end, last);
    at(d.begin, all.begin, first);
    at(d.inner, all.inner, fullest);
    all.limits = d.limits;
    for (const class_prices& from : d.classes) {
      class_prices& to = all.classes.emplace_back();
      at(from.sent, to.sent, last);
      at(from.fetched, to.fetched, last);
      at(from.deadline, to.deadline, first);
    }
    return all;
  }

 private:
  // Where parts of about the same share of time and steps begin.
  id_vector<joined_step, char> even_parts(std::int32_t parts) const {
    id_vector<joined_step, char> begins(position_of(steps_), 0);
    double all_ms = 0.0, passed = 0.0;
    for (const double ms : p_.ms)
      all_ms += ms;
    std::int32_t part = -1;
    for (std::int32_t k = 0; k < steps_; ++k) {
      const double share = 0.5 * passed / std::max(all_ms, 1e-300) + 0.5 * k / steps_;
      const auto now = static_cast<std::int32_t>(share * parts);
      if (now != part) begins[k] = 1;
      part = now;
      passed += p_.ms[k];
    }
    return begins;
  }

  // Steps by how many bytes come and go where they begin: what does so within a part is not seen.
  std::vector<std::int32_t> by_change() const {
    id_vector<joined_step, double> change(position_of(steps_) + 1, 0.0);
    for (const item& i : p_.items) {
      for (const item_option& o : i.options) {
        const double share = 1.0 / static_cast<double>(i.options.size());
        for (const held_bytes& h : o.held) {
          change[h.first] += share * static_cast<double>(h.bytes);
          change[h.last + 1] += share * static_cast<double>(h.bytes);
        }
      }
    }
    std::vector<std::int32_t> order(position_of(steps_));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return change[a] > change[b]; });
    return order;
  }

  // The first part that begins at step k or later.
  std::int32_t part_from(std::int32_t k) const {
    return static_cast<std::int32_t>(std::lower_bound(first_.begin(), first_.end(), k) - first_.begin());
  }

  item_option joined(const item_option& o, id_vector<joined_step, std::int64_t>& change) const {
    item_option to;
    to.configuration = o.configuration;
    to.swapped = o.swapped;
    for (const added_work& w : o.work)
      to.work.push_back({part_of_[w.tick], w.ms});
    // What is held in every step of a part counts in it.
    std::int32_t begin = steps_, end = 0;
    const auto add = [&](std::int32_t first, std::int32_t end_step, std::int64_t bytes) {
      if (first >= end_step) return;
      change[first] += bytes;
      change[end_step] -= bytes;
      begin = std::min(begin, first);
      end = std::max(end, end_step);
    };
    for (const held_bytes& h : o.held) {
      if (!h.passing) add(h.first, h.last + 1, h.bytes);
    }
    for (const transfer& t : o.transfers)
      add(t.released + 1, t.needed, t.bytes);
    if (begin < end) hold(begin, end, change, to);
    for (const transfer& t : o.transfers) {
      transfer moved = t;
      // It may have left by the end of the part in which it can, and is asked for where a part begins.
      moved.released = (t.released + 1 < steps_ ? part_of_[t.released + 1] : part_from(steps_)) - 1;
      moved.needed = part_from(t.needed);
      // The transfer's own time on the device is part of what is held above.
      if (moved.released + 1 < moved.needed)
        to.held.push_back({moved.released + 1, moved.needed - 1, -t.bytes, false});
      to.transfers.push_back(moved);
    }
    return to;
  }

  void hold(joined_step begin, joined_step end, id_vector<joined_step, std::int64_t>& change,
            item_option& to) const {
    std::int64_t now = 0, run_bytes = 0;
    std::int32_t run = 0, k = begin;
    const std::int32_t last_part = part_of_[end - 1];
    for (std::int32_t part = part_of_[begin]; part <= last_part; ++part) {
      std::int64_t least = first_[part] < begin || first_[part + 1] > end ? 0 : INT64_MAX;
      for (; k < std::min(end, first_[part + 1]); ++k) {
        now += change[k];
        change[k] = 0;
        least = std::min(least, now);
      }
      if (least == run_bytes) continue;
      if (run_bytes != 0) to.held.push_back({run, part - 1, run_bytes, false});
      run = part;
      run_bytes = least;
    }
    if (run_bytes != 0) to.held.push_back({run, last_part, run_bytes, false});
    change[end] = 0;
  }

  const step_problem& p_;
  std::int32_t steps_;
  id_vector<part_number, joined_step> first_;  // first step of every part, and the number of steps
  id_vector<joined_step, part_number> part_of_;
};

// Prices of the running sums that make their columns cost nothing.
void price_sums(dual_prices& d, std::size_t steps) {
  const auto price = [](const std::vector<double>& list, std::size_t k) {
    return k < list.size() ? list[k] : 0.0;
  };
  d.held.assign(steps, 0.0);
  for (std::size_t k = steps; k-- > 0;)
    d.held[k] = price(d.held, k + 1) - (price(d.begin, k) + price(d.end, k) + price(d.inner, k));
  for (class_prices& c : d.classes) {
    c.released.assign(steps, 0.0);
    c.needed.assign(steps, 0.0);
    for (std::size_t k = steps; k-- > 0;) {
      c.released[k] = price(c.released, k + 1) + price(c.sent, k);
      c.needed[k] = price(c.needed, k + 1) + price(c.deadline, k);
    }
  }
}

}  // namespace

std::int32_t relaxed_steps(std::size_t steps) noexcept {
  return static_cast<std::int32_t>(std::clamp<std::size_t>(steps / 8, 1000, 3500));
}

relaxed relax(const step_problem& p, std::int32_t most_steps, const std::function<bool()>& stop) {
  if (p.ms.size() <= static_cast<std::size_t>(std::max(most_steps, 1))) return relax(p, stop);
  const joiner parts(p, std::max(most_steps, 1));
  relaxed r = relax(parts.joined(), stop);
  if (!r.solved) return r;
  r.prices = parts.spread(r.prices);
  price_sums(r.prices, p.ms.size());
  r.ms = bound_from(p, r.prices);
  return r;
}

}  // namespace stash::planner
