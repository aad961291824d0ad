// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "executor/kernels/kernels.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// Softmax and cross-entropy with integer labels, mean over the batch, and its gradient.
class loss_kernel final : public kernel_base {
 public:
  explicit loss_kernel(const kernel_setup& setup);

 protected:
  void execute(const kernel_operands& operands) override {
    if (forward_) {
      forward(operands);
    } else {
      backward(operands);
    }
  }

 private:
  /// What one sample adds to the loss and to the count of right predictions.
  struct verdict {
    double loss;
    std::int64_t correct;
  };
  void check_labels(const tensor_view& labels) const;
  void forward(const kernel_operands& operands) const;
  void backward(const kernel_operands& operands) const;

  bool forward_;
  std::int64_t whole_batch_, classes_;
  std::int64_t verdicts_at_ = 0;
};

loss_kernel::loss_kernel(const kernel_setup& setup)
    : kernel_base(setup),
      forward_(setup.op.kind == op_kind::softmax_cross_entropy),
      whole_batch_(setup.graph.batch),
      classes_(shape_of(setup, setup.op.outputs.at(0)).elements()) {
  if (forward_) verdicts_at_ = reserve(batch() * static_cast<std::int64_t>(sizeof(verdict)));
}

void loss_kernel::check_labels(const tensor_view& labels) const {
  for (std::int64_t i = 0; i < batch(); ++i) {
    const std::int64_t label = labels.as<std::int32_t>()[i];
    if (label < 0 || label >= classes_) {
      fail(errc::invalid_argument,
           fmt::format("expected labels in [0, {}), got {} for sample {}", classes_, label, i));
    }
  }
}

void loss_kernel::forward(const kernel_operands& operands) const {
  const tensor_view &logits = operands.inputs[0], &labels = operands.inputs[1],
                    &probabilities = operands.outputs[0];
  check_labels(labels);
  auto* verdicts = at<verdict>(operands, verdicts_at_);
  parallel_ranges(context(), batch(), std::max<std::int64_t>(1, 1024 / classes_),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      const float* z = logits.as<float>() + i * logits.pitch();
                      float* p = probabilities.as<float>() + i * probabilities.pitch();
                      const std::int64_t label = labels.as<std::int32_t>()[i];
                      const std::int64_t best = std::max_element(z, z + classes_) - z;
                      const float top = z[best];
                      const double target = static_cast<double>(z[label]) - static_cast<double>(top);
                      double sum = 0.0;
                      for (std::int64_t c = 0; c < classes_; ++c) {
                        p[c] = std::exp(z[c] - top);  // may overwrite z[c]
                        sum += static_cast<double>(p[c]);
                      }
                      for (std::int64_t c = 0; c < classes_; ++c)
                        p[c] = static_cast<float>(static_cast<double>(p[c]) / sum);
                      verdicts[i] = {std::log(sum) - target, best == label ? 1 : 0};
                    }
                  });
  verdict total{0.0, 0};
  for (std::int64_t i = 0; i < batch(); ++i) {
    total.loss += verdicts[i].loss;
    total.correct += verdicts[i].correct;
  }
  if (operands.loss != nullptr) *operands.loss = total.loss / static_cast<double>(whole_batch_);
  if (operands.correct != nullptr) *operands.correct = total.correct;
}

void loss_kernel::backward(const kernel_operands& operands) const {
  const tensor_view &labels = operands.inputs[0], &gradient = operands.outputs[0];
  const const_tensor_view& probabilities = dense_stash(operands, 0);
  check_labels(labels);
  const auto scale = static_cast<float>(whole_batch_);
  parallel_ranges(context(), batch(), std::max<std::int64_t>(1, loop_grain / classes_),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      const float* p = probabilities.as<float>() + i * probabilities.pitch();
                      float* g = gradient.as<float>() + i * gradient.pitch();
                      const std::int64_t label = labels.as<std::int32_t>()[i];
                      const float target = (p[label] - 1.0F) / scale;  // before p is overwritten in place
                      for (std::int64_t c = 0; c < classes_; ++c)
                        g[c] = p[c] / scale;
                      g[label] = target;
                    }
                  });
}

}  // namespace

kernel_pointer make_loss_kernel(const kernel_setup& setup) {
  return std::make_unique<loss_kernel>(setup);
}

}  // namespace stash::executor
