// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The arguments of the C API, made from TensorFlow's tensors: context, dense views, encoded bytes.
///
/// Encoded bytes in a tensor are those of docs/format.md. Bitmap and csr have a trailer after them, the
/// report of their encoder: a gradient is read from the mask alone only if the report says that it may.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel.hpp"
#include "stash/c_api.h"

namespace stash_tf {

/// Bytes of the trailer: the report, then zeros.
inline constexpr std::size_t trailer_bytes = 48;
static_assert(sizeof(stash_encode_report) <= trailer_bytes);

/// STASH_DTYPE_...; bool is u8.
std::int32_t core_type(tensorflow::DataType type);

/// All elements in a row.
stash_tensor_view dense_view(const tensorflow::Tensor& tensor, std::int32_t space);

/// True for bitmap and csr.
bool is_sparse(const stash_encoding& encoding);

/// Sizes that a tensor of encoded bytes can have, the trailer included.
struct stored_sizes {
  std::size_t least = 0, most = 0;
};
absl::Status sizes_of(absl::string_view op, const stash_encoding& encoding, std::int32_t type,
                      std::int64_t elements, stored_sizes* sizes);

/// `stored` must be a vector of a size that `elements` elements can have.
absl::Status check_stored(absl::string_view op, const stash_encoding& encoding, std::int32_t type,
                          std::int64_t elements, const tensorflow::Tensor& stored, stored_sizes* sizes);

/// The shape that `dims` says.
absl::Status shape_of(absl::string_view op, const tensorflow::Tensor& dims, tensorflow::TensorShape* shape);

/// The execution context of a kernel: TensorFlow's worker threads, or the device's stream.
class core_context {
 public:
  core_context(tensorflow::OpKernelContext* context, bool on_device);
  const stash_execution_context* get() const { return &context_; }
  std::int32_t space() const { return context_.space; }
  bool on_device() const { return context_.space == STASH_SPACE_DEVICE; }

 private:
  stash_execution_context context_ = STASH_INIT(stash_execution_context);
};

/// Encoded bytes in an output, to be written by the core.
class stored_output {
 public:
  /// Makes output `index`, with `payload` bytes.
  absl::Status allocate(tensorflow::OpKernelContext* context, const core_context& core, int index,
                        const stash_encoding& encoding, std::size_t payload);
  const stash_encoded_view* view() const { return &view_; }
  /// After the core's call: writes the trailer, and says if something did not fit. On a device the core
  /// writes the trailer itself, and nobody waits to see what is in it.
  absl::Status close(absl::string_view op);

  /// Instead of allocate(), for a sparse form on the host whose size is only guessed: a buffer of `payload`
  /// bytes that is no output yet.
  absl::Status guess(tensorflow::OpKernelContext* context, const stash_encoding& encoding,
                     std::size_t payload);
  /// After the core's call: how many bytes of the buffer it used; 0 if that was not enough.
  std::size_t used() const;
  /// Whether the buffer is larger than what is used by no more than a sixteenth.
  bool is_close() const;
  /// Instead of close(), if used() > 0: makes output `index` of what is used of the buffer, exactly as long
  /// as the bytes need to be. It holds the whole buffer.
  void keep(tensorflow::OpKernelContext* context, int index);

  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }
  /// -1: not known.
  std::int64_t nonzeros() const;

 private:
  void write_trailer();

  stash_encoded_view view_ = STASH_INIT(stash_encoded_view);
  stash_encode_report report_{};
  tensorflow::Tensor device_report_, buffer_;
  std::size_t bytes_ = 0;
  bool sparse_ = false;
};

/// Encoded bytes in an input, to be read by the core.
class stored_input {
 public:
  /// check_stored(), then what the trailer says.
  absl::Status open(tensorflow::OpKernelContext* context, const core_context& core, absl::string_view op,
                    const stash_encoding& encoding, std::int32_t type, std::int64_t elements,
                    const tensorflow::Tensor& stored);
  /// `encoding` of open() must still live.
  const stash_encoded_tensor* tensor() const { return &tensor_; }
  /// After the core's call: DataLoss if it found that the bytes contradict themselves. On a device nobody
  /// waits to see that; values that cannot be read are zeros.
  absl::Status status(absl::string_view op) const;

 private:
  absl::Status check_report(absl::string_view op, const stored_sizes& sizes, std::int64_t elements) const;

  stash_encoded_tensor tensor_ = STASH_INIT(stash_encoded_tensor);
  stash_encoded_view view_ = STASH_INIT(stash_encoded_view);
  stash_encode_report report_{};
  tensorflow::Tensor aligned_, device_report_;
};

}  // namespace stash_tf
