// SPDX-License-Identifier: Apache-2.0
#include "kernels/encoder.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/attributes.hpp"

namespace stash_tf {

using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

/// a < b. By the bits: TensorFlow's threads take denormals for zeros.
bool is_below(float a, float b) {
  const auto ordered = [](float value) {
    std::int32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? -(bits & 0x7fffffff) : bits;
  };
  return !std::isnan(a) && !std::isnan(b) && ordered(a) < ordered(b);
}

}  // namespace

absl::Status read_dense_encoding(OpKernelConstruction* context, tensorflow::DataType dense,
                                 stash_encoding* encoding) {
  const std::string& op = context->def().op();
  TF_RETURN_IF_ERROR(read_encoding(context, encoding));
  std::string name;
  TF_RETURN_IF_ERROR(context->GetAttr("encoding", &name));
  if (encoding->kind == STASH_KIND_WINDOW_INDEX || encoding->kind == STASH_KIND_RELU_POOL) {
    return wrong(op, "encoding", "one of dense values", name);
  }
  if (dense == tensorflow::DT_BOOL && encoding->kind != STASH_KIND_SIGN_MASK) {
    return wrong(op, "encoding", "sign_mask for bool", name);
  }
  bool keep_nonzero = false;
  TF_RETURN_IF_ERROR(context->GetAttr("keep_nonzero", &keep_nonzero));
  if (keep_nonzero) encoding->underflow = STASH_UNDERFLOW_KEEP_NONZERO;
  return check_type(op, *encoding, dense);
}

encoder::encoder(OpKernelConstruction* context) : op_(context->def().op()) {
  OP_REQUIRES_OK(context, read_dense_encoding(context, context->input_type(0), &encoding_));
  if (encoding_.kind != STASH_KIND_RANGE_MASK) return;
  OP_REQUIRES_OK(context, context->GetAttr("lower", &encoding_.lower));
  OP_REQUIRES_OK(context, context->GetAttr("upper", &encoding_.upper));
  // The C API takes two zeros for its default.
  OP_REQUIRES(
      context, is_below(encoding_.lower, encoding_.upper),
      wrong(op_, "lower", "a number below upper", absl::StrCat(encoding_.lower, " and ", encoding_.upper)));
}

absl::Status encoder::bound(const Tensor& x, std::size_t* bytes) const {
  return from_core(op_, stash_encoded_bytes_bound(&encoding_, core_type(x.dtype()), x.NumElements(), bytes));
}

absl::Status encoder::store(tensorflow::OpKernelContext* context, const core_context& core, std::size_t bytes,
                            execution* done) const {
  const Tensor& x = context->input(0);
  const stash_tensor_view dense = dense_view(x, core.space());
  stored_output stored;
  TF_RETURN_IF_ERROR(stored.allocate(context, core, 0, encoding_, bytes));
  TF_RETURN_IF_ERROR(from_core(op_, stash_encode(&encoding_, &dense, stored.view(), nullptr, core.get())));
  TF_RETURN_IF_ERROR(stored.close(op_));
  return finish(context, stored, done);
}

absl::Status encoder::store_within(tensorflow::OpKernelContext* context, const core_context& core,
                                   std::size_t guessed, bool* kept, std::size_t* bytes,
                                   execution* done) const {
  const stash_tensor_view dense = dense_view(context->input(0), core.space());
  stored_output stored;
  TF_RETURN_IF_ERROR(stored.guess(context, encoding_, guessed));
  TF_RETURN_IF_ERROR(from_core(op_, stash_encode(&encoding_, &dense, stored.view(), nullptr, core.get())));
  *bytes = stored.used();
  *kept = stored.is_close();
  if (!*kept) return absl::OkStatus();
  stored.keep(context, 0);
  return finish(context, stored, done);
}

absl::Status encoder::finish(tensorflow::OpKernelContext* context, const stored_output& stored,
                             execution* done) const {
  const Tensor& x = context->input(0);
  Tensor* dims = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({x.dims()}), &dims));
  for (int axis = 0; axis < x.dims(); ++axis)
    dims->unaligned_flat<std::int64_t>()(axis) = x.dim_size(axis);
  *done = of_dense(x, stored.bytes());
  done->nonzeros = stored.nonzeros();
  return absl::OkStatus();
}

}  // namespace stash_tf
