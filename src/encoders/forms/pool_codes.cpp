// SPDX-License-Identifier: Apache-2.0
// window_index and relu_pool: sizes and parameters. The layers of pool.hpp write and read them.

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/format/kind_codec.hpp"

namespace stash::detail {
namespace {

template <int Most>
void check_taps(std::string_view function, const encoding& e) {
  if (e.window_taps >= 1 && e.window_taps <= Most) return;
  fail(errc::invalid_argument, function, "encoding", fmt::format("1 to {} window taps", Most),
       fmt::format("{}", e.window_taps));
}

std::size_t index_bytes(const encoding& e, dtype, std::int64_t elements) {
  return plane_bytes(elements, e.window_taps <= 4 ? 2 : e.window_taps <= 16 ? 4 : 8);
}

std::size_t code_bytes(const encoding& e, dtype, std::int64_t elements) {
  return e.window_taps <= 4 ? plane_bytes(elements, 2) + plane_bytes(elements, 1) : plane_bytes(elements, 4);
}

}  // namespace

constinit const kind_codec window_index_codec{.kind = encoding_kind::window_index,
                                              .name = "window_index",
                                              .content = kind_content::pool_codes,
                                              .types = any_type,
                                              .check = check_taps<256>,
                                              .bytes_bound = index_bytes,
                                              .lossless = always,
                                              .keeps_sign = never,
                                              .keeps_values = never,
                                              .encode = nullptr,
                                              .decode = nullptr};

constinit const kind_codec relu_pool_codec{.kind = encoding_kind::relu_pool,
                                           .name = "relu_pool",
                                           .content = kind_content::pool_codes,
                                           .types = any_type,
                                           .check = check_taps<15>,
                                           .bytes_bound = code_bytes,
                                           .lossless = always,
                                           .keeps_sign = never,
                                           .keeps_values = never,
                                           .encode = nullptr,
                                           .decode = nullptr};

}  // namespace stash::detail
