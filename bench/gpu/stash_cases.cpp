// SPDX-License-Identifier: Apache-2.0
// The table of bench/cases on a device: encodings, ReLU and its kin, dropout; pooling is in pool_cases.cpp.
// Names are those of the table there.

#include <utility>

#include "bench/cases/groups.hpp"
#include "bench/gpu/cases.hpp"
#include "bench/gpu/stored_map.hpp"
#include "stash/dropout.hpp"
#include "stash/relu.hpp"

namespace stash::gpu {
namespace {

constexpr framework_rule rule = framework_rule::tensorflow;
constexpr float slope = 0.01F, lower = 0.0F, upper = 6.0F;
constexpr encoding sign_mask{.kind = encoding_kind::sign_mask};
constexpr encoding range_mask{.kind = encoding_kind::range_mask, .lower = lower, .upper = upper};

measured_case encode_case(const encoding& e) {
  return {"encode/" + to_string(e), [e](dtype type) { return can_encode(e, type); },
          [e](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map x = maps.after_relu(form);
            const shared_store kept = stored(e, *x, form.type);
            const std::uint64_t bytes = kept->bytes();
            return {[=](void* stream) { kept->reset(stream); },
                    [=](void* stream) { encode(e, x->view(), kept->write(), {}, on_device(stream)); },
                    [=] { kept->verify(); },
                    x->bytes() + bytes,
                    bytes,
                    x->bytes()};
          }};
}

measured_case decode_case(const encoding& e) {
  return {"decode/" + to_string(e), [e](dtype type) { return can_encode(e, type); },
          [e](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map x = maps.after_relu(form);
            const shared_store kept = stored(e, *x, form.type);
            const std::uint64_t bytes = kept->bytes();
            return {
                [](void*) {},
                [=](void* stream) {
                  decode({e, x->view().type, x->view().dims, kept->read()}, x->view(), {}, on_device(stream));
                },
                [=] { kept->verify(); },
                x->bytes() + bytes,
                bytes,
                x->bytes()};
          }};
}

/// What a backward pass has to read of a stash to know the signs.
std::uint64_t sign_bytes(const stored_map& kept, std::int64_t elements) {
  switch (kept.how().kind) {
    case encoding_kind::bitmap:
      return static_cast<std::uint64_t>(elements) / 8;
    case encoding_kind::csr:  // row ends and columns
      return static_cast<std::uint64_t>(2 * elements / csr_row_elements) + kept.report().nonzeros;
    default:
      return kept.bytes();
  }
}

/// A layer of x to y that may write a mask: forward(x, y, mask, context).
template <class Forward>
measured_case forward_case(std::string name, const encoding* mask, Forward forward) {
  const bool writes = mask != nullptr;
  const encoding e = writes ? *mask : encoding{};
  return {std::move(name), takes_floats, [=](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map x = maps.before_relu(form), y = empty_map(form);
            if (!writes) {
              return {[](void*) {},
                      [=](void* stream) { forward(x->view(), y->view(), encoded_view{}, on_device(stream)); },
                      [] {},
                      2 * x->bytes(),
                      0,
                      x->bytes()};
            }
            const auto kept = std::make_shared<stored_map>(e, form.type, x->elements());
            return {[=](void* stream) { kept->reset(stream); },
                    [=](void* stream) { forward(x->view(), y->view(), kept->write(), on_device(stream)); },
                    [=] { kept->verify(); },
                    2 * x->bytes() + kept->bytes(),
                    kept->bytes(),
                    x->bytes()};
          }};
}

/// Its gradient from a stash of the output: backward(dy, stash, dx, context).
template <class Backward>
measured_case backward_case(std::string name, const encoding& e, Backward backward) {
  return {std::move(name), [e](dtype type) { return can_encode(e, type); },
          [=](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map y = maps.after_relu(form);
            const shared_store kept = stored(e, *y, form.type);
            const shared_map dy = maps.before_relu(form);
            return {[](void*) {},
                    [=](void* stream) { backward(dy->view(), kept->read(), y->view(), on_device(stream)); },
                    [=] { kept->verify(); },
                    2 * dy->bytes() + sign_bytes(*kept, y->elements()),
                    kept->bytes(),
                    dy->bytes()};
          }};
}

/// Its gradient from the dense output.
measured_case dense_relu_backward() {
  return {"relu_backward/y", takes_floats, [](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map y = maps.after_relu(form), dy = maps.before_relu(form), dx = empty_map(form);
            return {[](void*) {},
                    [=](void* stream) {
                      relu_backward(dy->view(), y->view(), dx->view(), rule, on_device(stream));
                    },
                    [] {},
                    3 * dy->bytes(),
                    0,
                    dy->bytes()};
          }};
}

void add_layers(std::vector<measured_case>& cases) {
  const auto relu = [](const auto& x, const auto& y, const auto& mask, const auto& c) {
    relu_forward(x, y, mask, rule, c);
  };
  cases.push_back(forward_case("relu_forward/no_stash", nullptr, relu));
  cases.push_back(forward_case("relu_forward/sign_mask", &sign_mask, relu));
  cases.push_back(forward_case("leaky_relu_forward/sign_mask", &sign_mask,
                               [](const auto& x, const auto& y, const auto& mask, const auto& c) {
                                 leaky_relu_forward(x, y, mask, slope, c);
                               }));
  cases.push_back(forward_case("clip_forward/range_mask", &range_mask,
                               [](const auto& x, const auto& y, const auto& mask, const auto& c) {
                                 clip_forward(x, y, mask, lower, upper, rule, c);
                               }));
  cases.push_back(dense_relu_backward());
  cases.push_back(backward_case("leaky_relu_backward/sign_mask", sign_mask,
                                [](const auto& dy, const auto& stash, const auto& dx, const auto& c) {
                                  leaky_relu_backward(dy, {sign_mask, dy.type, dy.dims, stash}, dx, slope, c);
                                }));
  cases.push_back(
      backward_case("clip_backward/range_mask", range_mask,
                    [](const auto& dy, const auto& stash, const auto& dx, const auto& c) {
                      clip_backward(dy, {range_mask, dy.type, dy.dims, stash}, dx, lower, upper, rule, c);
                    }));
  for (const encoding& e : bench::benched_encodings()) {
    if (e.kind == encoding_kind::raw || e.kind == encoding_kind::range_mask) continue;
    cases.push_back(backward_case("relu_backward/" + to_string(e), e,
                                  [e](const auto& dy, const auto& stash, const auto& dx, const auto& c) {
                                    relu_backward(dy, {e, dy.type, dy.dims, stash}, dx, rule, c);
                                  }));
  }
}

constexpr dropout_key key{1, 2, 3};

void add_dropout(std::vector<measured_case>& cases) {
  const auto dropout = [](const auto& x, const auto& y, const auto& mask, const auto& c) {
    dropout_forward(x, y, mask, 0.5F, key, c);
  };
  cases.push_back(forward_case("dropout_forward/no_stash", nullptr, dropout));
  cases.push_back(forward_case("dropout_forward/sign_mask", &sign_mask, dropout));
  // Nothing is read but dy, as in a forward pass without a mask.
  cases.push_back(forward_case("dropout_backward/key", nullptr,
                               [](const auto& dy, const auto& dx, const auto&, const auto& c) {
                                 dropout_backward(dy, dx, 0.5F, key, c);
                               }));
  cases.push_back(backward_case(
      "dropout_backward/sign_mask", sign_mask,
      [](const auto& dy, const auto& mask, const auto& dx, const auto& c) {
        dropout_backward(dy, {{.kind = encoding_kind::sign_mask}, dy.type, dy.dims, mask}, dx, 0.5F, c);
      }));
}

}  // namespace

bool takes_floats(dtype type) {
  return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16;
}

bool can_encode(const encoding& e, dtype type) {
  const bool sixteen = e.values == value_format::fp16 || e.values == value_format::bf16;
  return takes_floats(type) && (type == dtype::f32 || e.kind != encoding_kind::cast || !sixteen);
}

std::vector<measured_case> stash_cases() {
  std::vector<measured_case> cases;
  for (const encoding& e : bench::benched_encodings()) {
    cases.push_back(encode_case(e));
    // A mask has no values to give back: its readers are the layers.
    if (e.kind != encoding_kind::sign_mask && e.kind != encoding_kind::range_mask)
      cases.push_back(decode_case(e));
  }
  add_layers(cases);
  for (measured_case& c : pool_cases())
    cases.push_back(std::move(c));
  add_dropout(cases);
  for (const auto& more : {tile_cases, sequence_cases, batch_cases}) {
    for (measured_case& c : more())
      cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace stash::gpu
