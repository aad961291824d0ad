// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "executor/kernels/kernels.hpp"
#include "executor/kernels/onednn.hpp"
#include "executor/kernels/reduction.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

using onednn::direction;
using planner::op_kind;

/// Weights in the library's order are held for about this many bytes at a time.
constexpr std::int64_t block_bytes = std::int64_t{4} << 20;
constexpr std::int64_t block_multiple = 64;

direction direction_of(op_kind kind) {
  if (kind == op_kind::dense) return direction::forward;
  return kind == op_kind::dense_backward_data ? direction::backward_data : direction::backward_weights;
}

const planner::tensor_ref& source_ref(const planner::op& o) {
  switch (o.kind) {
    case op_kind::dense:
      return o.inputs.at(0);
    case op_kind::dense_backward_data:
      return o.outputs.at(0);
    default:
      return o.alternatives.at(0).reads.at(0).slice;
  }
}

const planner::tensor_ref& destination_ref(const planner::op& o) {
  return o.kind == op_kind::dense ? o.outputs.at(0) : o.inputs.at(0);
}

/// A 1x1 convolution whose pixels are the samples.
onednn::convolution_shape one_by_one(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  onednn::convolution_shape s;
  s.in_channels = inputs;
  s.out_channels = outputs;
  s.in_w = s.out_w = rows;
  return s;
}

/// Prepared calls for one block of weights.
struct block_calls {
  block_calls(direction way, const onednn::convolution_shape& shape, std::int64_t weight_pitch, bool bias)
      : work(way, shape, bias),
        arrange(way == direction::backward_weights
                    ? onednn::reorder(work.weights(), onednn::plain_weights(shape, weight_pitch))
                    : onednn::reorder(onednn::plain_weights(shape, weight_pitch), work.weights())) {}
  std::int64_t scratchpad_bytes() const {
    return std::max(work.scratchpad_bytes(), arrange.scratchpad_bytes());
  }

  onednn::convolution work;
  onednn::reorder arrange;
};

/// All three directions of a fully connected layer as 1x1 convolutions: unlike the library's matrix product,
/// which packs its operands into megabytes that it allocates while running, they need only memory that is
/// known beforehand. Weights are reordered and used in blocks of outputs (for the input gradient: of inputs),
/// so the workspace stays small compared with the weights of a large layer.
class dense_kernel final : public kernel_base {
 public:
  explicit dense_kernel(const kernel_setup& setup);
  std::string implementation() const override { return main_->work.implementation(); }

 protected:
  void execute(const kernel_operands& operands) override;

 private:
  void run_block(std::int64_t begin, const tensor_view& x, const tensor_view& y,
                 const kernel_operands& operands);

  direction way_;
  sample_shape source_shape_, destination_shape_;
  std::int64_t inputs_, outputs_;
  bool bias_ = false, bias_gradient_ = false;
  std::int64_t block_ = 0, whole_ = 0;  ///< outputs per block and in all; inputs for the input gradient
  std::optional<block_calls> main_, tail_;
  std::int64_t source_at_ = 0, destination_at_ = 0, block_at_ = 0, weights_at_ = 0, scratchpad_at_ = 0,
               sums_at_ = 0;
};

dense_kernel::dense_kernel(const kernel_setup& setup)
    : kernel_base(setup),
      way_(direction_of(setup.op.kind)),
      source_shape_(shape_of(setup, source_ref(setup.op))),
      destination_shape_(shape_of(setup, destination_ref(setup.op))),
      inputs_(source_shape_.elements()),
      outputs_(destination_shape_.elements()) {
  bias_ = way_ == direction::forward && setup.op.parameters.size() > 1;
  bias_gradient_ = way_ == direction::backward_weights && setup.op.parameters_written.size() > 1;
  const bool by_inputs = way_ == direction::backward_data;
  whole_ = by_inputs ? inputs_ : outputs_;
  const std::int64_t fitting =
      block_bytes / ((by_inputs ? outputs_ : inputs_) * 4) / block_multiple * block_multiple;
  block_ = std::min(whole_, std::max(block_multiple, fitting));

  const onednn::thread_scope scope(threads());
  const auto prepare = [&](std::optional<block_calls>& calls, std::int64_t size) {
    calls.emplace(way_, one_by_one(batch(), by_inputs ? size : inputs_, by_inputs ? outputs_ : size), inputs_,
                  bias_);
  };
  prepare(main_, block_);
  if (whole_ % block_ != 0) prepare(tail_, whole_ % block_);

  if (!source_shape_.dense()) source_at_ = reserve(batch() * inputs_ * 4);
  if (!destination_shape_.dense()) destination_at_ = reserve(batch() * outputs_ * 4);
  if (block_ < whole_) block_at_ = reserve(batch() * block_ * 4);
  weights_at_ = reserve(std::max(main_->work.weights_bytes(), tail_ ? tail_->work.weights_bytes() : 0));
  scratchpad_at_ = reserve(std::max(main_->scratchpad_bytes(), tail_ ? tail_->scratchpad_bytes() : 0));
  if (bias_gradient_) sums_at_ = reserve(reduction_bytes(batch(), outputs_));
}

tensor_view columns(const tensor_view& view, std::int64_t begin, std::int64_t count) {
  return matrix(view.as<float>() + begin, view.dims[0], count, view.pitch());
}

void dense_kernel::run_block(std::int64_t begin, const tensor_view& x, const tensor_view& y,
                             const kernel_operands& operands) {
  const std::int64_t size = std::min(block_, whole_ - begin);
  block_calls& calls = size == block_ ? *main_ : *tail_;
  auto* weights = at<float>(operands, weights_at_);
  void* scratchpad = at<float>(operands, scratchpad_at_);
  // A block is a range of columns of y (of x for the input gradient); the library wants it dense.
  const tensor_view slice = columns(way_ == direction::backward_data ? x : y, begin, size);
  const tensor_view block = block_ < whole_ ? matrix(at<float>(operands, block_at_), batch(), size) : slice;
  const bool copied = block_ < whole_;
  switch (way_) {
    case direction::forward:
      calls.arrange.run(operands.parameters[0] + begin * inputs_, weights, scratchpad);
      calls.work.run(x.as<float>(), weights, bias_ ? operands.parameters[1] + begin : nullptr,
                     block.as<float>(), scratchpad);
      if (copied) copy_view(block, slice, context());
      break;
    case direction::backward_data:
      calls.arrange.run(operands.parameters[0] + begin, weights, scratchpad);
      calls.work.run(block.as<float>(), weights, nullptr, y.as<float>(), scratchpad);
      if (copied) copy_view(block, slice, context());
      break;
    case direction::backward_weights:
      if (copied) copy_view(slice, block, context());
      calls.work.run(x.as<float>(), weights, nullptr, block.as<float>(), scratchpad);
      calls.arrange.run(weights, operands.parameters_written[0] + begin * inputs_, scratchpad);
      break;
  }
}

void dense_kernel::execute(const kernel_operands& operands) {
  const bool forward = way_ == direction::forward, to_data = way_ == direction::backward_data;
  const const_tensor_view source = forward   ? const_tensor_view(operands.inputs[0])
                                   : to_data ? const_tensor_view(operands.outputs[0])
                                             : dense_stash(operands, 0);
  const const_tensor_view destination = forward ? operands.outputs[0] : operands.inputs[0];
  if (source.dense() != source_shape_.dense() || destination.dense() != destination_shape_.dense()) {
    fail(errc::invalid_argument, "expected pitched views exactly where the graph has a channel slice");
  }
  const onednn::thread_scope scope(threads());
  // The matrices are read or written depending on the direction; outputs are writable to begin with.
  const auto as_matrix = [&](const const_tensor_view& view, const sample_shape& s, std::int64_t stage,
                             bool read) {
    if (s.dense()) return matrix(const_cast<float*>(view.as<float>()), batch(), s.elements());
    tensor_view copy{at<float>(operands, stage), dtype::f32, memory_space::host, view.dims};
    if (read) copy_view(view, copy, context());
    return matrix(copy.as<float>(), batch(), s.elements());
  };
  const tensor_view x = as_matrix(source, source_shape_, source_at_, !to_data);
  const tensor_view y = as_matrix(destination, destination_shape_, destination_at_, !forward);
  for (std::int64_t begin = 0; begin < whole_; begin += block_)
    run_block(begin, x, y, operands);
  if ((forward && !destination_shape_.dense()) || (to_data && !source_shape_.dense())) {
    const tensor_view& output = operands.outputs[0];
    const_tensor_view result = output;
    result.data = (forward ? y : x).data;
    result.pixel_pitch = 0;
    copy_view(result, output, context());
  }
  if (bias_gradient_)
    sum_pixels(y, operands.parameters_written[1], at<double>(operands, sums_at_), context());
}

}  // namespace

kernel_pointer make_dense_kernel(const kernel_setup& setup) {
  return std::make_unique<dense_kernel>(setup);
}

}  // namespace stash::executor
