// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/search.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/graph/needs.hpp"

namespace stash::planner {
namespace {

constexpr int largest_number_of_rounds = 400;

// What a change of one component can gain at most: the gap that was measured last only grows by steps that
// were added since.
class estimate {
 public:
  estimate(const component& c, std::size_t configuration) {
    const std::int64_t now = c.configurations[configuration].kept_bytes;
    for (const planner::configuration& f : c.configurations)
      most_saved_ = std::max(most_saved_, static_cast<double>(now - f.kept_bytes));
  }

  void measured(std::int32_t gap, std::int64_t added_steps) { shorter_ = gap - added_steps; }
  double most_gain(std::int64_t added_steps) const {
    return most_saved_ * static_cast<double>(shorter_ + added_steps);
  }

 private:
  double most_saved_ = 0;
  std::int64_t shorter_ =
      std::numeric_limits<std::int32_t>::max();  // than the gap, by the steps added until then
};

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
  for (const storage_id i : g.storages.ids())
    s.choices[i].bytes_before = g.storages[i].bytes(g.batch);
  for (const op& o : g.ops)
    s.alternative.push_back(o.alternatives.empty() ? -1 : 0);
  for (std::size_t c = 0; c < options_.components.size(); ++c) {
    const component& part = options_.components[c];
    const configuration& f = part.configurations[p[c]];
    for (std::size_t k = 0; k < part.storages.size(); ++k)
      s.choices[part.storages[k]] = f.choices[k];
    for (std::size_t k = 0; k < part.ops.size(); ++k)
      s.alternative[part.ops[k]] = f.alternatives[k];
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
  running_peak running(facts_, options_, plan_, std::move(current));
  running_peak::moment top = running.top();
  for (int round = 0; round < largest_number_of_rounds; ++round) {
    bool improved = false;
    for (std::size_t c = 0; c < options_.components.size() && !improved; ++c) {
      if (!running.is_live(c, top)) continue;
      const component& part = options_.components[c];
      const std::size_t before = running.current()[c];
      for (std::size_t f = 0; f < part.configurations.size() && !improved; ++f) {
        if (f == before || (!sparse && has_sparse(part.configurations[f]))) continue;
        // What does not fall where it is highest does not fall.
        const std::optional<std::int64_t> there = running.bytes_with(c, f, top);
        if (there && *there >= top.bytes) continue;
        running.pick(c, f);
        const running_peak::moment changed = running.top();
        improved = changed.bytes < top.bytes;
        if (improved)
          top = changed;
        else
          running.pick(c, before);
      }
    }
    if (!improved) break;
  }
  return running.current();
}

picks search::meet(std::int64_t limit) const {
  running_peak running(facts_, options_, plan_, least_work());
  std::vector<estimate> estimates;
  for (std::size_t c = 0; c < options_.components.size(); ++c)
    estimates.emplace_back(options_.components[c], running.current()[c]);
  // Every round moves one component to a configuration that keeps less: the number of rounds is bounded.
  for (;;) {
    const running_peak::moment top = running.top();
    if (top.bytes <= limit) return running.current();
    double best_gain = 0;
    std::size_t best_component = 0, best_configuration = 0;
    for (std::size_t c = 0; c < options_.components.size(); ++c) {
      if (estimates[c].most_gain(running.added_steps()) <= best_gain || !running.is_live(c, top)) continue;
      const component& part = options_.components[c];
      const configuration& from = part.configurations[running.current()[c]];
      const std::int32_t gap = running.longest_life(c);
      estimates[c].measured(gap, running.added_steps());
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
    if (best_gain <= 0) return running.current();
    running.pick(best_component, best_configuration);
    estimates[best_component] = {options_.components[best_component], best_configuration};
  }
}

}  // namespace stash::planner
