// SPDX-License-Identifier: Apache-2.0
// ReLU, leaky ReLU and clipping, forward with and without a stash and backward from every stash that serves.

#include <utility>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

constexpr framework_rule rule = framework_rule::tensorflow;
constexpr float slope = 0.01F, lower = 0.0F, upper = 6.0F;
constexpr encoding sign_mask{.kind = encoding_kind::sign_mask};
constexpr encoding range_mask{.kind = encoding_kind::range_mask, .lower = lower, .upper = upper};

// What a backward pass has to read of a stash to know the signs.
std::int64_t sign_bytes(encoded& stash, std::int64_t elements) {
  switch (stash.how().kind) {
    case encoding_kind::bitmap:
      return elements / 8;    // the mask plane
    case encoding_kind::csr:  // row ends and columns
      return 2 * elements / csr_row_elements + static_cast<std::int64_t>(stash.report().nonzeros);
    default:
      return stash.bytes();
  }
}

// A layer that maps x to y, and may write one bit per element: forward(x, y, mask).
template <class Forward>
prepared_call prepare_forward(const case_setup& setup, const encoding* mask, Forward forward) {
  const auto x = map_before_relu(setup);
  const auto y = std::make_shared<tensor>(map_shape(setup.bytes));
  if (mask == nullptr) return {[=] { forward(x->read(), y->view(), encoded_view{}); }, 2 * x->bytes(), 0, {}};
  const auto kept = std::make_shared<encoded>(*mask, encoded_bytes_bound(*mask, dtype::f32, x->elements()));
  return {[=] { forward(x->read(), y->view(), kept->write()); },
          2 * x->bytes() + kept->bytes(),
          kept->bytes(),
          {}};
}

// A gradient of such a layer from a stash of its output: backward(dy, stash, dx).
template <class Backward>
prepared_call prepare_backward(const case_setup& setup, const encoding& e, Backward backward) {
  const auto y = map_after_relu(setup);
  const auto kept = std::make_shared<encoded>(e, *y, setup.context);
  const auto dy = map_before_relu(setup);
  return {[=] { backward(dy->read(), kept->read(), y->view()); },
          2 * dy->bytes() + sign_bytes(*kept, y->elements()),
          kept->bytes(),
          {}};
}

// The same from the dense output: backward(dy, y, dx).
template <class Backward>
prepared_call prepare_dense_backward(const case_setup& setup, Backward backward) {
  const auto y = map_after_relu(setup);
  const auto dy = map_before_relu(setup);
  const auto dx = std::make_shared<tensor>(map_shape(setup.bytes));
  return {[=] { backward(dy->read(), y->read(), dx->view()); }, 3 * dy->bytes(), 0, {}};
}

prepared_call relu(const case_setup& s, const encoding* mask) {
  return prepare_forward(s, mask, [c = s.context](const auto& x, const auto& y, const auto& m) {
    relu_forward(x, y, m, rule, c);
  });
}

prepared_call leaky_relu(const case_setup& s) {
  return prepare_forward(s, &sign_mask, [c = s.context](const auto& x, const auto& y, const auto& m) {
    leaky_relu_forward(x, y, m, slope, c);
  });
}

prepared_call clip(const case_setup& s) {
  return prepare_forward(s, &range_mask, [c = s.context](const auto& x, const auto& y, const auto& m) {
    clip_forward(x, y, m, lower, upper, rule, c);
  });
}

prepared_call relu_gradient(const case_setup& s, const encoding& e) {
  return prepare_backward(s, e, [e, c = s.context](const auto& dy, const auto& stash, const auto& dx) {
    relu_backward(dy, {e, dy.type, dy.dims, stash}, dx, rule, c);
  });
}

prepared_call dense_relu_gradient(const case_setup& s) {
  return prepare_dense_backward(s, [c = s.context](const auto& dy, const auto& y, const auto& dx) {
    relu_backward(dy, y, dx, rule, c);
  });
}

prepared_call leaky_relu_gradient(const case_setup& s) {
  return prepare_backward(s, sign_mask, [c = s.context](const auto& dy, const auto& stash, const auto& dx) {
    leaky_relu_backward(dy, {sign_mask, dy.type, dy.dims, stash}, dx, slope, c);
  });
}

prepared_call clip_gradient(const case_setup& s) {
  return prepare_backward(s, range_mask, [c = s.context](const auto& dy, const auto& stash, const auto& dx) {
    clip_backward(dy, {range_mask, dy.type, dy.dims, stash}, dx, lower, upper, rule, c);
  });
}

}  // namespace

std::vector<bench_case> relu_cases() {
  std::vector<bench_case> cases = {
      {"relu_forward/no_stash", [](const case_setup& s) { return relu(s, nullptr); }},
      {"relu_forward/sign_mask", [](const case_setup& s) { return relu(s, &sign_mask); }},
      {"leaky_relu_forward/sign_mask", leaky_relu},
      {"clip_forward/range_mask", clip},
      {"relu_backward/y", dense_relu_gradient},
      {"leaky_relu_backward/sign_mask", leaky_relu_gradient},
      {"clip_backward/range_mask", clip_gradient},
  };
  for (const encoding& e : benched_encodings()) {
    if (e.kind == encoding_kind::raw || e.kind == encoding_kind::range_mask) continue;
    cases.push_back(
        {"relu_backward/" + to_string(e), [e](const case_setup& s) { return relu_gradient(s, e); }});
  }
  return cases;
}

}  // namespace stash::bench
