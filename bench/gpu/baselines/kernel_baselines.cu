// SPDX-License-Identifier: Apache-2.0
// Kernels as one would write them first, and the copy that all others are held against.

#include "bench/gpu/baselines/baselines.hpp"
#include "bench/gpu/cuda_check.hpp"

namespace stash::gpu {
namespace {

constexpr unsigned copy_threads = 256, vectors_per_thread = 4;
constexpr unsigned naive_threads = 1024;  // a tile of bitmap

/// All loads of a thread are issued before its first store.
__global__ void __launch_bounds__(copy_threads)
    copy_vectors(uint4* to, const uint4* from, std::uint64_t count) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * (copy_threads * vectors_per_thread) + threadIdx.x;
  uint4 loaded[vectors_per_thread];
#pragma unroll
  for (unsigned v = 0; v < vectors_per_thread; ++v) {
    const std::uint64_t i = first + v * copy_threads;
    if (i < count) loaded[v] = __ldcs(from + i);
  }
#pragma unroll
  for (unsigned v = 0; v < vectors_per_thread; ++v) {
    const std::uint64_t i = first + v * copy_threads;
    if (i < count) __stcs(to + i, loaded[v]);
  }
}

/// Reads everything; writes only what never happens, so that the loads stay. What is kept stays in the
/// second-level cache like any data; else its lines are the first to go.
template <bool Kept>
__global__ void __launch_bounds__(copy_threads)
    read_vectors(const uint4* from, std::uint64_t count, std::uint32_t* never) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * (copy_threads * vectors_per_thread) + threadIdx.x;
  std::uint32_t all = 0xffffffffU;
#pragma unroll
  for (unsigned v = 0; v < vectors_per_thread; ++v) {
    const std::uint64_t i = first + v * copy_threads;
    if (i < count) {
      const uint4 loaded = Kept ? __ldcg(from + i) : __ldcs(from + i);
      all &= loaded.x & loaded.y & loaded.z & loaded.w;
    }
  }
  if (all == 0xfffffffeU) *never = all;
}

/// The sign bit is the highest of Bits; a value is positive if that bit is clear and another is set.
template <class Bits>
__global__ void __launch_bounds__(naive_threads)
    naive_sign_mask(const Bits* x, std::uint32_t* mask, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * naive_threads + threadIdx.x;
  const Bits value = i < count ? x[i] : Bits{0};
  const std::uint32_t word = __ballot_sync(0xffffffffU, value != 0 && value >> (8 * sizeof(Bits) - 1) == 0);
  if (threadIdx.x % 32 == 0 && i < count) mask[i / 32] = word;
}

/// Mask, offset of the block's values, and the values, each written by the thread that has it.
template <class Bits>
__global__ void __launch_bounds__(naive_threads)
    naive_bitmap(const Bits* x, std::uint32_t* mask, std::uint64_t* offsets, Bits* values,
                 unsigned long long* used, std::uint64_t count) {
  __shared__ std::uint32_t before[naive_threads / 32 + 1];
  __shared__ std::uint64_t begin;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint64_t i = std::uint64_t{blockIdx.x} * naive_threads + threadIdx.x;
  const Bits value = i < count ? x[i] : Bits{0};
  const std::uint32_t word = __ballot_sync(0xffffffffU, value != 0);
  if (lane == 0) {
    if (i < count) mask[i / 32] = word;
    before[warp + 1] = static_cast<std::uint32_t>(__popc(word));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    before[0] = 0;
    for (unsigned w = 0; w < naive_threads / 32; ++w)
      before[w + 1] += before[w];
    begin = atomicAdd(used, static_cast<unsigned long long>(before[naive_threads / 32]));
    offsets[blockIdx.x] = begin;
  }
  __syncthreads();
  const auto rank = static_cast<std::uint32_t>(__popc(word & ((1U << lane) - 1)));
  if (value != 0) values[begin + before[warp] + rank] = value;
}

unsigned blocks_for(std::uint64_t count, std::uint64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

/// Calls body with a zero of the bits of the type.
template <class Body>
auto with_bits(dtype type, const Body& body) {
  return type == dtype::f32 ? body(std::uint32_t{}) : body(std::uint16_t{});
}

measured_case copy_case(const char* name, bool by_driver) {
  return {name, takes_floats, [by_driver](const map_form& form, map_source& maps) {
            const shared_map x = maps.after_relu(form);
            const auto y = std::make_shared<device_map>(form.type, form.dims());
            return unchecked(
                [=](void* stream) {
                  if (by_driver) {
                    copy_on_device(y->data(), x->data(), x->bytes(), stream);
                  } else {
                    copy_by_kernel(y->data(), x->data(), x->bytes(), stream);
                  }
                },
                2 * x->bytes(), x->bytes());
          }};
}

template <bool Kept>
void launch_read(const void* from, std::size_t bytes, void* never, void* stream) {
  const std::uint64_t count = bytes / sizeof(uint4);
  if (count == 0) return;
  read_vectors<Kept>
      <<<blocks_for(count, copy_threads * vectors_per_thread), copy_threads, 0, cuda_stream(stream)>>>(
          static_cast<const uint4*>(from), count, static_cast<std::uint32_t*>(never));
  check(cudaGetLastError(), "read_vectors");
}

prepared_case prepare_read(const map_form& form, map_source& maps) {
  const shared_map x = maps.after_relu(form);
  const auto never = std::make_shared<memory>(sizeof(std::uint32_t));
  return unchecked([=](void* stream) { launch_read<false>(x->data(), x->bytes(), never->data(), stream); },
                   x->bytes(), x->bytes());
}

prepared_case prepare_naive_mask(const map_form& form, map_source& maps) {
  const shared_map x = maps.after_relu(form);
  const auto count = static_cast<std::uint64_t>(x->elements());
  const auto mask = std::make_shared<memory>((count + 31) / 32 * 4);
  return with_bits(form.type, [&](auto bits) {
    using element = decltype(bits);
    return unchecked(
        [=](void* stream) {
          naive_sign_mask<element>
              <<<blocks_for(count, naive_threads), naive_threads, 0, cuda_stream(stream)>>>(
                  static_cast<const element*>(x->data()), static_cast<std::uint32_t*>(mask->data()), count);
          check(cudaGetLastError(), "naive_sign_mask");
        },
        x->bytes() + mask->size(), x->bytes(), mask->size());
  });
}

prepared_case prepare_naive_bitmap(const map_form& form, map_source& maps) {
  const shared_map x = maps.after_relu(form);
  const auto count = static_cast<std::uint64_t>(x->elements());
  const unsigned blocks = blocks_for(count, naive_threads);
  const auto mask = std::make_shared<memory>((count + 31) / 32 * 4);
  const auto offsets = std::make_shared<memory>(std::size_t{blocks} * 8);
  const auto values = std::make_shared<memory>(x->bytes());
  const auto used = std::make_shared<memory>(8);
  return with_bits(form.type, [&](auto bits) {
    using element = decltype(bits);
    const auto run = [=](void* stream) {
      naive_bitmap<element><<<blocks, naive_threads, 0, cuda_stream(stream)>>>(
          static_cast<const element*>(x->data()), static_cast<std::uint32_t*>(mask->data()),
          static_cast<std::uint64_t*>(offsets->data()), static_cast<element*>(values->data()),
          static_cast<unsigned long long*>(used->data()), count);
      check(cudaGetLastError(), "naive_bitmap");
    };
    const auto reset = [=](void* stream) { fill(used->data(), 0, 8, stream); };
    reset(nullptr);
    run(nullptr);
    std::uint64_t stored = 0;
    download(&stored, used->data(), 8);
    const std::uint64_t kept = mask->size() + offsets->size() + stored * sizeof(element);
    return prepared_case{reset, run, [] {}, x->bytes() + kept, kept, x->bytes()};
  });
}

}  // namespace

void copy_by_kernel(void* to, const void* from, std::size_t bytes, void* stream) {
  const std::uint64_t count = bytes / sizeof(uint4);
  if (count == 0) return;
  copy_vectors<<<blocks_for(count, copy_threads * vectors_per_thread), copy_threads, 0,
                 cuda_stream(stream)>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
  check(cudaGetLastError(), "copy_vectors");
}

void read_by_kernel(const void* from, std::size_t bytes, void* never, void* stream) {
  launch_read<true>(from, bytes, never, stream);
}

std::vector<measured_case> kernel_baselines() {
  return {copy_case("baseline/driver_copy", true),
          copy_case("baseline/kernel_copy", false),
          {"baseline/read_only", takes_floats, prepare_read},
          {"baseline/naive_sign_mask", takes_floats, prepare_naive_mask},
          {"baseline/naive_bitmap", takes_floats, prepare_naive_bitmap}};
}

}  // namespace stash::gpu
