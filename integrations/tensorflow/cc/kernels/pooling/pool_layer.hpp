// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The attributes of a pooling layer, and the shapes and windows that follow from them. Shape functions and
/// kernels share it, so that they agree.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "stash/c_api.h"

namespace stash_tf {

/// Values of the attributes, as they are in the graph.
struct pool_attributes {
  std::vector<std::int32_t> ksize, strides;
  std::string padding, data_format;
  std::vector<std::int64_t> explicit_paddings;
  bool joint_relu = false;

  /// Reads them from an OpKernelConstruction or an InferenceContext.
  template <class Context>
  absl::Status read(Context* context) {
    absl::Status status = context->GetAttr("ksize", &ksize);
    status.Update(context->GetAttr("strides", &strides));
    status.Update(context->GetAttr("padding", &padding));
    status.Update(context->GetAttr("data_format", &data_format));
    status.Update(context->GetAttr("explicit_paddings", &explicit_paddings));
    status.Update(context->GetAttr("joint_relu", &joint_relu));
    return status;
  }
};

/// Max pooling over two or three dimensions.
class pool_layer {
 public:
  /// `op` stands in the messages.
  absl::Status make(absl::string_view op, const pool_attributes& attributes);

  /// 4 or 5.
  int rank() const { return static_cast<int>(kernel_.size()) + 2; }
  bool is_channels(int axis) const { return axis == (channels_last_ ? rank() - 1 : 1); }
  /// The encoding of what the forward pass stores.
  const stash_encoding& encoding() const { return encoding_; }
  bool joint_relu() const { return encoding_.kind == STASH_KIND_RELU_POOL; }

  /// The shape of y for one of x; -1 is a size that is not known.
  absl::Status output_dims(absl::string_view op, const std::vector<std::int64_t>& x,
                           std::vector<std::int64_t>* y) const;
  /// The window for the core; all sizes are known.
  stash_pool_window window(const std::vector<std::int64_t>& x, const std::vector<std::int64_t>& y) const;

  /// Calls visit(offset in x) for the taps of the window of element `element` of y that lie in x, in order.
  void for_each_tap(const std::vector<std::int64_t>& x, const std::vector<std::int64_t>& y,
                    std::int64_t element, const std::function<void(std::int64_t offset)>& visit) const;

 private:
  enum class padding { same, valid, listed };

  std::size_t first_axis() const { return channels_last_ ? 1 : 2; }
  std::int64_t pad_before(std::size_t axis, std::int64_t in, std::int64_t out) const;

  // One element for each dimension of space, outermost first.
  std::vector<std::int64_t> kernel_, stride_, before_, after_;
  padding padding_ = padding::valid;
  bool channels_last_ = true;
  stash_encoding encoding_ = STASH_INIT(stash_encoding);
};

}  // namespace stash_tf
