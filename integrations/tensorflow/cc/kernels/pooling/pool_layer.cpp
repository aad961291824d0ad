// SPDX-License-Identifier: Apache-2.0
#include "kernels/pooling/pool_layer.hpp"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/kernel.hpp"

namespace stash_tf {
namespace {

using dims = std::vector<std::int64_t>;

/// The positive numbers of the dimensions of space; those of batch and channels must be 1.
absl::Status take_space(absl::string_view op, absl::string_view argument,
                        const std::vector<std::int32_t>& list, std::size_t rank, std::size_t channels,
                        dims* space) {
  if (list.size() != rank) {
    return wrong(op, argument, absl::StrCat(rank, " numbers"), absl::StrCat(list.size()));
  }
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const bool of_space = axis != 0 && axis != channels;
    if (list[axis] < 1 || (!of_space && list[axis] != 1)) {
      return wrong(op, argument, of_space ? "positive numbers" : "1 for batch and channels",
                   absl::StrCat(list[axis]));
    }
    if (of_space) space->push_back(list[axis]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status pool_layer::make(absl::string_view op, const pool_attributes& a) {
  *this = {};
  const std::string& format = a.data_format;
  const std::size_t rank = format.size();
  if (format != "NHWC" && format != "NCHW" && format != "NDHWC" && format != "NCDHW") {
    return wrong(op, "data_format", "NHWC, NCHW, NDHWC or NCDHW", format);
  }
  channels_last_ = format.back() == 'C';
  const std::size_t channels = channels_last_ ? rank - 1 : 1;
  TF_RETURN_IF_ERROR(take_space(op, "ksize", a.ksize, rank, channels, &kernel_));
  TF_RETURN_IF_ERROR(take_space(op, "strides", a.strides, rank, channels, &stride_));
  std::int64_t taps = 1;
  const std::int64_t most = a.joint_relu ? 15 : 256;
  for (const std::int64_t kernel : kernel_) {
    taps *= kernel;
    if (taps > most) {
      return wrong(op, "ksize",
                   absl::StrCat("at most ", most, " taps", a.joint_relu ? " with joint_relu" : ""),
                   absl::StrCat(taps, " or more"));
    }
  }
  encoding_.kind = a.joint_relu ? STASH_KIND_RELU_POOL : STASH_KIND_WINDOW_INDEX;
  encoding_.window_taps = static_cast<std::int32_t>(taps);

  if (a.padding != "SAME" && a.padding != "VALID" && a.padding != "EXPLICIT") {
    return wrong(op, "padding", "SAME, VALID or EXPLICIT", a.padding);
  }
  padding_ = a.padding == "SAME" ? padding::same : a.padding == "VALID" ? padding::valid : padding::listed;
  const std::size_t numbers = padding_ == padding::listed ? 2 * rank : 0;
  if (a.explicit_paddings.size() != numbers) {
    return wrong(op, "explicit_paddings", absl::StrCat(numbers, " numbers for padding ", a.padding),
                 absl::StrCat(a.explicit_paddings.size()));
  }
  for (std::size_t i = 0; i < numbers; ++i) {
    const std::size_t axis = i / 2;
    const bool of_space = axis != 0 && axis != channels;
    const std::int64_t below = of_space ? kernel_[axis - first_axis()] : 1;
    if (a.explicit_paddings[i] < 0 || a.explicit_paddings[i] >= below) {
      return wrong(op, "explicit_paddings",
                   of_space ? "0 or more and less than the window" : "0 for batch and channels",
                   absl::StrCat(a.explicit_paddings[i]));
    }
    if (of_space) (i % 2 == 0 ? before_ : after_).push_back(a.explicit_paddings[i]);
  }
  return absl::OkStatus();
}

absl::Status pool_layer::output_dims(absl::string_view op, const dims& x, dims* y) const {
  if (x.size() != kernel_.size() + 2) {
    return wrong(op, "x", absl::StrCat(kernel_.size() + 2, " dimensions"), absl::StrCat(x.size()));
  }
  *y = x;
  for (std::size_t i = 0; i < kernel_.size(); ++i) {
    const std::int64_t in = x[first_axis() + i];
    std::int64_t& out = (*y)[first_axis() + i];
    if (in < 0) continue;
    if (padding_ == padding::same) {
      out = in / stride_[i] + (in % stride_[i] != 0 ? 1 : 0);
      continue;
    }
    const std::int64_t padded = in + (padding_ == padding::listed ? before_[i] + after_[i] : 0);
    if (padded + stride_[i] < kernel_[i]) {
      return wrong(op, "x", absl::StrCat("a size of at least ", kernel_[i], " with its padding"),
                   absl::StrCat(padded));
    }
    out = (padded - kernel_[i] + stride_[i]) / stride_[i];
  }
  return absl::OkStatus();
}

std::int64_t pool_layer::pad_before(std::size_t axis, std::int64_t in, std::int64_t out) const {
  if (padding_ == padding::valid) return 0;
  if (padding_ == padding::listed) return before_[axis];
  return std::max<std::int64_t>(0, (out - 1) * stride_[axis] + kernel_[axis] - in) / 2;
}

stash_pool_window pool_layer::window(const dims& x, const dims& y) const {
  auto window = STASH_INIT(stash_pool_window);
  const std::size_t plane = kernel_.size() - 2;
  const auto pad = [&](std::size_t i) {
    return static_cast<std::int32_t>(pad_before(i, x[first_axis() + i], y[first_axis() + i]));
  };
  window.kernel_h = static_cast<std::int32_t>(kernel_[plane]);
  window.kernel_w = static_cast<std::int32_t>(kernel_[plane + 1]);
  window.stride_h = static_cast<std::int32_t>(stride_[plane]);
  window.stride_w = static_cast<std::int32_t>(stride_[plane + 1]);
  window.pad_top = pad(plane);
  window.pad_left = pad(plane + 1);
  if (plane == 1) {
    window.kernel_d = static_cast<std::int32_t>(kernel_[0]);
    window.stride_d = static_cast<std::int32_t>(stride_[0]);
    window.pad_front = pad(0);
  }
  window.layout = channels_last_ ? STASH_LAYOUT_CHANNELS_LAST : STASH_LAYOUT_CHANNELS_FIRST;
  return window;
}

void pool_layer::for_each_tap(const dims& x, const dims& y, std::int64_t element,
                              const std::function<void(std::int64_t)>& visit) const {
  dims index(y.size());
  for (std::size_t axis = y.size(); axis-- > 0; element /= y[axis])
    index[axis] = element % y[axis];
  // Without depth the outermost loop has one turn.
  std::array<std::int64_t, 3> begin{0, 0, 0}, end{1, 1, 1}, step{0, 0, 0};
  std::int64_t pitch = 1;
  std::int64_t base = 0;
  const std::size_t missing = 3 - kernel_.size();
  for (std::size_t axis = x.size(); axis-- > 0; pitch *= x[axis]) {
    if (axis < first_axis() || axis >= first_axis() + kernel_.size()) {
      base += index[axis] * pitch;
      continue;
    }
    const std::size_t i = axis - first_axis();
    const std::int64_t start = index[axis] * stride_[i] - pad_before(i, x[axis], y[axis]);
    begin[missing + i] = std::max<std::int64_t>(start, 0);
    end[missing + i] = std::min(start + kernel_[i], x[axis]);
    step[missing + i] = pitch;
  }
  for (std::int64_t d = begin[0]; d < end[0]; ++d) {
    for (std::int64_t h = begin[1]; h < end[1]; ++h) {
      for (std::int64_t w = begin[2]; w < end[2]; ++w)
        visit(base + d * step[0] + h * step[1] + w * step[2]);
    }
  }
}

}  // namespace stash_tf
