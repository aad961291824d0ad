// SPDX-License-Identifier: Apache-2.0
// Readers, layouts and sweeps say that there is no memory, whichever allocation fails; no plan, layout or
// finding is another for it.

#include <gtest/gtest.h>

#include "planner/budget_planner.hpp"
#include "planner/json/json.hpp"
#include "planner/layout/layout_csv.hpp"
#include "planner/search/fast_problems.hpp"
#include "planner/trace/profile_text.hpp"
#include "planner/trace/trace.hpp"
#include "planner/trace/trace_text.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"
#include "support/failing_allocations.hpp"

namespace stash::planner::testing {
namespace {

using stash_test::fail_every_allocation;
using stash_test::left_blocks;

/// Every allocation of `call` fails once, or where calls take long or a part is asked for every stride-th.
template <class Call>
void expect_reports(const Call& call, std::int64_t stride = 1, left_blocks left = left_blocks::none) {
  call();
  EXPECT_GT(fail_every_allocation(
                call, [] {}, stride, left),
            0);
}

TEST(want_of_memory, in_readers) {
  const std::string recorded = small_trace(), profile = small_profile();
  const std::string graph_text = to_json(graph_of(read_trace(recorded)));
  expect_reports([&] { EXPECT_EQ(to_json(graph_of(read_trace(recorded))), graph_text); }, 7);
  expect_reports([&] { EXPECT_EQ(to_json(graph_from_json(graph_text)), graph_text); }, 7);
  const auto joined = [&] {
    trace t = read_trace(recorded);
    return join_times(t, read_kineto(profile)).joined;
  };
  const std::size_t expected = joined();
  expect_reports([&] { EXPECT_EQ(joined(), expected); }, 7);
  for (const char* const damaged : {"", "{", "[1", "{\"nodes\": 1}"}) {
    expect_reports([&] {
      try {
        read_trace(damaged);
        ADD_FAILURE() << "accepted";
      } catch (const error& e) {
        if (e.code() != errc::bad_format) throw;
      }
    });
  }
}

TEST(want_of_memory, in_layouts) {
  layout_table table;
  for (int i = 0; i < 12; ++i) {
    table.ids.push_back("a block with a long name, number " + std::to_string(i));
    table.blocks.push_back(
        {.begin = i * 5 % 11, .end = i * 5 % 11 + 1 + i * 7 % 9, .size = 16 + i * 48 % 320});
  }
  const std::string text = write_layout_csv(table);
  expect_reports([&] { EXPECT_EQ(write_layout_csv(read_layout_csv(text, "blocks.csv")), text); });
  const layout_solution expected = solve_layout({.blocks = table.blocks, .alignment = 16});
  expect_reports([&] {
    const layout_solution found = solve_layout({.blocks = table.blocks, .alignment = 16});
    EXPECT_EQ(found.offsets, expected.offsets);
  });
}

TEST(want_of_memory, in_sweeps) {
  plan_options options;
  options.model = small_machine();
  options.swap = true;
  options.smallest_swap = 64;
  options.evaluations = 20;
  const graph g = random_graph(1);
  const auto sweep = [&] {
    budget_planner plans(g, options);
    std::string texts;
    for (const int percent : {80, 100})
      texts += to_json(plans.make(plans.baseline_bytes() * percent / 100));
    return texts;
  };
  const std::string expected = sweep();
  // The solver's objects are given up where memory runs out in it.
  expect_reports([&] { EXPECT_TRUE(sweep() == expected); }, 97, left_blocks::some);
}

TEST(want_of_memory, is_no_finding) {
  plan_options options;
  options.chosen_policy = policy::fp8;
  plan good = make_plan(random_graph(2), options), bad = good;
  bad.choices.front().bytes_before += 16;
  for (const plan* const p : {&good, &bad}) {
    const std::size_t expected = validate(*p).size();
    expect_reports([&] { EXPECT_EQ(validate(*p).size(), expected); }, 7);
  }
}

}  // namespace
}  // namespace stash::planner::testing
