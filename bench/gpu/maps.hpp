// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Feature maps in device memory, generated as those of bench/cases are.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/cases/input.hpp"
#include "bench/gpu/device.hpp"
#include "stash/tensor_view.hpp"

namespace stash::gpu {

/// Which map.
struct map_form {
  dtype type = dtype::f32;
  bench::map_input zeros;
  std::int64_t bytes = 0;  ///< dense; a multiple of 64 KiB

  std::int64_t elements() const { return bytes / static_cast<std::int64_t>(size_of(type)); }
  /// (1, H, 16, 64), and the same after pooling by two.
  shape dims() const;
  shape pooled_dims() const;
};

/// A dense tensor of the device.
class device_map {
 public:
  device_map(dtype type, const shape& dims);
  tensor_view view() const { return {memory_.data(), type_, memory_space::device, dims_, 0}; }
  /// The elements from `first` on, in a shape of their own.
  tensor_view part(std::int64_t first, const shape& dims) const {
    return {memory_.bytes() + static_cast<std::size_t>(first) * size_of(type_), type_, memory_space::device,
            dims, 0};
  }
  void* data() const noexcept { return memory_.data(); }
  std::uint64_t bytes() const noexcept { return memory_.size(); }
  std::int64_t elements() const noexcept { return dims_.elements(); }

 private:
  dtype type_;
  shape dims_;
  memory memory_;
};

using shared_map = std::shared_ptr<device_map>;

/// For results.
inline shared_map empty_map(const map_form& form) {
  return std::make_shared<device_map>(form.type, form.dims());
}

/// Makes maps. Values beyond the first 32 MiB repeat those; that is more than a second-level cache can make
/// use of as long as it is emptied between calls.
class map_source {
 public:
  shared_map before_relu(const map_form& form) { return make(form, false); }
  shared_map after_relu(const map_form& form) { return make(form, true); }

 private:
  using bytes = std::vector<std::uint8_t>;
  shared_map make(const map_form& form, bool after_relu);
  const bytes& first_part(const map_form& form, bool after_relu);

  std::map<std::string, bytes> parts_;
};

const char* name_of(dtype type);

}  // namespace stash::gpu
