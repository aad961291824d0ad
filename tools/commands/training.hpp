// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What `stash train` and `stash compare` share: data, batches, one training run and its record.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.hpp"
#include "executor/trainer.hpp"
#include "files/source.hpp"

namespace CLI {
class App;
}

namespace stash::tools {

struct training_options {
  std::string network;
  std::int64_t batch = 64;
  std::int64_t steps = 0;  ///< 0: as many as the epochs have
  std::int64_t epochs = 1;
  std::string data;              ///< folder; empty: STASH_DATA, then generated images
  std::int64_t test_images = 0;  ///< 0: all
  std::uint64_t seed = 1;
  int threads = 0;
  executor::sgd_settings sgd{.learning_rate = 0.02F, .momentum = 0.9F, .weight_decay = 5e-4F};

  void declare(CLI::App& command);
  /// Throws error(invalid_argument) unless the network is one that trains.
  void check() const;
  int thread_count() const;
};

struct image_batch {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

/// The images that a network trains on.
class image_source {
 public:
  /// Reads or generates. Throws like data::load; prints one line that says what is used.
  explicit image_source(const training_options& options);

  const data::dataset& test() const noexcept { return sets_.test; }
  models::input_shape shape() const noexcept {
    return {sets_.train.height, sets_.train.width, sets_.train.channels};
  }
  std::int64_t classes() const noexcept { return sets_.train.classes; }
  std::int64_t steps_per_epoch(std::int64_t batch) const noexcept { return sets_.train.count / batch; }
  const std::string& description() const noexcept { return description_; }

  /// The training batch of a step, in the order that (seed, epoch) gives; the rest of an epoch is left out.
  void fill(std::int64_t step, std::int64_t batch_size, std::uint64_t seed, image_batch& out);

 private:
  data::train_and_test sets_;
  std::string description_;
  std::vector<std::int32_t> order_;
  std::int64_t order_epoch_ = -1;
};

/// Throws error(interrupted) if the user wants to stop; `when` goes into the message.
void stop_if_interrupted(std::string_view when);

/// One run: a trainer and what it has recorded.
struct training_run {
  std::string label;
  std::unique_ptr<executor::trainer> trainer;
  std::vector<double> losses;
  std::vector<double> step_seconds, codec_seconds;
  double test_accuracy = 0;

  /// One step; appends to the record.
  void step(const image_batch& b, const executor::sgd_settings& sgd);
};

/// Share of right predictions on the first `limit` test images (0: all). Throws error(interrupted) as
/// training does.
double measure_accuracy(executor::executor& e, const data::dataset& test, std::int64_t limit);

double median(std::vector<double> values);

/// The record as `--json` gives it.
nlohmann::ordered_json run_report(const training_run& run, const training_options& options,
                                  const image_source& source);

/// The graph of a network for these images, with workspaces.
planner::graph training_graph_for(const training_options& options, const image_source& source,
                                  std::string& machine);

}  // namespace stash::tools
