// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// C structures for the tests of the C API.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "stash/c_api.h"
#include "stash/tensor_view.hpp"

namespace stash_test {

inline stash_tensor_view c_view(const void* data, int32_t type, const std::vector<int64_t>& dims,
                                int64_t pitch = 0) {
  stash_tensor_view v = STASH_INIT(stash_tensor_view);
  v.data = const_cast<void*>(data);
  v.type = type;
  v.rank = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), v.dims);
  v.pixel_pitch = pitch;
  return v;
}

inline stash_tensor_view c_view(const std::vector<float>& values) {
  return c_view(values.data(), STASH_DTYPE_F32, {static_cast<int64_t>(values.size())});
}

inline stash_encoding c_encoding(const char* name) {
  stash_encoding e = STASH_INIT(stash_encoding);
  if (stash_parse_encoding(name, &e) != STASH_OK) ADD_FAILURE() << stash_last_error_message();
  return e;
}

/// A buffer for encoded bytes, with its report.
struct c_buffer {
  std::vector<unsigned char> memory;
  stash_encode_report report{};
  stash_encoded_view view = STASH_INIT(stash_encoded_view);

  explicit c_buffer(std::size_t bytes) : memory(bytes + 16, 0xcd) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    view.data = memory.data() + (16 - address % 16) % 16;
    view.bytes = bytes;
    view.report = &report;
  }
  c_buffer(const c_buffer&) = delete;
  c_buffer& operator=(const c_buffer&) = delete;

  std::vector<unsigned char> bytes() const {
    const auto* data = static_cast<const unsigned char*>(view.data);
    return {data, data + view.bytes};
  }
};

inline std::string last_error() {
  return stash_last_error_message();
}

/// An encoded tensor of the type and shape of `dense`, for one call.
class c_stored {
 public:
  c_stored(const stash_encoding& encoding, const stash_encoded_view* bytes, const stash_tensor_view& dense)
      : encoding_(encoding) {
    tensor_.encoding = &encoding_;
    tensor_.type = dense.type;
    tensor_.rank = dense.rank;
    std::copy_n(dense.dims, STASH_MAX_RANK, tensor_.dims);
    tensor_.bytes = bytes;
  }
  c_stored(const c_stored&) = delete;
  c_stored& operator=(const c_stored&) = delete;
  operator const stash_encoded_tensor*() const { return &tensor_; }  // NOLINT(google-explicit-constructor)

 private:
  stash_encoding encoding_;
  stash_encoded_tensor tensor_ = STASH_INIT(stash_encoded_tensor);
};

/// The encoding of a window's argmaxes.
inline stash_encoding c_codes(std::int32_t kind, const stash_pool_window& window) {
  const auto or_default = [](std::int32_t value, std::int32_t otherwise) {
    return value == 0 ? otherwise : value;
  };
  stash_encoding e = STASH_INIT(stash_encoding);
  e.kind = kind;
  e.window_taps =
      or_default(window.kernel_d, 1) * or_default(window.kernel_h, 2) * or_default(window.kernel_w, 2);
  return e;
}

}  // namespace stash_test
