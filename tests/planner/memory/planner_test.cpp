// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "models/models.hpp"
#include "planner/graph/needs.hpp"
#include "planner/graph/random_network.hpp"
#include "planner/graph/sample_graph.hpp"
#include "planner/json/json.hpp"
#include "planner/memory/bounds.hpp"
#include "planner/memory/options.hpp"
#include "planner/memory/search.hpp"
#include "planner/plan_answers.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner {

void PrintTo(const plan_finding& f, std::ostream* out) {
  *out << to_string(f.fault) << ": " << f.message;
}

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr policy policies[] = {policy::none, policy::lossless, policy::fp16, policy::fp8};

plan_options with(policy p, std::int64_t budget = 0) {
  plan_options options;
  options.chosen_policy = p;
  options.budget_bytes = budget;
  return options;
}

plan_options forced(policy p, const std::string& force) {
  plan_options options = with(p);
  options.force = force;
  return options;
}

graph model_graph(std::string_view name, std::int64_t batch, double density) {
  return models::default_graph(models::find(name), batch, density);
}

// What every plan must be, whatever its policy and budget.
void expect_sound(const plan& p) {
  EXPECT_THAT(validate(p), IsEmpty());
  const plan_sizes& z = p.sizes;
  EXPECT_GE(z.planned_peak, z.bound);
  EXPECT_GE(z.planned_peak, z.max_live);
  EXPECT_GE(z.bound, z.wall);
  EXPECT_GE(z.baseline_peak, z.wall);
  EXPECT_EQ(z.planned_peak_total, z.planned_peak + z.parameter_bytes + z.workspace_bytes);
  EXPECT_EQ(z.baseline_peak_total, z.baseline_peak + z.parameter_bytes + z.workspace_bytes);
  if (p.budget_bytes > 0) {
    EXPECT_LE(z.planned_peak_total, p.budget_bytes);
  }
}

std::int64_t smallest_budget(const graph& g, plan_options options) {
  options.budget_bytes = 1;
  try {
    make_plan(g, options);
  } catch (const error& e) {
    return testing::budget_in(e);
  }
  ADD_FAILURE() << "a budget of one byte was met";
  return 0;
}

// ---- maps of 16 bits ------------------------------------------------------------------------------------

TEST(make_plan, maps_of_16_bits_under_every_policy) {
  for (const dtype type : {dtype::f16, dtype::bf16}) {
    graph g = sample_graph();
    for (storage& s : g.storages) {
      if (s.type != dtype::f32 || s.fixed_bytes != 0) continue;
      s.type = type;
      s.bytes_per_sample /= 2;
    }
    for (const policy chosen :
         {policy::lossless, policy::fp16, policy::fp10, policy::fp8, policy::automatic, policy::gist}) {
      SCOPED_TRACE(to_string(chosen));
      plan_options options = with(chosen);
      if (chosen == policy::automatic) options.values = {value_format::fp16, value_format::bf16};
      const plan p = make_plan(g, options);
      for (const plan_finding& found : validate(p))
        ADD_FAILURE() << found.message;
      EXPECT_LE(p.sizes.planned_peak_total, p.sizes.baseline_peak_total * 11 / 10 + 17 * 1024);
    }
  }
}

// ---- random networks ------------------------------------------------------------------------------------

TEST(make_plan, random_networks_under_every_policy_and_budget) {
  std::uint64_t refused = 0, encoded = 0, recomputed = 0;
  for (std::uint64_t seed = 0; seed < stash_test::cases(2000); ++seed) {
    SCOPED_TRACE(seed);
    testing::random_network random(seed);
    const network net = random.make();
    const graph g = make_training_graph(net, random.pick(1, 40));
    const policy chosen = policies[seed % 4];
    const plan smallest = make_plan(g, with(chosen));
    expect_sound(smallest);
    EXPECT_LE(smallest.sizes.planned_peak, smallest.sizes.baseline_peak * 11 / 10 + 17 * 1024)
        << "only margin, overflow arena and layout may make it larger";

    const std::int64_t least = smallest_budget(g, with(chosen));
    EXPECT_LE(least, smallest.sizes.planned_peak_total);
    const plan tight = make_plan(g, with(chosen, least));
    expect_sound(tight);

    // Budgets around and between the smallest and the baseline are met or refused with the same figure.
    const std::int64_t baseline = std::max(tight.sizes.baseline_peak_total, least);
    const std::int64_t budget = random.pick(least / 2, baseline + baseline / 4);
    try {
      expect_sound(make_plan(g, with(chosen, budget)));
    } catch (const error& e) {
      ++refused;
      EXPECT_EQ(e.code(), errc::infeasible_budget);
      EXPECT_LT(budget, least);
      EXPECT_EQ(testing::budget_in(e), least);
      EXPECT_THAT(e.what(), HasSubstr(std::to_string(budget)));
    }
    for (const stash_choice& c : tight.choices) {
      encoded += c.kind == stash_kind::encoded ? 1 : 0;
      recomputed += c.kind == stash_kind::recompute ? 1 : 0;
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(refused, stash_test::cases(100));
  EXPECT_GT(encoded, stash_test::cases(2000));
  EXPECT_GT(recomputed, stash_test::cases(100));
}

TEST(make_plan, is_a_function_of_its_arguments) {
  for (std::uint64_t seed = 5000; seed < 5100; ++seed) {
    SCOPED_TRACE(seed);
    const graph g = make_training_graph(testing::random_network(seed).make(), 16);
    const plan_options options = with(policies[seed % 4]);
    const std::string first = to_json(make_plan(g, options));
    EXPECT_EQ(to_json(make_plan(g, options)), first);
    const plan back = plan_from_json(first);
    EXPECT_THAT(validate(back), IsEmpty());
    EXPECT_EQ(to_json(back), first);
  }
}

// ---- plans without a layout -----------------------------------------------------------------------------

TEST(make_plan, without_a_layout_the_peak_is_what_is_live_and_honours_the_budget) {
  for (std::uint64_t seed = 7000; seed < 7050; ++seed) {
    SCOPED_TRACE(seed);
    const graph g = make_training_graph(testing::random_network(seed).make(), 16);
    plan_options options = with(policies[seed % 4]);
    const plan laid_out = make_plan(g, options);
    options.lay_out = false;
    const plan smallest = make_plan(g, options);
    expect_sound(smallest);
    EXPECT_FALSE(smallest.laid_out);
    EXPECT_EQ(smallest.sizes.planned_peak, smallest.sizes.max_live);
    EXPECT_LE(smallest.sizes.planned_peak, laid_out.sizes.planned_peak);
    EXPECT_LE(smallest.sizes.baseline_peak, laid_out.sizes.baseline_peak);
    for (const buffer& b : smallest.buffers)
      EXPECT_EQ(b.offset, 0);
    const std::string text = to_json(smallest);
    EXPECT_EQ(to_json(plan_from_json(text)), text);

    const std::int64_t least = smallest_budget(g, options);
    options.budget_bytes = least + (smallest.sizes.baseline_peak_total - least) / 2;
    if (options.budget_bytes >= least) expect_sound(make_plan(g, options));

    plan wrong = smallest;
    wrong.laid_out = true;
    EXPECT_THAT(validate(wrong), Not(IsEmpty())) << "buffers that are not placed overlap";
    wrong = smallest;
    wrong.buffers.back().offset = buffer_alignment;
    EXPECT_THAT(validate(wrong), Not(IsEmpty()));
    if (::testing::Test::HasFailure()) return;
  }
}

// ---- networks of the literature -------------------------------------------------------------------------

class model_plans : public ::testing::TestWithParam<std::string> {};

TEST_P(model_plans, come_close_to_the_bound) {
  for (const double density : {0.5, 0.3, 0.7}) {
    if (stash_test::only_part() && density != 0.5) continue;
    const graph g = model_graph(GetParam(), 64, density);
    check_graph(g);
    for (const policy chosen : policies) {
      SCOPED_TRACE(std::string(to_string(chosen)) + " at density " + std::to_string(density));
      const plan p = make_plan(g, with(chosen));
      expect_sound(p);
      EXPECT_EQ(p.sizes.bound, peak_bound(scheduler(g), make_options(g, with(chosen), 0.0)))
          << "proven in full";
      EXPECT_LE(static_cast<double>(p.sizes.planned_peak), 1.10 * static_cast<double>(p.sizes.bound));
      const std::string text = to_json(p);
      const plan back = plan_from_json(text);
      EXPECT_THAT(validate(back), IsEmpty());
      EXPECT_EQ(to_json(back), text);
    }
  }
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const models::model_info& m : models::all()) {
    // Hundreds of equal blocks or time steps take minutes and say nothing that fewer do not.
    if (models::default_graph(m, 1).ops.size() < 2000) names.emplace_back(m.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(all, model_plans, ::testing::ValuesIn(model_names()),
                         [](const auto& instance) { return instance.param; });

TEST(wall, is_set_by_the_largest_op_of_the_published_networks) {
  const auto wall_op = [](std::string_view name) {
    const graph g = model_graph(name, 64, 0.5);
    const wall w = working_set_wall(g);
    EXPECT_GT(w.bytes, 0);
    return g.op_at(w.op).name;
  };
  // The first layers of classifiers hold the largest maps; a norm's backward also wants the kept input.
  EXPECT_EQ(wall_op("lenet"), "pool1");
  EXPECT_EQ(wall_op("vgg_small"), "conv1_2");
  EXPECT_EQ(wall_op("alexnet"), "pool1");
  EXPECT_EQ(wall_op("alexnet_lrn"), "lrn1");
  EXPECT_EQ(wall_op("nin"), "conv1/mlp1");
  EXPECT_EQ(wall_op("overfeat"), "pool1");
  EXPECT_EQ(wall_op("vgg16"), "conv1_2");
  EXPECT_EQ(wall_op("inception_v1"), "pool1");
  for (const char* const name : {"resnet50", "resnet101", "resnet152", "resnet200", "resnet2000"})
    EXPECT_EQ(wall_op(name), "conv2_3/c/bn/backward") << name;
  EXPECT_EQ(wall_op("resnet20"), "conv2_3/b/bn/backward");
}

// ---- budgets --------------------------------------------------------------------------------------------

int encodings_of(const plan& p) {
  return static_cast<int>(std::count_if(p.choices.begin(), p.choices.end(), [](const stash_choice& c) {
    return c.kind == stash_kind::encoded || c.kind == stash_kind::recompute;
  }));
}

TEST(make_plan, encodes_nothing_that_the_budget_does_not_ask_for) {
  for (const char* const name : {"lenet", "vgg_small", "resnet20", "nin"}) {
    const graph g = model_graph(name, 64, 0.5);
    for (const policy chosen : {policy::lossless, policy::fp16, policy::fp8}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(to_string(chosen)));
      const std::int64_t least = smallest_budget(g, with(chosen));
      const std::int64_t baseline = make_plan(g, with(policy::none)).sizes.planned_peak_total;
      ASSERT_LT(least, baseline);
      const plan tight = make_plan(g, with(chosen, least));
      const plan halfway = make_plan(g, with(chosen, (least + baseline) / 2));
      const plan roomy = make_plan(g, with(chosen, baseline));
      for (const plan* p : {&tight, &halfway, &roomy})
        expect_sound(*p);
      EXPECT_EQ(encodings_of(roomy), 0);
      EXPECT_GT(encodings_of(tight), encodings_of(roomy));
      EXPECT_LE(encodings_of(halfway), encodings_of(tight));
      EXPECT_EQ(roomy.sizes.baseline_peak_total, baseline);
    }
  }
}

TEST(make_plan, an_impossible_budget_is_refused_with_op_tensors_and_the_smallest_budget) {
  const graph g = model_graph("vgg_small", 64, 0.5);
  const std::int64_t least = smallest_budget(g, with(policy::lossless));
  try {
    make_plan(g, with(policy::lossless, least - 1));
    ADD_FAILURE() << "met";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::infeasible_budget);
    EXPECT_EQ(testing::budget_in(e), least);
    const std::string message = e.what();
    EXPECT_TRUE(std::any_of(g.ops.begin(), g.ops.end(), [&](const op& o) {
      return message.find("while " + o.name + " runs") != std::string::npos;
    })) << message;
    EXPECT_TRUE(std::any_of(g.storages.begin(), g.storages.end(), [&](const storage& s) {
      return message.find(s.name + " (") != std::string::npos;
    })) << message;
  }
  expect_sound(make_plan(g, with(policy::lossless, least)));
}

TEST(make_plan, workspace_counts_for_the_budget) {
  graph g = model_graph("lenet", 8, 0.5);
  const std::int64_t before = smallest_budget(g, with(policy::lossless));
  g.ops[op_id(0)].workspace_bytes = 1000;
  g.ops[op_id(1)].workspace_bytes = 999;
  EXPECT_EQ(smallest_budget(g, with(policy::lossless)), before + 1024);
}

// ---- forced encodings -----------------------------------------------------------------------------------

// Storages that some selection keeps in this form, under the policy.
std::vector<storage_id> legal_for(const graph& g, policy chosen, const std::string& name) {
  std::vector<storage_id> out;
  for (const component& c : make_options(g, forced(chosen, name), 0.0).components) {
    for (const configuration& f : c.configurations) {
      for (std::size_t k = 0; k < f.choices.size(); ++k) {
        if (f.choices[k].kind == stash_kind::encoded && to_string(f.choices[k].stored) == name)
          out.push_back(c.storages[k]);
      }
    }
  }
  return out;
}

TEST(make_plan, a_forced_encoding_is_used_wherever_it_is_legal) {
  struct expectation {
    const char* network;
    policy chosen;
    const char* name;
    std::vector<const char*> storages;  // some that must have it
  };
  const expectation list[] = {
      {"vgg_small", policy::lossless, "sign_mask", {"fc1/relu", "fc1/dropout.mask"}},
      {"lenet", policy::lossless, "bitmap", {"fc1/relu", "pool1", "conv2"}},
      {"lenet", policy::lossless, "relu_pool", {"pool1.code", "pool2.code"}},
      {"lenet", policy::lossless, "window_index", {"pool1.index", "pool2.index"}},
      {"lenet", policy::fp16, "bitmap_fp16", {"fc1/relu"}},
      {"lenet", policy::fp16, "fp16", {"fc1/relu"}},
      {"lenet", policy::fp8, "bitmap_fp8", {"fc1/relu"}},
      {"lenet", policy::fp8, "fp8", {"fc1/relu"}},
      {"lenet", policy::lossless, "raw", {"fc1/relu"}},
  };
  for (const expectation& e : list) {
    SCOPED_TRACE(std::string(e.network) + " " + e.name);
    const graph g = model_graph(e.network, 16, 0.5);
    const plan p = make_plan(g, forced(e.chosen, e.name));
    expect_sound(p);
    for (const char* const name : e.storages) {
      for (const storage_id s : g.storages.ids()) {
        if (g.storages[s].name != name) continue;
        const stash_choice& c = p.choices[s];
        EXPECT_EQ(c.kind == stash_kind::raw ? "raw" : to_string(c.stored), e.name) << name;
      }
    }
    for (const storage_id s : legal_for(g, e.chosen, e.name))
      EXPECT_EQ(to_string(p.choices[s].stored), e.name) << g.at(s).name;
  }
}

TEST(make_plan, a_forced_recompute_is_used_for_every_norm_and_relu) {
  const graph g = model_graph("resnet20", 16, 0.5);
  const plan p = make_plan(g, forced(policy::lossless, "recompute"));
  expect_sound(p);
  ASSERT_FALSE(g.recipes.empty());
  for (const recipe& r : g.recipes)
    EXPECT_EQ(p.choices[r.target].kind, stash_kind::recompute) << g.at(r.target).name;
}

TEST(make_plan, refuses_unknown_and_nowhere_legal_encodings) {
  const auto expect_refused = [](const char* network, policy chosen, const std::string& force,
                                 const std::string& detail) {
    try {
      make_plan(model_graph(network, 4, 0.5), forced(chosen, force));
      ADD_FAILURE() << force << " was taken";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(force));
      EXPECT_THAT(e.what(), HasSubstr(detail));
    }
  };
  expect_refused("lenet", policy::lossless, "zip", "bitmap");  // lists the known names
  expect_refused("lenet", policy::lossless, "fp8", "legal");
  expect_refused("lenet", policy::fp8, "fp16", "legal");
  expect_refused("lenet", policy::none, "bitmap", "legal");
  expect_refused("lenet", policy::lossless, "recompute", "legal");  // no norm
  expect_refused("lenet", policy::lossless, "shape_only", "legal");
}

TEST(make_plan, refuses_senseless_options) {
  const graph g = model_graph("lenet", 4, 0.5);
  const auto expect_refused = [&](auto change) {
    plan_options options;
    change(options);
    try {
      make_plan(g, options);
      ADD_FAILURE() << "taken";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument);
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_refused([](plan_options& o) { o.budget_bytes = -1; });
  expect_refused([](plan_options& o) { o.threads = 0; });
  expect_refused([](plan_options& o) { o.slot_margin = -0.1; });
  expect_refused([&](plan_options& o) { o.slot_margin = nan; });
  expect_refused([](plan_options& o) { o.overflow_share = -0.1; });
  expect_refused([&](plan_options& o) { o.overflow_share = nan; });
}

// ---- many storages that depend on each other ------------------------------------------------------------

TEST(make_plan, a_densely_connected_block_is_planned_in_reasonable_time) {
  network net("dense_block");
  node_id x = net.conv2d("stem", net.input(8, 8, 3), 8, {3, 3}, {1, 1}, {1, 1}, false);
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    const node_id r = net.relu("relu" + n, net.batch_norm("norm" + n, x));
    x = net.concat("cat" + n, {x, net.conv2d("conv" + n, r, 4, {3, 3}, {1, 1}, {1, 1}, false)});
  }
  net.softmax_cross_entropy("loss", net.dense("fc", net.global_avg_pool("mean", x), 10));
  const graph g = make_training_graph(net, 32);
  for (const policy chosen : policies) {
    SCOPED_TRACE(std::string(to_string(chosen)));
    const plan p = make_plan(g, with(chosen));
    expect_sound(p);
    EXPECT_LE(p.sizes.planned_peak, p.sizes.baseline_peak);
  }
}

// ---- large windows --------------------------------------------------------------------------------------

TEST(make_plan, windows_of_any_size_can_be_planned) {
  for (const std::int32_t kernel : {2, 3, 4, 8, 15, 16, 17, 20}) {
    SCOPED_TRACE(kernel);
    for (const bool rectified : {false, true}) {
      network net("windows");
      node_id x = net.conv2d("c", net.input(20, 20, 1), 2, {1, 1}, {1, 1}, {0, 0});
      if (rectified) x = net.relu("r", x);
      net.softmax_cross_entropy("loss", net.dense("fc", net.max_pool("p", x, kernel, kernel), 3));
      const graph g = make_training_graph(net, 4);
      for (const policy chosen : policies)
        expect_sound(make_plan(g, with(chosen)));
      if (kernel <= 16) {
        const plan p = make_plan(g, forced(policy::lossless, "window_index"));
        expect_sound(p);
        for (const stash_choice& c : p.choices) {
          if (c.kind != stash_kind::encoded || c.stored.kind != encoding_kind::window_index) continue;
          EXPECT_EQ(c.stored.window_taps, kernel * kernel);
        }
      }
    }
  }
}

// ---- the bound and what the user allows
// --------------------------------------------------------------------

TEST(bound, of_what_the_user_allows) {
  const graph g = model_graph("alexnet", 8, 0.5);
  const std::int64_t free = make_plan(g, with(policy::lossless)).sizes.bound;
  plan_options options = with(policy::lossless);
  options.tensors = {{"*", {"raw"}, false}};
  plan p = make_plan(g, options);
  EXPECT_GT(p.sizes.bound, free);
  p = plan_from_json(to_json(p));
  EXPECT_THAT(validate(p), IsEmpty());
  p.tensors.clear();
  EXPECT_LT(proven_peak_bytes(p), p.sizes.bound);
  EXPECT_FALSE(validate(p).empty()) << "others may go lower";
}

// What a plan is compared with is the step of a framework, which knows no such rules.
TEST(make_plan, tensors_that_may_not_stay_as_they_are) {
  const graph g = model_graph("resnet20", 8, 0.5);
  plan_options options = with(policy::lossless);
  const std::int64_t baseline = make_plan(g, options).sizes.baseline_peak;
  for (const tensor_rule& rule :
       {tensor_rule{"*/relu", {"raw"}, true}, {"conv2_1/relu", {"bitmap"}, false}}) {
    options.tensors = {rule};
    const plan p = make_plan(g, options);
    EXPECT_THAT(validate(p), IsEmpty());
    EXPECT_EQ(p.sizes.baseline_peak, baseline);
    for (const storage_id s : p.choices.ids()) {
      if (p.network.storages[s].name == "conv2_1/relu") {
        EXPECT_EQ(to_string(p.choices[s].stored), "bitmap");
      }
    }
  }
}

// As far as a plan's text holds byte counts.
TEST(make_plan, steps_of_petabytes) {
  const graph g = model_graph("gpt2_small", 1'000'000, 0.5);
  for (const bool timed : {false, true}) {
    plan_options options = with(policy::none);
    if (timed) options.model = find_machine("cpu");
    const plan p = make_plan(g, options);
    EXPECT_GT(p.sizes.planned_peak, std::int64_t{1} << 50);
    EXPECT_THAT(validate(p), IsEmpty());
    EXPECT_THAT(validate(plan_from_json(to_json(p))), IsEmpty());
  }
  graph large = model_graph("unet3d", 1, 0.5);
  const auto refusal = [&large](std::int64_t batch) -> std::string {
    large.batch = batch;  // networks that come with Stash are refused when they are made
    try {
      make_plan(large, with(policy::none));
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::invalid_argument);
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(10'000'000),
              HasSubstr("make_plan: graph: expected a step within 2^53 bytes of memory, got "));
  EXPECT_THAT(refusal(1'000'000'000), HasSubstr("make_plan: graph: expected storages of at most 2^60 bytes"));
}

// ---- the bound and the search against all configurations -------------------------------------------------

TEST(bound, holds_for_every_configuration_and_the_search_comes_near_the_best) {
  int networks = 0, exact = 0, near = 0;
  double worst = 1.0, slack = 1.0;
  for (std::uint64_t seed = 9000; seed < 9000 + stash_test::cases(400); ++seed) {
    SCOPED_TRACE(seed);
    // So many samples that every slot is large compared with the overflow arena.
    const graph g = make_training_graph(testing::random_network(seed).make(), 4096);
    const plan_options options = with(policies[1 + seed % 3]);
    const scheduler facts(g);
    const option_set choices = make_options(g, options, options.slot_margin);
    double combinations = 1;
    for (const component& c : choices.components)
      combinations *= static_cast<double>(c.configurations.size());
    if (combinations > 3000) continue;
    const search all(facts, choices, options);
    picks now(choices.components.size(), 0);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (bool more = true; more;) {
      best = std::min(best, max_live(blocks_of(all.build(now).buffers.list()), buffer_alignment));
      more = false;
      for (std::size_t c = 0; c < now.size() && !more; ++c) {
        more = ++now[c] < choices.components[c].configurations.size();
        if (!more) now[c] = 0;
      }
    }
    const plan p = make_plan(g, options);
    EXPECT_GE(best, p.sizes.bound);
    EXPECT_GE(best, proven_peak_bytes(p));
    EXPECT_EQ(p.sizes.bound, peak_bound(facts, make_options(g, options, 0.0)));
    EXPECT_GE(p.sizes.max_live, best);
    const double over = static_cast<double>(p.sizes.max_live) / static_cast<double>(best);
    EXPECT_LE(over, 1.10);
    near += over <= 1.05 ? 1 : 0;
    worst = std::max(worst, over);
    slack = std::max(slack, static_cast<double>(best) / static_cast<double>(p.sizes.bound));
    ++networks;
    exact += p.sizes.max_live == best ? 1 : 0;
  }
  EXPECT_GE(static_cast<std::uint64_t>(networks), stash_test::cases(300));
  EXPECT_GE(near * 100, networks * 98);
  EXPECT_GE(exact * 100, networks * 85);
  std::printf(
      "%d networks: the best found for %d, within 5 %% for %d, at worst %.4f of it; the best is at most %.4f "
      "of the bound\n",
      networks, exact, near, worst, slack);
}

// ---- explain --------------------------------------------------------------------------------------------

TEST(explain, names_every_stashed_tensor_with_reader_form_and_bytes) {
  for (const char* const name : {"lenet", "resnet20", "alexnet"}) {
    for (const policy chosen : policies) {
      SCOPED_TRACE(std::string(name) + " " + std::string(to_string(chosen)));
      const plan p = make_plan(model_graph(name, 16, 0.5), with(chosen));
      const std::string text = explain(p);
      EXPECT_THAT(text, HasSubstr(to_string(chosen)));
      EXPECT_THAT(text, HasSubstr(p.network.op_at(p.sizes.wall_op).name));
      for (const storage_id s : p.choices.ids()) {
        const stash_choice& c = p.choices[s];
        if (c.kind == stash_kind::none) continue;
        const std::size_t begin = text.find("\n" + p.network.storages[s].name + " ");
        ASSERT_NE(begin, std::string::npos) << p.network.storages[s].name;
        const std::string line = text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
        const std::string form = c.kind == stash_kind::raw         ? "raw"
                                 : c.kind == stash_kind::recompute ? "recompute"
                                                                   : to_string(c.stored);
        EXPECT_THAT(line, HasSubstr(form));
        EXPECT_THAT(line, HasSubstr(std::to_string(c.bytes_before)));
        EXPECT_THAT(line, HasSubstr(std::to_string(c.bytes_after)));
        EXPECT_THAT(c.reason, ::testing::Not(IsEmpty()));
        EXPECT_THAT(line, HasSubstr(c.reason));
        const auto readers = readers_of(p.network, p.alternative)[s];
        EXPECT_FALSE(readers.empty());
        for (const reader& r : readers)
          EXPECT_THAT(line, HasSubstr(p.network.op_at(r.op).name));
      }
    }
  }
}

TEST(explain, says_that_no_form_is_smaller_only_where_the_policy_has_none) {
  int costs_nothing = 0;
  for (const char* const name : {"lenet", "vgg_small"}) {
    const plan p = make_plan(model_graph(name, 16, 1.0), with(policy::fp8));
    for (const storage_id s : p.choices.ids()) {
      const stash_choice& c = p.choices[s];
      if (c.kind != stash_kind::raw || p.network.storages[s].role == storage_role::image) continue;
      SCOPED_TRACE(p.network.storages[s].name);
      const auto readers = readers_of(p.network, p.alternative)[s];
      const bool exact = std::any_of(readers.begin(), readers.end(),
                                     [](const reader& r) { return r.what == need::exact_value; });
      EXPECT_THAT(c.reason, HasSubstr(exact ? "no allowed encoding" : "costs nothing at the peak"));
      costs_nothing += exact ? 0 : 1;
    }
  }
  EXPECT_GT(costs_nothing, 0);
}

// A search found this: the image had a lifetime, in a schedule without steps.
TEST(make_plan, a_network_that_runs_nothing_holds_nothing) {
  const graph g = graph_from_json(
      R"({"format":"stash.graph","version":1,"name":"idle","batch":1,"classes":2,"storages":[)"
      R"({"name":"input","role":"image","type":"u8","shape":[1,1,2],"bytes_per_sample":2},)"
      R"({"name":"labels","role":"label","type":"s32","shape":[1],"bytes_per_sample":4}],"ops":[],"recompute":[]})");
  const plan p = make_plan(g, {});
  EXPECT_TRUE(p.steps.empty());
  EXPECT_TRUE(p.buffers.empty());
  for (const plan_finding& found : validate(p))
    EXPECT_EQ(found.fault, plan_fault::bad_graph) << found.message;
}

}  // namespace
}  // namespace stash::planner
