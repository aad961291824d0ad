// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the parts of the machine share: a decoded kernel, a warp that runs it, and the block around that.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ptx/machine/device_memory.hpp"
#include "ptx/machine/machine.hpp"

namespace stash::ptx {

inline constexpr unsigned warp_lanes = 32;
inline constexpr std::uint32_t all_lanes = 0xffffffffU;

/// Generic addresses of memory that is not global begin there, where no pointer of a host can point.
inline constexpr std::uint64_t shared_window = 0x0100'0000'0000'0000,
                               parameter_window = 0x0200'0000'0000'0000;

/// A register: 32 values one after the other, at an offset in the registers of the warp, or in the constants
/// of the kernel. A predicate is one word, a bit for each lane.
struct operand {
  std::uint32_t offset = 0;
  bool constant = false;
  std::uint8_t bytes = 0;  ///< of one value; 0 for predicates
};

struct warp;
struct instruction;
/// Does an instruction for the lanes given, which are some at least.
using handler = void (*)(warp&, const instruction&, std::uint32_t lanes);

enum class flow : std::uint8_t {
  plain,
  branch,      ///< to instruction::target
  end,         ///< ret, exit
  pause,       ///< others should run: nanosleep
  meet,        ///< all lanes of the mask in the last operand come here; then the handler runs
  meet_block,  ///< all threads of the block come here
};

struct instruction {
  handler run = nullptr;
  std::array<operand, 8> operands;
  std::uint32_t guard = 0;  ///< offset of a predicate
  bool guarded = false, guard_negated = false;
  flow kind = flow::plain;
  std::uint8_t count = 0;      ///< operands, or values of a vector
  std::uint32_t target = 0;    ///< of a branch
  std::int64_t immediate = 0;  ///< added to an address; a table of bits; what else is known beforehand
  std::uint32_t line = 0;
};

/// Registers that every warp begins with.
enum special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  lanemask_lt,
  lanemask_le,
  lanemask_eq,
  lanemask_ge,
  lanemask_gt,
  specials
};
inline constexpr std::uint32_t bytes_of_special = warp_lanes * sizeof(std::uint32_t);

class kernel {
 public:
  kernel_facts facts;
  std::vector<instruction> code;
  std::vector<std::uint64_t> constants;  ///< bytes, aligned
  std::size_t register_bytes = 0;
  std::size_t dynamic_shared_offset = 0;
};

/// Who touched a byte of shared memory last, and when.
struct touched {
  std::uint64_t written = 0, read = 0;  ///< block::now then
  std::uint16_t writer = 0, reader = 0;
};

struct block {
  extent index;
  std::vector<std::byte> shared;
  std::vector<touched> shadow;
  std::vector<warp> warps;
  std::uint64_t now = 1;  ///< goes up with every barrier, of blocks and warps
  std::uint64_t begun = 1, last_barrier = 1;
  std::uint32_t warps_left = 0, warps_at_barrier = 0;
};

/// What all warps of a launch look at.
struct grid {
  const kernel* code = nullptr;
  extent blocks, threads;
  std::size_t shared_bytes = 0;
  const std::byte* parameters = nullptr;
  counts ran;
  std::vector<std::uint64_t> ran_at;  ///< of each instruction; empty if nobody asks
  /// Memory that was touched last.
  std::array<region, 8> regions;
  std::size_t oldest = 0;
};

/// Lanes that are at the same instruction.
struct group {
  std::uint32_t pc = 0, lanes = 0;
  bool waits = false;  ///< for other lanes
};

struct warp {
  grid* all = nullptr;
  block* home = nullptr;
  std::uint32_t first_thread = 0;
  std::uint32_t live = 0;
  bool at_barrier = false;
  std::uint64_t last_meeting = 1;  ///< block::now then
  std::vector<group> groups;
  std::vector<std::uint64_t> registers;

  template <class T>
  T* at(const operand& o) noexcept {
    const std::uint64_t* base = o.constant ? all->code->constants.data() : registers.data();
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(base)) + o.offset);
  }
  std::uint32_t& predicate(std::uint32_t offset) noexcept {
    return *reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(registers.data()) + offset);
  }
};

/// Throws violation: what the lane did at this instruction.
[[noreturn]] void violate(const warp& w, const instruction& i, unsigned lane, const std::string& what);

}  // namespace stash::ptx
