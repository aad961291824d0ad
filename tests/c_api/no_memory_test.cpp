// SPDX-License-Identifier: Apache-2.0
// What leaves a public C++ function is error(out_of_memory) where memory runs out, whichever allocation fails
// and where all do. The rule "public_calls" of tests/rules looks for functions that are missing here.

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/models.hpp"
#include "planner/json/json.hpp"
#include "stash/stash.hpp"
#include "support/failing_allocations.hpp"

namespace {

using namespace stash;
using stash_test::failing_allocation;
using stash_test::live_blocks;

struct public_call {
  const char* name;
  std::function<void()> run;
  bool allocates = true;  ///< false: only where it is called in a way that a test cannot bring about
  std::int64_t stride = 1;
};

constexpr framework_rule rule = framework_rule::tensorflow;
constexpr const char* long_name = "a name that is too long for a text without memory of its own";

/// Tensors and encoded bytes of 16 elements.
struct things {
  things() {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 3);
    const auto lenet = models::find("lenet").build({16, 16, 1}, 2);
    graph = planner::to_json(planner::make_training_graph(lenet, 1));
    plan = plan_graph(graph);
  }
  tensor_view view(std::vector<float>& values) {
    return {values.data(), dtype::f32, memory_space::host, dims, 0};
  }
  encoded_view out() { return {stored.data, sizeof stored.data, nullptr, &report}; }
  const_encoded_view in() { return {stored.data, sizeof stored.data, nullptr, &report}; }

  shape dims{1, 4, 4, 1};
  std::vector<float> x = std::vector<float>(16), y = x;
  struct {
    alignas(16) std::uint8_t data[256] = {};
  } stored;
  encode_report report;
  std::string graph, plan;
  swapper swaps;
  stashed_tensor empty_tensor;
  swapped empty_handle;
};

/// Calls that are refused, whose messages take memory, and calls that need memory for their work.
std::vector<public_call> public_calls(things& t) {
  const encoding unknown{.kind = static_cast<encoding_kind>(99)}, raw, bitmap = parse_encoding("bitmap"),
                                                                       mask = parse_encoding("sign_mask");
  const tensor_view x = t.view(t.x), y = t.view(t.y);
  const tensor_view null{nullptr, dtype::f32, memory_space::host, t.dims, 0};
  const pool_window window;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  things* const all = &t;
  return {
      {"batch_workspace_bytes",
       [=] {
         const encode_item item{unknown, x, all->out()};
         batch_workspace_bytes(std::span(&item, 1), {});
       }},
      {"encode_batch",
       [=] {
         const encode_item item{raw, null, all->out()};
         encode_batch(std::span(&item, 1), {}, {});
       }},
      {"decode_batch",
       [=] {
         const decode_item item{{raw, null.type, null.dims, all->in()}, null};
         decode_batch(std::span(&item, 1), {}, {});
       }},
      {"cpu_targets", [] { cpu_targets(); }},
      {"cpu_target", [] { cpu_target(); }, false},
      {"set_cpu_target", [] { set_cpu_target("none"); }},
      {"csr_export32",
       [=] {
         csr_export32({raw, dtype::f32, {16}, all->in()}, {}, {});
       }},
      {"dropout_forward", [=] { dropout_forward(x, y, {}, 2, {}, {}); }},
      {"dropout_backward",
       [=] {
         dropout_backward(x, {{.kind = encoding_kind::sign_mask}, x.type, x.dims, all->in()}, y, 2, {});
       }},
      {"dropout_backward", [=] { dropout_backward(x, y, 2, {}, {}); }},
      {"to_string", [=] { to_string(unknown); }},
      {"parse_encoding", [] { parse_encoding("none"); }},
      {"encoded_bytes_bound", [=] { encoded_bytes_bound(unknown, dtype::f32, 1); }},
      {"encoded_bytes_at_density", [=] { encoded_bytes_at_density(raw, dtype::f32, 1, 2); }},
      {"encoded_bytes_exact", [=] { encoded_bytes_exact(unknown, x, {}); }},
      {"workspace_bytes", [=] { workspace_bytes(unknown, dtype::f32, 1); }},
      {"encode", [=] { encode(raw, null, all->out(), {}, {}); }},
      {"decode",
       [=] {
         decode({raw, null.type, null.dims, all->in()}, null, {}, {});
       }},
      {"canonicalise",
       [=] {
         canonicalise({unknown, dtype::f32, {16}, all->in()}, all->out(), {});
       }},
      {"memory_resource::allocate", [] { host_memory().allocate(1, 3); }},
      {"memory_resource::allocate", [] { host_memory().allocate(SIZE_MAX, 1); }},
      {"memory_resource::allocate",
       [] {
         counting_memory limited(host_memory(), 10);
         limited.allocate(11, 1);
       }},
      {"callback_memory", [] { callback_memory({}); }},
      {"plan_graph", [] { plan_graph("{"); }},
      {"plan_graph", [=] { plan_graph(all->graph); }, true, 501},
      {"plan_graph", [=] { plan_graph(all->graph, {.values = "fp16,raw"}); }},
      {"plan_graph", [=] { plan_graph(all->graph, {.force = "none"}); }, true, 7},
      {"verify_plan", [] { verify_plan("{"); }},
      {"verify_plan", [=] { EXPECT_EQ(verify_plan(all->plan), ""); }, true, 11},
      {"explain_plan", [] { explain_plan("{"); }},
      {"explain_plan", [=] { explain_plan(all->plan); }, true, 11},
      {"max_pool_forward", [=] { max_pool_forward(x, y, window, {}, rule, {}); }},
      {"max_pool_backward",
       [=] {
         max_pool_backward(x, {window_index_of(window), x.type, x.dims, all->in()}, y, window, {});
       }},
      {"max_pool_backward", [=] { max_pool_backward(x, x, y, window, rule, {}); }},
      {"encode_window_index", [=] { encode_window_index(nullptr, all->dims, {}, window, all->out(), {}); }},
      {"decode_window_index",
       [=] {
         decode_window_index({window_index_of(window), dtype::f32, all->dims, all->in()}, {}, window, nullptr,
                             {});
       }},
      {"relu_max_pool_forward", [=] { relu_max_pool_forward(x, y, window, {}, {}, rule, {}); }},
      {"relu_max_pool_backward",
       [=] {
         relu_max_pool_backward(x, {relu_pool_of(window), x.type, x.dims, all->in()}, y, window, {});
       }},
      {"relu_max_pool_backward",
       [=] {
         relu_max_pool_backward(x, {window_index_of(window), x.type, x.dims, all->in()},
                                {mask, x.type, x.dims, all->in()}, y, window, rule, {});
       }},
      {"relu_max_pool_backward",
       [=] {
         relu_max_pool_backward(x, {window_index_of(window), x.type, x.dims, all->in()}, x, y, window, rule,
                                {});
       }},
      {"relu_max_pool_backward", [=] { relu_max_pool_backward(x, x, y, window, rule, {}); }},
      {"relu_forward", [=] { relu_forward(x, null, {}, rule, {}); }},
      {"relu_backward",
       [=] {
         relu_backward(x, {unknown, x.type, x.dims, all->in()}, y, rule, {});
       }},
      {"relu_backward", [=] { relu_backward(x, null, y, rule, {}); }},
      {"leaky_relu_forward", [=] { leaky_relu_forward(x, y, {}, nan, {}); }},
      {"leaky_relu_backward",
       [=] {
         leaky_relu_backward(x, {mask, x.type, x.dims, all->in()}, y, nan, {});
       }},
      {"leaky_relu_backward", [=] { leaky_relu_backward(x, x, y, nan, {}); }},
      {"clip_forward", [=] { clip_forward(x, y, {}, 1, 0, rule, {}); }},
      {"clip_backward",
       [=] {
         clip_backward(x, {mask, x.type, x.dims, all->in()}, y, 1, 0, rule, {});
       }},
      {"clip_backward", [=] { clip_backward(x, x, y, 1, 0, rule, {}); }},
      {"size_query",
       [=] {
         size_query({unknown, dtype::f32, {1}, all->in()}, {});
       }},
      {"size_query", [=] { size_query(bitmap, x, nullptr, {}); }},
      {"size_query::wait", [] { size_query().wait(); }, false},
      {"stashed_tensor", [=] { stashed_tensor(unknown, x); }},
      {"stashed_tensor",
       [=] {
         stashed_tensor kept(bitmap, x, {.capacity = 16, .name = long_name});
         stashed_tensor moved = std::move(kept);
         kept = std::move(moved);
         kept.restore(y);
       }},
      {"stashed_tensor::reserve",
       [=] { stashed_tensor::reserve(mask, dtype::f32, all->dims, {.name = long_name}); }},
      {"stashed_tensor::restore", [=] { all->empty_tensor.restore(y); }},
      {"stashed_tensor::restore", [=] { stashed_tensor(bitmap, x, {.name = long_name}).restore(null); }},
      {"stashed_tensor::check",
       [=] {
         stashed_tensor kept(bitmap, x, {.name = long_name});
         kept.output().report->status = status_corrupt;
         kept.check();
       }},
      {"stashed_tensor::rewind", [=] { all->empty_tensor.rewind(); }},
      {"stashed_tensor::size", [=] { all->empty_tensor.size(); }},
      {"swapped::wait_out", [=] { all->empty_handle.wait_out(); }},
      {"swapped::out_ended", [=] { all->empty_handle.out_ended(); }},
      {"swapped::swap_in", [=] { all->empty_handle.swap_in(); }},
      {"swapped::swap_in", [=] { all->empty_handle.swap_in(nullptr, 1); }},
      {"swapped::wait_in", [=] { all->empty_handle.wait_in(); }},
      {"swapped::leave", [=] { all->empty_handle.leave(); }},
      {"swapped::restore", [=] { all->empty_handle.restore(y); }},
      {"swapped::restore",
       [=] {
         stashed_tensor kept(bitmap, x, {.name = long_name});
         swapped out = all->swaps.swap_out(std::move(kept));
         swapped moved = std::move(out);
         moved.restore(y);
       }},
      {"swapped::take", [=] { all->empty_handle.take(); }},
      {"swapped::take",
       [=] {
         const stashed_tensor kept(bitmap, x);
         swapped out = all->swaps.swap_out(kept, {.name = long_name});
         out.take();
         out.reset();
       }},
      {"swapper", [] { const swapper other; }},
      {"swapper", [] { const swapper other({.ahead = -1}); }},
      {"swapper::swap_out", [=] { all->swaps.swap_out(nullptr, 1); }},
      {"swapper::swap_out", [=] { all->swaps.swap_out(null); }},
      {"swapper::swap_out", [=] { all->swaps.swap_out(std::as_const(all->empty_tensor)); }},
      {"swapper::swap_out", [=] { all->swaps.swap_out(std::move(all->empty_tensor)); }},
      {"swapper::swap_out",
       [=] {
         swapped out = all->swaps.swap_out(all->x.data(), 64, {.name = long_name});
         out.swap_in(all->y.data(), 64);
         out.wait_in();
       }},
      {"swapper::reached", [=] { all->swaps.reached(0); }, false},
      {"swapper::statistics", [=] { all->swaps.statistics(); }, false},
      {"shape", [] { shape({-1}); }},
      {"shape",
       [] {
         constexpr std::array<std::int64_t, 9> dims{1, 1, 1, 1, 1, 1, 1, 1, 1};
         shape{std::span(dims)};
       }},
  };
}

/// Whether the call went well, was refused as ever, or for want of memory.
enum class outcome { done, refused, no_memory };

outcome outcome_of(const public_call& call) {
  try {
    call.run();
    return outcome::done;
  } catch (const error& e) {
    return e.code() == errc::out_of_memory ? outcome::no_memory : outcome::refused;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not an error of the library: " << e.what();
  }
  return outcome::no_memory;
}

TEST(no_memory, is_an_error_of_the_library) {
  things t;
  for (const public_call& call : public_calls(t)) {
    SCOPED_TRACE(call.name);
    // What only grows has grown then.
    const outcome expected = outcome_of(call);
    EXPECT_EQ(outcome_of(call), expected);
    std::int64_t failures = 0;
    for (std::int64_t n = 0;; n += call.stride) {
      SCOPED_TRACE(n);
      const std::int64_t before = live_blocks();
      bool failed = false;
      outcome found = outcome::done;
      {
        const failing_allocation failing(n);
        found = outcome_of(call);
        failed = failing.failed();
      }
      EXPECT_EQ(live_blocks(), before);
      if (!failed) {
        EXPECT_EQ(found, expected);
        break;
      }
      ++failures;
      EXPECT_TRUE(found == outcome::no_memory || found == expected);
      if (::testing::Test::HasFailure()) return;
    }
    if (call.allocates) {
      EXPECT_GT(failures, 0);
    }
  }
}

TEST(no_memory, can_be_said_without_any) {
  things t;
  for (const public_call& call : public_calls(t)) {
    SCOPED_TRACE(call.name);
    const outcome expected = outcome_of(call);
    for (std::int64_t n = 0; n < 4; ++n) {
      bool failed = false;
      outcome found = outcome::done;
      {
        const failing_allocation failing(n, std::numeric_limits<std::int64_t>::max());
        found = outcome_of(call);
        failed = failing.failed();
      }
      EXPECT_EQ(found, failed ? outcome::no_memory : expected);
    }
  }
}

TEST(no_memory, names_the_function) {
  std::string message;
  try {
    const failing_allocation failing(0);
    parse_encoding("none");
  } catch (const error& e) {
    message = e.what();
  }
  EXPECT_EQ(message, "parse_encoding: memory: expected enough for the call, got none");
}

struct own_exception {};

/// A caller's memory that throws.
template <class Exception>
class throwing_memory final : public memory_resource {
  void* do_allocate(std::size_t, std::size_t, void*) override { throw Exception(); }
  void do_deallocate(void*, std::size_t, std::size_t, void*) noexcept override {}
};

TEST(no_memory, other_exceptions_of_the_caller_pass) {
  things t;
  throwing_memory<own_exception> own;
  throwing_memory<std::bad_alloc> none;
  const stash_options with_own{.memory = &own}, with_none{.memory = &none};
  EXPECT_THROW(stashed_tensor(encoding{}, t.view(t.x), with_own), own_exception);
  EXPECT_THROW(stashed_tensor::reserve(encoding{}, dtype::f32, t.dims, with_own), own_exception);
  EXPECT_THROW(own.allocate(1, 1), own_exception);
  swapper swaps({.host = &own});
  EXPECT_THROW(swaps.swap_out(t.view(t.x)), own_exception);
  EXPECT_THROW(stashed_tensor(encoding{}, t.view(t.x), with_none), error);
}

}  // namespace
