// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The elementwise part of batch normalisation, shared by the forward kernel and by recomputation, so that a
/// recomputed map has the forward's bits.

#include "stash/encoding.hpp"

namespace stash::executor {

/// One value per channel each.
struct batch_norm_parameters {
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* inverse_deviation = nullptr;
};

/// The one formula of the normalised value, in this order of operations.
inline float batch_norm_value(float x, float scale, float shift, float mean,
                              float inverse_deviation) noexcept {
  return (x - mean) * (scale * inverse_deviation) + shift;
}

/// ReLU as relu_forward does it: +0 for values not above zero, NaN stays.
inline float rectified(float value) noexcept {
  return value <= 0.0F ? 0.0F : value;
}

/// y = batch_norm_value of every element of x (f32, NHWC, dense or pitched), through ReLU if `relu`;
/// y may be x. Results do not depend on threads.
void batch_norm_apply(const const_tensor_view& x, const tensor_view& y,
                      const batch_norm_parameters& parameters, bool relu, const execution_context& context);

/// The same for a source that was rounded: `mask` (sign_mask of the forward's ReLU output, all elements of y
/// in order) decides instead of the ReLU: the value where the bit is set, +0 elsewhere. Throws
/// error(capacity_exceeded) if the mask is shorter than y.
void batch_norm_apply(const const_tensor_view& x, const tensor_view& y,
                      const batch_norm_parameters& parameters, const const_encoded_view& mask,
                      const execution_context& context);

}  // namespace stash::executor
