// SPDX-License-Identifier: Apache-2.0
// Plans made for speed: valid, within their budget, never slower with more memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "models/models.hpp"
#include "planner/budget_planner.hpp"
#include "planner/graph/cost.hpp"
#include "planner/json/json.hpp"
#include "planner/plan_answers.hpp"
#include "planner/search/fast_problems.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner::testing {
namespace {

plan_options fast_options(std::uint64_t seed, policy chosen) {
  plan_options o;
  o.chosen_policy = chosen;
  o.model = small_machine(seed);
  o.swap = chosen != policy::gist && chosen != policy::none;
  o.smallest_swap = 64;
  o.evaluations = 150;
  return o;
}

std::int64_t named_budget(budget_planner& sweep, std::int64_t budget) {
  try {
    sweep.make(budget);
  } catch (const error& e) {
    return budget_in(e);
  }
  ADD_FAILURE() << "expected a refusal of " << budget;
  return 0;
}

std::size_t swapped(const plan& p) {
  return static_cast<std::size_t>(
      std::count_if(p.choices.begin(), p.choices.end(), [](const stash_choice& c) { return c.swapped; }));
}

// STASH_RANDOM_GRAPHS, or what every run of the tests takes.
std::uint64_t number_of_graphs() {
  const char* const asked = std::getenv("STASH_RANDOM_GRAPHS");
  return asked == nullptr ? stash_test::cases(120) : std::strtoull(asked, nullptr, 10);
}

TEST(sweep, plans_of_random_graphs_are_valid_and_within_their_budget) {
  std::size_t plans = 0, with_swap = 0;
  const std::uint64_t graphs = number_of_graphs();
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    const graph g = random_graph(seed);
    constexpr policy policies[] = {policy::lossless, policy::fp8, policy::automatic, policy::fp10};
    budget_planner sweep(g, fast_options(seed, policies[seed % 4]));
    double before = std::numeric_limits<double>::infinity();
    for (int percent = 30; percent <= 110; percent += 10) {
      const std::int64_t budget = sweep.baseline_bytes() * percent / 100;
      try {
        const plan p = sweep.make(budget);
        ++plans;
        with_swap += swapped(p) > 0;
        ASSERT_EQ(findings_of(p), "") << "seed " << seed << ", " << percent << " %";
        ASSERT_LE(p.sizes.planned_peak_total, budget);
        ASSERT_GE(p.times.simulated_ms, p.times.bound_ms * (1 - 1e-9)) << "seed " << seed;
        ASSERT_LE(p.times.simulated_ms, before * (1 + 1e-12)) << "seed " << seed << ", " << percent << " %";
        before = p.times.simulated_ms;
        ASSERT_EQ(to_json(plan_from_json(to_json(p))), to_json(p));
      } catch (const error& e) {
        ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
        ASSERT_EQ(before, std::numeric_limits<double>::infinity())
            << "seed " << seed << ": " << percent << " % do not fit, but less did";
      }
    }
  }
  std::printf("%zu plans of %zu graphs, %zu with forms on the host\n", plans,
              static_cast<std::size_t>(graphs), with_swap);
  EXPECT_GT(plans, 3 * graphs - 10);
  EXPECT_GT(with_swap, graphs / 3);
}

// What a step takes, by the cost model alone; negative: nothing is said.
double cost_of(const plan& p, const step& s, const machine& m) {
  if (s.kind != step_kind::encode && s.kind != step_kind::decode) return -1.0;
  const std::int64_t a = p.buffers[s.inputs[0]].bytes;
  const std::int64_t b = p.buffers[s.outputs[0]].bytes;
  const encoding& e = p.choices[s.storage].stored;
  const auto costs = cost_model_of(m);
  return s.kind == step_kind::encode ? costs->codec_ms(e, a, b) : costs->codec_ms(e, b, a);
}

TEST(sweep, timelines_hold_the_work_of_every_step_and_the_copies_of_the_simulation) {
  std::size_t codecs = 0, copies = 0, stalls = 0;
  for (std::uint64_t seed = 0; seed < stash_test::cases(160); ++seed) {
    const graph g = random_graph(seed);
    constexpr policy policies[] = {policy::lossless, policy::fp8, policy::gist, policy::layrub,
                                   policy::swap_only};
    const plan_options o = fast_options(seed, policies[seed % 5]);
    budget_planner sweep(g, o);
    for (int percent = 40; percent <= 100; percent += 20) {
      plan p;
      try {
        p = sweep.make(sweep.baseline_bytes() * percent / 100);
      } catch (const error&) {
        continue;
      }
      ASSERT_EQ(p.timeline.size(), p.steps.size());
      const machine& m = *o.model;
      double last = 0.0;
      for (std::size_t i = 0; i < p.steps.size(); ++i) {
        const step& s = p.steps[i];
        const double ms = p.timeline[i].end_ms - p.timeline[i].begin_ms;
        last = std::max(last, p.timeline[i].end_ms);
        if (const double cost = cost_of(p, s, m); cost >= 0.0) {
          ++codecs;
          ASSERT_NEAR(ms, cost, 1e-9 * p.times.simulated_ms) << "seed " << seed << ", step " << i;
        } else if (s.kind == step_kind::run) {
          ASSERT_GE(ms, cost_model_of(m)->op_ms(g, g.op_at(s.op)) - 1e-9 * p.times.simulated_ms)
              << "seed " << seed;
        } else if (s.kind == step_kind::copy_in || s.kind == step_kind::copy_out) {
          ++copies;
          const double rate = s.kind == step_kind::copy_in ? m.in_bytes_per_second : m.out_bytes_per_second;
          const auto bytes = static_cast<double>(p.buffers[s.inputs[0]].bytes);
          ASSERT_GE(ms, 1e3 * bytes / rate - 1e-9 * p.times.simulated_ms) << "seed " << seed;
        } else if (ms > 0.0) {
          ++stalls;
        }
      }
      double update = 0.0;
      for (const op& x : g.ops)
        update += x.stage == op_stage::update ? cost_model_of(m)->op_ms(g, x) : 0.0;
      ASSERT_NEAR(p.times.update_ms, update, 1e-9 * p.times.simulated_ms);
      ASSERT_NEAR(last + update, p.times.simulated_ms, 1e-9 * p.times.simulated_ms);
    }
  }
  EXPECT_GT(codecs, stash_test::cases(80));
  EXPECT_GT(copies, stash_test::cases(100));
  EXPECT_GT(stalls, 0U);
}

// A plan with swapped storages, for tests that damage it.
plan swapping_plan() {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    budget_planner sweep(random_graph(seed), fast_options(seed, policy::lossless));
    for (int percent = 50; percent < 90; percent += 5) {
      try {
        plan p = sweep.make(sweep.baseline_bytes() * percent / 100);
        if (swapped(p) >= 2) return p;
      } catch (const error&) {
      }
    }
  }
  throw error(errc::internal, "no plan with swaps");
}

TEST(sweep, the_validator_misses_no_damage_to_a_timeline) {
  const plan sound = swapping_plan();
  ASSERT_EQ(findings_of(sound), "");
  const auto refused = [&](const auto& damage) {
    plan p = sound;
    damage(p);
    const auto found = validate(p);
    return !found.empty() && found.front().fault == plan_fault::bad_times;
  };
  EXPECT_TRUE(refused([](plan& p) { p.timeline.pop_back(); }));
  EXPECT_TRUE(refused([](plan& p) { p.times.update_ms += 1e-4 * p.times.simulated_ms; }));
  EXPECT_TRUE(refused([](plan& p) { p.times.update_ms = std::nan(""); }));
  EXPECT_TRUE(refused([](plan& p) { p.times.simulated_ms *= 1 + 1e-5; }));
  EXPECT_FALSE(refused([](plan& p) { p.times.simulated_ms *= 1 + 1e-8; }));
  for (std::size_t i = 0; i < sound.steps.size(); ++i) {
    const double whole = sound.times.simulated_ms, ms = sound.timeline[i].end_ms - sound.timeline[i].begin_ms;
    const step_kind kind = sound.steps[i].kind;
    EXPECT_TRUE(refused([&](plan& p) { p.timeline[i].begin_ms = std::nan(""); })) << i;
    EXPECT_TRUE(refused([&](plan& p) { p.timeline[i].end_ms = p.timeline[i].begin_ms - 0.01; })) << i;
    EXPECT_TRUE(refused([&](plan& p) { p.timeline[i].end_ms = whole * 1.5; })) << i;
    const bool copy = kind == step_kind::copy_out || kind == step_kind::copy_in;
    if (copy) {
      const buffer& from = sound.buffers.at(sound.steps[i].inputs[0]);
      // An image is there from the beginning.
      if (sound.network.at(from.storage).role == storage_role::image) continue;
    }
    if (copy) {  // before its source is there
      EXPECT_TRUE(refused([&](plan& p) { p.timeline[i].begin_ms = 0.0; })) << i;
    } else if (i > 0 && ms > 0.0 && sound.timeline[i].begin_ms > 0.0) {  // over the one before
      EXPECT_TRUE(refused([&](plan& p) { p.timeline[i].begin_ms -= 0.01 * whole; })) << i;
    }
  }
}

TEST(sweep, without_a_layout_the_budget_holds_for_what_is_live) {
  int plans = 0, with_swap = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const graph g = random_graph(seed);
    constexpr policy policies[] = {policy::automatic, policy::swap_only, policy::lms, policy::gist};
    plan_options options = fast_options(seed, policies[seed % 4]);
    options.lay_out = false;
    budget_planner sweep(g, options);
    for (int percent = 40; percent <= 100; percent += 20) {
      const std::int64_t budget = sweep.baseline_bytes() * percent / 100;
      try {
        const plan p = sweep.make(budget);
        ++plans;
        with_swap += swapped(p) > 0;
        ASSERT_EQ(findings_of(p), "") << "seed " << seed << ", " << percent << " %";
        ASSERT_FALSE(p.laid_out);
        ASSERT_EQ(p.sizes.planned_peak, p.sizes.max_live);
        ASSERT_LE(p.sizes.planned_peak_total, budget);
      } catch (const error& e) {
        ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
      }
    }
  }
  EXPECT_GT(plans, 40);
  EXPECT_GT(with_swap, 10);
}

TEST(sweep, without_swap_nothing_moves) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    plan_options o = fast_options(seed, policy::lossless);
    o.swap = false;
    budget_planner sweep(random_graph(seed), o);
    const plan p = sweep.make(sweep.baseline_bytes());
    EXPECT_EQ(swapped(p), 0U);
    EXPECT_EQ(p.sizes.host_bytes, 0);
  }
}

TEST(sweep, all_the_memory_takes_no_time) {
  budget_planner sweep(random_graph(3), fast_options(3, policy::lossless));
  const plan p = sweep.make(2 * sweep.baseline_bytes());
  EXPECT_NEAR(p.times.simulated_ms, p.times.unplanned_ms, 1e-9);
}

TEST(sweep, rules_keep_to_a_small_host_or_say_that_they_cannot) {
  std::size_t plans = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    constexpr policy policies[] = {policy::swap_only, policy::lms, policy::layrub};
    plan_options o = fast_options(seed, policies[seed % 3]);
    const graph g = random_graph(seed);
    for (const int percent : {60, 80}) {
      budget_planner free(g, o);
      const std::int64_t budget = free.baseline_bytes() * percent / 100;
      std::int64_t taken = 0;
      try {
        taken = free.make(budget).sizes.host_bytes;
      } catch (const error&) {
      }
      if (taken == 0) continue;
      for (const int tenths : {10, 9, 5, 1}) {
        plan_options small = o;
        small.model->host_bytes = std::max<std::int64_t>(1, taken * tenths / 10);
        try {
          const plan p = budget_planner(g, small).make(budget);
          EXPECT_EQ(findings_of(p), "") << g.name << ", seed " << seed << ", " << tenths;
          EXPECT_LE(p.sizes.host_bytes, small.model->host_bytes);
          ++plans;
        } catch (const error& e) {
          EXPECT_EQ(e.code(), errc::infeasible_budget) << e.what();
          ++refused;
          EXPECT_LT(tenths, 10) << "seed " << seed << ": " << e.what();
        }
      }
    }
  }
  std::printf("%zu plans, %zu refused\n", plans, refused);
  EXPECT_GT(plans, 15U);
  EXPECT_GT(refused, 10U);
}

TEST(sweep, an_impossible_budget_names_op_tensors_and_what_would_do) {
  budget_planner sweep(random_graph(5), fast_options(5, policy::lossless));
  std::int64_t needed = 0;
  try {
    sweep.make(sweep.baseline_bytes() / 20);
    FAIL() << "expected an error";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::infeasible_budget);
    EXPECT_THAT(e.what(),
                ::testing::ContainsRegex("expected at least [0-9]+ bytes, got [0-9]+: while .* runs"));
    needed = budget_in(e);
  }
  EXPECT_LE(sweep.make(needed).sizes.planned_peak_total, needed);
}

TEST(sweep, the_users_word_on_tensors_holds) {
  const graph g = random_graph(7);
  plan_options o = fast_options(7, policy::fp8);
  o.tensors = {{"*", {"raw"}, false}};
  const plan p = budget_planner(g, o).make(std::int64_t{1} << 40);
  for (const stash_choice& c : p.choices)
    EXPECT_NE(c.kind, stash_kind::recompute);
  o.tensors = {{"*", {"swap"}, true}};
  budget_planner pinned(g, o);
  for (int percent = 60; percent < 100; percent += 10) {
    try {
      EXPECT_EQ(swapped(pinned.make(pinned.baseline_bytes() * percent / 100)), 0U);
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::infeasible_budget);
    }
  }
}

TEST(sweep, a_pinned_machine_takes_no_other_policy) {
  plan_options o = fast_options(7, policy::automatic);
  o.model->pinned = true;
  EXPECT_NO_THROW(budget_planner(random_graph(7), o));
  for (const policy p : {policy::none, policy::lossless, policy::fp8, policy::lms}) {
    o.chosen_policy = p;
    try {
      budget_planner refused(random_graph(7), o);
      FAIL() << to_string(p);
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("expected policy auto"), std::string::npos) << e.what();
    }
  }
}

// An image of 64 x 64 x 8 bytes is half of what the step takes, and nobody needs it between the first layer's
// forward and backward op.
graph graph_with_a_large_image() {
  network net("image");
  node_id x = net.relu("r1", net.conv2d("c1", net.input(64, 64, 8), 1, {3, 3}, {4, 4}, {1, 1}, true));
  for (int i = 2; i < 6; ++i) {
    const std::string n = std::to_string(i);
    x = net.relu("r" + n, net.conv2d("c" + n, x, 24, {3, 3}, {1, 1}, {1, 1}, true));
  }
  net.softmax_cross_entropy("loss", net.dense("fc", x, 5));
  return make_training_graph(net, 4);
}

std::vector<buffer_id> image_buffers(const plan& p) {
  std::vector<buffer_id> list;
  for (const buffer_id b : p.buffers.ids()) {
    const buffer& x = p.buffers[b];
    const bool image = x.storage.valid() && p.network.at(x.storage).role == storage_role::image;
    if (image && x.form == buffer_form::dense) list.push_back(b);
  }
  return list;
}

TEST(sweep, images_go_back_to_the_host) {
  const graph g = graph_with_a_large_image();
  plan_options o = fast_options(1, policy::lossless);
  budget_planner sweep(g, o);
  std::size_t moved = 0;
  for (int percent = 40; percent < 100; percent += 4) {
    plan p;
    try {
      p = sweep.make(sweep.static_bytes() + (sweep.baseline_bytes() - sweep.static_bytes()) * percent / 100);
    } catch (const error&) {
      continue;
    }
    ASSERT_EQ(findings_of(p), "");
    const std::vector<buffer_id> images = image_buffers(p);
    if (images.size() < 2) continue;
    ++moved;
    ASSERT_EQ(images.size(), 2U);
    EXPECT_EQ(p.buffers[images[0]].first_step, 0);
    EXPECT_GT(p.buffers[images[1]].first_step, p.buffers[images[0]].last_step);
    // What comes back is not there by itself.
    plan lost = p;
    lost.steps.erase_if([&](const step& s) {
      return (s.kind == step_kind::copy_in || s.kind == step_kind::wait_in) &&
             s.storage == p.buffers[images[0]].storage;
    });
    EXPECT_NE(findings_of(lost), "");
    plan early = p;
    early.buffers[images[1]].first_step = 0;
    EXPECT_NE(findings_of(early), "");
    plan unsaid = p;
    unsaid.choices[p.buffers[images[0]].storage].swapped = false;
    EXPECT_NE(findings_of(unsaid), "");
  }
  EXPECT_GT(moved, 0U);
}

TEST(sweep, rules_of_papers_keep_images) {
  const graph g = graph_with_a_large_image();
  plan_options o = fast_options(1, policy::swap_only);
  o.swap_all = true;
  budget_planner sweep(g, o);
  const plan p = sweep.make(sweep.baseline_bytes() * 2);
  EXPECT_GT(swapped(p), 0U);
  EXPECT_EQ(image_buffers(p).size(), 1U);
}

TEST(sweep, plans_of_graphs_with_updates_in_backward) {
  network net("fused");
  node_id x = net.input(16, 16, 3);
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    x = net.relu("r" + n, net.batch_norm("n" + n, net.conv2d("c" + n, x, 16, {3, 3}, {1, 1}, {1, 1}, false)));
  }
  net.softmax_cross_entropy("loss", net.dense("fc", x, 5));
  training_graph_options fused;
  fused.fused_update = true;
  budget_planner before(make_training_graph(net, 4), fast_options(1, policy::lossless));
  budget_planner after(make_training_graph(net, 4, fused), fast_options(1, policy::lossless));
  EXPECT_LT(after.static_bytes(), before.static_bytes());
  const plan p = after.make(after.baseline_bytes() * 3 / 4);
  EXPECT_EQ(findings_of(p), "");
  EXPECT_EQ(p.sizes.parameter_bytes + p.sizes.workspace_bytes, after.static_bytes());
  plan too_little = p;
  too_little.sizes.parameter_bytes -= 64;
  EXPECT_NE(findings_of(too_little), "");
}

// Nothing moves in the smallest plan without a machine, so with one no more is needed.
TEST(sweep, the_budget_that_a_refusal_names_is_enough) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const graph g = random_graph(seed);
    plan_options o = fast_options(seed, policy::lossless);
    budget_planner sweep(g, o);
    const std::int64_t named = named_budget(sweep, 1);
    ASSERT_GT(named, 0);
    EXPECT_LE(sweep.make(named).sizes.planned_peak_total, named);
    o.model.reset();
    o.swap = false;
    o.budget_bytes = 0;
    const std::int64_t unmoved = make_plan(g, o).sizes.planned_peak_total;
    // As soon as any map is sparse there is an overflow arena, much larger than such small maps.
    constexpr std::int64_t overflow_arena = 16 * 1024;
    EXPECT_LE(named, unmoved + unmoved / 100 + overflow_arena);
  }
}

// Encoding, moving and computing again together fit into less than the first plan that comes to mind.
TEST(sweep, no_much_smaller_budget_than_the_named_one_would_do) {
  const graph g = models::default_graph(models::find("resnet50"), 32);
  plan_options o;
  o.chosen_policy = policy::automatic;
  o.model = find_machine("h200");
  o.swap = true;
  o.evaluations = 50;
  o.relax = false;
  budget_planner sweep(g, o);
  const std::int64_t named = named_budget(sweep, sweep.baseline_bytes() / 20);
  EXPECT_LE(budget_planner(g, o).make(named).sizes.planned_peak_total, named);
  EXPECT_GT(named_budget(sweep, named - named / 20), named - named / 20);
  o.smallest_budget = false;
  budget_planner quick(g, o);
  EXPECT_GE(named_budget(quick, sweep.baseline_bytes() / 20), named);
}

TEST(sweep, where_maps_fit_as_they_are_no_plan_is_slower_than_the_unplanned_step) {
  const graph g = models::default_graph(models::find("resnet20"), 64);
  for (const policy chosen : {policy::none, policy::lossless, policy::fp16}) {
    plan_options o;
    o.chosen_policy = chosen;
    o.model = find_machine("rtx");
    budget_planner sweep(g, o);
    const plan p = sweep.make(sweep.baseline_bytes());
    EXPECT_EQ(findings_of(p), "") << to_string(chosen);
    EXPECT_LE(p.times.simulated_ms, p.times.unplanned_ms * (1 + 1e-9)) << to_string(chosen);
    EXPECT_LE(p.sizes.planned_peak_total, sweep.baseline_bytes()) << to_string(chosen);
  }
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    constexpr policy policies[] = {policy::lossless, policy::fp8, policy::automatic, policy::fp10};
    plan_options o = fast_options(seed, policies[seed % 4]);
    o.smallest_swap = seed % 2 == 0 ? 64 : 1 << 16;  // with most items small, or none
    o.swap = seed % 3 == 0;
    budget_planner sweep(random_graph(seed), o);
    o.chosen_policy = policy::none;
    o.swap = false;
    budget_planner unplanned(random_graph(seed), o);
    const plan p = sweep.make(sweep.baseline_bytes());
    EXPECT_EQ(findings_of(p), "") << "seed " << seed;
    const double most = unplanned.make(unplanned.baseline_bytes()).times.simulated_ms;
    EXPECT_LE(p.times.simulated_ms, most * (1 + 1e-9)) << "seed " << seed;
  }
}

// Whatever fits: what the user forbids is not done.
TEST(sweep, the_unplanned_choice_keeps_rules_for_tensors_and_forced_forms) {
  const graph g = models::default_graph(models::find("resnet20"), 64);
  plan_options o;
  o.chosen_policy = policy::lossless;
  o.model = find_machine("rtx");
  o.tensors = {{"*/relu", {"raw"}, true}};
  budget_planner denied(g, o);
  const plan p = denied.make(denied.baseline_bytes());
  EXPECT_EQ(findings_of(p), "");
  int relus = 0;
  for (const storage_id s : p.choices.ids()) {
    if (!p.network.storages[s].name.ends_with("/relu")) continue;
    ++relus;
    EXPECT_NE(p.choices[s].kind, stash_kind::raw) << p.network.storages[s].name;
  }
  EXPECT_EQ(relus, 19);
  EXPECT_GT(p.times.simulated_ms, p.times.unplanned_ms);
  o.tensors.clear();
  o.force = "bitmap";
  budget_planner forced(g, o);
  const plan q = forced.make(forced.baseline_bytes());
  EXPECT_EQ(findings_of(q), "");
  EXPECT_TRUE(std::any_of(q.choices.begin(), q.choices.end(), [](const stash_choice& c) {
    return c.kind == stash_kind::encoded && c.stored.kind == encoding_kind::bitmap;
  }));
}

TEST(sweep, workspaces_of_any_size) {
  graph g = random_graph(3);
  g.ops.front().workspace_bytes = 1001;
  budget_planner sweep(g, fast_options(3, policy::lossless));
  const plan p = sweep.make(sweep.baseline_bytes());
  EXPECT_EQ(findings_of(p), "");
  EXPECT_EQ(p.sizes.workspace_bytes, 1024);
  plan unrounded = p;
  unrounded.sizes.workspace_bytes = 1001;
  EXPECT_NE(findings_of(unrounded), "");
}

TEST(sweep, without_the_relaxation_plans_are_valid_too) {
  std::size_t plans = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    plan_options o = fast_options(seed, policy::lossless);
    o.relax = false;
    budget_planner sweep(random_graph(seed), o);
    try {
      const plan p = sweep.make(sweep.baseline_bytes() * 8 / 10);
      ++plans;
      ASSERT_EQ(findings_of(p), "") << "seed " << seed;
      EXPECT_FALSE(p.times.relaxed);
      EXPECT_TRUE(p.certificate.prices.empty());
    } catch (const error& e) {
      ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
    }
  }
  EXPECT_GT(plans, 10U);
}

TEST(sweep, a_model_is_asked_for) {
  plan_options o;
  EXPECT_THROW(budget_planner(random_graph(1), o), error);
  o.swap = true;
  EXPECT_THROW(make_plan(random_graph(1), o), error);
}

std::size_t first_step(const plan& p, step_kind kind) {
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (p.steps[i].kind == kind) return i;
  }
  throw error(errc::internal, "no such step");
}

TEST(sweep, the_validator_misses_no_damage_to_a_copy) {
  const plan sound = swapping_plan();
  ASSERT_EQ(findings_of(sound), "");
  for (const step_kind kind :
       {step_kind::copy_out, step_kind::wait_out, step_kind::copy_in, step_kind::wait_in}) {
    // A step that does nothing keeps all the others in their order.
    plan p = sound;
    const std::size_t at = first_step(p, kind);
    p.steps[at] = p.steps[at + 1];
    EXPECT_NE(findings_of(p), "") << "without " << to_string(kind);
    p = sound;
    p.steps[at].inputs[0] = buffer_id(sound.steps[at].inputs[0] == buffer_id(0) ? 1 : 0);
    EXPECT_NE(findings_of(p), "") << to_string(kind) << " of another buffer";
    p = sound;
    p.steps[at].outputs[0] = p.steps[at].inputs[0];
    EXPECT_NE(findings_of(p), "") << to_string(kind) << " to where it comes from";
  }
  for (const storage_id s : sound.choices.ids()) {
    if (!sound.choices[s].swapped) continue;
    plan p = sound;
    p.choices[s].swapped = false;
    EXPECT_NE(findings_of(p), "") << "not said to be swapped";
  }
  plan p = sound;
  p.sizes.host_bytes -= 64;
  EXPECT_NE(findings_of(p), "");
  // Device memory is used again before the copy out of it has ended.
  const step& wait = sound.steps[first_step(sound, step_kind::wait_out)];
  p = sound;
  p.buffers[wait.inputs[0]].last_step = static_cast<std::int32_t>(first_step(sound, step_kind::copy_out));
  if (first_step(sound, step_kind::copy_out) < first_step(sound, step_kind::wait_out)) {
    EXPECT_NE(findings_of(p), "") << "a buffer that dies while it is copied";
  }
  // Two copies on the host share bytes.
  p = sound;
  std::vector<buffer_id> hosts;
  for (const buffer_id b : p.buffers.ids()) {
    if (p.buffers[b].form == buffer_form::host) hosts.push_back(b);
  }
  ASSERT_GE(hosts.size(), 2U);
  for (const buffer_id b : hosts) {
    p.buffers[b].offset = 0;
    p.buffers[b].first_step = 0;
    p.buffers[b].last_step = static_cast<std::int32_t>(p.steps.size()) - 1;
  }
  EXPECT_NE(findings_of(p), "") << "host copies that overlap";
}

}  // namespace
}  // namespace stash::planner::testing
