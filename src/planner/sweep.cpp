#include "planner/sweep.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "planner/bounds.hpp"
#include "planner/fastest.hpp"
#include "planner/items.hpp"
#include "planner/placement.hpp"
#include "planner/policies.hpp"
#include "planner/search.hpp"
#include "planner/timeline.hpp"
#include "planner/validator.hpp"
#include "stash/error.hpp"

namespace stash::planner {
namespace {

// Of one layout, in elementary steps, and how often another timeline is tried before the search starts over
// with less.
constexpr std::int64_t layout_work = 20'000'000;
constexpr int layout_rounds = 12, layout_patience = 3;
constexpr int least_thorough_rounds = 16, thorough_rounds = 32;
constexpr std::size_t most_steps_of_thorough = 5000;
// Where rounds are few, less than this part of the room is not withheld: it would seldom change anything.
constexpr std::int64_t least_parts_of_room = 2000;
constexpr double close_to_bound = 1.001;  // no other timeline is tried

constexpr std::int64_t no_limit = std::int64_t{1} << 52;

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

class plan_sweep::state {
 public:
  state(const graph& g, const plan_options& options)
      : g_(g), options_(options), facts_(g_), beside_(parameter_bytes(g_) + workspace_bytes(g_)) {
    if (options.model->pinned) {
      options_.chosen_policy = policy::automatic;
      options_.values = {value_format::fp16};
    }
    if (options_.chosen_policy == policy::gist) {
      if (options_.values.empty()) options_.values = {value_format::fp16};
      options_.values.resize(1);
      set_ = gist_options(g_, options_, options_.slot_margin);
    } else {
      set_ = make_options(g_, options_, options_.slot_margin);
    }
    item_rules rules;
    rules.swap = options_.swap;
    rules.smallest_swap = options_.smallest_swap;
    rules.overflow_share = options_.overflow_share;
    rules.move_images = !has_rule(options_.chosen_policy);  // the papers' rules know maps only
    rules.pinned = pinned_storages();
    problem_ = make_problem(g_, set_, *options_.model, rules, no_limit);
    steps_ = compress(problem_);
    plan_options none = options_;
    none.chosen_policy = policy::none;
    none.force.clear();
    const option_set raw = make_options(g_, none, 0.0);
    const search finder(facts_, raw, none);
    baseline_ = place_within(finder.build(finder.least_work())).height + beside_;
    for (const double ms : problem_.tick_ms)
      unplanned_ms_ += ms;
  }

  plan make(std::int64_t budget) {
    const std::int64_t given = budget;
    if (budget == 0) budget = options_.model->memory_bytes > 0 ? options_.model->memory_bytes : no_limit;
    const std::int64_t room = budget - beside_;
    if (has_rule(options_.chosen_policy)) return make_by_rule(given, budget);
    fastest_choice found;
    placement where;
    selection chosen;
    tick_times times;
    double bound = 0.0;
    bool certified = false;
    dual_prices prices;
    std::int64_t limit = room;
    // Layout needs more than what is live now and then: ask for less until it fits.
    for (int attempt = 0;; ++attempt) {
      steps_.limit = limit;
      fastest_limits limits;
      limits.evaluations = options_.evaluations;
      limits.seed = options_.seed;
      limits.relax = options_.relax;
      limits.stop = options_.stop;
      // The prices of little less memory are much the same, and so are the choices.
      if (attempt > 0) {
        limits.evaluations /= 4;
        limits.relax = false;
        if (certified) limits.prices = &prices;
        limits.starts.push_back(found.choice);
      }
      for (const made& known : known_) {
        if (known.where.height <= room) limits.starts.push_back(known.choice);
      }
      found = find_fastest(steps_, limits);
      if (attempt == 0) {
        bound = found.bound_ms;
        certified = found.relaxed;
        prices = found.prices;
      } else {
        found.relaxed = certified;
        found.prices = prices;
      }
      if (!found.found) break;
      const double alone = found.ms;
      option_choice fitting;
      // More rounds are worth their time where layouts are quick and nothing else was tried yet.
      const bool thorough = attempt == 0 && steps_.ms.size() <= most_steps_of_thorough;
      found.ms = fit(found, room, thorough, fitting, chosen, where, times);
      found.choice = fitting;
      if (where.height <= room || attempt >= 8) break;
      found.ms = alone;
      limit -= std::max(where.height - room, room / least_parts_of_room) * (1 + attempt / 2);
    }
    // More room lets prefetches start earlier, which now and then costs time: what was made for less is a
    // plan too.
    const bool fits = found.found && where.height <= room;
    double least = fits ? found.ms : std::numeric_limits<double>::infinity();
    const made* best = nullptr;
    for (const made& known : known_) {
      if (known.where.height > room || known.ms > least) continue;
      best = &known;
      least = known.ms;
    }
    if (!fits && best == nullptr) {
      made simple = simple_plan(room);
      if (simple.where.height > room) refuse(budget, room, found);
      best = &known_.emplace_back(std::move(simple));
    }
    if (best != nullptr) {
      chosen = best->chosen;
      where = best->where;
      times = best->times;
      found.ms = best->ms;
    } else {
      known_.push_back({found.choice, chosen, where, times, found.ms});
    }
    plan_options own = options_;
    own.budget_bytes = given;
    plan p = assemble(g_, own, facts_, chosen, std::move(where));
    say_options(p);
    if (certified) p.certificate = certificate_of(prices, room);
    p.times = {options_.model->name, unplanned_ms_, found.ms, std::min(bound, found.ms), certified};
    set_timeline(p, *options_.model, times);
    say_proven_bound(p);
    count_load(best != nullptr ? best->choice : found.choice);
    return p;
  }

  const plan_load& load() const { return load_; }

  double greedy_ms(std::int64_t budget) {
    steps_.limit = budget - beside_;
    simulator sim(steps_);
    const simulated s = sim.run(greedy_largest_first(steps_, sim));
    return s.feasible ? s.ms : -1.0;
  }

  std::int64_t baseline() const { return baseline_; }
  std::int64_t beside() const { return beside_; }

 private:
  struct made {
    option_choice choice;
    selection chosen;
    placement where;
    tick_times times;
    double ms = 0.0;
  };

  // What a rule makes of a limit on maps, with its layout.
  struct placed_rule {
    ruled decision;
    selection chosen;
    placement where;
    tick_times times;
    double ms = 0.0;
  };
  std::optional<placed_rule> by_rule(std::int64_t limit, std::int64_t room) {
    placed_rule r;
    problem ticks = problem_;
    r.decision = apply_rule(options_.chosen_policy, {g_, set_, limit, beside_, options_.swap_all}, ticks);
    steps_ = compress(ticks);
    steps_.limit = limit;
    simulator sim(steps_);
    std::optional<placed_rule> lowest;
    for (int round = 0; round < layout_rounds; ++round) {
      timeline_record record;
      const option_choice& c = r.decision.choice;
      const simulated s = r.decision.late ? sim.run_late(c, record)
                                          : sim.run(c, std::numeric_limits<double>::infinity(), &record);
      if (!s.feasible) break;
      r.ms = s.ms;
      r.chosen = select(c, record);
      r.times = times_of(c, record);
      r.where = place_within(facts_.build(r.chosen, options_), room, layout_work);
      if (!lowest || r.where.height < lowest->where.height) lowest = r;
      if (r.where.height <= room || options_.chosen_policy == policy::gist) break;
      tighten(r.where, room);
    }
    return lowest;
  }

  plan make_by_rule(std::int64_t given, std::int64_t budget) {
    const std::int64_t room = budget - beside_;
    std::optional<placed_rule> result;
    std::int64_t limit = room;
    for (int attempt = 0; attempt < 8; ++attempt) {
      result = by_rule(limit, room);
      if (!result || result->where.height <= room) break;
      limit -= result->where.height - room;
    }
    // What does not fit with less still says what would do.
    std::int64_t more = std::max(room, working_set_wall(g_).bytes);
    for (int attempt = 0; !result && attempt < 400; ++attempt, more += more / 24 + 1)
      result = by_rule(more, more);
    if (!result) throw error(errc::infeasible_budget, "make_plan: budget: expected more, got too little");
    if (result->where.height > room) refuse_budget(g_, result->where, beside_, budget);
    steps_ = compress(problem_);
    steps_.limit = room;
    double bound = least_ms(steps_);
    relaxed r;
    // Gist's options are one per storage: a bound for these says nothing.
    if (options_.relax && can_relax() && options_.chosen_policy != policy::gist)
      r = relax(steps_, relaxed_steps(steps_.ms.size()));
    if (r.solved) bound = bound_from(steps_, r.prices);
    plan_options own = options_;
    own.budget_bytes = given;
    count_load(result->decision.choice);
    load_.parameters = result->decision.parameters;
    plan p = assemble(g_, own, facts_, result->chosen, std::move(result->where));
    say_options(p);
    if (r.solved) p.certificate = certificate_of(r.prices, room);
    p.times = {options_.model->name, unplanned_ms_, result->ms, std::min(bound, result->ms), r.solved};
    set_timeline(p, *options_.model, result->times);
    say_proven_bound(p);
    return p;
  }

  void say_options(plan& p) const {
    p.model = options_.model;
    p.swap = options_.swap;
    p.smallest_swap = options_.smallest_swap;
    p.overflow_share = options_.overflow_share;
    p.tensors = options_.tensors;
  }

  // The search knows fewer choices than there are; the bound is one over all of them.
  static void say_proven_bound(plan& p) { p.times.bound_ms = std::min(p.times.bound_ms, proven_bound_ms(p)); }

  // What a choice adds to compute and link.
  void count_load(const option_choice& choice) {
    load_ = {};
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const item_option& o = problem_.items[i].options[index(choice[i])];
      for (const added_work& w : o.work)
        load_.added_ms += w.ms;
      for (const transfer& t : o.transfers) {
        load_.moved_bytes += t.bytes;
        load_.out_ms += static_cast<double>(t.bytes) / problem_.link.out_rate + problem_.link.latency_ms;
        load_.in_ms += static_cast<double>(t.bytes) / problem_.link.in_rate + problem_.link.latency_ms;
      }
    }
  }

  bound_certificate certificate_of(const dual_prices& d, std::int64_t room) const {
    bound_certificate c;
    c.limit_bytes = room;
    c.first_tick = steps_.first_tick;
    for_each_price_row(d, [&](const char* name, const std::vector<double>& list) {
      bound_certificate::row_prices row{name, {}};
      for (std::size_t k = 0; k < list.size(); ++k) {
        if (list[k] != 0.0) row.list.emplace_back(static_cast<std::int32_t>(k), list[k]);
      }
      if (!row.list.empty()) c.prices.push_back(std::move(row));
    });
    return c;
  }

  // Simulates and lays out a choice. Where a layout does not fit, the steps in which blocks stand out get
  // less memory: transfers then come and go at other times, which mostly costs less than less memory
  // everywhere. If `thorough`, what fits gets a part of it back as long as there are rounds.
  double fit(const fastest_choice& found, std::int64_t room, bool thorough, option_choice& choice,
             selection& chosen, placement& where, tick_times& times) {
    const std::vector<std::int64_t> fixed = steps_.fixed;
    std::vector<std::int64_t> withheld(fixed.size(), 0);
    std::int64_t best_height = std::numeric_limits<std::int64_t>::max();
    double best_ms = std::numeric_limits<double>::infinity();
    simulator sim(steps_);
    option_choice trial = found.choice;
    // A round takes as long as the network has steps.
    const int rounds = thorough ? std::clamp(32000 / static_cast<int>(fixed.size() + 1),
                                             least_thorough_rounds, thorough_rounds)
                                : layout_rounds;
    int failures = 0;  // in a row
    const double close = std::max(found.ms * (1.0 + 1e-9), found.bound_ms * close_to_bound);
    placement last;  // the next one is mended from it
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t k = 0; k < fixed.size(); ++k)
        steps_.fixed[k] = fixed[k] + withheld[k];
      timeline_record record;
      simulated s = sim.run_late(trial, record);
      if (!s.feasible || round > 0) {
        fastest_limits limits;
        limits.evaluations = options_.evaluations / 8;
        limits.seed = options_.seed + static_cast<std::uint64_t>(round);
        limits.relax = false;
        if (found.relaxed) limits.prices = &found.prices;
        limits.starts = {trial, found.choice};
        limits.stop = options_.stop;
        const fastest_choice other = find_fastest(steps_, limits);
        if (!other.found) {
          give_back(withheld, 0.5);
          continue;
        }
        trial = other.choice;
        s = sim.run_late(trial, record);
      }
      const bool fitted = best_height <= room;
      // Slower than what already fits: the layout is of no interest.
      if (fitted && s.ms >= best_ms) {
        give_back(withheld, 0.7);
        continue;
      }
      selection now = select(trial, record);
      placement placed = place_within(facts_.build(now, options_), room, layout_work, &last);
      if (thorough) last = placed;
      const bool fits = placed.height <= room;
      if (fits) {
        failures = 0;
        give_back(withheld, 0.6);
      } else {
        // Most of what stands out is often enough: the next layout is another one anyway. Where it is not,
        // less memory everywhere is what helps.
        ++failures;
        withhold(placed, room, 0.7, thorough ? 0 : room / least_parts_of_room, withheld);
        if (failures > layout_patience) {
          for (std::int64_t& bytes : withheld)
            bytes += (placed.height - room) / 4;
        }
      }
      if (fits ? !fitted || s.ms < best_ms : placed.height < best_height) {
        best_height = placed.height;
        best_ms = s.ms;
        choice = trial;
        times = times_of(trial, record);
        chosen = std::move(now);
        where = std::move(placed);
      }
      if (best_height <= room && (!thorough || best_ms <= close)) break;
    }
    steps_.fixed = fixed;
    return best_ms;
  }

  static void give_back(std::vector<std::int64_t>& withheld, double kept) {
    for (std::int64_t& bytes : withheld)
      bytes = static_cast<std::int64_t>(static_cast<double>(bytes) * kept);
  }

  // Of each step of the simulation, the most bytes that lie above the room while it runs.
  std::vector<std::int64_t> most_above(const placement& placed, std::int64_t room) const {
    const std::vector<std::int32_t> tick = ticks_of(placed.steps);
    const std::vector<std::int64_t> above = bytes_above(placed, room);
    std::vector<std::int64_t> most(steps_.ms.size(), 0);
    for (std::size_t i = 0; i < above.size(); ++i) {
      std::int64_t& step = most[index(step_of(tick[i]))];
      step = std::max(step, above[i]);
    }
    return most;
  }

  // Withholds from each step a share of the bytes that lie above the room while it runs, and at least so
  // many.
  void withhold(const placement& placed, std::int64_t room, double share, std::int64_t least,
                std::vector<std::int64_t>& withheld) const {
    const std::vector<std::int64_t> most = most_above(placed, room);
    for (std::size_t k = 0; k < most.size(); ++k) {
      if (most[k] == 0) continue;
      const auto bytes = static_cast<std::int64_t>(static_cast<double>(most[k]) * share);
      withheld[k] += std::max(bytes, least);
    }
  }

  // Takes from the steps in which blocks stand out of the room what they stand out.
  void tighten(const placement& placed, std::int64_t room) {
    const std::vector<std::int32_t> tick = ticks_of(placed.steps);
    std::vector<std::int64_t> out(steps_.ms.size(), 0);
    if (!placed.laid_out) out = most_above(placed, room);
    for (const buffer& b : placed.steps.buffers) {
      if (b.form == buffer_form::host || b.offset + b.bytes <= room) continue;
      const std::int32_t first = step_of(tick[index(b.first_step)]), last = step_of(tick[index(b.last_step)]);
      for (std::int32_t k = first; k <= last; ++k)
        out[index(k)] = std::max(out[index(k)], b.offset + b.bytes - room);
    }
    for (std::size_t k = 0; k < out.size(); ++k)
      steps_.fixed[k] += out[k];
  }

  // The tick in which each step of a schedule lies.
  std::vector<std::int32_t> ticks_of(const schedule& s) const {
    std::vector<std::int32_t> ticks(s.steps.size(), 0);
    std::int32_t now = 0;
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
      const bool runs = s.steps[i].kind == step_kind::run;
      if (runs) now = 2 * s.steps[i].op;
      ticks[i] = now;
      if (runs) ++now;
    }
    return ticks;
  }
  std::int32_t step_of(std::int32_t tick) const {
    const auto next = std::upper_bound(steps_.first_tick.begin(), steps_.first_tick.end(), tick);
    return static_cast<std::int32_t>(next - steps_.first_tick.begin()) - 1;
  }

  // Choices of all storages, and when the copies of swapped ones begin and end.
  selection select(const option_choice& choice, const timeline_record& record) const {
    selection s;
    s.choices.resize(g_.storages.size());
    s.alternative.assign(g_.ops.size(), -1);
    for (std::size_t i = 0; i < g_.ops.size(); ++i) {
      if (g_.ops[i].alternatives.size() == 1) s.alternative[i] = 0;
    }
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const component& c = set_.components[i];
      const item_option& o = steps_.items[i].options[index(choice[i])];
      const configuration& f = c.configurations[index(o.configuration)];
      for (std::size_t k = 0; k < c.storages.size(); ++k) {
        s.choices[index(c.storages[k])] = f.choices[k];
        s.choices[index(c.storages[k])].swapped = k < 32 && ((o.swapped >> k) & 1U) != 0;
      }
      for (std::size_t k = 0; k < c.ops.size(); ++k)
        s.alternative[index(c.ops[k])] = f.alternatives[k];
    }
    s.copies = copies_of(choice, record);
    return s;
  }

  // Begin of every tick on the compute stream.
  std::vector<double> tick_begins(const timeline_record& record) const {
    std::vector<double> begin(problem_.tick_ms.size(), 0.0);
    for (std::size_t k = 0; k + 1 < steps_.first_tick.size(); ++k) {
      double at = record.begin[k];
      for (std::int32_t t = steps_.first_tick[k]; t < steps_.first_tick[k + 1]; ++t) {
        begin[index(t)] = at;
        at += problem_.tick_ms[index(t)];
      }
    }
    return begin;
  }

  // The simulation in ticks and storages, for the plan's timeline.
  tick_times times_of(const option_choice& choice, const timeline_record& record) const {
    tick_times t;
    t.begin = t.end = tick_begins(record);
    for (std::size_t i = 0; i < t.end.size(); ++i)
      t.end[i] += problem_.tick_ms[i];
    for (std::size_t k = 0; k + 1 < steps_.first_tick.size(); ++k) {
      if (steps_.first_tick[k] < steps_.first_tick[k + 1])
        t.end[index(steps_.first_tick[k + 1] - 1)] = record.end[k];
    }
    for (const simulated_transfer& x : record.transfers) {
      const item_option& o = problem_.items[index(x.item)].options[index(choice[index(x.item)])];
      const storage_id s = set_.components[index(x.item)].storages[index(o.transfers[index(x.index)].form)];
      t.swaps.push_back({s, x.out_begin, x.out_end, x.in_begin, x.in_end});
    }
    return t;
  }

  std::vector<copy_event> copies_of(const option_choice& choice, const timeline_record& record) const {
    struct timed {
      copy_event event;
      double ms;
      int rank;  // of events of one moment: ends before begins
    };
    const std::vector<double> begin = tick_begins(record);
    const auto tick_from = [&](double ms) {
      return static_cast<std::int32_t>(std::lower_bound(begin.begin(), begin.end(), ms) - begin.begin());
    };
    std::vector<timed> events;
    for (const simulated_transfer& t : record.transfers) {
      const component& c = set_.components[index(t.item)];
      const item_option& o = problem_.items[index(t.item)].options[index(choice[index(t.item)])];
      const transfer& x = o.transfers[index(t.index)];
      const storage_id s = c.storages[index(x.form)];
      const std::int32_t out = std::clamp(tick_from(t.out_begin), x.released + 1, x.needed);
      const std::int32_t out_done = std::clamp(tick_from(t.out_end), out, x.needed);
      const std::int32_t in = std::clamp(tick_from(t.in_begin), out_done, x.needed);
      events.push_back({{out, step_kind::copy_out, s}, t.out_begin, 2});
      events.push_back({{out_done, step_kind::wait_out, s}, t.out_end, 0});
      events.push_back({{in, step_kind::copy_in, s}, t.in_begin, 3});
      events.push_back({{x.needed, step_kind::wait_in, s}, t.in_end, 1});
    }
    std::stable_sort(events.begin(), events.end(), [](const timed& a, const timed& b) {
      if (a.event.tick != b.event.tick) return a.event.tick < b.event.tick;
      return a.ms != b.ms ? a.ms < b.ms : a.rank < b.rank;
    });
    std::vector<copy_event> copies;
    copies.reserve(events.size());
    for (const timed& e : events)
      copies.push_back(e.event);
    return copies;
  }

  // Storages that the user does not let go to the host.
  std::vector<char> pinned_storages() const {
    std::vector<char> list(g_.storages.size(), 0);
    for (std::size_t s = 0; s < list.size(); ++s) {
      const tensor_rule* const rule = rule_for(options_.tensors, g_.storages[s].name);
      if (rule == nullptr) continue;
      const bool named = std::find(rule->forms.begin(), rule->forms.end(), "swap") != rule->forms.end();
      list[s] = named == rule->deny ? 1 : 0;
    }
    return list;
  }

  // What has the smallest peak without moving anything.
  option_choice smallest_choice() const {
    const picks smallest = search(facts_, set_, options_).smallest_peak();
    option_choice choice(steps_.items.size(), 0);
    for (std::size_t i = 0; i < choice.size(); ++i) {
      const std::vector<item_option>& options = steps_.items[i].options;
      const auto at = std::find_if(options.begin(), options.end(), [&](const item_option& o) {
        return o.swapped == 0 && index(o.configuration) == smallest[i];
      });
      if (at != options.end()) choice[i] = static_cast<std::int32_t>(at - options.begin());
    }
    return choice;
  }

  placement place_within(schedule s, std::optional<std::int64_t> room = {},
                         std::int64_t work = default_layout_work, const placement* like = nullptr) const {
    return options_.lay_out ? place(std::move(s), room, work, like) : without_layout(std::move(s));
  }

  made place_choice(const option_choice& choice, const simulated& s, const timeline_record& record) {
    made m;
    m.choice = choice;
    m.chosen = select(choice, record);
    m.where = place_within(facts_.build(m.chosen, options_));
    m.times = times_of(choice, record);
    m.ms = s.ms;
    return m;
  }

  // What is smallest without moving anything.
  const made& unmoved_plan() {
    if (!unmoved_) {
      steps_.limit = no_limit;
      const option_choice choice = smallest_choice();
      timeline_record record;
      simulator sim(steps_);
      const simulated s = sim.run(choice, std::numeric_limits<double>::infinity(), &record);
      unmoved_ = place_choice(choice, s, record);
    }
    return *unmoved_;
  }

  // What the search begins with under a limit on live bytes; its layout may be higher. Nothing if that does
  // not fit, and by how much.
  std::optional<made> first_plan(std::int64_t limit, std::int64_t& missing) {
    steps_.limit = limit;
    fastest_limits limits;
    limits.evaluations = 0;
    limits.relax = false;
    const fastest_choice found = find_fastest(steps_, limits);
    missing = found.missing;
    if (!found.found) return {};
    timeline_record record;
    simulator sim(steps_);
    const simulated s = sim.run_late(found.choice, record);
    return place_choice(found.choice, s, record);
  }

  made simple_plan(std::int64_t limit) {
    std::int64_t missing = 0;
    std::optional<made> m = first_plan(limit, missing);
    return m && m->where.height <= unmoved_plan().where.height ? *m : unmoved_plan();
  }

  // Names a budget that would do: one for which simple_plan() has a layout.
  [[noreturn]] void refuse(std::int64_t budget, std::int64_t room, const fastest_choice& nearest) {
    const placement& unmoved = unmoved_plan().where;
    std::int64_t limit = std::max<std::int64_t>(room, 0) + std::max<std::int64_t>(nearest.missing, 1);
    for (int attempt = 0; attempt < 60 && limit < unmoved.height; ++attempt) {
      std::int64_t missing = 0;
      const std::optional<made> m = first_plan(limit, missing);
      if (!m) {
        limit += std::max(missing, limit / 64 + 1);
        continue;
      }
      if (m->where.height > room && m->where.height <= limit) refuse_budget(g_, m->where, beside_, budget);
      limit = std::max(limit + limit / 256 + 1, m->where.height);
    }
    refuse_budget(g_, unmoved, beside_, budget);
  }

  graph g_;
  plan_options options_;
  scheduler facts_;
  option_set set_;
  problem problem_;
  step_problem steps_;
  std::int64_t beside_ = 0, baseline_ = 0;
  double unplanned_ms_ = 0.0;
  std::vector<made> known_;
  std::optional<made> unmoved_;  ///< the smallest plan without transfers
  plan_load load_;
};

plan_sweep::plan_sweep(const graph& g, const plan_options& options) {
  if (!options.model) {
    throw error(errc::invalid_argument, "plan_sweep: options: expected a model of the machine, got none");
  }
  state_ = std::make_unique<state>(g, options);
}

plan_sweep::~plan_sweep() = default;

plan plan_sweep::make(std::int64_t budget_bytes) {
  return state_->make(budget_bytes);
}

const plan_load& plan_sweep::load() const {
  return state_->load();
}

double plan_sweep::greedy_ms(std::int64_t budget_bytes) {
  return state_->greedy_ms(budget_bytes);
}

std::int64_t plan_sweep::baseline_bytes() const {
  return state_->baseline();
}

std::int64_t plan_sweep::beside_bytes() const {
  return state_->beside();
}

}  // namespace stash::planner
