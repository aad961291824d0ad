// SPDX-License-Identifier: Apache-2.0
// train and compare.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.hpp"
#include "commands/activations.hpp"
#include "commands/training.hpp"
#include "files/budget.hpp"
#include "files/files.hpp"
#include "planner/explain_names.hpp"
#include "report/chrome_trace.hpp"
#include "report/svg.hpp"
#include "runtime/memory/arena.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

// Runs `work`; what fails in there failed while running.
template <class Work>
void running(Work work) {
  const stops_between_steps guard;
  try {
    work();
  } catch (const error& e) {
    if (e.code() == errc::interrupted) throw;
    throw failed_while_running(e.what());
  }
}

// One line that is rewritten on a terminal, and a line now and then elsewhere.
class progress {
 public:
  progress(std::int64_t steps, std::int64_t batch) : steps_(steps), batch_(batch), start_(clock::now()) {}

  void show(std::int64_t step, double loss, std::int64_t arena_bytes) {
    const bool terminal = ::isatty(STDOUT_FILENO) != 0;
    const double seconds = std::chrono::duration<double>(clock::now() - start_).count();
    const bool due = step == steps_ || seconds >= next_;
    if (!due) return;
    next_ = seconds + (terminal ? 0.2 : 10.0);
    fmt::print("{}step {}/{}  loss {:.4f}  {:.0f} images/s  arena {} bytes{}", terminal ? "\r" : "", step,
               steps_, loss, static_cast<double>(step * batch_) / std::max(seconds, 1e-9), arena_bytes,
               !terminal || step == steps_ ? "\n" : "");
    std::fflush(stdout);
  }

 private:
  using clock = std::chrono::steady_clock;
  std::int64_t steps_, batch_;
  clock::time_point start_;
  double next_ = 0;
};

struct train_options {
  training_options training;
  plan_source plan;
  std::string plan_file, json, activations, chrome_trace, swap_folder, memory_limit;
  const CLI::App* command = nullptr;
};

// The plan of --plan; the options of the run follow it, and may not contradict it.
planner::plan planned_run(const train_options& o, training_options& training) {
  planner::plan p = read_plan(o.plan_file);
  const auto agree = [&](const char* option, std::int64_t value, std::int64_t planned) {
    if (o.command->count(option) == 0 || value == planned) return;
    throw error(errc::invalid_argument,
                fmt::format("{}: expected the {} of {}, got {}", option, planned, o.plan_file, value));
  };
  if (p.network.name != training.network) {
    throw error(errc::invalid_argument, fmt::format("--plan: {}: expected a plan of {}, got one of {}",
                                                    o.plan_file, training.network, p.network.name));
  }
  agree("--batch", training.batch, p.network.batch);
  agree("--threads", training.threads, p.threads);
  training.batch = p.network.batch;
  training.threads = p.threads;
  return p;
}

void check_fits(const planner::plan& p, const image_source& source, const std::string& file) {
  const models::input_shape s = source.shape();
  const std::vector<std::int64_t> expected{s.height, s.width, s.channels};
  for (const planner::storage& image : p.network.storages) {
    if (image.role != planner::storage_role::image || image.shape == expected) continue;
    throw error(errc::invalid_argument,
                fmt::format("--plan: {}: expected a plan for images of {}, got one for {}", file,
                            fmt::join(expected, "x"), fmt::join(image.shape, "x")));
  }
  if (p.network.classes != source.classes()) {
    throw error(errc::invalid_argument,
                fmt::format("--plan: {}: expected a plan for {} classes, got one for {}", file,
                            source.classes(), p.network.classes));
  }
}

// Memory of the process's own from here on: what it has and what it will ask for.
void limit_memory(const std::string& size) {
  const std::int64_t bytes = parse_budget(size, 0, "--memory-limit");
  const rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) {
    throw error(errc::invalid_argument,
                fmt::format("--memory-limit: expected a limit that the system takes, got {}", size));
  }
}

measured_step measured(executor::executor& e) {
  measured_step m;
  for (const runtime::swap_time& t : e.measured())
    m.timeline.push_back({1e3 * t.begin, 1e3 * t.end});
  m.update_ms = 1e3 * e.times().update;
  m.end_ms = 1e3 * e.times().total + m.update_ms;
  return m;
}

// The trainer of a run: plans, unless a plan is loaded.
void prepare_run(const train_options& o, std::optional<planner::plan>& loaded, image_source& source,
                 const training_options& training, executor::trainer_options& options, training_run& run) {
  if (loaded) {
    run.label = planner::to_string(loaded->chosen_policy);
    run.trainer = std::make_unique<executor::trainer>(std::move(*loaded), options);
  } else {
    std::string machine;
    image_batch batch;
    planner::graph g = training_graph_for(training, source, machine);
    options.plan = o.plan.make(g, training.thread_count(), machine);
    source.fill(0, training.batch, training.seed, batch);
    run.label = o.plan.policy;
    run.trainer = std::make_unique<executor::trainer>(std::move(g), options, batch.images, batch.labels);
  }
}

// Also where the plan moves nothing and would never look.
void check_swap_folder(const std::string& folder) {
  try {
    static_cast<void>(runtime::arena::in_file(folder, 1));
  } catch (const error& e) {
    throw error(e.code(), fmt::format("--swap-folder: {}", e.what()));
  }
}

// Files and options that cannot be used are found before anything is planned.
void check_usable(const train_options& o) {
  std::vector<named_file> inputs = o.plan.files();
  inputs.push_back({"--plan", o.plan_file});
  check_distinct({{"--json", o.json},
                  {"--chrome-trace", o.chrome_trace},
                  {"--dump-activations", o.activations.empty() ? "" : o.activations + "/activations.json"}},
                 inputs);
  check_writable(o.json);
  check_writable(o.chrome_trace);
  if (!o.memory_limit.empty()) limit_memory(o.memory_limit);
  o.training.check();
  o.plan.check();
  if (!o.activations.empty()) const made_folder can_be_made(o.activations);
  if (!o.swap_folder.empty()) check_swap_folder(o.swap_folder);
}

// The run before its first step.
training_run begun_run(const train_options& o, std::optional<planner::plan>& loaded, image_source& source,
                       const training_options& training) {
  executor::trainer_options options;
  options.seed = training.seed;
  options.executor.seed = training.seed;
  options.executor.host_folder = o.swap_folder;
  // Where memory is short there is none for what only shows stray writes.
  if (!o.memory_limit.empty()) options.executor.slack = 0;
  options.executor.stop = interrupted;
  training_run run;
  try {
    prepare_run(o, loaded, source, training, options, run);
  } catch (const error& e) {
    if (e.code() != errc::out_of_memory) throw;
    throw error(e.code(), fmt::format("{}; a smaller --budget, with --machine also for maps that move to the "
                                      "host, takes less",
                                      e.what()));
  }
  return run;
}

std::int64_t steps_of(const training_options& training, const image_source& source) {
  return training.steps > 0 ? training.steps : training.epochs * source.steps_per_epoch(training.batch);
}

void run_steps(training_run& run, image_source& source, const training_options& training) {
  image_batch batch;
  const std::int64_t steps = steps_of(training, source);
  run.trainer->events.notify = [](void*, const event& what) {
    if (what.kind != event_kind::overflow) return;
    fmt::print("step {}: {} is denser than planned: the step is run again with more capacity\n", what.step,
               planner::printable(what.tensor));
  };
  progress bar(steps, training.batch);
  for (std::int64_t step = 0; step < steps; ++step) {
    stop_if_interrupted(fmt::format("after {} steps", step));
    source.fill(step, training.batch, training.seed, batch);
    try {
      run.step(batch, training.sgd);
    } catch (const error& e) {
      if (e.code() == errc::interrupted) stop_if_interrupted(fmt::format("after {} steps", step));
      throw;
    }
    bar.show(step + 1, run.losses.back(), run.trainer->planned_peak_total());
  }
  run.test_accuracy = measure_accuracy(run.trainer->current(), source.test(), training.test_images);
}

int train(const train_options& o) {
  check_usable(o);
  training_options training = o.training;
  std::optional<planner::plan> loaded;
  if (!o.plan_file.empty()) loaded = planned_run(o, training);
  image_source source(training);
  if (loaded) check_fits(*loaded, source, o.plan_file);
  training_run run = begun_run(o, loaded, source, training);
  running([&] { run_steps(run, source, training); });
  const planner::plan_sizes& z = run.trainer->current().current_plan().sizes;
  fmt::print(
      "policy {}: peak {} bytes planned, {} touched (baseline {}, ratio {:.2f}); step {:.2f} ms median; test "
      "accuracy {:.2f} %; {} reruns\n",
      run.label, run.trainer->planned_peak(), run.trainer->touched_peak(), z.baseline_peak,
      static_cast<double>(z.baseline_peak) / static_cast<double>(run.trainer->planned_peak()),
      1e3 * median(run.step_seconds), 100 * run.test_accuracy, run.trainer->reruns());
  if (!o.json.empty()) write_file(o.json, run_report(run, training, source).dump(2) + "\n");
  if (!o.chrome_trace.empty()) {
    executor::executor& e = run.trainer->current();
    write_file(o.chrome_trace, chrome_trace(e.current_plan(), measured(e)));
  }
  if (!o.activations.empty()) {
    running([&] {
      const made_folder folder(o.activations);
      fmt::print("{} feature maps in {}\n", write_activations(o.activations, run, training, source),
                 o.activations);
    });
  }
  return 0;
}

struct compare_options {
  training_options training;
  std::string svg, json;
};

// One run per policy, from one seed.
std::vector<training_run> begun_runs(image_source& source, const training_options& training) {
  std::string machine;
  const planner::graph g = training_graph_for(training, source, machine);
  image_batch batch;
  source.fill(0, training.batch, training.seed, batch);
  std::vector<training_run> runs;
  for (const char* const policy : {"none", "lossless", "fp16", "fp8"}) {
    executor::trainer_options options;
    options.seed = training.seed;
    options.executor.seed = training.seed;
    plan_source plan;
    plan.policy = policy;
    options.plan = plan.make(g, training.thread_count(), machine);
    training_run& run = runs.emplace_back();
    run.label = policy;
    run.trainer = std::make_unique<executor::trainer>(g, options, batch.images, batch.labels);
  }
  return runs;
}

// Step by step in turn, so that a slow moment of the machine meets all of them.
void run_in_turn(std::vector<training_run>& runs, image_source& source, const training_options& training) {
  image_batch batch;
  const std::int64_t steps = steps_of(training, source);
  progress bar(steps, training.batch * static_cast<std::int64_t>(runs.size()));
  for (std::int64_t step = 0; step < steps; ++step) {
    stop_if_interrupted(fmt::format("after {} steps", step));
    source.fill(step, training.batch, training.seed, batch);
    for (training_run& run : runs)
      run.step(batch, training.sgd);
    bar.show(step + 1, runs.front().losses.back(), runs.front().trainer->planned_peak_total());
  }
  for (training_run& run : runs)
    run.test_accuracy = measure_accuracy(run.trainer->current(), source.test(), training.test_images);
}

// Prints the table. Returns it with more figures.
nlohmann::ordered_json compared(const std::vector<training_run>& runs, const image_source& source,
                                const training_options& training) {
  const planner::plan_sizes& base = runs.front().trainer->current().current_plan().sizes;
  fmt::print("\n{}, batch {}, {} steps on {}; feature maps and gradients; largest op (W) {} bytes\n\n",
             training.network, training.batch, steps_of(training, source), source.description(), base.wall);
  fmt::print("{:<10}{:>14}{:>14}{:>8}{:>11}{:>8}{:>11}{:>11}  {}\n", "policy", "peak bytes", "touched",
             "ratio", "step ms", "time", "loss", "accuracy", "bit-identical");
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  const std::string expected = runs.front().trainer->current().parameters_sha256();
  for (const training_run& run : runs) {
    std::vector<double> relative;
    relative.reserve(run.step_seconds.size());
    for (std::size_t i = 0; i < run.step_seconds.size(); ++i) {
      relative.push_back(run.step_seconds[i] / runs.front().step_seconds[i]);
    }
    executor::trainer& t = *run.trainer;
    const bool identical = run.losses == runs.front().losses && t.current().parameters_sha256() == expected;
    fmt::print("{:<10}{:>14}{:>14}{:>8.2f}{:>11.2f}{:>7.2f}x{:>11.4f}{:>10.2f}%  {}\n", run.label,
               t.planned_peak(), t.touched_peak(),
               static_cast<double>(base.planned_peak) / static_cast<double>(t.planned_peak()),
               1e3 * median(run.step_seconds), median(relative), run.losses.back(), 100 * run.test_accuracy,
               identical ? "yes" : "no");
    nlohmann::ordered_json entry = run_report(run, training, source);
    entry["relative_step_time_median"] = median(relative);
    entry["bit_identical"] = identical;
    report.push_back(std::move(entry));
  }
  return report;
}

int compare(const compare_options& o) {
  check_distinct({{"--svg", o.svg}, {"--json", o.json}});
  check_writable(o.svg);
  check_writable(o.json);
  o.training.check();
  image_source source(o.training);
  std::vector<training_run> runs = begun_runs(source, o.training);
  running([&] { run_in_turn(runs, source, o.training); });
  const nlohmann::ordered_json report = compared(runs, source, o.training);
  if (!o.svg.empty()) {
    std::vector<memory_curve> curves;
    curves.reserve(runs.size());
    for (const training_run& run : runs) {
      curves.push_back({run.label == "none" ? "before" : run.label, &run.trainer->current().current_plan()});
    }
    write_file(o.svg, memory_svg(curves));
    fmt::print("\npicture: {}\n", o.svg);
  }
  if (!o.json.empty()) write_file(o.json, report.dump(2) + "\n");
  return 0;
}

}  // namespace

void add_train(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand("train", "Train a network under a plan");
  const auto o = std::make_shared<train_options>();
  o->training.declare(*command);
  o->plan.declare(*command);
  o->plan.declare_order(*command);
  command->add_option("--plan", o->plan_file, "run this plan.json (its policy, batch and threads)")
      ->type_name("FILE")
      ->check(some_text())
      ->excludes("--policy")
      ->excludes("--budget")
      ->excludes("--order")
      ->excludes("--force")
      ->excludes("--machine")
      ->excludes("--values")
      ->excludes("--allow")
      ->excludes("--deny")
      ->excludes("--no-swap")
      ->excludes("--swap-all")
      ->excludes("--evaluations")
      ->excludes("--search-seed");
  command->add_option("--json", o->json, "write the record of the run")
      ->type_name("FILE")
      ->check(some_text());
  command
      ->add_option(
          "--chrome-trace", o->chrome_trace,
          "write when each step of the last training step ran, next to what a plan with --machine predicts")
      ->type_name("FILE")
      ->check(some_text());
  command
      ->add_option(
          "--swap-folder", o->swap_folder,
          "maps that leave the arena go to an unnamed file in this folder, not to memory of the process")
      ->type_name("FOLDER")
      ->check(some_text());
  command
      ->add_option("--memory-limit", o->memory_limit,
                   "let the system refuse more memory than this to the process (RLIMIT_DATA), as 512MiB")
      ->type_name("SIZE")
      ->check(some_text());
  command
      ->add_option("--dump-activations", o->activations,
                   "write the outputs of all ReLUs on the batch after the last step (raw f32, with an index)")
      ->type_name("FOLDER")
      ->check(some_text());
  o->command = command;
  command->callback([&chosen, o] { chosen = [o] { return train(*o); }; });
}

void add_compare(CLI::App& app, action& chosen) {
  CLI::App* const command = app.add_subcommand(
      "compare", "Train unplanned, lossless and under each lossy policy from one seed, in one table");
  const auto o = std::make_shared<compare_options>();
  o->training.declare(*command);
  command->add_option("--svg", o->svg, "draw memory over the step")->type_name("FILE")->check(some_text());
  command->add_option("--json", o->json, "write the records of the runs")
      ->type_name("FILE")
      ->check(some_text());
  command->callback([&chosen, o] { chosen = [o] { return compare(*o); }; });
}

}  // namespace stash::tools
