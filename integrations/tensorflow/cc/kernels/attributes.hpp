// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Attributes that several kernels have.

#include "kernels/core_call.hpp"

namespace stash_tf {

/// The attribute `encoding`, parsed, under TensorFlow's framework rule.
absl::Status read_encoding(tensorflow::OpKernelConstruction* context, stash_encoding* encoding);

/// The same for a gradient of a ReLU, which needs the sign: sign_mask, bitmap, csr, raw, or a cast, which is
/// taken to have been made with keep_nonzero.
absl::Status read_sign_encoding(tensorflow::OpKernelConstruction* context, stash_encoding* encoding);

/// Says no to a type that cannot be encoded so.
absl::Status check_type(absl::string_view op, const stash_encoding& encoding, tensorflow::DataType type);

}  // namespace stash_tf
