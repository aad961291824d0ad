// SPDX-License-Identifier: Apache-2.0
// reproduce: the tables of a paper next to our plans.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands.hpp"
#include "files/files.hpp"
#include "files/source.hpp"
#include "reproduce/reproduce.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

struct options {
  std::string name, json;
  reproduction work;
  int threads = 0;
};

std::string mark(const table_row& r) {
  if (!r.has_target()) return "";
  return fmt::format("{}{} {}{:.3g}", r.goal ? "goal " : "", r.reached() ? "reached" : "MISSED",
                     r.at_most ? "<= " : ">= ", r.target);
}

int run(options& o) {
  reproduce(o.name, {});  // a name that is none
  check_writable(o.json);
  o.work.threads =
      o.threads > 0 ? o.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const stops_between_steps guard;
  std::vector<table_row> rows;
  fmt::print(
      "{}: planned and simulated, nothing executed; everything included (weights, gradients, momentum, "
      "workspace) unless a row says maps\n",
      o.name);
  o.work.stop = [] { return interrupted(); };
  o.work.progress = [](const std::string& text) { fmt::print(stderr, "  {}\n", text); };
  o.work.add = [&](const table_row& r) {
    rows.push_back(r);
    fmt::print(
        "{}\n    published {}; ours {}; {}\n    simulated: {}; executed: nothing; binds: {}; verified: {}\n",
        r.what, r.published, r.ours, r.has_target() ? mark(r) : "no target", r.simulated,
        r.limit.empty() ? "-" : r.limit, r.verified);
    std::fflush(stdout);
    if (o.json.empty()) return;
    // The rows so far, so that nothing is lost.
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const table_row& x : rows)
      list.push_back(to_json(x));
    const nlohmann::ordered_json report{
        {"table", o.name},     {"threads", o.work.threads},     {"evaluations", o.work.evaluations},
        {"seed", o.work.seed}, {"tolerance", o.work.tolerance}, {"rows", list}};
    write_file(o.json, report.dump(2) + "\n");
  };
  reproduce(o.name, o.work);
  std::size_t targets = 0, reached = 0, goals = 0, goals_reached = 0;
  for (const table_row& r : rows) {
    if (!r.has_target()) continue;
    ++(r.goal ? goals : targets);
    if (r.reached()) ++(r.goal ? goals_reached : reached);
  }
  fmt::print("{} rows, {} of {} targets and {} of {} goals reached\n", rows.size(), reached, targets,
             goals_reached, goals);
  if (interrupted()) throw error(errc::interrupted, "reproduce: interrupted; the rows are those so far");
  if (rows.empty()) {
    throw error(
        errc::invalid_argument,
        fmt::format("--only: expected a part of the text of a row of {}, got {}", o.name, o.work.only));
  }
  return 0;
}

}  // namespace

void add_reproduce(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand("reproduce", "Tables of papers next to our plans");
  const auto o = std::make_shared<options>();
  command->add_option("table", o->name, "gist, meng, lms or layrub")->type_name("NAME")->required();
  command->add_option("--json", o->json, "write the rows as they are made")
      ->type_name("FILE")
      ->check(some_text());
  command->add_option("--only", o->work.only, "only rows whose text contains this")->type_name("TEXT");
  command
      ->add_option("--threads", o->threads, "threads that workspaces are asked for (default: all processors)")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command->add_option("--evaluations", o->work.evaluations, "simulations of each search for a fastest plan")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, 1'000'000'000));
  command->add_option("--tolerance", o->work.tolerance, "find batches to this share of their size")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(number(0.0, 0.5));
  command->add_option("--search-seed", o->work.seed, "of the searches")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  command->callback([&chosen, o] { chosen = [o] { return run(*o); }; });
}

}  // namespace stash::tools
