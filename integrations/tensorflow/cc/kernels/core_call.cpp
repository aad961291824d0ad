// SPDX-License-Identifier: Apache-2.0
#include "kernels/core_call.hpp"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/device_stream.hpp"
#include "kernels/workers.hpp"

namespace stash_tf {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr std::size_t encoded_alignment = 16;

void* data_of(const Tensor& tensor) {
  return const_cast<char*>(tensor.tensor_data().data());
}

/// Memory of the device for a report, in `tensor`.
absl::Status allocate_report(tensorflow::OpKernelContext* context, Tensor* tensor, void** report) {
  TF_RETURN_IF_ERROR(
      context->allocate_temp(tensorflow::DT_UINT8, TensorShape({std::int64_t{trailer_bytes}}), tensor));
  *report = data_of(*tensor);
  return absl::OkStatus();
}

}  // namespace

std::int32_t core_type(tensorflow::DataType type) {
  switch (type) {
    case tensorflow::DT_HALF:
      return STASH_DTYPE_F16;
    case tensorflow::DT_BFLOAT16:
      return STASH_DTYPE_BF16;
    case tensorflow::DT_BOOL:
      return STASH_DTYPE_U8;
    default:
      return STASH_DTYPE_F32;
  }
}

stash_tensor_view dense_view(const Tensor& tensor, std::int32_t space) {
  auto view = STASH_INIT(stash_tensor_view);
  view.data = data_of(tensor);
  view.type = core_type(tensor.dtype());
  view.space = space;
  view.rank = 1;
  view.dims[0] = tensor.NumElements();
  return view;
}

bool is_sparse(const stash_encoding& encoding) {
  return encoding.kind == STASH_KIND_BITMAP || encoding.kind == STASH_KIND_CSR;
}

absl::Status sizes_of(absl::string_view op, const stash_encoding& encoding, std::int32_t type,
                      std::int64_t elements, stored_sizes* sizes) {
  *sizes = {};
  TF_RETURN_IF_ERROR(from_core(op, stash_encoded_bytes_bound(&encoding, type, elements, &sizes->most)));
  sizes->least = sizes->most;
  if (!is_sparse(encoding) || elements == 0) return absl::OkStatus();
  TF_RETURN_IF_ERROR(
      from_core(op, stash_encoded_bytes_at_density(&encoding, type, elements, 0, &sizes->least)));
  sizes->least += trailer_bytes;
  sizes->most += trailer_bytes;
  return absl::OkStatus();
}

absl::Status check_stored(absl::string_view op, const stash_encoding& encoding, std::int32_t type,
                          std::int64_t elements, const Tensor& stored, stored_sizes* sizes) {
  if (stored.dims() != 1) return wrong(op, "stored", "a vector", absl::StrCat("rank ", stored.dims()));
  TF_RETURN_IF_ERROR(sizes_of(op, encoding, type, elements, sizes));
  const auto bytes = static_cast<std::size_t>(stored.NumElements());
  if (sizes->least <= bytes && bytes <= sizes->most) return absl::OkStatus();
  const std::string range = sizes->least == sizes->most ? absl::StrCat(sizes->least)
                                                        : absl::StrCat(sizes->least, " to ", sizes->most);
  return wrong(op, "stored", absl::StrCat(range, " bytes for ", elements, " elements"), absl::StrCat(bytes));
}

absl::Status shape_of(absl::string_view op, const Tensor& dims, TensorShape* shape) {
  if (dims.dims() != 1) return wrong(op, "dims", "a vector", absl::StrCat("rank ", dims.dims()));
  const auto sizes = dims.unaligned_flat<std::int64_t>();
  if (sizes.size() > TensorShape::MaxDimensions()) {
    return wrong(op, "dims", absl::StrCat("at most ", TensorShape::MaxDimensions(), " dimensions"),
                 absl::StrCat(sizes.size()));
  }
  for (std::int64_t i = 0; i < sizes.size(); ++i) {
    if (sizes(i) < 0) return wrong(op, "dims", "no negative size", absl::StrCat(sizes(i)));
  }
  const absl::Span<const std::int64_t> list(sizes.data(), static_cast<std::size_t>(sizes.size()));
  if (const absl::Status made = TensorShape::BuildTensorShape(list, shape); !made.ok()) {
    return wrong(op, "dims", "a shape", made.message());
  }
  return absl::OkStatus();
}

core_context::core_context(tensorflow::OpKernelContext* context, bool on_device) {
  if (on_device) {
    context_.space = STASH_SPACE_DEVICE;
    context_.stream = device_stream(context);
  } else {
    context_.space = STASH_SPACE_HOST;
    context_.parallel_for = run_on_workers;
    context_.user = context->device()->tensorflow_cpu_worker_threads()->workers;
  }
}

absl::Status stored_output::allocate(tensorflow::OpKernelContext* context, const core_context& core,
                                     int index, const stash_encoding& encoding, std::size_t payload) {
  sparse_ = is_sparse(encoding);
  const bool trailer = sparse_ && payload != 0;
  bytes_ = payload + (trailer ? trailer_bytes : 0);
  Tensor* stored = nullptr;
  TF_RETURN_IF_ERROR(context->allocate_output(index, TensorShape({bytes()}), &stored));
  view_.data = data_of(*stored);
  view_.bytes = payload;
  view_.report = &report_;
  if (!core.on_device()) return absl::OkStatus();
  void* report = static_cast<char*>(view_.data) + payload;
  if (!trailer) TF_RETURN_IF_ERROR(allocate_report(context, &device_report_, &report));
  view_.report = static_cast<stash_encode_report*>(report);
  return device_zero(context, report, trailer_bytes);
}

absl::Status stored_output::close(absl::string_view op) {
  if (view_.report != &report_) return absl::OkStatus();
  if (report_.status != 0) {
    return absl::InternalError(absl::StrCat(op, ": stored: expected all values to fit ", view_.bytes,
                                            " bytes, got status ", report_.status));
  }
  if (bytes_ != view_.bytes) write_trailer();
  return absl::OkStatus();
}

absl::Status stored_output::guess(tensorflow::OpKernelContext* context, const stash_encoding& encoding,
                                  std::size_t payload) {
  sparse_ = is_sparse(encoding);
  TF_RETURN_IF_ERROR(context->allocate_temp(
      tensorflow::DT_UINT8, TensorShape({static_cast<std::int64_t>(payload + trailer_bytes)}), &buffer_));
  view_.data = data_of(buffer_);
  view_.bytes = payload;
  view_.report = &report_;
  return absl::OkStatus();
}

std::size_t stored_output::used() const {
  return report_.status == 0 ? report_.slot_bytes : 0;
}

bool stored_output::is_close() const {
  constexpr std::size_t most_unused = 16;  // one part of so many
  return used() > 0 && view_.bytes - used() <= used() / most_unused;
}

void stored_output::keep(tensorflow::OpKernelContext* context, int index) {
  view_.bytes = used();
  bytes_ = view_.bytes + trailer_bytes;
  context->set_output(index, buffer_.Slice(0, bytes()));
  write_trailer();
}

void stored_output::write_trailer() {
  auto* trailer = static_cast<char*>(view_.data) + view_.bytes;
  std::memset(trailer, 0, trailer_bytes);
  std::memcpy(trailer, &report_, sizeof(report_));
}

std::int64_t stored_output::nonzeros() const {
  return sparse_ && view_.report == &report_ ? static_cast<std::int64_t>(report_.nonzeros) : -1;
}

absl::Status stored_input::open(tensorflow::OpKernelContext* context, const core_context& core,
                                absl::string_view op, const stash_encoding& encoding, std::int32_t type,
                                std::int64_t elements, const Tensor& stored) {
  stored_sizes sizes;
  TF_RETURN_IF_ERROR(check_stored(op, encoding, type, elements, stored, &sizes));
  tensor_.encoding = &encoding;
  tensor_.type = type;
  tensor_.rank = 1;
  tensor_.dims[0] = elements;
  tensor_.bytes = &view_;
  const auto bytes = static_cast<std::size_t>(stored.NumElements());
  view_.data = data_of(stored);
  view_.bytes = bytes;
  view_.report = &report_;
  // Outputs of kernels are aligned; slices of them need not be.
  if (bytes != 0 && reinterpret_cast<std::uintptr_t>(view_.data) % encoded_alignment != 0) {
    TF_RETURN_IF_ERROR(context->allocate_temp(stored.dtype(), stored.shape(), &aligned_));
    if (core.on_device()) {
      TF_RETURN_IF_ERROR(device_copy(context, view_.data, data_of(aligned_), bytes));
    } else {
      std::memcpy(data_of(aligned_), view_.data, bytes);
    }
    view_.data = data_of(aligned_);
  }
  const bool trailer = is_sparse(encoding) && bytes != 0;
  if (trailer) view_.bytes -= trailer_bytes;
  const char* trailer_at = static_cast<const char*>(view_.data) + view_.bytes;
  if (core.on_device()) {
    // A copy, because what the core finds is written into it.
    void* report = nullptr;
    TF_RETURN_IF_ERROR(allocate_report(context, &device_report_, &report));
    view_.report = static_cast<stash_encode_report*>(report);
    return trailer ? device_copy(context, trailer_at, report, trailer_bytes)
                   : device_zero(context, report, trailer_bytes);
  }
  if (!trailer) return absl::OkStatus();
  std::memcpy(&report_, trailer_at, sizeof(report_));
  return check_report(op, sizes, elements);
}

absl::Status stored_input::check_report(absl::string_view op, const stored_sizes& sizes,
                                        std::int64_t elements) const {
  constexpr std::uint32_t known_flags = 3;
  const bool fits = sizes.least <= report_.slot_bytes + trailer_bytes && report_.slot_bytes <= view_.bytes;
  if (report_.status == 0 && (report_.flags & ~known_flags) == 0 && report_.overflow_bytes == 0 &&
      report_.nonzeros <= static_cast<std::uint64_t>(elements) && fits) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(op, ": stored: expected the report of an encoder in the last ",
                                          trailer_bytes, " bytes, got status ", report_.status, ", flags ",
                                          report_.flags, ", ", report_.nonzeros, " non-zeros in ",
                                          report_.slot_bytes, " bytes"));
}

absl::Status stored_input::status(absl::string_view op) const {
  if (report_.status == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(op, ": stored: expected bytes of this encoding, got status ",
                                          report_.status, " (1: values are missing, 2: the bytes contradict ",
                                          "themselves, 4: the checksum differs)"));
}

}  // namespace stash_tf
