// SPDX-License-Identifier: Apache-2.0
#include "fuzz/decode_checks.hpp"

namespace stash::fuzz {

static constexpr std::string_view names[] = {
    "csr",           "csr_fp16",       "csr_bf16",       "csr_fp10",       "csr_fp8",
    "csr_fp8_e5m2",  "csr_mxfp8_e4m3", "csr_mxfp8_e5m2", "csr_mxfp6_e2m3", "csr_mxfp6_e3m2",
    "csr_mxfp4_e2m1"};

void run(std::span<const std::uint8_t> input) {
  check_decoders(input, names);
}

std::vector<bytes> seeds() {
  return encoded_seeds(names);
}

}  // namespace stash::fuzz
