// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Orders in which a swap program may run: what threads and devices do by chance, done on purpose.
///
/// The lanes of a program advance one step of work at a time: a task of the compute lane, or a chunk of a
/// copy. Before each, a schedule chooses among the lanes that no edge holds back.

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "runtime/swap/swap_program.hpp"

namespace stash::runtime {

/// A lane that can go on, and with which task.
struct swap_candidate {
  swap_lane lane = swap_lane::compute;
  std::int32_t task = -1;
};

/// Two tasks that conflict, of which the later one in the list began before the earlier one had ended.
struct swap_violation {
  std::int32_t late = -1, early = -1;
};

class swap_schedule {
 public:
  virtual ~swap_schedule() = default;

  /// A new run begins.
  virtual void begin() {}
  /// The index of the candidate that goes on; there is at least one, in the order of the lanes.
  virtual std::size_t choose(std::span<const swap_candidate> candidates) = 0;
  /// A conflict ran out of order. The run goes on, so that its effect shows.
  virtual void violated(const swap_violation& violation) { violations.push_back(violation); }

  std::vector<swap_violation> violations;
};

/// The order of the list.
class list_order final : public swap_schedule {
 public:
  std::size_t choose(std::span<const swap_candidate> candidates) override;
};

/// The order of the list, but for one task that is put off until nothing else can run. Whatever is not
/// ordered after the task runs before it, so that the laggards of all tasks together turn every unordered
/// pair round.
class laggard_order final : public swap_schedule {
 public:
  explicit laggard_order(std::int32_t task) : task_(task) {}
  std::size_t choose(std::span<const swap_candidate> candidates) override;

 private:
  std::int32_t task_;
};

/// Any lane with equal chances; the same ones for the same seed on every platform.
class random_order final : public swap_schedule {
 public:
  explicit random_order(std::uint64_t seed) : random_(seed) {}
  std::size_t choose(std::span<const swap_candidate> candidates) override;

 private:
  std::mt19937_64 random_;
};

/// All orders, one in each run: `do run(); while (orders.next());`
class every_order final : public swap_schedule {
 public:
  void begin() override { at_ = 0; }
  std::size_t choose(std::span<const swap_candidate> candidates) override;
  /// Moves on to an order that was not run yet; false if there is none.
  bool next();

 private:
  struct branch {
    std::size_t chosen, count;
  };
  std::vector<branch> path_;
  std::size_t at_ = 0;
};

}  // namespace stash::runtime
