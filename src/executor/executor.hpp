// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Runs one step of a planned training graph on the CPU, in one arena with the plan's offsets; what moves to
/// the host does so in the background (runtime/swap/swap_engine.hpp). A step is a transaction: if a
/// sparse map does not fit, a copy fails or the step is interrupted, weights, momentum and running statistics
/// are those before it, and it can be run again, under this plan or another.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/kernels/kernel.hpp"
#include "planner/plan.hpp"
#include "runtime/memory/arena.hpp"
#include "runtime/swap/swap_engine.hpp"

namespace stash::executor {

struct executor_options {
  std::uint64_t seed = 1;  ///< of dropout
  framework_rule rule = framework_rule::tensorflow;
#ifdef NDEBUG
  bool poison_freed = false;
#else
  bool poison_freed = true;  ///< overwrite buffers with signalling NaNs when their last step is over
#endif
  /// Memory past the end of the map region, as a share of it, that no plan uses: touched_peak() would see a
  /// stray write.
  double slack = 0.25;
  /// How copies to the host run; `poison` follows poison_freed.
  runtime::swap_settings swap;
  /// Host memory of swapped maps is a file without a name in this folder, mapped into memory: the system may
  /// write it out, and it does not count as memory of the process's own. Empty: ordinary memory.
  std::string host_folder;
  /// Asked before each step of the plan; true ends the training step with error(interrupted).
  std::function<bool()> stop;
};

/// Stochastic gradient descent with momentum: m = momentum * m + g + weight_decay * w; w -= learning_rate *
/// m. Weight decay applies to convolution and dense weights only.
struct sgd_settings {
  float learning_rate = 0.05F;
  float momentum = 0.9F;
  float weight_decay = 5e-4F;
};

struct step_result {
  bool committed = false;    ///< false: a sparse map did not fit; nothing was changed
  double loss = 0.0;         ///< mean over the batch
  std::int64_t correct = 0;  ///< right predictions of the batch, before the update
};

/// What a run of the executor has to say about one stashed storage in the last step.
struct stash_observation {
  planner::storage_id storage = planner::no_id;
  double density = 1.0;          ///< measured by the encoder
  std::uint64_t slot_bytes = 0;  ///< in use, of the planned slot
  std::uint64_t overflow_bytes = 0;
  bool stored = true;  ///< false: it did not fit
};

/// Seconds of the last step.
struct step_times {
  double total = 0, encode = 0, decode = 0, recompute = 0;
  double swap = 0;    ///< computation stood still for copies
  double update = 0;  ///< after all steps of the plan, not in total
};

/// Not thread-safe: one step at a time. Uses OpenMP threads as the plan says.
class executor {
 public:
  /// Throws error(verification_failed) with the first finding if the plan does not validate,
  /// error(unsupported) naming an op that the CPU executor does not run, error(out_of_memory).
  executor(planner::plan p, const executor_options& options);
  ~executor();
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;

  /// He-normal weights from a counter-based generator, zero biases and momentum, unit scales; the same on
  /// every platform and independent of the plan.
  void initialise(std::uint64_t seed);

  /// Forward and backward pass over one batch, and the update if everything was stored.
  /// `images` has batch * image bytes, `labels` batch entries. `step` is the number of the step (dropout).
  /// Throws error(invalid_argument) for wrong sizes or labels out of range, error(corrupt_data /
  /// verification_failed) naming the storage if a stash does not decode, error(interrupted), and what a copy
  /// fails with; parameters are then unchanged.
  step_result train_step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                         std::int64_t step, const sgd_settings& sgd);

  /// The same without any update: gradients can be read afterwards, except those that share memory.
  step_result gradient_step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                            std::int64_t step);

  /// Forward pass with running statistics and without dropout; the number of right predictions among the
  /// first `count` samples of the batch.
  std::int64_t count_correct(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                             std::int64_t count);

  /// Forward pass only; the share of non-zeros of every feature map as backward would read it. Changes no
  /// parameter.
  std::vector<stash_observation> measure_densities(std::span<const std::uint8_t> images,
                                                   std::span<const std::int32_t> labels);

  const planner::plan& current_plan() const noexcept { return plan_; }

  /// Fixed-size storage (weight, gradient, momentum, statistic) by id.
  std::span<float> parameter(planner::storage_id s);
  std::span<const float> parameter(planner::storage_id s) const;
  /// Copies every fixed-size storage from an executor of the same graph under another plan.
  void copy_parameters_from(const executor& other);

  /// SHA-256 over weights, running statistics and momentum in the graph's order.
  std::string parameters_sha256() const;

  std::vector<stash_observation> observations() const;
  step_times times() const noexcept { return times_; }
  /// When each step of the plan ran in the last training step, in seconds from its begin. Waits have no
  /// length: computation stands still before the step that needs the bytes.
  std::span<const runtime::swap_time> measured() const noexcept { return engine_->times(); }

  /// High-water marks found by looking for changed bytes in the pattern-filled arena (no plan involved).
  std::int64_t touched_peak() const;        ///< map region
  std::int64_t touched_peak_total() const;  ///< whole arena

  /// Called after each step of the plan that is not a copy, with its index, for tests and measurements. May
  /// look at and change buffer_bytes() that no copy is using.
  std::function<void(std::size_t)> after_step;
  std::span<std::byte> buffer_bytes(planner::buffer_id b);
  encode_report& report(planner::storage_id s) { return reports_[s]; }

 private:
  struct prepared_step;

  void place_parameters();
  void place_undo();
  void prepare();
  prepared_step prepare_run(const planner::step& st);
  tensor_view dense_view(const planner::tensor_ref& ref, planner::buffer_id b);
  float* parameter_data(planner::storage_id s);
  const_encoded_view kept_bytes(planner::storage_id s, planner::buffer_id b);
  encoded_view kept_bytes_for_writing(planner::storage_id s, planner::buffer_id b);
  void load(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels);
  step_result forward_and_backward(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                                   std::int64_t step);
  /// False: a sparse map did not fit.
  bool compute(std::size_t index, std::int64_t step);
  void run_step(std::size_t index);
  void give_up();
  void take_times();
  void check_reports(const planner::step& st) const;
  bool everything_stored() const;
  void update(const planner::op& o, const sgd_settings& sgd);
  void commit(const sgd_settings& sgd);
  void save_for_undo(planner::op_id id);
  void undo_updates();

  planner::plan plan_;
  executor_options options_;
  runtime::arena arena_;
  runtime::arena host_;  ///< kept forms of swapped storages, then what updates in backward replaced
  std::int64_t undo_end_ = 0;
  /// Weights and momenta that an update in the backward stage changes, and where in host_ they are saved.
  struct saved {
    planner::op_id op;
    planner::storage_id storage;
    std::int64_t offset;
  };
  std::vector<saved> undo_;
  planner::id_vector<planner::op_id, char> updated_;  // in this step
  std::int64_t workspace_begin_ = 0, maps_begin_ = 0;
  planner::id_vector<planner::storage_id, std::int64_t>
      parameter_offset_;  // per storage, -1 for batch-proportional ones
  planner::id_vector<planner::op_id, std::unique_ptr<op_kernel>> kernels_;  // per op; none for updates
  const sgd_settings* update_ = nullptr;  // of updates in the backward stage; null: none runs
  std::vector<prepared_step> prepared_;   // per step
  planner::id_vector<planner::storage_id, encode_report> reports_;  // per storage
  std::unique_ptr<runtime::swap_engine> engine_;                    // runs the steps
  std::uint64_t overflow_claimed_ = 0;
  overflow_arena overflow_;
  std::size_t first_backward_step_ = 0, running_ = 0;
  planner::buffer_id image_buffer_ = planner::no_id, label_buffer_ = planner::no_id,
                     probability_buffer_ = planner::no_id;
  step_times times_;
  double loss_ = 0;
  std::int64_t correct_ = 0;
};

}  // namespace stash::executor
