// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the kernels of StashEncode share.

#include <cstddef>
#include <string>

#include "kernels/core_call.hpp"

namespace stash_tf {

/// Attributes of StashEncode and StashDecode; `dense` is the type of the dense tensor.
absl::Status read_dense_encoding(tensorflow::OpKernelConstruction* context, tensorflow::DataType dense,
                                 stash_encoding* encoding);

/// A StashEncode op: how it encodes.
class encoder {
 public:
  /// Reads the attributes; a wrong one fails the construction of the kernel.
  explicit encoder(tensorflow::OpKernelConstruction* context);

  /// True if the size depends on the values.
  bool counts() const { return is_sparse(encoding_); }
  const stash_encoding& encoding() const { return encoding_; }
  /// The largest size; the size where it does not depend on the values.
  absl::Status bound(const tensorflow::Tensor& x, std::size_t* bytes) const;
  /// The outputs of the op, from its input, in `bytes` bytes, which must be enough for it.
  absl::Status store(tensorflow::OpKernelContext* context, const core_context& core, std::size_t bytes,
                     execution* done) const;
  /// The same in a buffer of a guessed size, where the size depends on the values; `kept` says if it was
  /// enough and not far too much. If not, nothing has happened but that `bytes` is the size where the buffer
  /// showed it, else 0: the buffer is freed, so that nobody holds it in addition to the memory of the right
  /// size.
  absl::Status store_within(tensorflow::OpKernelContext* context, const core_context& core,
                            std::size_t guessed, bool* kept, std::size_t* bytes, execution* done) const;

 private:
  absl::Status finish(tensorflow::OpKernelContext* context, const stored_output& stored,
                      execution* done) const;

  const std::string op_;
  stash_encoding encoding_ = STASH_INIT(stash_encoding);
};

}  // namespace stash_tf
