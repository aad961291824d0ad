// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What tf.nn.max_pool makes of NaN and -infinity on the CPU.

#include <cstdint>
#include <vector>

#include "kernels/core_call.hpp"
#include "kernels/pooling/pool_layer.hpp"

namespace stash_tf {

/// The forward pooling of TensorFlow does not follow the rule of its own gradient, which is the core's (a NaN
/// that is a window's first tap wins it): over two dimensions it begins with the lowest finite number and
/// passes over every NaN, so that neither NaN nor -infinity come out. This makes such values of y what
/// TensorFlow has. Over three dimensions they depend on how TensorFlow cuts its loops, and y keeps what the
/// core has.
void follow_host_nan_rule(const pool_layer& layer, const tensorflow::Tensor& x,
                          const std::vector<std::int64_t>& x_dims, tensorflow::Tensor* y,
                          const std::vector<std::int64_t>& y_dims, const stash_execution_context& context);

}  // namespace stash_tf
