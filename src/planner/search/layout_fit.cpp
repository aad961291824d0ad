// SPDX-License-Identifier: Apache-2.0
#include "planner/search/layout_fit.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace stash::planner {
namespace {

// How often another timeline is tried before the search starts over with less. A round takes as long as the
// network has steps.
constexpr int rounds_of_any = 12, least_thorough_rounds = 32, most_thorough_rounds = 64;
constexpr std::size_t steps_of_all_rounds = 64000;
constexpr int patience = 3;
// Where rounds are few, less than this part of the capacity is not withheld: it would seldom change anything.
constexpr std::int64_t least_parts_of_capacity = 2000;
constexpr double close_to_bound = 1.001;  // no other timeline is tried
// How many layouts that do not fit are tried after the best that does.
constexpr int most_vain_layouts = 6;
// A layout of few buffers that needs only this part of the capacity more is mended further, from where it
// ended.
constexpr std::int64_t parts_of_near_miss = 100;
constexpr int most_mended_again = 6;
constexpr std::size_t most_mended_buffers = 1500;
// Layouts of more buffers leave a part of the capacity empty, and none of the same choices will leave less
// than this share of the least one. What is live may not come closer to the capacity.
constexpr double share_of_least_waste = 0.7;

int rounds_for(std::size_t steps, bool thorough) {
  if (!thorough) return rounds_of_any;
  return std::clamp(static_cast<int>(steps_of_all_rounds / (steps + 1)), least_thorough_rounds,
                    most_thorough_rounds);
}

}  // namespace

placement place_within(const plan_options& options, schedule s, std::optional<std::int64_t> capacity,
                       std::int64_t work, const placement* like) {
  return options.lay_out ? place(std::move(s), capacity, work, like) : without_layout(std::move(s));
}

timed_choice layout_fitter::fit(const fastest_choice& found, std::int64_t capacity, bool thorough) {
  const id_vector<joined_step, std::int64_t> fixed = steps_.fixed;
  withheld_.assign(fixed.size(), 0);
  failures_ = mended_again_ = 0;
  least_waste_ = std::numeric_limits<std::int64_t>::max();
  int vain_layouts = 0;
  timed_choice best;
  best.where.height = std::numeric_limits<std::int64_t>::max();
  best.ms = std::numeric_limits<double>::infinity();
  simulator sim(steps_);
  option_choice trial = found.choice;
  const double close = std::max(found.ms * (1.0 + 1e-9), found.bound_ms * close_to_bound);
  placement last;  // the next one is mended from it
  const int rounds = rounds_for(fixed.size(), thorough);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t k = 0; k < fixed.size(); ++k)
      steps_.fixed[k] = fixed[k] + withheld_[k];
    timeline_record record;
    simulated s = sim.run_late(trial, record);
    if (!s.feasible || round > 0) {
      std::optional<fastest_choice> other = other_choice(found, trial, round);
      if (!other) {
        give_back(0.5);
        continue;
      }
      trial = std::move(other->choice);
      s = sim.run_late(trial, record);
    }
    const bool fitted = best.where.height <= capacity;
    // Slower than what already fits: the layout is of no interest.
    if (fitted && s.ms >= best.ms) {
      give_back(0.7);
      continue;
    }
    selection chosen = view_.select(trial, record);
    schedule steps = facts_.build(chosen, options_);
    if (fitted && is_hopeless(steps, capacity)) continue;
    // The search leaves no headroom: where buffers are many the first layout seldom fits, however long
    // it takes.
    const bool hopeless = round == 0 && steps.buffers.size() > most_mended_buffers;
    const std::int64_t work = hopeless ? quick_layout_work / 4 : quick_layout_work;
    placement placed = place_within(options_, std::move(steps), capacity, work, &last);
    if (thorough) {
      mend_near_miss(placed, capacity);
      last = placed;
    }
    least_waste_ = std::min(least_waste_, placed.height - placed.max_live);
    const bool fits = placed.height <= capacity;
    if (fitted && !fits && ++vain_layouts > most_vain_layouts) break;
    if (fits) {
      failures_ = vain_layouts = 0;
      give_back(0.6);
    } else {
      withhold(placed, capacity, thorough);
    }
    if (fits ? !fitted || s.ms < best.ms : placed.height < best.where.height)
      best = {{std::move(chosen), std::move(placed)}, trial, view_.times_of(trial, record), s.ms};
    if (best.where.height <= capacity && (!thorough || best.ms <= close)) break;
  }
  steps_.fixed = fixed;
  return best;
}

bool layout_fitter::is_hopeless(const schedule& steps, std::int64_t capacity) {
  if (steps.buffers.size() <= most_mended_buffers) return false;
  const auto waste = static_cast<std::int64_t>(static_cast<double>(least_waste_) * share_of_least_waste);
  const std::int64_t beyond = without_layout(steps).max_live + waste - capacity;
  if (beyond <= 0) return false;
  constexpr double share = 0.3;
  for (std::int64_t& bytes : withheld_)
    bytes += static_cast<std::int64_t>(static_cast<double>(beyond) * share);
  return true;
}

void layout_fitter::mend_near_miss(placement& placed, std::int64_t capacity) {
  if (placed.steps.buffers.size() > most_mended_buffers) return;
  for (int turn = 1; turn <= 2 && mended_again_ < most_mended_again; ++turn, ++mended_again_) {
    if (placed.height <= capacity || placed.height - capacity >= capacity / parts_of_near_miss) return;
    placed = place_within(options_, placed.steps, capacity, turn * quick_layout_work, &placed);
  }
}

std::optional<fastest_choice> layout_fitter::other_choice(const fastest_choice& found,
                                                          const option_choice& last, int round) {
  fastest_limits limits;
  limits.evaluations = options_.evaluations / 8;
  limits.seed = options_.seed + static_cast<std::uint64_t>(round);
  limits.relax = false;
  if (found.relaxed) limits.prices = &found.prices;
  limits.starts = {last, found.choice};
  limits.stop = options_.stop;
  fastest_choice other = find_fastest(steps_, limits);
  return other.found ? std::optional(std::move(other)) : std::nullopt;
}

// Most of what stands out is often enough: the next layout is another one anyway. Where it is not, less
// memory everywhere is what helps.
void layout_fitter::withhold(const placement& placed, std::int64_t capacity, bool thorough) {
  constexpr double share = 0.7;
  const std::int64_t least = thorough ? 0 : capacity / least_parts_of_capacity;
  const id_vector<joined_step, std::int64_t> most = view_.most_above(placed, capacity);
  for (std::size_t k = 0; k < most.size(); ++k) {
    if (most[k] == 0) continue;
    withheld_[k] += std::max(static_cast<std::int64_t>(static_cast<double>(most[k]) * share), least);
  }
  if (++failures_ <= patience) return;
  for (std::int64_t& bytes : withheld_)
    bytes += (placed.height - capacity) / 4;
}

void layout_fitter::give_back(double kept) {
  for (std::int64_t& bytes : withheld_)
    bytes = static_cast<std::int64_t>(static_cast<double>(bytes) * kept);
}

}  // namespace stash::planner
