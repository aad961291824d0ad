// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>

#include "encoders/message.hpp"
#include "planner/graph/cost.hpp"
#include "planner/graph/needs.hpp"
#include "planner/memory/candidates.hpp"
#include "planner/memory/components.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

constexpr std::size_t largest_number_of_combinations = 4000;

// One class: the configurations of a component, from trying them to dropping the dominated ones.
class enumerator {
 public:
  enumerator(const graph& g, const plan_options& options, double margin)
      : g_(g),
        options_(options),
        costs_(options.model ? cost_model_of(*options.model) : nullptr),
        grouped_(group_storages(g)),
        candidates_(g, options, margin, grouped_.recipes_of) {}

  option_set run() {
    option_set& set = grouped_.set;
    bool force_used = options_.force.empty();
    for (component& c : set.components) {
      enumerate(c, set.fixed_readers);
      if (c.configurations.empty()) {
        throw error(errc::invalid_argument,
                    fmt::format("make_plan: tensors: expected rules that leave a legal form for {}, got none",
                                shortened(g_.at(c.storages.front()).name)));
      }
      force_used = keep_forced(c) || force_used;
      keep_what_machine_has(c);
      drop_dominated(c);
    }
    if (!force_used) {
      throw error(
          errc::invalid_argument,
          fmt::format(
              "make_plan: force: expected an encoding that is legal for some storage of {} under policy "
              "{}, got {}",
              shortened(g_.name), to_string(options_.chosen_policy), shortened(options_.force)));
    }
    return std::move(set);
  }

 private:
  void enumerate(component& c, const id_vector<storage_id, std::vector<reader>>& fixed) {
    std::vector<std::vector<std::int32_t>> allowed;
    for (const op_id id : c.ops) {
      const op& o = g_.op_at(id);
      allowed.emplace_back();
      for (std::size_t a = 0; a < o.alternatives.size(); ++a) {
        if (alternative_allowed(options_.chosen_policy, o.kind, o.attributes, o.alternatives[a], a == 0))
          allowed.back().push_back(static_cast<std::int32_t>(a));
      }
    }
    configuration current;
    current.alternatives.assign(c.ops.size(), 0);
    combinations_ = 0;
    pick_alternative(c, fixed, allowed, 0, current);
    if (combinations_ <= largest_number_of_combinations) return;
    c.configurations.clear();
    for (const storage_id s : c.storages)
      c.least_bytes.push_back(least_bytes(s, fixed[s]));
    enumerate_alike(c, fixed, allowed);
  }

  std::int64_t least_bytes(storage_id s, const std::vector<reader>& readers) const {
    std::int64_t least = g_.at(s).bytes(g_.batch);
    for (const stash_choice& choice : candidates_.of(s, readers))
      least = std::min(least, choice.bytes_after);
    return least;
  }

  // Too many combinations to look at them all: some decisions for the ops, and with each of them equal
  // decisions for all storages but the one with the most readers.
  void enumerate_alike(component& c, const id_vector<storage_id, std::vector<reader>>& fixed,
                       const std::vector<std::vector<std::int32_t>>& allowed) {
    constexpr std::size_t most_candidates = 8;
    for (std::vector<std::int32_t>& alternatives : alternatives_to_try(c, fixed, allowed)) {
      configuration current;
      current.alternatives = std::move(alternatives);
      const auto readers = readers_in(c, fixed, current);
      std::vector<std::vector<stash_choice>> choices = candidates_of(c, readers);
      if (choices.empty()) continue;
      std::size_t hub = 0;
      for (std::size_t k = 0; k < c.storages.size(); ++k) {
        if (readers[k].size() > readers[hub].size()) hub = k;
        std::stable_sort(choices[k].begin(), choices[k].end(),
                         [](const stash_choice& x, const stash_choice& y) {
                           return std::pair(x.kind == stash_kind::raw, x.bytes_after) <
                                  std::pair(y.kind == stash_kind::raw, y.bytes_after);
                         });
      }
      for (const stash_choice& kept : choices[hub]) {
        for (std::size_t rank = 0; rank < most_candidates; ++rank) {
          current.choices.clear();
          for (const std::vector<stash_choice>& list : choices)
            current.choices.push_back(list[std::min(rank, list.size() - 1)]);
          current.choices[hub] = kept;
          finish(c, readers, current);
        }
      }
    }
  }

  // Equal ones for all ops, and for components that are not too large what these become when one op after the
  // other takes the alternative with which least is kept.
  std::vector<std::vector<std::int32_t>> alternatives_to_try(
      const component& c, const id_vector<storage_id, std::vector<reader>>& fixed,
      const std::vector<std::vector<std::int32_t>>& allowed) const {
    constexpr std::size_t most_alternatives = 3, most_work = 4096;
    std::vector<std::vector<std::int32_t>> all;
    for (std::size_t a = 0; a < most_alternatives; ++a) {
      configuration current;
      for (const std::vector<std::int32_t>& list : allowed)
        current.alternatives.push_back(list[std::min(a, list.size() - 1)]);
      all.push_back(current.alternatives);
      if (c.ops.size() * c.storages.size() > most_work) continue;
      std::int64_t least = least_kept(c, readers_in(c, fixed, current));
      for (std::size_t k = 0; k < c.ops.size(); ++k) {
        configuration trial = current;
        for (const std::int32_t other : allowed[k]) {
          trial.alternatives[k] = other;
          const std::int64_t kept = least_kept(c, readers_in(c, fixed, trial));
          if (kept >= least) continue;
          least = kept;
          current.alternatives[k] = other;
        }
      }
      all.push_back(current.alternatives);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  std::int64_t least_kept(const component& c, const std::vector<std::vector<reader>>& readers) const {
    const auto choices = candidates_of(c, readers);
    if (choices.empty()) return std::numeric_limits<std::int64_t>::max();
    std::int64_t sum = 0;
    for (const std::vector<stash_choice>& list : choices) {
      const auto least = std::min_element(
          list.begin(), list.end(),
          [](const stash_choice& x, const stash_choice& y) { return x.bytes_after < y.bytes_after; });
      sum += least->bytes_after;
    }
    return sum;
  }

  std::vector<std::vector<reader>> readers_in(const component& c,
                                              const id_vector<storage_id, std::vector<reader>>& fixed,
                                              const configuration& current) const {
    std::vector<std::vector<reader>> readers;
    for (const storage_id s : c.storages) {
      readers.push_back(fixed[s]);
      for (std::size_t i = 0; i < c.ops.size(); ++i) {
        for (const stash_read& r : g_.op_at(c.ops[i]).alternatives[current.alternatives[i]].reads) {
          if (r.storage == s) readers.back().push_back({c.ops[i], r.what, r.slice.whole()});
        }
      }
    }
    return readers;
  }

  void pick_alternative(component& c, const id_vector<storage_id, std::vector<reader>>& fixed,
                        const std::vector<std::vector<std::int32_t>>& allowed, std::size_t k,
                        configuration& current) {
    if (combinations_ > largest_number_of_combinations) return;
    if (k == c.ops.size()) {
      current.choices.assign(c.storages.size(), {});
      const auto readers = readers_in(c, fixed, current);
      const auto choices = candidates_of(c, readers);
      if (choices.empty()) {
        ++combinations_;
      } else {
        pick_choice(c, readers, choices, 0, current);
      }
      return;
    }
    for (const std::int32_t a : allowed[k]) {
      current.alternatives[k] = a;
      pick_alternative(c, fixed, allowed, k + 1, current);
    }
  }

  void pick_choice(component& c, const std::vector<std::vector<reader>>& readers,
                   const std::vector<std::vector<stash_choice>>& choices, std::size_t k,
                   configuration& current) {
    if (combinations_ > largest_number_of_combinations) return;
    if (k == c.storages.size()) {
      ++combinations_;
      finish(c, readers, current);
      return;
    }
    for (const stash_choice& option : choices[k]) {
      current.choices[k] = option;
      pick_choice(c, readers, choices, k + 1, current);
    }
  }

  // Per storage; empty if a storage has none, so that the alternatives cannot be taken together.
  std::vector<std::vector<stash_choice>> candidates_of(
      const component& c, const std::vector<std::vector<reader>>& readers) const {
    std::vector<std::vector<stash_choice>> all;
    for (std::size_t k = 0; k < c.storages.size(); ++k) {
      all.push_back(candidates_.of(c.storages[k], readers[k]));
      if (all.back().empty()) return {};
    }
    return all;
  }

  void finish(component& c, const std::vector<std::vector<reader>>& readers, configuration current) const {
    const auto choice_of = [&](storage_id s) -> const stash_choice* {
      const auto at = std::find(c.storages.begin(), c.storages.end(), s);
      return at == c.storages.end() ? nullptr : &current.choices[position_of(at - c.storages.begin())];
    };
    current.kept_bytes = 0;
    current.codec_bytes = 0;
    if (options_.model) current.codec_ms.assign(c.storages.size(), 0.0);
    const auto add_time = [&](storage_id s) {
      const auto at = std::find(c.storages.begin(), c.storages.end(), s);
      if (!options_.model || at == c.storages.end()) return;
      const auto k = static_cast<std::size_t>(at - c.storages.begin());
      const stash_choice& choice = current.choices[k];
      current.codec_ms[k] +=
          costs_->codec_ms(choice.stored, g_.at(s).bytes(g_.batch), aligned(choice.bytes_after));
    };
    for (std::size_t k = 0; k < c.storages.size(); ++k) {
      const stash_choice& choice = current.choices[k];
      const recipe* const again = choice.kind == stash_kind::recompute ? &g_.recipes[choice.recipe] : nullptr;
      kept_sources sources;
      if (again != nullptr) {
        for (const storage_id s : again->sources)
          sources.add(*choice_of(s));
      }
      for (const reader& r : readers[k]) {
        if (!serves(choice, r.what, again == nullptr ? nullptr : &sources)) return;
        if (choice.kind == stash_kind::raw || reads_directly(g_.op_at(r.op).kind, r.what, choice, r.whole))
          continue;
        // A mask has no values that could be decoded for a reader that does not take its bits.
        const bool mask =
            choice.stored.kind == encoding_kind::sign_mask || choice.stored.kind == encoding_kind::range_mask;
        if (choice.kind == stash_kind::encoded && mask) return;
        current.codec_bytes += g_.at(c.storages[k]).bytes(g_.batch);
        if (choice.kind == stash_kind::encoded) add_time(c.storages[k]);
        if (again == nullptr) continue;
        const bool reads_bits = r.what == need::sign || r.what == need::range;
        if (reads_bits && !sources.exact && !is_gated(g_, *again)) return;
        for (std::size_t o = 0; o + 1 < again->ops.size(); ++o)
          for (const tensor_ref& made : g_.op_at(again->ops[o]).outputs)
            current.codec_bytes += g_.at(made.storage).bytes(g_.batch);
        for (const storage_id s : again->sources) {
          if (choice_of(s)->kind == stash_kind::raw) continue;
          current.codec_bytes += g_.at(s).bytes(g_.batch);
          add_time(s);
        }
      }
      // A mask in addition to an exactly kept source would be paid for twice.
      const bool masked = adds_mask(choice);
      if (masked && sources.exact && !has(readers[k], need::sign) && !has(readers[k], need::range)) return;
      if (choice.kind == stash_kind::encoded || masked) {
        current.codec_bytes += g_.at(c.storages[k]).bytes(g_.batch);
        add_time(c.storages[k]);
      }
      current.kept_bytes += aligned(choice.bytes_after);
    }
    c.configurations.push_back(std::move(current));
  }

  static bool is_forced(const stash_choice& c, const std::string& force) {
    if (c.kind == stash_kind::recompute) return force == "recompute";
    if (c.kind == stash_kind::raw) return force == "raw";
    return c.kind == stash_kind::encoded && to_string(c.stored) == force;
  }

  // With `force`, only configurations that use it as often as possible stay; among them those with the
  // fewest other encodings.
  bool keep_forced(component& c) const {
    if (options_.force.empty()) return false;
    const auto score = [&](const configuration& f) {
      long forced = 0, others = 0;
      for (const stash_choice& choice : f.choices) {
        if (choice.kind == stash_kind::none) continue;
        if (is_forced(choice, options_.force)) {
          ++forced;
        } else if (choice.kind != stash_kind::raw) {
          ++others;
        }
      }
      return std::pair(forced, -others);
    };
    std::pair<long, long> best{0, -1000};
    for (const configuration& f : c.configurations)
      best = std::max(best, score(f));
    c.configurations.erase_if([&](const configuration& f) { return score(f) != best; });
    return best.first > 0;
  }

  // Configurations of forms that the machine has. Where there are none, as of codes that only a forward op
  // can write, what there is stays.
  void keep_what_machine_has(component& c) const {
    if (costs_ == nullptr) return;
    const auto has_all = [this](const configuration& f) {
      return std::all_of(f.choices.begin(), f.choices.end(),
                         [this](const stash_choice& x) { return costs_->has_form(x); });
    };
    if (std::none_of(c.configurations.begin(), c.configurations.end(), has_all)) return;
    c.configurations.erase_if([&](const configuration& f) { return !has_all(f); });
  }

  // What two configurations must have in common for one with fewer bytes to be no worse at any time: the
  // reads, on which it depends how long something is kept, and which storages are computed again by which
  // recipe.
  static std::vector<std::int32_t> lives_of(const configuration& f) {
    std::vector<std::int32_t> key = f.alternatives;
    for (const stash_choice& choice : f.choices)
      key.push_back(choice.recipe.number());
    return key;
  }

  // Whether b is no worse than a, and `first` or better.
  bool dominates(const configuration& b, const configuration& a, bool first) const {
    bool better = first;
    for (std::size_t k = 0; k < a.choices.size(); ++k) {
      if (b.choices[k].bytes_after > a.choices[k].bytes_after) return false;
      better = better || b.choices[k].bytes_after < a.choices[k].bytes_after;
    }
    if (!options_.model) return b.codec_bytes <= a.codec_bytes && (better || b.codec_bytes < a.codec_bytes);
    for (std::size_t k = 0; k < a.codec_ms.size(); ++k) {
      if (b.codec_ms[k] > a.codec_ms[k]) return false;
      better = better || b.codec_ms[k] < a.codec_ms[k];
    }
    return better;
  }

  void drop_dominated(component& c) const {
    std::map<std::vector<std::int32_t>, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < c.configurations.size(); ++i)
      alike[lives_of(c.configurations[i])].push_back(i);
    std::vector<configuration> kept;
    for (std::size_t i = 0; i < c.configurations.size(); ++i) {
      const configuration& a = c.configurations[i];
      const std::vector<std::size_t>& others = alike[lives_of(a)];
      const bool dominated = std::any_of(others.begin(), others.end(), [&](std::size_t j) {
        return i != j && dominates(c.configurations[j], a, j < i);
      });
      if (!dominated) kept.push_back(a);
    }
    c.configurations = id_vector<std::int32_t, configuration>(std::move(kept));
  }

  const graph& g_;
  const plan_options& options_;
  const std::unique_ptr<const cost_model> costs_;  // of the machine, if there is one
  grouped_storages grouped_;
  const candidate_forms candidates_;
  std::size_t combinations_ = 0;  // of the component that is being enumerated
};

}  // namespace

const tensor_rule* rule_for(const std::vector<tensor_rule>& rules, std::string_view name) {
  const auto fits = [](std::string_view pattern, std::string_view text) {
    std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
    while (t < text.size()) {
      if (p < pattern.size() && pattern[p] == '*') {
        star = p++;
        mark = t;
      } else if (p < pattern.size() && pattern[p] == text[t]) {
        ++p;
        ++t;
      } else if (star != std::string_view::npos) {
        p = star + 1;
        t = ++mark;
      } else {
        return false;
      }
    }
    while (p < pattern.size() && pattern[p] == '*')
      ++p;
    return p == pattern.size();
  };
  const auto rule =
      std::find_if(rules.rbegin(), rules.rend(), [&](const tensor_rule& r) { return fits(r.pattern, name); });
  return rule == rules.rend() ? nullptr : &*rule;
}

option_set make_options(const graph& g, const plan_options& options, double margin) {
  if (!options.force.empty() && options.force != "recompute") {
    static_cast<void>(parse_encoding(options.force));  // an unknown name gets the list of known ones
  }
  return enumerator(g, options, margin).run();
}

id_vector<storage_id, std::vector<reader>> readers_of(const graph& g,
                                                      const id_vector<op_id, std::int32_t>& alternative) {
  id_vector<storage_id, std::vector<reader>> readers(g.storages.size());
  for (const op_id i : g.ops.ids()) {
    if (alternative[i] < 0) continue;
    for (const stash_read& r : g.ops[i].alternatives[alternative[i]].reads)
      readers[r.storage].push_back({i, r.what, r.slice.whole()});
  }
  return readers;
}

}  // namespace stash::planner
