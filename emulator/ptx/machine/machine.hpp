// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Runs kernels as nvcc compiled them, on the CPU: PTX of virtual architecture 9.0 or older, read as text and
/// interpreted warp by warp. The emulator of tests/simt runs the sources through the host's compiler; here
/// run the instructions that a driver would be given, with the inline assembly and all branches for devices.
///
/// What a GPU forbids and does not always notice ends a launch: accesses outside live memory, misaligned
/// ones, shared memory that another lane has written without a barrier in between, lanes that do not meet,
/// blocks that wait for ever. Instructions that the machine does not know end it, too. Shared memory begins
/// with a pattern (0xc3 in every byte), so that what is read before it is written is the same each time, and
/// wrong.
///
/// Not shown here: what ptxas makes of the PTX, weak memory ordering between blocks, speed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace stash::ptx {

/// A kernel did what the programming model forbids, or what the machine does not know; what() names the
/// kernel, the block and thread, and the line of PTX.
class violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a launch has to know of a kernel.
struct kernel_facts {
  std::string name;  ///< as in the PTX: mangled
  /// Parameters lie one after the other in a block of memory, each at its offset.
  struct parameter {
    std::size_t offset, bytes;
  };
  std::vector<parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::uint32_t most_threads = 1024;  ///< of a block: .maxntid
  std::size_t shared_bytes = 0;       ///< static
  int architecture = 0;               ///< 90 for .target sm_90
};

class kernel;

/// A module: the kernels of one PTX text. Kernels are decoded when they are first found.
class program {
 public:
  explicit program(std::string text);
  program(program&&) noexcept;
  program& operator=(program&&) noexcept;
  ~program();

  /// Null if there is none of that name. Throws violation where its text is not understood.
  const kernel* find(std::string_view name);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

const kernel_facts& facts_of(const kernel& k);

struct extent {
  std::uint32_t x = 1, y = 1, z = 1;
};

/// How launches go from now on, in all threads.
struct schedule {
  std::uint32_t resident_blocks = 1;  ///< blocks that take turns
  /// 0: warps run until they have to wait. Otherwise for so many instructions or less, drawn from `seed`, and
  /// the next warp is drawn as well.
  std::uint32_t turn = 0;
  std::uint32_t seed = 1;
};
void set_schedule(const schedule& s);

/// Whether accesses of memory are counted from now on, which takes time. Instructions always are.
void count_accesses(bool on);
bool is_counting();

/// Runs all threads of the grid and returns when all have ended. `parameters` are facts.parameter_bytes.
/// Addresses are those of device_memory.hpp. Throws violation: the grid has run in part then.
void run(const kernel& k, extent grid, extent block, std::size_t dynamic_shared, const std::byte* parameters);

/// What ran since the start of the program, summed for each kernel.
struct counts {
  std::uint64_t launches = 0, threads = 0;
  std::uint64_t warp_instructions = 0, lane_instructions = 0;
  /// Warp instructions that touch global memory, and sectors of 32 bytes that they touch.
  std::uint64_t global_loads = 0, global_stores = 0, load_sectors = 0, store_sectors = 0;
  /// Warp instructions that touch shared memory, and passes over its 32 banks of 4 bytes that they take.
  std::uint64_t shared_accesses = 0, shared_passes = 0;

  counts& operator+=(const counts& other) noexcept;
  counts& operator-=(const counts& other) noexcept;
};
struct named_counts {
  std::string kernel;
  counts ran;
};
std::vector<named_counts> counts_so_far();

/// Of each line of a kernel's PTX, from its first one on, how many instructions of warps ran there; only
/// while accesses are counted.
struct line_counts {
  std::string kernel;
  std::uint32_t first_line = 0;
  std::vector<std::uint64_t> ran;
};
std::vector<line_counts> lines_so_far();

}  // namespace stash::ptx
