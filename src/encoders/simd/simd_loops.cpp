// SPDX-License-Identifier: Apache-2.0
// The inner loops with Highway: this file is compiled once for every instruction set that Highway knows for
// the processor family, and cpu_target.cpp chooses among them at run time. All give the bits of scalar_loops.

#include "encoders/simd/simd_loops.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "encoders/format/convert.hpp"
#include "encoders/format/masked.hpp"
#include "encoders/format/mx.hpp"
#include "encoders/format/philox.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/value_codec.hpp"

// Vectors whose length is known only at run time cannot be members; NEON serves those processors.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "encoders/simd/simd_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

// The plain loops (scalar_loops) replace Highway's emulations.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

HWY_BEFORE_NAMESPACE();

#undef STASH_LOOPS_NAMESPACE
#undef STASH_LOOPS_LANES
#undef STASH_LOOPS_ATTR
#define STASH_LOOPS_NAMESPACE HWY_NAMESPACE
#define STASH_LOOPS_ATTR HWY_ATTR
#if HWY_MAX_BYTES >= 64
#define STASH_LOOPS_LANES 16
#elif HWY_MAX_BYTES == 32
#define STASH_LOOPS_LANES 8
#else
#define STASH_LOOPS_LANES 4
#endif

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

/// For the vectors of g++ and clang, of any size.
template <class V>
HWY_INLINE void store_past_caches(float* p, V v) {
  const hwy::HWY_NAMESPACE::CappedTag<float, sizeof(V) / sizeof(float)> d;
  alignas(sizeof(V)) float values[sizeof(V) / sizeof(float)];
  std::memcpy(values, &v, sizeof v);
  hwy::HWY_NAMESPACE::Stream(hwy::HWY_NAMESPACE::Load(d, values), d, p);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders

#include "encoders/format/pool_vector-inl.hpp"
#include "encoders/format/value_loops-inl.hpp"

// Each of these needs the ones before it.

#include "encoders/simd/simd_vectors-inl.hpp"

#include "encoders/simd/simd_compaction-inl.hpp"
#include "encoders/simd/simd_masks-inl.hpp"
#include "encoders/simd/simd_philox-inl.hpp"
#include "encoders/simd/simd_rounding-inl.hpp"

#include "encoders/simd/simd_widening-inl.hpp"

#include "encoders/simd/simd_expansion-inl.hpp"

#include "encoders/simd/simd_words-inl.hpp"

#include "encoders/simd/simd_narrow-inl.hpp"

#include "encoders/simd/simd_mx_packing-inl.hpp"

#include "encoders/simd/simd_mx-inl.hpp"

namespace stash::encoders {
namespace HWY_NAMESPACE {
namespace {

constexpr auto tensorflow = framework_rule::tensorflow;
constexpr auto pytorch = framework_rule::pytorch;

constexpr run_loops table = {.stores_lines = STASH_LOOPS_LANES == 16,
                             .rectify = rectify,
                             .pass_bits = pass_bits,
                             .rectify_with_bits = rectify_with_bits,
                             .keep = keep,
                             .range_bits = range_bits,
                             .clip = clip,
                             .keep_or_scale = keep_or_scale,
                             .scale_with_bits = scale_with_bits,
                             .draw_bits = draw_bits,
                             .scale_kept = scale_kept,
                             .find_nonzero = find_nonzero,
                             .count_bits = count_bits,
                             .compact = compact,
                             .copy = copy,
                             .find_and_compact = find_and_compact,
                             .find_and_list = find_and_list,
                             .expand = expand,
                             .expand_stored = expand_stored,
                             .columns_rise = columns_rise,
                             .mark_columns = mark_columns,
                             .narrow = narrow_fast,
                             .widen = widen_fast,
                             .narrow_exactly = narrow_values_exactly,
                             .narrow_mx = narrow_mx_fast,
                             .widen_mx = widen_mx_fast,
                             .maximum = {{{max_kernel<tensorflow, false, argmax_bytes::none>::run,
                                           max_kernel<tensorflow, false, argmax_bytes::taps>::run},
                                          {max_kernel<tensorflow, true, argmax_bytes::none>::run,
                                           max_kernel<tensorflow, true, argmax_bytes::taps>::run}},
                                         {{max_kernel<pytorch, false, argmax_bytes::none>::run,
                                           max_kernel<pytorch, false, argmax_bytes::taps>::run},
                                          {max_kernel<pytorch, true, argmax_bytes::none>::run,
                                           max_kernel<pytorch, true, argmax_bytes::taps>::run}}},
                             .maximum_with_codes = {max_kernel<tensorflow, true, argmax_bytes::codes>::run,
                                                    max_kernel<pytorch, true, argmax_bytes::codes>::run},
                             .scatter = scatter_run,
#if STASH_LOOPS_LANES >= 8
                             .list_taps = list_taps,
                             .gather = gather_run
#else
                             .list_taps = nullptr,
                             .gather = nullptr
#endif
};

}  // namespace

const run_loops& loops_of_target() {
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace stash::encoders

HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE

namespace stash::encoders {

void finish_streams() noexcept {
  hwy::FlushStream();
}

destination destination_of(std::int64_t elements, const execution_context& context) noexcept {
  if (!is_large(elements)) return destination::caches;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  if (context.parallel_for == nullptr && __builtin_cpu_is("intel") != 0) return destination::caches;
#endif
  return destination_of_smaller(elements);
}

std::span<const simd_target> simd_targets() noexcept {
  struct list {
    std::array<simd_target, 8> targets{};
    std::size_t count = 0;
  };
  static const list known_targets = [] {
    list known;
    const auto add = [&](std::int64_t bit, const run_loops& version) {
      if ((hwy::SupportedTargets() & bit) != 0)
        known.targets[known.count++] = {hwy::TargetName(bit), &version};
    };
    // Best first: Highway gives better targets lower bits.
#if HWY_TARGETS & HWY_AVX3_DL
    add(HWY_AVX3_DL, N_AVX3_DL::loops_of_target());
#endif
#if HWY_TARGETS & HWY_AVX3
    add(HWY_AVX3, N_AVX3::loops_of_target());
#endif
#if HWY_TARGETS & HWY_AVX2
    add(HWY_AVX2, N_AVX2::loops_of_target());
#endif
#if HWY_TARGETS & HWY_SSE4
    add(HWY_SSE4, N_SSE4::loops_of_target());
#endif
#if HWY_TARGETS & HWY_SSSE3
    add(HWY_SSSE3, N_SSSE3::loops_of_target());
#endif
#if HWY_TARGETS & HWY_NEON
    add(HWY_NEON, N_NEON::loops_of_target());
#endif
    return known;
  }();
  return {known_targets.targets.data(), known_targets.count};
}

}  // namespace stash::encoders

#endif
