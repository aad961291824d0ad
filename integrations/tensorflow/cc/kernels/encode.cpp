// SPDX-License-Identifier: Apache-2.0
// StashEncode on CPUs, StashDecode, StashDims.

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attributes.hpp"
#include "kernels/encoder.hpp"
#include "kernels/rounding.hpp"

namespace stash_tf {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

/// How many bytes the values of a tensor will take, by what they took in the last execution: they are read
/// once then, and not counted before. Thread-safe.
class size_guess {
 public:
  /// 0: nothing is known.
  std::size_t bytes_of(std::int64_t elements) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return elements == elements_ ? bytes_ : 0;
  }
  void learn(std::int64_t elements, std::size_t bytes) {
    constexpr std::size_t more = 32;  // one part of so many; batches differ
    const std::lock_guard<std::mutex> lock(mutex_);
    elements_ = elements;
    bytes_ = bytes + bytes / more;
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t elements_ = -1;
  std::size_t bytes_ = 0;
};

class encode_op : public counted_kernel {
 public:
  explicit encode_op(OpKernelConstruction* context)
      : counted_kernel(context), encoder_(context), probe_(encoder_.encoding()) {}

  absl::Status run(OpKernelContext* context, execution* done) override {
    const core_context core(context, on_device());
    TF_RETURN_IF_ERROR(store(context, core, done));
    probe_.look(context->input(0), core, done);
    return absl::OkStatus();
  }

 private:
  absl::Status store(OpKernelContext* context, const core_context& core, execution* done) {
    const Tensor& x = context->input(0);
    std::size_t bytes = 0;
    if (!encoder_.counts() || x.NumElements() == 0) {
      TF_RETURN_IF_ERROR(encoder_.bound(x, &bytes));
      return encoder_.store(context, core, bytes, done);
    }
    bool kept = false;
    if (const std::size_t guessed = guess_.bytes_of(x.NumElements()); guessed != 0) {
      TF_RETURN_IF_ERROR(encoder_.store_within(context, core, guessed, &kept, &bytes, done));
    }
    if (!kept) {
      if (bytes == 0) TF_RETURN_IF_ERROR(size(core, x, &bytes));
      TF_RETURN_IF_ERROR(encoder_.store(context, core, bytes, done));
    }
    guess_.learn(x.NumElements(), static_cast<std::size_t>(done->stored_bytes) - trailer_bytes);
    return absl::OkStatus();
  }

  absl::Status size(const core_context& core, const Tensor& x, std::size_t* bytes) const {
    const stash_tensor_view dense = dense_view(x, core.space());
    return from_core(op(), stash_encoded_bytes_exact(&encoder_.encoding(), &dense, core.get(), bytes));
  }

  const encoder encoder_;
  size_guess guess_;
  rounding_probe probe_;
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
    TF_RETURN_IF_ERROR(from_core(op(), stash_decode(stored.tensor(), &dense, nullptr, core.get())));
    TF_RETURN_IF_ERROR(stored.status(op()));
    *done = of_dense(*y, context->input(0).NumElements());
    return absl::OkStatus();
  }

 private:
  stash_encoding encoding_ = STASH_INIT(stash_encoding);
};

/// Reads how long `stored` is, and nothing else: on a device its bytes stay where they are.
class dims_op : public tensorflow::OpKernel {
 public:
  explicit dims_op(OpKernelConstruction* context) : tensorflow::OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("known", &known_));
    tensorflow::DataType type = tensorflow::DT_INVALID;
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    type_ = core_type(type);
    OP_REQUIRES_OK(context, read_encoding(context, &encoding_));
    OP_REQUIRES(
        context, !is_sparse(encoding_),
        wrong(type_string(), "encoding", "one whose size does not depend on the values", "a sparse one"));
    for (std::size_t axis = 0; axis < known_.size(); ++axis) {
      const std::int64_t n = known_[axis];
      OP_REQUIRES(context, n >= 0 || (n == -1 && open_ < 0),
                  wrong(type_string(), "known", "dimensions, of which one may be -1", absl::StrCat(n)));
      if (n < 0) open_ = static_cast<int>(axis);
      if (n >= 0) OP_REQUIRES_OK(context, multiply(n));
    }
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& stored = context->input(0);
    std::int64_t open = 0;
    if (open_ >= 0) OP_REQUIRES_OK(context, find(stored.NumElements(), &open));
    Tensor* dims = nullptr;
    OP_REQUIRES_OK(
        context, context->allocate_output(0, TensorShape({static_cast<std::int64_t>(known_.size())}), &dims));
    for (std::size_t axis = 0; axis < known_.size(); ++axis)
      dims->flat<std::int64_t>()(static_cast<std::int64_t>(axis)) =
          static_cast<int>(axis) == open_ ? open : known_[axis];
  }

 private:
  static constexpr std::int64_t most = std::int64_t{1} << 40;

  absl::Status multiply(std::int64_t n) {
    if (n > 0 && product_ > most / n)
      return wrong(type_string(), "known", absl::StrCat("at most ", most, " elements"), "more");
    product_ *= n;
    return absl::OkStatus();
  }

  absl::Status bytes_of(std::int64_t n, std::int64_t* bytes) const {
    std::size_t found = 0;
    TF_RETURN_IF_ERROR(
        from_core(type_string(), stash_encoded_bytes_bound(&encoding_, type_, n * product_, &found)));
    *bytes = static_cast<std::int64_t>(found);
    return absl::OkStatus();
  }

  // The smallest number that takes so many bytes; the next one takes more, or nothing tells them apart.
  absl::Status find(std::int64_t stored, std::int64_t* open) const {
    std::int64_t low = 0;
    std::int64_t high = product_ == 0 ? 0 : most / product_;
    std::int64_t bytes = 0;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      TF_RETURN_IF_ERROR(bytes_of(middle, &bytes));
      if (bytes < stored) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    TF_RETURN_IF_ERROR(bytes_of(low, &bytes));
    std::int64_t next = 0;
    TF_RETURN_IF_ERROR(bytes_of(low + 1, &next));
    if (bytes != stored || next == bytes)
      return wrong(type_string(), "stored",
                   absl::StrCat("bytes of whole slices of ", product_, " elements, which tell their number"),
                   absl::StrCat(stored, " bytes"));
    *open = low;
    return absl::OkStatus();
  }

  stash_encoding encoding_ = STASH_INIT(stash_encoding);
  std::int32_t type_ = 0;
  std::vector<std::int64_t> known_;
  std::int64_t product_ = 1;
  int open_ = -1;
};

REGISTER_KERNEL_BUILDER(Name("StashEncode").Device(tensorflow::DEVICE_CPU), encode_op);
REGISTER_KERNEL_BUILDER(Name("StashDecode").Device(tensorflow::DEVICE_CPU), decode_op);
REGISTER_KERNEL_BUILDER(Name("StashDecode").Device(tensorflow::DEVICE_GPU).HostMemory("dims"), decode_op);
REGISTER_KERNEL_BUILDER(Name("StashDims").Device(tensorflow::DEVICE_CPU), dims_op);
REGISTER_KERNEL_BUILDER(Name("StashDims").Device(tensorflow::DEVICE_GPU).HostMemory("dims"), dims_op);

}  // namespace
}  // namespace stash_tf
