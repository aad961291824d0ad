// SPDX-License-Identifier: Apache-2.0
#include "planner/layout/layout_orders.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stash::planner::placing {
namespace {

/// Maximum over any range of sections in constant time.
class range_maximum {
 public:
  explicit range_maximum(const std::vector<std::int64_t>& values) : levels_{values} {
    for (std::size_t width = 2; width <= values.size(); width *= 2) {
      const std::vector<std::int64_t>& below = levels_.back();
      std::vector<std::int64_t> level(values.size() + 1 - width);
      for (std::size_t i = 0; i < level.size(); ++i)
        level[i] = std::max(below[i], below[i + width / 2]);
      levels_.push_back(std::move(level));
    }
  }

  std::int64_t operator()(std::size_t first, std::size_t last) const {
    std::size_t level = 0;
    while ((std::size_t{2} << level) <= last - first)
      ++level;
    return std::max(levels_[level][first], levels_[level][last - (std::size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<std::int64_t>> levels_;
};

}  // namespace

std::size_t random_numbers::below(std::size_t bound) noexcept {
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return static_cast<std::size_t>((z ^ (z >> 31U)) % bound);
}

orders::orders(const instance& problem) : problem_(problem) {
  const std::size_t n = problem.items.size();
  for (std::vector<double>& list : values_)
    list.resize(n);
  const range_maximum highest(problem.live);
  std::vector<double> live_before(problem.live.size() + 1, 0);
  for (std::size_t s = 0; s < problem.live.size(); ++s)
    live_before[s + 1] = live_before[s] + static_cast<double>(problem.live[s]);
  std::vector<std::int32_t> firsts, lasts;
  for (const item& it : problem.items) {
    firsts.push_back(it.first);
    lasts.push_back(it.last);
  }
  std::sort(lasts.begin(), lasts.end());
  for (std::size_t i = 0; i < n; ++i) {
    const item& it = problem.items[i];
    const auto first = static_cast<std::size_t>(it.first), last = static_cast<std::size_t>(it.last);
    const double width = it.last - it.first;
    values_[total][i] = static_cast<double>(highest(first, last));
    values_[lifetime][i] = it.lifetime;
    values_[sections][i] = width;
    values_[size][i] = static_cast<double>(it.size);
    values_[area][i] = values_[size][i] * values_[lifetime][i];
    values_[conflicts][i] =
        static_cast<double>((std::lower_bound(firsts.begin(), firsts.end(), it.last) - firsts.begin()) -
                            (std::upper_bound(lasts.begin(), lasts.end(), it.first) - lasts.begin()));
    values_[late][i] = it.last;
    values_[early][i] = -it.first;
    values_[mean][i] = (live_before[last] - live_before[first]) / width;
  }
}

order orders::by(pair_of_keys sorted_by, const std::vector<double>& factor) const {
  const std::size_t n = problem_.items.size();
  std::vector<double> first = values_[sorted_by.first];
  for (std::size_t i = 0; i < factor.size(); ++i)
    first[i] *= factor[i];
  const std::vector<double>& second = values_[sorted_by.second];
  order sequence(n);
  std::iota(sequence.begin(), sequence.end(), 0U);
  std::sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (first[a] != first[b]) return first[a] > first[b];
    if (second[a] != second[b]) return second[a] > second[b];
    if (values_[area][a] != values_[area][b]) return values_[area][a] > values_[area][b];
    if (values_[size][a] != values_[size][b]) return values_[size][a] > values_[size][b];
    return a < b;
  });
  return sequence;
}

const std::vector<orders::pair_of_keys> orders::placing_keys = {
    {total, lifetime}, {total, size},     {total, area},      {size, lifetime}, {area, size},
    {lifetime, size},  {conflicts, size}, {sections, area},   {mean, lifetime}, {mean, size},
    {late, size},      {early, size},     {total, conflicts}, {total, late}};

std::vector<order> orders::for_placing() const {
  std::vector<order> all;
  all.reserve(placing_keys.size());
  for (const pair_of_keys k : placing_keys)
    all.push_back(by(k, {}));
  return all;
}

std::vector<order> orders::fullest_first() const {
  std::vector<order> all;
  for (const pair_of_keys k : placing_keys) {
    if (k.first == total) all.push_back(by(k, {}));
  }
  return all;
}

std::vector<order> orders::simple() const {
  std::vector<order> all;
  const auto add = [&](auto value) {
    order sequence(problem_.items.size());
    std::iota(sequence.begin(), sequence.end(), 0U);
    std::sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
      const item& x = problem_.items[a];
      const item& y = problem_.items[b];
      return value(x) != value(y) ? value(x) > value(y) : x.block < y.block;
    });
    all.push_back(std::move(sequence));
  };
  add([](const item& it) { return it.size; });
  add([](const item& it) { return static_cast<double>(it.size) * it.lifetime; });
  add([](const item& it) { return it.lifetime; });
  add([](const item& it) { return ~it.begin; });  // earliest first, and the least number has no negative
  add([](const item& it) { return it.end; });
  return all;
}

order orders::for_placing(std::size_t number) const {
  if (number < before_simple()) return by(placing_keys[number], {});
  std::vector<order> all = simple();
  return std::move(all[(number - before_simple()) % all.size()]);
}

std::size_t orders::before_simple() {
  return placing_keys.size();
}

const std::vector<orders::pair_of_keys> orders::search_keys = {
    {total, lifetime}, {conflicts, total}, {lifetime, total}, {total, sections},
    {sections, total}, {total, area},      {conflicts, area}, {area, total}};

std::size_t orders::plain() {
  return search_keys.size();
}

order orders::for_search(std::size_t number, random_numbers& random) const {
  std::vector<double> factor;
  if (number >= plain()) {
    for (std::size_t i = 0; i < problem_.items.size(); ++i)
      factor.push_back(1.0 + static_cast<double>(random.below(1000)) / 4000.0);
  }
  return by(search_keys[number % plain()], factor);
}

}  // namespace stash::planner::placing
