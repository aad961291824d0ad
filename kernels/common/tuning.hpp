// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How kernels use a multiprocessor: all that may be turned without changing what they compute. Almost all is
/// the same for every architecture: sizes of blocks decide the grids, which the host computes, and 65536
/// registers and 48 KiB in flight (docs/kernels.md) are those of all of them from sm_80 on. Most grids follow
/// from the tensors alone: blocks are short and many, so that any number of multiprocessors is kept busy.
/// Only threads that go down rows are made more, and shorter, until the device is full.
///
/// Threads are of a block. Resident blocks are those that a multiprocessor shall have registers for at once;
/// 0 leaves that to the compiler. How many there are is up to its shared memory as well: 164 KiB and more
/// (sm_80, sm_90) hold three blocks of every tile kernel, 100 KiB (sm_86, sm_89) two of those of f32 csr, 64
/// KiB (sm_75) one.

namespace stash::kernels::tuning {

/// What is compiled for: 90 for sm_90, 0 for the host.
#ifdef __CUDA_ARCH__
inline constexpr unsigned architecture = __CUDA_ARCH__ / 10;
#else
inline constexpr unsigned architecture = 0;
#endif

// Element-wise kernels.
inline constexpr unsigned group_threads = 256;
/// Of a thread, for each dense map.
inline constexpr unsigned loads_in_flight = 4;
/// For many small maps; left alone, the compiler would rather spill.
inline constexpr unsigned group_blocks_of_many = 1;
/// Two maps of 16-bit elements, or a map and codes that are split, need more registers than three blocks
/// leave.
inline constexpr unsigned narrow_gradient_blocks = 2;
/// Of f32: left alone, ptxas squeezes a fifth block in on some architectures and spills.
inline constexpr unsigned gradient_blocks = 4;
inline constexpr unsigned dropout_blocks = 4;
/// Where a thread has all 16-bit elements of a scale.
inline constexpr unsigned short_cast_blocks = 4;

/// Blocks that may be resident before the kernel in front has ended. Those after them have no input fetched
/// ahead, which would cost a large map 2 % on an H100.
inline constexpr unsigned blocks_ahead = 1024;

// Tiles: a warp has one, and those of a block claim their space at once.
inline constexpr unsigned tile_warps = 8;
inline constexpr unsigned encode_blocks = 3;
/// For many small maps with narrow values three would spill on sm_120.
inline constexpr unsigned narrow_encode_blocks_of_many = 2;
// Left to itself, ptxas squeezes one more block in and spills.
inline constexpr unsigned decode_blocks = 4;
inline constexpr unsigned list_blocks = 2;
inline constexpr unsigned gate_blocks = 3;
/// Of 16-bit elements, of which a thread has half as many bytes in flight.
inline constexpr unsigned narrow_gate_blocks = 4;

// Pooling.
inline constexpr unsigned pool_threads = 256;
/// Of these and others below, ptxas wants a few registers more on later architectures, where one block less
/// is better than to spill.
inline constexpr unsigned pool_blocks = 3;
/// Of 16-bit elements of non-overlapping windows whose codes are digits: a thread has few loads.
inline constexpr unsigned pool_blocks_of_digits = 5;
/// Where a thread has two windows of 2 x 2.
inline constexpr unsigned pool_blocks_of_small_pairs = architecture >= 120 ? 3 : 4;
/// Where a thread sums 16-bit elements two at a time.
inline constexpr unsigned pool_blocks_packed = 4;
/// Where argmaxes are found again in values, or their signs lie in tiles.
inline constexpr unsigned pool_blocks_searching = 2;
/// Where gradients come from three rows of windows and more.
inline constexpr unsigned pool_blocks_of_three_rows = 2;
/// Where rows are whole vec16s, and argmaxes are not found again for gradients, or are.
inline constexpr unsigned pool_blocks_of_vec16 = 4;
inline constexpr unsigned pool_blocks_of_searched_vec16 = architecture >= 120 ? 2 : pool_blocks;
/// Where positions have 64 bits.
inline constexpr unsigned pool_blocks_of_long_index = architecture >= 100 ? 2 : pool_blocks;
/// Rows of dx that a thread makes one after the other, where windows are found again for them. It reads up to
/// four more. Small maps have lower tiles, as long as threads are fewer than the device has space for with
/// three blocks on each multiprocessor.
inline constexpr unsigned pool_tile_rows = 16, least_pool_tile_rows = 4;
inline constexpr unsigned pool_tiles_of_processor = 3 * pool_threads;
/// The same of windows with stride 1 where rows of two maps are read ahead.
inline constexpr unsigned long_pool_tile_rows = 32;

/// Where rows have any length: a thread goes down more rows the fewer threads there are, and most of a
/// block's shared memory is the map's.
inline constexpr unsigned halo_threads = 128, halo_blocks = 6;

/// Where windows have no kernel of their own: most of a block's shared memory are sums, so many of a thread.
inline constexpr unsigned scatter_threads = 64, scatter_values = 160, scatter_blocks = 5;
/// Positions of the axis that a thread goes along, at most.
inline constexpr unsigned scatter_rows = 64;
/// The same forward: maxima of so many positions of a thread, for as many columns or channels, and windows of
/// a column at most.
inline constexpr unsigned walk_threads = 64, walk_positions = 16, walk_lanes = 4, walk_blocks = 6,
                          walk_windows = 64;

// Running sums.
inline constexpr unsigned scan_threads = 1024;
/// Words of a thread in one round: a block of which nothing else hides the latency has this many loads in
/// flight, and meets twice for so many words.
inline constexpr unsigned scan_words = 8;

/// The most maps of one launch.
inline constexpr unsigned most_jobs = 32;

}  // namespace stash::kernels::tuning
