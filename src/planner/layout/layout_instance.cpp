// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_instance.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "stash/error.hpp"

namespace stash::planner::placing {
namespace {

/// Sums of sizes and alignments stay below, so that no offset can overflow.
constexpr std::int64_t largest_total = std::int64_t{1} << 62;

[[noreturn]] void refuse(const char* function, const std::string& what) {
  throw error(errc::invalid_argument, fmt::format("{}: {}", function, what));
}

void check_block(const layout_block& b, std::size_t i, const char* function) {
  if (b.end <= b.begin) {
    refuse(function, fmt::format("blocks[{}].end: expected more than begin = {}, got {}", i, b.begin, b.end));
  }
  if (b.size < 0) refuse(function, fmt::format("blocks[{}].size: expected at least 0, got {}", i, b.size));
  if (b.alignment < 1) {
    refuse(function, fmt::format("blocks[{}].alignment: expected at least 1, got {}", i, b.alignment));
  }
  if (b.fixed && *b.fixed < 0) {
    refuse(function, fmt::format("blocks[{}].fixed: expected at least 0, got {}", i, *b.fixed));
  }
  for (const layout_gap& g : b.gaps) {
    if (g.begin < b.begin || g.end <= g.begin || g.end > b.end) {
      refuse(function, fmt::format("blocks[{}].gaps: expected a part of the lifetime [{}, {}), got [{}, {})",
                                   i, b.begin, b.end, g.begin, g.end));
    }
    if (g.low < 0 || g.high < g.low || g.high > b.size) {
      refuse(function, fmt::format("blocks[{}].gaps: expected a window within {} bytes, got [{}, {})", i,
                                   b.size, g.low, g.high));
    }
  }
}

/// The lifetime as a list of parts, each with the window that is occupied; parts that occupy nothing left
/// out.
std::vector<layout_gap> occupied_parts(const layout_block& b, std::int64_t size, std::size_t i,
                                       const char* function) {
  std::vector<layout_gap> gaps = b.gaps;
  std::sort(gaps.begin(), gaps.end(),
            [](const layout_gap& x, const layout_gap& y) { return x.begin < y.begin; });
  std::vector<layout_gap> parts;
  std::int64_t from = b.begin;
  for (const layout_gap& g : gaps) {
    if (g.begin < from) refuse(function, fmt::format("blocks[{}].gaps: expected disjoint gaps", i));
    if (g.begin > from) parts.push_back({from, g.begin, 0, size});
    if (g.high > g.low) parts.push_back(g);
    from = g.end;
  }
  if (b.end > from) parts.push_back({from, b.end, 0, size});
  return parts;
}

}  // namespace

instance::instance(std::span<const layout_block> blocks, std::int64_t alignment, const char* function) {
  if (alignment < 1 || (alignment & (alignment - 1)) != 0) {
    refuse(function, fmt::format("alignment: expected a power of two, got {}", alignment));
  }
  std::vector<std::vector<layout_gap>> parts;
  std::int64_t total = 0;
  const auto add = [&](std::int64_t bytes, std::size_t i) {
    if (bytes > largest_total - total) {
      refuse(function,
             fmt::format("blocks: expected sizes, alignments and fixed offsets of at most 2^62 together, got "
                         "more at index {}",
                         i));
    }
    total += bytes;
  };
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const layout_block& b = blocks[i];
    check_block(b, i, function);
    item it;
    it.block = i;
    it.begin = b.begin;
    it.end = b.end;
    it.lifetime = static_cast<double>(b.end) - static_cast<double>(b.begin);
    // The least common multiple, whose overflow add() would not see.
    const std::int64_t factor = alignment / std::gcd(alignment, b.alignment);
    if (b.alignment > largest_total / factor) add(largest_total, i), add(1, i);
    it.alignment = b.alignment * factor;
    add(b.size, i);
    // Before rounding up, which could overflow.
    if (it.alignment > 1) add(it.alignment, i);
    it.size = (b.size + alignment - 1) & ~(alignment - 1);
    if (b.fixed) {
      add(*b.fixed, i);
      it.fixed = *b.fixed;
      if (it.fixed % it.alignment != 0) {
        refuse(function,
               fmt::format("blocks[{}].fixed: expected a multiple of {}, got {}", i, it.alignment, it.fixed));
      }
    }
    std::vector<layout_gap> occupied = occupied_parts(b, it.size, i, function);
    if (b.size == 0) continue;
    if (occupied.empty()) {
      idle_top = std::max(idle_top, std::max<std::int64_t>(it.fixed, 0) + it.size);
      continue;
    }
    items.push_back(it);
    parts.push_back(std::move(occupied));
  }
  number_sections(parts);
  measure(alignment);
  check_fixed(function);
}

void instance::number_sections(const std::vector<std::vector<layout_gap>>& parts) {
  struct event {
    std::int64_t time;
    bool begins;
    std::size_t segment;
  };
  std::vector<event> events;
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].segment_begin = segments.size();
    for (const layout_gap& part : parts[i]) {
      events.push_back({part.begin, true, segments.size()});
      events.push_back({part.end, false, segments.size()});
      segments.push_back({0, 0, part.low, part.high});
    }
    items[i].segment_end = segments.size();
  }
  // Ends come before begins of the same time, as lifetimes exclude their end.
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.begins != b.begins) return b.begins;
    return a.segment < b.segment;
  });
  // A set of live segments is maximal where an end follows a begin.
  std::int32_t section = 0;
  std::int64_t newest = 0;
  bool grown = false;
  for (const event& e : events) {
    if (e.begins) {
      segments[e.segment].first = section;
      newest = e.time;
      grown = true;
    } else {
      if (grown) {
        ++section;
        start_time.push_back(newest);
      }
      grown = false;
      segments[e.segment].last = section;
    }
  }
  for (item& it : items) {
    it.first = segments[it.segment_begin].first;
    it.last = segments[it.segment_end - 1].last;
  }
  std::sort(items.begin(), items.end(), [](const item& a, const item& b) {
    if (a.first != b.first) return a.first < b.first;
    if (a.last != b.last) return a.last > b.last;
    return a.block < b.block;
  });
}

void instance::measure(std::int64_t alignment) {
  live.assign(start_time.size() + 1, 0);
  bound = idle_top;
  grain = 0;
  for (const item& it : items) {
    const std::span<const segment> own = segments_of(it);
    for (const segment& p : own) {
      live[static_cast<std::size_t>(p.first)] += p.high - p.low;
      live[static_cast<std::size_t>(p.last)] -= p.high - p.low;
      if (p.high - p.low != it.size) windows = true;
      grain = std::gcd(grain, std::gcd(p.low, p.high));
    }
    grain = std::gcd(grain, std::gcd(it.size, it.alignment == 1 ? 0 : it.alignment));
    if (it.fixed > 0) grain = std::gcd(grain, it.fixed);
    bound = std::max(bound, std::max<std::int64_t>(it.fixed, 0) + it.size);
    if (own.size() != 1 || it.fixed >= 0 || (it.alignment != 1 && it.alignment != alignment)) boxes = false;
  }
  if (windows) boxes = false;
  grain = std::max<std::int64_t>(grain, 1);
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  for (const std::int64_t bytes : live)
    bound = std::max(bound, bytes);
}

void instance::check_fixed(const char* function) const {
  std::vector<const item*> fixed;
  for (const item& it : items) {
    if (it.fixed >= 0) fixed.push_back(&it);
  }
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    for (std::size_t j = i + 1; j < fixed.size() && fixed[j]->first < fixed[i]->last; ++j) {
      if (overlap(*fixed[i], fixed[i]->fixed, *fixed[j], fixed[j]->fixed)) {
        refuse(function, fmt::format("blocks[{}].fixed: expected no overlap with blocks[{}], got [{}, {}) "
                                     "and [{}, {})",
                                     fixed[j]->block, fixed[i]->block, fixed[j]->fixed,
                                     fixed[j]->fixed + fixed[j]->size, fixed[i]->fixed,
                                     fixed[i]->fixed + fixed[i]->size));
      }
    }
  }
}

bool instance::conflict(const item& a, const item& b) const noexcept {
  bool found = false;
  each_meeting(a, b, [&](const segment&, const segment&) {
    found = true;
    return false;
  });
  return found;
}

bool instance::overlap(const item& a, std::int64_t offset_a, const item& b,
                       std::int64_t offset_b) const noexcept {
  bool found = false;
  each_meeting(a, b, [&](const segment& p, const segment& q) {
    found = offset_a + p.low < offset_b + q.high && offset_b + q.low < offset_a + p.high;
    return !found;
  });
  return found;
}

}  // namespace stash::planner::placing
