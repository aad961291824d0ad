// SPDX-License-Identifier: Apache-2.0
// How well the simulation foretells the executor: each network runs unplanned, which gives the times of its
// ops; plans for other budgets are predicted from those and the machine's figures for codecs and copies
// (`stash calibrate -o machine.json`), and then run, all in turn within one process. What a plan takes is
// compared as a multiple of the unplanned step, since the machine is not equally fast all the time.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/machine.hpp"
#include "bench/cases/timing.hpp"
#include "data/dataset.hpp"
#include "executor/measured_ops.hpp"
#include "executor/trainer.hpp"
#include "models/models.hpp"
#include "stash/error.hpp"

namespace stash {
namespace {

using json = nlohmann::ordered_json;

struct settings {
  std::vector<std::string> networks{"lenet", "vgg_small", "resnet20"};
  std::vector<double> budgets{1.0, 0.75, 0.5, 0.25, 0.0};
  std::string machine = "cpu", policy = "lossless", file;
  std::int64_t batch = 64, steps = 30;
  int threads = 1;
  int detail = 0;
};

constexpr std::int64_t warm_up = 3;
/// In place of a share of the budgets.
constexpr double unplanned_run = -1.0, again = -2.0;
constexpr executor::sgd_settings sgd{.learning_rate = 0.02F};

planner::machine read_machine(const std::string& name_or_file) {
  if (!name_or_file.ends_with(".json")) return planner::find_machine(name_or_file);
  std::ifstream in(name_or_file);
  std::stringstream text;
  text << in.rdbuf();
  return planner::machine_from_json(text.str());
}

/// One plan on its way through the rounds.
struct contender {
  double share;  ///< of the way from the smallest budget to the baseline
  std::unique_ptr<executor::trainer> trainer;
  std::unique_ptr<executor::measured_run> run;

  const planner::plan& plan() const { return trainer->current().current_plan(); }
};

struct batch_of_images {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

class network_run {
 public:
  network_run(const settings& s, const std::string& network)
      : s_(s), machine_(read_machine(s.machine)), graph_(make_graph(s, network)) {
    const models::input_shape input = models::find(network).default_input;
    const data::dataset d =
        data::generate(input.height, input.width, input.channels, 10, s.batch, 1, 1).train;
    batch_ = {d.images, d.labels};
  }

  json run() {
    add(unplanned_run, planner::policy::none, 0, false);
    for (std::int64_t i = 0; i < warm_up; ++i)
      step(contenders_.front());
    measure(contenders_.front());
    for (std::int64_t i = 0; i < s_.steps; ++i)
      measured_step(contenders_.front());
    executor::set_seconds(graph_, contenders_.front().plan(), *contenders_.front().run);
    const std::int64_t baseline = contenders_.front().plan().sizes.planned_peak_total;
    const std::int64_t least = smallest_budget();
    add(again, planner::policy::none, 0, false);
    for (const double share : s_.budgets) {
      const auto extra = share * static_cast<double>(std::max<std::int64_t>(0, baseline - least));
      add(share, planner::parse_policy(s_.policy), least + static_cast<std::int64_t>(extra), true);
    }
    for (contender& c : contenders_) {
      for (std::int64_t i = 0; i < warm_up; ++i)
        step(c);
      measure(c);
    }
    for (std::int64_t i = 0; i < s_.steps; ++i) {
      // There and back again, so that nobody always follows the same one.
      for (contender& c : contenders_)
        measured_step(c);
      for (auto c = contenders_.rbegin(); c != contenders_.rend(); ++c)
        measured_step(*c);
    }
    return rows(baseline);
  }

 private:
  static planner::graph make_graph(const settings& s, const std::string& network) {
    const models::model_info& info = models::find(network);
    planner::graph g = planner::make_training_graph(info.build(info.default_input, 10), s.batch);
    static_cast<void>(executor::annotate_workspaces(g, {s.threads, framework_rule::tensorflow}));
    return g;
  }

  executor::trainer_options options(planner::policy chosen, std::int64_t budget, bool timed) const {
    executor::trainer_options o;
    o.plan.chosen_policy = chosen;
    o.plan.budget_bytes = budget;
    o.plan.threads = s_.threads;
    if (timed) {
      o.plan.model = machine_;
      o.plan.swap = true;
    }
    return o;
  }

  void add(double share, planner::policy chosen, std::int64_t budget, bool timed) {
    contenders_.push_back({share,
                           std::make_unique<executor::trainer>(graph_, options(chosen, budget, timed),
                                                               batch_.images, batch_.labels),
                           nullptr});
  }

  // What the planner names when it refuses one byte; maps change as weights do, so a little more.
  std::int64_t smallest_budget() const {
    try {
      const executor::trainer refused(graph_, options(planner::parse_policy(s_.policy), 1, true),
                                      batch_.images, batch_.labels);
    } catch (const error& e) {
      constexpr std::string_view before = "expected at least ";
      const std::string_view text = e.what();
      const std::size_t at = text.find(before);
      if (e.code() != errc::infeasible_budget || at == std::string_view::npos) throw;
      std::int64_t bytes = 0;
      std::from_chars(text.data() + at + before.size(), text.data() + text.size(), bytes);
      return bytes + bytes / 20;
    }
    return 1;
  }

  void step(contender& c) { c.trainer->step(batch_.images, batch_.labels, sgd); }
  static void measure(contender& c) {
    c.run = std::make_unique<executor::measured_run>(c.trainer->current());
  }
  void measured_step(contender& c) {
    const std::int64_t reruns = c.trainer->reruns();
    step(c);
    if (c.trainer->reruns() != reruns) measure(c);  // another plan from here on
    c.run->record();
  }

  // Median over the rounds of what a step takes compared with the unplanned one of the same round.
  double ratio(const contender& c) const {
    const std::vector<double>& mine = c.run->all_seconds();
    const std::vector<double>& others = contenders_.front().run->all_seconds();
    const std::size_t rounds = std::min(mine.size(), others.size());
    std::vector<double> ratios;
    for (std::size_t i = 0; i < rounds; ++i)
      ratios.push_back(mine[mine.size() - 1 - i] / others[others.size() - 1 - i]);
    return bench::median(std::move(ratios));
  }

  json rows(std::int64_t baseline) const {
    json list = json::array();
    const double unplanned = contenders_.front().run->seconds();
    for (const contender& c : contenders_) {
      if (c.share == again) fmt::print("{:<10} unplanned again: {:.3f}x measured\n", graph_.name, ratio(c));
      if (c.share < 0) continue;
      const planner::plan& p = c.plan();
      const double predicted = p.times.simulated_ms / p.times.unplanned_ms;
      const double measured = ratio(c);
      const std::int64_t touched = c.trainer->touched_peak_total();
      std::int64_t moved = 0, encoded = 0;
      for (const planner::stash_choice& choice : p.choices) {
        moved += choice.swapped ? choice.bytes_after : 0;
        encoded += choice.kind == planner::stash_kind::encoded ? choice.bytes_before : 0;
      }
      list.push_back(
          {{"network", graph_.name},
           {"batch", s_.batch},
           {"threads", s_.threads},
           {"budget_share", static_cast<double>(p.budget_bytes) / static_cast<double>(baseline)},
           {"budget_bytes", p.budget_bytes},
           {"encoded_bytes", encoded},
           {"moved_bytes", moved},
           {"planned_peak_bytes", p.sizes.planned_peak_total},
           {"touched_peak_bytes", touched},
           {"peak_error", static_cast<double>(touched) / static_cast<double>(p.sizes.planned_peak_total) - 1},
           {"unplanned_ms", 1e3 * unplanned},
           {"predicted_ms", p.times.simulated_ms},
           {"measured_ms", 1e3 * c.run->seconds()},
           {"predicted_ratio", predicted},
           {"measured_ratio", measured},
           {"time_error", predicted / measured - 1}});
      const json& r = list.back();
      fmt::print(
          "{:<10} {:>5.1f} %  encoded {:>6.1f} MB  moved {:>6.1f} MB  peak {:>+5.2f} %  "
          "step {:>7.2f} ms  {:>5.3f}x predicted, {:>5.3f}x measured  {:>+5.1f} %\n",
          graph_.name, 100 * r["budget_share"].get<double>(), static_cast<double>(encoded) / 1e6,
          static_cast<double>(moved) / 1e6, 100 * r["peak_error"].get<double>(),
          r["measured_ms"].get<double>(), predicted, measured, 100 * r["time_error"].get<double>());
      differences(c);
      std::fflush(stdout);
    }
    return list;
  }

  // Where the most time was spent compared with what was predicted.
  void differences(const contender& c) const {
    const planner::plan& p = c.plan();
    std::vector<std::pair<double, std::string>> list;
    for (std::size_t i = 0; i < p.steps.size(); ++i) {
      const planner::step& st = p.steps[i];
      const double predicted = 1e-3 * (p.timeline[i].end_ms - p.timeline[i].begin_ms);
      const bool runs = st.kind == planner::step_kind::run;
      list.emplace_back(c.run->step_seconds(i) - predicted,
                        fmt::format("{} {}", planner::to_string(st.kind),
                                    runs ? p.network.op_at(st.op).name : p.network.at(st.storage).name));
    }
    std::ranges::sort(list,
                      [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
    for (std::size_t i = 0; i < list.size() && i < static_cast<std::size_t>(s_.detail); ++i)
      fmt::print("    {:>+8.3f} ms  {}\n", 1e3 * list[i].first, list[i].second);
  }

  settings s_;
  planner::machine machine_;
  planner::graph graph_;
  batch_of_images batch_;
  std::vector<contender> contenders_;
};

int run(const settings& s, const std::string& command) {
  json rows = json::array();
  for (const std::string& network : s.networks) {
    for (json& row : network_run(s, network).run())
      rows.push_back(std::move(row));
  }
  double worst_time = 0, worst_peak = 0;
  for (const json& r : rows) {
    worst_time = std::max(worst_time, std::abs(r["time_error"].get<double>()));
    worst_peak = std::max(worst_peak, std::abs(r["peak_error"].get<double>()));
  }
  fmt::print("worst error of the step's time {:.1f} %, of the peak {:.2f} %\n", 100 * worst_time,
             100 * worst_peak);
  if (s.file.empty()) return 0;
  const json record{{"command", command},
                    {"processor", bench::processor_model()},
                    {"commit", bench::source_commit()},
                    {"machine", s.machine},
                    {"policy", s.policy},
                    {"steps", s.steps},
                    {"worst_time_error", worst_time},
                    {"worst_peak_error", worst_peak},
                    {"rows", rows}};
  std::ofstream(s.file) << record.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace stash

int main(int argc, char** argv) {
  stash::settings s;
  CLI::App app{"Predicted and measured steps of plans, in turn"};
  app.add_option("--network", s.networks, "networks to run");
  app.add_option("--budget", s.budgets, "shares of the way from the smallest budget (0) to the baseline (1)");
  app.add_option("--machine", s.machine, "name or machine.json of `stash calibrate`");
  app.add_option("--policy", s.policy, "of the plans");
  app.add_option("--batch", s.batch, "samples per step");
  app.add_option("--steps", s.steps, "measured steps of each plan");
  app.add_option("--threads", s.threads, "of computation; copies have their own");
  app.add_option("--detail", s.detail, "show so many steps of each plan that differ most");
  app.add_option("--json", s.file, "write the record");
  CLI11_PARSE(app, argc, argv);
  try {
    return stash::run(s, stash::bench::command_line("prediction_bench", argc, argv));
  } catch (const stash::error& e) {
    std::fprintf(stderr, "prediction_bench: %s\n", e.what());
    return 1;
  }
}
