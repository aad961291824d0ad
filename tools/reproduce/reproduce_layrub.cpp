// SPDX-License-Identifier: Apache-2.0
// The table of Layrub: how far memory falls, network by network.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "models/models.hpp"
#include "planner/budget_planner.hpp"
#include "planner/memory/bounds.hpp"
#include "planner/memory/placement.hpp"
#include "reproduce/reproduce_rows.hpp"
#include "stash/error.hpp"

namespace stash::tools {

using planner::policy;

namespace {

constexpr double slower = 0.1;

double slowdown(const planner::plan& p) {
  return p.times.simulated_ms / p.times.unplanned_ms - 1;
}

struct reduced {
  planner::plan best;  // without buffers if there is none
  std::string limit;
};

// The least memory in which a plan is at most so much slower, as a share of `baseline` bytes, by bisection.
class least_memory {
 public:
  least_memory(const reproduction& r, const planner::graph& g, const planner::machine& m,
               std::int64_t baseline)
      : r_(r), g_(g), baseline_(baseline), quick_(g, quick_search(options_for(r, policy::lossless, m))) {
    if (long_search_pays(g)) thorough_.emplace(g, options_for(r, policy::lossless, m));
  }

  reduced find() {
    const planner::wall w = planner::working_set_wall(g_);
    double low = ratio(w.bytes + quick_.static_bytes(), baseline_), high = 1.0;
    result_.limit = fmt::format("working set W of {}", g_.op_at(w.op).name);
    while (high - low > std::max(r_.tolerance, 0.005) && !r_.stopped()) {
      const double share = (low + high) / 2;
      const bool fits = fits_in(quick_, share) || (thorough_ && fits_in(*thorough_, share));
      (fits ? high : low) = share;
      r_.progress(fmt::format("{} batch {}: {:.1f} % of {:.0f} MB {}", g_.name, g_.batch, 100 * share,
                              mb(baseline_), fits ? "fits" : "does not fit"));
    }
    return std::move(result_);
  }

 private:
  bool fits_in(planner::budget_planner& sweep, double share) {
    try {
      planner::plan p = sweep.make(static_cast<std::int64_t>(share * static_cast<double>(baseline_)));
      if (slowdown(p) > slower) {
        result_.limit = fmt::format("{}: {:.0f} % of the baseline take {:+.1f} % time",
                                    what_slows(sweep.load(), p.times), 100 * share, 100 * slowdown(p));
        return false;
      }
      check(p);
      result_.best = std::move(p);
      return true;
    } catch (const error& e) {
      if (e.code() != errc::infeasible_budget) throw;
      result_.limit = fmt::format("{} (at {:.0f} % of the baseline)", what_is_there(e.what()), 100 * share);
      return false;
    }
  }

  const reproduction& r_;
  const planner::graph& g_;
  std::int64_t baseline_;
  planner::budget_planner quick_;
  std::optional<planner::budget_planner> thorough_;
  reduced result_;
};

struct variant {
  policy p;
  bool fused;  // updates in the backward pass
  std::string name;
};

struct case_of_network {
  std::string network;
  std::int64_t batch = 0;
  bool largest = false;
};

class table {
 public:
  explicit table(const reproduction& r) : r_(r), m_(planner::find_machine("k40_12gb")) {}

  void run() {
    for (const models::model_info& info : models::all()) {
      if (info.build != nullptr) network(std::string(info.name));
    }
    if (r_.stopped()) return;
    for (const bool largest : {true, false}) {
      for (std::size_t k = 0; k < variants_.size(); ++k)
        mean(k, largest);
    }
    network_size size;
    for (const std::int64_t batch : {16, 32}) {
      size.batch = batch;
      fixed_row(
          r_, m_, slower,
          {"resnet1517", size, policy::lossless, 12 * gib, "trains in 12 GB", batch == 16 ? 1.0 : no_target});
    }
  }

 private:
  static const char* batch_text(bool largest) {
    return largest ? "largest batch of the baseline" : "batch 64";
  }

  void network(const std::string& name) {
    std::int64_t found = -1;
    for (const bool largest : {true, false}) {
      for (std::size_t k = 0; k < variants_.size(); ++k) {
        const std::string what =
            fmt::format("{}, {}, {}: memory", name, batch_text(largest), variants_[k].name);
        if (!r_.wants(what) && !r_.wants("mean of")) continue;
        if (r_.stopped()) return;
        if (largest && found < 0) found = grown(r_, {name, policy::none, m_, 12 * gib, slower, 0, 8}).size;
        row(k, what, {name, largest ? found : 64, largest});
      }
    }
  }

  void row(std::size_t k, const std::string& what, const case_of_network& c) {
    const variant& v = variants_[k];
    const stopwatch clock;
    table_row row;
    row.what = what;
    row.published = v.p == policy::layrub ? "-58.2 % mean (to -98.9 %), +24.1 % time" : "-58.2 % mean";
    row.simulated = "memory and time on " + m_.name;
    row.verified = std::string("-");
    row.ours = std::string("the baseline fits no batch");
    if (c.batch > 0) {
      network_size size;
      size.batch = c.batch;
      const planner::graph plain = network_graph(c.network, size, r_.threads);
      const std::int64_t baseline =
          planner::budget_planner(plain, quick_search(options_for(r_, v.p, m_))).baseline_bytes();
      size.fused_update = v.fused;
      const planner::graph g = network_graph(c.network, size, r_.threads);
      const reduced x =
          v.p == policy::layrub ? by_rule(g, baseline) : least_memory(r_, g, m_, baseline).find();
      const bool found = !x.best.buffers.empty();
      const std::int64_t planned = found ? x.best.sizes.planned_peak_total : baseline;
      row.figure = 1.0 - ratio(planned, baseline);
      row.ours =
          fmt::format("batch {}: {:.0f} -> {:.0f} MB (-{:.1f} %), {:+.1f} % time", c.batch, mb(baseline),
                      mb(planned), 100 * row.figure, found ? 100 * slowdown(x.best) : 0.0);
      row.limit = x.limit;
      row.verified = found ? "yes" : "-";
      total& t = totals_[k][c.largest ? 0 : 1];
      t.sum += row.figure;
      ++t.count;
    }
    row.seconds = clock.seconds();
    r_.add(row);
  }

  // The rule has no memory to aim at.
  reduced by_rule(const planner::graph& g, std::int64_t baseline) {
    reduced x;
    x.limit = "the rule moves everything";
    try {
      x.best = planner::budget_planner(g, quick_search(options_for(r_, policy::layrub, m_))).make(baseline);
      check(x.best);
    } catch (const error& e) {
      if (e.code() != errc::infeasible_budget) throw;
      x.limit = e.what();
    }
    return x;
  }

  void mean(std::size_t k, bool largest) {
    const total& t = totals_[k][largest ? 0 : 1];
    if (t.count < 2) return;
    table_row row;
    row.what =
        fmt::format("mean of {} networks, {}, {}: memory", t.count, batch_text(largest), variants_[k].name);
    row.published = "-58.2 %, +24.1 % time";
    row.figure = t.sum / static_cast<double>(t.count);
    row.ours = fmt::format("-{:.1f} %", 100 * row.figure);
    if (largest && variants_[k].p == policy::lossless) {
      row.goal = variants_[k].fused;
      row.target = row.goal ? 0.68 : 0.58;
    }
    row.simulated = fmt::format("memory and time on {}, each at most {:.0f} % slower", m_.name, 100 * slower);
    row.limit = "see the rows";
    row.verified = "yes";
    r_.add(row);
  }

  struct total {
    double sum = 0.0;
    std::size_t count = 0;
  };

  const reproduction& r_;
  planner::machine m_;
  std::array<variant, 3> variants_{{{policy::lossless, false, "lossless + swap"},
                                    {policy::lossless, true, "lossless + swap, update in backward"},
                                    {policy::layrub, false, "layrub"}}};
  total totals_[3][2];
};

}  // namespace

void layrub_table(const reproduction& r) {
  table(r).run();
}

}  // namespace stash::tools
