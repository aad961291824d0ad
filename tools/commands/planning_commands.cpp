// SPDX-License-Identifier: Apache-2.0
// networks, graph, plan, explain, report, verify: everything that does not train.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "files/valid_plan.hpp"
#include "planner/explain_names.hpp"
#include "planner/json/json.hpp"
#include "planner/verify/validator.hpp"
#include "report/plan_outputs.hpp"
#include "report/report.hpp"
#include "stash/error.hpp"

namespace stash::tools {

namespace {

std::string size_of_input(const models::model_info& m) {
  if (m.default_input.height > 0)
    return fmt::format("{}x{}x{}", m.default_input.height, m.default_input.width, m.default_input.channels);
  const models::graph_parameters& p = m.default_parameters;
  return p.side > 0 ? fmt::format("{}^3", p.side) : fmt::format("{} steps", p.steps);
}

}  // namespace

void add_networks(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand("networks", "List the networks that come with Stash");
  command->callback([&chosen] {
    chosen = [] {
      for (const models::model_info& m : models::all()) {
        fmt::print("{:<15} {:>11} {:>12} parameters  {:<9} {}\n", m.name, size_of_input(m),
                   models::parameter_count(m), m.trainable ? "trains" : "plans", m.description);
      }
      return 0;
    };
  });
}

void add_graph(CLI::App& app, action& chosen) {
  struct options {
    graph_source source;
    std::string output;
  };
  CLI::App* const command = app.add_subcommand("graph", "Write the training graph of a network");
  const auto o = std::make_shared<options>();
  o->source.declare(*command, false);
  command->add_option("-o,--output", o->output, "graph.json (default: standard output)")
      ->type_name("FILE")
      ->check(some_text());
  command->callback([&chosen, o] {
    chosen = [o] {
      check_distinct({{"-o", o->output}}, o->source.files());
      check_writable(o->output);
      std::string machine;
      const std::string text = planner::to_json(o->source.make(machine));
      if (o->output.empty()) {
        fmt::print("{}", text);
      } else {
        write_file(o->output, text);
      }
      return 0;
    };
  });
}

void add_plan(CLI::App& app, action& chosen) {
  struct options {
    graph_source source;
    plan_source plan;
    plan_outputs outputs;
    std::string output, json;
    bool no_layout = false;
  };
  CLI::App* const command = app.add_subcommand("plan", "Plan one training step under a policy and a budget");
  const auto o = std::make_shared<options>();
  o->source.declare(*command, true);
  o->plan.declare(*command);
  o->plan.declare_order(*command);
  command->add_option("-o,--output", o->output, "write the plan")->type_name("FILE")->check(some_text());
  command->add_option("--json", o->json, "write the figures")->type_name("FILE")->check(some_text());
  command->add_flag("--no-layout", o->no_layout,
                    "no offsets: the budget holds for the largest sum of live bytes");
  o->outputs.declare(*command);
  command->callback([&chosen, o] {
    chosen = [o] {
      std::vector<named_file> inputs = o->source.files();
      for (const named_file& file : o->plan.files())
        inputs.push_back(file);
      o->outputs.check({{"-o", o->output}, {"--json", o->json}}, inputs);
      o->plan.check();
      if (o->no_layout) o->outputs.check_without_offsets();
      if (!o->outputs.chrome_trace.empty() && o->plan.machine.empty()) {
        throw error(errc::invalid_argument,
                    "--chrome-trace: expected --machine with it (plans without one have no times), got none");
      }
      std::string machine;
      const planner::graph g = o->source.make(machine);
      planner::plan_options options = o->plan.make(g, o->source.thread_count(), machine);
      options.lay_out = !o->no_layout;
      const planner::plan p = planner::make_plan(g, options);
      check_valid(p);
      o->outputs.write(p);
      fmt::print("{}", plan_summary(p));
      if (!o->output.empty()) write_file(o->output, planner::to_json(p));
      if (!o->json.empty()) write_file(o->json, plan_report(p).dump(2) + "\n");
      return 0;
    };
  });
}

namespace {

planner::plan read_valid_plan(const std::string& path) {
  planner::plan p = read_plan(path);
  if (const auto findings = planner::validate(p); !findings.empty()) {
    throw error(errc::bad_format,
                fmt::format("{}: expected a valid plan (see stash verify), got one with: {}", path,
                            findings.front().message));
  }
  return p;
}

}  // namespace

void add_explain(CLI::App& app, action& chosen) {
  CLI::App* const command =
      app.add_subcommand("explain", "Say for every tensor of a plan how it is kept and why");
  const auto file = std::make_shared<std::string>();
  command->add_option("plan", *file, "plan.json")->type_name("FILE")->required();
  command->callback([&chosen, file] {
    chosen = [file] {
      fmt::print("{}", planner::explain(read_valid_plan(*file)));
      return 0;
    };
  });
}

void add_report(CLI::App& app, action& chosen) {
  struct options {
    std::string plan;
    plan_outputs outputs;
  };
  CLI::App* const command = app.add_subcommand("report", "Write files that show a plan");
  const auto o = std::make_shared<options>();
  command->add_option("plan", o->plan, "plan.json")->type_name("FILE")->required();
  o->outputs.declare(*command);
  command->callback([&chosen, o] {
    chosen = [o] {
      if (!o->outputs.any()) {
        throw error(
            errc::invalid_argument,
            "report: expected at least one of --html, --chrome-trace, --memory-viz and --layout, got none");
      }
      o->outputs.check({}, {{"the plan", o->plan}});
      o->outputs.write(read_valid_plan(o->plan));
      return 0;
    };
  });
}

void add_verify(CLI::App& app, action& chosen) {
  CLI::App* const command =
      app.add_subcommand("verify", "Check a plan with code that shares nothing with the planner");
  const auto file = std::make_shared<std::string>();
  command->add_option("plan", *file, "plan.json")->type_name("FILE")->required();
  command->callback([&chosen, file] {
    chosen = [file] {
      const planner::plan p = read_plan(*file);
      double proven_ms = 0.0;
      const auto findings = planner::validate(p, &proven_ms);
      for (const planner::plan_finding& f : findings) {
        fmt::print("{}: {}\n", planner::to_string(f.fault), planner::printable(f.message));
      }
      if (!findings.empty())
        throw failed_while_running(fmt::format("{}: the plan is not valid: {} finding{}", *file,
                                               findings.size(), findings.size() == 1 ? "" : "s"));
      fmt::print("{}: valid ({} steps, {} buffers, peak {} bytes)\n", planner::printable(*file),
                 p.steps.size(), p.buffers.size(), p.sizes.planned_peak_total);
      if (proven_ms > 0.0 && p.times.bound_ms > 0.0) {
        fmt::print(
            "bound verified: no plan of this order within the limit takes less than {:.6f} ms, gap {:.3f} "
            "%\n",
            std::min(proven_ms, p.times.bound_ms), 100.0 * (p.times.simulated_ms / p.times.bound_ms - 1.0));
      } else if (p.model) {
        fmt::print("no bound on time: the plan states none\n");
      }
      return 0;
    };
  });
}

}  // namespace stash::tools
