// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Max pooling whose backward needs a few bits per pooled value, alone and joined with ReLU.
///
/// Shapes: NHWC or NDHWC, dense or with a pixel pitch; NCHW or NCDHW, dense. x and y have one layout, rank
/// and type: f32, f16 or bf16. Five dimensions pool over depth too; with four, kernel_d must be 1.
/// A window's taps are numbered row-major in the *unclipped* window, without the gaps of a dilation:
/// tap = (kz * kernel_h + ky) * kernel_w + kx; taps outside x take no part. Every window must contain at
/// least one tap of x.
///
/// Errors: invalid_argument for views or windows that do not fit each other, capacity_exceeded for encoded
/// bytes that are too few, unsupported for windows with more taps than the encoding (or, to find argmaxes
/// again, an index) has numbers for.
///
/// None of the calls allocates or works in place: x and y, and dy and dx, must not overlap (encoding.hpp).
/// Backward is deterministic for any number of threads: a gradient that several windows send to one tap is
/// summed in row-major order of the windows, starting from +0. Sums of 16-bit types are kept in f32 and
/// rounded once, to infinity beyond the largest number. Where several NaN meet in a sum, its sign and payload
/// depend on the instruction set and the shape.
///
/// Threads compare and add in their own denormal mode. In one that takes denormals for zeros a denormal is
/// equal to zero and may come out as the zero of its sign; index, code and gradients still agree. What is
/// said below of equal bits holds where denormals are numbers.

#include <cstdint>

#include "stash/encoding.hpp"

namespace stash {

/// Where the channels are in memory: last (NHWC) or first (NCHW).
enum class pool_layout : std::uint8_t { channels_last = 0, channels_first = 1 };

/// OD, OH and OW come from y's shape; padding at the end of each axis is whatever the last window needs.
struct pool_window {
  std::int32_t kernel_h = 2, kernel_w = 2;
  std::int32_t stride_h = 2, stride_w = 2;
  std::int32_t pad_top = 0, pad_left = 0;
  std::int32_t kernel_d = 1, stride_d = 1, pad_front = 0;
  std::int32_t dilation_h = 1, dilation_w = 1, dilation_d = 1;  ///< distance between a window's taps
  pool_layout layout = pool_layout::channels_last;

  /// Taps of the unclipped window.
  constexpr std::int32_t taps() const noexcept { return kernel_d * kernel_h * kernel_w; }
  friend constexpr bool operator==(const pool_window&, const pool_window&) = default;
};

/// How the argmaxes of a window are encoded: window_index with the window's taps. A window of more than 256
/// taps gives an encoding that every call refuses.
constexpr encoding window_index_of(const pool_window& window) noexcept {
  encoding how{.kind = encoding_kind::window_index};
  how.window_taps = static_cast<std::uint16_t>(window.taps() < 0 || window.taps() > 256 ? 0 : window.taps());
  return how;
}
/// As window_index_of, for relu_pool, the encoding of the joint layer.
constexpr encoding relu_pool_of(const pool_window& window) noexcept {
  encoding how = window_index_of(window);
  how.kind = encoding_kind::relu_pool;
  return how;
}

/// y = maximum of each window under `rule` (ties and NaN: encoding.hpp). `index`, if its data is not null,
/// receives the argmax as window_index (2 bits up to 4 taps, 4 bits up to 16, else 8; at most 256).
STASH_API void max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                                const encoded_view& index, framework_rule rule,
                                const execution_context& context);

/// dx = sum of dy over the windows that chose the tap; every element of dx is written. `index` is a
/// window_index of the window's taps with as many elements as dy. An index outside the window or pointing
/// outside x sets status_corrupt and that value is dropped.
STASH_API void max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                 const tensor_view& dx, const pool_window& window,
                                 const execution_context& context);

/// The same with the argmaxes found again from the dense x (what an unplanned run does).
STASH_API void max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                 const tensor_view& dx, const pool_window& window, framework_rule rule,
                                 const execution_context& context);

/// Joint ReLU + max pooling on the map before the ReLU: y = max over the window of relu(x), without writing
/// relu(x). `code`, if its data is not null, receives relu_pool: windows of up to 15 taps only, else
/// error(unsupported). For larger windows use `index` (window_index, up to 256 taps) and take the sign from
/// y. Either or both may have null data. NaN, ties and signs of zero are those of relu_forward followed by
/// max_pool_forward, bit for bit.
STASH_API void relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y,
                                     const pool_window& window, const encoded_view& code,
                                     const encoded_view& index, framework_rule rule,
                                     const execution_context& context);

/// Gradient of the joint layer from its code, a relu_pool: bit-identical to max_pool_backward followed by
/// relu_backward.
STASH_API void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& code,
                                      const tensor_view& dx, const pool_window& window,
                                      const execution_context& context);

/// The same from the window index and `y`, any stash of the pooled output that keeps the sign (relu_backward
/// lists them, and says what a NaN does to 6- and 4-bit MX values). What is wrong with the stash goes to its
/// own report. On a device a bitmap without negative values and NaN is as fast as a sign_mask; csr, and
/// bitmaps with them, are searched value by value.
STASH_API void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                      const encoded_tensor& y, const tensor_view& dx,
                                      const pool_window& window, framework_rule rule,
                                      const execution_context& context);

/// The same from the window index and the dense pooled output.
STASH_API void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                                      const const_tensor_view& y, const tensor_view& dx,
                                      const pool_window& window, framework_rule rule,
                                      const execution_context& context);

/// The same with everything found again from the dense x before the ReLU.
STASH_API void relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x,
                                      const tensor_view& dx, const pool_window& window, framework_rule rule,
                                      const execution_context& context);

/// The window_index of argmaxes that are known as positions, as PyTorch's pooling gives them: flat[i] is the
/// position of pooled value i's argmax in its plane of x, (z * H + y) * W + x with the depth left out in four
/// dimensions, whatever the layout. Both flat and index are in the memory order of the dense y. `y` and `x`
/// are the shapes of the pooled map and of x. The bytes are those of max_pool_forward() for these argmaxes. A
/// position outside x, or one that is no tap of the window, sets status_corrupt and is written as tap 0.
///
/// On a device flat lies in its memory. It is aligned to 8 bytes, and null only for no values.
STASH_API void encode_window_index(const std::int64_t* flat, const shape& y, const shape& x,
                                   const pool_window& window, const encoded_view& index,
                                   const execution_context& context);

/// Inverse of encode_window_index(); the pooled map's shape is the index's. A code that is no tap of its
/// window, or one outside x, sets status_corrupt and becomes the first tap of the window in x.
STASH_API void decode_window_index(const encoded_tensor& index, const shape& x, const pool_window& window,
                                   std::int64_t* flat, const execution_context& context);

}  // namespace stash
