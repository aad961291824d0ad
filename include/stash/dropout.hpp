// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Dropout with a 1-bit mask, or with no mask at all: the keep decision of element i is a pure function of
/// (key, i), by the counter-based generator Philox4x32-10 (Salmon et al., SC'11), pinned in docs/format.md.
///
/// Shapes: both tensors of a call have the same element count and one type, f32, f16 or bf16; dense or
/// pitched. "v / (1 - probability)" below is exactly v * scale in f32, where scale is the double quotient
/// 1 / (1 - probability) rounded to f32; of 16 bits that product is rounded to the type, to nearest even, to
/// infinity beyond the largest number. A NaN becomes the one that rounding writes (docs/format.md,
/// "dropout"). In a thread that takes denormals for zeros a kept denormal of f32 or bf16 becomes the zero of
/// its sign, with probability 0, too; masks stay the same. None of the calls allocates; what may overlap is
/// said in encoding.hpp; results do not depend on threads. Errors: invalid_argument
/// (views, types that differ, probability), capacity_exceeded (mask).

#include "stash/encoding.hpp"

namespace stash {

/// Identifies one dropout layer in one training step. A step that is rerun gets the same decisions.
struct dropout_key {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t layer = 0;
};

/// y = keep(i) ? x / (1 - probability) : +0; y may be x. `mask`, if its data is not
/// null, receives bit i = keep(i) in the layout of sign_mask. 0 <= probability < 1.
STASH_API void dropout_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                               float probability, const dropout_key& key, const execution_context& context);

/// dx = keep(i) ? dy / (1 - probability) : +0 from the mask, a sign_mask of as many elements as dy; dx may be
/// dy.
STASH_API void dropout_backward(const const_tensor_view& dy, const encoded_tensor& mask,
                                const tensor_view& dx, float probability, const execution_context& context);

/// The same with the decisions computed again from the key; dx may be dy.
STASH_API void dropout_backward(const const_tensor_view& dy, const tensor_view& dx, float probability,
                                const dropout_key& key, const execution_context& context);

}  // namespace stash
