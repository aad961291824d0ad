#include "planner/search.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/needs.hpp"

namespace stash::planner {
namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

constexpr int largest_number_of_rounds = 400;

struct peak {
  std::int64_t bytes = 0;
  std::int32_t step = 0;
};

peak find_peak(const schedule& s) {
  const std::vector<std::int64_t> live = live_bytes(s);
  if (live.empty()) return {};  // nothing runs
  const auto at = std::max_element(live.begin(), live.end());
  return {*at, static_cast<std::int32_t>(at - live.begin())};
}

// Storages that have a buffer alive at the step.
std::vector<bool> live_storages(const schedule& s, std::int32_t step, std::size_t count) {
  std::vector<bool> live(count, false);
  for (const buffer& b : s.buffers) {
    if (b.storage >= 0 && b.first_step <= step && step <= b.last_step) live[index(b.storage)] = true;
  }
  return live;
}

bool has_sparse(const configuration& f) {
  return std::any_of(f.choices.begin(), f.choices.end(), kept_sparsely);
}

}  // namespace

search::search(const scheduler& facts, const option_set& options, const plan_options& plan)
    : facts_(facts), options_(options), plan_(plan) {}

picks search::least_work() const {
  picks result;
  for (const component& c : options_.components) {
    std::size_t best = 0;
    for (std::size_t f = 1; f < c.configurations.size(); ++f) {
      const configuration& a = c.configurations[f];
      const configuration& b = c.configurations[best];
      if (std::pair(a.codec_bytes, a.kept_bytes) < std::pair(b.codec_bytes, b.kept_bytes)) best = f;
    }
    result.push_back(best);
  }
  return result;
}

selection search::select(const picks& p) const {
  const graph& g = facts_.network();
  selection s;
  s.choices.resize(g.storages.size());
  for (std::size_t i = 0; i < g.storages.size(); ++i)
    s.choices[i].bytes_before = g.storages[i].bytes(g.batch);
  for (const op& o : g.ops)
    s.alternative.push_back(o.alternatives.empty() ? -1 : 0);
  for (std::size_t c = 0; c < options_.components.size(); ++c) {
    const component& part = options_.components[c];
    const configuration& f = part.configurations[p[c]];
    for (std::size_t k = 0; k < part.storages.size(); ++k)
      s.choices[index(part.storages[k])] = f.choices[k];
    for (std::size_t k = 0; k < part.ops.size(); ++k)
      s.alternative[index(part.ops[k])] = f.alternatives[k];
  }
  return s;
}

picks search::smallest_peak(bool sparse) const {
  const auto cost = [sparse](const configuration& f) {
    return std::tuple(!sparse && has_sparse(f), f.kept_bytes, f.codec_bytes);
  };
  picks current;
  for (const component& c : options_.components) {
    std::size_t best = 0;
    for (std::size_t f = 1; f < c.configurations.size(); ++f) {
      if (cost(c.configurations[f]) < cost(c.configurations[best])) best = f;
    }
    current.push_back(best);
  }
  schedule now = build(current);
  peak top = find_peak(now);
  for (int round = 0; round < largest_number_of_rounds; ++round) {
    const std::vector<bool> live = live_storages(now, top.step, facts_.network().storages.size());
    bool improved = false;
    for (std::size_t c = 0; c < options_.components.size() && !improved; ++c) {
      const component& part = options_.components[c];
      const bool touches = std::any_of(part.storages.begin(), part.storages.end(),
                                       [&](storage_id s) { return live[index(s)]; });
      if (!touches) continue;
      for (std::size_t f = 0; f < part.configurations.size() && !improved; ++f) {
        if (f == current[c] || (!sparse && has_sparse(part.configurations[f]))) continue;
        picks next = current;
        next[c] = f;
        schedule other = build(next);
        const peak changed = find_peak(other);
        if (changed.bytes >= top.bytes) continue;
        current = std::move(next);
        now = std::move(other);
        top = changed;
        improved = true;
      }
    }
    if (!improved) break;
  }
  return current;
}

picks search::meet(std::int64_t limit) const {
  picks current = least_work();
  const std::size_t count = facts_.network().storages.size();
  // Every round moves one component to a configuration that keeps less: the number of rounds is bounded.
  for (;;) {
    const schedule now = build(current);
    const peak top = find_peak(now);
    if (top.bytes <= limit) return current;
    const std::vector<bool> live = live_storages(now, top.step, count);
    std::vector<std::int32_t> span(count, 0);  // of the buffer that lives longest
    for (const buffer& b : now.buffers) {
      if (b.storage >= 0)
        span[index(b.storage)] = std::max(span[index(b.storage)], b.last_step - b.first_step);
    }
    double best_gain = 0;
    std::size_t best_component = 0, best_configuration = 0;
    for (std::size_t c = 0; c < options_.components.size(); ++c) {
      const component& part = options_.components[c];
      const configuration& from = part.configurations[current[c]];
      std::int32_t gap = 0;
      bool touches = false;
      for (const storage_id s : part.storages) {
        touches = touches || live[index(s)];
        gap = std::max(gap, span[index(s)]);
      }
      if (!touches) continue;
      for (std::size_t f = 0; f < part.configurations.size(); ++f) {
        const configuration& to = part.configurations[f];
        const std::int64_t saved = from.kept_bytes - to.kept_bytes;
        if (saved <= 0) continue;
        const double gain = static_cast<double>(saved) * static_cast<double>(gap);
        if (gain > best_gain) {
          best_gain = gain;
          best_component = c;
          best_configuration = f;
        }
      }
    }
    if (best_gain <= 0) return current;
    current[best_component] = best_configuration;
  }
}

}  // namespace stash::planner
