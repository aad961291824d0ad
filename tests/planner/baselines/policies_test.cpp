// SPDX-License-Identifier: Apache-2.0
// Policies with a rule: their choices on a small chain, written out by hand from the papers' rules, and valid
// plans of random graphs that are never faster than the bound.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/baselines/policies.hpp"
#include "planner/budget_planner.hpp"
#include "planner/graph/needs.hpp"
#include "planner/search/fast_problems.hpp"
#include "planner/verify/validator.hpp"
#include "stash/error.hpp"
#include "support/test_depth.hpp"

namespace stash::planner::testing {
namespace {

// Six forward ops, batch 4. In bytes: image 256, a = output of conv1 and relu1 4,096, b = output of conv2
// 4,096, p = output of relu2 and pool 1,024; logits, probabilities and labels take 128, 128 and 64 rounded
// up.
//
//   op   0 conv1  1 relu1  2 conv2  3 relu2+pool  4 fc  5 loss
//   op   6 loss'  7 fc'w  8 fc'x  9 pool'  10 conv2'w  11 conv2'x  12 relu1'  13 conv1'w
//
// Backward reads: p by fc'w (values), b by pool' (only from_x), a by conv2'w (values) and relu1' (sign).
graph chain() {
  network net("chain");
  node_id x = net.input(8, 8, 1);
  x = net.relu("relu1", net.conv2d("conv1", x, 4, {3, 3}, {1, 1}, {1, 1}, true));
  x = net.relu("relu2", net.conv2d("conv2", x, 4, {3, 3}, {1, 1}, {1, 1}, true));
  x = net.max_pool("pool", x, 2, 2);
  net.softmax_cross_entropy("loss", net.dense("fc", net.flatten("flat", x), 5));
  return make_training_graph(net, 4);
}

storage_id output_of(const graph& g, std::string_view op_name) {
  for (const op& o : g.ops) {
    if (o.name == op_name) return o.outputs.at(0).storage;
  }
  throw error(errc::internal, "no such op");
}

struct rule_case {
  graph g = chain();
  plan_options options;
  option_set set;
  problem ticks;
  storage_id a = output_of(g, "conv1"), b = output_of(g, "conv2"), p = output_of(g, "pool");

  explicit rule_case(policy chosen) {
    options.chosen_policy = chosen;
    options.values = {value_format::fp16};
    set = chosen == policy::gist ? gist_options(g, options, 0.0) : make_options(g, options, 0.0);
    item_rules rules;
    rules.smallest_swap = 64;
    rules.swap = chosen != policy::gist;
    ticks = make_problem(g, set, small_machine(), rules, std::int64_t{1} << 40);
  }
  ruled decide(std::int64_t limit, bool all = false) {
    return apply_rule(options.chosen_policy, {g, set, limit, 0, all}, ticks);
  }
  // Storages that a choice moves, in the order of items, and how each comes back.
  std::vector<storage_id> moved(const ruled& r) const {
    std::vector<storage_id> list;
    for (const auto& [s, t] : transfers(r))
      list.push_back(s);
    return list;
  }
  std::vector<std::pair<storage_id, transfer>> transfers(const ruled& r) const {
    std::vector<std::pair<storage_id, transfer>> list;
    for (std::size_t i = 0; i < r.choice.size(); ++i) {
      for (const transfer& t : ticks.items[i].options[static_cast<std::size_t>(r.choice[i])].transfers)
        list.emplace_back(set.components[i].storages[position_of(t.form)], t);
    }
    return list;
  }
  const stash_choice& choice_of(storage_id s) const {
    for (const component& c : set.components) {
      for (std::size_t k = 0; k < c.storages.size(); ++k) {
        if (c.storages[k] == s) return c.configurations.front().choices[k];
      }
    }
    throw error(errc::internal, "not stashed");
  }
};

TEST(policies, the_chain_is_what_the_comments_say) {
  const graph g = chain();
  std::vector<std::string> names;
  for (const op& o : g.ops)
    names.push_back(o.name);
  ASSERT_THAT(names, ::testing::ElementsAre("conv1", "relu1", "conv2", "pool", "fc", "loss", "loss/backward",
                                            "fc/backward_weights", "fc/backward_data", "pool/backward",
                                            "conv2/backward_weights", "conv2/backward_data", "relu1/backward",
                                            "conv1/backward_weights", "sgd_update"));
  EXPECT_EQ(g.at(output_of(g, "conv1")).bytes(4), 4096);
  EXPECT_EQ(output_of(g, "conv1"), output_of(g, "relu1")) << "in place";
  EXPECT_EQ(g.at(output_of(g, "pool")).bytes(4), 1024);
}

TEST(policies, gist_on_the_chain) {
  const rule_case c(policy::gist);
  for (const component& part : c.set.components)
    ASSERT_EQ(part.configurations.size(), 1U) << "a rule leaves no choice";
  // ReLU before pooling: the joint code is the Binarize of the ReLU and the index of the pool in one. So b,
  // which pooling would search its maximum in, is not kept.
  EXPECT_EQ(c.choice_of(c.b).kind, stash_kind::none);
  const op& pool = c.g.op_at(op_id(3));
  bool code = false;
  for (const storage_id s : pool.optional_outputs) {
    const stash_choice& kept = c.choice_of(s);
    if (kept.kind == stash_kind::none) continue;
    EXPECT_EQ(kept.stored.kind, encoding_kind::relu_pool);
    code = true;
  }
  EXPECT_TRUE(code);
  // ReLU before a convolution: half of a's values are zero, csr with fp16 values takes about 1.5 bytes per
  // element (2 for each value and 1 for its index, of one half), fp16 alone 2. relu1' reads the sign, so
  // what is not zero must not become zero.
  const stash_choice& a = c.choice_of(c.a);
  EXPECT_EQ(to_string(a.stored), "csr_fp16");
  EXPECT_EQ(a.stored.underflow, underflow_rule::keep_nonzero);
  EXPECT_LT(a.bytes_after, 2048);
  // A quarter of p is zero: csr would take 2.25 bytes. Everything else gets reduced precision.
  const stash_choice& p = c.choice_of(c.p);
  EXPECT_EQ(p.stored.kind, encoding_kind::cast);
  EXPECT_EQ(p.stored.values, value_format::fp16);
  EXPECT_EQ(p.bytes_after, 512);
  // The loss wants its probabilities bit for bit.
  EXPECT_EQ(c.choice_of(output_of(c.g, "loss")).kind, stash_kind::raw);
}

TEST(policies, gist_keeps_one_bit_of_what_only_signs_are_read) {
  // relu2's output is read by an average pool, whose gradient reads nothing: only relu2' asks for its sign.
  network net("signs");
  node_id x = net.relu("relu", net.conv2d("conv", net.input(8, 8, 1), 4, {3, 3}, {1, 1}, {1, 1}, true));
  x = net.global_avg_pool("mean", x);
  net.softmax_cross_entropy("loss", net.dense("fc", x, 5));
  const graph g = make_training_graph(net, 4);
  const option_set set = gist_options(g, {}, 0.0);
  const storage_id map = output_of(g, "relu");
  for (const component& c : set.components) {
    for (std::size_t k = 0; k < c.storages.size(); ++k) {
      if (c.storages[k] != map) continue;
      EXPECT_EQ(c.configurations[0].choices[k].stored.kind, encoding_kind::sign_mask);
      EXPECT_EQ(c.configurations[0].choices[k].bytes_after, 1024 / 8);
    }
  }
  plan_options rules;
  rules.tensors = {{"*", {"raw"}, false}};
  EXPECT_THROW(gist_options(g, rules, 0.0), error);
}

TEST(policies, swap_only_on_the_chain) {
  // Unused: a from tick 5 to 19, b from 7 to 17, p from 9 to 13. The longest goes first.
  rule_case c(policy::swap_only);
  const std::int64_t everything = std::int64_t{1} << 30;
  EXPECT_THAT(c.moved(c.decide(everything)), ::testing::IsEmpty());
  EXPECT_TRUE(c.decide(everything).late);
  // Kept dense, most is live while pool' runs: image 256, a 4,096, b 4,096, the gradients of p 1,024 and of b
  // 4,096: 13,568. One byte less, and a leaves. Then while conv2'x runs image, a, and the gradients of b and
  // a are there: 12,544. That is the op's own working set, and no swap gets below it.
  EXPECT_THAT(c.moved(c.decide(13'568)), ::testing::IsEmpty());
  EXPECT_THAT(c.moved(c.decide(13'567)), ::testing::ElementsAre(c.a));
  EXPECT_THAT(c.moved(c.decide(12'544)), ::testing::ElementsAre(c.a));
  // Below, everything that can move has moved, and it is not enough.
  EXPECT_THAT(c.moved(c.decide(12'543)), ::testing::UnorderedElementsAre(c.a, c.b, c.p));
  EXPECT_THAT(c.moved(c.decide(everything, true)), ::testing::UnorderedElementsAre(c.a, c.b, c.p))
      << "vDNN-all";
}

TEST(policies, levels_of_the_chain) {
  // A chain has a level per op, but for gradients of weights and data, which do not wait for each other.
  const rule_case c(policy::lms);
  EXPECT_THAT(levels_of(c.g, c.set),
              ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 10, 11, 12, ::testing::Ge(13)));
}

TEST(policies, lms_on_the_chain) {
  // Levels between writer and reader: a 10 - 2 = 8 (relu1 writes it last), b 9 - 3 = 6, p 8 - 4 = 4.
  rule_case c(policy::lms);
  const auto needs = [](std::int64_t bytes) {  // nine tenths of this are just enough
    return (bytes * 10 + 8) / 9;
  };
  // Threshold 8: nothing moves.
  EXPECT_THAT(c.moved(c.decide(needs(13'568))), ::testing::IsEmpty());
  // Threshold 7: a leaves. One level ahead of conv2'w (level 10) is pool' (level 9), when a would be back
  // already: that does not fit into less than 13,568, so smaller thresholds are tried: with 5, b leaves as
  // well, and 4 fits no better. b would be back while fc'x runs, and it is needed by pool' in any case. So
  // nothing fits, the search ends with the smallest threshold, and the simulator will say no.
  const ruled r = c.decide(needs(13'500));
  EXPECT_THAT(c.moved(r), ::testing::UnorderedElementsAre(c.a, c.b, c.p));
  EXPECT_THAT(r.parameters, ::testing::HasSubstr("swapout_threshold 0, swapin_ahead 1"));
  EXPECT_FALSE(r.late);
  // Triggers: a at pool' (op 9), b at fc'w (op 7, level 8), p at loss' (op 6, level 7).
  for (const auto& [s, t] : c.transfers(r))
    EXPECT_EQ(t.earliest, s == c.a ? 18 : s == c.b ? 14 : 12);
}

TEST(policies, lms_goes_further_ahead_where_there_is_memory) {
  // A longer chain, so that the peak is at the turn and not at one op.
  network net("long");
  node_id x = net.input(8, 8, 4);
  for (int i = 0; i < 8; ++i)
    x = net.relu("relu" + std::to_string(i),
                 net.conv2d("conv" + std::to_string(i), x, 4, {3, 3}, {1, 1}, {1, 1}, true));
  net.softmax_cross_entropy("loss", net.dense("fc", net.flatten("flat", x), 5));
  const graph g = make_training_graph(net, 4);
  plan_options o;
  o.chosen_policy = policy::lms;
  const option_set set = make_options(g, o, 0.0);
  item_rules rules;
  rules.smallest_swap = 64;
  const problem fresh = make_problem(g, set, small_machine(), rules, std::int64_t{1} << 40);
  std::size_t before = 100;
  for (const std::int64_t limit : {24'000, 28'000, 32'000, 36'000, 40'000, 60'000}) {
    problem ticks = fresh;
    const ruled r = apply_rule(policy::lms, {g, set, limit, 0, false}, ticks);
    std::size_t moves = 0;
    for (std::size_t i = 0; i < r.choice.size(); ++i) {
      for (const transfer& t : ticks.items[i].options[static_cast<std::size_t>(r.choice[i])].transfers) {
        ++moves;
        EXPECT_LE(t.earliest, t.needed);
        EXPECT_GT(t.earliest, t.released);
      }
    }
    EXPECT_LE(moves, before) << "more memory, less to move";
    before = moves;
  }
  EXPECT_EQ(before, 0U);
}

TEST(policies, layrub_on_the_chain) {
  // All maps between layers move whatever the limit is, and each comes back while the layer after its own
  // does its backward work: p with loss' (op 6), b with fc' (op 7), a with pool' (op 9).
  rule_case c(policy::layrub);
  const ruled r = c.decide(std::int64_t{1} << 30);
  ASSERT_THAT(c.moved(r), ::testing::UnorderedElementsAre(c.a, c.b, c.p));
  for (const auto& [s, t] : c.transfers(r))
    EXPECT_EQ(t.earliest, s == c.a ? 18 : s == c.b ? 14 : 12);
  EXPECT_FALSE(r.late);
}

TEST(policies, a_copy_back_waits_for_its_tick) {
  rule_case c(policy::layrub);
  const ruled r = c.decide(std::int64_t{1} << 30);
  step_problem steps = compress(c.ticks);
  simulator sim(steps);
  timeline_record record;
  ASSERT_TRUE(sim.run(r.choice, 1e300, &record).feasible);
  for (const simulated_transfer& t : record.transfers) {
    const item_option& o = steps.items[static_cast<std::size_t>(t.item)]
                               .options[static_cast<std::size_t>(r.choice[static_cast<std::size_t>(t.item)])];
    const transfer& x = o.transfers[static_cast<std::size_t>(t.index)];
    EXPECT_GT(x.earliest, 0);
    const double end_before = record.end[static_cast<std::size_t>(x.earliest) - 1];
    EXPECT_GE(t.in_begin, end_before);
  }
}

plan_options fast_options(std::uint64_t seed, policy chosen) {
  plan_options o;
  o.chosen_policy = chosen;
  o.model = small_machine(seed);
  o.swap = swaps(chosen);
  o.smallest_swap = 64;
  o.evaluations = 50;
  return o;
}

TEST(policies, plans_of_random_graphs_are_valid_and_never_faster_than_the_bound) {
  std::size_t plans = 0, moved = 0;
  for (std::uint64_t seed = 0; seed < stash_test::cases(80); ++seed) {
    const graph g = random_graph(seed);
    plan_options all = fast_options(seed, policy::automatic);
    all.values = {value_format::fp16};
    budget_planner ours(g, all);
    for (const int percent : {50, 70, 90, 120}) {
      const std::int64_t budget = ours.baseline_bytes() * percent / 100;
      double bound = 0.0;
      bool possible = true;
      try {
        bound = ours.make(budget).times.bound_ms;
      } catch (const error& e) {
        ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
        possible = false;
      }
      for (const policy chosen : {policy::gist, policy::swap_only, policy::lms, policy::layrub}) {
        try {
          const plan p = budget_planner(g, fast_options(seed, chosen)).make(budget);
          ++plans;
          for (const plan_finding& f : validate(p))
            ADD_FAILURE() << "seed " << seed << ", " << to_string(chosen) << ": " << f.message;
          EXPECT_LE(p.sizes.planned_peak_total, budget);
          EXPECT_GE(p.times.simulated_ms, p.times.bound_ms * (1 - 1e-9));
          if (possible) {
            EXPECT_GE(p.times.simulated_ms, bound * (1 - 1e-9))
                << "seed " << seed << ", " << to_string(chosen) << ", " << percent << " %";
          }
          for (const stash_choice& c : p.choices)
            moved += c.swapped;
        } catch (const error& e) {
          ASSERT_EQ(e.code(), errc::infeasible_budget) << e.what();
          EXPECT_THAT(e.what(), ::testing::HasSubstr("expected at least")) << to_string(chosen);
        }
      }
    }
  }
  EXPECT_GT(plans, stash_test::cases(300));
  EXPECT_GT(moved, stash_test::cases(300));
}

}  // namespace
}  // namespace stash::planner::testing
