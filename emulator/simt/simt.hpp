// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Runs CUDA kernels as ordinary code: every thread of a block is a fibre, and a scheduler switches between
/// them at barriers and warp operations, in an order that the caller chooses. What a GPU leaves undefined and
/// often forgives is an error here: barriers that not all threads reach, warp operations whose lanes do not
/// meet, lanes outside their mask. Shared memory is poisoned, and lies in blocks of its own, so that address
/// sanitizers see an index that is out of range.
///
/// Kernels do not include this file: they use kernels/common/simt.hpp, which says the same to nvcc.
///
/// Not shown here: weak memory ordering between blocks, bank conflicts, speed.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace simt {

struct dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const noexcept { return std::uint64_t{x} * y * z; }
};

/// Order in which threads that could run do so, and in which blocks start.
enum class order : std::uint8_t { forward, reverse, random };

struct schedule {
  order threads = order::forward;
  std::uint32_t seed = 1;             ///< random only
  std::uint32_t resident_blocks = 1;  ///< blocks that run at the same time
  /// If not 0: only so many blocks of each grid run, its last ones. For maps that are too large to be run
  /// whole.
  std::uint64_t last_blocks = 0;
};

/// Of every launch from this thread until the next call.
void set_schedule(const schedule& s);

/// A kernel did what the programming model forbids; what() names block, thread and source line.
class violation : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Runs `kernel` in every thread of the grid and returns when all have ended. Throws the first violation or
/// exception of a thread (others are then abandoned, their stacks unwound).
/// `dynamic_shared` bytes of shared memory are what dynamic_shared() points to.
void launch(dim3 grid, dim3 block, std::size_t dynamic_shared, const std::function<void()>& kernel);

/// Whether what is enqueued in a stream is kept for later instead of done (recording.hpp).
bool is_recorded(void* stream);
/// Of a stream that is recorded.
void record(void* stream, std::function<void()> work);

/// Work of a stream, which is called with no arguments: now, or if the stream is recorded, at every launch.
template <class Work>
void enqueue(void* stream, const Work& work) {
  if (is_recorded(stream)) return record(stream, work);
  work();
}

/// Those of the device that is emulated, on which nothing but the host's choice of grids depends: an H200's
/// 132 until others are set. With 0, no grid is made larger for the sake of a device.
std::uint64_t multiprocessors() noexcept;
void set_multiprocessors(std::uint64_t count);

/// Launches since the start of the program.
std::size_t launches_so_far();
/// Threads of the last launch, those of all blocks.
std::uint64_t threads_of_last_launch();

/// Calls `before` and `after` around every launch from now on, `after` also when the launch throws. They must
/// not throw.
void around_launches(void (*before)(), void (*after)());

/// Where in the sources a thread is.
struct location {
  const char* file;
  int line;
  friend bool operator==(const location& a, const location& b) noexcept {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
  }
};

// What a kernel asks for. Calling these outside a launch is a violation.

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();

/// __syncthreads().
void sync_block(location at);
/// __syncwarp(mask).
void sync_warp(std::uint32_t mask, location at);
/// __ballot_sync(mask, predicate).
std::uint32_t ballot(std::uint32_t mask, bool predicate, location at);

/// All warp operations that move values are this one: gives what lane `from` of the warp brought, or the own
/// value if `from` is no lane of the warp. `kind` distinguishes operations.
std::uint64_t exchange(std::uint32_t mask, std::uint64_t value, std::uint32_t from, const char* kind,
                       location at);

/// Lets other threads run: for loops that wait for another block.
void yield();

/// Before an atomic operation: in a random schedule other threads may come first. Two operations of one block
/// on a word are mostly with others' in between on a GPU.
void interleave();

/// Shared memory of the block: the same address for all threads that ask from one location. Poisoned.
void* static_shared(std::size_t bytes, std::size_t alignment, location at);
void* dynamic_shared();

}  // namespace simt
