// SPDX-License-Identifier: Apache-2.0
#include "planner/verify/validator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "planner/verify/validator_plans.hpp"

namespace stash::planner {

void PrintTo(const plan_finding& f, std::ostream* out) {
  *out << to_string(f.fault) << ": " << f.message;
}

namespace {

using ::testing::IsEmpty;
using testing::make_fp8_plan;
using testing::make_lossless_plan;
using testing::make_plain_plan;
using testing::test_plan;

using mutation = std::function<void(test_plan&)>;

// A number as an id of any kind, or as it is.
struct any_id {
  std::int32_t value;
  template <class Kind>
  operator typed_id<Kind>() const {
    return typed_id<Kind>(value);
  }
  operator std::int32_t() const { return value; }
};

struct planted_fault {
  const char* name;
  plan_fault expected;
  mutation plant;
};

bool reports(const std::vector<plan_finding>& findings, plan_fault fault) {
  return std::any_of(findings.begin(), findings.end(),
                     [fault](const plan_finding& f) { return f.fault == fault; });
}

void expect_all_reported(const std::function<test_plan()>& make, const std::vector<planted_fault>& faults) {
  for (const planted_fault& f : faults) {
    test_plan t = make();
    f.plant(t);
    const std::vector<plan_finding> findings = validate(t.p);
    EXPECT_TRUE(reports(findings, f.expected))
        << f.name << ": expected " << to_string(f.expected) << ", got " << ::testing::PrintToString(findings);
  }
}

std::int32_t& alternative_of(test_plan& t, std::string_view op) {
  return t.p.alternative[t.op_of(op)];
}

op& graph_op(test_plan& t, std::string_view name) {
  return t.p.network.ops[t.op_of(name)];
}

storage& graph_storage(test_plan& t, std::string_view name) {
  return t.p.network.storages[t.storage_of(name)];
}

step& nth_step(test_plan& t, step_kind kind, std::string_view storage, int n = 0) {
  return t.p.steps[t.step_of(kind, storage, n)];
}

// Ends the use of ranges: every buffer is alive all the time, at its own offset.
void spread_out(test_plan& t) {
  std::int64_t offset = 0;
  for (buffer& b : t.p.buffers) {
    b.first_step = 0;
    b.last_step = static_cast<std::int32_t>(t.p.steps.size()) - 1;
    b.offset = offset;
    offset += b.bytes;
  }
  t.update_sizes();
}

// Plans whose faults are not hidden by faults of ranges.
test_plan spread_lossless() {
  test_plan t = make_lossless_plan();
  spread_out(t);
  return t;
}

test_plan spread_fp8() {
  test_plan t = make_fp8_plan();
  spread_out(t);
  return t;
}

test_plan spread_plain() {
  test_plan t = make_plain_plan();
  spread_out(t);
  return t;
}

TEST(validator, accepts_correct_plans) {
  EXPECT_THAT(validate(make_plain_plan().p), IsEmpty());
  EXPECT_THAT(validate(make_lossless_plan().p), IsEmpty());
  EXPECT_THAT(validate(make_fp8_plan().p), IsEmpty());
  EXPECT_THAT(validate(spread_plain().p), IsEmpty());
  EXPECT_THAT(validate(spread_lossless().p), IsEmpty());
  EXPECT_THAT(validate(spread_fp8().p), IsEmpty());
}

TEST(validator, accepts_harmless_changes) {
  const std::vector<std::pair<const char*, mutation>> changes{
      {"a budget that is met exactly", [](test_plan& t) { t.p.budget_bytes = t.p.sizes.planned_peak_total; }},
      {"a larger slot", [](test_plan& t) { t.at("k.enc").bytes += 64; }},
      {"an encode that comes twice",
       [](test_plan& t) { t.duplicate_step(t.step_of(step_kind::encode, "k")); }},
      {"bitmap for a storage read for its sign",
       [](test_plan& t) {
         t.choose("s", stash_kind::encoded, {.kind = encoding_kind::bitmap}, 0.5);
         t.at("s.enc").bytes = 16384;
       }},
  };
  for (const auto& [name, change] : changes) {
    test_plan t = spread_lossless();
    change(t);
    std::int64_t offset = 0;
    for (buffer& b : t.p.buffers) {
      b.offset = offset;
      offset += b.bytes;
    }
    const std::int64_t budget = t.p.budget_bytes;
    t.update_sizes();
    t.p.budget_bytes = budget;
    EXPECT_THAT(validate(t.p), IsEmpty()) << name;
  }
}

TEST(validator, reports_every_shortened_lifetime) {
  for (const auto& make : {make_plain_plan, make_lossless_plan, make_fp8_plan}) {
    const test_plan good = make();
    for (std::size_t i = 0; i < good.p.buffers.size(); ++i) {
      test_plan late = make(), early = make();
      ++late.p.buffers[buffer_id(i)].first_step;
      EXPECT_TRUE(reports(validate(late.p), plan_fault::bad_lifetime)) << "buffer " << i;
      --early.p.buffers[buffer_id(i)].last_step;
      EXPECT_TRUE(reports(validate(early.p), plan_fault::bad_lifetime)) << "buffer " << i;
    }
  }
}

TEST(validator, reports_every_small_buffer) {
  for (const auto& make : {make_plain_plan, make_lossless_plan, make_fp8_plan}) {
    const test_plan good = make();
    for (std::size_t i = 0; i < good.p.buffers.size(); ++i) {
      test_plan t = make();
      t.p.buffers[buffer_id(i)].bytes -= 64;
      EXPECT_TRUE(reports(validate(t.p), plan_fault::bad_size)) << "buffer " << i;
    }
  }
}

TEST(validator, reports_every_misaligned_buffer) {
  const test_plan good = make_lossless_plan();
  for (std::size_t i = 0; i < good.p.buffers.size(); ++i) {
    for (const std::int64_t by : {1, 16, 32, -1}) {
      test_plan moved = make_lossless_plan(), resized = make_lossless_plan();
      moved.p.buffers[buffer_id(i)].offset += by;
      EXPECT_TRUE(reports(validate(moved.p), plan_fault::bad_alignment)) << "buffer " << i;
      resized.p.buffers[buffer_id(i)].bytes += by;
      EXPECT_TRUE(reports(validate(resized.p), plan_fault::bad_alignment)) << "buffer " << i;
    }
  }
}

// Any two buffers that are alive together, one shifted onto the other by a single unit.
TEST(validator, reports_every_overlap) {
  const test_plan good = make_lossless_plan();
  int pairs = 0;
  for (const buffer_id i : good.p.buffers.ids()) {
    for (const buffer_id k : good.p.buffers.ids()) {
      const buffer &a = good.p.buffers[i], &b = good.p.buffers[k];
      if (i == k || a.first_step > b.last_step || b.first_step > a.last_step) continue;
      test_plan t = make_lossless_plan();
      t.p.buffers[i].offset = b.offset + b.bytes - buffer_alignment;
      EXPECT_TRUE(reports(validate(t.p), plan_fault::bad_overlap))
          << "buffers " << i.number() << " and " << k.number();
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 200);
}

TEST(validator, reports_every_dropped_step) {
  for (const auto& make : {make_plain_plan, make_lossless_plan, make_fp8_plan}) {
    const std::size_t n = make().p.steps.size();
    for (std::size_t i = 0; i < n; ++i) {
      test_plan t = make();
      const bool run = t.p.steps[i].kind == step_kind::run;
      t.erase_step(i);
      EXPECT_TRUE(reports(validate(t.p), run ? plan_fault::bad_order : plan_fault::missing_value))
          << "step " << i;
    }
  }
}

TEST(validator, reports_every_op_that_runs_twice) {
  const std::size_t n = make_lossless_plan().p.steps.size();
  for (std::size_t i = 0; i < n; ++i) {
    test_plan t = make_lossless_plan();
    if (t.p.steps[i].kind != step_kind::run) continue;
    t.duplicate_step(i);
    EXPECT_TRUE(reports(validate(t.p), plan_fault::bad_order)) << "step " << i;
  }
}

// The storage that a stash operand of a step is read for; -1 for operands of other lists.
storage_id stash_storage(const plan& p, const step& s, const buffer_id* operand) {
  for (std::size_t i = 0; i < s.stash.size(); ++i) {
    if (&s.stash[i] != operand) continue;
    const std::int32_t chosen = p.alternative[s.op];
    return p.network.op_at(s.op).alternatives[static_cast<std::size_t>(chosen)].reads[i].storage;
  }
  return no_id;
}

// Every operand of every step, pointed at every other buffer and at none: always a fault of some kind. The
// exceptions hold the same values: another buffer of the same storage and form, the map that forward left.
TEST(validator, reports_every_wrong_operand) {
  for (const auto& make : {spread_plain, spread_lossless, spread_fp8}) {
    test_plan t = make();
    const auto ids = buffer_id(t.p.buffers.size());
    const auto same_values = [&](buffer_id right, buffer_id wrong, storage_id read) {
      if (!wrong.valid() || wrong >= ids) return false;
      if (right == no_id) return true;  // an optional output that nobody reads
      const buffer& x = t.p.buffers[right];
      const buffer& y = t.p.buffers[wrong];
      return (x.storage == y.storage && x.form == y.form) ||
             (y.storage == read && y.form == buffer_form::dense);
    };
    for (std::size_t i = 0; i < t.p.steps.size(); ++i) {
      step& s = t.p.steps[i];
      for (auto* list : {&s.inputs, &s.outputs, &s.optional_outputs, &s.stash}) {
        for (buffer_id& operand : *list) {
          const buffer_id right = operand;
          const storage_id read = stash_storage(t.p, s, &operand);
          for (buffer_id wrong(-2); wrong <= ids; ++wrong) {
            if (wrong == right || same_values(right, wrong, read)) continue;
            operand = wrong;
            EXPECT_FALSE(validate(t.p).empty())
                << "step " << i << ", buffer " << right.number() << " -> " << wrong.number();
          }
          operand = right;
        }
      }
    }
    EXPECT_THAT(validate(t.p), IsEmpty());
  }
}

TEST(validator, reports_faults_of_order_and_content) {
  using enum plan_fault;
  expect_all_reported(
      spread_lossless,
      {
          {"pool before relu", bad_order, [](test_plan& t) { t.swap_steps(1, 2); }},
          {"data gradient before weight gradient", bad_order,
           [](test_plan& t) { t.swap_steps(t.run_step("conv4/w"), t.run_step("conv4/d")); }},
          {"update is run", bad_order, [](test_plan& t) { t.run("update"); }},
          {"no steps", bad_order, [](test_plan& t) { t.p.steps.clear(); }},
          {"stash encoded before the in-place relu", missing_value,
           [](test_plan& t) {
             t.swap_steps(t.run_step("pool1"), t.step_of(step_kind::encode, "s"));
             t.swap_steps(t.run_step("relu1"), t.step_of(step_kind::encode, "s"));
           }},
          {"stash encoded before the last slice is written", missing_value,
           [](test_plan& t) {
             const step encode = nth_step(t, step_kind::encode, "k");
             t.p.steps.erase(t.p.steps.begin() +
                             static_cast<std::ptrdiff_t>(t.step_of(step_kind::encode, "k")));
             t.p.steps.insert(t.p.steps.begin() + static_cast<std::ptrdiff_t>(t.run_step("conv4")), encode);
           }},
          {"stash encoded before the relu of one slice", missing_value,
           [](test_plan& t) {
             t.swap_steps(t.run_step("dense"), t.step_of(step_kind::encode, "k"));
             t.swap_steps(t.run_step("relu4"), t.step_of(step_kind::encode, "k"));
           }},
          {"decode before encode", missing_value,
           [](test_plan& t) {
             t.swap_steps(t.step_of(step_kind::encode, "p"), t.step_of(step_kind::decode, "p"));
           }},
          {"decode after its reader", missing_value,
           [](test_plan& t) { t.swap_steps(t.step_of(step_kind::decode, "k"), t.run_step("dense/w")); }},
          {"recompute after its reader", missing_value,
           [](test_plan& t) { t.swap_steps(t.step_of(step_kind::recompute, "b"), t.run_step("conv3/w")); }},
          {"recompute before the statistics are there", missing_value,
           [](test_plan& t) {
             const step early = nth_step(t, step_kind::recompute, "b");
             t.p.steps.erase(t.p.steps.begin() +
                             static_cast<std::ptrdiff_t>(t.step_of(step_kind::recompute, "b")));
             t.p.steps.insert(t.p.steps.begin() + static_cast<std::ptrdiff_t>(t.run_step("norm")), early);
           }},
          {"encoded bytes where a decode is due", illegal_encoding,
           [](test_plan& t) { t.run_of("dense/w").stash = {t.id("k.enc")}; }},
          {"encoded bytes for a slice's sign", illegal_encoding,
           [](test_plan& t) { t.run_of("relu3/b").stash = {t.id("k.enc")}; }},
          {"stash of another map", missing_value,
           [](test_plan& t) { t.run_of("conv4/w").stash = {t.id("k#2")}; }},
          {"code of another map", missing_value,
           [](test_plan& t) { t.run_of("pool1/b").stash = {t.id("s.enc")}; }},
          {"input of another map", missing_value,
           [](test_plan& t) { t.run_of("conv3").inputs = {t.id("c")}; }},
          {"input in encoded form", missing_value,
           [](test_plan& t) { t.run_of("dense").inputs = {t.id("k.enc")}; }},
          {"input never written", missing_value,
           [](test_plan& t) { t.run_of("dense").inputs = {t.id("k#2")}; }},
          {"source overwritten by its recompute", missing_value,
           [](test_plan& t) {
             nth_step(t, step_kind::recompute, "b").outputs = {t.id("c")};
             t.run_of("conv3/w").stash = {t.id("c")};
           }},
          {"relu not in place", bad_reference,
           [](test_plan& t) { t.run_of("relu1").outputs = {t.id("ds")}; }},
          {"relu into another buffer of its map", bad_reference,
           [](test_plan& t) { t.run_of("relu3").outputs = {t.id("k#2")}; }},
          {"output over an input", bad_overlap,
           [](test_plan& t) { t.run_of("conv2").outputs = t.run_of("conv2").inputs; }},
          {"output over a stash", bad_overlap, [](test_plan& t) { t.run_of("norm/b").stash = {t.id("db")}; }},
          {"output to a buffer of another storage", bad_reference,
           [](test_plan& t) { t.run_of("conv2/d").outputs = {t.id("dp")}; }},
          {"output to an encoded buffer", bad_reference,
           [](test_plan& t) { t.run_of("conv2").outputs = {t.id("p.enc")}; }},
          {"code written to a dense buffer", bad_reference,
           [](test_plan& t) { t.run_of("pool1").optional_outputs = {t.id("c")}; }},
          {"code written over the pooled map", bad_overlap,
           [](test_plan& t) { t.run_of("pool1").optional_outputs = {t.id("p")}; }},
          {"code not written", missing_value,
           [](test_plan& t) { t.run_of("pool1").optional_outputs = {buffer_id()}; }},
          {"code written, but not kept", illegal_encoding,
           [](test_plan& t) { t.choose("index", stash_kind::none); }},
          {"decode over the encoded buffer", bad_reference,
           [](test_plan& t) { nth_step(t, step_kind::decode, "p").outputs = {t.id("p.enc")}; }},
          {"decode from the dense buffer", missing_value,
           [](test_plan& t) { nth_step(t, step_kind::decode, "p").inputs = {t.id("p")}; }},
          {"decode of a sign mask", illegal_encoding,
           [](test_plan& t) {
             t.decode("s", "s#2");
             t.at("s#2").last_step = static_cast<std::int32_t>(t.p.steps.size()) - 1;
           }},
          {"encode of a raw storage", illegal_encoding,
           [](test_plan& t) {
             step s = nth_step(t, step_kind::encode, "p");
             s.storage = t.storage_of("c");
             s.inputs = {t.id("c")};
             t.p.steps.push_back(s);
           }},
          {"recompute with the wrong op", bad_reference,
           [](test_plan& t) { nth_step(t, step_kind::recompute, "b").op = t.op_of("conv2"); }},
          {"recompute from the wrong map", missing_value,
           [](test_plan& t) { nth_step(t, step_kind::recompute, "b").inputs = {t.id("p")}; }},
          {"recompute with a mask that is not kept", bad_reference,
           [](test_plan& t) { nth_step(t, step_kind::recompute, "b").inputs.push_back(t.id("s.enc")); }},
      });
}

TEST(validator, reports_references_out_of_range) {
  using enum plan_fault;
  std::vector<planted_fault> faults{
      {"choices too short", bad_reference, [](test_plan& t) { t.p.choices.pop_back(); }},
      {"choices too long", bad_reference, [](test_plan& t) { t.p.choices.emplace_back(); }},
      {"alternatives too short", bad_reference, [](test_plan& t) { t.p.alternative.pop_back(); }},
      {"alternative beyond the last", bad_reference, [](test_plan& t) { alternative_of(t, "norm/b") = 2; }},
      {"no alternative", bad_reference, [](test_plan& t) { alternative_of(t, "relu1/b") = -1; }},
      {"alternative of an op without", bad_reference, [](test_plan& t) { alternative_of(t, "conv1") = 0; }},
      {"too few inputs", bad_reference, [](test_plan& t) { t.run_of("loss").inputs.pop_back(); }},
      {"too many inputs", bad_reference,
       [](test_plan& t) { t.run_of("loss").inputs.push_back(buffer_id(0)); }},
      {"no outputs", bad_reference, [](test_plan& t) { t.run_of("conv1").outputs.clear(); }},
      {"no optional outputs", bad_reference,
       [](test_plan& t) { t.run_of("pool1").optional_outputs.clear(); }},
      {"no stash", bad_reference, [](test_plan& t) { t.run_of("relu1/b").stash.clear(); }},
      {"stash of an op without", bad_reference,
       [](test_plan& t) { t.run_of("conv1").stash = {buffer_id(0)}; }},
      {"encode without input", bad_reference,
       [](test_plan& t) { nth_step(t, step_kind::encode, "p").inputs.clear(); }},
      {"decode without output", bad_reference,
       [](test_plan& t) { nth_step(t, step_kind::decode, "p").outputs.clear(); }},
      {"decode with a stash", bad_reference,
       [](test_plan& t) { nth_step(t, step_kind::decode, "p").stash = {buffer_id(0)}; }},
      {"recompute with three inputs", bad_reference,
       [](test_plan& t) { nth_step(t, step_kind::recompute, "b").inputs.assign(3, t.id("c")); }},
      {"buffer of no storage", bad_reference, [](test_plan& t) { t.at("c").storage = no_id; }},
      {"buffer of a weight", bad_reference,
       [](test_plan& t) { t.at("b").storage = t.storage_of("conv2/weight"); }},
      {"unknown form of buffer", bad_reference,
       [](test_plan& t) { t.at("b").form = static_cast<buffer_form>(9); }},
      {"unknown kind of step", bad_reference,
       [](test_plan& t) { t.run_of("conv2").kind = static_cast<step_kind>(9); }},
      {"an overflow buffer as operand", bad_reference,
       [](test_plan& t) {
         t.at("b").form = buffer_form::overflow;
         t.at("b").storage = no_id;
       }},
      {"an overflow arena without a buffer", bad_reference, [](test_plan& t) { t.p.overflow_bytes = 64; }},
  };
  for (const any_id wrong : {any_id{-2}, any_id{1000}, any_id{std::numeric_limits<std::int32_t>::max()},
                             any_id{std::numeric_limits<std::int32_t>::min()}}) {
    faults.push_back({"op", bad_reference, [wrong](test_plan& t) { t.run_of("conv2").op = wrong; }});
    faults.push_back(
        {"alternative", bad_reference, [wrong](test_plan& t) { alternative_of(t, "norm/b") = wrong; }});
    faults.push_back({"input", bad_reference, [wrong](test_plan& t) {
                        t.run_of("conv2").inputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"output", bad_reference, [wrong](test_plan& t) {
                        t.run_of("conv2").outputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"optional output", bad_reference, [wrong](test_plan& t) {
                        t.run_of("pool1").optional_outputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"stash", bad_reference, [wrong](test_plan& t) {
                        t.run_of("relu1/b").stash = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"encoded storage", bad_reference,
                      [wrong](test_plan& t) { nth_step(t, step_kind::encode, "p").storage = wrong; }});
    faults.push_back({"encode input", bad_reference, [wrong](test_plan& t) {
                        nth_step(t, step_kind::encode, "p").inputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"encode output", bad_reference, [wrong](test_plan& t) {
                        nth_step(t, step_kind::encode, "p").outputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"decoded storage", bad_reference,
                      [wrong](test_plan& t) { nth_step(t, step_kind::decode, "p").storage = wrong; }});
    faults.push_back({"decode input", bad_reference, [wrong](test_plan& t) {
                        nth_step(t, step_kind::decode, "p").inputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"decode output", bad_reference, [wrong](test_plan& t) {
                        nth_step(t, step_kind::decode, "p").outputs = std::vector{buffer_id(wrong.value)};
                      }});
    faults.push_back({"recomputed storage", bad_reference,
                      [wrong](test_plan& t) { nth_step(t, step_kind::recompute, "b").storage = wrong; }});
    faults.push_back({"recompute op", bad_reference,
                      [wrong](test_plan& t) { nth_step(t, step_kind::recompute, "b").op = wrong; }});
    faults.push_back({"buffer storage", bad_reference, [wrong](test_plan& t) { t.at("b").storage = wrong; }});
    faults.push_back({"first step", bad_lifetime, [wrong](test_plan& t) { t.at("b").first_step = wrong; }});
    faults.push_back({"last step", bad_lifetime, [wrong](test_plan& t) { t.at("b").last_step = wrong; }});
    faults.push_back({"graph input", bad_graph,
                      [wrong](test_plan& t) { graph_op(t, "conv2").inputs[0].storage = wrong; }});
    faults.push_back({"graph output", bad_graph,
                      [wrong](test_plan& t) { graph_op(t, "conv2").outputs[0].storage = wrong; }});
    faults.push_back({"graph optional output", bad_graph,
                      [wrong](test_plan& t) { graph_op(t, "pool1").optional_outputs[0] = wrong; }});
    faults.push_back({"graph forward op", bad_graph,
                      [wrong](test_plan& t) { graph_op(t, "relu1/b").forward_op = wrong; }});
    faults.push_back({"graph read", bad_graph, [wrong](test_plan& t) {
                        graph_op(t, "relu1/b").alternatives[0].reads[0].slice.storage = wrong;
                        graph_op(t, "relu1/b").alternatives[0].reads[0].storage = wrong;
                      }});
    faults.push_back({"graph recompute target", bad_graph,
                      [wrong](test_plan& t) { t.p.network.recipes[recipe_id(0)].target = wrong; }});
    faults.push_back({"graph recompute op", bad_graph,
                      [wrong](test_plan& t) { t.p.network.recipes[recipe_id(0)].ops[0] = wrong; }});
    faults.push_back({"graph recipe source", bad_graph,
                      [wrong](test_plan& t) { t.p.network.recipes[recipe_id(0)].sources[0] = wrong; }});
    faults.push_back({"graph channel", bad_graph,
                      [wrong](test_plan& t) { graph_op(t, "relu4").inputs[0].channel_begin = wrong; }});
  }
  expect_all_reported(spread_lossless, faults);
}

TEST(validator, reports_illegal_choices) {
  using enum plan_fault;
  const auto encoded = [](const char* storage, encoding e) {
    return
        [storage, e](test_plan& t) { t.choose(storage, stash_kind::encoded, e, t.choice(storage).density); };
  };
  const encoding fp8_bitmap{.kind = encoding_kind::bitmap, .values = value_format::fp8_e4m3};
  const encoding fp16_bitmap{.kind = encoding_kind::bitmap, .values = value_format::fp16};
  const encoding fp8_cast{.kind = encoding_kind::cast, .values = value_format::fp8_e4m3};
  const encoding fp16_cast{.kind = encoding_kind::cast, .values = value_format::fp16};
  const std::vector<planted_fault> lossless{
      {"fp8 bitmap under lossless", illegal_encoding, encoded("p", fp8_bitmap)},
      {"fp16 bitmap under lossless", illegal_encoding, encoded("p", fp16_bitmap)},
      {"fp8 cast under lossless", illegal_encoding, encoded("p", fp8_cast)},
      {"fp16 cast under lossless", illegal_encoding, encoded("p", fp16_cast)},
      {"a cast to nothing narrower", illegal_encoding, encoded("p", {.kind = encoding_kind::cast})},
      {"fp8 under fp16", illegal_encoding,
       [fp8_cast](test_plan& t) {
         t.p.chosen_policy = policy::fp16;
         t.choose("p", stash_kind::encoded, fp8_cast);
       }},
      {"fp16 under fp8", illegal_encoding,
       [fp16_bitmap](test_plan& t) {
         t.p.chosen_policy = policy::fp8;
         t.choose("p", stash_kind::encoded, fp16_bitmap, 0.75);
       }},
      {"encodings under policy none", illegal_encoding,
       [](test_plan& t) { t.p.chosen_policy = policy::none; }},
      {"unknown policy", illegal_encoding, [](test_plan& t) { t.p.chosen_policy = static_cast<policy>(77); }},
      {"unknown kind of choice", illegal_encoding,
       [](test_plan& t) { t.choice("p").kind = static_cast<stash_kind>(77); }},
      {"unknown encoding", illegal_encoding, encoded("p", {.kind = static_cast<encoding_kind>(77)})},
      {"a mask for values", illegal_encoding, encoded("p", {.kind = encoding_kind::sign_mask})},
      {"nothing for values", illegal_encoding, encoded("p", {.kind = encoding_kind::shape_only})},
      {"no choice for values", illegal_encoding, [](test_plan& t) { t.choose("p", stash_kind::none); }},
      {"raw as an encoding", illegal_encoding, encoded("p", {.kind = encoding_kind::raw})},
      {"a window index of no window", illegal_encoding,
       encoded("p", {.kind = encoding_kind::window_index, .window_taps = 4})},
      {"a window index of another window", illegal_encoding,
       encoded("index", {.kind = encoding_kind::window_index, .window_taps = 9})},
      {"a relu_pool code for a window", illegal_encoding,
       encoded("index", {.kind = encoding_kind::relu_pool, .window_taps = 4})},
      {"a raw window index", illegal_encoding, [](test_plan& t) { t.choose("index", stash_kind::raw); }},
      {"a mask for a window", illegal_encoding, encoded("index", {.kind = encoding_kind::sign_mask})},
      {"encoded images", illegal_encoding, encoded("images", {.kind = encoding_kind::bitmap})},
      {"images not kept", illegal_encoding, [](test_plan& t) { t.choose("images", stash_kind::none); }},
      {"a mask for exact values", illegal_encoding,
       encoded("probabilities", {.kind = encoding_kind::sign_mask})},
      {"rounded probabilities", illegal_encoding,
       [fp16_cast](test_plan& t) {
         t.p.chosen_policy = policy::fp16;
         t.choose("probabilities", stash_kind::encoded, fp16_cast);
       }},
      {"recompute of what has no rule", illegal_encoding,
       [](test_plan& t) { t.choose("p", stash_kind::recompute, {.kind = encoding_kind::shape_only}); }},
      {"recompute that stores values", illegal_encoding,
       [](test_plan& t) { t.choose("b", stash_kind::recompute, {.kind = encoding_kind::bitmap}); }},
      {"recompute without a kept source", illegal_encoding,
       [](test_plan& t) { t.choose("c", stash_kind::none); }},
      {"recompute, but the choice is raw", illegal_encoding,
       [](test_plan& t) { t.choose("b", stash_kind::raw); }},
      {"from_x of a norm with a rounded source", illegal_encoding,
       [fp16_cast](test_plan& t) {
         t.p.chosen_policy = policy::fp16;
         t.choose("c", stash_kind::encoded, fp16_cast);
       }},
      {"an encoded buffer of a raw storage", illegal_encoding,
       [](test_plan& t) { t.choose("s", stash_kind::raw); }},
  };
  expect_all_reported(spread_lossless, lossless);

  const std::vector<planted_fault> fp8{
      {"a sign from a cast to_zero", lost_sign,
       [](test_plan& t) { t.choice("s").stored.underflow = underflow_rule::to_zero; }},
      {"a slice's sign from decoded values to_zero", lost_sign,
       [](test_plan& t) { t.choice("k").stored.underflow = underflow_rule::to_zero; }},
      {"recompute from a rounded source without a mask", illegal_encoding,
       [](test_plan& t) {
         t.choice("b").stored = {.kind = encoding_kind::shape_only};
         nth_step(t, step_kind::recompute, "b").inputs.pop_back();
       }},
      {"recompute that leaves the mask out", bad_reference,
       [](test_plan& t) { nth_step(t, step_kind::recompute, "b").inputs.pop_back(); }},
      {"recompute with another mask", missing_value,
       [](test_plan& t) { nth_step(t, step_kind::recompute, "b").inputs[1] = t.id("s.enc"); }},
      {"mask encoded after the recompute", missing_value,
       [](test_plan& t) { t.swap_steps(t.step_of(step_kind::encode, "b"), t.run_step("conv3/d")); }},
      {"the sign of a recomputed map from rounded values", lost_sign,
       [](test_plan& t) {
         step again = nth_step(t, step_kind::recompute, "b");
         again.inputs[0] = t.id("c#3");
         again.outputs = {t.id("b")};
         t.p.steps.insert(t.p.steps.begin() + static_cast<std::ptrdiff_t>(t.run_step("norm/b")), again);
         t.run_of("norm/b").stash[1] = t.id("b");
       }},
      {"the exact source of a norm from rounded values", illegal_encoding,
       [](test_plan& t) {
         alternative_of(t, "norm/b") = 0;
         t.run_of("norm/b").stash.pop_back();
       }},
      {"the source after its buffer became the target", missing_value,
       [](test_plan& t) { t.run_of("norm/b").stash[0] = t.id("c#2"); }},
      {"rounded values in forward", illegal_encoding,
       [](test_plan& t) {
         step decode = nth_step(t, step_kind::decode, "p");
         t.p.steps.insert(t.p.steps.begin() + static_cast<std::ptrdiff_t>(t.run_step("relu4")), decode);
         t.swap_steps(t.run_step("conv4"), t.step_of(step_kind::encode, "p"));
         t.swap_steps(t.run_step("conv4"), t.step_of(step_kind::decode, "p"));
         t.run_of("conv4").inputs = {t.id("p#2")};
       }},
      {"encoding of rounded values", illegal_encoding,
       [](test_plan& t) {
         step again = nth_step(t, step_kind::encode, "p");
         again.inputs = {t.id("p#2")};
         t.p.steps.insert(t.p.steps.begin() + static_cast<std::ptrdiff_t>(t.run_step("conv2/w")), again);
       }},
      {"a mask of a recomputed map decoded", illegal_encoding,
       [](test_plan& t) {
         step decode = nth_step(t, step_kind::decode, "p");
         decode.storage = t.storage_of("b");
         decode.inputs = {t.id("b.enc")};
         decode.outputs = {t.id("b")};
         t.p.steps.push_back(decode);
       }},
      {"two overflow arenas", bad_reference, [](test_plan& t) { t.p.buffers.push_back(t.at("overflow")); }},
      {"an overflow arena with a storage", bad_reference,
       [](test_plan& t) { t.at("overflow").storage = storage_id(0); }},
      {"an overflow arena that is too small", bad_size, [](test_plan& t) { t.p.overflow_bytes += 1; }},
      {"a negative overflow arena", bad_size, [](test_plan& t) { t.p.overflow_bytes = -64; }},
  };
  expect_all_reported(spread_fp8, fp8);

  expect_all_reported(
      spread_plain,
      {
          {"recompute under policy none", illegal_encoding,
           [](test_plan& t) { t.choose("b", stash_kind::recompute, {.kind = encoding_kind::shape_only}); }},
          {"the pooling index under policy none", illegal_encoding,
           [](test_plan& t) { alternative_of(t, "pool1/b") = 0; }},
          {"the sign of a norm computed again under policy none", illegal_encoding,
           [](test_plan& t) {
             alternative_of(t, "norm/b") = 0;
             t.run_of("norm/b").stash.pop_back();
           }},
          {"a raw map overwritten by another reader's decode", illegal_encoding,
           [](test_plan& t) {
             step decode;
             decode.kind = step_kind::decode;
             decode.storage = t.storage_of("k");
             decode.inputs = {t.id("k")};
             decode.outputs = {t.id("k")};
             t.p.steps.insert(t.p.steps.begin() + static_cast<std::ptrdiff_t>(t.run_step("dense/w")), decode);
           }},
      });
}

TEST(validator, reports_wrong_totals) {
  using enum plan_fault;
  expect_all_reported(
      make_lossless_plan,
      {
          {"planned_peak", bad_totals, [](test_plan& t) { t.p.sizes.planned_peak -= 64; }},
          {"planned_peak_total", bad_totals, [](test_plan& t) { ++t.p.sizes.planned_peak_total; }},
          {"baseline_peak_total", bad_totals, [](test_plan& t) { ++t.p.sizes.baseline_peak_total; }},
          {"parameter_bytes", bad_totals, [](test_plan& t) { t.p.sizes.parameter_bytes = 0; }},
          {"workspace_bytes", bad_totals, [](test_plan& t) { t.p.sizes.workspace_bytes += 1; }},
          {"a baseline below what is there at once", bad_totals,
           [](test_plan& t) {
             const std::int64_t less = t.p.sizes.baseline_peak - 12000;
             t.p.sizes.baseline_peak -= less;
             t.p.sizes.baseline_peak_total -= less;
           }},
          {"a baseline above all maps together", bad_totals,
           [](test_plan& t) {
             t.p.sizes.baseline_peak += 4096;
             t.p.sizes.baseline_peak_total += 4096;
           }},
          {"bytes before", bad_totals, [](test_plan& t) { t.choice("k").bytes_before *= 2; }},
          {"bytes before of nothing", bad_totals, [](test_plan& t) { t.choice("labels").bytes_before = 1; }},
          {"bytes after, raw", bad_totals, [](test_plan& t) { t.choice("c").bytes_after = 1; }},
          {"bytes after, encoded", bad_totals, [](test_plan& t) { t.choice("k").bytes_after -= 1; }},
          {"bytes after, recomputed", bad_totals, [](test_plan& t) { t.choice("b").bytes_after = 64; }},
          {"bytes after of nothing", bad_totals, [](test_plan& t) { t.choice("labels").bytes_after = 16; }},
          {"a lower density than the graph's", bad_size,
           [](test_plan& t) { t.choose("k", stash_kind::encoded, {.kind = encoding_kind::bitmap}, 0.4); }},
          {"a slot without its margin", bad_size, [](test_plan& t) { t.p.slot_margin = 0.2; }},
          {"more than the machine has", over_budget,
           [](test_plan& t) {
             t.p.model.emplace();
             t.p.model->memory_bytes = t.p.sizes.planned_peak_total - 1;
           }},
          {"wall", bad_totals, [](test_plan& t) { t.p.sizes.wall += 1; }},
          {"wall_op", bad_totals, [](test_plan& t) { t.p.sizes.wall_op = t.op_of("conv2"); }},
          {"wall_op out of range", bad_totals, [](test_plan& t) { t.p.sizes.wall_op = no_id; }},
          {"max_live", bad_totals, [](test_plan& t) { t.p.sizes.max_live -= 1; }},
          {"boundary", bad_totals, [](test_plan& t) { t.p.sizes.boundary += 64; }},
          {"a bound above the peak", bad_totals,
           [](test_plan& t) { t.p.sizes.bound = t.p.sizes.planned_peak + 1; }},
          {"a bound that nothing proves", bad_totals,
           [](test_plan& t) { t.p.sizes.bound = proven_peak_bytes(t.p) + 1; }},
          {"a negative bound", bad_totals, [](test_plan& t) { t.p.sizes.bound = -1; }},
          {"a negative budget", bad_totals, [](test_plan& t) { t.p.budget_bytes = -1; }},
          {"a budget missed by one byte", over_budget,
           [](test_plan& t) { t.p.budget_bytes = t.p.sizes.planned_peak_total - 1; }},
          {"a budget met only by the reported peak", over_budget,
           [](test_plan& t) {
             t.p.budget_bytes = t.p.sizes.planned_peak_total - 1;
             t.p.sizes.planned_peak_total = t.p.budget_bytes;
           }},
          {"a buffer far out", bad_totals, [](test_plan& t) { t.at("b").offset += 1 << 20; }},
          {"a density above one", bad_size, [](test_plan& t) { t.choice("p").density = 1.5; }},
          {"a density that is no number", bad_size,
           [](test_plan& t) { t.choice("p").density = std::numeric_limits<double>::quiet_NaN(); }},
          {"a slot for a lower density", bad_size, [](test_plan& t) { t.choice("k").density = 0.9; }},
          {"buffers of more than 2^60 bytes together", bad_size,
           [](test_plan& t) {
             buffer large = t.at("b");
             large.bytes = std::int64_t{1} << 53;
             for (int n = 0; n < 2000; ++n)
               t.p.buffers.push_back(large);
           }},
          {"a negative offset", bad_alignment, [](test_plan& t) { t.at("b").offset = -64; }},
          {"a negative size", bad_alignment, [](test_plan& t) { t.at("b").bytes = -64; }},
          {"an enormous size", bad_alignment,
           [](test_plan& t) { t.at("b").bytes = std::numeric_limits<std::int64_t>::max() - 63; }},
          {"an enormous offset", bad_alignment,
           [](test_plan& t) { t.at("b").offset = std::numeric_limits<std::int64_t>::max() - 63; }},
      });
}

TEST(validator, reports_damaged_graphs) {
  using enum plan_fault;
  expect_all_reported(
      make_lossless_plan,
      {
          {"no batch", bad_graph, [](test_plan& t) { t.p.network.batch = 0; }},
          {"an enormous batch", bad_graph,
           [](test_plan& t) { t.p.network.batch = std::numeric_limits<std::int64_t>::max(); }},
          {"an enormous shape", bad_graph,
           [](test_plan& t) {
             graph_storage(t, "c").shape = {1 << 30, 1 << 30, 1 << 30};
           }},
          {"a negative dimension", bad_graph, [](test_plan& t) { graph_storage(t, "c").shape[0] = -4; }},
          {"too few bytes", bad_graph, [](test_plan& t) { graph_storage(t, "c").bytes_per_sample /= 2; }},
          {"negative bytes", bad_graph,
           [](test_plan& t) { graph_storage(t, "conv1/weight").fixed_bytes = -4; }},
          {"unknown type", bad_graph,
           [](test_plan& t) { graph_storage(t, "c").type = static_cast<dtype>(50); }},
          {"a slice past the end", bad_graph,
           [](test_plan& t) { graph_op(t, "relu4").inputs[0].channels = 9; }},
          {"negative workspace", bad_graph, [](test_plan& t) { graph_op(t, "conv1").workspace_bytes = -1; }},
          {"a weight gradient that reads signs", bad_graph,
           [](test_plan& t) { graph_op(t, "conv2/w").alternatives[0].reads[0].what = need::sign; }},
          {"a weight gradient that reads another map", bad_graph,
           [](test_plan& t) {
             stash_read& r = graph_op(t, "conv2/w").alternatives[0].reads[0];
             r.storage = r.slice.storage = t.storage_of("b");
           }},
          {"a weight gradient that reads nothing", bad_graph,
           [](test_plan& t) {
             graph_op(t, "conv2/w").alternatives.clear();
             alternative_of(t, "conv2/w") = -1;
           }},
          {"the sign of half a map", bad_graph,
           [](test_plan& t) {
             graph_op(t, "relu1/b").alternatives[0].reads[0].slice = {storage_id(2), 0, 4};
           }},
          {"a form that no kernel knows", bad_graph,
           [](test_plan& t) { graph_op(t, "relu1/b").alternatives[0].form = "from_z"; }},
          {"a fused norm that reads rounded values alone", bad_graph,
           [](test_plan& t) { graph_op(t, "norm/b").alternatives[0].reads[0].what = need::value; }},
          {"a map that is overwritten before backward reads it", bad_graph,
           [](test_plan& t) {
             op over = graph_op(t, "relu1");
             over.name = "again";
             over.inputs = over.outputs = {{t.storage_of("c"), 0, 0}};
             graph_op(t, "dense") = over;
           }},
      });
}

TEST(validator, stops_after_hundred_findings) {
  test_plan t = make_lossless_plan();
  for (buffer& b : t.p.buffers) {
    b.offset = -1;
  }
  const std::vector<step> steps = t.p.steps.list();
  for (int i = 0; i < 5; ++i) {
    for (const step& s : steps)
      t.p.steps.push_back(s);
  }
  EXPECT_EQ(validate(t.p).size(), 100U);
}

TEST(validator, an_empty_plan_is_reported) {
  EXPECT_FALSE(validate(plan{}).empty());
}

TEST(validator, names_all_faults) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(plan_fault::bad_times); ++i) {
    names.insert(to_string(static_cast<plan_fault>(i)));
  }
  EXPECT_EQ(names.size(), 14U);
  EXPECT_EQ(names.count("unknown"), 0U);
  EXPECT_EQ(to_string(static_cast<plan_fault>(99)), "unknown");
}

}  // namespace
}  // namespace stash::planner
