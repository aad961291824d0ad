#include "planner/layout.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr std::int64_t largest_total = std::int64_t{1} << 62;

/// A block of non-zero size, rounded up.
struct item {
  std::int32_t begin;
  std::int32_t end;
  std::int64_t size;
  std::size_t block;  ///< index among the caller's blocks

  std::int64_t lifetime() const noexcept { return std::int64_t{end} - begin; }
};

using order = std::vector<std::uint32_t>;

std::vector<item> checked_items(std::span<const layout_block> blocks, std::int64_t alignment,
                                const char* function) {
  if (alignment < 1 || (alignment & (alignment - 1)) != 0) {
    throw error(errc::invalid_argument,
                fmt::format("{}: alignment: expected a power of two, got {}", function, alignment));
  }
  std::vector<item> items;
  items.reserve(blocks.size());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const layout_block& b = blocks[i];
    if (b.end <= b.begin) {
      throw error(errc::invalid_argument,
                  fmt::format("{}: blocks[{}].end: expected more than begin = {}, got {}", function, i,
                              b.begin, b.end));
    }
    if (b.size < 0) {
      throw error(errc::invalid_argument,
                  fmt::format("{}: blocks[{}].size: expected at least 0, got {}", function, i, b.size));
    }
    if (b.size == 0) continue;
    if (b.size > largest_total - alignment) {
      throw error(errc::invalid_argument,
                  fmt::format("{}: blocks[{}].size: expected a rounded size of at most 2^62, got {}",
                              function, i, b.size));
    }
    const std::int64_t size = (b.size + alignment - 1) & ~(alignment - 1);
    if (size > largest_total - total) {
      throw error(
          errc::invalid_argument,
          fmt::format("{}: blocks: expected a sum of at most 2^62 bytes, got more at index {}", function, i));
    }
    total += size;
    items.push_back({b.begin, b.end, size, i});
  }
  return items;
}

/// Sum of live sizes as a step function of time.
struct live_profile {
  std::vector<std::int32_t> times;  ///< ascending; total[i] holds from times[i] to times[i + 1]
  std::vector<std::int64_t> totals;

  std::int64_t peak() const { return totals.empty() ? 0 : *std::max_element(totals.begin(), totals.end()); }

  std::int64_t peak_during(const item& it) const {
    const auto first = std::lower_bound(times.begin(), times.end(), it.begin) - times.begin();
    const auto last = std::lower_bound(times.begin(), times.end(), it.end) - times.begin();
    return *std::max_element(totals.begin() + first, totals.begin() + last);
  }
};

live_profile profile_of(const std::vector<item>& items) {
  std::vector<std::pair<std::int32_t, std::int64_t>> changes;
  changes.reserve(2 * items.size());
  for (const item& it : items) {
    changes.emplace_back(it.begin, it.size);
    changes.emplace_back(it.end, -it.size);
  }
  // Ends sort before begins of the same time (negative change first), as lifetimes exclude their end.
  std::sort(changes.begin(), changes.end());
  live_profile profile;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    live += changes[i].second;
    if (i + 1 < changes.size() && changes[i + 1].first == changes[i].first) continue;
    profile.times.push_back(changes[i].first);
    profile.totals.push_back(live);
  }
  return profile;
}

enum class fit : std::uint8_t {
  first,      ///< lowest gap
  best,       ///< tightest gap, the lowest of equals
  two_sided,  ///< long-lived blocks in the lowest gap, short-lived ones in the highest below the ceiling
};

/// Places items one after the other; those placed are kept sorted by offset, so that one pass over them
/// finds every gap for the next item.
class placer {
 public:
  explicit placer(const std::vector<item>& items) : items_(&items) { placed_.reserve(items.size()); }

  void clear() { placed_.clear(); }
  std::int64_t comparisons() const noexcept { return comparisons_; }

  /// Offset of the lowest (fit::first) or tightest gap; nothing if the item would end above `ceiling`.
  std::optional<std::int64_t> gap_for(const item& it, fit how, std::int64_t ceiling) {
    std::int64_t floor = 0;
    std::int64_t tightest = std::numeric_limits<std::int64_t>::max();
    std::int64_t best = -1;
    std::size_t i = 0;
    for (; i < placed_.size(); ++i) {
      const slot& p = placed_[i];
      if ((p.begin >= it.end) | (it.begin >= p.end)) continue;
      const std::int64_t gap = p.offset - floor;
      if (gap >= it.size && gap < tightest) {
        tightest = gap;
        best = floor;
        if (how == fit::first) break;
      }
      floor = std::max(floor, p.top);
      if (floor > ceiling - it.size) break;
    }
    comparisons_ += static_cast<std::int64_t>(i) + 1;
    if (best < 0) best = floor;
    if (best > ceiling - it.size) return std::nullopt;
    return best;
  }

  /// Offset of the highest gap that ends at or below `ceiling`, if there is one.
  std::optional<std::int64_t> highest_gap_for(const item& it, std::int64_t ceiling) {
    // Sorted by offset is not sorted by top: gaps are found upwards and the last one counts.
    std::optional<std::int64_t> highest;
    std::int64_t floor = 0;
    comparisons_ += static_cast<std::int64_t>(placed_.size()) + 1;
    for (const slot& p : placed_) {
      if ((p.begin >= it.end) | (it.begin >= p.end)) continue;
      if (std::min(p.offset, ceiling) - floor >= it.size) highest = std::min(p.offset, ceiling) - it.size;
      floor = std::max(floor, p.top);
    }
    if (ceiling - floor >= it.size) highest = ceiling - it.size;
    return highest;
  }

  void place(std::uint32_t index, std::int64_t offset) {
    const item& it = (*items_)[index];
    const slot s{offset, offset + it.size, it.begin, it.end, index};
    const auto at = std::upper_bound(placed_.begin(), placed_.end(), s,
                                     [](const slot& a, const slot& b) { return a.offset < b.offset; });
    placed_.insert(at, s);
  }

  /// Takes back every item for which `gone` holds.
  template <class Predicate>
  void remove_if(Predicate gone) {
    comparisons_ += static_cast<std::int64_t>(placed_.size());
    std::erase_if(placed_, [&](const slot& s) { return gone(s.index); });
  }

  std::int64_t height() const {
    std::int64_t h = 0;
    for (const slot& s : placed_)
      h = std::max(h, s.top);
    return h;
  }

  void write(std::vector<std::int64_t>& offsets) const {
    for (const slot& s : placed_)
      offsets[(*items_)[s.index].block] = s.offset;
  }

 private:
  struct slot {
    std::int64_t offset;
    std::int64_t top;
    std::int32_t begin;
    std::int32_t end;
    std::uint32_t index;
  };
  const std::vector<item>* items_;
  std::vector<slot> placed_;
  std::int64_t comparisons_ = 0;
};

/// The best layout seen, with the order that gave it.
struct incumbent {
  layout_result result;
  std::int64_t bound;
  bool optimal() const noexcept { return result.height == bound; }
  bool offer(const placer& candidate) {
    const std::int64_t height = candidate.height();
    if (height >= result.height) return false;
    result.height = height;
    candidate.write(result.offsets);
    return true;
  }
};

/// Places all items in this order; gives up as soon as one would end above `ceiling`.
bool place_all(placer& p, const std::vector<item>& items, const order& sequence, fit how,
               std::int64_t ceiling, std::int64_t bound, std::int64_t short_lifetime) {
  p.clear();
  for (const std::uint32_t index : sequence) {
    const item& it = items[index];
    std::optional<std::int64_t> offset;
    if (how == fit::two_sided && it.lifetime() < short_lifetime) offset = p.highest_gap_for(it, bound);
    if (!offset) offset = p.gap_for(it, how == fit::best ? fit::best : fit::first, ceiling);
    if (!offset) return false;
    p.place(index, *offset);
  }
  return true;
}

/// The portfolio's orders. Ties are broken by size, lifetime, begin and finally by index.
std::vector<order> portfolio_orders(const std::vector<item>& items, const live_profile& profile) {
  const std::size_t n = items.size();
  std::vector<double> size(n), area(n), lifetime(n), begin(n), end(n), section(n);
  for (std::size_t i = 0; i < n; ++i) {
    const item& it = items[i];
    size[i] = static_cast<double>(it.size);
    lifetime[i] = static_cast<double>(it.lifetime());
    area[i] = size[i] * lifetime[i];
    begin[i] = -static_cast<double>(it.begin);
    end[i] = static_cast<double>(it.end);
    section[i] = static_cast<double>(profile.peak_during(it));
  }
  const auto by = [&](const std::vector<double>& first, const std::vector<double>& second) {
    order sequence(n);
    std::iota(sequence.begin(), sequence.end(), 0U);
    std::sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (first[a] != first[b]) return first[a] > first[b];
      if (second[a] != second[b]) return second[a] > second[b];
      if (items[a].size != items[b].size) return items[a].size > items[b].size;
      if (lifetime[a] != lifetime[b]) return lifetime[a] > lifetime[b];
      if (items[a].begin != items[b].begin) return items[a].begin < items[b].begin;
      return a < b;
    });
    return sequence;
  };
  return {by(section, lifetime), by(section, area),  by(section, size), by(area, size),
          by(size, lifetime),    by(lifetime, size), by(end, size),     by(begin, size)};
}

/// Reproducible on every platform, unlike the distributions of <random>.
class random_numbers {
 public:
  std::size_t below(std::size_t bound) noexcept {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return static_cast<std::size_t>((z ^ (z >> 31U)) % bound);
  }

 private:
  std::uint64_t state_ = 7;
};

/// Search behind the portfolio: aims at a height below the best one; whichever item does not fit moves to an
/// earlier place in the order and everything from there on is placed again.
class search {
 public:
  search(const std::vector<item>& items, incumbent& best, std::int64_t alignment, std::int64_t budget)
      : items_(items),
        best_(best),
        alignment_(alignment),
        budget_(budget),
        placer_(items),
        rank_(items.size()) {}

  void run(const std::vector<order>& seeds) {
    // Fractions of the distance between bound and best height, in quarters: an ambitious aim teaches the
    // order more, a modest one is met sooner.
    for (std::size_t walk = 0; !done(); ++walk) {
      sequence_ = seeds[walk % seeds.size()];
      walk_from_seed(static_cast<std::int64_t>(walk / seeds.size() % 4));
    }
  }

 private:
  bool done() const { return best_.optimal() || placer_.comparisons() >= budget_; }

  std::int64_t aim(std::int64_t quarters) const {
    const std::int64_t distance = best_.result.height - best_.bound;
    return std::min(best_.bound + distance / 4 * quarters, best_.result.height - alignment_);
  }

  void walk_from_seed(std::int64_t quarters) {
    placer_.clear();
    for (std::size_t i = 0; i < sequence_.size(); ++i)
      rank_[sequence_[i]] = i;
    std::size_t placed = 0;
    std::int64_t ceiling = aim(quarters);
    for (std::size_t moves = 0; moves < items_.size() / 2 + 64 && !done(); ++moves) {
      while (placed < sequence_.size() && place_next(placed, ceiling))
        ++placed;
      if (placed == sequence_.size()) {
        best_.offer(placer_);
        ceiling = aim(quarters);
        placed = 0;
        placer_.clear();
        continue;
      }
      placed = move_forward(placed);
    }
  }

  bool place_next(std::size_t position, std::int64_t ceiling) {
    const std::uint32_t index = sequence_[position];
    const auto offset = placer_.gap_for(items_[index], fit::first, ceiling);
    if (offset) placer_.place(index, *offset);
    return offset.has_value();
  }

  /// Moves the item at `position`, which did not fit, before an item that it conflicts with; returns the
  /// first position that has to be placed again.
  std::size_t move_forward(std::size_t position) {
    const item& it = items_[sequence_[position]];
    std::size_t target = 0;
    if (position > 0) {
      // Mostly a short step back, sometimes a long one.
      const std::size_t reach = random_.below(4) == 0 ? position : std::min<std::size_t>(position, 16);
      target = position - 1 - random_.below(reach);
    }
    while (target > 0) {
      const item& other = items_[sequence_[target]];
      if (other.begin < it.end && it.begin < other.end) break;
      --target;
    }
    const auto first = sequence_.begin() + static_cast<std::ptrdiff_t>(target);
    const auto last = sequence_.begin() + static_cast<std::ptrdiff_t>(position);
    std::rotate(first, last, last + 1);
    for (std::size_t i = target; i <= position; ++i)
      rank_[sequence_[i]] = i;
    placer_.remove_if([&](std::uint32_t index) { return rank_[index] >= target; });
    return target;
  }

  const std::vector<item>& items_;
  incumbent& best_;
  std::int64_t alignment_;
  std::int64_t budget_;
  placer placer_;
  order sequence_;
  std::vector<std::size_t> rank_;
  random_numbers random_;
};

}  // namespace

std::int64_t max_live(std::span<const layout_block> blocks, std::int64_t alignment) {
  return profile_of(checked_items(blocks, alignment, "max_live")).peak();
}

layout_result make_layout(std::span<const layout_block> blocks, std::int64_t alignment, std::int32_t effort) {
  const std::vector<item> items = checked_items(blocks, alignment, "make_layout");
  if (effort < 0) {
    throw error(errc::invalid_argument,
                fmt::format("make_layout: effort: expected at least 0, got {}", effort));
  }
  layout_result start{std::vector<std::int64_t>(blocks.size(), 0), 0};
  if (items.empty()) return start;
  const live_profile profile = profile_of(items);
  start.height = std::numeric_limits<std::int64_t>::max();
  incumbent best{std::move(start), profile.peak()};

  std::vector<order> orders = portfolio_orders(items, profile);
  std::vector<std::int64_t> lifetimes;
  lifetimes.reserve(items.size());
  for (const item& it : items)
    lifetimes.push_back(it.lifetime());
  const auto middle = lifetimes.begin() + static_cast<std::ptrdiff_t>(lifetimes.size() / 2);
  std::nth_element(lifetimes.begin(), middle, lifetimes.end());

  placer p(items);
  for (const order& sequence : orders) {
    for (const fit how : {fit::first, fit::best, fit::two_sided}) {
      const std::int64_t ceiling = best.result.height - 1;
      if (place_all(p, items, sequence, how, ceiling, best.bound, *middle)) best.offer(p);
      if (best.optimal()) return std::move(best.result);
    }
  }
  search(items, best, alignment, std::int64_t{effort} * 1'000'000).run(orders);
  return std::move(best.result);
}

}  // namespace stash::planner
