// SPDX-License-Identifier: Apache-2.0
// The planner through the C++ and C API.

#include "stash/planning.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <functional>
#include <utility>

#include "c_api/support.hpp"
#include "encoders/support.hpp"
#include "models/models.hpp"
#include "planner/graph/machine.hpp"
#include "planner/json/json.hpp"
#include "stash/error.hpp"
#include "support/failing_allocations.hpp"

namespace {

using namespace stash_test;

std::string graph_text(std::int64_t batch = 8, std::string_view name = "lenet") {
  const stash::models::model_info& m = stash::models::find(name);
  const auto net = m.build(m.default_input, m.default_classes);
  return stash::planner::to_json(stash::planner::make_training_graph(net, batch));
}

TEST(planning, plans_are_those_of_the_planner) {
  const std::string graph = graph_text();
  stash::planner::plan_options cpp_options;
  cpp_options.chosen_policy = stash::planner::policy::fp8;
  cpp_options.threads = 2;
  cpp_options.machine = "test";
  cpp_options.slot_margin = 0.1;
  cpp_options.overflow_share = 0;
  const std::string expected =
      stash::planner::to_json(stash::planner::make_plan(stash::planner::graph_from_json(graph), cpp_options));
  EXPECT_EQ(
      stash::plan_graph(
          graph, {.policy = "fp8", .slot_margin = 0.1, .overflow_share = 0, .threads = 2, .machine = "test"}),
      expected);

  stash_plan_options c = STASH_INIT(stash_plan_options);
  c.policy = "fp8";
  c.threads = 2;
  c.machine = "test";
  c.slot_margin = 0.1;
  c.overflow_share = -1;
  char* plan = nullptr;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_OK) << last_error();
  EXPECT_EQ(plan, expected);
  EXPECT_EQ(stash_verify_plan(plan, nullptr), STASH_OK) << last_error();
  char* text = nullptr;
  ASSERT_EQ(stash_explain_plan(plan, &text), STASH_OK) << last_error();
  EXPECT_EQ(text, stash::explain_plan(expected));
  EXPECT_NE(std::string(text).find("fp8"), std::string::npos);
  stash_free_text(text);
  stash_free_text(plan);
  stash_free_text(nullptr);
}

TEST(planning, defaults) {
  const std::string graph = graph_text();
  char* plan = nullptr;
  ASSERT_EQ(stash_plan(graph.c_str(), nullptr, &plan), STASH_OK) << last_error();
  EXPECT_EQ(plan, stash::plan_graph(graph));
  stash_free_text(plan);
  stash_plan_options zero = STASH_INIT(stash_plan_options);
  ASSERT_EQ(stash_plan(graph.c_str(), &zero, &plan), STASH_OK) << last_error();
  EXPECT_EQ(plan, stash::plan_graph(graph));
  stash_free_text(plan);
}

TEST(planning, formats_that_auto_may_use) {
  const std::string graph = graph_text(8, "vgg_small");
  const auto kept = [&](const char* policy, const char* values) {
    stash_plan_options c = STASH_INIT(stash_plan_options);
    c.policy = policy;
    c.values = values;
    char* plan = nullptr;
    EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_OK) << last_error();
    if (plan == nullptr) return std::int64_t{0};
    const stash::planner::plan p = stash::planner::plan_from_json(plan);
    stash_free_text(plan);
    std::int64_t bytes = 0;
    for (const stash::planner::stash_choice& choice : p.choices)
      bytes += choice.bytes_after;
    return bytes;
  };
  EXPECT_EQ(kept("auto", nullptr), kept("lossless", nullptr));
  EXPECT_EQ(kept("auto", "fp8"), kept("fp8", nullptr));
  EXPECT_EQ(kept("auto", "fp16,fp8"), kept("fp8", nullptr));
  EXPECT_LT(kept("auto", "fp16"), kept("auto", ""));
  EXPECT_LT(kept("auto", "fp8"), kept("auto", "fp16"));
}

TEST(planning, a_policy_that_cannot_be_followed_is_refused) {
  const std::string graph = graph_text();
  char* plan = nullptr;
  for (const char* const policy : {"swap-only", "lms", "layrub"}) {
    for (const std::int64_t budget : {std::int64_t{0}, std::int64_t{1} << 40}) {
      stash_plan_options c = STASH_INIT(stash_plan_options);
      c.policy = policy;
      c.budget_bytes = budget;
      c.swap = 1;
      EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
      EXPECT_EQ(last_error(), std::string("stash_plan: options.model: expected a machine with policy ") +
                                  policy + ", which only moves maps, got none");
      c.model = "rtx";
      c.swap = 0;
      EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
      EXPECT_EQ(last_error(), std::string("stash_plan: options.swap: expected true with policy ") + policy +
                                  ", which only moves maps, got false");
    }
    stash::planner::plan_options no_link;
    no_link.chosen_policy = stash::planner::parse_policy(policy);
    no_link.model = stash::planner::find_machine("rtx");
    no_link.model->in_bytes_per_second = 0;
    no_link.swap = true;
    try {
      stash::planner::make_plan(stash::planner::graph_from_json(graph), no_link);
      ADD_FAILURE() << policy;
    } catch (const stash::error& e) {
      EXPECT_EQ(e.code(), stash::errc::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("a machine with a link to its host"), std::string::npos)
          << e.what();
    }
  }
  EXPECT_EQ(plan, nullptr);
}

TEST(planning, gist_needs_no_machine) {
  const std::string graph = graph_text(8, "vgg_small");
  const auto planned = [&](const char* model, std::int64_t budget) {
    stash_plan_options c = STASH_INIT(stash_plan_options);
    c.policy = "gist";
    c.values = "fp8,fp16";
    c.model = model;
    c.budget_bytes = budget;
    char* text = nullptr;
    EXPECT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_OK) << last_error();
    stash::planner::plan p = stash::planner::plan_from_json(text);
    EXPECT_EQ(stash_verify_plan(text, nullptr), STASH_OK);
    stash_free_text(text);
    return p;
  };
  const stash::planner::plan alone = planned(nullptr, 0), on_machine = planned("rtx", 0);
  EXPECT_EQ(alone.chosen_policy, stash::planner::policy::gist);
  ASSERT_EQ(alone.choices.size(), on_machine.choices.size());
  for (const auto s : alone.choices.ids()) {
    EXPECT_EQ(alone.choices[s].kind, on_machine.choices[s].kind);
    EXPECT_EQ(alone.choices[s].bytes_after, on_machine.choices[s].bytes_after);
  }
  EXPECT_EQ(planned(nullptr, alone.sizes.planned_peak_total).sizes.planned_peak_total,
            alone.sizes.planned_peak_total);
  stash_plan_options c = STASH_INIT(stash_plan_options);
  c.policy = "gist";
  c.values = "fp8";
  c.budget_bytes = alone.sizes.planned_peak_total - 1;
  char* text = nullptr;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_INFEASIBLE_BUDGET);
  c.budget_bytes = 0;
  c.force = "bitmap";
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_INVALID_ARGUMENT);
}

TEST(planning, swapping_on_a_machine) {
  const std::string graph = graph_text(8, "resnet20");
  stash_plan_options c = STASH_INIT(stash_plan_options);
  char* text = nullptr;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_OK) << last_error();
  const stash::planner::plan smallest = stash::planner::plan_from_json(text);
  stash_free_text(text);
  // Less than any encoding gives.
  c.budget_bytes = smallest.sizes.planned_peak_total - smallest.sizes.planned_peak / 32;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_INFEASIBLE_BUDGET);
  c.model = "a100";
  c.swap = 1;
  c.evaluations = 100;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_OK) << last_error();
  EXPECT_EQ(stash_verify_plan(text, nullptr), STASH_OK) << last_error();
  const stash::planner::plan p = stash::planner::plan_from_json(text);
  EXPECT_LE(p.sizes.planned_peak_total, c.budget_bytes);
  EXPECT_TRUE(std::any_of(p.choices.begin(), p.choices.end(),
                          [](const stash::planner::stash_choice& choice) { return choice.swapped; }));
  const std::string machine = to_json(stash::planner::find_machine("a100"));
  EXPECT_EQ(text,
            stash::plan_graph(
                graph, {.budget_bytes = c.budget_bytes, .model = machine, .swap = true, .evaluations = 100}));
  stash_free_text(text);
}

TEST(planning, without_a_layout) {
  const std::string graph = graph_text();
  stash_plan_options c = STASH_INIT(stash_plan_options);
  c.no_layout = 1;
  char* text = nullptr;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_OK) << last_error();
  EXPECT_EQ(text, stash::plan_graph(graph, {.lay_out = false}));
  EXPECT_EQ(stash_verify_plan(text, nullptr), STASH_OK) << last_error();
  const stash::planner::plan p = stash::planner::plan_from_json(text);
  stash_free_text(std::exchange(text, nullptr));
  EXPECT_FALSE(p.laid_out);
  EXPECT_EQ(p.sizes.planned_peak, p.sizes.max_live);
  // The same budget as one with a layout: on the peak.
  c.budget_bytes = p.sizes.planned_peak_total;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_OK) << last_error();
  EXPECT_LE(stash::planner::plan_from_json(text).sizes.planned_peak_total, c.budget_bytes);
  stash_free_text(std::exchange(text, nullptr));
  c.no_layout = 2;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &text), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(), "stash_plan: options.no_layout: expected 0 or 1, got 2");
}

TEST(planning, wrong_plans_are_found_out) {
  const std::string plan = stash::plan_graph(graph_text());
  EXPECT_EQ(stash::verify_plan(plan), "");
  stash::planner::plan p = stash::planner::plan_from_json(plan);
  p.buffers.front().offset += 64;
  p.sizes.planned_peak -= 64;
  const std::string broken = stash::planner::to_json(p);
  const std::string findings = stash::verify_plan(broken);
  EXPECT_NE(findings, "");
  EXPECT_EQ(findings.back(), '\n');
  char* text = nullptr;
  EXPECT_EQ(stash_verify_plan(broken.c_str(), &text), STASH_VERIFICATION_FAILED);
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text, findings);
  EXPECT_EQ(last_error(), "stash_verify_plan: plan_json: expected a valid plan, got: " +
                              findings.substr(0, findings.find('\n')));
  stash_free_text(text);
  EXPECT_EQ(stash_verify_plan(broken.c_str(), nullptr), STASH_VERIFICATION_FAILED);
  text = nullptr;
  EXPECT_EQ(stash_explain_plan(broken.c_str(), &text), STASH_BAD_FORMAT);
  EXPECT_EQ(text, nullptr);
}

TEST(planning, errors) {
  const std::string graph = graph_text();
  char* plan = nullptr;
  EXPECT_EQ(stash_plan("{", nullptr, &plan), STASH_BAD_FORMAT);
  EXPECT_EQ(stash_plan(nullptr, nullptr, &plan), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_plan(graph.c_str(), nullptr, nullptr), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(stash_verify_plan("[]", nullptr), STASH_BAD_FORMAT);
  EXPECT_EQ(stash_explain_plan("nonsense", &plan), STASH_BAD_FORMAT);
  stash_plan_options c = STASH_INIT(stash_plan_options);
  c.policy = "best";
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
  c.policy = nullptr;
  c.threads = -1;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
  c.threads = 0;
  c.values = "fp16,bitmap";
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
  EXPECT_EQ(last_error(),
            "stash_plan: options.values: expected value formats such as 'fp16,fp8', got 'bitmap'");
  c.values = nullptr;
  c.force = "zip";
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
  c.force = nullptr;
  c.swap = 1;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("model of the machine"), std::string::npos) << last_error();
  for (const char* model : {"z80", "{", "{\"version\":1}"}) {
    c.model = model;
    EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT) << model;
  }
  c.model = "a100";
  c.evaluations = -1;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INVALID_ARGUMENT);
  c.model = nullptr;
  c.swap = c.evaluations = 0;
  c.budget_bytes = 1;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INFEASIBLE_BUDGET);
  EXPECT_NE(last_error().find("conv"), std::string::npos) << last_error();
  EXPECT_EQ(plan, nullptr);
}

TEST(planning, long_names_are_cut_and_counted) {
  const std::string name(20'000, 'n'), shown = std::string(160, 'n') + "... (200";
  std::string graph = graph_text();
  const std::string before = "\"name\":\"";
  for (std::size_t at = 0; (at = graph.find(before, at)) != std::string::npos; at += before.size())
    graph.insert(at + before.size(), name);
  stash_plan_options c = STASH_INIT(stash_plan_options);
  char* plan = nullptr;
  c.budget_bytes = 1;
  EXPECT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_INFEASIBLE_BUDGET);
  EXPECT_NE(last_error().find(shown), std::string::npos) << last_error();
  EXPECT_LT(last_error().size(), 2500U);
  c.budget_bytes = 0;
  ASSERT_EQ(stash_plan(graph.c_str(), &c, &plan), STASH_OK);
  stash::planner::plan p = stash::planner::plan_from_json(plan);
  stash_free_text(plan);
  for (stash::planner::stash_choice& choice : p.choices)
    choice.bytes_before += 1;
  const std::string findings = stash::verify_plan(stash::planner::to_json(p));
  EXPECT_NE(findings.find(shown), std::string::npos);
  EXPECT_EQ(findings.find(std::string(161, 'n')), std::string::npos);
}

/// Of a network small enough for thousands of runs.
std::string small_graph_text() {
  const auto n = stash::models::find("lenet").build({16, 16, 1}, 2);
  return stash::planner::to_json(stash::planner::make_training_graph(n, 1));
}

TEST(planning, rounding_modes_do_not_change_plans) {
  const std::string graph = small_graph_text();
  const stash::planning_options options{.model = "a100", .swap = true, .evaluations = 20};
  const std::string expected = stash::plan_graph(graph, options);
  const std::string explained = stash::explain_plan(expected);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const std::string plan = stash::plan_graph(graph, options), found = stash::verify_plan(expected),
                      text = stash::explain_plan(expected);
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(plan == expected);
    EXPECT_EQ(found, "");
    EXPECT_TRUE(text == explained);
    EXPECT_EQ(after, mode);
  }
}

TEST(planning, a_denormal_share_is_not_the_default) {
  if (!denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  const std::string graph = small_graph_text();
  const auto planned = [&](double share) {
    stash_plan_options options = STASH_INIT(stash_plan_options);
    options.slot_margin = options.overflow_share = share;
    char* text = nullptr;
    EXPECT_EQ(stash_plan(graph.c_str(), &options, &text), STASH_OK) << last_error();
    std::string plan = text == nullptr ? "" : text;
    stash_free_text(text);
    return plan;
  };
  const std::string expected = planned(1e-310), none = planned(-1);
  const denormals_are_zero mode;
  EXPECT_TRUE(planned(1e-310) == expected);
  EXPECT_TRUE(planned(-1e-310) == none);
}

/// Whether the thread takes denormals for zeros. The compiler must not know the value.
bool takes_denormals_for_zeros() {
  volatile double denormal = 1e-310;
  return denormal == 0.0;
}

TEST(planning, denormal_modes_do_not_change_plans) {
  if (!denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  const std::string graph = small_graph_text();
  const stash::planning_options options{
      .slot_margin = 1e-310, .overflow_share = 1e-310, .model = "a100", .swap = true, .evaluations = 20};
  const std::string expected = stash::plan_graph(graph, options);
  const std::string explained = stash::explain_plan(expected);
  EXPECT_NE(expected.find("1e-310"), std::string::npos);
  const denormals_are_zero mode;
  EXPECT_TRUE(stash::plan_graph(graph, options) == expected);
  EXPECT_EQ(stash::verify_plan(expected), "");
  EXPECT_TRUE(stash::explain_plan(expected) == explained);
  EXPECT_TRUE(takes_denormals_for_zeros());
}

// In a thread that takes denormals for zeros they are not below zero.
TEST(planning, negative_denormals_are_refused_in_every_mode) {
  if (!denormals_are_zero::works) GTEST_SKIP() << "no such mode";
  const std::string graph = small_graph_text();
  const auto changed = [](std::string text, std::string_view field) {
    const std::size_t at = text.find(field);
    if (at == std::string::npos) return std::string(field) + " is missing";
    const std::size_t number = at + field.size();
    return text.replace(number, text.find_first_of(",}", number) - number, "-1e-310");
  };
  const std::string bad_graph = changed(graph, "\"density\":");
  const std::string bad_plan = changed(stash::plan_graph(graph), "\"slot_margin\":");
  std::string bad_model = stash::planner::to_json(stash::planner::find_machine("a100"));
  bad_model = changed(std::move(bad_model), "\"link_latency_seconds\":");
  const std::function<void()> calls[] = {[&] { stash::plan_graph(graph, {.slot_margin = -1e-310}); },
                                         [&] { stash::plan_graph(graph, {.overflow_share = -1e-310}); },
                                         [&] { stash::plan_graph(graph, {.model = bad_model}); },
                                         [&] { stash::plan_graph(bad_graph); },
                                         [&] { stash::verify_plan(bad_plan); },
                                         [&] { stash::explain_plan(bad_plan); }};
  for (const auto& call : calls) {
    const std::string expected = message_of(call);
    EXPECT_NE(expected.find("got -1e-310"), std::string::npos) << expected;
    const denormals_are_zero mode;
    EXPECT_EQ(message_of(call), expected);
    EXPECT_TRUE(takes_denormals_for_zeros());
  }
}

TEST(planning, every_allocation_may_fail) {
  const std::string graph = small_graph_text();
  const std::string expected = stash::plan_graph(graph);
  constexpr std::int64_t stride = 11;
  char* text = nullptr;
  const std::int64_t failures = fail_every_allocation(
      [&] {
        const int32_t status = stash_plan(graph.c_str(), nullptr, &text);
        if (status == STASH_OUT_OF_MEMORY) throw std::bad_alloc();
        ASSERT_EQ(status, STASH_OK) << last_error();
        EXPECT_TRUE(text == expected);
        stash_free_text(std::exchange(text, nullptr));
      },
      [&] { EXPECT_EQ(text, nullptr); }, stride);
  EXPECT_GT(failures, 100);
  const std::int64_t explained = fail_every_allocation(
      [&] {
        const int32_t status = stash_explain_plan(expected.c_str(), &text);
        if (status == STASH_OUT_OF_MEMORY) throw std::bad_alloc();
        ASSERT_EQ(status, STASH_OK) << last_error();
        stash_free_text(std::exchange(text, nullptr));
      },
      stride);
  EXPECT_GT(explained, 100);
}

// The solver of linear programs is another library, whose objects are given up where memory runs out in it.
TEST(planning, every_allocation_of_a_plan_for_a_machine_may_fail) {
  const std::string graph = small_graph_text();
  stash_plan_options options = STASH_INIT(stash_plan_options);
  options.model = "a100";
  options.swap = 1;
  options.evaluations = 20;
  const std::string expected = stash::plan_graph(graph, {.model = "a100", .swap = true, .evaluations = 20});
  char* text = nullptr;
  const std::int64_t failures = fail_every_allocation(
      [&] {
        const int32_t status = stash_plan(graph.c_str(), &options, &text);
        if (status == STASH_OUT_OF_MEMORY) throw std::bad_alloc();
        ASSERT_EQ(status, STASH_OK) << last_error();
        EXPECT_TRUE(text == expected);
        stash_free_text(std::exchange(text, nullptr));
      },
      [&] { EXPECT_EQ(text, nullptr); }, 11, left_blocks::some);
  EXPECT_GT(failures, 100);
}

}  // namespace
