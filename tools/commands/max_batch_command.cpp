// SPDX-License-Identifier: Apache-2.0
// max-batch: the largest batch, side or sequence whose plan fits a memory, per policy.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "encoders/message.hpp"
#include "files/budget.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "planner/explain_names.hpp"
#include "reproduce/growth.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct options {
  graph_source source;
  plan_source plan;
  std::vector<std::string> policies{"none", "lossless"};
  std::string memory, max_slowdown, grow = "batch", json;
  double tolerance = 0.0;
};

// "10%" or "0.1"; empty: no bound.
double parse_share(const std::string& text) {
  if (text.empty()) return std::numeric_limits<double>::infinity();
  const bool percent = text.back() == '%';
  double value = 0;
  const char* const end = text.data() + text.size() - (percent ? 1 : 0);
  const auto [rest, status] = std::from_chars(text.data(), end, value);
  if (status == std::errc{} && rest == end && std::isfinite(value) && value >= 0)
    return percent ? value / 100 : value;
  throw error(errc::invalid_argument,
              fmt::format("--max-slowdown: expected a share such as 10% or 0.1, got '{}'", shortened(text)));
}

struct row {
  std::string policy;
  largest_size found;
  double seconds = 0;
};

nlohmann::ordered_json to_json(const row& r, const std::string& grow) {
  const probe& p = r.found.best;
  nlohmann::ordered_json j{{"policy", r.policy}, {grow, r.found.size}, {"feasible", r.found.size > 0}};
  if (r.found.size > 0) {
    j["planned_peak_bytes"] = p.planned_bytes;
    j["host_bytes"] = p.host_bytes;
    j["unplanned_ms"] = p.unplanned_ms;
    j["simulated_ms"] = p.simulated_ms;
    j["bound_ms"] = p.bound_ms;
    j["slowdown"] = p.slowdown();
    j["verified"] = p.valid;
  }
  j["next_tried"] = r.found.next.size;
  j["limit"] = r.found.next.limit;
  j["probes"] = r.found.probes;
  j["interrupted"] = r.found.interrupted;
  j["plan_seconds"] = r.seconds;
  return j;
}

// Only what the network has can grow.
void check_growth(const options& o) {
  if (o.source.name.empty() || !o.source.trace.empty()) {
    throw error(errc::invalid_argument,
                "network is required: only networks with a name can grow "
                "(see stash max-batch --help)");
  }
  const models::model_info& info = models::find(o.source.name);
  const bool side = o.grow == "side" && info.default_parameters.side == 0;
  const bool steps = o.grow == "steps" && info.default_parameters.steps == 0;
  if (side || steps) {
    throw error(
        errc::invalid_argument,
        fmt::format("--grow: expected batch, or a network of {}, got {} of {}",
                    side ? "volumes or images that is only planned" : "sequences", o.grow, o.source.name));
  }
}

// What the user asks for: plans of every policy, and when one counts.
struct request {
  std::vector<planner::plan_options> plans;  ///< per policy
  std::int64_t memory = 0;
  double max_slowdown = 0.0;
};

request parsed(options& o) {
  if (o.plan.machine.empty()) {
    throw error(errc::invalid_argument,
                "--machine: expected the name of a machine or machine.json, got none");
  }
  check_growth(o);
  check_distinct({{"--json", o.json}}, o.plan.files());
  check_writable(o.json);
  request r;
  r.max_slowdown = parse_share(o.max_slowdown);
  for (const std::string& name : o.policies) {
    o.plan.policy = name;
    o.plan.check();
    r.plans.push_back(o.plan.options(o.source.thread_count(), ""));
  }
  const planner::machine& m = *r.plans.front().model;
  if (o.memory.empty() && m.memory_bytes == 0) {
    throw error(errc::invalid_argument,
                fmt::format("--memory: expected a size, since machine {} has none, got none", m.name));
  }
  r.memory = o.memory.empty() ? m.memory_bytes : parse_budget(o.memory, 0, "--memory");
  return r;
}

// Sizes of a network, from small to large: plans of them, and where they end.
class sizes {
 public:
  sizes(options& o, request& r)
      : o_(o), r_(r), info_(models::find(o.source.name)), begin_at_(o.source.batch) {}

  /// The largest one with the k-th policy. `known`: that of the first policy, 0 if it is not known.
  row largest(std::size_t k, std::int64_t known) {
    planner::plan_options& options = r_.plans[k];
    options.stop = [] { return interrupted(); };
    growth g;
    g.tolerance = o_.tolerance;
    g.unit = o_.grow == "side" ? info_.side_unit : 1;
    const std::int64_t first = o_.grow == "batch" ? (begin_at_ > 1 ? begin_at_ : 8) : 4;
    g.first = k == 0 ? first : std::max<std::int64_t>(known / g.unit, 1);
    g.most = o_.grow == "side" ? 8192 : 1'000'000;
    if (o_.grow == "steps" && info_.most_steps > 0) g.most = info_.most_steps;
    g.stop = options.stop;
    std::string binds;  // in the smallest size so far that does not fit
    g.plan = [&](std::int64_t n) { return planned(k, n, binds); };
    const auto begin = std::chrono::steady_clock::now();
    row r{o_.policies[k], find_largest(g), 0};
    if (r.found.size == g.most * g.unit) {
      r.found.next.limit = g.most == info_.most_steps && o_.grow == "steps"
                               ? "the network has no more positions"
                               : "no larger one is tried";
    }
    r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return r;
  }

  /// As its graph calls it; empty before the first plan.
  const std::string& network() const { return network_; }

 private:
  probe planned(std::size_t k, std::int64_t n, std::string& binds) {
    (o_.grow == "batch" ? o_.source.batch : o_.grow == "side" ? o_.source.side : o_.source.steps) = n;
    std::string note;
    planner::graph graph;
    try {
      graph = o_.source.make(note);
    } catch (const error& e) {
      // The network exists in other sizes, but not in this one; what was found remains.
      if (network_.empty() || (e.code() != errc::invalid_argument && e.code() != errc::unsupported)) throw;
      probe p;
      p.limit = binds.empty() ? e.what() : binds;
      return p;
    }
    r_.plans[k].machine = note;
    network_ = graph.name;
    probe p = plan_probe(graph, r_.plans[k], r_.memory, r_.max_slowdown, long_search_pays(graph));
    if (shown_) {
      fmt::print(
          stderr, "{} {} {}: {}\n", o_.policies[k], o_.grow, n,
          p.fits ? fmt::format("fits, {:+.1f} % time", 100 * p.slowdown()) : planner::printable(p.limit));
    }
    if (!p.fits) binds = p.limit;
    return p;
  }

  options& o_;
  request& r_;
  const models::model_info& info_;
  const std::int64_t begin_at_;
  const bool shown_ = ::isatty(STDERR_FILENO) != 0;
  std::string network_;
};

void print_rows(const options& o, const request& asked, const std::string& network,
                const std::vector<row>& rows) {
  fmt::print("{} on {}, {:.1f} MB for everything{}: largest {}\n", planner::printable(network),
             planner::printable(asked.plans.front().model->name), static_cast<double>(asked.memory) / 1e6,
             std::isfinite(asked.max_slowdown)
                 ? fmt::format(", at most {:.1f} % slower", 100 * asked.max_slowdown)
                 : "",
             o.grow);
  fmt::print("{:<10} {:>8} {:>7} {:>11} {:>11} {:>9} {:>10}  {}\n", "policy", o.grow, "ratio", "planned MB",
             "host MB", "slowdown", "verified", "what binds");
  const auto first = static_cast<double>(rows.empty() ? 0 : rows[0].found.size);
  for (const row& r : rows) {
    const probe& p = r.found.best;
    const std::string ratio =
        first > 0 ? fmt::format("{:.2f}x", static_cast<double>(r.found.size) / first) : "-";
    fmt::print("{:<10} {:>8} {:>7} {:>11.1f} {:>11.1f} {:>8.2f}% {:>10}  {}\n", r.policy, r.found.size, ratio,
               static_cast<double>(p.planned_bytes) / 1e6, static_cast<double>(p.host_bytes) / 1e6,
               100 * p.slowdown(), p.valid ? "yes" : "-",
               r.found.next.limit.empty() ? "nothing found" : planner::printable(r.found.next.limit));
  }
}

void write_rows(const options& o, const request& asked, const std::string& network,
                const std::vector<row>& rows) {
  if (o.json.empty()) return;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const row& r : rows)
    list.push_back(to_json(r, o.grow));
  nlohmann::ordered_json report{{"graph", network},
                                {"machine", asked.plans.front().model->name},
                                {"memory_bytes", asked.memory},
                                {"grow", o.grow},
                                {"rows", list}};
  if (std::isfinite(asked.max_slowdown)) report["max_slowdown"] = asked.max_slowdown;
  write_file(o.json, report.dump(2) + "\n");
}

int run(options& o) {
  request asked = parsed(o);
  const stops_between_steps guard;
  sizes all(o, asked);
  std::vector<row> rows;
  for (std::size_t k = 0; k < asked.plans.size() && !interrupted(); ++k)
    rows.push_back(all.largest(k, rows.empty() ? 0 : rows[0].found.size));
  print_rows(o, asked, all.network(), rows);
  write_rows(o, asked, all.network(), rows);
  if (interrupted()) {
    throw error(errc::interrupted, "max-batch: interrupted; the rows are the largest sizes so far");
  }
  const bool any = std::any_of(rows.begin(), rows.end(), [](const row& r) { return r.found.size > 0; });
  if (!any) {
    throw error(errc::infeasible_budget,
                fmt::format("max-batch: no step of {} fits into {} bytes under these policies", all.network(),
                            asked.memory));
  }
  return 0;
}

}  // namespace

void add_max_batch(CLI::App& app, action& chosen) {
  CLI::App* const command =
      app.add_subcommand("max-batch", "The largest batch (or side, or steps) whose plan fits a memory");
  const auto o = std::make_shared<options>();
  o->source.batch = 1;
  o->plan.evaluations = 1000;
  o->source.declare(*command, false);
  o->plan.declare(*command);
  command->remove_option(command->get_option("--budget"));
  command->remove_option(command->get_option("--policy"));
  command->add_option("--policy", o->policies, "policies; the first is what ratios are to (none: baseline)")
      ->type_name("POLICY,...")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--memory", o->memory, "for everything (12GiB); default: the machine's")
      ->type_name("SIZE")
      ->check(some_text());
  command->add_option("--grow", o->grow, "what grows: batch, side or steps")
      ->type_name("WHAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"batch", "side", "steps"}));
  command->add_option("--max-slowdown", o->max_slowdown, "simulated time may grow by this share (10%)")
      ->type_name("SHARE")
      ->check(some_text());
  command->add_option("--tolerance", o->tolerance, "find the size to this share of it (0: exactly)")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(number(0.0, 0.5));
  command->add_option("--json", o->json, "write the rows")->type_name("FILE")->check(some_text());
  command->callback([&chosen, o] { chosen = [o] { return run(*o); }; });
}

}  // namespace stash::tools
