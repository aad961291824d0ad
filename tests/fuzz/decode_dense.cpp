// SPDX-License-Identifier: Apache-2.0
#include "fuzz/decode_checks.hpp"

namespace stash::fuzz {

static const std::vector<std::string> names{"raw", "sign_mask", "range_mask"};

void run(std::span<const std::uint8_t> input) {
  check_decoders(input, names);
}

std::vector<bytes> seeds() {
  return encoded_seeds(names);
}

}  // namespace stash::fuzz
