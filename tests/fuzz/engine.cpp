// The entry points of libFuzzer.

#include "fuzz/target.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerInitialize(int*, char***) {
  setenv("STASH_VERIFY", "1", 1);
  return 0;
}

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stash::fuzz::run({data, size});
  return 0;
}
