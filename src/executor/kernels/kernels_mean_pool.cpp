// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "executor/kernels/kernels.hpp"

namespace stash::executor {
namespace {

using planner::op_kind;

/// Average pooling over windows or over the whole map. A window's mean counts the taps inside the map only.
/// Forward gathers from the window, backward gathers from the windows that contain a pixel; both run in
/// row-major order per element, so nothing depends on the threads.
class mean_pool_kernel final : public kernel_base {
 public:
  explicit mean_pool_kernel(const kernel_setup& setup);

 protected:
  void execute(const kernel_operands& operands) override {
    if (forward_) {
      forward(operands);
    } else {
      backward(operands);
    }
  }

 private:
  struct span {
    std::int64_t begin, end;
  };
  /// Taps of the map that window `i` of one axis covers.
  static span taps(std::int64_t i, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                   std::int64_t extent) {
    return {std::max<std::int64_t>(i * stride - pad, 0), std::min(i * stride - pad + kernel, extent)};
  }
  /// Windows of one axis that cover tap `i`.
  static span windows(std::int64_t i, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                      std::int64_t count) {
    const std::int64_t first = i + pad - kernel + 1;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, std::min((i + pad) / stride + 1, count)};
  }
  span rows_of(std::int64_t oy) const { return taps(oy, kernel_h_, stride_h_, pad_top_, in_.h); }
  span columns_of(std::int64_t ox) const { return taps(ox, kernel_w_, stride_w_, pad_left_, in_.w); }

  void forward(const kernel_operands& operands) const;
  void backward(const kernel_operands& operands) const;

  bool forward_;
  std::int64_t kernel_h_, kernel_w_, stride_h_, stride_w_, pad_top_, pad_left_;
  sample_shape in_, out_;
};

mean_pool_kernel::mean_pool_kernel(const kernel_setup& setup)
    : kernel_base(setup),
      forward_(setup.op.kind == op_kind::avg_pool || setup.op.kind == op_kind::global_avg_pool) {
  const planner::tensor_ref &first = setup.op.inputs.at(0), &second = setup.op.outputs.at(0);
  in_ = input_shape_of(setup, forward_ ? first : second);
  out_ = output_shape_of(setup, forward_ ? second : first);
  if (setup.op.kind == op_kind::avg_pool || setup.op.kind == op_kind::avg_pool_backward) {
    const planner::op_attributes& a = setup.op.attributes;
    kernel_h_ = a.kernel_h;
    kernel_w_ = a.kernel_w;
    stride_h_ = a.stride_h;
    stride_w_ = a.stride_w;
    pad_top_ = a.pad_top;
    pad_left_ = a.pad_left;
  } else {
    kernel_h_ = stride_h_ = in_.h;
    kernel_w_ = stride_w_ = in_.w;
    pad_top_ = pad_left_ = 0;
  }
}

/// Channels summed at a time: the sums stay in registers or first-level cache, in double because a global
/// mean may cover thousands of pixels.
constexpr std::int64_t channel_block = 64;

void mean_pool_kernel::forward(const kernel_operands& operands) const {
  const tensor_view x = as_image(operands.inputs[0], batch(), in_),
                    y = as_image(operands.outputs[0], batch(), out_);
  parallel_ranges(context(), batch() * out_.h * out_.w, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pixel = begin; pixel < end; ++pixel) {
      const span rows = rows_of(pixel / out_.w % out_.h), columns = columns_of(pixel % out_.w);
      const std::int64_t base = pixel / (out_.w * out_.h) * in_.h;
      const auto count = static_cast<double>((rows.end - rows.begin) * (columns.end - columns.begin));
      for (std::int64_t c0 = 0; c0 < in_.c; c0 += channel_block) {
        const std::int64_t n = std::min(channel_block, in_.c - c0);
        std::array<double, channel_block> sums{};
        for (std::int64_t iy = rows.begin; iy < rows.end; ++iy) {
          for (std::int64_t ix = columns.begin; ix < columns.end; ++ix) {
            const float* values = x.as<float>() + ((base + iy) * in_.w + ix) * x.pitch() + c0;
            for (std::int64_t c = 0; c < n; ++c)
              sums[static_cast<std::size_t>(c)] += static_cast<double>(values[c]);
          }
        }
        float* to = y.as<float>() + pixel * y.pitch() + c0;
        for (std::int64_t c = 0; c < n; ++c)
          to[c] = static_cast<float>(sums[static_cast<std::size_t>(c)] / count);
      }
    }
  });
}

void mean_pool_kernel::backward(const kernel_operands& operands) const {
  const tensor_view dy = as_image(operands.inputs[0], batch(), out_),
                    dx = as_image(operands.outputs[0], batch(), in_);
  parallel_ranges(context(), batch() * in_.h * in_.w, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pixel = begin; pixel < end; ++pixel) {
      const std::int64_t sample = pixel / (in_.w * in_.h);
      const span down = windows(pixel / in_.w % in_.h, kernel_h_, stride_h_, pad_top_, out_.h);
      const span across = windows(pixel % in_.w, kernel_w_, stride_w_, pad_left_, out_.w);
      float* to = dx.as<float>() + pixel * dx.pitch();
      std::fill_n(to, in_.c, 0.0F);
      for (std::int64_t oy = down.begin; oy < down.end; ++oy) {
        for (std::int64_t ox = across.begin; ox < across.end; ++ox) {
          const span rows = rows_of(oy), columns = columns_of(ox);
          const auto count = static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
          const float* gradient = dy.as<float>() + ((sample * out_.h + oy) * out_.w + ox) * dy.pitch();
          for (std::int64_t c = 0; c < in_.c; ++c)
            to[c] += gradient[c] / count;
        }
      }
    }
  });
}

}  // namespace

kernel_pointer make_mean_pool_kernel(const kernel_setup& setup) {
  return std::make_unique<mean_pool_kernel>(setup);
}

}  // namespace stash::executor
