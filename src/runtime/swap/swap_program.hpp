// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the swap engine runs: the tasks of one training step on three lanes, and which task waits for which.
///
/// Every lane runs its tasks in the order of the list; lanes do not wait for each other but at edges. The
/// list itself, run from front to back, is the order that gives the right result. Two tasks of different
/// lanes *conflict* if they touch common bytes and one of them changes them; edges must put every such pair
/// in the order of the list, and then no order that they allow can change a bit of the result.
///
/// Edges are made from the bytes that tasks touch, never by hand, so that reuse of memory is covered like
/// flow of data: a task that writes where a copy still reads waits for the copy. The work that comes next in
/// a lane needs no edge, and an edge that others imply is left out: every edge that remains is needed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stash::runtime {

enum class swap_lane : std::uint8_t {
  compute,  ///< kernels and codecs
  out,      ///< copies to the host
  in,       ///< copies back
};
inline constexpr std::size_t swap_lanes = 3;
inline std::size_t index(swap_lane lane) noexcept {
  return static_cast<std::size_t>(lane);
}

enum class swap_side : std::uint8_t { device, host };

/// A block of an arena between its first and its last use. Blocks may share bytes if the uses of one end
/// before those of the other begin.
struct swap_block {
  swap_side side = swap_side::device;
  std::int64_t offset = 0;  ///< in bytes, from the start of the side's arena
  std::int64_t bytes = 0;
};

struct swap_access {
  std::int32_t block = -1;
  bool writes = false;
};

struct swap_task {
  swap_lane lane = swap_lane::compute;
  /// All blocks that are touched. A copy reads `accesses[0]` and writes `accesses[1]`.
  std::vector<swap_access> accesses;
  /// Copies: bytes from the start of the blocks.
  std::int64_t bytes = 0;
  /// Copies: null, or where the number of leading bytes that hold something is found when the copy begins.
  const std::uint64_t* used = nullptr;
  std::string name;  ///< for errors
};

/// `after` does not begin before `before` has ended. Both are indices into the list, on different lanes.
struct swap_edge {
  std::int32_t before = -1, after = -1;
  bool operator==(const swap_edge&) const = default;
};

struct swap_program {
  std::vector<swap_block> blocks;
  std::vector<swap_task> tasks;
  std::vector<swap_edge> edges;  ///< ordered by `after`
};

/// Two tasks that conflict and that no edges put in order.
struct swap_race {
  std::int32_t before = -1, after = -1;  ///< in the order of the list
};

/// Throws error(invalid_argument) naming the task: unknown blocks, blocks without bytes or before the start
/// of their arena, copies without exactly two accesses from one side to the other or longer than a block.
void check_program(const swap_program& program);

/// The smallest set of edges that orders every conflict, ordered by `after`. The program has passed
/// check_program(); its edges are ignored.
std::vector<swap_edge> order_edges(const swap_program& program);

/// For every task the earlier ones of other lanes that conflict with it.
std::vector<std::vector<std::int32_t>> find_conflicts(const swap_program& program);

/// All conflicts that the program's edges leave unordered; finds them by its own code. Throws
/// error(invalid_argument) for edges that do not lead forward in the list or stay on a lane.
std::vector<swap_race> find_races(const swap_program& program);

}  // namespace stash::runtime
