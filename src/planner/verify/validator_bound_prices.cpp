// SPDX-License-Identifier: Apache-2.0
// A certificate as prices of single ticks. The rows that prices belong to are those of docs/planning.md;
// bytes held, released and needed are put into them, so that these need no prices of their own.

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

// No price of a real plan comes near it: a second for every bit.
constexpr double largest_price = 1e12;

// What follows from the choices: the checker needs no price for it.
constexpr std::array<std::string_view, 3> implied{"held", "released", "needed"};

}  // namespace

std::vector<double>* tick_prices::list_of(std::string_view name, int& sign) {
  struct entry {
    std::string_view name;
    std::vector<double>* list;
    int sign;
  };
  const std::array<entry, 12> rows{{{"sent", &sent_, -1},
                                    {"fetched", &fetched_, -1},
                                    {"deadline", &deadline_, 1},
                                    {"host", &host_, -1},
                                    {"compute", &compute_, 1},
                                    {"out", &out_, 1},
                                    {"in", &in_, 1},
                                    {"both_out", &both_out_, 1},
                                    {"both_in", &both_in_, 1},
                                    {"begin", &begin_, -1},
                                    {"end", &end_, -1},
                                    {"inner", &inner_, -1}}};
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const entry& e) { return e.name == name; });
  if (row == rows.end()) return nullptr;
  sign = row->sign;
  return row->list;
}

tick_prices::tick_prices(const bound_certificate& c, const machine& m, bool moves, double limit,
                         const std::vector<double>& fixed, const std::vector<double>& op_ms,
                         finding_list& found)
    : fixed_(fixed), op_ms_(op_ms), first_tick_(c.first_tick), limit_(limit) {
  const std::size_t ticks = fixed.size();
  if (first_tick_.empty()) {
    readable_ = c.prices.empty();
  } else {
    readable_ = first_tick_.front() == 0 && position_of(first_tick_.back()) == ticks &&
                std::is_sorted(first_tick_.begin(), first_tick_.end());
  }
  if (!readable_) {
    found.add(plan_fault::bad_bound, "certificate: first_tick does not cut {} ticks into steps", ticks);
    return;
  }
  steps_ = first_tick_.empty() ? 0 : first_tick_.size() - 1;
  linked_ = moves && m.out_bytes_per_second > 0.0 && m.in_bytes_per_second > 0.0;
  if (linked_) {
    out_ms_per_byte_ = 1e3 / m.out_bytes_per_second;
    in_ms_per_byte_ = 1e3 / m.in_bytes_per_second;
    shared_ = 1.0 / m.contention - 1.0;
    host_bytes_ = static_cast<double>(m.host_bytes);
  }
  read(c, found);
  if (readable_) spread();
}

void tick_prices::read(const bound_certificate& c, finding_list& found) {
  for (const bound_certificate::row_prices& r : c.prices) {
    int sign = 0;
    std::vector<double>* const list = list_of(r.row, sign);
    const bool ignored = std::find(implied.begin(), implied.end(), r.row) != implied.end();
    if (list == nullptr && !ignored) {
      found.add(plan_fault::bad_bound, "certificate: no rows are called '{}'", r.row);
      readable_ = false;
      return;
    }
    for (const auto& [step, price] : r.list) {
      if (step < 0 || position_of(step) >= steps_ || !(std::abs(price) <= largest_price)) {
        found.add(plan_fault::bad_bound, "certificate: {}: a price of {} for step {} of {}", r.row, price,
                  step, steps_);
        readable_ = false;
        return;
      }
      if (list == nullptr) continue;
      list->resize(steps_ + 1, 0.0);
      // Of two prices for one step the last counts. A price of the wrong sign says nothing.
      (*list)[position_of(step)] = sign < 0 ? std::min(price, 0.0) : std::max(price, 0.0);
    }
  }
  if (linked_) return;
  for (auto* list : {&sent_, &fetched_, &deadline_, &host_, &out_, &in_, &both_out_, &both_in_})
    list->clear();
}

void tick_prices::spread() {
  const std::size_t ticks = fixed_.size();
  id_vector<std::int32_t, sum_t> held(ticks, 0.0L), waited(ticks + 1, 0.0L);
  work_.assign(ticks, 0.0);
  fullest_.assign(steps_, -1);
  std::vector<sum_t> sent_from(ticks + 1, 0.0L), due_from(ticks + 1, 0.0L);
  for (std::size_t k = 0; k < steps_; ++k) {
    const std::size_t first = position_of(first_tick_[k]), end = position_of(first_tick_[k + 1]);
    const double begin_price = -at(begin_, k), end_price = -at(end_, k), inner_price = -at(inner_, k);
    const bool wait = first == end, wait_before = k > 0 && first_tick_[k - 1] == first_tick_[k];
    const bool wait_after = k + 2 < first_tick_.size() && first_tick_[k + 2] == first_tick_[k + 1];
    if (wait) {
      waited[first] += sum_t{begin_price} + end_price + inner_price;
    } else {
      const auto most = std::max_element(fixed_.begin() + static_cast<std::ptrdiff_t>(first),
                                         fixed_.begin() + static_cast<std::ptrdiff_t>(end));
      fullest_[k] = static_cast<std::int32_t>(most - fixed_.begin());
      held[first] += begin_price;
      held[end - 1] += end_price;
      held[fullest_[k]] += inner_price;
      for (std::size_t t = first; t < end; ++t)
        work_[t] = at(compute_, k);
    }
    // Step k ends where compute begins with the next one, at the latest; where a wait follows, as soon as its
    // own last tick ends. So bytes released after these ticks may have left before it ends:
    const auto left = static_cast<std::int64_t>(end) - (!wait && wait_after ? 2 : 1);
    if (left >= 0) sent_from[static_cast<std::size_t>(left)] += at(sent_, k);
    // And bytes needed at these ticks are there when it begins.
    const auto there = static_cast<std::int64_t>(first) - (!wait && wait_before ? 0 : 1);
    if (there >= 0) due_from[static_cast<std::size_t>(there)] += at(deadline_, k);
  }
  released_.assign(ticks + 1, 0.0L);
  needed_.assign(ticks + 1, 0.0L);
  sum_t sent = 0.0L, due = 0.0L;
  for (std::size_t t = ticks + 1; t-- > 0;) {
    released_[t] = sent += sent_from[t];
    needed_[t] = due += due_from[t];
  }
  held_.assign(ticks + 1, 0.0L);
  waited_.assign(ticks + 2, 0.0L);
  for (std::size_t t = 0; t < ticks; ++t)
    held_[t + 1] = held_[t] + held[t];
  for (std::size_t t = 0; t <= ticks; ++t)
    waited_[t + 1] = waited_[t] + waited[t];
}

sum_t tick_prices::hold(std::int32_t first, std::int32_t last) const {
  const auto ticks = static_cast<std::int32_t>(fixed_.size());
  first = std::max(first, 0);
  last = std::min(last, ticks - 1);
  if (first > last) return 0.0L;
  return held_[last + 1] - held_[first] + waited_[last + 1] - waited_[first + 1];
}

sum_t tick_prices::move(std::int32_t released, std::int32_t needed) const {
  return released_[released] + needed_[needed];
}

double tick_prices::work(std::int32_t tick) const {
  return tick >= 0 && position_of(tick) < work_.size() ? work_[tick] : 0.0;
}

sum_t tick_prices::constant(double movable, double longest_ms) const {
  sum_t bound = 0.0L, all_ms = 0.0L;
  double least_rate = 0.0;
  std::vector<sum_t> sent(steps_), fetched(steps_);
  const auto limit = static_cast<sum_t>(limit_);
  for (std::size_t k = 0; k < steps_; ++k) {
    const std::size_t first = position_of(first_tick_[k]), end = position_of(first_tick_[k + 1]);
    const bool wait = first == end;
    sum_t ms = 0.0L;
    for (std::size_t t = first; t < end; ++t)
      ms += op_ms_[t];
    all_ms += ms;
    const auto fixed = [&](std::size_t t) { return wait ? 0.0L : static_cast<sum_t>(fixed_[t]); };
    bound += at(compute_, k) * ms;
    bound += at(begin_, k) * (limit - fixed(first));
    bound += at(end_, k) * (limit - fixed(end - 1));
    bound += at(inner_, k) * (limit - fixed(wait ? first : position_of(fullest_[k])));
    // How long a step takes: its ops at least; all steps together not more than any plan worth a look.
    const double rate = 1.0 - at(compute_, k) - at(out_, k) - at(in_, k) - at(both_out_, k) - at(both_in_, k);
    bound += rate * ms;
    least_rate = std::min(least_rate, rate);
    if (!linked_) continue;
    if (host_bytes_ > 0.0) bound += at(host_, k) * static_cast<sum_t>(host_bytes_);
    const auto host = host_bytes_ > 0.0 ? at(host_, k) : 0.0;
    const auto step = [k, this](const std::vector<double>& list) {
      return static_cast<sum_t>(at(list, k)) - at(list, k + 1);
    };
    const sum_t a = out_ms_per_byte_, b = in_ms_per_byte_;
    // What the rows charge for a byte that has been sent, or fetched, by the end of step k.
    sent[k] = at(fetched_, k) - at(sent_, k) - host +
              a * (step(out_) + step(both_out_) + shared_ * step(both_in_)) + at(end_, k) + at(inner_, k) +
              at(begin_, k + 1);
    fetched[k] = host - at(fetched_, k) + b * (step(in_) + step(both_in_) + shared_ * step(both_out_)) -
                 at(end_, k) - at(begin_, k + 1) - at(inner_, k + 1) - at(deadline_, k + 1);
  }
  bound += least_rate * std::max<sum_t>(0.0L, longest_ms - all_ms);
  // Neither sum ever falls, so each of its bytes counts from some step on.
  for (const std::vector<sum_t>* list : {&sent, &fetched}) {
    sum_t rest = 0.0L, least = 0.0L;
    for (std::size_t k = list->size(); k-- > 0;) {
      rest += (*list)[k];
      least = std::min(least, rest);
    }
    bound += least * movable;
  }
  return bound;
}

sum_t tick_prices::magnitude(double bytes, double work_ms, double longest_ms) const {
  sum_t per_byte = 0.0L, per_ms = 1.0L, limited = 0.0L;
  for (const auto* list : {&sent_, &fetched_, &deadline_, &host_, &begin_, &end_, &inner_}) {
    for (const double price : *list)
      per_byte += std::abs(price);
  }
  for (const auto* list : {&begin_, &end_, &inner_}) {
    for (const double price : *list)
      limited += std::abs(price);
  }
  for (const auto* list : {&compute_, &out_, &in_, &both_out_, &both_in_}) {
    for (const double price : *list)
      per_ms += std::abs(price);
  }
  const double fixed = fixed_.empty() ? 0.0 : *std::max_element(fixed_.begin(), fixed_.end());
  const sum_t links = static_cast<sum_t>(out_ms_per_byte_) + in_ms_per_byte_;
  return (per_byte + per_ms * links) * bytes + per_ms * (static_cast<sum_t>(work_ms) + longest_ms) +
         limited * (std::abs(static_cast<sum_t>(limit_)) + fixed) + per_byte * host_bytes_;
}

}  // namespace stash::planner::validation
