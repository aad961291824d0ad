// SPDX-License-Identifier: Apache-2.0
// Max-pooling alone and joined with ReLU: forward with and without the small form, backward from it and from
// the dense map.

#include "stash/pool.hpp"

#include <array>
#include <utility>

#include "bench/cases/groups.hpp"
#include "bench/gpu/cases.hpp"
#include "bench/gpu/stored_map.hpp"

namespace stash::gpu {
namespace {

constexpr framework_rule rule = framework_rule::tensorflow;
constexpr pool_layout last = pool_layout::channels_last, first = pool_layout::channels_first;
// Of three-dimensional maps: slices in NCHW, rows of a slice in NHWC.
constexpr std::int64_t slices = 16, slice_rows = 8, slice_width = 16;

struct pooling {
  bool with_relu;
  pool_window window;
  /// Of planes, in NCHW. A map that they do not divide has some values more.
  std::int64_t side = 64;

  encoding form() const {
    return {.kind = with_relu ? encoding_kind::relu_pool : encoding_kind::window_index,
            .window_taps = static_cast<std::uint16_t>(window.taps())};
  }
  /// x: as much of a map as fits in it.
  tensor_view whole(const device_map& m) const { return m.part(0, dims(m.elements())); }
  std::uint64_t bytes_of_whole(const device_map& m) const {
    const const_tensor_view x = whole(m);
    return static_cast<std::uint64_t>(x.elements()) * size_of(x.type);
  }
  /// y is as much smaller than x as the stride.
  shape pooled_dims(const map_form& form) const {
    const shape x = dims(form.elements());
    std::array<std::int64_t, 5> y{};
    const auto rank = static_cast<std::size_t>(x.rank());
    for (std::size_t axis = 0; axis < rank; ++axis)
      y[axis] = x[static_cast<int>(axis)];
    const std::size_t columns = rank - (window.layout == first ? 1 : 2);
    y[columns] /= window.stride_w;
    y[columns - 1] /= window.stride_h;
    if (deep()) y[columns - 2] /= window.stride_d;
    return shape(std::span<const std::int64_t>(y.data(), rank));
  }
  void forward(const device_map& x, const device_map& y, const encoded_view& kept, void* stream) const {
    if (with_relu) {
      relu_max_pool_forward(whole(x), y.view(), window, kept, {}, rule, on_device(stream));
    } else {
      max_pool_forward(whole(x), y.view(), window, kept, rule, on_device(stream));
    }
  }
  void backward(const device_map& dy, const const_encoded_view& kept, const device_map& dx,
                void* stream) const {
    if (with_relu) {
      relu_max_pool_backward(dy.view(), {relu_pool_of(window), dy.view().type, dy.view().dims, kept},
                             whole(dx), window, on_device(stream));
    } else {
      max_pool_backward(dy.view(), {window_index_of(window), dy.view().type, dy.view().dims, kept}, whole(dx),
                        window, on_device(stream));
    }
  }
  void dense_backward(const device_map& dy, const device_map& x, const device_map& dx, void* stream) const {
    if (with_relu) {
      relu_max_pool_backward(dy.view(), whole(x), whole(dx), window, rule, on_device(stream));
    } else {
      max_pool_backward(dy.view(), whole(x), whole(dx), window, rule, on_device(stream));
    }
  }

 private:
  bool deep() const { return window.kernel_d > 1; }
  /// Of x in a map of so many elements.
  shape dims(std::int64_t elements) const {
    const std::int64_t pixels = elements / bench::map_channels;
    if (window.layout == last) {
      if (deep()) return {1, pixels / slice_rows / slice_width, slice_rows, slice_width, bench::map_channels};
      return {1, pixels / slice_width, slice_width, bench::map_channels};
    }
    if (deep()) return {1, elements / side / side / slices, slices, side, side};
    return {1, elements / side / side, side, side};
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

void add(std::vector<measured_case>& cases, const pooling& p, const std::string& kind) {
  const std::string layer = p.with_relu ? "relu_max_pool" : "max_pool";
  const std::string form = to_string(p.form());
  cases.push_back(pool_forward(layer + "_forward/no_stash" + kind, p, false));
  cases.push_back(pool_forward(layer + "_forward/" + form + kind, p, true));
  cases.push_back(pool_backward(layer + "_backward/" + form + kind, p, true));
  cases.push_back(pool_backward(layer + "_backward/x" + kind, p, false));
}

/// Stride 2.
pool_window square(std::int32_t kernel, pool_layout layout) {
  return {.kernel_h = kernel, .kernel_w = kernel, .layout = layout};
}

}  // namespace

std::vector<measured_case> pool_cases() {
  std::vector<measured_case> cases;
  for (const pool_layout layout : {last, first}) {
    const std::string planes = layout == last ? "" : "_channels_first";
    for (const int kernel : {2, 3}) {
      for (const bool with_relu : {false, true})
        add(cases, {with_relu, square(kernel, layout)}, (kernel == 2 ? "" : "_3x3") + planes);
    }
    // As next to convolutions, whose maps theirs are joined with.
    const pool_window stride_1{.kernel_h = 3,
                               .kernel_w = 3,
                               .stride_h = 1,
                               .stride_w = 1,
                               .pad_top = 1,
                               .pad_left = 1,
                               .layout = layout};
    add(cases, {false, stride_1}, "_3x3_stride_1" + planes);
    if (layout == first) {
      // Rows that are no whole vec16s (16 bytes).
      add(cases, {false, square(2, layout), 14}, "_14x14" + planes);
      add(cases, {false, square(3, layout), 55}, "_3x3_55x55" + planes);
      add(cases, {false, stride_1, 35}, "_3x3_stride_1_35x35" + planes);
    }
    // Windows that have no kernel of their own.
    const auto around = [&](std::int32_t kernel, std::int32_t stride) {
      pool_window w = square(kernel, layout);
      w.stride_h = w.stride_w = stride;
      w.pad_top = w.pad_left = kernel / 2;
      return w;
    };
    add(cases, {false, around(5, 1)}, "_5x5_stride_1" + planes);
    add(cases, {false, around(5, 2)}, "_5x5" + planes);
    pool_window volume = around(3, 1);
    volume.kernel_d = 3, volume.stride_d = volume.pad_front = 1;
    add(cases, {false, volume, 32}, "_3x3x3_stride_1" + planes);
    // Of volumes, by two each way.
    const pool_window cube{.kernel_d = 2, .stride_d = 2, .layout = layout};
    add(cases, {false, cube, 32}, "_3d" + planes);
  }
  return cases;
}

}  // namespace stash::gpu
