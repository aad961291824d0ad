// The table of bench/cases on a device: encodings, ReLU and its kin, pooling, dropout. Names are those of the
// table there.

#include <utility>

#include "bench/cases/groups.hpp"
#include "bench/gpu/cases.hpp"
#include "bench/gpu/stored_map.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"

namespace stash::gpu {
namespace {

constexpr framework_rule rule = framework_rule::tensorflow;
constexpr float slope = 0.01F, lower = 0.0F, upper = 6.0F;
constexpr encoding sign_mask{.kind = encoding_kind::sign_mask};
constexpr encoding range_mask{.kind = encoding_kind::range_mask, .lower = lower, .upper = upper};

shared_map empty_map(const map_form& form) {
  return std::make_shared<device_map>(form.type, form.dims());
}

/// Encodes, and waits.
shared_store stored(const encoding& e, const device_map& x, dtype type) {
  auto kept = std::make_shared<stored_map>(e, type, x.elements());
  encode(e, x.view(), kept->write(), {}, on_device(nullptr));
  wait_for_device();
  kept->verify();
  return kept;
}

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
            return {[](void*) {},
                    [=](void* stream) { decode(e, kept->read(), x->view(), {}, on_device(stream)); },
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
                                  leaky_relu_backward(dy, sign_mask, stash, dx, slope, c);
                                }));
  cases.push_back(backward_case("clip_backward/range_mask", range_mask,
                                [](const auto& dy, const auto& stash, const auto& dx, const auto& c) {
                                  clip_backward(dy, range_mask, stash, dx, lower, upper, rule, c);
                                }));
  for (const encoding& e : bench::benched_encodings()) {
    if (e.kind == encoding_kind::raw || e.kind == encoding_kind::range_mask) continue;
    cases.push_back(backward_case("relu_backward/" + to_string(e), e,
                                  [e](const auto& dy, const auto& stash, const auto& dx, const auto& c) {
                                    relu_backward(dy, e, stash, dx, rule, c);
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
  cases.push_back(backward_case("dropout_backward/sign_mask", sign_mask,
                                [](const auto& dy, const auto& mask, const auto& dx, const auto& c) {
                                  dropout_backward(dy, mask, dx, 0.5F, c);
                                }));
}

struct pooling {
  bool with_relu;
  pool_window window;
  /// Of planes, where channels come first. A map that they do not divide has some values more.
  std::int64_t side = 64, pooled_side = window.stride_h == 2 ? 32 : 64;

  /// x, and y = x pooled by two or, with windows one apart and padding, as large as x.
  tensor_view whole(const device_map& m) const { return with_planes(m, side); }
  tensor_view pooled(const device_map& m) const { return with_planes(m, pooled_side); }
  shape pooled_dims(const map_form& form) const {
    if (first()) return {1, form.elements() / side / side, pooled_side, pooled_side};
    return window.stride_h == 2 ? form.pooled_dims() : form.dims();
  }
  std::uint64_t bytes_of_whole(const device_map& m) const {
    const const_tensor_view x = whole(m);
    return static_cast<std::uint64_t>(x.elements()) * size_of(x.type);
  }
  encoding form() const {
    return {.kind = with_relu ? encoding_kind::relu_pool : encoding_kind::window_index,
            .window_cells = static_cast<std::uint16_t>(window.cells())};
  }
  void forward(const device_map& x, const device_map& y, const encoded_view& kept, void* stream) const {
    if (with_relu) {
      relu_max_pool_forward(whole(x), pooled(y), window, kept, {}, rule, on_device(stream));
    } else {
      max_pool_forward(whole(x), pooled(y), window, kept, rule, on_device(stream));
    }
  }
  void backward(const device_map& dy, const const_encoded_view& kept, const device_map& dx,
                void* stream) const {
    if (with_relu) {
      relu_max_pool_backward(pooled(dy), kept, whole(dx), window, on_device(stream));
    } else {
      max_pool_backward(pooled(dy), kept, whole(dx), window, on_device(stream));
    }
  }
  void dense_backward(const device_map& dy, const device_map& x, const device_map& dx, void* stream) const {
    if (with_relu) {
      relu_max_pool_backward(pooled(dy), whole(x), whole(dx), window, rule, on_device(stream));
    } else {
      max_pool_backward(pooled(dy), whole(x), whole(dx), window, rule, on_device(stream));
    }
  }

 private:
  bool first() const { return window.layout == pool_layout::channels_first; }
  /// A map as it is, or where channels come first as planes of `length` x `length`.
  tensor_view with_planes(const device_map& m, std::int64_t length) const {
    return first() ? m.part(0, {1, m.elements() / length / length, length, length}) : m.view();
  }
};

measured_case pool_forward(std::string name, const pooling& p, bool writes) {
  return {std::move(name), takes_floats, [=](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map x = maps.before_relu(form);
            const auto y = std::make_shared<device_map>(form.type, p.pooled_dims(form));
            if (!writes) {
              return {[](void*) {},
                      [=](void* stream) { p.forward(*x, *y, {}, stream); },
                      [] {},
                      p.bytes_of_whole(*x) + y->bytes(),
                      0,
                      x->bytes()};
            }
            const auto kept = std::make_shared<stored_map>(p.form(), form.type, y->elements());
            return {[=](void* stream) { kept->reset(stream); },
                    [=](void* stream) { p.forward(*x, *y, kept->write(), stream); },
                    [=] { kept->verify(); },
                    p.bytes_of_whole(*x) + y->bytes() + kept->bytes(),
                    kept->bytes(),
                    x->bytes()};
          }};
}

measured_case pool_backward(std::string name, const pooling& p, bool from_form) {
  return {std::move(name), takes_floats, [=](const map_form& form, map_source& maps) -> prepared_case {
            const shared_map x = maps.before_relu(form), dx = empty_map(form);
            const auto dy = std::make_shared<device_map>(form.type, p.pooled_dims(form));
            const auto kept = std::make_shared<stored_map>(p.form(), form.type, dy->elements());
            p.forward(*x, *dy, kept->write(), nullptr);
            wait_for_device();
            if (!from_form) {
              return {[](void*) {},
                      [=](void* stream) { p.dense_backward(*dy, *x, *dx, stream); },
                      [] {},
                      2 * p.bytes_of_whole(*x) + dy->bytes(),
                      0,
                      x->bytes()};
            }
            return {[](void*) {},
                    [=](void* stream) { p.backward(*dy, kept->read(), *dx, stream); },
                    [=] { kept->verify(); },
                    p.bytes_of_whole(*dx) + dy->bytes() + kept->bytes(),
                    kept->bytes(),
                    x->bytes()};
          }};
}

void add_pooling(std::vector<measured_case>& cases, const pooling& p, const std::string& kind) {
  const std::string layer = p.with_relu ? "relu_max_pool" : "max_pool";
  const std::string form = to_string(p.form());
  cases.push_back(pool_forward(layer + "_forward/no_stash" + kind, p, false));
  cases.push_back(pool_forward(layer + "_forward/" + form + kind, p, true));
  cases.push_back(pool_backward(layer + "_backward/" + form + kind, p, true));
  cases.push_back(pool_backward(layer + "_backward/x" + kind, p, false));
}

void add_pooling(std::vector<measured_case>& cases) {
  for (const pool_layout layout : {pool_layout::channels_last, pool_layout::channels_first}) {
    const std::string planes = layout == pool_layout::channels_last ? "" : "_channels_first";
    for (const int kernel : {2, 3}) {
      for (const bool with_relu : {false, true})
        add_pooling(cases, {with_relu, {.kernel_h = kernel, .kernel_w = kernel, .layout = layout}},
                    (kernel == 2 ? "" : "_3x3") + planes);
    }
    // As beside convolutions, whose maps theirs are joined with.
    const pool_window one_apart{.kernel_h = 3,
                                .kernel_w = 3,
                                .stride_h = 1,
                                .stride_w = 1,
                                .pad_top = 1,
                                .pad_left = 1,
                                .layout = layout};
    add_pooling(cases, {false, one_apart}, "_3x3_stride_1" + planes);
    if (layout == pool_layout::channels_last) continue;
    // Rows that are no whole pieces of 16 bytes.
    const auto square = [](std::int32_t kernel) {
      return pool_window{.kernel_h = kernel, .kernel_w = kernel, .layout = pool_layout::channels_first};
    };
    add_pooling(cases, {false, square(2), 14, 7}, "_14x14" + planes);
    add_pooling(cases, {false, square(3), 55, 27}, "_3x3_55x55" + planes);
    add_pooling(cases, {false, one_apart, 35, 35}, "_3x3_stride_1_35x35" + planes);
  }
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
  add_pooling(cases);
  add_dropout(cases);
  for (const auto& more : {sequence_cases, batch_cases}) {
    for (measured_case& c : more())
      cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace stash::gpu
