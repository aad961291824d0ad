// SPDX-License-Identifier: Apache-2.0
#include "report/plan_outputs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "files/files.hpp"
#include "files/source.hpp"
#include "report/chrome_trace.hpp"
#include "report/html_report.hpp"
#include "report/memory_viz.hpp"
#include "report/pickle.hpp"
#include "report/plan_view.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

std::optional<nlohmann::ordered_json> read_sweep(const std::string& path, const planner::plan& p) {
  if (path.empty()) return std::nullopt;
  nlohmann::ordered_json sweep = sweep_from_json(read_file(path), path);
  const auto graph = sweep.at("graph").get<std::string>();
  const auto batch = sweep.at("batch").get<std::int64_t>();
  if (graph != p.network.name || batch != p.network.batch) {
    throw error(errc::invalid_argument,
                fmt::format("--sweep: {}: expected budgets of {}, batch {}, as in the plan, got {}, batch {}",
                            path, p.network.name, p.network.batch, graph, batch));
  }
  return sweep;
}

// What PyTorch itself writes is a pickle, and its command and older viewers read nothing else.
std::string snapshot_text(const std::string& path, const nlohmann::ordered_json& snapshot) {
  using nlohmann::ordered_json;
  if (std::filesystem::path(path).extension() != ".json") return to_pickle(snapshot);
  return snapshot.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

void plan_outputs::declare(CLI::App& command) {
  const auto file = [&command](const char* name, std::string& path, const char* what) {
    command.add_option(name, path, what)->type_name("FILE")->check(some_text());
  };
  file("--html", html, "write a report to open in a browser");
  file("--chrome-trace", chrome_trace, "write the timeline for Perfetto (plans made with --machine)");
  file("--memory-viz", memory_viz,
       "write the memory for pytorch.org/memory_viz: a pickle, or JSON if FILE ends in .json");
  file("--layout", layout, "write the buffers with their offsets, as CSV");
  file("--sweep", sweep, "with --html: show these rows of stash sweep --json, too");
}

void plan_outputs::check(const std::vector<named_file>& other_outputs,
                         const std::vector<named_file>& inputs) const {
  if (!sweep.empty() && html.empty())
    throw error(errc::invalid_argument, "--sweep: expected --html with it, got none");
  std::vector<named_file> written = other_outputs, read = inputs;
  for (const named_file& file : std::initializer_list<named_file>{{"--html", html},
                                                                  {"--chrome-trace", chrome_trace},
                                                                  {"--memory-viz", memory_viz},
                                                                  {"--layout", layout}})
    written.push_back(file);
  read.push_back({"--sweep", sweep});
  check_distinct(written, read);
  for (const named_file& file : written)
    check_writable(file.path);
  if (!sweep.empty()) static_cast<void>(sweep_from_json(read_file(sweep), sweep));
}

void plan_outputs::check_without_offsets() const {
  for (const auto& [name, path] : {std::pair("--memory-viz", &memory_viz), std::pair("--layout", &layout)}) {
    if (!path->empty()) {
      throw error(errc::invalid_argument,
                  fmt::format("{}: expected a plan with a layout, got one without offsets", name));
    }
  }
}

void plan_outputs::write(const planner::plan& p) const {
  if (!p.laid_out) check_without_offsets();
  const std::optional<nlohmann::ordered_json> rows = read_sweep(sweep, p);
  std::vector<std::pair<std::string, std::string>> texts;
  if (!chrome_trace.empty()) texts.emplace_back(chrome_trace, tools::chrome_trace(p));
  if (!memory_viz.empty()) texts.emplace_back(memory_viz, snapshot_text(memory_viz, tools::memory_viz(p)));
  if (!layout.empty()) texts.emplace_back(layout, layout_csv(p));
  if (!html.empty()) texts.emplace_back(html, html_report(p, rows ? &*rows : nullptr));
  for (const auto& [path, text] : texts)
    write_file(path, text);
}

}  // namespace stash::tools
