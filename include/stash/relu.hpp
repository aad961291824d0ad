#pragma once
/// \file
/// ReLU with a 1-bit stash. Shapes: all tensors f32 with the same element count; dense or pitched.
/// None of the calls allocates. Elements are independent, so results do not depend on threads.

#include "stash/encoding.hpp"

namespace stash {

/// y = x > 0 ? x : +0, NaN stays NaN (its bits unchanged); y may be x (in place).
/// `mask`, if its data is not null, receives the sign_mask of y under `rule` (see encoding.hpp); its `bytes`
/// must reach encoded_bytes_bound(sign_mask). Throws error(invalid_argument / capacity_exceeded).
void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                  framework_rule rule, const execution_context& context);

/// dx = gradient passes ? dy : +0, from any stash of y that keeps the sign: sign_mask, bitmap (any values),
/// cast with keep_nonzero (fp16, fp8). dx may be dy. `stash` describes all elements of y in order.
/// A bitmap whose report carries flag_mask_is_not_sign is read through its values, so the result is exact.
/// For sign_mask the rule was applied by the encoder and `e.rule` is not looked at again.
/// Errors: as encode(); corrupt bytes set the report's status.
void relu_backward(const const_tensor_view& dy, const encoding& e, const const_encoded_view& stash,
                   const tensor_view& dx, framework_rule rule, const execution_context& context);

/// The same from the dense y (what an unplanned run does). dx may be dy.
void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                   framework_rule rule, const execution_context& context);

}  // namespace stash
