// SPDX-License-Identifier: Apache-2.0
#include "stash/relu.hpp"

#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/device/backend.hpp"
#include "encoders/format/convert.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"
#include "encoders/layers/sign_source.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/public_call.hpp"

namespace stash {
namespace {

using namespace encoders;

/// Of a checked view of so many elements.
template <class View>
extent extent_of_checked(const View& view, std::int64_t elements) noexcept {
  if (!view.dense()) return extent_of(view);
  return extent_of(view.data, static_cast<std::size_t>(elements) * size_of(view.type));
}

/// The views of a forward call; y may be x. Returns the count of elements.
std::int64_t check_forward(std::string_view function, const const_tensor_view& x, const tensor_view& y,
                           const encoded_view& mask, const execution_context& context) {
  const std::int64_t elements = check_float_pair(function, "x", x, "y", y, context.space);
  const std::size_t mask_bytes = plane_bytes(elements, 1);
  const bool masked = mask.data != nullptr;
  if (masked) check_encoded(function, "mask", mask, mask_bytes);
  const extent in = extent_of_checked(x, elements), out = extent_of_checked(y, elements);
  // In place they are one.
  const extent all[] = {in, in == out ? extent{} : out, extent_of(mask.data, mask_bytes),
                        extent_of(masked ? mask.report : nullptr, sizeof(encode_report))};
  if (!plainly_apart(all)) {
    call_memory(function).reads("x", x).writes_in_place("y", y, "x").writes("mask", mask, mask_bytes);
  }
  return elements;
}

/// The views of a backward call from the dense map `values`; dx may be dy.
void check_backward(std::string_view function, const const_tensor_view& dy, const char* values_name,
                    const const_tensor_view& values, const tensor_view& dx,
                    const execution_context& context) {
  const std::int64_t elements = check_float_pair(function, "dy", dy, "dx", dx, context.space);
  check_float_pair(function, "dy", dy, values_name, values, context.space);
  const extent in = extent_of_checked(dy, elements), out = extent_of_checked(dx, elements);
  const extent all[] = {in, in == out ? extent{} : out, extent_of_checked(values, elements)};
  if (plainly_apart(all)) return;
  call_memory(function).reads("dy", dy).reads(values_name, values).writes_in_place("dx", dx, "dy");
}

/// The memory of a backward call from a checked stash; dx may be dy.
void check_stash_overlap(std::string_view function, const const_tensor_view& dy, const checked_stash& stash,
                         const tensor_view& dx) {
  call_memory memory(function);
  add_stash(memory.reads("dy", dy), "stash", stash).writes_in_place("dx", dx, "dy");
}

/// y = f(x) and, where asked for, a mask. write(values, length, target, where, bits) computes a run and its
/// mask's bits, which are null where nobody asks; `target` may be `values`. `how` says whether y's values are
/// exact in its type.
template <class Write>
void forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
             std::int64_t elements, rounding how, const execution_context& context, const Write& write) {
  auto* plane = static_cast<std::uint8_t*>(mask.data);
  const value_output output(y, how, context);
  const auto tile = [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float in[tile_elements];
    const float* values = read_values(x, first, length, in);
    output.fill(first, length, [&](float* to, destination where) {
      write(values, length, to, where, plane == nullptr ? nullptr : plane + first / 8);
    });
  };
  for_each_tile(context, elements, tile, [&] { output.finish(); });
  if (plane == nullptr) return;
  const auto used = static_cast<std::size_t>((elements + 7) / 8);
  const std::size_t mask_bytes = plane_bytes(elements, 1);
  std::memset(plane + used, 0, mask_bytes - used);
  add(mask.report->slot_bytes, mask_bytes);
}

/// make_bits(tile, first, length, buffer) returns the bits of a tile, in `buffer` if they lie nowhere yet;
/// write(dy, bits, length, dx, where) computes a run.
template <class MakeBits, class Write>
void backward(const const_tensor_view& dy, const tensor_view& dx, rounding how,
              const execution_context& context, const MakeBits& make_bits, const Write& write) {
  const value_output output(dx, how, context);
  const auto tile = [&](std::int64_t index, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float in[tile_elements];
    std::uint8_t buffer[tile_elements / 8];
    const std::uint8_t* bits = make_bits(index, first, length, buffer);
    const float* values = read_values(dy, first, length, in);
    output.fill(first, length, [&](float* to, destination where) { write(values, bits, length, to, where); });
  };
  for_each_tile(context, dx.elements(), tile, [&] { output.finish(); });
}

void check_slope(std::string_view function, float slope) {
  if (!std::isfinite(slope)) {
    fail(errc::invalid_argument, function, "slope", "a finite number", fmt::format("{}", slope));
  }
}

void check_bounds(std::string_view function, float lower, float upper) {
  if (is_below(lower, upper)) return;
  fail(errc::invalid_argument, function, "lower", "a number below upper",
       fmt::format("{} and {}", lower, upper));
}

constexpr std::string_view relu_backward_name = "relu_backward";
constexpr std::string_view leaky_backward_name = "leaky_relu_backward";
constexpr std::string_view clip_backward_name = "clip_backward";

/// The bits of the dense map `values`, made anew.
template <class MakeBits>
auto bits_of_dense(const const_tensor_view& values, const MakeBits& make) {
  return [&values, make](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* bits) {
    alignas(run_alignment) float buffer[tile_elements];
    make(read_values(values, first, length, buffer), length, bits);
    return static_cast<const std::uint8_t*>(bits);
  };
}

}  // namespace

void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                  framework_rule rule, const execution_context& context) try {
  constexpr std::string_view function = "relu_forward";
  check_context(function, context);
  check_rule(function, rule);
  const std::int64_t elements = check_forward(function, x, y, mask, context);
  if (on_device(context)) return device::kernels().relu_forward(x, y, mask, rule, context);
  const run_loops& fast = loops();
  // The gradient passes for x exactly where it passes for y.
  forward(
      x, y, mask, elements, rounding::exact, context,
      [&](const float* values, std::int64_t length, float* target, destination where, std::uint8_t* bits) {
        if (bits == nullptr) {
          fast.rectify(values, length, target, where);
        } else {
          fast.rectify_with_bits(values, length, rule, target, bits, where);
        }
      });
} catch (...) {
  encoders::rethrow("relu_forward");
}

void relu_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                   framework_rule rule, const execution_context& context) try {
  check_context(relu_backward_name, context);
  check_rule(relu_backward_name, rule);
  check_float_pair(relu_backward_name, "dy", dy, "dx", dx, context.space);
  const checked_stash source =
      check_sign_source(relu_backward_name, "stash", stash, "dy", dy, rule, context.space);
  check_stash_overlap(relu_backward_name, dy, source, dx);
  if (on_device(context)) return device::kernels().relu_backward(dy, stash, dx, rule, context);
  backward(
      dy, dx, rounding::exact, context,
      [&](std::int64_t tile, std::int64_t, std::int64_t length, std::uint8_t* buffer) {
        return read_pass_bits(source, tile, length, buffer);
      },
      loops().keep);
} catch (...) {
  encoders::rethrow("relu_backward");
}

void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                   framework_rule rule, const execution_context& context) try {
  check_context(relu_backward_name, context);
  check_rule(relu_backward_name, rule);
  check_backward(relu_backward_name, dy, "y", y, dx, context);
  if (on_device(context)) return device::kernels().relu_backward(dy, y, dx, rule, context);
  backward(dy, dx, rounding::exact, context,
           bits_of_dense(y, [rule](const float* values, std::int64_t length,
                                   std::uint8_t* bits) { loops().pass_bits(values, length, rule, bits); }),
           loops().keep);
} catch (...) {
  encoders::rethrow("relu_backward");
}

void leaky_relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                        float slope, const execution_context& context) try {
  constexpr std::string_view function = "leaky_relu_forward";
  check_context(function, context);
  check_slope(function, slope);
  const std::int64_t elements = check_forward(function, x, y, mask, context);
  if (on_device(context)) return device::kernels().leaky_relu_forward(x, y, mask, slope, context);
  const run_loops& fast = loops();
  forward(
      x, y, mask, elements, rounding::result, context,
      [&](const float* values, std::int64_t length, float* target, destination where, std::uint8_t* bits) {
        std::uint8_t unused[tile_elements / 8];
        if (bits == nullptr) bits = unused;
        fast.scale_with_bits(values, length, slope, target, bits, where);
      });
} catch (...) {
  encoders::rethrow("leaky_relu_forward");
}

void leaky_relu_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                         float slope, const execution_context& context) try {
  check_context(leaky_backward_name, context);
  check_slope(leaky_backward_name, slope);
  check_float_pair(leaky_backward_name, "dy", dy, "dx", dx, context.space);
  const checked_stash source = check_sign_source(leaky_backward_name, "stash", stash, "dy", dy,
                                                 framework_rule::tensorflow, context.space);
  check_stash_overlap(leaky_backward_name, dy, source, dx);
  if (on_device(context)) return device::kernels().leaky_relu_backward(dy, stash, dx, slope, context);
  backward(
      dy, dx, rounding::result, context,
      [&](std::int64_t tile, std::int64_t, std::int64_t length, std::uint8_t* buffer) {
        return read_pass_bits(source, tile, length, buffer);
      },
      [slope](const float* from, const std::uint8_t* bits, std::int64_t length, float* to,
              destination where) { loops().keep_or_scale(from, bits, length, slope, to, where); });
} catch (...) {
  encoders::rethrow("leaky_relu_backward");
}

void leaky_relu_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                         float slope, const execution_context& context) try {
  check_context(leaky_backward_name, context);
  check_slope(leaky_backward_name, slope);
  check_backward(leaky_backward_name, dy, "x", x, dx, context);
  if (on_device(context)) return device::kernels().leaky_relu_backward(dy, x, dx, slope, context);
  backward(dy, dx, rounding::result, context,
           bits_of_dense(x,
                         [](const float* values, std::int64_t length, std::uint8_t* bits) {
                           loops().pass_bits(values, length, framework_rule::tensorflow, bits);
                         }),
           [slope](const float* from, const std::uint8_t* bits, std::int64_t length, float* to,
                   destination where) { loops().keep_or_scale(from, bits, length, slope, to, where); });
} catch (...) {
  encoders::rethrow("leaky_relu_backward");
}

void clip_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask, float lower,
                  float upper, framework_rule rule, const execution_context& context) try {
  constexpr std::string_view function = "clip_forward";
  check_context(function, context);
  check_rule(function, rule);
  check_bounds(function, lower, upper);
  const std::int64_t elements = check_forward(function, x, y, mask, context);
  std::tie(lower, upper) = rounded_bounds(x.type, lower, upper);
  if (on_device(context)) return device::kernels().clip_forward(x, y, mask, lower, upper, rule, context);
  const run_loops& fast = loops();
  // The bounds exist in the type, but a NaN of 16 bits becomes the one that rounding writes.
  forward(
      x, y, mask, elements, rounding::result, context,
      [&](const float* values, std::int64_t length, float* target, destination where, std::uint8_t* bits) {
        // y may be x, so what needs x comes first.
        if (bits != nullptr) fast.range_bits(values, length, lower, upper, rule, bits);
        fast.clip(values, length, lower, upper, target, where);
      });
} catch (...) {
  encoders::rethrow("clip_forward");
}

void clip_backward(const const_tensor_view& dy, const encoded_tensor& stash, const tensor_view& dx,
                   float lower, float upper, framework_rule rule, const execution_context& context) try {
  check_context(clip_backward_name, context);
  check_rule(clip_backward_name, rule);
  check_bounds(clip_backward_name, lower, upper);
  check_float_pair(clip_backward_name, "dy", dy, "dx", dx, context.space);
  const checked_stash source =
      check_range_source(clip_backward_name, "stash", stash, "dy", dy, rule, context.space);
  check_stash_overlap(clip_backward_name, dy, source, dx);
  std::tie(lower, upper) = rounded_bounds(dy.type, lower, upper);
  if (on_device(context)) return device::kernels().clip_backward(dy, stash, dx, lower, upper, rule, context);
  backward(
      dy, dx, rounding::exact, context,
      [&](std::int64_t tile, std::int64_t, std::int64_t length, std::uint8_t* buffer) {
        return read_range_bits(source, lower, upper, tile, length, buffer);
      },
      loops().keep);
} catch (...) {
  encoders::rethrow("clip_backward");
}

void clip_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                   float lower, float upper, framework_rule rule, const execution_context& context) try {
  check_context(clip_backward_name, context);
  check_rule(clip_backward_name, rule);
  check_bounds(clip_backward_name, lower, upper);
  check_backward(clip_backward_name, dy, "x", x, dx, context);
  std::tie(lower, upper) = rounded_bounds(dy.type, lower, upper);
  if (on_device(context)) return device::kernels().clip_backward(dy, x, dx, lower, upper, rule, context);
  backward(dy, dx, rounding::exact, context,
           bits_of_dense(x,
                         [=](const float* values, std::int64_t length, std::uint8_t* bits) {
                           loops().range_bits(values, length, lower, upper, rule, bits);
                         }),
           loops().keep);
} catch (...) {
  encoders::rethrow("clip_backward");
}

}  // namespace stash
