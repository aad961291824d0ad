// SPDX-License-Identifier: Apache-2.0
// Maps that chains of cheap ops compute again: which chains there are, that plans take them where they are
// best, and that no fault in such a plan goes unnoticed.

#include "planner/graph/recipes.hpp"
#include "planner/graph/id_literals.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "planner/graph/generic_graph.hpp"
#include "planner/graph/machine.hpp"
#include "planner/json/json.hpp"
#include "planner/memory/schedule.hpp"
#include "planner/plan_answers.hpp"
#include "planner/verify/validator.hpp"
#include "support/test_depth.hpp"

namespace stash::planner {
namespace {

using ::testing::ElementsAre;
using testing::findings_of;
using testing::generic_graph;
using ::testing::IsEmpty;
using testing::read;

constexpr std::int64_t map_elements = 4096;

/// convolution -> norm -> activation -> product with a gate -> convolution, as in today's networks.
struct block {
  block() {
    image = g.add(storage_role::image, 64, 1.0);
    z = g.map(map_elements, 1.0);
    n = g.map(map_elements, 1.0);
    a = g.map(map_elements, 1.0);
    gate = g.map(16, 1.0);
    product = g.map(map_elements, 1.0);
    out = g.map(64, 1.0);
    g.forward({image}, {z});
    g.forward({z}, {n});
    g.forward({n}, {a});
    g.forward({a}, {gate});
    g.forward({a, gate}, {product});
    g.forward({product}, {out});
    g.backward({{read(out, need::exact_value)}});
    g.backward({{read(product, need::value)}});
    g.backward({{read(a, need::value), read(gate, need::value)}});
    g.backward({{read(n, need::fine_value)}});
    g.backward({{read(z, need::value)}});
    add_recipes(g.made(), cheap);
  }

  generic_graph g;
  storage_id image, z, n, a, gate, product, out;
  static constexpr op_id norm = 1_op, activation = 2_op, multiply = 4_op;
  const std::vector<op_id> cheap{norm, activation, multiply};
};

std::vector<recipe> recipes_of(const graph& g, storage_id target) {
  std::vector<recipe> list;
  for (const recipe& r : g.recipes)
    if (r.target == target) list.push_back(r);
  return list;
}

TEST(recipes, chains_begin_at_every_map_that_is_read) {
  block b;
  const graph& g = b.g.made();
  check_graph(g);
  const std::vector<recipe> of_n = recipes_of(g, b.n), of_a = recipes_of(g, b.a),
                            of_product = recipes_of(g, b.product);
  ASSERT_EQ(of_n.size(), 1U);
  EXPECT_THAT(of_n[0].sources, ElementsAre(b.z));
  ASSERT_EQ(of_a.size(), 2U);
  EXPECT_THAT(of_a[0].ops, ElementsAre(block::activation));
  EXPECT_THAT(of_a[1].ops, ElementsAre(block::norm, block::activation));
  EXPECT_THAT(of_a[1].sources, ElementsAre(b.z));
  ASSERT_EQ(of_product.size(), 3U);
  EXPECT_THAT(of_product[0].sources, ElementsAre(b.a, b.gate));
  EXPECT_THAT(of_product[2].ops, ElementsAre(block::norm, block::activation, block::multiply));
  EXPECT_THAT(of_product[2].sources, ElementsAre(b.z, b.gate));
  EXPECT_THAT(recipes_of(g, b.z), IsEmpty());
  EXPECT_THAT(recipes_of(g, b.gate), IsEmpty()) << "the gate's op is not cheap";
}

TEST(recipes, what_is_overwritten_or_not_read_is_no_source) {
  generic_graph b;
  const storage_id x = b.map(64), y = b.map(64), w = b.map(64);
  b.forward({}, {x});
  b.forward({x}, {y});
  b.forward({y}, {w});
  b.forward({x}, {x});  // in place, and nothing of it is cheap
  b.backward({{read(w, need::value), read(x, need::value)}});
  add_recipes(b.made(), std::vector<op_id>{1_op, 2_op});
  EXPECT_THAT(b.made().recipes, IsEmpty()) << "y is not read, and x is another one by then";
}

TEST(recipes, ops_in_place_are_part_of_a_chain) {
  generic_graph b;
  const storage_id x = b.map(64), y = b.map(64);
  b.forward({}, {x});
  b.forward({x}, {y});
  b.forward({y}, {y});
  b.backward({{read(y, need::value)}});
  b.backward({{read(x, need::value)}});
  add_recipes(b.made(), std::vector<op_id>{1_op, 2_op});
  ASSERT_EQ(b.made().recipes.size(), 1U);
  EXPECT_THAT(b.made().recipes[recipe_id(0)].ops, ElementsAre(1_op, 2_op));
  check_graph(b.made());
  EXPECT_EQ(findings_of(make_plan(b.made(), {})), "");
}

TEST(recipes, one_map_is_kept_where_one_will_do) {
  block b;
  const plan p = make_plan(b.g.made(), {});
  EXPECT_EQ(findings_of(p), "");
  const auto kind = [&](storage_id s) { return p.choices[s].kind; };
  EXPECT_EQ(kind(b.z), stash_kind::raw);
  EXPECT_EQ(kind(b.gate), stash_kind::raw);
  for (const storage_id s : {b.n, b.a, b.product})
    EXPECT_EQ(kind(s), stash_kind::recompute);
  EXPECT_NE(explain(p).find("computed again from s1, s4 by op1, op2, op4, bit for bit"), std::string::npos)
      << explain(p);
  const plan again = plan_from_json(to_json(p));
  EXPECT_EQ(to_json(again), to_json(p));
}

TEST(recipes, rounded_sources_serve_values_and_nothing_finer) {
  block b;
  plan_options o;
  o.chosen_policy = policy::fp8;
  const plan p = make_plan(b.g.made(), o);
  EXPECT_EQ(findings_of(p), "");
  const auto choice = [&](storage_id s) { return p.choices[s]; };
  // n is read with 16 bits at least, so z, from which it follows, is kept in 16 bits, or n is kept itself.
  const stash_choice n = choice(b.n), z = choice(b.z);
  if (n.kind == stash_kind::recompute) {
    EXPECT_TRUE(z.kind == stash_kind::raw || z.stored.values == value_format::fp16) << to_string(z.stored);
  } else {
    EXPECT_NE(n.stored.values, value_format::fp8_e4m3);
  }
  EXPECT_EQ(choice(b.product).kind, stash_kind::recompute);
}

TEST(recipes, a_chain_that_ends_in_a_norm_has_no_mask) {
  generic_graph b;
  const storage_id x = b.map(map_elements, 1.0), z = b.map(map_elements, 1.0), y = b.map(map_elements, 1.0);
  b.forward({}, {x});
  b.forward({x}, {z});
  const auto vector = [&b](storage_role role) {
    const storage_id s = b.add(role, map_elements, 1.0);
    storage& made = b.made().storages[s];
    std::swap(made.fixed_bytes, made.bytes_per_sample);
    return s;
  };
  op& norm = b.forward({z}, {y});
  norm.kind = op_kind::batch_norm;
  norm.attributes.fused_relu = true;
  norm.parameters = {vector(storage_role::weight), vector(storage_role::weight),
                     vector(storage_role::statistic), vector(storage_role::statistic)};
  norm.parameters_written = {vector(storage_role::saved_statistic), vector(storage_role::saved_statistic)};
  b.backward({{read(y, need::sign)}});
  b.backward({{read(y, need::value)}});
  b.backward({{read(x, need::value)}});
  add_recipes(b.made(), std::vector<op_id>{1_op, 2_op});
  ASSERT_EQ(b.made().recipes.size(), 1U);
  for (const policy chosen : {policy::lossless, policy::fp16, policy::fp8}) {
    plan_options o;
    o.chosen_policy = chosen;
    EXPECT_EQ(findings_of(make_plan(b.made(), o)), "") << to_string(chosen);
  }
}

TEST(recipes, plans_for_speed_weigh_their_time) {
  block b;
  graph g = b.g.made();
  for (op& o : g.ops)
    o.seconds = 1e-3;
  plan_options o;
  o.model = find_machine("h200");
  const plan roomy = make_plan(g, o);
  EXPECT_EQ(findings_of(roomy), "");
  for (const stash_choice& c : roomy.choices)
    EXPECT_NE(c.kind, stash_kind::recompute) << "there is memory for everything";
  plan_options smallest;
  const std::int64_t least = make_plan(g, smallest).sizes.planned_peak_total;
  o.budget_bytes = least;
  const plan tight = make_plan(g, o);
  EXPECT_EQ(findings_of(tight), "");
  EXPECT_GT(tight.times.simulated_ms, roomy.times.simulated_ms);
  EXPECT_LE(tight.times.bound_ms, tight.times.simulated_ms);
  EXPECT_NE(explain(tight).find(": +"), std::string::npos) << explain(tight);
}

TEST(recipes, every_planted_fault_is_noticed) {
  block b;
  const plan good = make_plan(b.g.made(), {});
  ASSERT_EQ(findings_of(good), "");
  const auto again = [&](plan& p, op_id o) -> step& {
    const auto found = std::find_if(p.steps.begin(), p.steps.end(), [o](const step& s) {
      return s.kind == step_kind::recompute && s.op == o;
    });
    EXPECT_NE(found, p.steps.end());
    return *found;
  };
  const auto buffer_of = [](plan& p, buffer_id id) -> buffer& { return p.buffers[id]; };
  struct fault {
    const char* name;
    plan_fault expected;
    std::function<void(plan&)> plant;
  };
  const std::vector<fault> faults{
      {"another map as source", plan_fault::missing_value,
       [&](plan& p) { again(p, block::norm).inputs[0] = again(p, block::multiply).inputs[1]; }},
      {"a source that is freed early", plan_fault::bad_lifetime,
       [&](plan& p) { buffer_of(p, again(p, block::norm).inputs[0]).last_step = 3; }},
      {"a source that is not kept", plan_fault::illegal_encoding, [&](plan& p) { p.choices[b.z] = {}; }},
      {"a source that is computed again itself", plan_fault::illegal_encoding,
       [&](plan& p) {
         p.choices[b.product].recipe = p.network.recipes.id_of(
             std::find_if(p.network.recipes.begin(), p.network.recipes.end(),
                          [&](const recipe& r) { return r.target == b.product && r.ops.size() == 1; }));
       }},
      {"another target's recipe", plan_fault::illegal_encoding,
       [&](plan& p) { p.choices[b.product].recipe = p.choices[b.n].recipe; }},
      {"no recipe", plan_fault::illegal_encoding, [&](plan& p) { p.choices[b.product].recipe = no_id; }},
      {"a step left out", plan_fault::missing_value,
       [&](plan& p) { again(p, block::norm).op = block::activation; }},
      {"an op that no recipe runs", plan_fault::bad_reference,
       [&](plan& p) { again(p, block::norm).op = 0_op; }},
      {"one input too few", plan_fault::bad_reference,
       [&](plan& p) { again(p, block::multiply).inputs.pop_back(); }},
      {"a workspace that is too small", plan_fault::bad_size,
       [&](plan& p) { buffer_of(p, again(p, block::norm).outputs[0]).bytes = 64; }},
      {"a recipe that leaves a source out", plan_fault::bad_graph,
       [&](plan& p) { p.network.recipes.back().sources.pop_back(); }},
      {"a recipe of no op", plan_fault::bad_graph, [&](plan& p) { p.network.recipes.back().ops.clear(); }},
  };
  for (const fault& f : faults) {
    plan p = good;
    f.plant(p);
    const std::vector<plan_finding> found = validate(p);
    EXPECT_TRUE(
        std::any_of(found.begin(), found.end(), [&](const plan_finding& x) { return x.fault == f.expected; }))
        << f.name << ": " << findings_of(p);
  }
}

TEST(recipes, an_exact_need_is_not_served_by_rounded_sources) {
  block b;
  b.g.made().ops[op_id(7)].alternatives[0].reads[0].what = need::exact_value;  // of the product
  plan p = make_plan(b.g.made(), {});
  ASSERT_EQ(findings_of(p), "");
  ASSERT_EQ(p.choices[b.product].kind, stash_kind::recompute);
  p.chosen_policy = policy::fp16;
  stash_choice& gate = p.choices[b.gate];
  gate.kind = stash_kind::encoded;
  gate.stored = {.kind = encoding_kind::cast, .values = value_format::fp16};
  const std::vector<plan_finding> found = validate(p);
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const plan_finding& x) {
    return x.fault == plan_fault::illegal_encoding && x.message.find("does not serve") != std::string::npos;
  })) << findings_of(p);
}

// ---- all there is, tried -------------------------------------------------------------------------------

/// Maps without zeros, of which each is made of up to two earlier ones and read by one op.
graph random_chains(std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  const auto below = [&](int n) { return static_cast<int>(dice() % static_cast<std::uint64_t>(n)); };
  generic_graph b;
  const int maps = 3 + below(4);
  std::vector<op_id> cheap;
  for (int k = 0; k < maps; ++k) {
    std::vector<storage_id> from;
    for (storage_id s(std::max(0, k - 2)); s < storage_id(k); ++s)
      if (below(3) > 0) from.push_back(s);
    b.forward(from, {b.map(64 * (1 + below(8)), 1.0)});
    if (!from.empty() && below(3) > 0) cheap.push_back(op_id(k));
  }
  for (storage_id s(maps); s-- > 0_storage;)
    if (below(5) > 0) b.backward({{read(s, below(2) == 0 ? need::value : need::exact_value)}});
  add_recipes(b.made(), cheap);
  return b.made();
}

/// The least sum of live bytes over all ways to keep every map that is read raw, or by one of its recipes
/// from maps that are kept raw.
std::int64_t least_of_all(const graph& g) {
  const recipe_facts facts(g);
  const scheduler steps(g);
  selection s;
  s.choices.resize(g.storages.size());
  for (const op& o : g.ops)
    s.alternative.push_back(o.alternatives.empty() ? -1 : 0);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const auto legal = [&](const stash_choice& c) {
    if (c.kind != stash_kind::recompute) return true;
    const std::vector<storage_id>& sources = g.recipes[c.recipe].sources;
    return std::all_of(sources.begin(), sources.end(),
                       [&](storage_id x) { return s.choices[x].kind == stash_kind::raw; });
  };
  const std::function<void(std::size_t)> choose = [&](std::size_t k) {
    if (k == g.storages.size()) {
      if (!std::all_of(s.choices.begin(), s.choices.end(), legal)) return;
      const id_vector<step_number, std::int64_t> live = live_bytes(steps.build(s, {}));
      least = std::min(least, *std::max_element(live.begin(), live.end()));
      return;
    }
    stash_choice& c = s.choices[storage_id(k)];
    c = {};
    if (!facts.is_read(storage_id(k))) return choose(k + 1);
    c.kind = stash_kind::raw;
    c.bytes_after = g.storages[storage_id(k)].bytes(g.batch);
    choose(k + 1);
    for (const recipe_id r : g.recipes.ids()) {
      if (g.recipes[r].target != storage_id(k)) continue;
      c = {};
      c.kind = stash_kind::recompute;
      c.stored.kind = encoding_kind::shape_only;
      c.recipe = r;
      choose(k + 1);
    }
  };
  choose(0);
  return least;
}

TEST(recipes, small_graphs_get_the_best_of_all_plans) {
  std::uint64_t with_recipes = 0, missed = 0, used = 0;
  const std::uint64_t graphs = stash_test::cases(1000);
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE(seed);
    const graph g = random_chains(seed);
    check_graph(g);
    if (g.recipes.empty()) continue;
    ++with_recipes;
    plan_options o;
    o.lay_out = false;
    const plan p = make_plan(g, o);
    ASSERT_EQ(findings_of(p), "");
    const std::int64_t least = least_of_all(g);
    ASSERT_GE(p.sizes.max_live, least);
    ASSERT_LE(p.sizes.bound, least) << "a bound that a plan gets below";
    if (p.sizes.max_live > least) ++missed;
    for (const stash_choice& c : p.choices)
      if (c.kind == stash_kind::recompute) ++used;
  }
  EXPECT_GT(with_recipes, graphs / 4);
  EXPECT_GT(used, graphs / 4);
  EXPECT_EQ(missed, 0U) << "of " << with_recipes;
}

}  // namespace
}  // namespace stash::planner
