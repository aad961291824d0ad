// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/timing.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

namespace stash::bench {
namespace {

// Far above the cost of reading the clock, far below the time in which a machine changes its mood.
constexpr double slice_seconds = 1e-4;

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto chosen = values.begin() + std::max<std::ptrdiff_t>(rank, 1) - 1;
  std::nth_element(values.begin(), chosen, values.end());
  return *chosen;
}

double interleaved_timing::now() const {
  timespec t{};
  ::clock_gettime(one_thread_ ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double interleaved_timing::time(const timed_call& call) const {
  const double start = now();
  for (std::int64_t i = 0; i < call.repetitions; ++i)
    call.run();
  return (now() - start) / static_cast<double>(call.repetitions);
}

std::size_t interleaved_timing::add(std::function<void()> call) {
  timed_call timed{std::move(call), 1, {}};
  timed.run();
  for (double seconds = time(timed); seconds * static_cast<double>(timed.repetitions) < slice_seconds;
       seconds = time(timed)) {
    timed.repetitions *= 2;
  }
  calls_.push_back(std::move(timed));
  return calls_.size() - 1;
}

void interleaved_timing::round() {
  for (timed_call& call : calls_)
    call.seconds.push_back(time(call));
  ++rounds_;
}

double interleaved_timing::variation(std::size_t call) const {
  const std::vector<double>& seconds = calls_[call].seconds;
  const double first = quantile(seconds, 0.1);
  return first > 0 ? quantile(seconds, 0.9) / first - 1 : 0;
}

std::vector<double> interleaved_timing::speeds(std::size_t call, std::size_t other) const {
  std::vector<double> ratios;
  ratios.reserve(rounds_);
  for (std::size_t i = 0; i < rounds_; ++i)
    ratios.push_back(calls_[other].seconds[i] / calls_[call].seconds[i]);
  return ratios;
}

}  // namespace stash::bench
