// StashEncode and StashDecode.

#include "absl/strings/str_cat.h"
#include "kernels/attributes.hpp"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// Attributes of both; `dense` is the type of the dense tensor.
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

class encode_op : public counted_kernel {
 public:
  explicit encode_op(OpKernelConstruction* context) : counted_kernel(context) {
    OP_REQUIRES_OK(context, read_dense_encoding(context, context->input_type(0), &encoding_));
    if (encoding_.kind != STASH_KIND_RANGE_MASK) return;
    OP_REQUIRES_OK(context, context->GetAttr("lower", &encoding_.lower));
    OP_REQUIRES_OK(context, context->GetAttr("upper", &encoding_.upper));
    // The C door takes two zeros for its default.
    OP_REQUIRES(context, encoding_.lower < encoding_.upper,
                wrong(op(), "lower", "a number below upper",
                      absl::StrCat(encoding_.lower, " and ", encoding_.upper)));
  }

  absl::Status run(OpKernelContext* context, execution* done) override {
    const Tensor& x = context->input(0);
    const core_context core(context, on_device());
    const stash_tensor_view dense = dense_view(x, core.space());
    std::size_t bytes = 0;
    TF_RETURN_IF_ERROR(size(core, dense, &bytes));
    stored_output stored;
    TF_RETURN_IF_ERROR(stored.allocate(context, core, 0, encoding_, bytes));
    TF_RETURN_IF_ERROR(from_core(op(), stash_encode(&encoding_, &dense, stored.view(), nullptr, core.get())));
    TF_RETURN_IF_ERROR(stored.close(op()));
    Tensor* dims = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({x.dims()}), &dims));
    for (int axis = 0; axis < x.dims(); ++axis)
      dims->unaligned_flat<std::int64_t>()(axis) = x.dim_size(axis);
    *done = of_dense(x, stored.bytes());
    done->nonzeros = stored.nonzeros();
    return absl::OkStatus();
  }

 private:
  absl::Status size(const core_context& core, const stash_tensor_view& dense, std::size_t* bytes) const {
    if (!core.on_device() && is_sparse(encoding_)) {
      return from_core(op(), stash_encoded_bytes_exact(&encoding_, &dense, core.get(), bytes));
    }
    return from_core(op(), stash_encoded_bytes_bound(&encoding_, dense.type, dense.dims[0], bytes));
  }

  stash_encoding encoding_ = STASH_INIT(stash_encoding);
};

class decode_op : public counted_kernel {
 public:
  explicit decode_op(OpKernelConstruction* context) : counted_kernel(context) {
    OP_REQUIRES_OK(context, read_dense_encoding(context, context->output_type(0), &encoding_));
    const bool mask =
        encoding_.kind == STASH_KIND_SIGN_MASK && context->output_type(0) == tensorflow::DT_BOOL;
    const bool values =
        encoding_.kind == STASH_KIND_RAW || encoding_.kind == STASH_KIND_CAST || is_sparse(encoding_);
    OP_REQUIRES(context, mask || values,
                wrong(op(), "encoding", "one whose values can be decoded", "a mask or shape_only"));
  }

  absl::Status run(OpKernelContext* context, execution* done) override {
    TensorShape shape;
    TF_RETURN_IF_ERROR(shape_of(op(), context->input(1), &shape));
    const core_context core(context, on_device());
    stored_input stored;
    TF_RETURN_IF_ERROR(stored.open(context, core, op(), encoding_,
                                   core_type(context->expected_output_dtype(0)), shape.num_elements(),
                                   context->input(0)));
    Tensor* y = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &y));
    const stash_tensor_view dense = dense_view(*y, core.space());
    TF_RETURN_IF_ERROR(from_core(op(), stash_decode(&encoding_, stored.view(), &dense, nullptr, core.get())));
    TF_RETURN_IF_ERROR(stored.status(op()));
    *done = of_dense(*y, context->input(0).NumElements());
    return absl::OkStatus();
  }

 private:
  stash_encoding encoding_ = STASH_INIT(stash_encoding);
};

REGISTER_KERNEL_BUILDER(Name("StashEncode").Device(tensorflow::DEVICE_CPU), encode_op);
REGISTER_KERNEL_BUILDER(Name("StashEncode").Device(tensorflow::DEVICE_GPU).HostMemory("dims"), encode_op);
REGISTER_KERNEL_BUILDER(Name("StashDecode").Device(tensorflow::DEVICE_CPU), decode_op);
REGISTER_KERNEL_BUILDER(Name("StashDecode").Device(tensorflow::DEVICE_GPU).HostMemory("dims"), decode_op);

}  // namespace
}  // namespace stash_tf
