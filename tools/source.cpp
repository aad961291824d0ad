#include "source.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <thread>

#include "budget.hpp"
#include "executor/kernel.hpp"
#include "files.hpp"
#include "planner/json.hpp"
#include "stash/error.hpp"

namespace stash::tools {

namespace {

template <class Number>
CLI::Validator in_range(const char* kind, Number least, Number most) {
  const auto check = [=](std::string& text) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, value);
    const bool fits = status == std::errc{} && rest == end && value >= least && value <= most;
    return fits ? std::string()
                : fmt::format("expected a {} from {} to {}, got '{}'", kind, least, most, text);
  };
  return CLI::Validator(check, "", "in_range");
}

// What a file was read for, in front of what is wrong with it.
template <class Parse>
auto parsed(const std::string& path, Parse parse) {
  const std::string text = read_file(path);
  try {
    return parse(text);
  } catch (const error& e) {
    throw error(e.code(), fmt::format("{}: {}", path, e.what()));
  }
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  return in_range("whole number", least, most);
}

CLI::Validator number(double least, double most) {
  return in_range("number", least, most);
}

CLI::Validator some_text() {
  const auto check = [](std::string& text) {
    return std::string(text.empty() ? "expected a value, got an empty text" : "");
  };
  return CLI::Validator(check, "", "some_text");
}

planner::graph read_graph(const std::string& path) {
  return parsed(path, [](const std::string& text) { return planner::graph_from_json(text); });
}

planner::plan read_plan(const std::string& path) {
  return parsed(path, [](const std::string& text) { return planner::plan_from_json(text); });
}

void graph_source::declare(CLI::App& command, bool file_allowed) {
  command
      .add_option(
          "network", name,
          file_allowed ? "network (see `stash networks`) or graph.json" : "network (see `stash networks`)")
      ->type_name("NAME")
      ->required();
  command
      .add_option("--batch", batch,
                  file_allowed ? "samples per step (default of a graph.json: its own)" : "samples per step")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 1'000'000));
  command.add_option("--input", input, "input shape (default: the network's own)")
      ->type_name("HxWxC")
      ->check(some_text());
  command.add_option("--classes", classes, "number of classes (default: the network's own)")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000));
  command
      .add_option("--side", side, "edge of a cubic image (networks of volumes; default: the network's own)")
      ->type_name("N")
      ->check(whole_number(1, 65536));
  command
      .add_option("--steps", steps,
                  "length of a sequence (networks of sequences; default: the network's own)")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000));
  command.add_option("--density", density, "assumed share of non-zeros after a ReLU")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(number(0.0, 1.0));
  command.add_option("--threads", threads, "threads (default: all processors); part of the result")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command_ = &command;
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
  planner::graph g = std::filesystem::path(name).extension() == ".json" ? read() : named();
  machine = executor::annotate_workspaces(g, {thread_count(), framework_rule::tensorflow});
  return g;
}

void graph_source::refuse(std::initializer_list<const char*> options, const std::string& why) const {
  for (const char* const option : options) {
    if (command_->count(option) > 0)
      throw error(errc::invalid_argument, fmt::format("{}: expected only beside {}", option, why));
  }
}

planner::graph graph_source::named() const {
  const models::model_info& info = models::find(name);
  if (info.make_graph != nullptr) {
    const std::string got = fmt::format("got {}", name);
    refuse({"--input", "--classes"}, "a network of images, " + got);
    if (info.default_parameters.side == 0) refuse({"--side"}, "a network of volumes, " + got);
    if (info.default_parameters.steps == 0) refuse({"--steps"}, "a network of sequences, " + got);
    return info.make_graph(batch, {side, steps, density});
  }
  refuse({"--side", "--steps"}, fmt::format("a network of volumes or sequences, got {}", name));
  const models::input_shape shape = input.empty() ? info.default_input : parse_input_shape(input);
  planner::training_graph_options options;
  options.relu_density = density;
  return planner::make_training_graph(info.build(shape, classes > 0 ? classes : info.default_classes), batch,
                                      options);
}

planner::graph graph_source::read() const {
  refuse({"--input", "--classes", "--side", "--steps", "--density"},
         fmt::format("the name of a network, got the file {}", name));
  planner::graph g = read_graph(name);
  if (command_->count("--batch") > 0) {
    g.batch = batch;
    planner::check_graph(g);
  }
  return g;
}

void plan_source::declare(CLI::App& command) {
  command.add_option("--policy", policy, "none, lossless, fp16 or fp8")
      ->type_name("POLICY")
      ->capture_default_str();
  command
      .add_option("--budget", budget,
                  "memory for everything: bytes, 64MiB, 1.5GiB, or a share of the baseline (0.5, 50%); "
                  "default: as little as possible")
      ->type_name("SIZE")
      ->check(some_text());
  command.add_option("--force", force, "use this encoding (or recompute, raw) wherever it is legal")
      ->type_name("ENCODING")
      ->check(some_text());
}

void plan_source::check() const {
  static_cast<void>(planner::parse_policy(policy));
  if (!force.empty() && force != "recompute") static_cast<void>(parse_encoding(force));
  if (!budget.empty()) static_cast<void>(parse_budget(budget, 1'000'000'000));
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
