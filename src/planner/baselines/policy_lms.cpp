// SPDX-License-Identifier: Apache-2.0
// TFLMS 2 (Le et al., ISMM 2019): maps whose reader is more than a threshold of topological levels away move,
// and come back a number of levels ahead; both numbers are searched for in a simulation of memory alone.

#include <fmt/format.h>

#include <algorithm>

#include "planner/baselines/policies.hpp"

namespace stash::planner {
namespace {

// Share of all memory that the search may fill.
constexpr double safe_share = 0.9;

class lms {
 public:
  lms(const rule_input& in, problem& ticks) : in_(in), ticks_(ticks), level_(levels_of(in.g, in.options)) {
    const graph& g = in.g;
    id_vector<storage_id, std::int32_t> written(g.storages.size(), 0);
    for (const op_id i : g.ops.ids()) {
      if (g.ops[i].stage != op_stage::forward) continue;
      for (const tensor_ref& r : g.ops[i].outputs)
        written[r.storage] = std::max(written[r.storage], level_[i]);
      for (const storage_id s : g.ops[i].optional_outputs)
        written[s] = std::max(written[s], level_[i]);
    }
    for (std::size_t i = 0; i < ticks.items.size(); ++i) {
      const item& x = ticks.items[i];
      for (const transfer& t : x.options[option_that_moves(x, movable(x))].transfers) {
        const storage_id s = in.options.components[i].storages[position_of(t.form)];
        const std::int32_t reader = level_[op_of(t.needed)];
        moves_.push_back({i, 1U << t.form, reader - written[s]});
        most_ = std::max(most_, moves_.back().distance);
      }
    }
  }

  ruled run() {
    const auto capacity =
        static_cast<std::int64_t>(safe_share * static_cast<double>(in_.limit + in_.static_bytes)) -
        in_.static_bytes;
    // 1. The largest threshold, so that as little as possible moves, with swap-in one level ahead.
    const std::int32_t threshold = largest(0, most_, [&](std::int32_t t) { return peak(t, 1) <= capacity; });
    // 2. With it, as far ahead as memory allows.
    const std::int32_t levels = level_.empty() ? 1 : *std::max_element(level_.begin(), level_.end());
    const std::int32_t ahead =
        largest(1, std::max(1, levels), [&](std::int32_t a) { return peak(threshold, a) <= capacity; });
    const option_choice c = choice(threshold);
    for (std::size_t i = 0; i < c.size(); ++i) {
      for (transfer& t : ticks_.items[i].options[c[i]].transfers)
        t.earliest = trigger(t, ahead);
    }
    return {c, false, fmt::format("swapout_threshold {}, swapin_ahead {}", threshold, ahead)};
  }

 private:
  struct move {
    std::size_t item;
    std::uint32_t bit;
    std::int32_t distance;  // levels from the op that writes it last to the first one that wants it back
  };

  // The op that runs at or right after a tick.
  static op_id op_of(tick_number t) { return op_of_tick(t + 1); }

  // The last of [least, most] that fits, if fitting ends somewhere; `least` if nothing fits.
  template <class Fits>
  static std::int32_t largest(std::int32_t least, std::int32_t most, Fits fits) {
    while (least < most) {
      const std::int32_t middle = least + (most - least + 1) / 2;
      if (fits(middle)) {
        least = middle;
      } else {
        most = middle - 1;
      }
    }
    return least;
  }

  option_choice choice(std::int32_t threshold) const {
    std::vector<std::uint32_t> to_move(ticks_.items.size(), 0);
    for (const move& m : moves_) {
      if (m.distance > threshold) to_move[m.item] |= m.bit;
    }
    option_choice c;
    for (std::size_t i = 0; i < ticks_.items.size(); ++i)
      c.push_back(option_that_moves(ticks_.items[i], to_move[i]));
    return c;
  }

  // Swap-in begins with the first backward op that is at most `ahead` levels before the reader.
  std::int32_t trigger(const transfer& t, std::int32_t ahead) const {
    const op_id reader = op_of(t.needed);
    const std::int32_t from = level_[reader] - ahead;
    op_id at = reader;
    while (at > op_id(0) && tick_of(at) - 1 > t.released + 1 && level_[at - 1] >= from &&
           in_.g.ops[at - 1].stage == op_stage::backward)
      at = at - 1;
    return std::min(tick_of(at), t.needed);
  }

  // Largest use of memory if copies took no time: a map is there until it is released and from its trigger
  // on.
  std::int64_t peak(std::int32_t threshold, std::int32_t ahead) const {
    const option_choice c = choice(threshold);
    const std::size_t ticks = ticks_.fixed_bytes.size();
    id_vector<tick_number, std::int64_t> change(ticks + 1, 0);
    const auto hold = [&](std::int32_t first, std::int32_t last, std::int64_t bytes) {
      if (first > last) return;
      change[first] += bytes;
      change[last + 1] -= bytes;
    };
    for (std::size_t i = 0; i < c.size(); ++i) {
      const item_option& o = ticks_.items[i].options[c[i]];
      for (const held_bytes& h : o.held)
        hold(h.first, h.last, h.bytes);
      for (const transfer& t : o.transfers)
        hold(trigger(t, ahead), t.needed - 1, t.bytes);
    }
    std::int64_t sum = 0, most = 0;
    for (std::size_t t = 0; t < ticks; ++t) {
      sum += change[t];
      most = std::max(most, ticks_.fixed_bytes[t] + sum);
    }
    return most;
  }

  const rule_input& in_;
  problem& ticks_;
  id_vector<op_id, std::int32_t> level_;
  std::vector<move> moves_;
  std::int32_t most_ = 0;
};

}  // namespace

ruled lms_rule(const rule_input& in, problem& ticks) {
  return lms(in, ticks).run();
}

}  // namespace stash::planner
