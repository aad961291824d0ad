// SPDX-License-Identifier: Apache-2.0
#include "runtime/swap/swap_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "stash/error.hpp"

namespace stash::runtime {
namespace {

[[noreturn]] void refuse(const swap_task& t, const std::string& expected) {
  throw error(errc::invalid_argument, fmt::format("swap program: {}: expected {}", t.name, expected));
}

bool share_bytes(const swap_block& a, const swap_block& b) {
  return a.side == b.side && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Blocks that share bytes hold other things, so that even two reads of them must not be swapped.
bool conflict(const swap_program& p, const swap_access& a, const swap_access& b) {
  if (a.block == b.block) return a.writes || b.writes;
  return share_bytes(p.blocks[static_cast<std::size_t>(a.block)],
                     p.blocks[static_cast<std::size_t>(b.block)]);
}

/// How far each lane is known to have come: one more than the last task in the list that has ended, 0 for
/// none.
using lane_clock = std::array<std::int32_t, swap_lanes>;

void take_later(lane_clock& clock, const lane_clock& other) {
  for (std::size_t l = 0; l < swap_lanes; ++l)
    clock[l] = std::max(clock[l], other[l]);
}

/// The last task of each lane that read the block, and that wrote it; -1 for none.
struct block_history {
  std::array<std::int32_t, swap_lanes> read{-1, -1, -1}, written{-1, -1, -1};
};

}  // namespace

void check_program(const swap_program& program) {
  for (const swap_task& t : program.tasks) {
    for (const swap_access& a : t.accesses) {
      if (a.block < 0 || static_cast<std::size_t>(a.block) >= program.blocks.size())
        refuse(t, fmt::format("a block 0..{}, got {}", program.blocks.size(), a.block));
      const swap_block& b = program.blocks[static_cast<std::size_t>(a.block)];
      if (b.bytes <= 0 || b.offset < 0)
        refuse(t, fmt::format("blocks of 1 byte or more at 0 or above, got {} at {}", b.bytes, b.offset));
    }
    if (t.lane == swap_lane::compute) continue;
    if (t.accesses.size() != 2 || t.accesses[0].writes || !t.accesses[1].writes)
      refuse(t, fmt::format("a block to read and one to write, got {} accesses", t.accesses.size()));
    const swap_block& from = program.blocks[static_cast<std::size_t>(t.accesses[0].block)];
    const swap_block& to = program.blocks[static_cast<std::size_t>(t.accesses[1].block)];
    const swap_side source = t.lane == swap_lane::out ? swap_side::device : swap_side::host;
    if (from.side != source || to.side == source) refuse(t, "a copy in the direction of its lane");
    if (t.bytes <= 0 || t.bytes > std::min(from.bytes, to.bytes))
      refuse(t, fmt::format("1..{} bytes, got {}", std::min(from.bytes, to.bytes), t.bytes));
  }
}

std::vector<swap_edge> order_edges(const swap_program& program) {
  const std::vector<swap_block>& blocks = program.blocks;
  std::vector<std::vector<std::int32_t>> sharing(blocks.size());
  for (std::size_t a = 0; a < blocks.size(); ++a) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (a != b && share_bytes(blocks[a], blocks[b])) sharing[a].push_back(static_cast<std::int32_t>(b));
    }
  }
  std::vector<block_history> history(blocks.size());
  std::vector<lane_clock> ended(program.tasks.size());  // known when the task ends, itself included
  std::array<std::int32_t, swap_lanes> last_of_lane{-1, -1, -1};
  std::vector<swap_edge> edges;
  for (std::size_t t = 0; t < program.tasks.size(); ++t) {
    const swap_task& task = program.tasks[t];
    const std::size_t lane = index(task.lane);
    lane_clock known{};
    if (last_of_lane[lane] >= 0) known = ended[static_cast<std::size_t>(last_of_lane[lane])];
    lane_clock needed{};
    const auto need = [&](const std::array<std::int32_t, swap_lanes>& last) {
      for (std::size_t l = 0; l < swap_lanes; ++l)
        needed[l] = std::max(needed[l], last[l] + 1);
    };
    for (const swap_access& a : task.accesses) {
      const block_history& own = history[static_cast<std::size_t>(a.block)];
      need(own.written);
      if (a.writes) need(own.read);
      for (const std::int32_t other : sharing[static_cast<std::size_t>(a.block)]) {
        need(history[static_cast<std::size_t>(other)].written);
        need(history[static_cast<std::size_t>(other)].read);
      }
    }
    // Of several lanes to wait for, one may have waited for the other.
    std::vector<std::int32_t> sources;
    for (std::size_t l = 0; l < swap_lanes; ++l) {
      if (l != lane && needed[l] > known[l]) sources.push_back(needed[l] - 1);
    }
    for (const std::int32_t s : sources) {
      const bool implied = std::ranges::any_of(sources, [&](std::int32_t other) {
        const std::size_t l = index(program.tasks[static_cast<std::size_t>(s)].lane);
        return other != s && ended[static_cast<std::size_t>(other)][l] > s;
      });
      if (!implied) edges.push_back({s, static_cast<std::int32_t>(t)});
    }
    for (const std::int32_t s : sources)
      take_later(known, ended[static_cast<std::size_t>(s)]);
    known[lane] = static_cast<std::int32_t>(t) + 1;
    ended[t] = known;
    last_of_lane[lane] = static_cast<std::int32_t>(t);
    for (const swap_access& a : task.accesses) {
      block_history& own = history[static_cast<std::size_t>(a.block)];
      (a.writes ? own.written : own.read)[lane] = static_cast<std::int32_t>(t);
    }
  }
  return edges;
}

std::vector<std::vector<std::int32_t>> find_conflicts(const swap_program& program) {
  std::vector<std::vector<std::int32_t>> result(program.tasks.size());
  const auto in_conflict = [&](const swap_task& a, const swap_task& b) {
    return std::ranges::any_of(a.accesses, [&](const swap_access& x) {
      return std::ranges::any_of(b.accesses, [&](const swap_access& y) { return conflict(program, x, y); });
    });
  };
  for (std::size_t t = 0; t < program.tasks.size(); ++t) {
    for (std::size_t earlier = 0; earlier < t; ++earlier) {
      if (program.tasks[earlier].lane == program.tasks[t].lane) continue;
      if (in_conflict(program.tasks[earlier], program.tasks[t]))
        result[t].push_back(static_cast<std::int32_t>(earlier));
    }
  }
  return result;
}

std::vector<swap_race> find_races(const swap_program& program) {
  const std::size_t n = program.tasks.size();
  for (const swap_edge& e : program.edges) {
    const bool known = e.before >= 0 && e.after > e.before && static_cast<std::size_t>(e.after) < n;
    if (!known || program.tasks[static_cast<std::size_t>(e.before)].lane ==
                      program.tasks[static_cast<std::size_t>(e.after)].lane) {
      throw error(errc::invalid_argument,
                  fmt::format("swap program: edges: expected edges that lead forward to another lane of {} "
                              "tasks, got one from {} to {}",
                              n, e.before, e.after));
    }
  }
  std::vector<std::vector<std::int32_t>> before(n);
  for (const swap_edge& e : program.edges)
    before[static_cast<std::size_t>(e.after)].push_back(e.before);
  // reached[t]: all tasks that have ended when t begins, as one bit each.
  const std::size_t words = (n + 63) / 64;
  std::vector<std::uint64_t> reached(n * words, 0);
  const auto row = [&](std::size_t t) { return std::span(reached).subspan(t * words, words); };
  std::array<std::int32_t, swap_lanes> previous{-1, -1, -1};
  const std::vector<std::vector<std::int32_t>> conflicts = find_conflicts(program);
  std::vector<swap_race> races;
  for (std::size_t t = 0; t < n; ++t) {
    const std::size_t lane = index(program.tasks[t].lane);
    if (previous[lane] >= 0) before[t].push_back(previous[lane]);
    for (const std::int32_t p : before[t]) {
      const auto from = row(static_cast<std::size_t>(p)), to = row(t);
      for (std::size_t w = 0; w < words; ++w)
        to[w] |= from[w];
      to[static_cast<std::size_t>(p) / 64] |= std::uint64_t{1} << (p % 64);
    }
    for (const std::int32_t c : conflicts[t]) {
      if ((row(t)[static_cast<std::size_t>(c) / 64] >> (c % 64) & 1U) == 0)
        races.push_back({c, static_cast<std::int32_t>(t)});
    }
    previous[lane] = static_cast<std::int32_t>(t);
  }
  return races;
}

}  // namespace stash::runtime
