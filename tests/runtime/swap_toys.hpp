// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Training steps in miniature for the swap engine: maps are made from maps, some wait on the host, and
/// every byte that is read counts in the result.

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/swap/swap_engine.hpp"

namespace stash::runtime::testing {

inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// A program and its two arenas.
class toy {
 public:
  swap_program program;
  swap_memory elsewhere;  ///< if not null: used in place of the toy's own arenas

  /// Adds a block that shares no byte with those alive. First fit, so that memory is used again at once.
  std::int32_t take(swap_side side, std::int64_t bytes) {
    std::vector<alive_block>& alive = alive_[static_cast<std::size_t>(side)];
    std::int64_t offset = 0;
    for (const alive_block& a : alive) {
      if (offset + bytes <= a.offset) break;
      offset = std::max(offset, a.offset + a.bytes);
    }
    const auto id = static_cast<std::int32_t>(program.blocks.size());
    program.blocks.push_back({side, offset, bytes});
    const auto at =
        std::find_if(alive.begin(), alive.end(), [&](const alive_block& a) { return a.offset > offset; });
    alive.insert(at, {id, offset, bytes});
    std::vector<std::byte>& arena = arena_[static_cast<std::size_t>(side)];
    arena.resize(std::max(arena.size(), static_cast<std::size_t>(offset + bytes)));
    return id;
  }
  void give(std::int32_t block) {
    for (std::vector<alive_block>& alive : alive_)
      std::erase_if(alive, [&](const alive_block& a) { return a.id == block; });
  }

  std::int32_t compute(std::vector<swap_access> accesses) {
    return add({swap_lane::compute, std::move(accesses), 0, nullptr, name("op")});
  }
  std::int32_t copy(swap_lane lane, std::int32_t from, std::int32_t to) {
    return add({lane,
                {{from, false}, {to, true}},
                program.blocks[static_cast<std::size_t>(from)].bytes,
                nullptr,
                name(lane == swap_lane::out ? "out" : "in")});
  }

  swap_memory memory() {
    return elsewhere.device != nullptr ? elsewhere : swap_memory{arena_[0].data(), arena_[1].data()};
  }
  std::int64_t host_bytes() const { return static_cast<std::int64_t>(arena_[1].size()); }
  std::int64_t device_bytes() const { return static_cast<std::int64_t>(arena_[0].size()); }

  /// What an op does: folds all it reads into the result, and writes values that follow from it.
  bool run(std::int32_t task) {
    const swap_task& t = program.tasks[static_cast<std::size_t>(task)];
    std::uint64_t h = static_cast<std::uint64_t>(task);
    for (const swap_access& a : t.accesses) {
      if (!a.writes) h = fold(h, program.blocks[static_cast<std::size_t>(a.block)]);
    }
    for (const swap_access& a : t.accesses) {
      if (!a.writes) continue;
      const swap_block& b = program.blocks[static_cast<std::size_t>(a.block)];
      for (std::int64_t i = 0; i < b.bytes; ++i)
        memory().begin(b)[i] = static_cast<std::byte>(mixed(h + static_cast<std::uint64_t>(i)) & 0xFF);
    }
    result = mixed(result ^ h);
    return true;
  }

  std::uint64_t result = 0;

  /// The result of a run.
  std::uint64_t result_of(swap_engine& engine) {
    result = 0;
    engine.run([&](std::int32_t task) { return run(task); });
    return result;
  }

 private:
  struct alive_block {
    std::int32_t id;
    std::int64_t offset, bytes;
  };

  std::uint64_t fold(std::uint64_t h, const swap_block& b) {
    for (std::int64_t i = 0; i < b.bytes; ++i)
      h = mixed(h ^ std::to_integer<std::uint64_t>(memory().begin(b)[i]));
    return h;
  }
  std::string name(const char* kind) const { return kind + std::to_string(program.tasks.size()); }
  std::int32_t add(swap_task t) {
    program.tasks.push_back(std::move(t));
    return static_cast<std::int32_t>(program.tasks.size()) - 1;
  }

  std::vector<std::byte> arena_[2];
  std::vector<alive_block> alive_[2];
};

/// A forward pass over `maps` maps of random sizes, of which a share goes to the host some ops after it was
/// made, and a backward pass that wants them all, last one first. Gradients take memory of the device too.
inline toy random_step(std::uint64_t seed, int maps, double share = 0.6, std::int64_t largest = 200) {
  std::mt19937_64 random(seed);
  const auto chance = [&](double p) { return static_cast<double>(random() >> 11) / 9007199254740992.0 < p; };
  const auto size = [&] {
    return static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(largest));
  };
  toy t;
  struct map {
    std::int32_t device = -1, host = -1;
    bool moves = false;
    int leaves = 0;  // forward op after which it has left
  };
  std::vector<map> all(static_cast<std::size_t>(maps));
  for (int i = 0; i < maps; ++i) {
    map& m = all[static_cast<std::size_t>(i)];
    m.device = t.take(swap_side::device, size());
    std::vector<swap_access> accesses{{m.device, true}};
    if (i > 0) accesses.push_back({all[static_cast<std::size_t>(i) - 1].device, false});
    t.compute(accesses);
    if (chance(0.2)) t.compute({{m.device, false}, {m.device, true}});  // in place
    m.moves = i + 1 < maps && chance(share);
    m.leaves = i + 1 + static_cast<int>(random() % 3);
    for (int j = 0; j < i; ++j) {
      map& o = all[static_cast<std::size_t>(j)];
      if (!o.moves || o.device < 0 || o.leaves > i) continue;
      o.host = t.take(swap_side::host, t.program.blocks[static_cast<std::size_t>(o.device)].bytes);
      t.copy(swap_lane::out, o.device, o.host);
      t.give(o.device);
      o.device = -1;
    }
  }
  std::int32_t gradient = t.take(swap_side::device, size());
  t.compute({{gradient, true}});
  int fetched = maps;
  for (int i = maps - 1; i >= 0; --i) {
    // Fetched ahead by up to two ops.
    const int until = std::max(0, i - static_cast<int>(random() % 3));
    for (; fetched > until; --fetched) {
      map& o = all[static_cast<std::size_t>(fetched) - 1];
      if (o.device >= 0) continue;
      o.device = t.take(swap_side::device, t.program.blocks[static_cast<std::size_t>(o.host)].bytes);
      t.copy(swap_lane::in, o.host, o.device);
      t.give(o.host);
    }
    map& m = all[static_cast<std::size_t>(i)];
    if (m.device < 0) {
      m.device = t.take(swap_side::device, t.program.blocks[static_cast<std::size_t>(m.host)].bytes);
      t.copy(swap_lane::in, m.host, m.device);
      t.give(m.host);
    }
    const std::int32_t next = t.take(swap_side::device, size());
    t.compute({{next, true}, {gradient, false}, {m.device, false}});
    t.give(gradient);
    t.give(m.device);
    gradient = next;
  }
  t.compute({{gradient, false}});
  t.program.edges = order_edges(t.program);
  return t;
}

}  // namespace stash::runtime::testing
