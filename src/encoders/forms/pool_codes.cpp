// SPDX-License-Identifier: Apache-2.0
// window_index and relu_pool: sizes and parameters. The layers of pool.hpp write and read them.

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/format/kind_codec.hpp"

namespace stash::encoders {
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

constexpr kind_codec pool_codec(encoding_kind kind, std::string_view name,
                                void (*check)(std::string_view function, const encoding& e),
                                std::size_t (*bytes_bound)(const encoding& e, dtype source,
                                                           std::int64_t elements)) {
  return {.kind = kind,
          .name = name,
          .content = kind_content::pool_codes,
          .types = any_type,
          .check = check,
          .bytes_bound = bytes_bound,
          .lossless = always,
          .keeps_sign = never,
          .keeps_values = never,
          .encode = nullptr,
          .decode = nullptr};
}

}  // namespace

constinit const kind_codec window_index_codec =
    pool_codec(encoding_kind::window_index, "window_index", check_taps<256>, index_bytes);
constinit const kind_codec relu_pool_codec =
    pool_codec(encoding_kind::relu_pool, "relu_pool", check_taps<15>, code_bytes);

}  // namespace stash::encoders
