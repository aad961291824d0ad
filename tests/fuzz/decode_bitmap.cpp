// SPDX-License-Identifier: Apache-2.0
#include "fuzz/decode_checks.hpp"

namespace stash::fuzz {

static constexpr std::string_view names[] = {
    "bitmap",           "bitmap_fp16",       "bitmap_bf16",       "bitmap_fp10",       "bitmap_fp8",
    "bitmap_fp8_e5m2",  "bitmap_mxfp8_e4m3", "bitmap_mxfp8_e5m2", "bitmap_mxfp6_e2m3", "bitmap_mxfp6_e3m2",
    "bitmap_mxfp4_e2m1"};

void run(std::span<const std::uint8_t> input) {
  check_decoders(input, names);
}

std::vector<bytes> seeds() {
  return encoded_seeds(names);
}

}  // namespace stash::fuzz
