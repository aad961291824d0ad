// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Memory that cases work on: feature maps, their small companions, and encoded forms.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "stash/stash.hpp"

namespace stash::bench {

/// Bytes that begin on a page and have been written once, so that no timed call meets a page for the first
/// time.
class page_buffer {
 public:
  explicit page_buffer(std::size_t bytes);

  std::byte* data() const noexcept { return data_.get(); }
  std::size_t size() const noexcept { return size_; }

 private:
  struct release {
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte[], release> data_;
  std::size_t size_;
};

/// A dense f32 tensor.
class tensor {
 public:
  explicit tensor(const shape& dims);

  std::span<float> values() const noexcept;
  tensor_view view() const noexcept { return {memory_.data(), dtype::f32, memory_space::host, dims_, 0}; }
  const_tensor_view read() const noexcept { return view(); }
  std::int64_t elements() const noexcept { return dims_.elements(); }
  std::int64_t bytes() const noexcept { return elements() * 4; }

 private:
  shape dims_;
  page_buffer memory_;
};

/// An encoded form with its report.
class encoded {
 public:
  encoded(const encoding& e, std::size_t bytes);
  /// As large as exactly this tensor needs; encodes it.
  encoded(const encoding& e, const tensor& x, const execution_context& context);

  const encoding& how() const noexcept { return how_; }
  std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(memory_.size()); }
  /// For the next write; the report starts anew.
  encoded_view write() noexcept;
  const_encoded_view read() noexcept { return {memory_.data(), memory_.size(), nullptr, &report_}; }
  const encode_report& report() const noexcept { return report_; }

 private:
  encoding how_;
  page_buffer memory_;
  encode_report report_;
};

}  // namespace stash::bench
