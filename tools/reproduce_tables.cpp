// The rows of each table. Published figures: docs/policies.md names the sources.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "commands.hpp"
#include "models/models.hpp"
#include "planner/needs.hpp"
#include "planner/placement.hpp"
#include "planner/sweep.hpp"
#include "planner/validator.hpp"
#include "reproduce.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

using planner::policy;

constexpr double no_target = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t no_limit = std::int64_t{1} << 60;
constexpr std::int64_t gib = std::int64_t{1} << 30;

double ratio(std::int64_t a, std::int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0;
}
double mb(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

class stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// A machine whose convolutions and matrix products run at `share` of the rate.
planner::machine at_rate(const char* name, double share) {
  planner::machine m = planner::find_machine(name);
  m.flops_per_second *= share;
  if (share != 1.0) m.name += fmt::format(" at {:.1f}x compute", share);
  return m;
}

planner::plan_options wanted(const reproduction& r, policy p, const planner::machine& m) {
  planner::plan_options o;
  o.chosen_policy = p;
  o.model = m;
  o.swap = planner::swaps(p);
  o.threads = r.threads;
  o.evaluations = r.evaluations;
  o.seed = r.seed;
  o.stop = r.stop;
  o.relax = false;
  return o;
}

std::string name_of(policy p, bool swap) {
  const bool says_so = p >= policy::gist || p == policy::none;
  return fmt::format("{}{}", planner::to_string(p), swap && !says_so ? " + swap" : "");
}

void check(const planner::plan& p) {
  const auto findings = planner::validate(p);
  if (findings.empty()) return;
  throw failed_while_running(fmt::format("{}, batch {}, policy {}: the plan is not valid: {}", p.network.name,
                                         p.network.batch, planner::to_string(p.chosen_policy),
                                         findings.front().message));
}

// ---- Gist ----------------------------------------------------------------------------------------

bool sees_the_whole_batch(const planner::graph& g) {
  return std::any_of(g.ops.begin(), g.ops.end(),
                     [](const planner::op& o) { return o.kind == planner::op_kind::batch_norm; });
}

planner::plan smallest(const reproduction& r, const std::string& network, std::int64_t batch, policy p) {
  planner::plan_options o;
  o.chosen_policy = p;
  o.threads = r.threads;
  planner::plan made = planner::make_plan(network_graph(network, {batch, 0, 0}, r.threads), o);
  check(made);
  return made;
}

void gist_table(const reproduction& r) {
  constexpr std::int64_t batch = 64;
  const std::vector<std::string> five{"alexnet", "nin", "overfeat", "vgg16", "inception_v1"};
  std::vector<std::string> all = five;
  all.insert(all.end(), {"alexnet_lrn", "resnet50"});
  struct version {
    policy p;
    const char* published;
    double mean_target;
  };
  for (const version& v :
       {version{policy::lossless, "1.4x mean (from notes)", 1.9}, version{policy::fp8, "1.8x mean", 2.7}}) {
    double sum = 0.0;
    std::size_t count = 0;
    const stopwatch whole;
    for (const std::string& network : all) {
      table_row row;
      row.what = fmt::format("{}, batch {}, {}: footprint of maps", network, batch, planner::to_string(v.p));
      const std::string mean = fmt::format("mean of five, {}", planner::to_string(v.p));
      if (!r.wants(row.what) && !r.wants(mean)) continue;
      if (r.stopped()) return;
      r.progress(row.what);
      const stopwatch clock;
      const planner::plan p = smallest(r, network, batch, v.p);
      row.figure = ratio(p.sizes.baseline_peak, p.sizes.planned_peak);
      row.published = v.published;
      row.ours = fmt::format(
          "{:.2f}x maps ({:.1f} MB of {:.1f} MB), {:.2f}x with weights and workspace, {:.3f} x "
          "the bound",
          row.figure, mb(p.sizes.planned_peak), mb(p.sizes.baseline_peak),
          ratio(p.sizes.baseline_peak_total, p.sizes.planned_peak_total),
          ratio(p.sizes.planned_peak, p.sizes.bound));
      if (!sees_the_whole_batch(p.network)) {
        const planner::plan half = smallest(r, network, batch / 2, v.p);
        row.ours += fmt::format("; in two halves of the batch {:.2f}x",
                                ratio(p.sizes.baseline_peak, half.sizes.planned_peak));
      }
      row.simulated = "memory; density 0.5 after ReLU";
      row.limit = fmt::format("W of {} is 1/{:.2f} of the baseline", p.network.op_at(p.sizes.wall_op).name,
                              ratio(p.sizes.baseline_peak, p.sizes.wall));
      row.verified = "yes";
      row.seconds = clock.seconds();
      if (network == "resnet50" && v.p == policy::fp8) {
        row.target = 4.8;
        row.published = "-";
      }
      r.add(row);
      table_row tight = row;
      tight.what = fmt::format("{}, {}: planned peak over bound", network, planner::to_string(v.p));
      tight.published = "-";
      tight.figure = ratio(p.sizes.planned_peak, p.sizes.bound);
      tight.ours = fmt::format("{:.3f}", tight.figure);
      tight.target = 1.05;
      tight.at_most = true;
      tight.limit = "layout";
      tight.seconds = 0.0;
      r.add(tight);
      if (std::find(five.begin(), five.end(), network) != five.end()) {
        sum += row.figure;
        ++count;
      }
    }
    if (count == five.size()) {
      table_row row;
      row.what = fmt::format("mean of five, {}: footprint of maps", planner::to_string(v.p));
      row.published = v.p == policy::lossless ? "1.4x, 1.5x at most (from notes)" : "1.8x (2x at most)";
      row.figure = sum / static_cast<double>(count);
      row.ours = fmt::format("{:.2f}x", row.figure);
      row.target = v.mean_target;
      row.simulated = "memory; density 0.5 after ReLU";
      row.limit = "W of each network";
      row.verified = "yes";
      row.seconds = whole.seconds();
      r.add(row);
    }
  }
  // The paper's own rule through our schedule and layout, and what it costs.
  const planner::machine m = planner::find_machine("m40_12gb");
  for (const std::string& network : all) {
    table_row row;
    row.what = fmt::format("{}, batch {}, rule of Gist (fp16): footprint of maps and time", network, batch);
    if (!r.wants(row.what)) continue;
    if (r.stopped()) return;
    r.progress(row.what);
    const stopwatch clock;
    planner::plan_sweep sweep(network_graph(network, {batch, 0, 0}, r.threads), wanted(r, policy::gist, m));
    const planner::plan p = sweep.make(no_limit);
    check(p);
    row.figure = ratio(p.sizes.baseline_peak, p.sizes.planned_peak);
    row.published = "1.8x mean with narrower values, +4 % time";
    row.ours = fmt::format("{:.2f}x maps, {:+.1f} % time", row.figure,
                           100 * (p.times.simulated_ms / p.times.unplanned_ms - 1));
    row.simulated = "memory and time on " + m.name;
    row.limit = "the rule: one form per pair of layers";
    row.verified = "yes";
    row.seconds = clock.seconds();
    r.add(row);
  }
}

// ---- growth --------------------------------------------------------------------------------------

struct growth_case {
  std::string network;
  policy p = policy::none;
  planner::machine m;
  std::int64_t memory = 0;
  double max_slowdown = 0.1;
  std::int64_t batch = 0, steps = 0;  // batch 0: it grows; else the side grows
  std::int64_t first = 1;
};

largest_size grown(const reproduction& r, const growth_case& c) {
  const planner::plan_options options = wanted(r, c.p, c.m);
  growth g;
  g.unit = c.batch > 0 ? 8 : 1;
  g.first = c.first;
  g.most = c.batch > 0 ? 256 : 1'000'000;
  g.tolerance = r.tolerance;
  g.stop = r.stop;
  g.plan = [&](std::int64_t n) {
    network_size size{n, 0, c.steps};
    if (c.batch > 0) size = {c.batch, n, c.steps};
    const stopwatch clock;
    probe p = plan_probe(network_graph(c.network, size, r.threads), options, c.memory, c.max_slowdown);
    r.progress(fmt::format("{} {} {}: {} ({:.1f} s)", c.network, name_of(c.p, options.swap), n,
                           p.fits ? fmt::format("fits, {:+.1f} % time", 100 * p.slowdown()) : p.limit,
                           clock.seconds()));
    return p;
  };
  return find_largest(g);
}

struct growth_row {
  policy p;
  std::string published;
  double target = no_target;
};

// The largest batch of a network under several policies, as multiples of the baseline's.
void batch_rows(const reproduction& r, const std::string& network, const planner::machine& m,
                std::int64_t memory, double max_slowdown, const std::vector<growth_row>& rows,
                std::int64_t steps = 0) {
  const auto text = [&](policy p) {
    return fmt::format("{}{}, {}: largest batch in {:.1f} GB on {}", network,
                       steps > 0 ? fmt::format(" of {} steps", steps) : "", name_of(p, planner::swaps(p)),
                       static_cast<double>(memory) / 1e9, m.name);
  };
  if (std::none_of(rows.begin(), rows.end(), [&](const growth_row& x) { return r.wants(text(x.p)); })) return;
  if (r.stopped()) return;
  const largest_size base = grown(r, {network, policy::none, m, memory, max_slowdown, 0, steps, 8});
  for (const growth_row& x : rows) {
    if (!r.wants(text(x.p))) continue;
    if (r.stopped()) return;
    const stopwatch clock;
    const auto first = std::max<std::int64_t>(base.size, 1);
    const largest_size found = grown(r, {network, x.p, m, memory, max_slowdown, 0, steps, first});
    table_row row;
    row.what = text(x.p);
    row.published = x.published;
    row.figure = base.size > 0 ? ratio(found.size, base.size) : 0.0;
    row.target = x.target;
    row.ours =
        fmt::format("{} -> {} ({}), {:+.1f} % time, {:.0f} MB, {:.0f} MB on the host", base.size, found.size,
                    base.size > 0 ? fmt::format("{:.2f}x", row.figure) : "the baseline fits none",
                    100 * found.best.slowdown(), mb(found.best.planned_bytes), mb(found.best.host_bytes));
    if (found.interrupted) row.ours += " (interrupted)";
    row.simulated = fmt::format("memory and time on {}, at most {:.0f} % slower, batch to {:.0f} %", m.name,
                                100 * max_slowdown, 100 * r.tolerance);
    row.limit = fmt::format("at {}: {}", found.next.size, found.next.limit);
    row.verified = found.best.valid ? "yes" : "-";
    row.seconds = clock.seconds();
    r.add(row);
  }
}

// One plan of a given size in a given memory.
void fixed_row(const reproduction& r, const std::string& network, const network_size& size, policy p,
               const planner::machine& m, std::int64_t memory, double max_slowdown,
               const std::string& published, double target) {
  table_row row;
  row.what = fmt::format("{}, batch {}{}{}, {}: in {:.2f} GB on {}", network, size.batch,
                         size.steps > 0 ? fmt::format(", {} steps", size.steps) : "",
                         size.side > 0 ? fmt::format(", side {}", size.side) : "",
                         name_of(p, planner::swaps(p)), static_cast<double>(memory) / 1e9, m.name);
  if (!r.wants(row.what) || r.stopped()) return;
  r.progress(row.what);
  const stopwatch clock;
  const probe x = plan_probe(network_graph(network, size, r.threads), wanted(r, p, m), memory, max_slowdown);
  row.published = published;
  row.target = target;
  row.figure = x.fits ? 1.0 : 0.0;
  row.ours = x.planned ? fmt::format("{} MB, {:+.1f} % time, {:.0f} MB on the host",
                                     x.planned_bytes / 1'000'000, 100 * x.slowdown(), mb(x.host_bytes))
                       : std::string("does not fit");
  row.simulated = fmt::format("memory and time on {}, at most {:.0f} % slower", m.name, 100 * max_slowdown);
  row.limit = x.limit;
  row.verified = x.valid ? "yes" : "-";
  row.seconds = clock.seconds();
  r.add(row);
}

// ---- Meng et al. ---------------------------------------------------------------------------------

void meng_table(const reproduction& r) {
  constexpr double slower = 0.1;
  for (const double share : {1.0, 0.6, 1.4}) {
    const planner::machine m = at_rate("m40_12gb", share);
    const bool own = share == 1.0;
    std::vector<growth_row> rows{{policy::lossless, "144 -> 664 (4.61x)", own ? 4.6 : no_target},
                                 {policy::fp8, "-", own ? 8.0 : no_target}};
    if (own) rows.push_back({policy::swap_only, "144 -> 664 (4.61x), their rule", no_target});
    batch_rows(r, "resnet50", m, 12 * gib, slower, rows);
    rows = {{policy::lossless, "208 -> 548 (2.63x)", own ? 2.6 : no_target}};
    if (own) {
      rows.push_back({policy::fp8, "-", no_target});
      rows.push_back({policy::swap_only, "208 -> 548 (2.63x), their rule", no_target});
    }
    batch_rows(r, "inception_v3", m, 12 * gib, slower, rows);
  }
  const planner::machine m = planner::find_machine("m40_12gb");
  fixed_row(r, "resnet101", {32, 0, 0}, policy::lossless, m, 2'660'000'000, slower, "5815 -> 2660 MB",
            no_target);
  fixed_row(r, "resnet200", {32, 0, 0}, policy::lossless, m, 3'052'000'000, slower, "10662 -> 3052 MB",
            no_target);
  fixed_row(r, "resnet1001", {32, 0, 0}, policy::lossless, m, 5'400'000'000, slower,
            "out of memory -> 5979 MB", 1.0);
  fixed_row(r, "resnet2000", {32, 0, 0}, policy::lossless, m, 10'000'000'000, slower,
            "out of memory -> 10650 MB", 1.0);
  for (const policy p : {policy::none, policy::lossless}) {
    fixed_row(r, "seq2seq", {60, 0, 400}, p, m, 12 * gib, slower,
              p == policy::none ? "batch 2 fits" : "batch 2 -> 60 at 400 steps",
              p == policy::none ? no_target : 1.0);
  }
}

// ---- TFLMS ---------------------------------------------------------------------------------------

void lms_table(const reproduction& r) {
  const planner::machine m = planner::find_machine("v100_16gb_nvlink2");
  constexpr double slower = 0.1;
  batch_rows(r, "resnet50", m, 16 * gib, slower,
             {{policy::lossless, "4.9x", 4.9},
              {policy::fp8, "-", no_target},
              {policy::lms, "4.9x, their rule", no_target}});
  fixed_row(r, "unet3d", {1, 192, 0}, policy::lossless, m, 16 * gib, slower, "192^3 without tiling", 1.0);
  const auto text = [&](policy p) {
    return fmt::format("unet3d, batch 1, {}: largest volume in 17.2 GB on {}", name_of(p, planner::swaps(p)),
                       m.name);
  };
  const std::vector<growth_row> rows{{policy::lossless, "5.6x the resolution, another network", 2.9},
                                     {policy::fp8, "-", no_target},
                                     {policy::lms, "5.6x the resolution, their rule", no_target}};
  if (std::none_of(rows.begin(), rows.end(), [&](const growth_row& x) { return r.wants(text(x.p)); })) return;
  if (r.stopped()) return;
  const largest_size base = grown(r, {"unet3d", policy::none, m, 16 * gib, slower, 1, 0, 16});
  for (const growth_row& x : rows) {
    if (!r.wants(text(x.p))) continue;
    if (r.stopped()) return;
    const stopwatch clock;
    const largest_size found =
        grown(r, {"unet3d", x.p, m, 16 * gib, slower, 1, 0, std::max<std::int64_t>(base.size / 8, 1)});
    table_row row;
    row.what = text(x.p);
    row.published = x.published;
    row.figure = base.size > 0 ? std::pow(ratio(found.size, base.size), 3.0) : 0.0;
    row.target = x.target;
    row.ours =
        fmt::format("{}^3 -> {}^3 ({:.2f}x the volume), {:+.1f} % time, {:.0f} MB, {:.0f} MB on the host",
                    base.size, found.size, row.figure, 100 * found.best.slowdown(),
                    mb(found.best.planned_bytes), mb(found.best.host_bytes));
    row.simulated = fmt::format("memory and time on {}, at most {:.0f} % slower", m.name, 100 * slower);
    row.limit = fmt::format("at {}: {}", found.next.size, found.next.limit);
    row.verified = found.best.valid ? "yes" : "-";
    row.seconds = clock.seconds();
    r.add(row);
  }
}

// ---- Layrub --------------------------------------------------------------------------------------

// The least memory in which a plan is at most so much slower: a share of the baseline, by bisection.
struct reduced {
  std::int64_t baseline = 0;
  planner::plan best;  // without buffers if there is none
  std::string limit;
};
reduced least_memory(const reproduction& r, const planner::graph& g, const planner::plan_options& o,
                     double max_slowdown) {
  reduced result;
  planner::plan_sweep sweep(g, o);
  result.baseline = sweep.baseline_bytes();
  double low = 0.0, high = 1.0;
  while (high - low > std::max(r.tolerance, 0.005) && !r.stopped()) {
    const double share = (low + high) / 2;
    const auto budget = static_cast<std::int64_t>(share * static_cast<double>(result.baseline));
    bool fits = false;
    try {
      planner::plan p = sweep.make(budget);
      const double slowdown = p.times.simulated_ms / p.times.unplanned_ms - 1;
      fits = slowdown <= max_slowdown;
      if (fits) {
        check(p);
        result.best = std::move(p);
      } else {
        result.limit =
            fmt::format("{:.0f} % of the baseline take {:+.1f} % time", 100 * share, 100 * slowdown);
      }
    } catch (const error& e) {
      if (e.code() != errc::infeasible_budget) throw;
      result.limit = fmt::format("{:.0f} % of the baseline do not hold what must be there", 100 * share);
    }
    (fits ? high : low) = share;
    r.progress(fmt::format("{} batch {}: {:.1f} % of {:.0f} MB {}", g.name, g.batch, 100 * share,
                           mb(result.baseline), fits ? "fits" : "does not fit"));
  }
  return result;
}

void layrub_table(const reproduction& r) {
  const planner::machine m = planner::find_machine("k40_12gb");
  constexpr double slower = 0.1;
  std::vector<std::string> networks;
  for (const models::model_info& info : models::all()) {
    if (info.build != nullptr) networks.emplace_back(info.name);
  }
  struct total {
    double sum = 0.0;
    std::size_t count = 0;
  };
  total sums[2][2];
  const policy policies[] = {policy::lossless, policy::layrub};
  for (const std::string& network : networks) {
    std::int64_t largest = -1;
    for (const bool at_largest : {true, false}) {
      for (std::size_t k = 0; k < 2; ++k) {
        const policy p = policies[k];
        table_row row;
        row.what = fmt::format("{}, {}, {}: memory", network,
                               at_largest ? "largest batch of the baseline" : "batch 64",
                               name_of(p, planner::swaps(p)));
        if (!r.wants(row.what) && !r.wants("mean")) continue;
        if (r.stopped()) return;
        const stopwatch clock;
        if (at_largest && largest < 0) {
          largest = grown(r, {network, policy::none, m, 12 * gib, slower, 0, 0, 8}).size;
        }
        const std::int64_t batch = at_largest ? largest : 64;
        row.published = p == policy::layrub ? "-58.2 % mean (to -98.9 %), +24.1 % time" : "-58.2 % mean";
        row.simulated = "memory and time on " + m.name;
        row.verified = "-";
        if (batch == 0) {
          row.ours = "the baseline fits no batch";
          r.add(row);
          continue;
        }
        const planner::graph g = network_graph(network, {batch, 0, 0}, r.threads);
        reduced x;
        try {
          if (p == policy::layrub) {  // the rule has no memory to aim at
            planner::plan_sweep sweep(g, wanted(r, p, m));
            x.baseline = sweep.baseline_bytes();
            planner::plan made = sweep.make(x.baseline);
            check(made);
            x.best = std::move(made);
            x.limit = "the rule moves everything";
          } else {
            x = least_memory(r, g, wanted(r, p, m), slower);
          }
        } catch (const error& e) {
          if (e.code() != errc::infeasible_budget) throw;
          x.limit = e.what();
        }
        const bool found = !x.best.buffers.empty();
        const std::int64_t planned = found ? x.best.sizes.planned_peak_total : x.baseline;
        row.figure = 1.0 - ratio(planned, x.baseline);
        row.ours =
            fmt::format("batch {}: {:.0f} -> {:.0f} MB (-{:.1f} %), {:+.1f} % time", batch, mb(x.baseline),
                        mb(planned), 100 * row.figure,
                        found ? 100 * (x.best.times.simulated_ms / x.best.times.unplanned_ms - 1) : 0.0);
        row.limit = x.limit;
        row.verified = found ? "yes" : "-";
        row.seconds = clock.seconds();
        total& t = sums[k][at_largest ? 0 : 1];
        t.sum += row.figure;
        ++t.count;
        r.add(row);
      }
    }
  }
  for (std::size_t k = 0; k < 2; ++k) {
    for (const bool at_largest : {true, false}) {
      const total& t = sums[k][at_largest ? 0 : 1];
      if (t.count < 2) continue;
      table_row row;
      row.what = fmt::format("mean of {} networks, {}, {}: memory", t.count,
                             at_largest ? "largest batch of the baseline" : "batch 64",
                             name_of(policies[k], planner::swaps(policies[k])));
      row.published = "-58.2 %, +24.1 % time";
      row.figure = t.sum / static_cast<double>(t.count);
      row.ours = fmt::format("-{:.1f} %", 100 * row.figure);
      if (policies[k] == policy::lossless && at_largest) row.target = 0.58;
      row.simulated = "memory and time on " + m.name;
      row.limit = "see the rows";
      row.verified = "yes";
      r.add(row);
    }
  }
  for (const std::int64_t batch : {16, 32}) {
    fixed_row(r, "resnet1517", {batch, 0, 0}, policy::lossless, m, 12 * gib, slower, "trains in 12 GB",
              batch == 16 ? 1.0 : no_target);
  }
}

struct table {
  const char* name;
  void (*make)(const reproduction&);
};
constexpr table tables[] = {
    {"gist", gist_table}, {"meng", meng_table}, {"lms", lms_table}, {"layrub", layrub_table}};

}  // namespace

std::vector<std::string> reproductions() {
  std::vector<std::string> names;
  for (const table& t : tables)
    names.emplace_back(t.name);
  return names;
}

void check_reproduction(const std::string& name) {
  const std::vector<std::string> names = reproductions();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw error(errc::invalid_argument,
                fmt::format("reproduce: table: expected one of {}, got '{}'", fmt::join(names, ", "), name));
  }
}

void reproduce(const std::string& name, const reproduction& r) {
  check_reproduction(name);
  for (const table& t : tables) {
    if (t.name == name) t.make(r);
  }
}

}  // namespace stash::tools
