#include "source.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <thread>

#include "budget.hpp"
#include "executor/kernel.hpp"
#include "files.hpp"
#include "planner/json.hpp"
#include "stash/error.hpp"

namespace stash::tools {

void graph_source::declare(CLI::App& command, bool file_allowed) {
  command
      .add_option(
          "network", name,
          file_allowed ? "network (see `stash networks`) or graph.json" : "network (see `stash networks`)")
      ->required();
  command.add_option("--batch", batch, "samples per step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000))
      ->each([this](const std::string&) { batch_given = true; });
  command.add_option("--input", input, "input shape HxWxC (default: the network's own)");
  command.add_option("--classes", classes, "number of classes (default: the network's own)")
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--density", density, "assumed share of non-zeros after a ReLU")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--threads", threads, "threads (default: all processors); part of the result")
      ->check(CLI::Range(1, 1024));
}

int graph_source::thread_count() const {
  if (threads > 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

models::input_shape parse_input_shape(const std::string& text) {
  models::input_shape shape;
  std::int64_t* const parts[] = {&shape.height, &shape.width, &shape.channels};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [rest, status] = std::from_chars(at, end, *parts[i]);
    const bool separated = i == 2 ? rest == end : rest != end && *rest == 'x';
    if (status != std::errc{} || !separated || *parts[i] < 1 || *parts[i] > 65536) {
      throw error(errc::invalid_argument,
                  fmt::format("--input: expected HxWxC such as 28x28x1, got '{}'", text));
    }
    at = rest + 1;
  }
  return shape;
}

planner::graph graph_source::make(std::string& machine) const {
  planner::graph g;
  if (std::filesystem::path(name).extension() == ".json") {
    g = planner::graph_from_json(read_file(name));
    if (batch_given) g.batch = batch;
  } else {
    const models::model_info& info = models::find(name);
    const models::input_shape shape = input.empty() ? info.default_input : parse_input_shape(input);
    planner::training_graph_options options;
    options.relu_density = density;
    g = planner::make_training_graph(info.build(shape, classes > 0 ? classes : info.default_classes), batch,
                                     options);
  }
  machine = executor::annotate_workspaces(g, {thread_count(), framework_rule::tensorflow});
  return g;
}

void plan_source::declare(CLI::App& command) {
  command.add_option("--policy", policy, "none, lossless, fp16 or fp8")->capture_default_str();
  command.add_option("--budget", budget,
                     "memory for everything: bytes, 64MiB, 1.5GiB, or a share of the baseline (0.5, 50%); "
                     "default: as little as possible");
  command.add_option("--force", force, "use this encoding (or recompute, raw) wherever it is legal");
}

planner::plan_options plan_source::make(const planner::graph& g, int threads,
                                        const std::string& machine) const {
  planner::plan_options options;
  options.chosen_policy = planner::parse_policy(policy);
  options.force = force;
  options.threads = threads;
  options.machine = machine;
  if (!budget.empty()) {
    planner::plan_options none = options;
    none.chosen_policy = planner::policy::none;
    none.force.clear();
    options.budget_bytes = parse_budget(budget, planner::make_plan(g, none).sizes.planned_peak_total);
  }
  return options;
}

std::string form_name(const planner::stash_choice& c) {
  switch (c.kind) {
    case planner::stash_kind::none:
      return "none";
    case planner::stash_kind::raw:
      return "raw";
    case planner::stash_kind::encoded:
      return to_string(c.stored);
    case planner::stash_kind::recompute:
      return c.stored.kind == encoding_kind::sign_mask ? "recompute+sign_mask" : "recompute";
  }
  return "";
}

}  // namespace stash::tools
