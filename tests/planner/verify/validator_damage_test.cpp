// SPDX-License-Identifier: Apache-2.0
// Plans with random damage: the validator may report anything, but must neither crash nor run away.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "planner/verify/validator.hpp"
#include "planner/verify/validator_plans.hpp"

namespace stash::planner {
namespace {

using testing::make_fp8_plan;
using testing::make_lossless_plan;
using testing::make_plain_plan;

class damage {
 public:
  explicit damage(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  template <class Kind>
  void number(typed_id<Kind>& id) {
    std::int32_t value = id.number();
    number(value);
    id = typed_id<Kind>(value);
  }

  template <class T>
  void number(T& value) {
    switch (below(8)) {
      case 0:
        value = -1;
        break;
      case 1:
        value = 0;
        break;
      case 2:
        value = std::numeric_limits<T>::max();
        break;
      case 3:
        value = std::numeric_limits<T>::min();
        break;
      case 4:
        value = static_cast<T>(std::max<T>(value, std::numeric_limits<T>::min() + 1) - 1);
        break;
      case 5:
        value = static_cast<T>(std::min<T>(value, std::numeric_limits<T>::max() - 1) + 1);
        break;
      case 6:
        value = static_cast<T>(random_());
        break;
      default:
        value = static_cast<T>(below(40));
        break;
    }
  }

  template <class T>
  void name(T& value) {
    value = static_cast<T>(below(3) == 0 ? below(256) : below(9));
  }

  template <class List>
  typename List::value_type* any(List& list) {
    return list.empty() ? nullptr : &*(list.begin() + static_cast<std::ptrdiff_t>(below(list.size())));
  }

  template <class List>
  void length(List& list) {
    switch (below(4)) {
      case 0:
        list.clear();
        break;
      case 1:
        if (!list.empty()) list.pop_back();
        break;
      case 2:
        list.emplace_back();
        break;
      default:
        if (!list.empty()) std::swap(*any(list), *any(list));
        break;
    }
  }

  template <class List>
  void ids(List& list) {
    auto* entry = any(list);
    if (entry == nullptr || below(4) == 0) {
      length(list);
    } else {
      number(*entry);
    }
  }

  void ref(std::vector<tensor_ref>& list) {
    tensor_ref* entry = any(list);
    if (entry == nullptr || below(4) == 0) {
      length(list);
    } else {
      ref(*entry);
    }
  }

  void ref(tensor_ref& r) {
    switch (below(3)) {
      case 0:
        number(r.storage);
        break;
      case 1:
        number(r.channel_begin);
        break;
      default:
        number(r.channels);
        break;
    }
  }

  void storage_field(storage& s) {
    switch (below(7)) {
      case 0:
        name(s.role);
        break;
      case 1:
        name(s.type);
        break;
      case 2:
        if (!s.shape.empty() && below(2) == 0) {
          number(*any(s.shape));
        } else {
          length(s.shape);
        }
        break;
      case 3:
        number(s.fixed_bytes);
        break;
      case 4:
        number(s.bytes_per_sample);
        break;
      case 5:
        number(s.window_taps);
        break;
      default:
        s.name.clear();
        break;
    }
  }

  void op_field(op& o) {
    switch (below(12)) {
      case 0:
        name(o.kind);
        break;
      case 1:
        name(o.stage);
        break;
      case 2:
        number(o.forward_op);
        break;
      case 3:
        ref(o.inputs);
        break;
      case 4:
        ref(o.outputs);
        break;
      case 5:
        ids(o.optional_outputs);
        break;
      case 6:
        ids(o.parameters);
        break;
      case 7:
        ids(o.parameters_written);
        break;
      case 8:
        number(o.workspace_bytes);
        break;
      case 9:
        number(below(2) == 0 ? o.batch_begin : o.batch_end);
        break;
      case 10:
        length(o.alternatives);
        break;
      default:
        if (stash_alternative* a = any(o.alternatives); a != nullptr) {
          if (stash_read* r = any(a->reads); r != nullptr && below(3) > 0) {
            number(r->storage);
            if (below(2) == 0) r->slice.storage = r->storage;
            if (below(2) == 0) ref(r->slice);
            if (below(2) == 0) name(r->what);
          } else {
            length(a->reads);
          }
        }
        break;
    }
  }

  void buffer_field(buffer& b) {
    switch (below(6)) {
      case 0:
        number(b.storage);
        break;
      case 1:
        name(b.form);
        break;
      case 2:
        number(b.bytes);
        break;
      case 3:
        number(b.offset);
        break;
      case 4:
        number(b.first_step);
        break;
      default:
        number(b.last_step);
        break;
    }
  }

  void step_field(step& s) {
    switch (below(7)) {
      case 0:
        name(s.kind);
        break;
      case 1:
        number(s.op);
        break;
      case 2:
        number(s.storage);
        break;
      case 3:
        ids(s.inputs);
        break;
      case 4:
        ids(s.outputs);
        break;
      case 5:
        ids(s.optional_outputs);
        break;
      default:
        ids(s.stash);
        break;
    }
  }

  void choice_field(stash_choice& c) {
    switch (below(7)) {
      case 0:
        name(c.kind);
        break;
      case 1:
        name(c.stored.kind);
        break;
      case 2:
        name(c.stored.values);
        break;
      case 3:
        name(c.stored.underflow);
        break;
      case 4:
        name(c.stored.window_taps);
        break;
      case 5:
        number(c.recipe);
        break;
      default:
        c.density = below(2) == 0 ? std::numeric_limits<double>::infinity() : -0.5;
        break;
    }
  }

  void plan_field(plan& p) {
    switch (below(9)) {
      case 0:
        if (storage* s = any(p.network.storages); s != nullptr) storage_field(*s);
        break;
      case 1:
        if (op* o = any(p.network.ops); o != nullptr) op_field(*o);
        break;
      case 2:
        if (buffer* b = any(p.buffers); b != nullptr) buffer_field(*b);
        break;
      case 3:
      case 4:
        if (step* s = any(p.steps); s != nullptr) step_field(*s);
        break;
      case 5:
        if (stash_choice* c = any(p.choices); c != nullptr) choice_field(*c);
        break;
      case 6:
        ids(p.alternative);
        break;
      case 7:
        lists(p);
        break;
      default:
        scalars(p);
        break;
    }
  }

  void recipe_field(recipe& r) {
    switch (below(3)) {
      case 0:
        number(r.target);
        break;
      case 1:
        ids(r.sources);
        break;
      default:
        ids(r.ops);
        break;
    }
  }

 private:
  void lists(plan& p) {
    switch (below(6)) {
      case 0:
        length(p.network.storages);
        break;
      case 1:
        length(p.network.ops);
        break;
      case 2:
        length(p.network.recipes);
        break;
      case 3:
        length(p.choices);
        break;
      case 4:
        length(p.buffers);
        break;
      default:
        length(p.steps);
        break;
    }
  }

  void scalars(plan& p) {
    switch (below(6)) {
      case 0:
        number(p.network.batch);
        break;
      case 1:
        name(p.chosen_policy);
        break;
      case 2:
        number(p.budget_bytes);
        break;
      case 3:
        number(p.overflow_bytes);
        break;
      case 4:
        number(p.sizes.wall_op);
        break;
      default:
        if (recipe* r = any(p.network.recipes); r != nullptr) recipe_field(*r);
        break;
    }
  }

  std::mt19937 random_;
};

TEST(validator, survives_random_damage) {
  const std::vector<plan> good{make_plain_plan().p, make_lossless_plan().p, make_fp8_plan().p};
  damage d(20240517);
  int reported = 0;
  constexpr int rounds = 10000;
  for (int i = 0; i < rounds; ++i) {
    plan p = good[d.below(good.size())];
    for (std::size_t k = d.below(3) + 1; k > 0; --k) {
      d.plan_field(p);
    }
    const std::vector<plan_finding> findings = validate(p);
    ASSERT_LE(findings.size(), 100U);
    reported += findings.empty() ? 0 : 1;
  }
  // Some damage is none (a number replaced by itself, a larger budget), most is.
  EXPECT_GT(reported, rounds * 3 / 5);
}

}  // namespace
}  // namespace stash::planner
