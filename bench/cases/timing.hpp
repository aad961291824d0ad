// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Calls timed in turn within one process, so that a slow moment of the machine meets all of them and their
/// ratios hold where their times do not.

#include <cstdint>
#include <functional>
#include <vector>

namespace stash::bench {

/// The median; the upper one of an even number. 0 of nothing.
double median(std::vector<double> values);

/// The value that `share` of the values, from 0 to 1, do not exceed: nearest rank. 0 of nothing.
double quantile(std::vector<double> values, double share);

class interleaved_timing {
 public:
  /// With one thread the processor time of the calling thread is taken, which leaves out other work on the
  /// machine; with several, the time that passes.
  explicit interleaved_timing(bool one_thread) : one_thread_(one_thread) {}

  /// Runs the call a few times to see how often it has to be repeated in a round: until about a tenth of a
  /// millisecond has passed. Returns its number.
  std::size_t add(std::function<void()> call);

  /// Runs every call in turn, each as often as add() found.
  void round();

  std::int64_t repetitions(std::size_t call) const { return calls_[call].repetitions; }
  /// Of one repetition in the last round.
  double last_seconds(std::size_t call) const { return calls_[call].seconds.back(); }
  std::size_t rounds() const noexcept { return rounds_; }
  /// Of one repetition.
  double median_seconds(std::size_t call) const { return median(calls_[call].seconds); }
  /// How much faster `call` is than `other`: the median over rounds of the ratio of their seconds.
  double median_speed(std::size_t call, std::size_t other) const { return median(speeds(call, other)); }
  /// The same ratio in a slow round (share 0.25) or a fast one (0.75).
  double quantile_speed(std::size_t call, std::size_t other, double share) const {
    return quantile(speeds(call, other), share);
  }
  /// The spread of the rounds of a call: its ninth decile compared with its first one; 0: all alike.
  double variation(std::size_t call) const;

 private:
  struct timed_call {
    std::function<void()> run;
    std::int64_t repetitions = 1;
    std::vector<double> seconds;  ///< one entry per round
  };

  double now() const;
  double time(const timed_call& call) const;
  std::vector<double> speeds(std::size_t call, std::size_t other) const;

  bool one_thread_;
  std::size_t rounds_ = 0;
  std::vector<timed_call> calls_;
};

}  // namespace stash::bench
