// SPDX-License-Identifier: Apache-2.0
#include "files/source.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "encoders/message.hpp"
#include "executor/kernels/kernel.hpp"
#include "files/budget.hpp"
#include "files/file_kind.hpp"
#include "files/files.hpp"
#include "files/packed_file.hpp"
#include "models/tape_record.hpp"
#include "planner/graph/machine.hpp"
#include "planner/graph/repeat_graph.hpp"
#include "planner/json/json.hpp"
#include "planner/memory/options.hpp"
#include "planner/trace/trace.hpp"
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
                : fmt::format("expected a {} from {} to {}, got '{}'", kind, least, most, shortened(text));
  };
  return CLI::Validator(check, "", "in_range");
}

// What a file was read for, in front of what is wrong with it; after it, where another file belongs.
template <class Parse>
auto parsed(planner::text_kind expected, const std::string& path, Parse parse,
            std::string (*read)(const std::string&) = read_file) {
  const std::string text = read(path);
  try {
    return parse(text);
  } catch (const error& e) {
    throw error(e.code(), fmt::format("{}: {}{}", path, e.what(), what_to_do(path, text, expected)));
  }
}

std::string read_unpacked(const std::string& path) {
  return read_packed_file(path);
}

const models::model_info& find_network(const std::string& name) {
  try {
    return models::find(name);
  } catch (const error&) {
    refuse_file(name, "network: expected a name (see stash networks) or graph.json");
    throw;
  }
}

// A name that ends so is the path of a file.
bool names_json(const std::string& name) {
  return std::filesystem::path(name).extension() == ".json";
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
  return parsed(planner::text_kind::graph, path,
                [](const std::string& text) { return planner::graph_from_json(text); });
}

planner::plan read_plan(const std::string& path) {
  return parsed(planner::text_kind::plan, path,
                [](const std::string& text) { return planner::plan_from_json(text); });
}

// A list of options, one statement each.
void graph_source::declare(CLI::App& command, bool file_allowed) {
  command
      .add_option("network", name,
                  file_allowed ? "network (see `stash networks`) or graph.json (-: standard input)"
                               : "network (see `stash networks`)")
      ->type_name("NAME");
  command
      .add_option("--trace", trace,
                  "execution trace of PyTorch instead of a network: .json, .json.gz or .json.tar.gz")
      ->type_name("FILE")
      ->check(some_text());
  command.add_option("--kineto", kineto, "profile that was recorded with the trace, for times")
      ->type_name("FILE")
      ->check(some_text());
  command
      .add_option("--iteration", iteration,
                  "number N of ProfilerStep#N in the trace (default: the middle one)")
      ->type_name("N")
      ->check(whole_number(0, std::numeric_limits<std::int32_t>::max()));
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
      .add_option(
          "--side", side,
          "edge of a cubic or square image (networks of volumes, and of images that are only planned; "
          "default: the network's own)")
      ->type_name("N")
      ->check(whole_number(1, 65536));
  command
      .add_option("--steps", steps,
                  "length of a sequence (networks of sequences; default: the network's own)")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000));
  command
      .add_option("--loss-chunk", loss_chunk,
                  "positions of a sequence whose logits exist at once (networks of sequences; default: all)")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000));
  command.add_flag("--fused-update", fused_update,
                   "update the weights of a layer in the backward pass (networks of images)");
  command.add_option("--density", density, "assumed share of non-zeros after a ReLU")
      ->type_name("SHARE")
      ->capture_default_str()
      ->check(number(0.0, 1.0));
  command
      .add_option("--recompute", recompute,
                  "maps that may be computed again: cheap (by norms and element-wise ops) or none")
      ->type_name("WHAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"cheap", "none"}));
  command.add_option("--threads", threads, "threads (default: all processors); part of the result")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command
      .add_option("--repeat", repeat,
                  "copies of the network, one after the other (to see how planning scales)")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
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
                  fmt::format("--input: expected HxWxC such as 28x28x1, got '{}'", shortened(text)));
    }
    at = rest + 1;
  }
  return shape;
}

planner::graph graph_source::make(std::string& machine) const {
  planner::graph g;
  if (!trace.empty()) {
    g = read_trace();
  } else if (name.empty()) {
    throw error(errc::invalid_argument,
                fmt::format("network is required, or --trace (see stash {} --help)", command_->get_name()));
  } else {
    refuse({"--kineto", "--iteration"}, "--trace, got " + name);
    g = name == "-" || names_json(name) ? read() : named();
  }
  if (recompute == "none") g.recipes.clear();
  if (repeat > 1) g = planner::repeat_graph(g, repeat);
  machine = executor::annotate_workspaces(g, {thread_count(), framework_rule::tensorflow});
  return g;
}

void graph_source::check_sizes(const planner::graph& g) const {
  constexpr auto most = static_cast<double>(models::tape_record::most_bytes);
  double total = 0;
  for (const planner::storage& s : g.storages) {
    total += static_cast<double>(s.fixed_bytes) +
             static_cast<double>(s.bytes_per_sample) * static_cast<double>(g.batch);
  }
  if (total <= most) return;
  throw error(
      errc::invalid_argument,
      fmt::format("--batch, --input and --classes: expected a step of {} of at most {:.0f} bytes, got "
                  "one of {:.2g}",
                  name, most, total));
}

std::vector<named_file> graph_source::files() const {
  return {{"the graph", names_json(name) ? name : ""}, {"--trace", trace}, {"--kineto", kineto}};
}

void graph_source::refuse(std::initializer_list<const char*> options, const std::string& why) const {
  for (const char* const option : options) {
    if (command_->count(option) > 0)
      throw error(errc::invalid_argument, fmt::format("{}: expected only with {}", option, why));
  }
}

planner::graph graph_source::named() const {
  const models::model_info& info = find_network(name);
  if (info.make_graph != nullptr) {
    const std::string got = fmt::format("got {}", shortened(name));
    refuse({"--input", "--classes", "--fused-update"}, "a network of images that is a forward graph, " + got);
    if (info.default_parameters.side == 0)
      refuse({"--side"}, "a network of volumes or images that is only planned, " + got);
    if (info.default_parameters.steps == 0)
      refuse({"--steps", "--loss-chunk"}, "a network of sequences, " + got);
    if (side % info.side_unit != 0) {
      throw error(errc::invalid_argument, fmt::format("--side: expected a multiple of {} for {}, got {}",
                                                      info.side_unit, name, side));
    }
    if (info.most_steps > 0 && steps > info.most_steps) {
      throw error(errc::invalid_argument,
                  fmt::format("--steps: expected at most the {} positions of {}, got {}", info.most_steps,
                              name, steps));
    }
    return info.make_graph(batch, {side, steps, density, loss_chunk});
  }
  refuse({"--side", "--steps", "--loss-chunk"},
         fmt::format("a network that is only planned, of volumes, images or sequences, got {}",
                     shortened(name)));
  const models::input_shape shape = input.empty() ? info.default_input : parse_input_shape(input);
  planner::training_graph_options options;
  options.relu_density = density;
  options.fused_update = fused_update;
  planner::graph g = planner::make_training_graph(
      info.build(shape, classes > 0 ? classes : info.default_classes), batch, options);
  check_sizes(g);
  return g;
}

planner::graph graph_source::read() const {
  refuse({"--input", "--classes", "--side", "--steps", "--loss-chunk", "--fused-update", "--density"},
         fmt::format("the name of a network, got the file {}", shortened(name, 1024)));
  planner::graph g = read_graph(name);
  if (command_->count("--batch") > 0) {
    g.batch = batch;
    planner::check_graph(g);
  }
  return g;
}

planner::machine read_machine(const std::string& name_or_file) {
  if (names_json(name_or_file)) {
    return parsed(planner::text_kind::machine, name_or_file,
                  [](const std::string& text) { return planner::machine_from_json(text); });
  }
  try {
    return planner::find_machine(name_or_file);
  } catch (const error&) {
    refuse_file(name_or_file, "--machine: expected the name of a machine or machine.json");
    throw;
  }
}

namespace {

// "PATTERN=FORM[,FORM...]"
planner::tensor_rule parse_rule(const std::string& text, bool deny, const char* option) {
  const std::size_t equals = text.rfind('=');
  planner::tensor_rule rule;
  rule.deny = deny;
  if (equals != std::string::npos) {
    rule.pattern = text.substr(0, equals);
    for (std::size_t begin = equals + 1; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      rule.forms.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (rule.pattern.empty() || rule.forms.empty() || rule.forms.front().empty()) {
    throw error(errc::invalid_argument,
                fmt::format("{}: expected TENSOR=FORM[,FORM...] such as 'conv1*=raw,fp16', got '{}'", option,
                            shortened(text)));
  }
  for (const std::string& form : rule.forms) {
    if (form != "raw" && form != "recompute" && form != "swap") static_cast<void>(parse_encoding(form));
  }
  return rule;
}

value_format parse_values(const std::string& name) {
  const encoding e = parse_encoding(name);
  if (e.kind == encoding_kind::cast) return e.values;
  throw error(errc::invalid_argument,
              fmt::format("--values: expected a value format such as fp16, got '{}'", shortened(name)));
}

}  // namespace

planner::graph graph_source::read_trace() const {
  if (!name.empty()) {
    throw error(errc::invalid_argument,
                fmt::format("--trace: expected no name of a network with it, got {}", shortened(name)));
  }
  refuse({"--input", "--classes", "--side", "--steps", "--loss-chunk", "--fused-update", "--batch"},
         "the name of a network, got the trace " + trace);
  planner::trace_options options;
  options.relu_density = density;
  if (command_->count("--iteration") > 0) options.iteration = iteration;
  const auto read = [](const std::string& text) { return planner::read_trace(text); };
  planner::trace t = parsed(planner::text_kind::trace, trace, read, read_unpacked);
  if (!kineto.empty()) add_times(t, options);
  planner::graph g = planner::graph_of(t, options);
  g.name = fmt::format("{}, {}", std::filesystem::path(trace).filename().string(), g.name);
  return g;
}

void graph_source::add_times(planner::trace& t, const planner::trace_options& options) const {
  const auto read = [](const std::string& text) { return planner::read_kineto(text); };
  const auto times = parsed(planner::text_kind::profile, kineto, read, read_unpacked);
  const planner::joined_times joined = planner::join_times(t, times, options);
  if (!joined.why.empty()) throw error(errc::bad_format, fmt::format("{}: {}", kineto, joined.why));
}

void plan_source::declare(CLI::App& command) {
  command
      .add_option("--policy", policy, "none, lossless, fp16, fp10, fp8, auto, gist, swap-only, lms or layrub")
      ->type_name("POLICY")
      ->capture_default_str();
  command
      .add_option("--budget", budget,
                  "memory for everything: bytes, 64MiB, 1.5GiB, or a share of the baseline (0.5, 50%); "
                  "default: as little as possible, with --machine its memory")
      ->type_name("SIZE")
      ->check(some_text());
  command.add_option("--force", force, "use this encoding (or recompute, raw) wherever it is legal")
      ->type_name("ENCODING")
      ->check(some_text());
  command.add_option("--machine", machine, "plan for speed on this machine (a name or machine.json)")
      ->type_name("MACHINE")
      ->check(some_text());
  command
      .add_option("--values", values,
                  "policies auto and gist: value formats that are allowed (fp16, fp10, fp8, ...)")
      ->type_name("FORMAT")
      ->delimiter(',');
  command
      .add_option("--allow", allow,
                  "of these tensors only these forms, as in 'conv1*=raw,fp16' (also swap, recompute)")
      ->type_name("TENSOR=FORMS");
  command.add_option("--deny", deny, "of these tensors not these forms")->type_name("TENSOR=FORMS");
  command.add_flag("--no-swap", no_swap, "keep everything on the device");
  command.add_flag("--swap-all", swap_all,
                   "policy swap-only: move every map that can move (vDNN-all), not as many as must");
  command.add_option("--evaluations", evaluations, "simulations of the search for the fastest plan")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, 1'000'000'000));
  command.add_option("--search-seed", seed, "of that search")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  command_ = &command;
}

void plan_source::declare_order(CLI::App& command) {
  command
      .add_option("--order", order,
                  "order of the ops: keep, or memory (another one with the same bits, where that needs less)")
      ->type_name("ORDER")
      ->capture_default_str();
}

void plan_source::check() const {
  static_cast<void>(options(1, ""));
  if (machine.empty() && command_ != nullptr) {
    for (const char* const option : {"--no-swap", "--evaluations", "--search-seed"}) {
      if (command_->count(option) == 0) continue;
      throw error(
          errc::invalid_argument,
          fmt::format("{}: expected --machine with it (only plans for one are searched for speed), got none",
                      option));
    }
  }
  if (!force.empty() && force != "recompute") static_cast<void>(parse_encoding(force));
  if (!budget.empty()) static_cast<void>(parse_budget(budget, 1'000'000'000));
}

std::vector<named_file> plan_source::files() const {
  return {{"--machine", names_json(machine) ? machine : ""}};
}

planner::plan_options plan_source::options(int threads, const std::string& machine_note) const {
  planner::plan_options o;
  o.chosen_policy = planner::parse_policy(policy);
  o.force = force;
  o.order = planner::parse_op_order(order);
  o.threads = threads;
  o.machine = machine_note;
  o.evaluations = evaluations;
  o.seed = seed;
  o.swap_all = swap_all;
  for (const std::string& name : values)
    o.values.push_back(parse_values(name));
  for (const std::string& text : allow)
    o.tensors.push_back(parse_rule(text, false, "--allow"));
  for (const std::string& text : deny)
    o.tensors.push_back(parse_rule(text, true, "--deny"));
  if (!machine.empty()) {
    o.model = read_machine(machine);
    if (no_swap && o.chosen_policy > planner::policy::gist) {
      throw error(errc::invalid_argument,
                  fmt::format("--no-swap: expected a policy that does not only move maps, got {}", policy));
    }
    o.swap = !no_swap && o.chosen_policy != planner::policy::none && o.chosen_policy != planner::policy::gist;
  } else if (o.chosen_policy > planner::policy::gist) {  // which encodes and moves nothing
    throw error(errc::invalid_argument,
                fmt::format("--policy: expected --machine with {}, which plans for one, got none", policy));
  }
  return o;
}

// What nobody would read is a misunderstanding.
void plan_source::check_use(const planner::plan_options& o, const planner::graph& g) const {
  const auto refuse = [&](const char* option, const char* expected) {
    throw error(errc::invalid_argument,
                fmt::format("{}: expected --policy {} with it, got {}", option, expected, policy));
  };
  const planner::policy p = o.chosen_policy;
  if (!values.empty() && p != planner::policy::automatic && p != planner::policy::gist)
    refuse("--values", "auto or gist");
  if (swap_all && p != planner::policy::swap_only) refuse("--swap-all", "swap-only");
  for (const planner::tensor_rule& r : o.tensors) {
    const bool known = std::any_of(g.storages.begin(), g.storages.end(), [&](const planner::storage& s) {
      return planner::rule_for({r}, s.name) != nullptr;
    });
    if (known) continue;
    throw error(
        errc::invalid_argument,
        fmt::format("{}: expected tensors of {} (stash explain lists them), got '{}', which none matches",
                    r.deny ? "--deny" : "--allow", shortened(g.name), shortened(r.pattern)));
  }
}

planner::plan_options plan_source::make(const planner::graph& g, int threads,
                                        const std::string& machine_note) const {
  planner::plan_options o = options(threads, machine_note);
  check_use(o, g);
  if (!budget.empty()) {
    planner::plan_options none;
    none.chosen_policy = planner::policy::none;
    none.threads = threads;
    o.budget_bytes = parse_budget(budget, planner::make_plan(g, none).sizes.planned_peak_total);
  }
  return o;
}

std::string form_name(const planner::stash_choice& c) {
  const char* const on_host = c.swapped ? "+swap" : "";
  switch (c.kind) {
    case planner::stash_kind::none:
      return "none";
    case planner::stash_kind::raw:
      return c.swapped ? "swap" : "raw";
    case planner::stash_kind::encoded:
      return to_string(c.stored) + on_host;
    case planner::stash_kind::recompute:
      return (c.stored.kind == encoding_kind::shape_only ? "recompute" : "recompute+" + to_string(c.stored)) +
             on_host;
  }
  return "";
}

}  // namespace stash::tools
