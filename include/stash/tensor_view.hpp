// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Non-owning views of dense tensors.
///
/// A view lists its dimensions in memory order, slowest first. The last dimension is dense; the distance
/// between two consecutive *pixels* (rows of the last dimension) may be larger than its length: that is the
/// pixel pitch, with which a channel slice of a concatenated NHWC map is addressed without a copy.
/// "Element i" of a tensor is the i-th in memory order with the pitch removed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "stash/visibility.h"

namespace stash {

/// Who can reach an address.
enum class memory_space : std::uint8_t { host = 0, device = 1, pinned_host = 2 };

/// Element type.
enum class dtype : std::uint8_t { f32 = 0, f16 = 1, bf16 = 2, u8 = 3, s32 = 4 };

/// Bytes of one element.
constexpr std::size_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::f32:
    case dtype::s32:
      return 4;
    case dtype::f16:
    case dtype::bf16:
      return 2;
    case dtype::u8:
      return 1;
  }
  return 0;
}

/// Up to eight dimensions, slowest first. A default-constructed shape has rank 0 and one element.
class STASH_API shape {
 public:
  static constexpr int max_rank = 8;
  constexpr shape() = default;
  /// Throws error(invalid_argument) for more than eight dimensions, a negative one, or a product (zeros
  /// counted as ones) above 2^56.
  shape(std::initializer_list<std::int64_t> dims);
  /// The same.
  explicit shape(std::span<const std::int64_t> dims);

  /// Number of dimensions.
  constexpr int rank() const noexcept { return rank_; }
  constexpr std::int64_t operator[](int axis) const noexcept { return dims_[static_cast<std::size_t>(axis)]; }
  /// Product of all dimensions.
  constexpr std::int64_t elements() const noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i)
      n *= dims_[static_cast<std::size_t>(i)];
    return n;
  }
  /// Length of the last (dense) dimension; 1 for rank 0.
  constexpr std::int64_t inner() const noexcept {
    return rank_ == 0 ? 1 : dims_[static_cast<std::size_t>(rank_ - 1)];
  }
  friend constexpr bool operator==(const shape&, const shape&) = default;

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

/// View of read-only data. `data` may have any alignment that its element type has. `pixel_pitch` counts
/// elements; 0 means "dense" (equal to shape.inner()).
struct const_tensor_view {
  const void* data = nullptr;
  dtype type = dtype::f32;
  memory_space space = memory_space::host;
  shape dims{};
  std::int64_t pixel_pitch = 0;

  /// Count of elements, the pitch left out.
  constexpr std::int64_t elements() const noexcept { return dims.elements(); }
  /// Elements from one pixel to the next.
  constexpr std::int64_t pitch() const noexcept { return pixel_pitch == 0 ? dims.inner() : pixel_pitch; }
  /// True if pixels are contiguous in memory.
  constexpr bool dense() const noexcept { return pitch() == dims.inner(); }
  /// The data as elements of type T, which must be the one that `type` names.
  template <class T>
  const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
};

/// View of writable data; converts to const_tensor_view.
struct tensor_view {
  void* data = nullptr;
  dtype type = dtype::f32;
  memory_space space = memory_space::host;
  shape dims{};
  std::int64_t pixel_pitch = 0;

  /// Count of elements, the pitch left out.
  constexpr std::int64_t elements() const noexcept { return dims.elements(); }
  /// Elements from one pixel to the next.
  constexpr std::int64_t pitch() const noexcept { return pixel_pitch == 0 ? dims.inner() : pixel_pitch; }
  /// True if pixels are contiguous in memory.
  constexpr bool dense() const noexcept { return pitch() == dims.inner(); }
  /// The data as elements of type T, which must be the one that `type` names.
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
  constexpr operator const_tensor_view() const noexcept { return {data, type, space, dims, pixel_pitch}; }
};

}  // namespace stash
