// SPDX-License-Identifier: Apache-2.0
// Graphs of generic ops as other programs may hand them over: legal, but like no network.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "planner/budget_planner.hpp"
#include "planner/graph/generic_graph.hpp"
#include "planner/graph/id_literals.hpp"
#include "planner/graph/machine.hpp"
#include "planner/graph/recipes.hpp"
#include "planner/json/json.hpp"
#include "planner/plan_answers.hpp"
#include "planner/search/fast_problems.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner {
namespace {

using ::testing::AllOf;
using testing::findings_of;
using testing::generic_graph;
using ::testing::HasSubstr;
using testing::read;

TEST(odd_graphs, what_is_computed_again_from_a_smaller_map_has_its_own_buffer) {
  generic_graph b;
  const storage_id small = b.map(32, 0.01), large = b.map(4096), other = b.map(100000);
  b.forward({}, {small});
  b.forward({small}, {large});
  b.forward({}, {other});
  b.backward({{read(small, need::range)}});
  b.backward({{read(large, need::exact_value)}});
  b.again(large, {small}, {1_op});
  for (const policy chosen : {policy::lossless, policy::fp8}) {
    plan_options o;
    o.chosen_policy = chosen;
    EXPECT_EQ(findings_of(make_plan(b.made(), o)), "");
    o.model = find_machine("h200");
    EXPECT_EQ(findings_of(make_plan(b.made(), o)), "");
  }
}

TEST(odd_graphs, recompute_rules_of_what_is_overwritten_are_refused) {
  for (const bool target : {false, true}) {
    generic_graph b;
    const storage_id x = b.map(64), y = b.map(64);
    b.forward({}, {x});
    b.forward({x}, {y});
    b.forward({}, {target ? y : x});
    b.backward({{read(y, need::exact_value)}});
    b.again(y, {x}, {1_op});
    try {
      check_graph(b.made());
      ADD_FAILURE() << "expected a refusal";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::bad_format);
      EXPECT_THAT(e.what(), HasSubstr(target ? "recompute[0].target" : "recompute[0].source"));
    }
  }
}

TEST(odd_graphs, alternatives_may_read_nothing) {
  generic_graph b;
  const storage_id x = b.add(storage_role::image, 64), y = b.map(64);
  b.forward({x}, {y});
  b.backward({{}, {}});
  plan_options o;
  o.chosen_policy = policy::automatic;
  o.model = find_machine("h200");
  const plan p = make_plan(b.made(), o);
  EXPECT_EQ(findings_of(p), "");
  EXPECT_EQ(p.alternative.list(), (std::vector<std::int32_t>{-1, 0}));
}

/// A dense map with a reader that wants so much of it, and one that wants any values.
graph read_twice(need what, dtype type = dtype::f32) {
  generic_graph b;
  const storage_id x = b.map(4096, 1.0, type), y = b.map(4096, 1.0, type), other = b.map(100000);
  b.forward({}, {x});
  b.forward({x}, {y});
  b.forward({}, {other});
  b.backward({{read(y, what), read(x, need::value)}});
  b.backward({{read(y, need::value)}});
  return b.made();
}

TEST(odd_graphs, fine_values_are_kept_in_16_bits_where_the_policy_rounds_further) {
  struct expectation {
    policy chosen;
    std::vector<value_format> values;
    value_format fine, coarse;
  };
  using enum value_format;
  for (const auto& [chosen, values, fine, coarse] :
       {expectation{policy::fp8, {}, fp16, fp8_e4m3}, expectation{policy::fp10, {}, fp16, fp10},
        expectation{policy::fp16, {}, fp16, fp16},
        expectation{policy::automatic, {bf16, mxfp4_e2m1}, bf16, mxfp4_e2m1},
        expectation{policy::gist, {fp10}, fp16, fp10}}) {
    plan_options o;
    o.chosen_policy = chosen;
    o.values = values;
    const plan p = make_plan(read_twice(need::fine_value), o);
    SCOPED_TRACE(to_string(chosen));
    EXPECT_EQ(findings_of(p), "");
    EXPECT_EQ(p.choices[storage_id(0)].stored.values, coarse);
    EXPECT_EQ(p.choices[storage_id(1)].stored.kind, encoding_kind::cast);
    EXPECT_EQ(p.choices[storage_id(1)].stored.values, fine);
    // Without that reader nothing of 16 bits is offered.
    const plan any = make_plan(read_twice(need::value), o);
    EXPECT_EQ(findings_of(any), "");
    EXPECT_EQ(any.choices[storage_id(1)].stored.values, coarse);
  }
}

TEST(odd_graphs, fine_values_of_16_bit_maps_stay_as_they_are) {
  plan_options o;
  o.chosen_policy = policy::fp8;
  const plan p = make_plan(read_twice(need::fine_value, dtype::f16), o);
  EXPECT_EQ(findings_of(p), "");
  EXPECT_EQ(p.choices[storage_id(0)].stored.values, value_format::fp8_e4m3);
  EXPECT_EQ(p.choices[storage_id(1)].kind, stash_kind::raw);
}

TEST(odd_graphs, plans_that_round_fine_values_further_are_found) {
  plan_options o;
  o.chosen_policy = policy::fp8;
  // A plan that is right for the readers of another graph.
  plan p = make_plan(read_twice(need::value), o);
  for (op& x : p.network.ops) {
    for (stash_alternative& a : x.alternatives) {
      for (stash_read& r : a.reads)
        if (r.storage == 1_storage) r.what = need::fine_value;
    }
  }
  EXPECT_THAT(findings_of(p), AllOf(HasSubstr("does not serve fine_value"), HasSubstr("fewer than 16 bits")));
  // Nor is fp16 free for all where the policy says fp8.
  p = make_plan(read_twice(need::fine_value), o);
  for (op& x : p.network.ops) {
    for (stash_alternative& a : x.alternatives) {
      for (stash_read& r : a.reads)
        if (r.what == need::fine_value) r.what = need::value;
    }
  }
  EXPECT_THAT(findings_of(p), HasSubstr("the policy does not allow this value format"));
}

TEST(odd_graphs, what_is_computed_again_is_as_fine_as_its_source) {
  for (const need source_need : {need::value, need::exact_value}) {
    generic_graph b;
    const storage_id x = b.map(4096, 1.0), y = b.map(4096, 1.0), other = b.map(100000);
    b.forward({}, {x});
    b.forward({x}, {y});
    b.forward({}, {other});
    b.backward({{read(y, need::fine_value)}});
    b.backward({{read(x, source_need)}});
    b.again(y, {x}, {1_op});
    for (const policy chosen : {policy::lossless, policy::fp8}) {
      plan_options o;
      o.chosen_policy = chosen;
      const plan p = make_plan(b.made(), o);
      EXPECT_EQ(findings_of(p), "");
      const bool rounded = chosen == policy::fp8 && source_need == need::value;
      EXPECT_EQ(p.choices[storage_id(1)].kind, rounded ? stash_kind::encoded : stash_kind::recompute);
    }
  }
}

/// Maps that are read together, with one alternative that no form of the codes serves.
graph many_combinations(int maps) {
  generic_graph b;
  std::vector<stash_read> good;
  storage_id last = b.add(storage_role::image, 64);
  for (int k = 0; k < maps; ++k) {
    const storage_id y = b.map(4096);
    b.forward({last}, {y});
    good.push_back(read(last = y, need::value));
  }
  const storage_id codes = b.add(storage_role::auxiliary, 64, 1.0, dtype::u8);
  b.made().storages.back().window_taps = 4;
  b.made().ops.back().optional_outputs = {codes};
  std::vector<stash_read> bad = good;
  good.push_back(read(codes, need::mask));
  bad.push_back(read(codes, need::exact_value));
  bad.push_back(read(codes, need::window));
  b.backward({good, bad});
  return b.made();
}

// Enumerating all of them would take days at twelve maps.
TEST(odd_graphs, alternatives_that_no_form_serves_are_left_out_at_any_number_of_combinations) {
  for (const int maps : {2, 4, 5, 9, 12}) {
    SCOPED_TRACE(maps);
    plan_options o;
    o.chosen_policy = policy::automatic;
    o.values = {value_format::fp16, value_format::fp8_e4m3};
    const plan p = make_plan(many_combinations(maps), o);
    EXPECT_EQ(findings_of(p), "");
    EXPECT_EQ(p.alternative.back(), 0);
  }
}

TEST(odd_graphs, a_policy_that_moves_nothing_moves_nothing) {
  generic_graph b;
  const storage_id x = b.map(1 << 20), y = b.map(1 << 22);
  b.forward({}, {x});
  b.forward({x}, {y});
  b.forward({}, {b.map(1 << 22)});
  b.backward({{read(y, need::value)}});
  b.backward({{read(x, need::value)}});
  for (const policy chosen : {policy::none, policy::gist}) {
    plan_options o;
    o.chosen_policy = chosen;
    o.model = find_machine("h200");
    o.swap = true;
    const plan p = make_plan(b.made(), o);
    EXPECT_EQ(findings_of(p), "");
    EXPECT_EQ(p.sizes.host_bytes, 0);
  }
}

TEST(odd_graphs, options_that_a_plan_file_could_not_say_are_refused) {
  generic_graph b;
  b.forward({}, {b.map(64)});
  const auto refused = [&](auto change, const char* says) {
    plan_options o;
    change(o);
    for (const bool timed : {false, true}) {
      if (timed) o.model = find_machine("h200");
      try {
        make_plan(b.made(), o);
        ADD_FAILURE() << "expected a refusal: " << says;
      } catch (const error& e) {
        EXPECT_EQ(e.code(), errc::invalid_argument);
        EXPECT_THAT(e.what(), HasSubstr(says));
      }
    }
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  refused([](plan_options& o) { o.budget_bytes = std::numeric_limits<std::int64_t>::max(); }, "budget_bytes");
  refused([](plan_options& o) { o.budget_bytes = -1; }, "budget_bytes");
  refused([](plan_options& o) { o.threads = 100'000; }, "threads");
  refused([](plan_options& o) { o.threads = 0; }, "threads");
  refused([](plan_options& o) { o.overflow_share = infinity; }, "overflow_share");
  refused([](plan_options& o) { o.overflow_share = -0.1; }, "overflow_share");
  refused([](plan_options& o) { o.slot_margin = 1e300; }, "slot_margin");
  refused([](plan_options& o) { o.slot_margin = std::nan(""); }, "slot_margin");
}

/// Generic ops with reads, alternatives and rules at random.
graph random_ops(std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  const auto below = [&](int n) { return static_cast<int>(dice() % static_cast<std::uint64_t>(n)); };
  generic_graph b;
  const int maps = 2 + below(7);
  std::vector<storage_id> made;
  std::vector<op_id> cheap;
  for (int k = 0; k < maps; ++k) {
    constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};
    constexpr double densities[] = {0.0, 0.01, 0.3, 0.5, 1.0};
    const storage_id s = b.map(1 + below(k % 2 == 0 ? 300 : 40000), densities[below(5)], types[below(3)]);
    std::set<storage_id> from;
    for (int inputs = made.empty() ? 0 : below(3); inputs-- > 0;)
      from.insert(made[static_cast<std::size_t>(below(k))]);
    b.forward({from.begin(), from.end()}, {s});
    if (below(2) == 0) cheap.push_back(op_id(k));
    made.push_back(s);
  }
  for (int k = 0; k < 1 + below(7); ++k) {
    constexpr need needs[] = {need::value, need::exact_value, need::sign, need::range, need::fine_value};
    std::vector<std::vector<stash_read>> alternatives(static_cast<std::size_t>(1 + below(3)));
    for (std::vector<stash_read>& reads : alternatives) {
      for (int r = below(4); r-- > 0;)
        reads.push_back(read(made[static_cast<std::size_t>(below(maps))], needs[below(5)]));
      if (alternatives.size() == 1 && reads.empty()) reads.push_back(read(made[0], need::value));
    }
    b.backward(std::move(alternatives));
  }
  add_recipes(b.made(), cheap);
  return b.made();
}

TEST(odd_graphs, random_ops_get_valid_plans_within_their_budgets) {
  std::uint64_t plans = 0, refusals = 0;
  for (std::uint64_t seed = 0; seed < stash_test::cases(400); ++seed) {
    SCOPED_TRACE(seed);
    const graph g = random_ops(seed);
    try {
      check_graph(g);
    } catch (const error&) {
      continue;  // a storage read twice by one alternative, for example
    }
    plan_options o;
    constexpr policy policies[] = {policy::lossless, policy::fp8, policy::automatic, policy::none};
    o.chosen_policy = policies[seed % 4];
    if (o.chosen_policy == policy::automatic) o.values = {value_format::fp16};
    if (seed % 3 != 0) {
      o.model = testing::small_machine(seed);
      o.swap = seed % 2 == 0;
      o.smallest_swap = 64;
      o.evaluations = 100;
    }
    const plan p = make_plan(g, o);
    ASSERT_EQ(findings_of(p), "");
    ++plans;
    o.budget_bytes = p.sizes.planned_peak_total;
    ASSERT_EQ(findings_of(make_plan(g, o)), "") << "the same plan fits";
    o.budget_bytes = std::max<std::int64_t>(1, p.sizes.planned_peak_total / 2);
    try {
      ASSERT_EQ(findings_of(make_plan(g, o)), "");
    } catch (const error& e) {
      o.budget_bytes = testing::budget_in(e);
      ASSERT_GT(o.budget_bytes, 0);
      ASSERT_EQ(findings_of(make_plan(g, o)), "") << "the named budget";
      ++refusals;
    }
  }
  EXPECT_GT(plans, stash_test::cases(200));
  EXPECT_GT(refusals, stash_test::cases(50));
}

}  // namespace
}  // namespace stash::planner
