// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_checker.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace stash::planner {
namespace {

constexpr std::int64_t largest_offset = std::int64_t{1} << 62;

struct byte_range {
  std::int64_t low;
  std::int64_t high;
};

/// The bytes of the block in use at a moment of its lifetime, relative to its offset.
byte_range in_use(const layout_block& b, std::int64_t padded, std::int64_t time) {
  for (const layout_gap& g : b.gaps) {
    if (g.begin <= time && time < g.end) return {g.low, g.high};
  }
  return {0, padded};
}

class checker {
 public:
  checker(const layout_problem& problem, std::span<const std::int64_t> offsets, std::size_t most)
      : problem_(problem), offsets_(offsets), most_(most) {}

  std::vector<std::string> run() {
    if (offsets_.size() != problem_.blocks.size()) {
      add(fmt::format("{} offsets for {} blocks", offsets_.size(), problem_.blocks.size()));
      return std::move(findings_);
    }
    for (std::size_t i = 0; i < offsets_.size(); ++i)
      check_offset(i);
    if (findings_.empty()) check_pairs();
    return std::move(findings_);
  }

 private:
  bool full() const { return findings_.size() >= most_; }
  void add(std::string finding) {
    if (!full()) findings_.push_back(std::move(finding));
  }

  std::int64_t padded(std::size_t i) const {
    const std::int64_t size = problem_.blocks[i].size, unit = problem_.alignment;
    return (size / unit + (size % unit != 0 ? 1 : 0)) * unit;
  }

  void check_offset(std::size_t i) {
    const layout_block& b = problem_.blocks[i];
    const std::int64_t offset = offsets_[i];
    if (offset < 0 || offset > largest_offset) {
      add(fmt::format("block {}: offset {} is out of range", i, offset));
      return;
    }
    if (b.fixed && offset != *b.fixed) {
      add(fmt::format("block {}: offset {}, but it is fixed at {}", i, offset, *b.fixed));
    }
    if (b.size == 0) return;
    if (offset % problem_.alignment != 0 || offset % b.alignment != 0) {
      add(fmt::format("block {}: offset {} is not a multiple of {} and {}", i, offset, problem_.alignment,
                      b.alignment));
    }
    if (problem_.capacity && padded(i) > *problem_.capacity - offset) {
      add(fmt::format("block {}: [{}, {}) passes the capacity {}", i, offset, offset + padded(i),
                      *problem_.capacity));
    }
  }

  void check_pairs() {
    std::vector<std::size_t> by_begin(offsets_.size());
    std::iota(by_begin.begin(), by_begin.end(), std::size_t{0});
    std::sort(by_begin.begin(), by_begin.end(), [&](std::size_t a, std::size_t b) {
      return problem_.blocks[a].begin < problem_.blocks[b].begin;
    });
    for (std::size_t i = 0; i < by_begin.size() && !full(); ++i) {
      for (std::size_t j = i + 1; j < by_begin.size(); ++j) {
        if (problem_.blocks[by_begin[j]].begin >= problem_.blocks[by_begin[i]].end) break;
        check_pair(by_begin[i], by_begin[j]);
      }
    }
  }

  void check_pair(std::size_t a, std::size_t b) {
    // Most pairs do not overlap at all.
    if (offsets_[a] + padded(a) <= offsets_[b] || offsets_[b] + padded(b) <= offsets_[a]) return;
    const layout_block& x = problem_.blocks[a];
    const layout_block& y = problem_.blocks[b];
    const std::int64_t from = std::max(x.begin, y.begin), until = std::min(x.end, y.end);
    // What is in use changes only at these moments.
    std::vector<std::int64_t> moments{from};
    for (const layout_block* block : {&x, &y}) {
      for (const layout_gap& g : block->gaps) {
        moments.push_back(g.begin);
        moments.push_back(g.end);
      }
    }
    for (const std::int64_t time : moments) {
      if (time < from || time >= until) continue;
      const byte_range p = in_use(x, padded(a), time), q = in_use(y, padded(b), time);
      if (p.low == p.high || q.low == q.high) continue;
      if (offsets_[a] + p.low >= offsets_[b] + q.high || offsets_[b] + q.low >= offsets_[a] + p.high)
        continue;
      add(fmt::format("blocks {} and {} overlap at time {}: [{}, {}) and [{}, {})", a, b, time,
                      offsets_[a] + p.low, offsets_[a] + p.high, offsets_[b] + q.low, offsets_[b] + q.high));
      return;
    }
  }

  const layout_problem& problem_;
  std::span<const std::int64_t> offsets_;
  std::size_t most_;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> check_layout(const layout_problem& problem, std::span<const std::int64_t> offsets,
                                      std::size_t most) {
  return checker(problem, offsets, most).run();
}

}  // namespace stash::planner
