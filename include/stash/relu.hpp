// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// ReLU, leaky ReLU and clipping (ReLU6, hardtanh) with a 1-bit stash. Shapes: all tensors of one call have
/// the same element count and one type, f32, f16 or bf16; dense or pitched. 16-bit values are computed with
/// in f32 and rounded once, to nearest even, to infinity beyond the largest number (only leaky ReLU rounds
/// numbers at all; clipping writes NaNs anew). None of the calls allocates. What may overlap: encoding.hpp.
/// Elements are independent, so results do not depend on threads.
///
/// Only the product of leaky ReLU is made in the thread's denormal mode: in one that takes denormals for
/// zeros, a scaled denormal of f32 or bf16, or a product that would be one, is the zero of its sign. All
/// else, masks and the order of bounds included, looks at the bits, in which a positive denormal is positive.

#include "stash/encoding.hpp"

namespace stash {

/// y = x > 0 ? x : +0, NaN stays NaN (its bits unchanged); y may be x (in place).
/// `mask`, if its data is not null, receives the sign_mask of y under `rule` (see encoding.hpp); its `bytes`
/// must reach encoded_bytes_bound(sign_mask). Throws error(invalid_argument / capacity_exceeded).
STASH_API void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                            framework_rule rule, const execution_context& context);

/// dx = gradient passes ? dy : +0, from any stash of y that keeps the sign: sign_mask, bitmap or csr (any
/// values), cast with keep_nonzero (any format), raw. dx may be dy. `stash` has as many elements as dy, and
/// but for masks its type. A bitmap or csr whose report carries flag_mask_is_not_sign is read through its
/// values, so the result is exact but for 6- and 4-bit MX values next to a NaN: it takes its group along, and
/// the gradients of all of them are those of NaN (docs/format.md, "Sign of a stashed ReLU output"). For
/// sign_mask the rule was applied by the encoder and `stash.how.rule` is not looked at again. Errors: as
/// encode(); corrupt bytes set the report's status.
STASH_API void relu_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                             framework_rule rule, const execution_context& context);

/// The same from the dense y (what an unplanned run does). dx may be dy.
STASH_API void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                             framework_rule rule, const execution_context& context);

/// y = x > 0 ? x : slope * x (NaN stays NaN); y may be x. `mask`, if its data is not null, receives the
/// sign_mask of x under the tensorflow rule: in both frameworks the gradient of a NaN is scaled.
/// Any finite slope. Throws error(invalid_argument / capacity_exceeded).
STASH_API void leaky_relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                                  float slope, const execution_context& context);

/// dx = x > 0 ? dy : slope * dy, from a stash of x, or for slope > 0 of y, that keeps the sign: as
/// relu_backward. dx may be dy.
STASH_API void leaky_relu_backward(const const_tensor_view& dy, const encoded_tensor& stash,
                                   const tensor_view& dx, float slope, const execution_context& context);

/// The same from the dense x, or for slope > 0 from the dense y.
STASH_API void leaky_relu_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                   const tensor_view& dx, float slope, const execution_context& context);

/// y = x < lower ? lower : x > upper ? upper : x (NaN stays NaN, but of 16 bits becomes the one that rounding
/// writes: docs/format.md, "Narrow values"; -0 stays -0 unless it is below `lower`, and
/// ReLU6's lower bound 0 leaves -0); y may be x. `mask`, if its data is not null, receives the range_mask
/// of x. ReLU6 is lower 0, upper 6. lower < upper, else error(invalid_argument).
/// In all calls that clip, the bounds are first rounded to the map's type, to nearest even and saturating
/// (docs/format.md, "range_mask"): a clipped value is a bound, and no gradient passes there.
STASH_API void clip_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                            float lower, float upper, framework_rule rule, const execution_context& context);

/// dx = lower < x < upper ? dy : +0 (NaN: by the rule), from range_mask (its bounds and rule were applied by
/// the encoder and are not looked at again), or from any lossless value encoding (raw, bitmap, csr) of x or
/// y, which give the same dx. dx may be dy.
STASH_API void clip_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                             float lower, float upper, framework_rule rule, const execution_context& context);

/// The same from the dense x or y.
STASH_API void clip_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                             float lower, float upper, framework_rule rule, const execution_context& context);

}  // namespace stash
