// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From a choice that fits by what is live at once to one whose layout fits.

#include <cstdint>
#include <optional>

#include "planner/memory/placement.hpp"
#include "planner/plan.hpp"
#include "planner/search/fastest.hpp"
#include "planner/time/timeline_of_choice.hpp"

namespace stash::planner {

/// Of one layout that is tried among others, in elementary steps.
inline constexpr std::int64_t quick_layout_work = 60'000'000;

/// A placed choice that was simulated: as the search knows it, and what it takes.
struct timed_choice : placed_choice {
  option_choice choice;
  tick_times times;
  double ms = 0.0;
};

/// Lays `s` out, or only counts what is live where the options want no layout.
placement place_within(const plan_options& options, schedule s, std::optional<std::int64_t> capacity = {},
                       std::int64_t work = default_layout_work, const placement* like = nullptr);

class layout_fitter {
 public:
  /// Refers to all of them. `steps` is changed during calls only.
  layout_fitter(step_problem& steps, const timeline_of_choice& view, const scheduler& facts,
                const plan_options& options)
      : steps_(steps), view_(view), facts_(facts), options_(options) {}

  /// Simulates and lays out a choice that was found for `steps`. Where a layout does not fit, the steps in
  /// which blocks stand out get less memory: transfers then come and go at other times, which mostly costs
  /// less than less memory everywhere. If `thorough`, what fits gets a part of it back as long as there are
  /// rounds. Returns the fastest that fits the capacity, or the lowest if none does.
  timed_choice fit(const fastest_choice& found, std::int64_t capacity, bool thorough);

 private:
  std::optional<fastest_choice> other_choice(const fastest_choice& found, const option_choice& last,
                                             int round);
  void withhold(const placement& placed, std::int64_t capacity, bool thorough);
  void give_back(double kept);
  /// Whether no layout of these steps will fit, by those seen so far; then memory is withheld everywhere.
  bool is_hopeless(const schedule& steps, std::int64_t capacity);
  void mend_near_miss(placement& placed, std::int64_t capacity);

  step_problem& steps_;
  const timeline_of_choice& view_;
  const scheduler& facts_;
  const plan_options& options_;
  std::vector<std::int64_t> withheld_;  ///< per step
  std::int64_t least_waste_ = 0;        ///< that a layout left above what is live at once
  int failures_ = 0;                    ///< of layouts, in a row
  int mended_again_ = 0;                ///< layouts that missed the capacity by little
};

}  // namespace stash::planner
