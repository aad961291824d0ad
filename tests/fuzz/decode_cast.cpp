// SPDX-License-Identifier: Apache-2.0
#include "fuzz/decode_checks.hpp"

namespace stash::fuzz {

static constexpr std::string_view names[] = {"fp16",       "bf16",       "fp10",       "fp8",
                                             "fp8_e5m2",   "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3",
                                             "mxfp6_e3m2", "mxfp4_e2m1"};

void run(std::span<const std::uint8_t> input) {
  check_decoders(input, names);
}

std::vector<bytes> seeds() {
  return encoded_seeds(names);
}

}  // namespace stash::fuzz
