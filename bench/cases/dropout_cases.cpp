// SPDX-License-Identifier: Apache-2.0
// Dropout of a share 1 - density of the map, with a mask and with nothing kept but the key.

#include <utility>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

constexpr encoding mask_encoding{.kind = encoding_kind::sign_mask};
constexpr dropout_key key{1, 2, 3};

float probability(const case_setup& setup) {
  return static_cast<float>(1 - setup.input.density);
}

prepared_call prepare_forward(bool writes_mask, const case_setup& setup) {
  const auto x = map_after_relu(setup);
  const auto y = std::make_shared<tensor>(map_shape(setup.bytes));
  const float p = probability(setup);
  const execution_context context = setup.context;
  if (!writes_mask) {
    return {[=] { dropout_forward(x->read(), y->view(), {}, p, key, context); }, 2 * x->bytes(), 0, {}};
  }
  const auto mask =
      std::make_shared<encoded>(mask_encoding, encoded_bytes_bound(mask_encoding, dtype::f32, x->elements()));
  return {[=] { dropout_forward(x->read(), y->view(), mask->write(), p, key, context); },
          2 * x->bytes() + mask->bytes(),
          mask->bytes(),
          {}};
}

prepared_call prepare_backward(const case_setup& setup) {
  const auto dy = map_before_relu(setup);
  const auto dx = std::make_shared<tensor>(map_shape(setup.bytes));
  const auto mask = std::make_shared<encoded>(mask_encoding,
                                              encoded_bytes_bound(mask_encoding, dtype::f32, dy->elements()));
  const float p = probability(setup);
  const execution_context context = setup.context;
  dropout_forward(dy->read(), dx->view(), mask->write(), p, key, context);
  return {[=] {
            dropout_backward(
                dy->read(),
                {{.kind = encoding_kind::sign_mask}, dy->read().type, dy->read().dims, mask->read()},
                dx->view(), p, context);
          },
          2 * dy->bytes() + mask->bytes(),
          mask->bytes(),
          {}};
}

prepared_call prepare_key_backward(const case_setup& setup) {
  const auto dy = map_before_relu(setup);
  const auto dx = std::make_shared<tensor>(map_shape(setup.bytes));
  const float p = probability(setup);
  const execution_context context = setup.context;
  return {[=] { dropout_backward(dy->read(), dx->view(), p, key, context); }, 2 * dy->bytes(), 0, {}};
}

}  // namespace

std::vector<bench_case> dropout_cases() {
  return {
      {"dropout_forward/no_stash", [](const case_setup& s) { return prepare_forward(false, s); }},
      {"dropout_forward/sign_mask", [](const case_setup& s) { return prepare_forward(true, s); }},
      {"dropout_backward/sign_mask", prepare_backward},
      {"dropout_backward/key", prepare_key_backward},
  };
}

}  // namespace stash::bench
