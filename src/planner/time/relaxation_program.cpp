// SPDX-License-Identifier: Apache-2.0
// The relaxation as a linear program, and what its solution says. Bytes are counted in MB and times in ms, so
// that no tolerance swamps either.

#include "planner/time/relaxation_program.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/time/relaxation.hpp"

namespace stash::planner {
namespace {

// Columns and rows of the transfers of a class.
struct transfer_class {
  double out_ms = 0.0, in_ms = 0.0;  // per unit of bytes
  int sent = 0, fetched = 0;         // first column of each
  std::vector<int> released, needed;
  std::vector<char> released_changes, needed_changes;  // per step, and one past the last
  std::vector<int> released_rows, needed_rows, sent_rows, fetched_rows, deadline_rows;
};

// One class: each column and row is named by a member, which building and reading share.
class builder {
 public:
  explicit builder(const step_problem& p) : p_(p), steps_(static_cast<int>(p.ms.size())) {
    unit_ = std::max(1.0, static_cast<double>(p.limit) / 1000.0);
    if (p.link.out_rate > 0.0 && p.link.in_rate > 0.0) {
      limits_ = transfer_classes(p);
      for (const class_rate& rate : class_rates(p, limits_))
        classes_.push_back({.out_ms = unit_ * rate.out_ms, .in_ms = unit_ * rate.in_ms});
    }
    first_option_.reserve(p.items.size());
    for (const item& i : p.items) {
      first_option_.push_back(columns_);
      columns_ += static_cast<int>(i.options.size());
    }
    find_changes();
    time_ = take_columns();
    held_ = take_columns(held_changes_);
    for (transfer_class& c : classes_) {
      c.sent = take_columns();
      c.fetched = take_columns();
      c.released = take_columns(c.released_changes);
      c.needed = take_columns(c.needed_changes);
    }
    program_.column_lower.assign(static_cast<std::size_t>(columns_), 0.0);
    program_.column_upper.assign(static_cast<std::size_t>(columns_), lp_infinity);
    program_.objective.assign(static_cast<std::size_t>(columns_), 0.0);
    std::fill_n(program_.objective.begin() + time_, steps_, 1.0);
    std::copy(p.ms.begin(), p.ms.end(), program_.column_lower.begin() + time_);
    build();
  }

  const linear_program& program() const { return program_; }

  /// What a solution of the program says of the problem.
  relaxed read(const lp_solution& solution) const {
    relaxed r;
    r.infeasible = solution.infeasible;
    r.solved = solution.optimal;
    if (!r.solved) return r;
    r.ms = solution.objective;
    for (std::size_t i = 0; i < p_.items.size(); ++i) {
      const auto first = solution.columns.begin() + first_option_[i];
      r.shares.emplace_back(first, first + static_cast<int>(p_.items[i].options.size()));
    }
    const std::vector<double>& y = solution.row_prices;
    const auto prices = [&](std::vector<double>& list, const std::vector<int>& rows, double unit) {
      list.assign(static_cast<std::size_t>(steps_), 0.0);
      for (std::size_t k = 0; k < rows.size(); ++k) {
        if (rows[k] >= 0) list[k] = y[static_cast<std::size_t>(rows[k])] / unit;
      }
    };
    dual_prices& d = r.prices;
    prices(d.held, held_rows_, unit_);
    prices(d.begin, begin_rows_, unit_);
    prices(d.end, end_rows_, unit_);
    prices(d.inner, inner_rows_, unit_);
    prices(d.compute, compute_rows_, 1.0);
    fill(d.held, held_rows_, [&](std::size_t k) { return -(d.begin[k] + d.end[k] + d.inner[k]); });
    if (classes_.empty()) return r;
    prices(d.host, host_rows_, unit_);
    prices(d.out, out_rows_, 1.0);
    prices(d.in, in_rows_, 1.0);
    prices(d.both_out, both_out_rows_, 1.0);
    prices(d.both_in, both_in_rows_, 1.0);
    d.limits = limits_;
    for (const transfer_class& c : classes_) {
      class_prices& own = d.classes.emplace_back();
      prices(own.released, c.released_rows, unit_);
      prices(own.needed, c.needed_rows, unit_);
      prices(own.sent, c.sent_rows, unit_);
      prices(own.fetched, c.fetched_rows, unit_);
      prices(own.deadline, c.deadline_rows, unit_);
      fill(own.released, c.released_rows, [&](std::size_t k) { return own.sent[k]; });
      fill(own.needed, c.needed_rows, [&](std::size_t k) { return own.deadline[k]; });
    }
    return r;
  }

 private:
  // Prices of the rows of a running sum that were left out: those that make the columns they would define
  // cost nothing.
  template <class Addend>
  static void fill(std::vector<double>& list, const std::vector<int>& rows, Addend addend) {
    for (std::size_t k = rows.size(); k-- > 0;) {
      if (rows[k] < 0) list[k] = (k + 1 < list.size() ? list[k + 1] : 0.0) + addend(k);
    }
  }

  int take_columns() {
    const int first = columns_;
    columns_ += steps_;
    return first;
  }
  // The column of every step of a running sum: a new one only where the sum can change.
  std::vector<int> take_columns(const std::vector<char>& changes) {
    std::vector<int> columns;
    for (int k = 0; k < steps_; ++k) {
      if (changes[static_cast<std::size_t>(k)]) ++columns_;
      columns.push_back(columns_ - 1);
    }
    return columns;
  }

  void find_changes() {
    std::vector<char> none(static_cast<std::size_t>(steps_) + 1, 0);
    none[0] = 1;
    held_changes_ = none;
    for (transfer_class& c : classes_)
      c.released_changes = c.needed_changes = none;
    for (const item& i : p_.items) {
      for (const item_option& o : i.options) {
        for (const held_bytes& h : o.held) {
          if (h.passing) continue;
          held_changes_[static_cast<std::size_t>(h.first)] = 1;
          held_changes_[static_cast<std::size_t>(h.last) + 1] = 1;
        }
        for (const transfer& t : o.transfers) {
          const auto out = static_cast<std::size_t>(t.released) + 1, in = static_cast<std::size_t>(t.needed);
          held_changes_[out] = held_changes_[in] = 1;
          if (classes_.empty()) continue;
          transfer_class& c = classes_[class_of(limits_, t.bytes)];
          c.released_changes[out] = c.needed_changes[in] = 1;
        }
      }
    }
  }
  int row(double lower, double upper) {
    program_.row_lower.push_back(lower);
    program_.row_upper.push_back(upper);
    return static_cast<int>(program_.row_lower.size()) - 1;
  }
  void put(int row, int column, double value) {
    program_.row_of.push_back(row);
    program_.column_of.push_back(column);
    program_.value.push_back(value);
  }
  // now - before = sum of shares: the rows of a running sum, where it can change.
  std::vector<int> running(const std::vector<int>& columns, const std::vector<char>& changes) {
    std::vector<int> rows;
    for (int k = 0; k < steps_; ++k) {
      const auto at = static_cast<std::size_t>(k);
      if (!changes[at]) {
        rows.push_back(-1);
        continue;
      }
      const int r = row(0.0, 0.0);
      put(r, columns[at], 1.0);
      if (k > 0) put(r, columns[at - 1], -1.0);
      rows.push_back(r);
    }
    return rows;
  }

  void build() {
    for (std::size_t i = 0; i < p_.items.size(); ++i) {
      const int one = row(1.0, 1.0);
      for (int o = 0; o < static_cast<int>(p_.items[i].options.size()); ++o)
        put(one, first_option_[i] + o, 1.0);
    }
    held_rows_ = running(held_, held_changes_);
    for (transfer_class& c : classes_) {
      c.released_rows = running(c.released, c.released_changes);
      c.needed_rows = running(c.needed, c.needed_changes);
    }
    work_.resize(static_cast<std::size_t>(steps_));
    change_.assign(static_cast<std::size_t>(steps_) + 1, 0.0);
    for (std::size_t i = 0; i < p_.items.size(); ++i) {
      for (std::size_t o = 0; o < p_.items[i].options.size(); ++o)
        add_option(p_.items[i].options[o], first_option_[i] + static_cast<int>(o));
    }
    const std::vector<std::int64_t> most = most_held();
    for (int k = 0; k < steps_; ++k) {
      compute_rows_.push_back(compute_row(k));
      if (!classes_.empty()) add_link_rows(k);
      for (transfer_class& c : classes_)
        add_transfer_rows(c, k);
      add_memory_rows(k, most[static_cast<std::size_t>(k)]);
    }
  }

  // What an option adds to the running sums, and to work_.
  void add_option(const item_option& x, int column) {
    std::vector<int>& touched = touched_;
    touched.clear();
    const auto add = [&](int k, double bytes) {
      if (k >= steps_) return;
      change_[static_cast<std::size_t>(k)] += bytes / unit_;
      touched.push_back(k);
    };
    for (const held_bytes& h : x.held) {
      if (h.passing) continue;
      add(h.first, static_cast<double>(h.bytes));
      add(h.last + 1, -static_cast<double>(h.bytes));
    }
    for (const transfer& t : x.transfers) {
      add(t.released + 1, static_cast<double>(t.bytes));
      add(t.needed, -static_cast<double>(t.bytes));
      if (classes_.empty()) continue;
      const transfer_class& c = classes_[class_of(limits_, t.bytes)];
      const double bytes = static_cast<double>(t.bytes) / unit_;
      if (t.released + 1 < steps_)
        put(c.released_rows[static_cast<std::size_t>(t.released) + 1], column, -bytes);
      if (t.needed < steps_) put(c.needed_rows[static_cast<std::size_t>(t.needed)], column, -bytes);
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const int k : touched) {
      double& c = change_[static_cast<std::size_t>(k)];
      if (c != 0.0) put(held_rows_[static_cast<std::size_t>(k)], column, -c);
      c = 0.0;
    }
    for (const added_work& w : x.work)
      work_[static_cast<std::size_t>(w.tick)].emplace_back(column, w.ms);
  }

  int compute_row(int k) {
    const auto at = static_cast<std::size_t>(k);
    if (work_[at].empty()) return -1;
    const int r = row(p_.ms[at], lp_infinity);
    put(r, time_ + k, 1.0);
    for (const auto& [column, ms] : work_[at])
      put(r, column, -ms);
    return r;
  }

  // T_k >= sum over classes of (out_share out_ms (S_k - S_(k-1)) + in_share in_ms (F_k - F_(k-1)))
  int link_row(int k, double out_share, double in_share) {
    const int r = row(0.0, lp_infinity);
    put(r, time_ + k, 1.0);
    for (const transfer_class& c : classes_) {
      for (const auto& [column, factor] :
           {std::pair(c.sent, out_share * c.out_ms), std::pair(c.fetched, in_share * c.in_ms)}) {
        if (factor == 0.0) continue;
        put(r, column + k, -factor);
        if (k > 0) put(r, column + k - 1, factor);
      }
    }
    return r;
  }

  void add_link_rows(int k) {
    const double shared = 1.0 / p_.link.contention - 1.0;
    out_rows_.push_back(link_row(k, 1.0, 0.0));
    in_rows_.push_back(link_row(k, 0.0, 1.0));
    both_out_rows_.push_back(shared > 0.0 ? link_row(k, 1.0, shared) : -1);
    both_in_rows_.push_back(shared > 0.0 ? link_row(k, shared, 1.0) : -1);
    host_rows_.push_back(p_.link.host_bytes < INT64_MAX ? host_row(k) : -1);
  }

  int host_row(int k) {
    const int r = row(-lp_infinity, static_cast<double>(p_.link.host_bytes) / unit_);
    for (const transfer_class& c : classes_) {
      put(r, c.sent + k, 1.0);
      put(r, c.fetched + k, -1.0);
    }
    return r;
  }

  int less_row(int a, int b) {
    const int r = row(-lp_infinity, 0.0);
    put(r, a, 1.0);
    put(r, b, -1.0);
    return r;
  }

  // In which order the bytes of a class are released, sent, fetched and needed.
  void add_transfer_rows(transfer_class& c, int k) {
    const auto at = static_cast<std::size_t>(k);
    for (const int column : {c.sent, c.fetched}) {
      if (k == 0) continue;
      const int r = row(0.0, lp_infinity);
      put(r, column + k, 1.0);
      put(r, column + k - 1, -1.0);
    }
    // What is sent never falls: the last step before more is released says it for all.
    const bool last = k + 1 == steps_ || c.released_changes[at + 1] != 0;
    c.sent_rows.push_back(last ? less_row(c.sent + k, c.released[at]) : -1);
    c.fetched_rows.push_back(less_row(c.fetched + k, c.sent + k));
    int deadline = -1;
    if (c.needed_changes[at]) {
      deadline = row(0.0, lp_infinity);
      if (k > 0) put(deadline, c.fetched + k - 1, 1.0);
      put(deadline, c.needed[at], -1.0);
    }
    c.deadline_rows.push_back(deadline);
  }

  // `most`: of H_k + F_k. Rows that cannot bind are left out.
  void add_memory_rows(int k, std::int64_t most) {
    const auto at = static_cast<std::size_t>(k);
    const auto memory = [&](std::int64_t fixed, int sent_at, int fetched_at) {
      if (fixed + most <= p_.limit) return -1;
      const int r = row(-lp_infinity, static_cast<double>(p_.limit - fixed) / unit_);
      put(r, held_[at], 1.0);
      for (const transfer_class& c : classes_) {
        if (sent_at >= 0) put(r, c.sent + sent_at, -1.0);
        if (fetched_at >= 0) put(r, c.fetched + fetched_at, 1.0);
      }
      return r;
    };
    begin_rows_.push_back(memory(p_.fixed_first[at], k - 1, k - 1));
    end_rows_.push_back(memory(p_.fixed_last[at], k, k));
    const bool inner = p_.fixed[at] > std::max(p_.fixed_first[at], p_.fixed_last[at]);
    inner_rows_.push_back(inner ? memory(p_.fixed[at], k, k - 1) : -1);
  }

  // Upper bound of H_k + F_k.
  std::vector<std::int64_t> most_held() const {
    std::vector<std::int64_t> sum(static_cast<std::size_t>(steps_) + 1, 0);
    for (const item& i : p_.items) {
      // Bytes of the largest option, wherever it holds any.
      std::int64_t most = 0;
      std::int32_t first = steps_, last = -1;
      for (const item_option& o : i.options) {
        std::int64_t bytes = 0;
        for (const held_bytes& h : o.held) {
          bytes += std::max<std::int64_t>(h.bytes, 0);
          first = std::min(first, h.first);
          last = std::max(last, h.last);
        }
        for (const transfer& t : o.transfers)
          bytes += t.bytes;
        most = std::max(most, bytes);
      }
      if (last < 0) continue;
      sum[static_cast<std::size_t>(first)] += most;
      sum[static_cast<std::size_t>(last) + 1] -= most;
    }
    for (std::size_t k = 1; k < sum.size(); ++k)
      sum[k] += sum[k - 1];
    return sum;
  }

  const step_problem& p_;
  double unit_ = 1.0;  // bytes
  int steps_ = 0, columns_ = 0;
  int time_ = 0;
  std::vector<int> held_;
  std::vector<char> held_changes_;  // per step, and one past the last
  class_limits limits_;
  std::vector<transfer_class> classes_;  // none without a link
  std::vector<int> first_option_;
  std::vector<std::vector<std::pair<int, double>>> work_;  // per step: columns of options that add to it
  std::vector<double> change_;                             // add_option(), all 0 between calls
  std::vector<int> touched_;
  linear_program program_;
  std::vector<int> held_rows_, host_rows_, compute_rows_, out_rows_, in_rows_, both_out_rows_, both_in_rows_,
      begin_rows_, end_rows_, inner_rows_;
};

}  // namespace

relaxed relax(const step_problem& p, const std::function<bool()>& stop) {
  if (!can_relax()) return {};
  const builder b(p);
  return b.read(solve(b.program(), stop));
}

}  // namespace stash::planner
