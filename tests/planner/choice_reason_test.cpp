// SPDX-License-Identifier: Apache-2.0
// What plans say of why a tensor is kept as it is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/models.hpp"
#include "planner/graph/id_literals.hpp"
#include "planner/graph/machine.hpp"
#include "planner/json/json.hpp"
#include "planner/plan.hpp"

namespace stash::planner {
namespace {

using ::testing::HasSubstr;

std::string reason(const graph& g, const plan_options& options, const std::string& name) {
  const plan p = make_plan(g, options);
  for (const storage_id i : g.storages.ids()) {
    if (g.storages[i].name == name) return p.choices[i].reason;
  }
  return "no such storage";
}

graph lenet() {
  return models::default_graph(models::find("lenet"), 4, 0.5);
}

TEST(reasons, images_say_how_many_bytes_a_value_takes) {
  graph g = lenet();
  storage& image = g.storages[storage_id(0)];
  ASSERT_EQ(image.role, storage_role::image);
  const std::int64_t elements = image.bytes_per_sample;
  EXPECT_EQ(reason(g, {}, image.name), "images are kept as they came, one byte per value");
  for (const dtype type : {dtype::f16, dtype::bf16, dtype::f32, dtype::s32}) {
    const auto size = static_cast<std::int64_t>(size_of(type));
    image.type = type;
    image.bytes_per_sample = elements * size;
    const plan p = make_plan(g, {});
    EXPECT_EQ(p.choices[storage_id(0)].reason, std::string("images are kept as they came, ") +
                                                   (size == 2 ? "two" : "four") + " bytes per value");
    EXPECT_THAT(explain(p), HasSubstr(p.choices[storage_id(0)].reason));
  }
}

/// A generic op whose backward pass reads its input, its output and what it keeps in addition.
graph generic_graph(const std::string& type, const std::string& auxiliary) {
  const std::string bytes = type == "u8" ? "64" : "256";
  return graph_from_json(
      R"({"format":"stash.graph","version":1,"name":"generic","batch":1000,"storages":[)"
      R"({"name":"input","role":"image","type":"f32","shape":[64],"bytes_per_sample":256},)"
      R"({"name":"map","role":"feature_map","type":")" +
      type + R"(","shape":[64],"bytes_per_sample":)" + bytes +
      R"(},)"
      R"({"name":"statistics","role":"auxiliary","type":")" +
      auxiliary +
      R"(","shape":[64],"bytes_per_sample":256},)"
      R"({"name":"out","role":"feature_map","type":"f32","shape":[64],"bytes_per_sample":256},)"
      R"({"name":"gradient","role":"gradient","type":"f32","shape":[64],"bytes_per_sample":256}],"ops":[)"
      R"({"name":"first","kind":"generic","stage":"forward","inputs":[{"storage":0}],"outputs":[{"storage":1}]},)"
      R"({"name":"second","kind":"generic","stage":"forward","inputs":[{"storage":1}],"outputs":[{"storage":3}],)"
      R"("optional_outputs":[2]},)"
      R"({"name":"second/backward","kind":"generic","stage":"backward","forward_op":1,)"
      R"("outputs":[{"storage":4}],"alternatives":[{"form":"any","reads":[{"storage":1,"need":"value"},)"
      R"({"storage":2,"need":"value"}]}]},)"
      R"({"name":"first/backward","kind":"generic","stage":"backward","forward_op":0,)"
      R"("inputs":[{"storage":4}],"alternatives":[{"form":"any","reads":[]}]}],"recompute":[]})");
}

TEST(reasons, what_has_no_other_form_costs_something) {
  for (const char* const type : {"s32", "u8"}) {
    const graph g = generic_graph(type, "f32");
    EXPECT_EQ(reason(g, {}, "map"), "integers have no smaller form") << type;
    EXPECT_EQ(reason(g, {}, "statistics"), "what an op keeps in addition to its outputs stays as it is");
  }
}

TEST(reasons, what_the_user_said) {
  const graph g = models::default_graph(models::find("vgg_small"), 4, 0.5);
  const std::string name = [&] {
    const plan p = make_plan(g, {});
    for (const storage_id i : p.choices.ids()) {
      if (p.choices[i].stored.kind == encoding_kind::bitmap) return g.storages[i].name;
    }
    return std::string();
  }();
  ASSERT_NE(name, "");
  plan_options options;
  options.tensors = {{name, {"raw"}}};
  EXPECT_EQ(reason(g, options, name), "a rule for this tensor says how it may be kept");
  options.tensors = {};
  options.force = "raw";
  EXPECT_EQ(reason(g, options, name), "keeping tensors as they are was asked for");
}

TEST(reasons, plans_for_a_machine_do_not_speak_of_the_peak) {
  plan_options options;
  options.model = find_machine("a100");
  const plan p = make_plan(lenet(), options);
  int raw = 0;
  for (const storage_id i : p.choices.ids()) {
    const stash_choice& c = p.choices[i];
    if (c.kind != stash_kind::raw || p.network.storages[i].role != storage_role::feature_map) continue;
    ++raw;
    EXPECT_THAT(c.reason, ::testing::AnyOf("the machine's memory suffices without encoding it",
                                           HasSubstr("no allowed encoding")));
  }
  EXPECT_GT(raw, 0);
  options.chosen_policy = policy::lms;
  options.swap = true;
  EXPECT_EQ(make_plan(lenet(), options).choices[storage_id(0)].reason,
            "images are kept as they came, one byte per value");
  for (const stash_choice& c : make_plan(lenet(), options).choices) {
    if (c.kind == stash_kind::raw && c.reason.find("images") != 0) {
      EXPECT_EQ(c.reason, "the policy encodes nothing");
    }
  }
}

TEST(reasons, what_is_computed_again_names_what_makes_it) {
  plan_options options;
  options.force = "recompute";
  const graph norms = models::default_graph(models::find("resnet20"), 16, 0.5);
  int of_norms = 0;
  for (const stash_choice& c : make_plan(norms, options).choices) {
    if (c.kind != stash_kind::recompute) continue;
    ++of_norms;
    EXPECT_THAT(c.reason, HasSubstr("computed again from the kept input of the norm, "));
  }
  EXPECT_GT(of_norms, 0);
  graph g = generic_graph("f32", "f32");
  g.ops[2_op].alternatives[0].reads.push_back({3_storage, need::value, {}});
  g.recipes.push_back({3_storage, {1_storage}, {1_op}});
  EXPECT_EQ(reason(g, options, "out"), "computed again from the kept input of second, bit for bit");
}

}  // namespace
}  // namespace stash::planner
