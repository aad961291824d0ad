// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

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

/// Staged operands (pixels, channel slices) are converted or copied in parts of about this size.
constexpr std::int64_t staging_bytes = std::int64_t{1} << 20;

direction direction_of(op_kind kind) {
  if (kind == op_kind::conv2d) return direction::forward;
  return kind == op_kind::conv2d_backward_data ? direction::backward_data : direction::backward_weights;
}

planner::tensor_ref source_ref(const planner::op& o) {
  switch (o.kind) {
    case op_kind::conv2d:
      return o.inputs.at(0);
    case op_kind::conv2d_backward_data:
      return o.outputs.at(0);
    default:
      return o.alternatives.at(0).reads.at(0).slice;
  }
}

planner::tensor_ref destination_ref(const planner::op& o) {
  return o.kind == op_kind::conv2d ? o.outputs.at(0) : o.inputs.at(0);
}

/// All three directions of a convolution. The library has fast code for dense channels-last f32 data only, so
/// an image or a channel slice goes through a dense staging buffer, a few samples at a time; everything else
/// is used where it lies, the whole batch in one call.
class convolution_kernel final : public kernel_base {
 public:
  explicit convolution_kernel(const kernel_setup& setup);
  std::string implementation() const override { return main_->implementation(); }

 protected:
  void execute(const kernel_operands& operands) override;

 private:
  void run_parts(const const_tensor_view& source, const const_tensor_view& destination, const float* bias,
                 const kernel_operands& operands);
  void add_part(float* total, const float* part) const;

  direction way_;
  sample_shape source_shape_, destination_shape_;
  bool image_ = false;
  bool source_staged_ = false, destination_staged_ = false;
  bool forward_bias_ = false, bias_gradient_ = false;
  std::int64_t part_ = 0;  ///< samples per call of the library
  std::optional<onednn::convolution> main_, tail_;
  std::optional<onednn::reorder> reorder_;
  std::int64_t source_at_ = 0, destination_at_ = 0, weights_at_ = 0, part_weights_at_ = 0, scratchpad_at_ = 0,
               sums_at_ = 0;
};

convolution_kernel::convolution_kernel(const kernel_setup& setup)
    : kernel_base(setup),
      way_(direction_of(setup.op.kind)),
      source_shape_(input_shape_of(setup, source_ref(setup.op))),
      destination_shape_(output_shape_of(setup, destination_ref(setup.op))) {
  const planner::op& o = setup.op;
  const planner::op_attributes& a = o.attributes;
  image_ = setup.graph.at(source_ref(o).storage).type == dtype::u8;
  source_staged_ = image_ || !source_shape_.dense();
  destination_staged_ = !destination_shape_.dense();
  forward_bias_ = way_ == direction::forward && o.parameters.size() > 1;
  bias_gradient_ = way_ == direction::backward_weights && o.parameters_written.size() > 1;

  const std::int64_t staged = (source_staged_ ? source_shape_.elements() : 0) +
                              (destination_staged_ ? destination_shape_.elements() : 0);
  part_ = batch();
  if (staged > 0) {
    part_ = std::clamp<std::int64_t>(staging_bytes / (staged * 4), 1, batch());
    // Parts of an operand that is used in place then start 16-byte aligned, whatever its shape.
    if (part_ < batch() && part_ >= 4) part_ -= part_ % 4;
  }

  onednn::convolution_shape shape;
  shape.batch = part_;
  shape.in_channels = source_shape_.c;
  shape.in_h = source_shape_.h;
  shape.in_w = source_shape_.w;
  shape.out_channels = destination_shape_.c;
  shape.out_h = destination_shape_.h;
  shape.out_w = destination_shape_.w;
  shape.kernel_h = a.kernel_h;
  shape.kernel_w = a.kernel_w;
  shape.stride_h = a.stride_h;
  shape.stride_w = a.stride_w;
  shape.pad_top = a.pad_top;
  shape.pad_left = a.pad_left;
  shape.pad_bottom = a.pad_bottom;
  shape.pad_right = a.pad_right;
  shape.groups = a.groups;

  const onednn::thread_scope scope(threads());
  main_.emplace(way_, shape, forward_bias_);
  if (batch() % part_ != 0) {
    onednn::convolution_shape rest = shape;
    rest.batch = batch() % part_;
    tail_.emplace(way_, rest, forward_bias_, main_->weights());
  }
  const dnnl::memory::desc plain = onednn::plain_weights(shape);
  if (way_ == direction::backward_weights) {
    reorder_.emplace(main_->weights(), plain);
  } else {
    reorder_.emplace(plain, main_->weights());
  }

  if (source_staged_) source_at_ = reserve(part_ * source_shape_.elements() * 4);
  if (destination_staged_) destination_at_ = reserve(part_ * destination_shape_.elements() * 4);
  weights_at_ = reserve(main_->weights_bytes());
  if (way_ == direction::backward_weights && part_ < batch())
    part_weights_at_ = reserve(main_->weights_bytes());
  const std::int64_t pixels = batch() * destination_shape_.h * destination_shape_.w;
  if (bias_gradient_) sums_at_ = reserve(reduction_bytes(pixels, destination_shape_.c));
  scratchpad_at_ = reserve(std::max(
      {main_->scratchpad_bytes(), tail_ ? tail_->scratchpad_bytes() : 0, reorder_->scratchpad_bytes()}));
}

void convert_pixels(const const_tensor_view& image, const tensor_view& to, const execution_context& context) {
  for_each_chunk(context, image.elements(), image.dims.inner(), image.dense() && to.dense(),
                 [&](std::int64_t first, std::int64_t length) {
                   const auto* p = element<std::uint8_t>(image, first);
                   auto* values = element<float>(to, first);
                   for (std::int64_t i = 0; i < length; ++i)
                     values[i] = (static_cast<float>(p[i]) - 128.0F) / 64.0F;
                 });
}

void convolution_kernel::add_part(float* total, const float* part) const {
  parallel_ranges(context(), main_->weights_bytes() / 4, loop_grain,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i)
                      total[i] += part[i];
                  });
}

void convolution_kernel::run_parts(const const_tensor_view& source, const const_tensor_view& destination,
                                   const float* bias, const kernel_operands& operands) {
  auto* total = at<float>(operands, weights_at_);
  void* scratchpad = at<float>(operands, scratchpad_at_);
  const auto staged = [&](std::int64_t offset, std::int64_t count, const sample_shape& s) {
    tensor_view view{at<float>(operands, offset), dtype::f32};
    view.dims = shape({count, s.h, s.w, s.c});
    return view;
  };
  for (std::int64_t begin = 0; begin < batch(); begin += part_) {
    const std::int64_t count = std::min(part_, batch() - begin);
    const const_tensor_view x = samples(source, begin, count), y = samples(destination, begin, count);
    const float* src = x.as<float>();
    const float* dst = y.as<float>();
    if (source_staged_) {
      const tensor_view stage = staged(source_at_, count, source_shape_);
      src = stage.as<float>();
      if (image_) {
        convert_pixels(x, stage, context());
      } else if (way_ != direction::backward_data) {
        copy_view(x, stage, context());
      }
    }
    if (destination_staged_) {
      const tensor_view stage = staged(destination_at_, count, destination_shape_);
      dst = stage.as<float>();
      if (way_ != direction::forward) copy_view(y, stage, context());
    }
    const bool sum = way_ == direction::backward_weights && begin > 0;
    float* weights = sum ? at<float>(operands, part_weights_at_) : total;
    (count == part_ ? *main_ : *tail_).run(src, weights, bias, dst, scratchpad);
    if (sum) add_part(total, weights);
    if (way_ == direction::forward && destination_staged_) {
      copy_view(staged(destination_at_, count, destination_shape_),
                samples(as_image(operands.outputs[0], batch(), destination_shape_), begin, count), context());
    }
    if (way_ == direction::backward_data && source_staged_) {
      copy_view(staged(source_at_, count, source_shape_),
                samples(as_image(operands.outputs[0], batch(), source_shape_), begin, count), context());
    }
  }
}

void convolution_kernel::execute(const kernel_operands& operands) {
  const const_tensor_view source =
      as_image<const_tensor_view>(way_ == direction::forward         ? const_tensor_view(operands.inputs[0])
                                  : way_ == direction::backward_data ? const_tensor_view(operands.outputs[0])
                                                                     : dense_stash(operands, 0),
                                  batch(), source_shape_);
  const const_tensor_view destination = as_image<const_tensor_view>(
      way_ == direction::forward ? operands.outputs[0] : operands.inputs[0], batch(), destination_shape_);
  if ((!source_staged_ && !source.dense()) || (!destination_staged_ && !destination.dense())) {
    fail(errc::invalid_argument,
         "expected pitched views only where the graph has a channel slice, got one elsewhere");
  }
  const onednn::thread_scope scope(threads());
  auto* weights = at<float>(operands, weights_at_);
  void* scratchpad = at<float>(operands, scratchpad_at_);
  if (way_ != direction::backward_weights) reorder_->run(operands.parameters[0], weights, scratchpad);
  run_parts(source, destination, forward_bias_ ? operands.parameters[1] : nullptr, operands);
  if (way_ == direction::backward_weights) {
    reorder_->run(weights, operands.parameters_written[0], scratchpad);
    if (bias_gradient_) {
      sum_pixels(destination, operands.parameters_written[1], at<double>(operands, sums_at_), context());
    }
  }
}

}  // namespace

kernel_pointer make_convolution_kernel(const kernel_setup& setup) {
  return std::make_unique<convolution_kernel>(setup);
}

}  // namespace stash::executor
