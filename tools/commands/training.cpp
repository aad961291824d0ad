// SPDX-License-Identifier: Apache-2.0
#include "commands/training.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "commands.hpp"
#include "executor/kernels/kernel.hpp"
#include "report/report.hpp"
#include "stash/error.hpp"

namespace stash::tools {
namespace {

constexpr std::int64_t generated_train_images = 8192, generated_test_images = 2048;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void training_options::declare(CLI::App& command) {
  command.add_option("network", network, "network that trains (see `stash networks`)")
      ->type_name("NAME")
      ->required();
  command
      .add_option("--data", data,
                  "folder with IDX or CIFAR-10 files (default: STASH_DATA, else generated images)")
      ->type_name("FOLDER")
      ->check(some_text());
  command.add_option("--batch", batch, "samples per step")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 65536));
  CLI::Option* const by_steps = command.add_option("--steps", steps, "number of steps (default: one epoch)")
                                    ->type_name("N")
                                    ->check(whole_number(1, 100'000'000));
  command.add_option("--epochs", epochs, "passes over the training images")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 100'000))
      ->excludes(by_steps);
  command.add_option("--test-images", test_images, "test images to look at (default: all)")
      ->type_name("N")
      ->check(whole_number(1, 100'000'000));
  command.add_option("--seed", seed, "of weights, order of images and dropout")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  command.add_option("--threads", threads, "threads (default: all processors); part of the result")
      ->type_name("N")
      ->check(whole_number(1, 1024));
  command.add_option("--learning-rate", sgd.learning_rate, "of stochastic gradient descent")
      ->type_name("NUMBER")
      ->capture_default_str()
      ->check(number(0.0, 100.0));
  command.add_option("--momentum", sgd.momentum, "share of the last update that is added again")
      ->type_name("NUMBER")
      ->capture_default_str()
      ->check(number(0.0, 1.0));
  command.add_option("--weight-decay", sgd.weight_decay, "share of a weight added to its gradient")
      ->type_name("NUMBER")
      ->capture_default_str()
      ->check(number(0.0, 1.0));
}

void training_options::check() const {
  const models::model_info& info = models::find(network);
  if (info.trainable) return;
  throw error(
      errc::invalid_argument,
      fmt::format("network: expected one that trains on the CPU (see `stash networks`), got {}, which can "
                  "only be planned",
                  info.name));
}

int training_options::thread_count() const {
  return threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

image_source::image_source(const training_options& options) {
  std::string folder = options.data;
  if (const char* const variable = std::getenv("STASH_DATA"); folder.empty() && variable != nullptr)
    folder = variable;
  if (!folder.empty()) {
    sets_ = data::load(folder);
    description_ = sets_.train.source;
  } else {
    const models::input_shape shape = models::find(options.network).default_input;
    const models::input_shape small = shape.height <= 64 ? shape : models::input_shape{32, 32, 3};
    sets_ = data::generate(small.height, small.width, small.channels, 10, generated_train_images,
                           generated_test_images, options.seed);
    description_ = "generated images";
  }
  fmt::print("data: {}{}: {} training and {} test images of {}x{}x{}, {} classes\n", description_,
             folder.empty() ? " (no --data folder, STASH_DATA not set)" : "", sets_.train.count,
             sets_.test.count, sets_.train.height, sets_.train.width, sets_.train.channels,
             sets_.train.classes);
  std::fflush(stdout);
  if (sets_.train.count < options.batch) {
    throw error(errc::invalid_argument,
                fmt::format("--batch: expected at most the {} training images, got {}", sets_.train.count,
                            options.batch));
  }
}

void image_source::fill(std::int64_t step, std::int64_t batch_size, std::uint64_t seed, image_batch& out) {
  const std::int64_t per_epoch = steps_per_epoch(batch_size);
  if (const std::int64_t epoch = step / per_epoch; epoch != order_epoch_) {
    order_ = data::epoch_order(sets_.train.count, seed, epoch);
    order_epoch_ = epoch;
  }
  const std::int64_t bytes = sets_.train.image_bytes();
  out.images.resize(static_cast<std::size_t>(bytes * batch_size));
  out.labels.resize(static_cast<std::size_t>(batch_size));
  for (std::int64_t n = 0; n < batch_size; ++n) {
    const std::int64_t i = order_[static_cast<std::size_t>(step % per_epoch * batch_size + n)];
    std::copy_n(sets_.train.images.begin() + i * bytes, bytes, out.images.begin() + n * bytes);
    out.labels[static_cast<std::size_t>(n)] = sets_.train.labels[static_cast<std::size_t>(i)];
  }
}

void training_run::step(const image_batch& b, const executor::sgd_settings& sgd) {
  const double start = now();
  const executor::step_result result = trainer->step(b.images, b.labels, sgd);
  step_seconds.push_back(now() - start);
  losses.push_back(result.loss);
  const executor::step_times times = trainer->current().times();
  codec_seconds.push_back(times.encode + times.decode + times.recompute);
}

void stop_if_interrupted(std::string_view when) {
  if (interrupted()) throw error(errc::interrupted, fmt::format("interrupted {}", when));
}

double measure_accuracy(executor::executor& e, const data::dataset& test, std::int64_t limit) {
  const std::int64_t batch = e.current_plan().network.batch;
  const std::int64_t count = limit > 0 ? std::min(limit, test.count) : test.count;
  const auto bytes = static_cast<std::size_t>(test.image_bytes());
  std::vector<std::uint8_t> images(static_cast<std::size_t>(batch) * bytes);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
  std::int64_t right = 0;
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    stop_if_interrupted("while measuring the accuracy");
    const std::int64_t n = std::min(batch, count - begin);
    std::copy_n(test.images.begin() + begin * static_cast<std::int64_t>(bytes),
                static_cast<std::size_t>(n) * bytes, images.begin());
    std::copy_n(test.labels.begin() + begin, n, labels.begin());
    right += e.count_correct(images, labels, n);
  }
  return static_cast<double>(right) / static_cast<double>(count);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

nlohmann::ordered_json run_report(const training_run& run, const training_options& options,
                                  const image_source& source) {
  executor::trainer& t = *run.trainer;
  nlohmann::ordered_json j = plan_report(t.current().current_plan());
  j["data"] = source.description();
  j["seed"] = options.seed;
  j["steps"] = t.steps();
  j["losses"] = run.losses;
  j["final_weights_sha256"] = t.current().parameters_sha256();
  j["planned_peak_bytes"] = t.planned_peak();
  j["planned_peak_bytes_total"] = t.planned_peak_total();
  j["measured_peak_bytes"] = t.touched_peak();
  j["measured_peak_bytes_total"] = t.touched_peak_total();
  j["footprint_ratio"] =
      static_cast<double>(j["baseline_peak_bytes"]) / static_cast<double>(t.planned_peak());
  j["footprint_ratio_total"] =
      static_cast<double>(j["baseline_peak_bytes_total"]) / static_cast<double>(t.planned_peak_total());
  j["step_ms_median"] = 1e3 * median(run.step_seconds);
  j["codec_ms_median"] = 1e3 * median(run.codec_seconds);
  j["test_accuracy"] = run.test_accuracy;
  j["reruns"] = t.reruns();
  return j;
}

planner::graph training_graph_for(const training_options& options, const image_source& source,
                                  std::string& machine) {
  const models::model_info& info = models::find(options.network);
  planner::graph g =
      planner::make_training_graph(info.build(source.shape(), source.classes()), options.batch);
  machine = executor::annotate_workspaces(g, {options.thread_count(), framework_rule::tensorflow});
  return g;
}

}  // namespace stash::tools
