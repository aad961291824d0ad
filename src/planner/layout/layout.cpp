// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planner/layout/layout_budget.hpp"
#include "planner/layout/layout_climb.hpp"
#include "planner/layout/layout_eject.hpp"
#include "planner/layout/layout_exact.hpp"
#include "planner/layout/layout_instance.hpp"
#include "planner/layout/layout_orders.hpp"
#include "planner/layout/layout_placer.hpp"
#include "planner/layout/layout_promote.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

using namespace placing;

/// What the exact search can handle: it keeps all conflicting pairs and looks at every block in a node.
constexpr std::size_t most_exact_items = 6000;
constexpr std::int64_t most_exact_pairs = 8'000'000;
/// Beyond this number of blocks the portfolio takes so long that the simple orders come first: a limit of
/// time may end it.
constexpr std::size_t most_quick_items = 4096;
/// Up to this number of blocks a hint's offsets are mended. More of them are mostly small: then the order
/// counts.
constexpr std::size_t most_mended_items = 1024;
/// Work of the first attempt of the exact search with one order; it grows fourfold from round to round.
constexpr std::int64_t first_slice = 1'000'000;
constexpr std::int64_t last_slice = 1'024'000'000;

/// Blocks that share no moment with those of other parts.
struct part {
  std::vector<std::size_t> blocks;
  std::vector<layout_block> own;
  std::unique_ptr<instance> problem;
  incumbent best;
  std::int64_t bound = 0;
  std::vector<std::int64_t> hint;  ///< per item: layout_hint::offsets
  std::int32_t way = 0;            ///< of the portfolio, that ended lowest
};

std::vector<part> independent_parts(const layout_problem& problem, const char* function) {
  // The whole is checked first, so that messages name the caller's blocks and sums are over all of them.
  const instance whole(problem.blocks, problem.alignment, function);
  std::vector<std::size_t> by_begin(problem.blocks.size());
  std::iota(by_begin.begin(), by_begin.end(), std::size_t{0});
  std::sort(by_begin.begin(), by_begin.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(problem.blocks[a].begin, a) < std::pair(problem.blocks[b].begin, b);
  });
  std::vector<part> parts;
  std::int64_t until = std::numeric_limits<std::int64_t>::min();
  for (const std::size_t i : by_begin) {
    const layout_block& b = problem.blocks[i];
    if (parts.empty() || b.begin >= until) parts.emplace_back();
    until = std::max(until, b.end);
    parts.back().blocks.push_back(i);
  }
  for (part& p : parts) {
    std::sort(p.blocks.begin(), p.blocks.end());
    p.own.reserve(p.blocks.size());
    for (const std::size_t i : p.blocks)
      p.own.push_back(problem.blocks[i]);
    p.problem = std::make_unique<instance>(p.own, problem.alignment, function);
    p.bound = p.problem->bound;
    if (problem.hint.offsets.empty() || !problem.capacity) continue;
    for (const item& it : p.problem->items)
      p.hint.push_back(problem.hint.offsets[p.blocks[it.block]]);
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const part& a, const part& b) { return a.bound > b.bound; });
  return parts;
}

/// Places all items in this order; gives up as soon as one would end above `ceiling`.
bool place_all(placer& p, const instance& problem, const order& sequence, fit how, std::int64_t ceiling,
               double short_lifetime) {
  p.clear();
  for (const std::uint32_t index : sequence) {
    const item& it = problem.items[index];
    if (it.fixed >= 0) continue;
    std::optional<std::int64_t> offset;
    if (how == fit::two_sided && it.lifetime < short_lifetime)
      offset = p.highest_gap_for(index, problem.bound);
    if (!offset) offset = p.gap_for(index, how == fit::best ? fit::best : fit::first, ceiling);
    if (!offset) return false;
    p.place(index, *offset);
  }
  return true;
}

double median_lifetime(const instance& problem) {
  std::vector<double> lifetimes;
  for (const item& it : problem.items)
    lifetimes.push_back(it.lifetime);
  const auto middle = lifetimes.begin() + static_cast<std::ptrdiff_t>(lifetimes.size() / 2);
  std::nth_element(lifetimes.begin(), middle, lifetimes.end());
  return *middle;
}

constexpr fit all_fits[] = {fit::first, fit::best, fit::two_sided};

/// The sequences are those of orders::for_placing() from `first` on.
void portfolio(part& own, const std::vector<order>& sequences, std::size_t first, work_budget& budget) {
  const instance& problem = *own.problem;
  const double middle = median_lifetime(problem);
  placer p(problem, budget);
  auto way = static_cast<std::int32_t>(first * std::size(all_fits));
  for (const order& sequence : sequences) {
    for (const fit how : all_fits) {
      if (place_all(p, problem, sequence, how, own.best.height - 1, middle)) {
        own.best.offer(p);
        own.way = way;
      }
      ++way;
      if (own.best.done() || budget.stopped()) return;
    }
  }
}

/// In one way of the portfolio, then by changes of its order.
void place_in_way(part& own, const orders& sequences, std::int32_t way, std::int64_t work,
                  work_budget& budget) {
  const auto number = static_cast<std::size_t>(way);
  const fit how = all_fits[number % std::size(all_fits)];
  const std::vector<order> sequence{sequences.for_placing(number / std::size(all_fits))};
  placer p(*own.problem, budget);
  if (place_all(p, *own.problem, sequence.front(), how, own.best.height - 1, median_lifetime(*own.problem)))
    own.best.offer(p);
  climb(*own.problem, sequence, own.best, budget, how == fit::best ? fit::best : fit::first).run(work);
}

/// The way with gaps that fit best that ends lowest, of orders other than that of `tried`; -1 if one of them
/// ends at the goal, or the budget is over. Unlike the portfolio it looks beyond the lowest layout seen: what
/// begins higher may end lower once its order is changed.
std::int32_t lowest_other_way(part& own, const std::vector<order>& sequences, std::int32_t tried,
                              work_budget& budget) {
  constexpr std::int32_t best_fit = 1;
  static_assert(all_fits[best_fit] == fit::best);
  const double middle = median_lifetime(*own.problem);
  placer p(*own.problem, budget);
  std::int32_t lowest = -1;
  std::int64_t ceiling = std::numeric_limits<std::int64_t>::max() - 1;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (i == static_cast<std::size_t>(tried) / std::size(all_fits)) continue;
    if (place_all(p, *own.problem, sequences[i], fit::best, ceiling, middle)) {
      own.best.offer(p);
      lowest = static_cast<std::int32_t>(i * std::size(all_fits)) + best_fit;
      ceiling = p.height() - 1;
    }
    if (own.best.done() || budget.stopped()) return -1;
  }
  return lowest;
}

/// Tries one capacity after the other, with more and more work for each.
class exact_rounds {
 public:
  exact_rounds(part& own, const orders& sequences, bool minimise, work_budget& budget)
      : own_(own), sequences_(sequences), minimise_(minimise), budget_(budget), search_(*own.problem) {}

  std::int64_t nodes() const noexcept { return search_.nodes(); }

  /// One attempt with each order; the rules change places from round to round.
  void round(std::int64_t work) {
    for (std::size_t i = 0; i < orders::plain() && !over(); ++i) {
      // Half of the later attempts are with orders that nobody has tried yet.
      const bool shaken = round_ > 0 && i % 2 != 0;
      const exact_rule rule = rules[(i + round_) % std::size(rules)];
      attempt(sequences_.for_search(shaken ? orders::plain() + i : i, random_), rule, work);
    }
    ++round_;
  }

 private:
  bool over() { return own_.best.done() || own_.bound > own_.best.goal || budget_.over(); }

  static constexpr exact_rule rules[] = {exact_rule::lowest, exact_rule::few_and_low, exact_rule::fewest};

  void attempt(const order& sequence, exact_rule rule, std::int64_t work) {
    // A goal that proves to be out of reach takes the bound up; one that is met takes the height down.
    const std::int64_t capacity = minimise_ && round_ % 2 != 0 ? middle() : own_.best.goal;
    std::vector<std::int64_t> offsets;
    switch (search_.run(capacity, sequence, rule, work, budget_, offsets)) {
      case exact_outcome::found: {
        std::int64_t height = own_.problem->idle_top;
        for (std::size_t i = 0; i < offsets.size(); ++i)
          height = std::max(height, offsets[i] + own_.problem->items[i].size);
        own_.best.height = height;
        own_.best.offsets = std::move(offsets);
        break;
      }
      case exact_outcome::none: {
        const std::int64_t grain = own_.problem->grain;
        own_.bound = std::max(own_.bound, (capacity / grain + 1) * grain);
        if (minimise_) own_.best.goal = std::max(own_.best.goal, own_.bound);
        break;
      }
      case exact_outcome::limit:
        break;
    }
  }

  std::int64_t middle() const {
    return own_.best.goal + (own_.best.height - own_.problem->grain - own_.best.goal) / 2;
  }

  part& own_;
  const orders& sequences_;
  bool minimise_;
  work_budget& budget_;
  exact_search search_;
  random_numbers random_;
  std::size_t round_ = 0;
};

/// Ejection search for the large items, whose sizes often have a common measure that small ones would spoil;
/// the small ones fill what is left.
class ejection_rounds {
 public:
  ejection_rounds(part& own, const std::vector<order>& seeds, std::int64_t alignment, work_budget& budget)
      : own_(own), seeds_(seeds), budget_(budget), placer_(*own.problem, budget) {
    const instance& all = *own.problem;
    const std::int64_t smallest = least_large_size();
    std::vector<layout_block> large;
    for (const item& it : all.items) {
      if (it.size < smallest && it.fixed < 0) continue;
      large.push_back(own.own[it.block]);
    }
    core_ = std::make_unique<instance>(large, alignment, "solve_layout");
    // Blocks of the core are numbered like the items of the whole that are in it.
    std::vector<std::uint32_t> item_of;
    for (std::uint32_t i = 0; i < all.items.size(); ++i) {
      if (all.items[i].size >= smallest || all.items[i].fixed >= 0) item_of.push_back(i);
    }
    for (const item& it : core_->items)
      item_of_.push_back(item_of[it.block]);
    in_core_.assign(all.items.size(), false);
    for (const std::uint32_t i : item_of_)
      in_core_[i] = true;
    if (!ejection_search::handles(*core_)) return;
    search_.emplace(*core_, budget);
    for (const std::uint32_t i : seeds_.front()) {
      if (in_core_[i]) continue;
      const std::int64_t offset = *placer_.gap_for(i, fit::first, std::numeric_limits<std::int64_t>::max());
      placer_.place(i, offset);
      others_height_ = std::max(others_height_, offset + all.items[i].size);
    }
  }

  /// One attempt at the goal from the part's hint. What finds no offset lies above the others.
  bool mend(std::int64_t work) {
    if (!search_) return false;
    std::vector<std::int64_t> layout;
    for (const std::uint32_t i : item_of_)
      layout.push_back(own_.hint[i]);
    const std::int64_t capacity = core_capacity(own_.best.goal);
    if (capacity < core_->bound) return false;
    if (search_->mend(capacity, work, layout)) complete();
    if (!own_.best.done()) complete_nearest();
    return true;
  }

  /// Attempts at the goal and between goal and best height. Every other one mends the best layout, which is
  /// driven down bit by bit.
  void run(std::int64_t work) {
    if (!search_) return;
    const std::int64_t until = budget_.used() + work;
    for (std::int64_t turn = 0; turn < turns && !over(); ++turn) {
      const bool mend = turn % 2 == 0;
      const std::int64_t distance = own_.best.height - own_.best.goal;
      const std::int64_t eighths = mend ? turns - 2 - turn : turn % 4 == 1 ? 0 : turn;
      const std::int64_t aim =
          std::min(own_.best.goal + distance / turns * eighths, own_.best.height - own_.problem->grain);
      const std::int64_t capacity = core_capacity(aim);
      if (capacity < core_->bound) continue;
      const std::int64_t slice = (until - budget_.used()) / (turns - turn);
      std::vector<std::int64_t> layout;
      if (mend) {
        for (const std::uint32_t i : item_of_)
          layout.push_back(own_.best.offsets[i]);
      }
      if (search_->run(capacity, slice, layout)) complete();
    }
  }

 private:
  static constexpr std::int64_t turns = 8;

  bool over() { return own_.best.done() || budget_.over(); }

  /// What is not in the core may need space of its own.
  std::int64_t core_capacity(std::int64_t aim) const {
    const std::int64_t capacity = (aim - others_height_) / core_->grain * core_->grain;
    return capacity < core_->bound ? aim / core_->grain * core_->grain : capacity;
  }

  /// Smaller items together never take more than this part of the bound.
  std::int64_t least_large_size() const {
    constexpr std::int64_t part_of_bound = 256;
    const instance& all = *own_.problem;
    order by_size(all.items.size());
    std::iota(by_size.begin(), by_size.end(), 0U);
    std::sort(by_size.begin(), by_size.end(),
              [&](std::uint32_t a, std::uint32_t b) { return all.items[a].size < all.items[b].size; });
    std::vector<std::int64_t> live(all.live.size(), 0);
    for (const std::uint32_t i : by_size) {
      const item& it = all.items[i];
      for (std::int32_t s = it.first; s < it.last; ++s) {
        if ((live[static_cast<std::size_t>(s)] += it.size) > all.bound / part_of_bound) return it.size;
      }
    }
    return 0;
  }

  void complete_nearest() {
    const std::vector<std::int64_t>& offsets = search_->nearest();
    std::vector<bool> placed(in_core_.size(), false);
    placer_.clear();
    for (std::size_t i = 0; i < item_of_.size(); ++i) {
      const bool fixed = own_.problem->items[item_of_[i]].fixed >= 0;
      if (!fixed && offsets[i] < 0) continue;
      if (!fixed) placer_.place(item_of_[i], offsets[i]);
      placed[item_of_[i]] = true;
    }
    for (const std::uint32_t index : seeds_.front()) {
      if (placed[index]) continue;
      placer_.place(index, *placer_.gap_for(index, fit::first, std::numeric_limits<std::int64_t>::max()));
    }
    own_.best.offer(placer_);
  }

  void complete() {
    for (const order& sequence : seeds_) {
      placer_.clear();
      for (std::size_t i = 0; i < item_of_.size(); ++i) {
        if (own_.problem->items[item_of_[i]].fixed < 0) placer_.place(item_of_[i], search_->offsets()[i]);
      }
      bool fits = true;
      for (const std::uint32_t index : sequence) {
        if (in_core_[index]) continue;
        const auto offset = placer_.gap_for(index, fit::first, own_.best.height - 1);
        if (!(fits = offset.has_value())) break;
        placer_.place(index, *offset);
      }
      if (fits) own_.best.offer(placer_);
      if (over()) return;
    }
  }

  part& own_;
  const std::vector<order>& seeds_;
  work_budget& budget_;
  placer placer_;
  std::unique_ptr<instance> core_;
  std::vector<std::uint32_t> item_of_;  ///< per item of the core
  std::vector<bool> in_core_;           ///< per item
  std::int64_t others_height_ = 0;      ///< of a layout of those that are not in the core
  std::optional<ejection_search> search_;
};

std::int64_t conflicting_pairs(const instance& problem) {
  std::int64_t pairs = 0;
  std::vector<std::int32_t> lasts;
  for (const item& it : problem.items)
    lasts.push_back(it.last);
  std::sort(lasts.begin(), lasts.end());
  for (std::size_t i = 0; i < problem.items.size(); ++i)
    pairs += static_cast<std::int64_t>(i) -
             (std::upper_bound(lasts.begin(), lasts.end(), problem.items[i].first) - lasts.begin());
  return pairs;
}

struct search_record {
  std::int64_t nodes = 0;
  std::int64_t work = 0;  ///< after the portfolio
};

/// Solves one part down to its goal or until its share of the work is spent.
search_record solve_part(part& own, const layout_problem& whole, std::int64_t share, work_budget& budget) {
  const bool minimise = !whole.capacity;
  const instance& problem = *own.problem;
  own.best.height = std::numeric_limits<std::int64_t>::max();
  if (problem.items.empty()) {
    own.best.height = problem.idle_top;
    return {};
  }
  const orders sequences(problem);
  if (!own.hint.empty() && share > 0) {
    const std::int64_t start = budget.used();
    budget.limit(start + share);
    const std::vector<order> seeds{sequences.for_placing(0)};
    const bool mended = problem.items.size() <= most_mended_items &&
                        ejection_rounds(own, seeds, whole.alignment, budget).mend(share);
    own.way = whole.hint.way;
    if (mended) return {0, budget.used() - start};
    place_in_way(own, sequences, whole.hint.way, share / 4, budget);
    const std::int64_t height = own.best.height;
    if (own.best.done()) return {0, budget.used() - start};
    const std::int32_t other = lowest_other_way(own, sequences.for_placing(), whole.hint.way, budget);
    if (other >= 0) place_in_way(own, sequences, other, share / 4, budget);
    if (other >= 0 && own.best.height < height) own.way = other;
    return {0, budget.used() - start};
  }
  const std::vector<order> seeds = sequences.for_placing();
  const auto simple_ways = [&] { portfolio(own, sequences.simple(), seeds.size(), budget); };
  const bool many = problem.items.size() > most_quick_items;
  if (many) simple_ways();
  if (!many || (!own.best.done() && !budget.stopped())) portfolio(own, seeds, 0, budget);
  if (own.best.done() || share == 0) return {};

  const std::int64_t start = budget.used();
  budget.limit(start + share);
  climb climber(problem, seeds, own.best, budget);
  std::unique_ptr<exact_rounds> exact;
  if (problem.items.size() <= most_exact_items && conflicting_pairs(problem) <= most_exact_pairs)
    exact = std::make_unique<exact_rounds>(own, sequences, minimise, budget);
  ejection_rounds ejection(own, seeds, whole.alignment, budget);
  const auto over = [&] { return own.best.done() || own.bound > own.best.goal || budget.over(); };
  if (exact) exact->round(first_slice);
  if (!over()) ejection.run(first_slice * 16);
  if (!over()) climber.run(first_slice * 8);
  if (!over() && !many) simple_ways();
  if (over()) return {exact ? exact->nodes() : 0, budget.used() - start};

  std::vector<order> promoted{sequences.for_placing(static_cast<std::size_t>(own.way) / std::size(all_fits))};
  for (order& sequence : sequences.fullest_first())
    promoted.push_back(std::move(sequence));
  promotion promoting(problem, promoted, own.best, budget);
  // Of few blocks the exact search finds what there is.
  const bool few = exact && problem.items.size() <= most_mended_items;
  const std::int64_t growth = few ? 2 : 4;
  for (std::int64_t slice = first_slice * growth; !over(); slice = std::min(slice * growth, last_slice)) {
    if (exact) exact->round(slice);
    if (!over()) promoting.run(few ? slice / 2 : slice * 16);
    if (!over()) ejection.run(few ? slice : slice * 2);
    if (!over()) climber.run(few ? slice / 4 : slice);
  }
  return {exact ? exact->nodes() : 0, budget.used() - start};
}

}  // namespace

layout_solution solve_layout(const layout_problem& problem, const layout_limits& limits) {
  if (limits.work < 0) {
    throw error(errc::invalid_argument,
                fmt::format("solve_layout: limits.work: expected at least 0, got {}", limits.work));
  }
  if (problem.capacity && *problem.capacity < 0) {
    throw error(errc::invalid_argument,
                fmt::format("solve_layout: capacity: expected at least 0, got {}", *problem.capacity));
  }
  layout_solution result;
  result.offsets.assign(problem.blocks.size(), 0);
  for (std::size_t i = 0; i < problem.blocks.size(); ++i) {
    if (problem.blocks[i].fixed) result.offsets[i] = *problem.blocks[i].fixed;
  }
  std::vector<part> parts = independent_parts(problem, "solve_layout");
  for (const part& p : parts)
    result.bound = std::max(result.bound, p.bound);

  const std::int64_t lowest = result.bound;
  const bool impossible = problem.capacity && result.bound > *problem.capacity;
  std::int64_t left = limits.work;  // the portfolio comes on top of it
  for (std::size_t i = 0; i < parts.size(); ++i) {
    part& p = parts[i];
    // Lower than what another part needs anyway is of no use. But its height is no aim: the same steps are to
    // be taken whatever the limit of work is, so that a larger one is never worse.
    p.best.goal = std::max(lowest, problem.capacity.value_or(0));
    p.best.enough = result.height;
    work_budget budget(limits.stop);
    const std::int64_t share = impossible ? 0 : left / static_cast<std::int64_t>(parts.size() - i);
    const search_record record = solve_part(p, problem, share, budget);
    left = std::max<std::int64_t>(left - record.work, 0);
    result.nodes += record.nodes;
    result.work += budget.used();
    if (p.best.height > result.height) result.way = p.way;
    result.height = std::max(result.height, p.best.height);
    result.bound = std::max(result.bound, p.bound);
    for (std::size_t k = 0; k < p.best.offsets.size(); ++k)
      result.offsets[p.blocks[p.problem->items[k].block]] = p.best.offsets[k];
  }
  result.proven_optimal = result.height == result.bound;
  if (problem.capacity && result.height > *problem.capacity) {
    result.status = result.bound > *problem.capacity ? layout_status::impossible : layout_status::not_found;
  }
  return result;
}

layout_peak peak_of(const layout_problem& problem) {
  const instance whole(problem.blocks, problem.alignment, "peak_of");
  layout_peak peak;
  const auto highest = std::max_element(whole.live.begin(), whole.live.end());
  if (highest == whole.live.end()) return peak;
  const auto section = static_cast<std::size_t>(highest - whole.live.begin());
  peak.bytes = *highest;
  peak.time = whole.start_time[section];
  for (const item& it : whole.items) {
    for (const segment& p : whole.segments_of(it)) {
      if (static_cast<std::size_t>(p.first) <= section && section < static_cast<std::size_t>(p.last))
        peak.blocks.push_back(it.block);
    }
  }
  std::sort(peak.blocks.begin(), peak.blocks.end());
  return peak;
}

std::int64_t max_live(std::span<const layout_block> blocks, std::int64_t alignment) {
  const instance whole(blocks, alignment, "max_live");
  return whole.live.empty() ? 0 : *std::max_element(whole.live.begin(), whole.live.end());
}

layout_result make_layout(std::span<const layout_block> blocks, std::int64_t alignment, std::int32_t effort) {
  if (effort < 0) {
    throw error(errc::invalid_argument,
                fmt::format("make_layout: effort: expected at least 0, got {}", effort));
  }
  layout_problem problem{{blocks.begin(), blocks.end()}, alignment, {}};
  layout_limits limits;
  limits.work = std::int64_t{effort} * 1'000'000;
  layout_solution solution = solve_layout(problem, limits);
  return {std::move(solution.offsets), solution.height};
}

}  // namespace stash::planner
