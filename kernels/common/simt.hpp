// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The programming model that kernels are written in, said once for two compilers: nvcc, and the host's
/// compiler with the emulator of emulator/simt, under which every kernel runs in every test.
///
/// Kernels use only what stands here and in instructions.hpp: no CUDA built-in variables, no <<<>>>, no
/// intrinsics of their own. Warp operations take the mask of lanes that meet, and all those lanes must come
/// to the same call.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if !defined(__CUDACC__)
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "simt/simt.hpp"
#endif

#if defined(__CUDACC__)
/// A kernel. Arguments: threads of a block, and where the compiler's own choice is bad, how many blocks a
/// multiprocessor has to hold, which bounds the registers.
#define STASH_KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__)
/// A parameter that is too large to copy: threads read it where the launch has put it.
#define STASH_PARAMETER(...) const __grid_constant__ __VA_ARGS__
#define STASH_DEVICE __device__ __forceinline__
#define STASH_UNROLL _Pragma("unroll")
/// For loops that go round once or twice.
#define STASH_NO_UNROLL _Pragma("unroll 1")
/// Uninitialised shared memory of the block: an array `name` of `count` elements.
#define STASH_SHARED(type, name, count) __shared__ type name[count]
#else
#define STASH_KERNEL(...) inline void
#define STASH_PARAMETER(...) const __VA_ARGS__
#define STASH_DEVICE inline
#define STASH_UNROLL
#define STASH_NO_UNROLL
#define STASH_SHARED(type, name, count)                      \
  auto* const name = static_cast<type*>(simt::static_shared( \
      sizeof(type) * static_cast<std::size_t>(count), alignof(type), simt::location{__FILE__, __LINE__}))
#endif

namespace stash::kernels {

inline constexpr unsigned warp_lanes = 32;
inline constexpr std::uint32_t all_lanes = 0xffffffffU;

/// Sixteen bytes, moved by one instruction; 16-byte aligned.
struct alignas(16) vector16 {
  std::uint32_t word[4];
};
/// Eight, likewise.
struct alignas(8) vector8 {
  std::uint32_t word[2];
};

#if defined(__CUDACC__)

STASH_DEVICE unsigned thread_rank() {
  return threadIdx.x;
}
STASH_DEVICE std::uint64_t block_rank() {
  return blockIdx.x;
}

/// The first statement of every kernel. Waits until the kernels in front of this one in the stream have ended
/// and what they wrote is seen: only then may memory be touched. From then on the next kernel may begin, once
/// all blocks of this one have (may_begin_early() in launch.hpp). Not before: other people's kernels may not
/// wait for more than the one in front of them.
STASH_DEVICE void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// The same; before, while others are still at work, thread 0 of each of the first `most` blocks calls
/// ahead(), which may call fetch_ahead() and touches no memory but by load_early(). Blocks after those have
/// nobody to wait for: what is fetched just before it is read may be read from memory twice.
template <class Ahead>
STASH_DEVICE void begin_kernel(unsigned most, const Ahead& ahead) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0 && blockIdx.x < most) ahead();
#endif
  begin_kernel();
}
/// Has the second-level cache fetch bytes: a positive multiple of 16 below 2^20, aligned to as many. Whoever
/// reads them later sees what was written meanwhile.
STASH_DEVICE void fetch_ahead(const void* from, std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
#endif
}

/// A word that others may still write, from the second-level cache: a hint where to look, and nothing else.
/// Who reads the word later does not see this answer again.
STASH_DEVICE std::uint32_t load_early(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word));
  return value;
}

STASH_DEVICE void sync_block() {
  __syncthreads();
}
STASH_DEVICE void sync_warp(std::uint32_t mask = all_lanes) {
  __syncwarp(mask);
}
STASH_DEVICE std::uint32_t ballot(std::uint32_t mask, bool predicate) {
  return __ballot_sync(mask, predicate);
}

/// What lane `from` brought.
template <class T>
STASH_DEVICE T shuffle(std::uint32_t mask, T value, unsigned from) {
  return __shfl_sync(mask, value, static_cast<int>(from));
}
/// What the lane `distance` below brought; the own value where there is none.
template <class T>
STASH_DEVICE T shuffle_up(std::uint32_t mask, T value, unsigned distance) {
  return __shfl_up_sync(mask, value, distance);
}
/// Adds what the lane `distance` below brought, where there is one.
STASH_DEVICE void add_from_below(std::uint32_t& value, unsigned distance) {
  asm volatile(
      "{\n\t"
      ".reg .pred inside;\n\t"
      ".reg .u32 below;\n\t"
      "shfl.sync.up.b32 below|inside, %0, %1, 0, 0xffffffff;\n\t"
      "@inside add.u32 %0, %0, below;\n\t"
      "}"
      : "+r"(value)
      : "r"(distance));
}
/// What the lane with these bits flipped brought.
template <class T>
STASH_DEVICE T shuffle_xor(std::uint32_t mask, T value, unsigned bits) {
  return __shfl_xor_sync(mask, value, static_cast<int>(bits));
}

STASH_DEVICE int count_ones(std::uint32_t bits) {
  return __popc(bits);
}
/// Of a word that is not zero.
STASH_DEVICE int trailing_zeros(std::uint32_t bits) {
  return __ffs(static_cast<int>(bits)) - 1;
}
/// The lower word of both in a row, shifted right by less than 32 bits.
STASH_DEVICE std::uint32_t funnel_right(std::uint32_t low, std::uint32_t high, unsigned bits) {
  return __funnelshift_r(low, high, bits);
}
/// Upper half of the product.
STASH_DEVICE std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  return __umul64hi(a, b);
}
STASH_DEVICE float as_float(std::uint32_t bits) {
  return __uint_as_float(bits);
}
STASH_DEVICE std::uint32_t as_bits(float value) {
  return __float_as_uint(value);
}
STASH_DEVICE float magnitude_of(float value) {
  return fabsf(value);
}

/// Old value; relaxed, over the whole device. Words of shared memory are as good as those of global memory.
STASH_DEVICE std::uint32_t atomic_or(std::uint32_t* word, std::uint32_t bits) {
  return atomicOr(word, bits);
}
STASH_DEVICE std::uint32_t atomic_add(std::uint32_t* word, std::uint32_t amount) {
  return atomicAdd(word, amount);
}
STASH_DEVICE std::uint64_t atomic_add(std::uint64_t* word, std::uint64_t amount) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(amount));
}
STASH_DEVICE std::uint64_t atomic_max(std::uint64_t* word, std::uint64_t least) {
  return atomicMax(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(least));
}

/// A word that another block publishes: what that block wrote before is seen after.
STASH_DEVICE std::uint64_t load_acquire(const std::uint64_t* word) {
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
STASH_DEVICE void store_release(std::uint64_t* word, std::uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
/// For loops that wait for another block.
STASH_DEVICE void pause() {
  __nanosleep(20);
}

/// Input that is read once: past the first-level cache. May have been written by this kernel.
STASH_DEVICE vector16 load_once(const vector16* from) {
  vector16 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from));
  return v;
}
/// The same of two vec16s of one line each, at once: one by one, the memory may be read twice for them.
STASH_DEVICE void load_once(const vector16* first, const vector16* second, vector16 (&to)[2]) {
  asm volatile(
      "ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%8];\n\t"
      "ld.global.L1::no_allocate.v4.u32 {%4, %5, %6, %7}, [%9];"
      : "=&r"(to[0].word[0]), "=&r"(to[0].word[1]), "=&r"(to[0].word[2]), "=&r"(to[0].word[3]),
        "=r"(to[1].word[0]), "=r"(to[1].word[1]), "=r"(to[1].word[2]), "=r"(to[1].word[3])
      : "l"(first), "l"(second));
}
/// In one access: left to itself, the compiler may make four of it.
STASH_DEVICE void store_vector(vector16* to, const vector16& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]), "r"(v.word[1]),
               "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}
/// Output that nobody reads soon: first to leave the caches.
STASH_DEVICE void store_once(vector16* to, const vector16& v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]), "r"(v.word[1]),
               "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

#else

STASH_DEVICE unsigned thread_rank() {
  return simt::thread_index().x;
}
STASH_DEVICE std::uint64_t block_rank() {
  return simt::block_index().x;
}

/// Launches of the emulator follow each other.
STASH_DEVICE void begin_kernel() {}
template <class Ahead>
STASH_DEVICE void begin_kernel(unsigned most, const Ahead& ahead) {
  if (simt::thread_index().x == 0 && simt::block_index().x < most) ahead();
}
/// Looks at the ends, so that what lies outside of memory is found.
STASH_DEVICE void fetch_ahead(const void* from, std::uint32_t bytes) {
  const auto* const first = static_cast<const volatile std::uint8_t*>(from);
  (void)first[0];
  (void)first[bytes - 1];
}
STASH_DEVICE std::uint32_t load_early(const std::uint32_t* word) {
  return *word;
}

// The default arguments are the caller's file and line.

STASH_DEVICE void sync_block(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  simt::sync_block({file, line});
}
STASH_DEVICE void sync_warp(std::uint32_t mask = all_lanes, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  simt::sync_warp(mask, {file, line});
}
STASH_DEVICE std::uint32_t ballot(std::uint32_t mask, bool predicate, const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) {
  return simt::ballot(mask, predicate, {file, line});
}

template <class T>
STASH_DEVICE T exchange(std::uint32_t mask, T value, unsigned from, const char* kind, simt::location at) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t brought = 0;
  std::memcpy(&brought, &value, sizeof(T));
  const std::uint64_t taken = simt::exchange(mask, brought, from, kind, at);
  T result;
  std::memcpy(&result, &taken, sizeof(T));
  return result;
}

/// What lane `from` brought.
template <class T>
STASH_DEVICE T shuffle(std::uint32_t mask, T value, unsigned from, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  return exchange(mask, value, from % warp_lanes, "shuffle", {file, line});
}
/// What the lane `distance` below brought; the own value where there is none.
template <class T>
STASH_DEVICE T shuffle_up(std::uint32_t mask, T value, unsigned distance, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
  return exchange(mask, value, thread_rank() % warp_lanes - distance, "shuffle_up", {file, line});
}
/// Adds what the lane `distance` below brought, where there is one.
STASH_DEVICE void add_from_below(std::uint32_t& value, unsigned distance, const char* file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
  const std::uint32_t below = shuffle_up(all_lanes, value, distance, file, line);
  if (thread_rank() % warp_lanes >= distance) value += below;
}
/// What the lane with these bits flipped brought.
template <class T>
STASH_DEVICE T shuffle_xor(std::uint32_t mask, T value, unsigned bits, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
  return exchange(mask, value, thread_rank() % warp_lanes ^ bits, "shuffle_xor", {file, line});
}

STASH_DEVICE int count_ones(std::uint32_t bits) {
  return std::popcount(bits);
}
/// Of a word that is not zero.
STASH_DEVICE int trailing_zeros(std::uint32_t bits) {
  return std::countr_zero(bits);
}
/// The lower word of both in a row, shifted right by less than 32 bits.
STASH_DEVICE std::uint32_t funnel_right(std::uint32_t low, std::uint32_t high, unsigned bits) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> bits);
}
/// Upper half of the product.
STASH_DEVICE std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  __extension__ using product = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<product>(a) * b >> 64);
}
STASH_DEVICE float as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
STASH_DEVICE std::uint32_t as_bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
STASH_DEVICE float magnitude_of(float value) {
  return std::fabs(value);
}

/// Old value; relaxed, over the whole device.
STASH_DEVICE std::uint32_t atomic_or(std::uint32_t* word, std::uint32_t bits) {
  simt::interleave();
  return std::atomic_ref<std::uint32_t>(*word).fetch_or(bits, std::memory_order_relaxed);
}
STASH_DEVICE std::uint32_t atomic_add(std::uint32_t* word, std::uint32_t amount) {
  simt::interleave();
  return std::atomic_ref<std::uint32_t>(*word).fetch_add(amount, std::memory_order_relaxed);
}
STASH_DEVICE std::uint64_t atomic_add(std::uint64_t* word, std::uint64_t amount) {
  simt::interleave();
  return std::atomic_ref<std::uint64_t>(*word).fetch_add(amount, std::memory_order_relaxed);
}
STASH_DEVICE std::uint64_t atomic_max(std::uint64_t* word, std::uint64_t least) {
  simt::interleave();
  // Blocks of one launch share a thread, so nobody comes in between.
  const std::uint64_t old = *word;
  if (old < least) *word = least;
  return old;
}

/// A word that another block publishes: what that block wrote before is seen after.
STASH_DEVICE std::uint64_t load_acquire(const std::uint64_t* word) {
  return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(*word)).load(std::memory_order_acquire);
}
STASH_DEVICE void store_release(std::uint64_t* word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(*word).store(value, std::memory_order_release);
}
/// For loops that wait for another block.
STASH_DEVICE void pause() {
  simt::yield();
}

/// Input that is read once: past the first-level cache. May have been written by this kernel.
STASH_DEVICE vector16 load_once(const vector16* from) {
  return *from;
}
STASH_DEVICE void load_once(const vector16* first, const vector16* second, vector16 (&to)[2]) {
  to[0] = *first;
  to[1] = *second;
}
/// In one access.
STASH_DEVICE void store_vector(vector16* to, const vector16& v) {
  *to = v;
}
/// Output that nobody reads soon: first to leave the caches.
STASH_DEVICE void store_once(vector16* to, const vector16& v) {
  *to = v;
}

#endif

}  // namespace stash::kernels
