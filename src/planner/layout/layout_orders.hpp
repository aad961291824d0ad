// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Orders in which the parts of the layout solver look at items.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/layout/layout_instance.hpp"

namespace stash::planner::placing {

using order = std::vector<std::uint32_t>;  ///< item numbers

/// Reproducible on every platform, unlike the distributions of <random>.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t state = 7) noexcept : state_(state) {}

  std::size_t below(std::size_t bound) noexcept;

 private:
  std::uint64_t state_;
};

class orders {
 public:
  explicit orders(const instance& problem);

  /// For placing one after the other, the most promising first.
  std::vector<order> for_placing() const;
  /// One of them; after them those of simple().
  order for_placing(std::size_t number) const;
  static std::size_t before_simple();
  /// Those of for_placing() that begin with the blocks of the fullest sections.
  std::vector<order> fullest_first() const;
  /// Those that come to mind first: by size, area, lifetime, begin and end alone, in the order of the
  /// caller's blocks where these are equal.
  std::vector<order> simple() const;
  /// For the exact search. The first `plain()` are sorted by properties; those after them by the same, each
  /// shaken at random.
  order for_search(std::size_t number, random_numbers& random) const;
  static std::size_t plain();

 private:
  enum key : std::uint8_t { total, lifetime, sections, area, size, conflicts, late, early, mean, keys };
  struct pair_of_keys {
    key first;
    key second;
  };

  order by(pair_of_keys sorted_by, const std::vector<double>& factor) const;

  static const std::vector<pair_of_keys> placing_keys, search_keys;
  const instance& problem_;
  std::vector<double> values_[keys];
};

}  // namespace stash::planner::placing
