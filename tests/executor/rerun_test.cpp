// SPDX-License-Identifier: Apache-2.0
// A step is a transaction: when a map outgrows its slot and the overflow arena, or its bytes are damaged,
// nothing of the step remains, and run again with more capacity it gives what a step that fitted at once
// gives.

#include <functional>

#include "executor/training_support.hpp"

namespace stash::executor::testing {
namespace {

using planner::network;
using planner::node_id;
using planner::policy;
using planner::stash_kind;

constexpr std::int64_t batch = 8;
constexpr int sparse_steps = 3, dense_steps = 3;

// Dropout, batch norm and a map that is read as values: everything that a rerun could disturb.
network mixed_network() {
  network n("mixed");
  node_id x = n.conv2d("conv1", n.input(16, 16, 1), 8, {3, 3}, {1, 1}, {1, 1});
  x = n.relu("relu1", n.batch_norm("norm1", x));
  x = n.dropout("dropout1", x, 0.25F);
  x = n.relu("relu2", n.conv2d("conv2", x, 16, {3, 3}, {1, 1}, {1, 1}));
  x = n.relu("relu3", n.conv2d("conv3", x, 8, {3, 3}, {1, 1}, {1, 1}));
  x = n.dense("fc", n.dropout("dropout2", n.flatten("flatten", x), 0.5F), 10);
  n.softmax_cross_entropy("loss", x);
  return n;
}

planner::graph graph_named(const std::string& name) {
  return name == "mixed" ? make_graph(mixed_network(), batch) : make_graph(name, batch);
}

using batch_of_step = std::function<image_batch(std::int64_t)>;

training_log train_on(trainer& t, int steps, const batch_of_step& batches) {
  training_log log;
  for (int i = 0; i < steps; ++i) {
    const image_batch b = batches(t.steps());
    log.losses.push_back(t.step(b.images, b.labels, {}).loss);
    log.hashes.push_back(t.current().parameters_sha256());
  }
  log.reruns = t.reruns();
  return log;
}

std::unique_ptr<trainer> start(const planner::graph& g, const trainer_options& o, const image_batch& first) {
  return std::make_unique<trainer>(g, o, first.images, first.labels);
}

trainer_options bitmaps() {
  trainer_options o = make_options(policy::lossless);
  o.plan.force = "bitmap";
  return o;
}

bool keeps_sparse_maps(const planner::plan& p) {
  return std::any_of(p.choices.begin(), p.choices.end(), [](const planner::stash_choice& c) {
    const bool sparse = c.stored.kind == encoding_kind::bitmap || c.stored.kind == encoding_kind::csr;
    return c.kind == stash_kind::encoded && sparse;
  });
}

// ---- density that grows ----------------------------------------------------------------------------

class density_jump : public ::testing::TestWithParam<std::string> {};

TEST_P(density_jump, reruns_and_changes_nothing) {
  const planner::graph g = graph_named(GetParam());
  const batch_of_step batches = [&](std::int64_t step) {
    return step < sparse_steps ? make_sparse_batch(g, step, 1) : make_batch(g, step);
  };
  const auto unplanned = start(g, make_options(policy::none), batches(0));
  const training_log expected = train_on(*unplanned, sparse_steps + dense_steps, batches);
  EXPECT_EQ(expected.reruns, 0);

  for (const std::string force : {"bitmap", ""}) {
    trainer_options o = bitmaps();
    o.plan.force = force;
    // The arena is larger than what sparse forms save of so few small maps.
    if (force.empty() && GetParam() == "lenet") o.plan.overflow_share = 0.0;
    const auto t = start(g, o, batches(0));
    ASSERT_TRUE(keeps_sparse_maps(t->current().current_plan()));
    struct heard {
      int grown = 0, late = 0, reruns = 0;
    } found_events;
    t->events = {[](void* user, const event& what) {
                   auto& h = *static_cast<heard*>(user);
                   if (what.kind == event_kind::rerun) ++h.reruns;
                   if (what.kind != event_kind::overflow) return;
                   ++h.grown;
                   if (what.step >= sparse_steps) ++h.late;
                   EXPECT_FALSE(what.tensor.empty());
                   EXPECT_GT(what.required_bytes, what.available_bytes);
                 },
                 &found_events};
    const training_log found = train_on(*t, sparse_steps + dense_steps, batches);
    EXPECT_GT(found.reruns, 0) << "forced: " << force;
    EXPECT_GE(found_events.grown, found.reruns);
    EXPECT_EQ(found_events.reruns, found.reruns);
    // After a norm the grey images of a batch are no zeros: there the first batch is dense already.
    if (GetParam() != "mixed") {
      EXPECT_GT(found_events.late, 0) << "forced: " << force;
    }
    expect_identical(expected, found);
    EXPECT_EQ(t->steps(), sparse_steps + dense_steps);
  }
}

TEST_P(density_jump, plan_with_densities_that_were_too_low) {
  const planner::graph g = graph_named(GetParam());
  const batch_of_step batches = [&](std::int64_t step) { return make_batch(g, step); };
  const auto unplanned = start(g, make_options(policy::none), batches(0));
  planner::graph low = g;
  for (planner::storage& s : low.storages)
    s.density = std::min(s.density, s.role == planner::storage_role::feature_map ? 0.02 : 1.0);
  const trainer_options o = bitmaps();
  trainer t(planner::make_plan(low, o.plan), o);
  const training_log found = train_on(t, dense_steps, batches);
  EXPECT_GT(found.reruns, 0);
  expect_identical(train_on(*unplanned, dense_steps, batches), found);
}

INSTANTIATE_TEST_SUITE_P(networks, density_jump, ::testing::Values("mixed", "lenet", "vgg_small", "resnet20"),
                         [](const auto& p) { return p.param; });

std::uint64_t overflow_used(const executor& e) {
  std::uint64_t bytes = 0;
  for (const stash_observation& o : e.observations())
    bytes += o.overflow_bytes;
  return bytes;
}

TEST(overflow_arena, takes_what_a_slot_cannot) {
  const planner::graph g = graph_named("mixed");
  const batch_of_step batches = [&](std::int64_t step) {
    return step < 1 ? make_sparse_batch(g, step, 4) : make_sparse_batch(g, step, 5);
  };
  const auto unplanned = start(g, make_options(policy::none), batches(0));
  trainer_options o = bitmaps();
  o.plan.slot_margin = 0.0;
  o.plan.overflow_share = 0.5;
  const auto t = start(g, o, batches(0));
  const training_log found = train_on(*t, 2, batches);
  EXPECT_EQ(found.reruns, 0);
  EXPECT_GT(overflow_used(t->current()), 0U);
  EXPECT_LE(overflow_used(t->current()),
            static_cast<std::uint64_t>(t->current().current_plan().overflow_bytes));
  for (const stash_observation& s : t->current().observations())
    EXPECT_TRUE(s.stored);
  expect_identical(train_on(*unplanned, 2, batches), found);
}

// A batch that the first plan cannot hold, before and after a committed step.
TEST(discarded_step, leaves_every_parameter_as_it_was) {
  const planner::graph g = graph_named("mixed");
  const image_batch sparse = make_sparse_batch(g, 0, 1), dense = make_batch(g, 1);
  const auto t = start(g, bitmaps(), sparse);
  executor& e = t->current();
  const auto discard = [&](std::int64_t step) {
    const std::string before = e.parameters_sha256();
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(e.train_step(dense.images, dense.labels, step, {}).committed);
      EXPECT_EQ(e.parameters_sha256(), before);
    }
    const std::vector<stash_observation> seen = e.observations();
    EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), [](const stash_observation& o) { return !o.stored; }));
  };
  discard(0);
  ASSERT_TRUE(e.train_step(sparse.images, sparse.labels, 0, {}).committed) << "it can go on";
  const auto unplanned = start(g, make_options(policy::none), sparse);
  unplanned->step(sparse.images, sparse.labels, {});
  EXPECT_EQ(e.parameters_sha256(), unplanned->current().parameters_sha256());
  discard(1);
}

// What a rerun must not disturb is there: the decisions of dropout belong to the number of the step.
TEST(dropout, draws_anew_in_every_step_and_alike_when_a_step_is_repeated) {
  const planner::graph g = graph_named("mixed");
  const image_batch b = make_batch(g, 0);
  const auto t = start(g, make_options(policy::none), b);
  executor& e = t->current();
  const double first = e.gradient_step(b.images, b.labels, 0).loss;
  EXPECT_NE(first, e.gradient_step(b.images, b.labels, 1).loss);
  EXPECT_EQ(first, e.gradient_step(b.images, b.labels, 0).loss);
}

TEST(growth_beyond_the_budget, is_refused_and_the_last_committed_step_stays) {
  const planner::graph g = graph_named("mixed");
  const image_batch sparse = make_sparse_batch(g, 0, 1), dense = make_batch(g, 1);
  trainer_options o = make_options(policy::lossless);
  o.plan.budget_bytes = 1;
  try {
    start(g, o, sparse);
    FAIL() << "a budget of one byte was accepted";
  } catch (const error& e) {
    o.plan.budget_bytes = budget_in(e);
  }
  const auto t = start(g, o, sparse);
  const auto refuse = [&] {
    const std::int64_t steps = t->steps();
    const std::string before = t->current().parameters_sha256();
    for (int i = 0; i < 2; ++i) {
      try {
        t->step(dense.images, dense.labels, {});
        FAIL() << "expected error(infeasible_budget)";
      } catch (const error& e) {
        EXPECT_GT(budget_in(e), o.plan.budget_bytes);
      }
      EXPECT_EQ(t->steps(), steps);
      EXPECT_EQ(t->current().parameters_sha256(), before);
    }
  };
  refuse();
  t->step(sparse.images, sparse.labels, {});
  const auto unplanned = start(g, make_options(policy::none), sparse);
  unplanned->step(sparse.images, sparse.labels, {});
  EXPECT_EQ(t->current().parameters_sha256(), unplanned->current().parameters_sha256());
  refuse();
}

// ---- damaged bytes ---------------------------------------------------------------------------------

// Damages the stored form of one storage between the forward and the backward pass.
struct damage {
  std::string name;
  network net;
  std::string force, storage;
  std::function<void(std::span<std::byte>)> apply;
};

constexpr std::size_t relu2_elements = batch * 16 * 16 * 16;
constexpr std::size_t relu2_table = relu2_elements / 8;
constexpr std::size_t relu2_payload = relu2_table + relu2_elements / 1024 * 4;

void set_entry(std::span<std::byte> stored, std::size_t tile, std::uint32_t entry) {
  std::memcpy(stored.data() + relu2_table + 4 * tile, &entry, sizeof entry);
}

network pooling_network(bool with_relu) {
  network n("pooling");
  node_id x = n.conv2d("conv", n.input(16, 16, 1), 4, {3, 3}, {1, 1}, {1, 1});
  if (with_relu) x = n.relu("relu", x);
  x = n.dense("fc", n.flatten("flatten", n.max_pool("pool", x, 3, 2)), 10);
  n.softmax_cross_entropy("loss", x);
  return n;
}

class damaged_stash : public ::testing::TestWithParam<damage> {};

TEST_P(damaged_stash, is_reported_and_nothing_changes) {
  const damage& c = GetParam();
  const planner::graph g = make_graph(c.net, batch);
  trainer_options o = make_options(policy::lossless);
  o.plan.force = c.force;
  const image_batch b = make_batch(g, 0);
  const auto t = start(g, o, b);
  t->step(b.images, b.labels, {});
  const planner::plan& p = t->current().current_plan();
  const planner::buffer_id kept = kept_buffer(p, storage_named(g, c.storage));
  ASSERT_TRUE(kept.valid());
  const std::size_t last_forward = first_backward_step(p) - 1;
  const std::string before = t->current().parameters_sha256();

  t->set_after_step([&](std::size_t step) {
    if (step == last_forward) c.apply(t->current().buffer_bytes(kept));
  });
  try {
    t->step(b.images, b.labels, {});
    FAIL() << "expected error(corrupt_data)";
  } catch (const error& e) {
    EXPECT_EQ(e.code(), errc::corrupt_data) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(c.storage), std::string_view::npos) << e.what();
  }
  EXPECT_EQ(t->current().parameters_sha256(), before);
  EXPECT_EQ(t->steps(), 1);

  t->set_after_step(nullptr);
  t->step(b.images, b.labels, {});
  const auto unplanned = start(g, make_options(policy::none), b);
  for (int i = 0; i < 2; ++i)
    unplanned->step(b.images, b.labels, {});
  EXPECT_EQ(t->current().parameters_sha256(), unplanned->current().parameters_sha256());
}

std::vector<damage> damages() {
  const auto fill = [](std::span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xCC});
  };
  return {
      {"entry_of_no_offset", mixed_network(), "bitmap", "relu2",
       [](std::span<std::byte> bytes) { set_entry(bytes, 3, 0x80000000U); }},
      {"entry_before_the_payloads", mixed_network(), "bitmap", "relu2",
       [](std::span<std::byte> bytes) { set_entry(bytes, 3, 0); }},
      {"entry_beyond_the_slot", mixed_network(), "bitmap", "relu2",
       [](std::span<std::byte> bytes) { set_entry(bytes, 0, 0x3FFFFFFFU); }},
      {"entry_beyond_the_overflow_arena", mixed_network(), "bitmap", "relu2",
       [](std::span<std::byte> bytes) { set_entry(bytes, 0, 0x7FFFFFFFU); }},
      {"entry_of_a_tile_never_stored", mixed_network(), "bitmap", "relu2",
       [](std::span<std::byte> bytes) { set_entry(bytes, 1, 0xC0000000U); }},
      // 12 is no tap of a window of nine.
      {"argmax_outside_its_window", pooling_network(false), "window_index", "pool.index", fill},
      {"joint_code_outside_its_window", pooling_network(true), "relu_pool", "pool.code", fill},
  };
}

INSTANTIATE_TEST_SUITE_P(kinds, damaged_stash, ::testing::ValuesIn(damages()),
                         [](const auto& p) { return p.param.name; });

// ---- verification ----------------------------------------------------------------------------------

// Registered a second time with STASH_VERIFY=1 in the environment.
TEST(verification, notices_a_flipped_payload_bit_and_nothing_else) {
  const planner::graph g = graph_named("mixed");
  const image_batch b = make_batch(g, 0);
  const auto unplanned = start(g, make_options(policy::none), b);
  const auto t = start(g, bitmaps(), b);
  for (int i = 0; i < 2; ++i) {
    unplanned->step(b.images, b.labels, {});
    t->step(b.images, b.labels, {});
  }
  const std::string before = t->current().parameters_sha256();
  EXPECT_EQ(before, unplanned->current().parameters_sha256());

  const planner::plan& p = t->current().current_plan();
  const planner::buffer_id kept = kept_buffer(p, storage_named(g, "relu2"));
  ASSERT_TRUE(kept.valid());
  const std::size_t last_forward = first_backward_step(p) - 1;
  t->set_after_step([&](std::size_t step) {
    if (step == last_forward) t->current().buffer_bytes(kept)[relu2_payload + 2] ^= std::byte{0x40};
  });
  if (verification_enabled()) {
    try {
      t->step(b.images, b.labels, {});
      FAIL() << "expected error(verification_failed)";
    } catch (const error& e) {
      EXPECT_EQ(e.code(), errc::verification_failed) << e.what();
      EXPECT_NE(std::string_view(e.what()).find("relu2"), std::string_view::npos) << e.what();
    }
    EXPECT_EQ(t->current().parameters_sha256(), before);
    t->set_after_step(nullptr);
  }
  t->step(b.images, b.labels, {});
  unplanned->step(b.images, b.labels, {});
  // Without verification a wrong value passes for a value.
  EXPECT_EQ(t->current().parameters_sha256() == unplanned->current().parameters_sha256(),
            verification_enabled());
}

TEST(verification, is_on_where_the_environment_says_so) {
  const char* value = std::getenv("STASH_VERIFY");
  EXPECT_EQ(verification_enabled(), value != nullptr && std::string_view(value) == "1");
}

}  // namespace
}  // namespace stash::executor::testing
