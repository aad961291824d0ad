#include "run_loops.hpp"

namespace stash::detail {

#ifdef STASH_HAS_AVX2_LOOPS
extern const run_loops compiled_avx2_loops;

const run_loops* avx2_loops() noexcept {
  static const bool runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
  return runs ? &compiled_avx2_loops : nullptr;
}
#else
const run_loops* avx2_loops() noexcept {
  return nullptr;
}
#endif

const run_loops& loops() noexcept {
  const run_loops* const avx2 = avx2_loops();
  return avx2 != nullptr ? *avx2 : baseline_loops;
}

}  // namespace stash::detail
