// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the tables of `stash reproduce` share: options of their plans, rows of one plan and rows of the
/// largest size that fits.

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "reproduce/reproduce.hpp"

namespace stash::tools {

inline constexpr double no_target = std::numeric_limits<double>::quiet_NaN();
inline constexpr std::int64_t gib = std::int64_t{1} << 30;

double ratio(std::int64_t a, std::int64_t b);
double mb(std::int64_t bytes);

class stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// A machine whose convolutions and matrix products run at `share` of the rate.
planner::machine at_rate(const char* name, double share);

planner::plan_options options_for(const reproduction& r, planner::policy p, const planner::machine& m);

/// The policy as rows name it.
std::string name_of(planner::policy p);

/// Throws failed_while_running if the validator finds anything.
void check(const planner::plan& p);

/// The largest batch, or at a given batch the largest side of a volume, within a memory.
struct growth_case {
  std::string network;
  planner::policy p = planner::policy::none;
  planner::machine m;
  std::int64_t memory = 0;
  double max_slowdown = 0.1;
  std::int64_t batch = 0;  ///< 0: it grows
  std::int64_t first = 1;
};
largest_size grown(const reproduction& r, const growth_case& c);

/// A policy whose largest size is compared with that of the baseline.
struct growth_row {
  planner::policy p;
  std::string published;
  double target = no_target;
};
/// Batches as multiples of the baseline's.
void batch_rows(const reproduction& r, const growth_case& base, const std::vector<growth_row>& rows);
/// Volumes of cubes as multiples of the baseline's.
void volume_rows(const reproduction& r, const growth_case& base, const std::vector<growth_row>& rows);

/// One plan of a given size in a given memory: reached if it fits.
struct fixed_case {
  std::string network;
  network_size size;
  planner::policy p = planner::policy::lossless;
  std::int64_t memory = 0;
  std::string published;
  double target = no_target;
  bool goal = false;
};
void fixed_row(const reproduction& r, const planner::machine& m, double max_slowdown, const fixed_case& c);

void gist_table(const reproduction& r);
void meng_table(const reproduction& r);
void lms_table(const reproduction& r);
void layrub_table(const reproduction& r);

}  // namespace stash::tools
