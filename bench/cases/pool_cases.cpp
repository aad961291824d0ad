// SPDX-License-Identifier: Apache-2.0
// Max-pooling alone and joined with ReLU, 2x2 and overlapping 3x3 windows with stride 2: forward with and
// without the small form, backward from it and from the dense map.

#include <string>
#include <utility>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

constexpr framework_rule rule = framework_rule::tensorflow;

enum class pooling : std::uint8_t { plain, with_relu };

encoding form_of(pooling kind, const pool_window& window) {
  return {.kind = kind == pooling::plain ? encoding_kind::window_index : encoding_kind::relu_pool,
          .window_taps = static_cast<std::uint16_t>(window.taps())};
}

void forward(pooling kind, const pool_window& window, const const_tensor_view& x, const tensor_view& y,
             const encoded_view& form, const execution_context& context) {
  if (kind == pooling::plain) {
    max_pool_forward(x, y, window, form, rule, context);
  } else {
    relu_max_pool_forward(x, y, window, form, {}, rule, context);
  }
}

prepared_call prepare_forward(pooling kind, const pool_window& window, bool writes_form,
                              const case_setup& setup) {
  const auto x = pool_map_before_relu(setup);
  const auto y = std::make_shared<tensor>(pooled_shape(setup.bytes));
  const execution_context context = setup.context;
  if (!writes_form) {
    return {
        [=] { forward(kind, window, x->read(), y->view(), {}, context); }, x->bytes() + y->bytes(), 0, {}};
  }
  const encoding e = form_of(kind, window);
  const auto form = std::make_shared<encoded>(e, encoded_bytes_bound(e, dtype::f32, y->elements()));
  return {[=] { forward(kind, window, x->read(), y->view(), form->write(), context); },
          x->bytes() + y->bytes() + form->bytes(),
          form->bytes(),
          {}};
}

prepared_call prepare_backward(pooling kind, const pool_window& window, const case_setup& setup) {
  const auto x = pool_map_before_relu(setup);
  const auto dy = std::make_shared<tensor>(pooled_shape(setup.bytes));
  const encoding e = form_of(kind, window);
  const auto form = std::make_shared<encoded>(e, encoded_bytes_bound(e, dtype::f32, dy->elements()));
  const execution_context context = setup.context;
  forward(kind, window, x->read(), dy->view(), form->write(), context);
  return {[=] {
            if (kind == pooling::plain) {
              max_pool_backward(dy->read(),
                                {window_index_of(window), dy->read().type, dy->read().dims, form->read()},
                                x->view(), window, context);
            } else {
              relu_max_pool_backward(dy->read(),
                                     {relu_pool_of(window), dy->read().type, dy->read().dims, form->read()},
                                     x->view(), window, context);
            }
          },
          x->bytes() + dy->bytes() + form->bytes(),
          form->bytes(),
          {}};
}

// What an unplanned run does: the argmaxes are found again.
prepared_call prepare_dense_backward(pooling kind, const pool_window& window, const case_setup& setup) {
  const auto x = pool_map_before_relu(setup);
  const auto dx = std::make_shared<tensor>(pool_map_shape(setup.bytes));
  const auto dy = std::make_shared<tensor>(pooled_shape(setup.bytes));
  const execution_context context = setup.context;
  return {[=] {
            if (kind == pooling::plain) {
              max_pool_backward(dy->read(), x->read(), dx->view(), window, rule, context);
            } else {
              relu_max_pool_backward(dy->read(), x->read(), dx->view(), window, rule, context);
            }
          },
          2 * x->bytes() + dy->bytes(),
          0,
          {}};
}

// The joint layer from the window index and the dense pooled output.
prepared_call prepare_indexed_backward(const pool_window& window, const case_setup& setup) {
  const auto x = pool_map_before_relu(setup);
  const auto y = std::make_shared<tensor>(pooled_shape(setup.bytes));
  const auto dy = std::make_shared<tensor>(pooled_shape(setup.bytes));
  const encoding e = form_of(pooling::plain, window);
  const auto index = std::make_shared<encoded>(e, encoded_bytes_bound(e, dtype::f32, y->elements()));
  const execution_context context = setup.context;
  relu_max_pool_forward(x->read(), y->view(), window, {}, index->write(), rule, context);
  return {[=] {
            relu_max_pool_backward(dy->read(),
                                   {window_index_of(window), dy->read().type, dy->read().dims, index->read()},
                                   y->read(), x->view(), window, rule, context);
          },
          x->bytes() + 2 * y->bytes() + index->bytes(),
          index->bytes(),
          {}};
}

void add(std::vector<bench_case>& cases, const std::string& layer, const std::string& form, pooling kind,
         const pool_window& window) {
  const std::string size = window.kernel_h == 2 ? "" : "_3x3";
  cases.push_back({layer + "_forward/no_stash" + size,
                   [=](const case_setup& s) { return prepare_forward(kind, window, false, s); }});
  cases.push_back({layer + "_forward/" + form + size,
                   [=](const case_setup& s) { return prepare_forward(kind, window, true, s); }});
  cases.push_back({layer + "_backward/" + form + size,
                   [=](const case_setup& s) { return prepare_backward(kind, window, s); }});
  cases.push_back({layer + "_backward/x" + size,
                   [=](const case_setup& s) { return prepare_dense_backward(kind, window, s); }});
  if (kind == pooling::plain) return;
  cases.push_back({layer + "_backward/window_index_and_y" + size,
                   [=](const case_setup& s) { return prepare_indexed_backward(window, s); }});
}

}  // namespace

std::vector<bench_case> pool_cases() {
  std::vector<bench_case> cases;
  for (const int kernel : {2, 3}) {
    const pool_window window{.kernel_h = kernel, .kernel_w = kernel};
    add(cases, "max_pool", "window_index", pooling::plain, window);
    add(cases, "relu_max_pool", "relu_pool", pooling::with_relu, window);
  }
  return cases;
}

}  // namespace stash::bench
