// SPDX-License-Identifier: Apache-2.0
// Recorded graphs of layers: activations, dropout and pooling, each with everything that can be kept of it.

#include <fmt/format.h>

#include <vector>

#include "gpu/checks.hpp"
#include "gpu/pool_maps.hpp"
#include "gpu/replay.hpp"
#include "stash/dropout.hpp"
#include "stash/pool.hpp"
#include "stash/relu.hpp"
#include "support/pool_forms.hpp"

namespace stash::gpu {
namespace {

using test::generator;

constexpr dtype types[] = {dtype::f32, dtype::f16, dtype::bf16};

const char* name_of(dtype type) {
  return type == dtype::f32 ? "f32" : type == dtype::f16 ? "f16" : "bf16";
}

/// A layer's tensors on both sides. The same calls are made on each; on a device they are recorded.
struct side {
  execution_context context;
  bool on_device;

  tensor_view map_of(const tensor_pair& t) const { return on_device ? t.on_device() : t.on_host(); }
  tensor_view map_of(const pool_map& m) const { return on_device ? m.on_device() : m.on_host(); }
  encoded_view out(coded& c) const { return on_device ? c.device_out() : c.host_out(); }
  const_encoded_view in(coded& c) const { return on_device ? c.device_in() : c.host_in(); }
};

void clear_report(const coded& c, void* stream) {
  fill(c.report.data(), 0, sizeof(encode_report), stream);
}

constexpr side host_side{{}, false};

side device_side(void* stream) {
  return {device_context(stream), true};
}

/// ReLU, leaky ReLU and clipping: forward with and without a mask, backward from the mask and from the map.
class activations_work {
 public:
  activations_work(dtype type, std::int64_t n, buffer_mode mode)
      : type_(type),
        n_(n),
        x_(make(mode)),
        dy_(make(mode)),
        layers_{layer(*this, mode), layer(*this, mode), layer(*this, mode)} {}

  void set(generator& random) {
    x_.set(random.make(type_, n_));
    dy_.set(random.make(type_, n_));
  }
  void enqueue(void* stream) {
    for (const layer& l : layers_)
      clear_report(l.mask, stream);
    run(device_side(stream));
  }
  void verify() {
    for (layer& l : layers_)
      l.mask.host_report = {};
    run(host_side);
    for (const layer& l : layers_) {
      l.mask.expect_same("mask");
      for (const tensor_pair* t : {&l.y, &l.y_alone, &l.dx, &l.dx_dense})
        t->expect_same("a map");
    }
  }

 private:
  struct layer {
    layer(const activations_work& work, buffer_mode mode)
        : mask(mode, encoded_bytes_bound({.kind = encoding_kind::sign_mask}, work.type_, work.n_)),
          y(work.make(mode)),
          y_alone(work.make(mode)),
          dx(work.make(mode)),
          dx_dense(work.make(mode)) {}
    coded mask;
    tensor_pair y, y_alone, dx, dx_dense;
  };

  tensor_pair make(buffer_mode mode) const { return {mode, type_, n_, {n_, 0, 0}}; }

  void run(const side& s) {
    const auto rule = framework_rule::pytorch;
    const encoding sign{.kind = encoding_kind::sign_mask}, range{.kind = encoding_kind::range_mask};
    const tensor_view x = s.map_of(x_), dy = s.map_of(dy_);
    const execution_context& c = s.context;
    layer &relu = layers_[0], &leaky = layers_[1], &clip = layers_[2];
    relu_forward(x, s.map_of(relu.y), s.out(relu.mask), rule, c);
    relu_forward(x, s.map_of(relu.y_alone), {}, rule, c);
    relu_backward(dy, {sign, dy.type, dy.dims, s.in(relu.mask)}, s.map_of(relu.dx), rule, c);
    relu_backward(dy, s.map_of(relu.y), s.map_of(relu.dx_dense), rule, c);
    leaky_relu_forward(x, s.map_of(leaky.y), s.out(leaky.mask), 0.1F, c);
    leaky_relu_forward(x, s.map_of(leaky.y_alone), {}, 0.1F, c);
    leaky_relu_backward(dy, {sign, dy.type, dy.dims, s.in(leaky.mask)}, s.map_of(leaky.dx), 0.1F, c);
    leaky_relu_backward(dy, x, s.map_of(leaky.dx_dense), 0.1F, c);
    clip_forward(x, s.map_of(clip.y), s.out(clip.mask), 0, 6, rule, c);
    clip_forward(x, s.map_of(clip.y_alone), {}, 0, 6, rule, c);
    clip_backward(dy, {range, dy.type, dy.dims, s.in(clip.mask)}, s.map_of(clip.dx), 0, 6, rule, c);
    clip_backward(dy, x, s.map_of(clip.dx_dense), 0, 6, rule, c);
  }

  dtype type_;
  std::int64_t n_;
  tensor_pair x_, dy_;
  layer layers_[3];
};

class dropout_work {
 public:
  dropout_work(dtype type, std::int64_t n, buffer_mode mode)
      : type_(type),
        n_(n),
        x_(make(mode)),
        dy_(make(mode)),
        y_(make(mode)),
        y_alone_(make(mode)),
        dx_(make(mode)),
        dx_from_key_(make(mode)),
        mask_(mode, encoded_bytes_bound({.kind = encoding_kind::sign_mask}, type, n)) {}

  void set(generator& random) {
    x_.set(random.make(type_, n_));
    dy_.set(random.make(type_, n_));
  }
  void enqueue(void* stream) {
    clear_report(mask_, stream);
    run(device_side(stream));
  }
  void verify() {
    mask_.host_report = {};
    run(host_side);
    mask_.expect_same("mask");
    for (const tensor_pair* t : {&y_, &y_alone_, &dx_, &dx_from_key_})
      t->expect_same("a map");
  }

 private:
  tensor_pair make(buffer_mode mode) const { return {mode, type_, n_, {n_, 0, 0}}; }

  void run(const side& s) {
    const dropout_key key{0x0123456789abcdefU, 7, 3};
    dropout_forward(s.map_of(x_), s.map_of(y_), s.out(mask_), 0.3F, key, s.context);
    dropout_forward(s.map_of(x_), s.map_of(y_alone_), {}, 0.3F, key, s.context);
    dropout_backward(
        s.map_of(dy_),
        {{.kind = encoding_kind::sign_mask}, s.map_of(dy_).type, s.map_of(dy_).dims, s.in(mask_)},
        s.map_of(dx_), 0.3F, s.context);
    dropout_backward(s.map_of(dy_), s.map_of(dx_from_key_), 0.3F, key, s.context);
  }

  dtype type_;
  std::int64_t n_;
  tensor_pair x_, dy_, y_, y_alone_, dx_, dx_from_key_;
  coded mask_;
};

/// Max-pooling, alone and joined with ReLU, and backward from everything.
class pool_work {
 public:
  static constexpr int backward_ways = 7;

  pool_work(const stash_test::pool_form& f, dtype type, buffer_mode mode)
      : w_(f.window),
        x_(mode, type, f.x, 0),
        dy_(mode, type, f.y, 0),
        y_(mode, type, f.y, 0),
        relu_y_(mode, type, f.y, 0),
        index_(mode, bytes(encoding_kind::window_index, type, f.y)),
        relu_index_(mode, bytes(encoding_kind::window_index, type, f.y)),
        code_(mode, bytes(encoding_kind::relu_pool, type, f.y)),
        stash_(mode, bytes(encoding_kind::bitmap, type, f.y)),
        signs_(mode, bytes(encoding_kind::sign_mask, type, f.y)) {
    for (int way = 0; way < backward_ways; ++way)
      dx_.emplace_back(mode, type, f.x, 0);
  }

  void set(generator& random) {
    const tensor_view x = x_.on_host(), dy = dy_.on_host();
    x_.pair.set(random_map(x.type, x.elements(), random));
    dy_.pair.set(random_gradients(dy.type, dy.elements(), random));
  }
  void enqueue(void* stream) {
    for (const coded* c : {&index_, &relu_index_, &code_, &stash_, &signs_})
      clear_report(*c, stream);
    run(device_side(stream));
  }
  void verify() {
    for (coded* c : {&index_, &relu_index_, &code_, &stash_, &signs_})
      c->host_report = {};
    run(host_side);
    y_.pair.expect_same("y");
    relu_y_.pair.expect_same("y after ReLU");
    index_.expect_same("window_index");
    relu_index_.expect_same("window_index after ReLU");
    code_.expect_same("relu_pool");
    stash_.expect_same_report("bitmap of y");
    signs_.expect_same("sign_mask of y");
    for (std::size_t i = 0; i < dx_.size(); ++i)
      dx_[i].pair.expect_same(fmt::format("dx, way {}", i));
  }

 private:
  std::size_t bytes(encoding_kind kind, dtype type, const shape& y) const {
    const auto taps = static_cast<std::uint16_t>(w_.taps());
    return encoded_bytes_bound({.kind = kind, .window_taps = taps}, type, y.elements());
  }

  void run(const side& s) {
    const auto rule = framework_rule::tensorflow;
    const encoding bitmap{.kind = encoding_kind::bitmap}, sign_mask{.kind = encoding_kind::sign_mask};
    const tensor_view x = s.map_of(x_), dy = s.map_of(dy_), relu_y = s.map_of(relu_y_);
    const execution_context& c = s.context;
    max_pool_forward(x, s.map_of(y_), w_, s.out(index_), rule, c);
    max_pool_backward(dy, {window_index_of(w_), dy.type, dy.dims, s.in(index_)}, s.map_of(dx_[0]), w_, c);
    max_pool_backward(dy, x, s.map_of(dx_[1]), w_, rule, c);
    relu_max_pool_forward(x, relu_y, w_, s.out(code_), s.out(relu_index_), rule, c);
    encode(bitmap, relu_y, s.out(stash_), {}, c);
    encode(sign_mask, relu_y, s.out(signs_), {}, c);
    relu_max_pool_backward(dy, {relu_pool_of(w_), dy.type, dy.dims, s.in(code_)}, s.map_of(dx_[2]), w_, c);
    relu_max_pool_backward(dy, {window_index_of(w_), dy.type, dy.dims, s.in(relu_index_)},
                           {bitmap, dy.type, dy.dims, s.in(stash_)}, s.map_of(dx_[3]), w_, rule, c);
    relu_max_pool_backward(dy, {window_index_of(w_), dy.type, dy.dims, s.in(relu_index_)}, relu_y,
                           s.map_of(dx_[4]), w_, rule, c);
    relu_max_pool_backward(dy, x, s.map_of(dx_[5]), w_, rule, c);
    relu_max_pool_backward(dy, {window_index_of(w_), dy.type, dy.dims, s.in(relu_index_)},
                           {sign_mask, dy.type, dy.dims, s.in(signs_)}, s.map_of(dx_[6]), w_, rule, c);
  }

  pool_window w_;
  pool_map x_, dy_, y_, relu_y_;
  std::vector<pool_map> dx_;
  coded index_, relu_index_, code_, stash_, signs_;
};

}  // namespace

std::vector<named_check> graph_layer_checks(const check_setup& setup) {
  std::vector<named_check> checks;
  const buffer_mode mode = setup.mode;
  const auto add = [&](std::string name, const auto& make) {
    checks.push_back(repeated(std::move(name), 1, [make](std::uint32_t seed) {
      auto work = make();
      replay(work, seed + 23);
    }));
  };
  for (const dtype type : types) {
    add(fmt::format("graph_activations/{}", name_of(type)),
        [=] { return activations_work(type, 20011, mode); });
    add(fmt::format("graph_dropout/{}", name_of(type)), [=] { return dropout_work(type, 20011, mode); });
    for (const stash_test::pool_form& f : stash_test::pool_forms())
      add(fmt::format("graph_pool_{}/{}", f.name, name_of(type)), [=] { return pool_work(f, type, mode); });
  }
  return checks;
}

}  // namespace stash::gpu
