// SPDX-License-Identifier: Apache-2.0
// A certificate as prices of single ticks. The rows that prices belong to are those of docs/planning.md;
// bytes held, released and needed are put into them, so that these need no prices of their own.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <system_error>

#include "planner/verify/validator_bound.hpp"

namespace stash::planner::validation {
namespace {

// No price of a real plan comes near it: a second for every bit.
constexpr double largest_price = 1e12;

constexpr std::size_t most_classes = 16;

// What follows from the choices: the checker needs no price for it.
constexpr std::array<std::string_view, 3> implied{"held", "released", "needed"};

}  // namespace

std::vector<double>* tick_prices::list_of(std::string_view name, int& sign) {
  struct entry {
    std::string_view name;
    std::vector<double>* list;
    int sign;
  };
  const std::array<entry, 9> rows{{{"host", &host_, -1},
                                   {"compute", &compute_, 1},
                                   {"out", &out_, 1},
                                   {"in", &in_, 1},
                                   {"both_out", &both_out_, 1},
                                   {"both_in", &both_in_, 1},
                                   {"begin", &begin_, -1},
                                   {"end", &end_, -1},
                                   {"inner", &inner_, -1}}};
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const entry& e) { return e.name == name; });
  if (row == rows.end()) return list_of_class(name, sign);
  sign = row->sign;
  return row->list;
}

// "sent" of the first class, "sent/1" of the second one.
std::vector<double>* tick_prices::list_of_class(std::string_view name, int& sign) {
  const std::size_t slash = name.find('/');
  std::size_t number = 0;
  if (slash != std::string_view::npos) {
    const std::string_view digits = name.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number == 0) return nullptr;
  }
  if (number >= classes_.size()) return nullptr;
  const std::string_view row = name.substr(0, slash);
  sign = row == "deadline" ? 1 : -1;
  if (row == "deadline") return &classes_[number].deadline;
  if (row == "sent") return &classes_[number].sent;
  return row == "fetched" ? &classes_[number].fetched : nullptr;
}

bool tick_prices::cut_into_steps(std::size_t ticks) const {
  return first_tick_.front() == 0 && position_of(first_tick_.back()) == ticks &&
         std::is_sorted(first_tick_.begin(), first_tick_.end());
}

bool tick_prices::classes_rise() const {
  return limits_.size() <= most_classes && (limits_.empty() || limits_.front() > 0) &&
         std::adjacent_find(limits_.begin(), limits_.end(), std::greater_equal<>()) == limits_.end();
}

tick_prices::tick_prices(const bound_certificate& c, const machine& m, bool moves, double limit,
                         const std::vector<double>& fixed, const std::vector<double>& op_ms,
                         finding_list& found)
    : fixed_(fixed), op_ms_(op_ms), first_tick_(c.first_tick), limit_(limit), limits_(c.transfer_limits) {
  const std::size_t ticks = fixed.size();
  readable_ = first_tick_.empty() ? c.prices.empty() : cut_into_steps(ticks);
  if (!readable_) {
    found.add(plan_fault::bad_bound, "certificate: first_tick does not cut {} ticks into steps", ticks);
    return;
  }
  readable_ = classes_rise();
  if (!readable_) {
    found.add(plan_fault::bad_bound, "certificate: transfer_limits: expected at most {} sizes that rise",
              most_classes);
    return;
  }
  classes_.resize(std::max<std::size_t>(limits_.size(), 1));
  steps_ = first_tick_.empty() ? 0 : first_tick_.size() - 1;
  linked_ = moves && m.out_bytes_per_second > 0.0 && m.in_bytes_per_second > 0.0;
  if (linked_) {
    out_ms_per_byte_ = 1e3 / m.out_bytes_per_second;
    in_ms_per_byte_ = 1e3 / m.in_bytes_per_second;
    latency_ms_ = 1e3 * m.link_latency_seconds;
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
    const std::string_view row = std::string_view(r.row).substr(0, r.row.find('/'));
    const bool ignored = std::find(implied.begin(), implied.end(), row) != implied.end();
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
  for (auto* list : {&host_, &out_, &in_, &both_out_, &both_in_})
    list->clear();
  for (class_rows& rows : classes_)
    rows = {};
}

void tick_prices::spread() {
  const std::size_t ticks = fixed_.size();
  id_vector<std::int32_t, sum_t> held(ticks, 0.0L), waited(ticks + 1, 0.0L);
  work_.assign(ticks, 0.0);
  fullest_.assign(steps_, -1);
  for (std::size_t k = 0; k < steps_; ++k) {
    const std::size_t first = position_of(first_tick_[k]), end = position_of(first_tick_[k + 1]);
    const double begin_price = -at(begin_, k), end_price = -at(end_, k), inner_price = -at(inner_, k);
    const bool wait = first == end;
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
  }
  for (class_rows& c : classes_)
    spread_moves(c);
  held_.assign(ticks + 1, 0.0L);
  waited_.assign(ticks + 2, 0.0L);
  for (std::size_t t = 0; t < ticks; ++t)
    held_[t + 1] = held_[t] + held[t];
  for (std::size_t t = 0; t <= ticks; ++t)
    waited_[t + 1] = waited_[t] + waited[t];
}

void tick_prices::spread_moves(class_rows& c) {
  const std::size_t ticks = fixed_.size();
  std::vector<sum_t> sent_from(ticks + 1, 0.0L), due_from(ticks + 1, 0.0L);
  for (std::size_t k = 0; k < steps_; ++k) {
    const std::size_t first = position_of(first_tick_[k]), end = position_of(first_tick_[k + 1]);
    const bool wait = first == end, wait_before = k > 0 && first_tick_[k - 1] == first_tick_[k];
    const bool wait_after = k + 2 < first_tick_.size() && first_tick_[k + 2] == first_tick_[k + 1];
    // Step k ends where compute begins with the next one, at the latest; where a wait follows, as soon as its
    // own last tick ends. So bytes released after these ticks may have left before it ends:
    const auto left = static_cast<std::int64_t>(end) - (!wait && wait_after ? 2 : 1);
    if (left >= 0) sent_from[static_cast<std::size_t>(left)] += at(c.sent, k);
    // And bytes needed at these ticks are there when it begins.
    const auto there = static_cast<std::int64_t>(first) - (!wait && wait_before ? 0 : 1);
    if (there >= 0) due_from[static_cast<std::size_t>(there)] += at(c.deadline, k);
  }
  c.released_sum.assign(ticks + 1, 0.0L);
  c.needed_sum.assign(ticks + 1, 0.0L);
  sum_t sent = 0.0L, due = 0.0L;
  for (std::size_t t = ticks + 1; t-- > 0;) {
    c.released_sum[t] = sent += sent_from[t];
    c.needed_sum[t] = due += due_from[t];
  }
}

sum_t tick_prices::hold(std::int32_t first, std::int32_t last) const {
  const auto ticks = static_cast<std::int32_t>(fixed_.size());
  first = std::max(first, 0);
  last = std::min(last, ticks - 1);
  if (first > last) return 0.0L;
  return held_[last + 1] - held_[first] + waited_[last + 1] - waited_[first + 1];
}

std::int64_t tick_prices::counted(std::int64_t bytes, std::size_t number) const {
  return limits_.empty() ? bytes : std::min(bytes, limits_[number]);
}

sum_t tick_prices::move(std::int32_t released, std::int32_t needed, std::int64_t bytes) const {
  const sum_t away = hold(released, needed);
  sum_t dearest = -std::numeric_limits<sum_t>::infinity();
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const auto of_class = static_cast<sum_t>(counted(bytes, c));
    const sum_t moved = classes_[c].released_sum[released] + classes_[c].needed_sum[needed];
    dearest = std::max(dearest, of_class * moved - (static_cast<sum_t>(bytes) - of_class) * away);
  }
  return dearest;
}

double tick_prices::work(std::int32_t tick) const {
  return tick >= 0 && position_of(tick) < work_.size() ? work_[tick] : 0.0;
}

sum_t tick_prices::constant(const std::vector<double>& movable, double longest_ms) const {
  sum_t bound = 0.0L, all_ms = 0.0L;
  double least_rate = 0.0;
  for (std::size_t k = 0; k < steps_; ++k)
    bound += constant_of_step(k, least_rate, all_ms);
  bound += least_rate * std::max<sum_t>(0.0L, longest_ms - all_ms);
  if (!linked_) return bound;
  for (std::size_t c = 0; c < classes_.size(); ++c)
    bound += constant_of_class(c, movable[c]);
  return bound;
}

sum_t tick_prices::constant_of_step(std::size_t k, double& least_rate, sum_t& all_ms) const {
  const std::size_t first = position_of(first_tick_[k]), end = position_of(first_tick_[k + 1]);
  const bool wait = first == end;
  const auto limit = static_cast<sum_t>(limit_);
  sum_t bound = 0.0L, ms = 0.0L;
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
  if (linked_ && host_bytes_ > 0.0) bound += at(host_, k) * static_cast<sum_t>(host_bytes_);
  return bound;
}

// Of a byte of a transfer as large as the limit of its class: no other has less.
sum_t tick_prices::latency_per_byte(std::size_t number) const {
  if (limits_.empty()) return 0.0L;
  return static_cast<sum_t>(latency_ms_) / static_cast<sum_t>(limits_[number]);
}

sum_t tick_prices::constant_of_class(std::size_t number, double movable) const {
  const class_rows& c = classes_[number];
  const auto step = [this](const std::vector<double>& list, std::size_t k) {
    return static_cast<sum_t>(at(list, k)) - at(list, k + 1);
  };
  const sum_t latency = latency_per_byte(number);
  const sum_t a = out_ms_per_byte_ + latency, b = in_ms_per_byte_ + latency;
  // What the rows charge for a byte that has been sent, or fetched, by the end of step k. Neither sum ever
  // falls, so each of its bytes counts from some step on.
  sum_t sent = 0.0L, fetched = 0.0L, least_sent = 0.0L, least_fetched = 0.0L;
  for (std::size_t k = steps_; k-- > 0;) {
    const auto host = host_bytes_ > 0.0 ? at(host_, k) : 0.0;
    sent += at(c.fetched, k) - at(c.sent, k) - host +
            a * (step(out_, k) + step(both_out_, k) + shared_ * step(both_in_, k)) + at(end_, k) +
            at(inner_, k) + at(begin_, k + 1);
    fetched += host - at(c.fetched, k) +
               b * (step(in_, k) + step(both_in_, k) + shared_ * step(both_out_, k)) - at(end_, k) -
               at(begin_, k + 1) - at(inner_, k + 1) - at(c.deadline, k + 1);
    least_sent = std::min(least_sent, sent);
    least_fetched = std::min(least_fetched, fetched);
  }
  return (least_sent + least_fetched) * movable;
}

sum_t tick_prices::magnitude(double bytes, double work_ms, double longest_ms) const {
  sum_t per_byte = 0.0L, per_ms = 1.0L, limited = 0.0L;
  std::vector<const std::vector<double>*> of_bytes{&host_, &begin_, &end_, &inner_};
  for (const class_rows& c : classes_)
    of_bytes.insert(of_bytes.end(), {&c.sent, &c.fetched, &c.deadline});
  for (const auto* list : of_bytes) {
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
  sum_t links = static_cast<sum_t>(out_ms_per_byte_) + in_ms_per_byte_;
  for (std::size_t c = 0; c < classes_.size(); ++c)
    links += 2.0L * latency_per_byte(c);
  return (per_byte + per_ms * links) * bytes + per_ms * (static_cast<sum_t>(work_ms) + longest_ms) +
         limited * (std::abs(static_cast<sum_t>(limit_)) + fixed) + per_byte * host_bytes_;
}

}  // namespace stash::planner::validation
