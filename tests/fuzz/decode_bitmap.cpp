// SPDX-License-Identifier: Apache-2.0
#include "fuzz/decode_checks.hpp"
#include "support/format_names.hpp"

namespace stash::fuzz {

static const std::vector<std::string> names = [] {
  std::vector<std::string> all = stash_test::format_names("bitmap_");
  all.insert(all.begin(), "bitmap");
  return all;
}();

void run(std::span<const std::uint8_t> input) {
  check_decoders(input, names);
}

std::vector<bytes> seeds() {
  return encoded_seeds(names);
}

}  // namespace stash::fuzz
