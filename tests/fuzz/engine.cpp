// SPDX-License-Identifier: Apache-2.0
// The entry points of libFuzzer.

#include "fuzz/target.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace stash::fuzz {

bool is_examined(std::span<const std::uint8_t> input, std::uint32_t n) {
  std::uint32_t hash = 2166136261;  // FNV-1a
  for (const std::uint8_t byte : input)
    hash = (hash ^ byte) * 16777619;
  return (hash >> 16) % n == 0;
}

}  // namespace stash::fuzz

int LLVMFuzzerInitialize(int*, char***) {
  setenv("STASH_VERIFY", "1", 1);
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stash::fuzz::run({data, size});
  return 0;
}
