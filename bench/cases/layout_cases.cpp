// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/layout_cases.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "planner/layout/layout_orders.hpp"
#include "stash/error.hpp"

namespace stash::bench {
namespace {

using planner::layout_block;

/// Not those of <random>, whose distributions differ between platforms.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : numbers_(seed * 0x9E3779B97F4A7C15ULL) {}

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(numbers_.below(static_cast<std::size_t>(bound)));
  }
  std::int64_t between(std::int64_t least, std::int64_t most) { return least + below(most - least + 1); }

 private:
  planner::placing::random_numbers numbers_;
};

void require(bool holds, const char* function, const char* argument, const char* expected) {
  if (!holds)
    throw error(errc::invalid_argument, fmt::format("{}: {}: expected {}", function, argument, expected));
}

struct part {
  std::int64_t begin, end, low, high;
};

class cutter {
 public:
  explicit cutter(const cut_settings& s)
      : settings_(s), random_(s.seed), parts_{{0, s.moments, 0, s.capacity / s.grain}} {}

  std::vector<part> run() {
    const auto count =
        static_cast<std::size_t>(static_cast<double>(settings_.blocks) / (1.0 - settings_.holes));
    std::int64_t vain = 0;
    while (parts_.size() < count) {
      require(++vain < 10'000, "cut_rectangle", "blocks", "no more than moments and bytes allow");
      if (cut(larger_of_two())) vain = 0;
    }
    for (std::size_t i = parts_.size(); i > 1; --i)
      std::swap(parts_[i - 1], parts_[index_below(i)]);
    return std::move(parts_);
  }

 private:
  std::size_t index_below(std::size_t bound) {
    return static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(bound)));
  }

  /// Large parts are cut more often, so that there are not only splinters and one giant.
  std::size_t larger_of_two() {
    const auto area = [&](std::size_t i) {
      const part& p = parts_[i];
      return static_cast<double>(p.end - p.begin) * static_cast<double>(p.high - p.low);
    };
    const std::size_t a = index_below(parts_.size()), b = index_below(parts_.size());
    return area(a) >= area(b) ? a : b;
  }

  /// Cuts by height as long as fewer than the wanted number are alive at once, at a moment of the part.
  bool cut(std::size_t number) {
    part& p = parts_[number];
    const std::int64_t moment = random_.between(p.begin, p.end - 1);
    part rest = p;
    if (random_.below(8) != 0 && most_alive(p) < settings_.live) {
      if (p.high - p.low < 2) return false;
      p.high = rest.low = random_.between(p.low + 1, p.high - 1);
    } else {
      if (p.end - p.begin < 2 || moment == p.begin) return false;
      p.end = rest.begin = moment;
    }
    parts_.push_back(rest);
    return true;
  }

  /// Parts that are alive together with this one, at the worst of the moments at which one begins.
  std::int64_t most_alive(const part& p) const {
    std::vector<std::int64_t> begins{p.begin};
    for (const part& other : parts_) {
      if (p.begin < other.begin && other.begin < p.end) begins.push_back(other.begin);
    }
    std::int64_t most = 0;
    for (const std::int64_t moment : begins) {
      most = std::max<std::int64_t>(most, std::count_if(parts_.begin(), parts_.end(), [&](const part& other) {
                                      return other.begin <= moment && moment < other.end;
                                    }));
    }
    return most;
  }

  const cut_settings& settings_;
  random_numbers random_;
  std::vector<part> parts_;
};

/// What an op of a layer allocates, in bytes of one activation.
struct sizes_of_model {
  std::int64_t hidden, inner, scores, weights, small;
};

class step_writer {
 public:
  explicit step_writer(const step_settings& s)
      : settings_(s),
        random_(s.seed),
        forward_ops_(s.blocks_per_layer / 4),
        backward_ops_(s.blocks_per_layer / 2),
        ops_(s.layers * (forward_ops_ + backward_ops_)) {
    const std::int64_t tokens = 512 * random_.between(2, 4), width = 64 * random_.between(24, 40);
    sizes_ = {tokens * width * 2, tokens * width * 8, tokens * tokens * random_.between(8, 32),
              width * width * 2, 512 * random_.between(1, 64)};
  }

  std::vector<layout_block> run() {
    for (std::int64_t layer = 0; layer < settings_.layers; ++layer)
      forward(layer);
    for (std::int64_t layer = settings_.layers; layer-- > 0;)
      backward(layer);
    std::stable_sort(blocks_.begin(), blocks_.end(),
                     [](const layout_block& a, const layout_block& b) { return a.begin < b.begin; });
    return std::move(blocks_);
  }

 private:
  void add(std::int64_t begin, std::int64_t end, std::int64_t size) {
    blocks_.push_back({begin, std::max(begin + 1, std::min(end, ops_)), (size + 511) / 512 * 512});
  }

  /// Few kinds of sizes, most of them small; a shard or a slice of each, now and then.
  std::int64_t size() {
    const std::array<std::int64_t, 10> kinds{
        sizes_.small,  sizes_.small, sizes_.hidden, sizes_.hidden,  sizes_.hidden,
        sizes_.hidden, sizes_.inner, sizes_.scores, sizes_.weights, 512};
    const std::int64_t whole = kinds[static_cast<std::size_t>(random_.below(10))];
    if (static_cast<double>(random_.below(1000)) < 1000 * settings_.odd) return 1 + random_.below(whole);
    return random_.below(5) == 0 ? whole >> random_.between(1, 3) : whole;
  }

  std::int64_t backward_of(std::int64_t layer) const {
    return settings_.layers * forward_ops_ + (settings_.layers - 1 - layer) * backward_ops_;
  }

  void forward(std::int64_t layer) {
    kept_bytes_.push_back(0);
    for (std::int64_t op = 0; op < forward_ops_; ++op) {
      const std::int64_t now = layer * forward_ops_ + op;
      // What is kept dies in the reverse order, as the backward pass reaches its op.
      const std::int64_t reader = backward_of(layer) + backward_ops_ * (forward_ops_ - 1 - op) / forward_ops_;
      const std::int64_t bytes = size();
      if (random_.below(6) == 0) {
        add(now, reader + random_.between(1, 4), bytes);
        kept_bytes_.back() += bytes;
      } else {
        add(now, now + some_ops(), bytes);
      }
      if (random_.below(16) == 0) add(now, now + 1, sizes_.small * random_.between(1, 200));  // workspace
    }
  }

  /// Gradients of weights take the place of what is freed, so that the step stays close to its peak.
  void backward(std::int64_t layer) {
    std::int64_t left = kept_bytes_[static_cast<std::size_t>(layer)];
    for (std::int64_t op = 0; op < backward_ops_; ++op) {
      const std::int64_t now = backward_of(layer) + op;
      add(now, now + some_ops(), size());
      if (random_.below(2) == 0) add(now, now + random_.between(1, 2), size());
      if (op % 8 != 0 || left <= 0) continue;
      const std::int64_t gradient = sizes_.weights << (2 * random_.below(2));
      add(now, ops_, gradient);
      left -= gradient;
    }
    // What is sent to other devices waits for several layers.
    add(backward_of(layer), backward_of(layer) + backward_ops_ * random_.between(1, 4),
        sizes_.weights * random_.between(1, 8));
  }

  /// Mostly a few, now and then as many as a layer has.
  std::int64_t some_ops() {
    return random_.below(12) == 0 ? random_.between(6, backward_ops_) : random_.between(1, 6);
  }

  std::vector<std::int64_t> kept_bytes_;  ///< per layer
  const step_settings& settings_;
  random_numbers random_;
  std::int64_t forward_ops_, backward_ops_, ops_;
  sizes_of_model sizes_{};
  std::vector<layout_block> blocks_;
};

}  // namespace

std::vector<layout_block> cut_rectangle(const cut_settings& settings) {
  const auto check = [](bool holds, const char* argument, const char* expected) {
    require(holds, "cut_rectangle", argument, expected);
  };
  check(settings.blocks >= 1, "blocks", "at least 1");
  check(settings.live >= 1, "live", "at least 1");
  check(settings.holes >= 0 && settings.holes < 1, "holes", "a share from 0 to below 1");
  check(settings.moments >= 1, "moments", "at least 1");
  check(settings.grain >= 1 && settings.capacity >= settings.grain && settings.capacity % settings.grain == 0,
        "grain", "a divisor of the capacity");
  std::vector<part> parts = cutter(settings).run();
  parts.resize(std::min(parts.size(), static_cast<std::size_t>(settings.blocks)));
  std::vector<layout_block> blocks;
  for (const part& p : parts)
    blocks.push_back({p.begin, p.end, (p.high - p.low) * settings.grain});
  return blocks;
}

std::vector<layout_block> model_step(const step_settings& settings) {
  require(settings.layers >= 1, "model_step", "layers", "at least 1");
  require(settings.blocks_per_layer >= 20, "model_step", "blocks_per_layer", "at least 20");
  require(settings.odd >= 0 && settings.odd <= 1, "model_step", "odd", "a share from 0 to 1");
  return step_writer(settings).run();
}

cut_settings cut_number(std::int64_t number) {
  constexpr std::array<double, 3> holes{0.0, 0.02, 0.05};
  cut_settings settings;
  settings.seed = static_cast<std::uint64_t>(number) + 1;
  settings.blocks = 100 + number * 4;
  settings.live = 20 + number * 7 % 41;
  settings.holes = holes[static_cast<std::size_t>(number % 3)];
  return settings;
}

step_settings step_number(std::int64_t number) {
  constexpr std::array<double, 3> odd{0.0, 0.02, 0.1};
  step_settings settings;
  settings.seed = static_cast<std::uint64_t>(number) + 1;
  settings.layers = 16 + number / 3 % 3 * 8;
  settings.odd = odd[static_cast<std::size_t>(number % 3)];
  return settings;
}

}  // namespace stash::bench
