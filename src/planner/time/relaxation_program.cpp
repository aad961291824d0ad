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

// One class: each column and row is named by a member, which building and reading share.
class builder {
 public:
  explicit builder(const step_problem& p) : p_(p), steps_(static_cast<int>(p.ms.size())) {
    unit_ = std::max(1.0, static_cast<double>(p.limit) / 1000.0);
    linked_ = p.link.out_rate > 0.0 && p.link.in_rate > 0.0;
    first_option_.reserve(p.items.size());
    for (const item& i : p.items) {
      first_option_.push_back(columns_);
      columns_ += static_cast<int>(i.options.size());
    }
    find_changes();
    time_ = take_columns();
    held_ = take_columns(held_changes_);
    if (linked_) {
      sent_ = take_columns();
      fetched_ = take_columns();
      released_ = take_columns(released_changes_);
      needed_ = take_columns(needed_changes_);
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
    if (!linked_) return r;
    prices(d.released, released_rows_, unit_);
    prices(d.needed, needed_rows_, unit_);
    prices(d.sent, sent_rows_, unit_);
    prices(d.fetched, fetched_rows_, unit_);
    prices(d.deadline, deadline_rows_, unit_);
    prices(d.host, host_rows_, unit_);
    prices(d.out, out_rows_, 1.0);
    prices(d.in, in_rows_, 1.0);
    prices(d.both_out, both_out_rows_, 1.0);
    prices(d.both_in, both_in_rows_, 1.0);
    fill(d.released, released_rows_, [&](std::size_t k) { return d.sent[k]; });
    fill(d.needed, needed_rows_, [&](std::size_t k) { return d.deadline[k]; });
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
    const auto size = static_cast<std::size_t>(steps_) + 1;
    for (auto* list : {&held_changes_, &released_changes_, &needed_changes_}) {
      list->assign(size, 0);
      (*list)[0] = 1;
    }
    for (const item& i : p_.items) {
      for (const item_option& o : i.options) {
        for (const held_bytes& h : o.held) {
          if (h.passing) continue;
          held_changes_[static_cast<std::size_t>(h.first)] = 1;
          held_changes_[static_cast<std::size_t>(h.last) + 1] = 1;
        }
        for (const transfer& t : o.transfers) {
          const auto out = static_cast<std::size_t>(t.released) + 1, in = static_cast<std::size_t>(t.needed);
          held_changes_[out] = held_changes_[in] = released_changes_[out] = needed_changes_[in] = 1;
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
    if (linked_) {
      released_rows_ = running(released_, released_changes_);
      needed_rows_ = running(needed_, needed_changes_);
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
      if (linked_) {
        add_link_rows(k);
        add_transfer_rows(k);
      }
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
      if (t.released + 1 < steps_)
        put(released_rows_[static_cast<std::size_t>(t.released) + 1], column,
            -static_cast<double>(t.bytes) / unit_);
      if (t.needed < steps_)
        put(needed_rows_[static_cast<std::size_t>(t.needed)], column, -static_cast<double>(t.bytes) / unit_);
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

  // T_k >= (a * (S_k - S_(k-1)) + b * (F_k - F_(k-1)))
  int link_row(int k, double a, double b) {
    const int r = row(0.0, lp_infinity);
    put(r, time_ + k, 1.0);
    for (const auto& [column, factor] : {std::pair(sent_, a), std::pair(fetched_, b)}) {
      if (factor == 0.0) continue;
      put(r, column + k, -factor);
      if (k > 0) put(r, column + k - 1, factor);
    }
    return r;
  }

  void add_link_rows(int k) {
    const double shared = 1.0 / p_.link.contention - 1.0;
    const double out_ms = unit_ / p_.link.out_rate, in_ms = unit_ / p_.link.in_rate;
    out_rows_.push_back(link_row(k, out_ms, 0.0));
    in_rows_.push_back(link_row(k, 0.0, in_ms));
    both_out_rows_.push_back(shared > 0.0 ? link_row(k, out_ms, shared * in_ms) : -1);
    both_in_rows_.push_back(shared > 0.0 ? link_row(k, shared * out_ms, in_ms) : -1);
  }

  int less_row(int a, int b, double upper) {
    const int r = row(-lp_infinity, upper);
    put(r, a, 1.0);
    put(r, b, -1.0);
    return r;
  }

  // In which order bytes are released, sent, fetched and needed.
  void add_transfer_rows(int k) {
    const auto at = static_cast<std::size_t>(k);
    for (const int column : {sent_, fetched_}) {
      if (k == 0) continue;
      const int r = row(0.0, lp_infinity);
      put(r, column + k, 1.0);
      put(r, column + k - 1, -1.0);
    }
    // What is sent never falls: the last step before more is released says it for all.
    const bool last = k + 1 == steps_ || released_changes_[at + 1] != 0;
    sent_rows_.push_back(last ? less_row(sent_ + k, released_[at], 0.0) : -1);
    fetched_rows_.push_back(less_row(fetched_ + k, sent_ + k, 0.0));
    host_rows_.push_back(
        p_.link.host_bytes < INT64_MAX
            ? less_row(sent_ + k, fetched_ + k, static_cast<double>(p_.link.host_bytes) / unit_)
            : -1);
    int deadline = -1;
    if (needed_changes_[at]) {
      deadline = row(0.0, lp_infinity);
      if (k > 0) put(deadline, fetched_ + k - 1, 1.0);
      put(deadline, needed_[at], -1.0);
    }
    deadline_rows_.push_back(deadline);
  }

  // `most`: of H_k + F_k. Rows that cannot bind are left out.
  void add_memory_rows(int k, std::int64_t most) {
    const auto at = static_cast<std::size_t>(k);
    const auto memory = [&](std::int64_t fixed, int sent_at, int fetched_at) {
      if (fixed + most <= p_.limit) return -1;
      const int r = row(-lp_infinity, static_cast<double>(p_.limit - fixed) / unit_);
      put(r, held_[at], 1.0);
      if (linked_ && sent_at >= 0) put(r, sent_ + sent_at, -1.0);
      if (linked_ && fetched_at >= 0) put(r, fetched_ + fetched_at, 1.0);
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
  bool linked_ = false;
  int time_ = 0, sent_ = 0, fetched_ = 0;
  std::vector<int> held_, released_, needed_;
  std::vector<char> held_changes_, released_changes_, needed_changes_;  // per step, and one past the last
  std::vector<int> first_option_;
  std::vector<std::vector<std::pair<int, double>>> work_;  // per step: columns of options that add to it
  std::vector<double> change_;                             // add_option(), all 0 between calls
  std::vector<int> touched_;
  linear_program program_;
  std::vector<int> held_rows_, released_rows_, needed_rows_, sent_rows_, fetched_rows_, deadline_rows_,
      host_rows_, compute_rows_, out_rows_, in_rows_, both_out_rows_, both_in_rows_, begin_rows_, end_rows_,
      inner_rows_;
};

}  // namespace

relaxed relax(const step_problem& p, const std::function<bool()>& stop) {
  if (!can_relax()) return {};
  const builder b(p);
  return b.read(solve(b.program(), stop));
}

}  // namespace stash::planner
