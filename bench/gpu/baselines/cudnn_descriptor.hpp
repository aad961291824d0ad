// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// cuDNN's backend interface, in which everything is a descriptor with attributes. Only for files that are
/// built with the headers of cuDNN 9 or newer.

#include <cudnn_backend.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/baselines/cudnn_library.hpp"

namespace stash::gpu {

struct cudnn_backend : cudnn_library {
  decltype(::cudnnGetLastErrorString)* last_error = library["cudnnGetLastErrorString"];
  decltype(::cudnnBackendCreateDescriptor)* create_descriptor = library["cudnnBackendCreateDescriptor"];
  decltype(::cudnnBackendDestroyDescriptor)* destroy_descriptor = library["cudnnBackendDestroyDescriptor"];
  decltype(::cudnnBackendSetAttribute)* set_attribute = library["cudnnBackendSetAttribute"];
  decltype(::cudnnBackendGetAttribute)* get_attribute = library["cudnnBackendGetAttribute"];
  decltype(::cudnnBackendFinalize)* finalize = library["cudnnBackendFinalize"];
  decltype(::cudnnBackendExecute)* execute = library["cudnnBackendExecute"];

  /// Throws failure with the status and what else cuDNN says.
  void check(cudnnStatus_t result, const char* call) const {
    if (result != CUDNN_STATUS_SUCCESS)
      throw failure(std::string(call) + ": " + error_string(result) + explanation());
  }
  /// What else cuDNN says of the last call, on one line; begins with a colon unless it is empty.
  std::string explanation() const {
    char text[512] = {};
    last_error(text, sizeof text);
    std::string line(text);
    std::replace(line.begin(), line.end(), '\n', ' ');
    return line.empty() ? line : ": " + line;
  }
};

/// A descriptor. The backend must live longer. Attributes may be set until finalize(), and read after it.
/// Calls throw failure.
class cudnn_descriptor {
 public:
  cudnn_descriptor(const cudnn_backend& api, cudnnBackendDescriptorType_t type) : api_(&api) {
    api_->check(api_->create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  cudnn_descriptor(cudnn_descriptor&& other) noexcept
      : api_(other.api_), descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  ~cudnn_descriptor() {
    if (descriptor_ != nullptr) (void)api_->destroy_descriptor(descriptor_);
  }

  cudnnBackendDescriptor_t get() const noexcept { return descriptor_; }

  template <class T>
  cudnn_descriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set(name, kind_of(T{}), static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  cudnn_descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, kind_of(value), 1, &value);
  }
  cudnn_descriptor& set(cudnnBackendAttributeName_t name, const cudnn_descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }

  cudnn_descriptor& finalize() {
    api_->check(api_->finalize(descriptor_), "cudnnBackendFinalize");
    return *this;
  }

  /// Reads up to `capacity` values; returns how many there are, or were read.
  std::int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t kind, std::int64_t capacity,
                    void* values) const {
    std::int64_t count = 0;
    api_->check(api_->get_attribute(descriptor_, name, kind, capacity, &count, values),
                "cudnnBackendGetAttribute");
    return count;
  }

 private:
  static constexpr cudnnBackendAttributeType_t kind_of(std::int32_t) { return CUDNN_TYPE_INT32; }
  static constexpr cudnnBackendAttributeType_t kind_of(std::int64_t) { return CUDNN_TYPE_INT64; }
  static constexpr cudnnBackendAttributeType_t kind_of(void*) { return CUDNN_TYPE_VOID_PTR; }
  static constexpr cudnnBackendAttributeType_t kind_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
  static constexpr cudnnBackendAttributeType_t kind_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
  static constexpr cudnnBackendAttributeType_t kind_of(cudnnNanPropagation_t) {
    return CUDNN_TYPE_NAN_PROPOGATION;
  }
  static constexpr cudnnBackendAttributeType_t kind_of(cudnnPaddingMode_t) { return CUDNN_TYPE_PADDING_MODE; }
  static constexpr cudnnBackendAttributeType_t kind_of(cudnnResampleMode_t) {
    return CUDNN_TYPE_RESAMPLE_MODE;
  }
  static constexpr cudnnBackendAttributeType_t kind_of(cudnnBackendHeurMode_t) {
    return CUDNN_TYPE_HEUR_MODE;
  }

  cudnn_descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t kind,
                        std::int64_t count, const void* values) {
    api_->check(api_->set_attribute(descriptor_, name, kind, count, values), "cudnnBackendSetAttribute");
    return *this;
  }

  const cudnn_backend* api_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace stash::gpu
