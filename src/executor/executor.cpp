// SPDX-License-Identifier: Apache-2.0
#include "executor/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "executor/kernels/batch_norm.hpp"
#include "executor/swap_of_plan.hpp"
#include "planner/graph/needs.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"

namespace stash::executor {

using planner::aligned;
using planner::buffer_form;
using planner::op_kind;
using planner::op_stage;
using planner::step_kind;
using planner::storage_role;

namespace {

shape dense_shape(const planner::graph& g, const planner::tensor_ref& ref) {
  std::vector<std::int64_t> dims{g.batch};
  for (const std::int64_t d : g.at(ref.storage).shape)
    dims.push_back(d);
  if (!ref.whole()) dims.back() = ref.channels;
  return shape(std::span<const std::int64_t>(dims));
}

}  // namespace

// A step of the plan with every pointer resolved, so that running it allocates nothing.
struct executor::prepared_step {
  kernel_operands operands;    // run
  kernel_operands evaluation;  // run, forward: without stashes
  // encode, decode, recompute
  tensor_view dense_in, dense_out;
  encoding stored;
  encoded_view encoded_out;
  const_encoded_view encoded_in;
  bool masked = false;
  batch_norm_parameters norm;
};

executor::executor(planner::plan p, const executor_options& options)
    : plan_(std::move(p)), options_(options) {
  if (const auto findings = planner::validate(plan_); !findings.empty()) {
    throw error(errc::verification_failed,
                fmt::format("executor: plan: expected a valid plan, got {} ({})",
                            planner::to_string(findings[0].fault), findings[0].message));
  }
  if (!plan_.laid_out) {
    throw error(errc::invalid_argument,
                "executor: plan: expected one with a layout, got one whose buffers have no offsets");
  }
  const planner::graph& g = plan_.network;
  const kernel_options kernel{plan_.threads, options_.rule};
  std::int64_t workspace = 0;
  for (const planner::op_id i : g.ops.ids()) {
    kernels_.push_back(g.ops[i].kind == op_kind::sgd_update ? nullptr
                                                            : make_kernel(g, planner::op_id(i), kernel));
    if (kernels_.back() != nullptr) workspace = std::max(workspace, kernels_.back()->workspace_bytes());
  }
  if (aligned(workspace) > plan_.sizes.workspace_bytes) {
    throw error(
        errc::invalid_argument,
        fmt::format(
            "executor: plan: expected a plan made for this machine, whose ops need {} bytes of workspace, "
            "got one with {} (made for: {})",
            workspace, plan_.sizes.workspace_bytes, plan_.machine));
  }
  place_parameters();
  workspace_begin_ = plan_.sizes.parameter_bytes;
  maps_begin_ = workspace_begin_ + plan_.sizes.workspace_bytes;
  const auto maps = static_cast<double>(plan_.sizes.planned_peak) * (1.0 + options_.slack);
  const std::int64_t bytes = aligned(maps_begin_ + static_cast<std::int64_t>(maps));
  try {
    arena_ = runtime::arena(static_cast<std::size_t>(bytes));
  } catch (const error& e) {
    throw error(e.code(),
                fmt::format("executor: plan: expected memory for {} bytes, which the plan of {} takes "
                            "under policy {}, got none ({})",
                            bytes, g.name, planner::to_string(plan_.chosen_policy), e.what()));
  }
  runtime::fill_pattern(arena_.data(), arena_.data() + arena_.bytes());
  place_undo();
  const auto host = static_cast<std::size_t>(undo_end_);
  host_ = options_.host_folder.empty() ? runtime::arena(host)
                                       : runtime::arena::in_file(options_.host_folder, host);
  prepare();
}

executor::~executor() = default;

// ---- preparation -----------------------------------------------------------------------------------

float* executor::parameter_data(planner::storage_id s) {
  return reinterpret_cast<float*>(arena_.data() + parameter_offset_[s]);
}

std::span<std::byte> executor::buffer_bytes(planner::buffer_id b) {
  const planner::buffer& buffer = plan_.buffers.at(b);
  std::byte* const region =
      buffer.form == planner::buffer_form::host ? host_.data() : arena_.data() + maps_begin_;
  return {region + buffer.offset, static_cast<std::size_t>(buffer.bytes)};
}

tensor_view executor::dense_view(const planner::tensor_ref& ref, planner::buffer_id b) {
  const planner::storage& s = plan_.network.at(ref.storage);
  tensor_view view;
  view.type = s.type;
  view.dims = dense_shape(plan_.network, ref);
  view.data = buffer_bytes(b).data() + ref.channel_begin * static_cast<std::int64_t>(size_of(s.type));
  if (!ref.whole()) view.pixel_pitch = s.shape.back();
  return view;
}

encoded_view executor::kept_bytes_for_writing(planner::storage_id s, planner::buffer_id b) {
  const std::span<std::byte> bytes = buffer_bytes(b);
  return {bytes.data(), bytes.size(), overflow_.data != nullptr ? &overflow_ : nullptr, &report(s)};
}

const_encoded_view executor::kept_bytes(planner::storage_id s, planner::buffer_id b) {
  const encoded_view v = kept_bytes_for_writing(s, b);
  return {v.data, v.bytes, v.overflow, v.report};
}

executor::prepared_step executor::prepare_run(const planner::step& st) {
  const planner::graph& g = plan_.network;
  const planner::op& o = g.op_at(st.op);
  prepared_step p;
  kernel_operands& k = p.operands;
  for (std::size_t i = 0; i < o.inputs.size(); ++i)
    k.inputs.push_back(dense_view(o.inputs[i], st.inputs[i]));
  for (std::size_t i = 0; i < o.outputs.size(); ++i)
    k.outputs.push_back(dense_view(o.outputs[i], st.outputs[i]));
  for (std::size_t i = 0; i < o.optional_outputs.size(); ++i) {
    auxiliary_operand a;
    if (const planner::buffer_id b = st.optional_outputs[i]; b.valid()) {
      a.requested = true;
      a.stored = plan_.choices[o.optional_outputs[i]].stored;
      a.bytes = kept_bytes_for_writing(o.optional_outputs[i], b);
    }
    k.optional_outputs.push_back(a);
  }
  for (const planner::storage_id s : o.parameters)
    k.parameters.push_back(parameter_data(s));
  for (const planner::storage_id s : o.parameters_written)
    k.parameters_written.push_back(parameter_data(s));
  if (const std::int32_t a = plan_.alternative[st.op]; a >= 0) {
    const planner::stash_alternative& chosen = o.alternatives[a];
    k.form = chosen.form;
    for (std::size_t i = 0; i < chosen.reads.size(); ++i) {
      const planner::stash_read& r = chosen.reads[i];
      stash_operand operand;
      operand.dense = plan_.buffers[st.stash[i]].form == buffer_form::dense;
      if (operand.dense) {
        operand.view = dense_view(r.slice, st.stash[i]);
      } else {
        operand.stored = {plan_.choices[r.storage].stored, g.at(r.storage).type,
                          shape({g.at(r.storage).elements(g.batch)}), kept_bytes(r.storage, st.stash[i])};
      }
      k.stash.push_back(operand);
    }
  }
  k.workspace = {arena_.data() + workspace_begin_, static_cast<std::size_t>(plan_.sizes.workspace_bytes)};
  k.key.seed = options_.seed;
  k.key.layer = static_cast<std::uint32_t>((o.forward_op.valid() ? o.forward_op : st.op).number());
  k.loss = &loss_;
  k.correct = &correct_;
  if (o.stage == op_stage::forward) {
    p.evaluation = k;
    p.evaluation.training = false;
    for (auxiliary_operand& a : p.evaluation.optional_outputs)
      a.requested = false;
  }
  return p;
}

void executor::prepare() {
  const planner::graph& g = plan_.network;
  reports_.assign(g.storages.size(), {});
  updated_.assign(g.ops.size(), 0);
  for (const planner::buffer_id b : plan_.buffers.ids()) {
    const planner::buffer& buffer = plan_.buffers[b];
    if (buffer.form == buffer_form::host) continue;
    if (buffer.form == buffer_form::overflow) {
      overflow_ = {buffer_bytes(planner::buffer_id(b)).data(), static_cast<std::uint64_t>(buffer.bytes),
                   &overflow_claimed_};
      continue;
    }
    const storage_role role = g.at(buffer.storage).role;
    if (role == storage_role::image && buffer.first_step == 0) image_buffer_ = planner::buffer_id(b);
    if (role == storage_role::label) label_buffer_ = planner::buffer_id(b);
  }
  first_backward_step_ = plan_.steps.size();
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const planner::step& st = plan_.steps[i];
    if (st.kind == step_kind::run) {
      const planner::op& o = g.op_at(st.op);
      if (o.stage == op_stage::backward) first_backward_step_ = std::min(first_backward_step_, i);
      if (o.kind == op_kind::softmax_cross_entropy) probability_buffer_ = st.outputs[0];
      prepared_.push_back(prepare_run(st));
      continue;
    }
    prepared_step p;
    const planner::tensor_ref whole{st.storage, 0, 0};
    p.stored = plan_.choices[st.storage].stored;
    p.stored.rule = p.stored.kind == encoding_kind::sign_mask ? options_.rule : p.stored.rule;
    if (st.kind == step_kind::encode) {
      p.dense_in = dense_view(whole, st.inputs[0]);
      p.encoded_out = kept_bytes_for_writing(st.storage, st.outputs[0]);
    } else if (st.kind == step_kind::decode) {
      p.encoded_in = kept_bytes(st.storage, st.inputs[0]);
      p.dense_out = dense_view(whole, st.outputs[0]);
    } else if (st.kind == step_kind::recompute) {
      const planner::op& o = g.op_at(st.op);
      p.dense_in = dense_view(o.inputs[0], st.inputs[0]);
      p.dense_out = dense_view(whole, st.outputs[0]);
      p.masked = st.inputs.size() > 1;
      if (p.masked) p.encoded_in = kept_bytes(st.storage, st.inputs[1]);
      p.norm = {parameter_data(o.parameters[0]), parameter_data(o.parameters[1]),
                parameter_data(o.parameters_written[0]), parameter_data(o.parameters_written[1])};
    }
    prepared_.push_back(std::move(p));
  }
  runtime::swap_settings swap = options_.swap;
  swap.poison = options_.poison_freed;
  engine_ = std::make_unique<runtime::swap_engine>(
      swap_of_plan(plan_, reports_), runtime::swap_memory{arena_.data() + maps_begin_, host_.data()},
      std::move(swap));
}

// ---- running ---------------------------------------------------------------------------------------

void executor::load(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels) {
  const planner::graph& g = plan_.network;
  const std::size_t image_bytes =
      !image_buffer_.valid()
          ? 0
          : static_cast<std::size_t>(g.at(plan_.buffers[image_buffer_].storage).bytes(g.batch));
  if (images.size() != image_bytes || labels.size() != static_cast<std::size_t>(g.batch)) {
    throw error(errc::invalid_argument,
                fmt::format("executor: batch: expected {} image bytes and {} labels, got {} and {}",
                            image_bytes, g.batch, images.size(), labels.size()));
  }
  for (const std::int32_t label : labels) {
    if (label < 0 || label >= g.classes) {
      throw error(errc::invalid_argument,
                  fmt::format("executor: labels: expected 0..{}, got {}", g.classes - 1, label));
    }
  }
  if (image_buffer_.valid()) std::memcpy(buffer_bytes(image_buffer_).data(), images.data(), images.size());
  std::memcpy(buffer_bytes(label_buffer_).data(), labels.data(), labels.size_bytes());
}

void executor::run_step(std::size_t i) {
  const planner::step& st = plan_.steps[i];
  prepared_step& p = prepared_[i];
  const execution_context context = openmp_context(plan_.threads);
  switch (st.kind) {
    case step_kind::run:
      if (kernels_[st.op] != nullptr) {
        kernels_[st.op]->run(p.operands);
      } else if (update_ != nullptr) {
        save_for_undo(st.op);
        update(plan_.network.op_at(st.op), *update_);
      }
      break;
    case step_kind::encode:
      encode(p.stored, p.dense_in, p.encoded_out, {}, context);
      break;
    case step_kind::decode:
      decode({p.stored, p.dense_out.type, p.dense_out.dims, p.encoded_in}, p.dense_out, {}, context);
      break;
    case step_kind::recompute:
      if (p.masked) {
        batch_norm_apply(p.dense_in, p.dense_out, p.norm, p.encoded_in, context);
      } else {
        batch_norm_apply(p.dense_in, p.dense_out, p.norm, true, context);
      }
      break;
    case step_kind::copy_out:
    case step_kind::copy_in:  // the engine's
    case step_kind::wait_out:
    case step_kind::wait_in:
      break;
  }
}

void executor::check_reports(const planner::step& st) const {
  const auto check = [&](planner::storage_id s) {
    const std::uint32_t status = reports_[s].status;
    if ((status & (status_corrupt | status_verification | status_capacity)) == 0) return;
    const bool differs = (status & status_verification) != 0;
    throw error(
        differs ? errc::verification_failed : errc::corrupt_data,
        fmt::format("executor: {}: expected the stash that was encoded, got {}", plan_.network.at(s).name,
                    differs ? "values that differ from the original" : "bytes that do not decode"));
  };
  if (st.kind == step_kind::decode || st.kind == step_kind::recompute) check(st.storage);
  if (st.kind != step_kind::run || plan_.alternative[st.op] < 0) return;
  const planner::op& o = plan_.network.op_at(st.op);
  for (const planner::stash_read& r : o.alternatives[plan_.alternative[st.op]].reads)
    check(r.storage);
}

bool executor::everything_stored() const {
  return std::none_of(reports_.begin(), reports_.end(),
                      [](const encode_report& r) { return (r.status & status_capacity) != 0; });
}

bool executor::compute(std::size_t i, std::int64_t step) {
  running_ = i;
  // All encodes are done: a map that did not fit would be missed only now.
  if (i == first_backward_step_ && !everything_stored()) return false;
  if (options_.stop && options_.stop()) {
    throw error(errc::interrupted, fmt::format("executor: step {}: interrupted before step {} of {} of the "
                                               "plan; nothing was changed",
                                               step, i, plan_.steps.size()));
  }
  prepared_[i].operands.key.step = static_cast<std::uint64_t>(step);
  run_step(i);
  if (i >= first_backward_step_) check_reports(plan_.steps[i]);
  if (after_step) after_step(i);
  return true;
}

void executor::give_up() {
  update_ = nullptr;
  undo_updates();
}

step_result executor::forward_and_backward(std::span<const std::uint8_t> images,
                                           std::span<const std::int32_t> labels, std::int64_t step) {
  load(images, labels);
  std::fill(reports_.begin(), reports_.end(), encode_report{});
  overflow_claimed_ = 0;
  std::fill(updated_.begin(), updated_.end(), 0);
  bool committed = false;
  try {
    committed = engine_->run([&](std::int32_t i) { return compute(static_cast<std::size_t>(i), step); });
  } catch (const std::bad_alloc&) {
    give_up();
    throw error(
        errc::out_of_memory,
        fmt::format("executor: step {}: expected memory for step {} of {} of the plan, got none; nothing "
                    "was changed",
                    step, running_, plan_.steps.size()));
  } catch (...) {
    give_up();
    throw;
  }
  times_ = {};
  if (committed) take_times();
  return {committed, loss_, correct_};
}

void executor::take_times() {
  double busy = 0.0;
  const std::span<const runtime::swap_time> times = engine_->times();
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const double seconds = times[i].end - times[i].begin;
    const step_kind kind = plan_.steps[i].kind;
    if (kind == step_kind::copy_out || kind == step_kind::copy_in) continue;
    busy += seconds;
    times_.total = std::max(times_.total, times[i].end);
    if (kind == step_kind::encode) times_.encode += seconds;
    if (kind == step_kind::decode) times_.decode += seconds;
    if (kind == step_kind::recompute) times_.recompute += seconds;
  }
  times_.swap = std::max(0.0, times_.total - busy);
}

step_result executor::gradient_step(std::span<const std::uint8_t> images,
                                    std::span<const std::int32_t> labels, std::int64_t step) {
  update_ = nullptr;
  return forward_and_backward(images, labels, step);
}

step_result executor::train_step(std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                                 std::int64_t step, const sgd_settings& sgd) {
  update_ = &sgd;
  const step_result result = forward_and_backward(images, labels, step);
  update_ = nullptr;
  if (!result.committed) return result;
  const auto begin = std::chrono::steady_clock::now();
  commit(sgd);
  times_.update = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

std::int64_t executor::count_correct(std::span<const std::uint8_t> images,
                                     std::span<const std::int32_t> labels, std::int64_t count) {
  load(images, labels);
  for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
    const planner::step& st = plan_.steps[i];
    if (st.kind != step_kind::run || plan_.network.op_at(st.op).stage != op_stage::forward) continue;
    kernels_[st.op]->run(prepared_[i].evaluation);
  }
  const auto* probabilities = reinterpret_cast<const float*>(buffer_bytes(probability_buffer_).data());
  std::int64_t right = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    const float* row = probabilities + n * plan_.network.classes;
    right += std::max_element(row, row + plan_.network.classes) - row == labels[static_cast<std::size_t>(n)]
                 ? 1
                 : 0;
  }
  return right;
}

std::vector<stash_observation> executor::measure_densities(std::span<const std::uint8_t> images,
                                                           std::span<const std::int32_t> labels) {
  load(images, labels);
  const planner::graph& g = plan_.network;
  planner::id_vector<planner::storage_id, double> density(g.storages.size(), -1.0);
  for (std::size_t i = 0; i < first_backward_step_; ++i) {
    const planner::step& st = plan_.steps[i];
    if (st.kind != step_kind::run) continue;
    kernels_[st.op]->run(prepared_[i].operands);
    for (std::size_t k = 0; k < st.outputs.size(); ++k) {
      // A later op may write the same storage: the last look counts.
      const planner::storage& s = g.at(g.op_at(st.op).outputs[k].storage);
      if (s.role != storage_role::feature_map || s.type != dtype::f32) continue;
      const auto* words = reinterpret_cast<const std::uint32_t*>(buffer_bytes(st.outputs[k]).data());
      const std::int64_t n = s.elements(g.batch);
      const std::int64_t zeros = std::count(words, words + n, 0U);
      density[g.op_at(st.op).outputs[k].storage] = static_cast<double>(n - zeros) / static_cast<double>(n);
    }
  }
  std::vector<stash_observation> result;
  for (const planner::storage_id s : density.ids()) {
    if (density[s] >= 0) result.push_back({s, density[s], 0, 0, true});
  }
  return result;
}

std::vector<stash_observation> executor::observations() const {
  std::vector<stash_observation> result;
  for (const planner::storage_id s : plan_.choices.ids()) {
    const planner::stash_choice& c = plan_.choices[s];
    if (!planner::kept_sparsely(c)) continue;
    const encode_report& r = reports_[s];
    const auto elements = static_cast<double>(plan_.network.storages[s].elements(plan_.network.batch));
    result.push_back({planner::storage_id(s), static_cast<double>(r.nonzeros) / elements, r.slot_bytes,
                      r.overflow_bytes, (r.status & status_capacity) == 0});
  }
  return result;
}

std::int64_t executor::touched_peak() const {
  return std::max<std::int64_t>(0, touched_peak_total() - maps_begin_);
}

std::int64_t executor::touched_peak_total() const {
  return static_cast<std::int64_t>(runtime::touched_bytes(arena_.data(), arena_.data() + arena_.bytes()));
}

}  // namespace stash::executor
