// SPDX-License-Identifier: Apache-2.0
#include "stash/dropout.hpp"

#include <array>

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/device/backend.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/philox.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/public_call.hpp"

namespace stash {
namespace {

using namespace encoders;

dropout_constants checked_constants(std::string_view function, float probability) {
  if (is_below(probability, 0) || !is_below(probability, 1)) {
    fail(errc::invalid_argument, function, "probability", "at least 0 and below 1",
         fmt::format("{}", probability));
  }
  return in_default_rounding([probability]() -> dropout_constants {
    // Exact: a binary32 number below 1 times 2^32 is below 2^32 and fits binary64.
    const double p = static_cast<double>(probability);
    return {static_cast<std::uint32_t>(p * 4294967296.0), static_cast<float>(1.0 / (1.0 - p))};
  });
}

constexpr std::uint32_t low_word(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high_word(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value >> 32);
}

/// Elements [first, first + length), read from `from` and written to `to`; null: past the caches.
struct dropout_run {
  std::int64_t first, length;
  const float* from;
  const float* to;
};

/// Bit i of `bits` = element run.first + i, a multiple of 4, is kept.
void draw_mask(const dropout_key& key, std::uint32_t threshold, const dropout_run& run,
               std::uint8_t* bits) noexcept {
  const philox_stream stream{{low_word(key.seed), high_word(key.seed) ^ high_word(key.step)},
                             {key.layer, low_word(key.step)}};
  loops().draw_bits(stream, static_cast<std::uint64_t>(run.first / 4), run.length, threshold, run.from,
                    run.to, bits);
}

/// out = bit ? in * scale : +0 with bits_of(run, buffer) giving the bits of a tile, from where they lie or in
/// the buffer.
template <class BitsOf>
void apply(const const_tensor_view& in, const tensor_view& out, float scale, const execution_context& context,
           fetched_by who, const BitsOf& bits_of) {
  const value_output output(out, rounding::result, context, who);
  const auto tile = [&](std::int64_t, std::int64_t first, std::int64_t length) {
    std::array<std::uint8_t, tile_elements / 8> buffer;
    alignas(run_alignment) std::array<float, tile_elements> in_buffer;
    const float* from = read_values(in, first, length, in_buffer.data());
    output.fill(first, length, [&](float* to, destination where) {
      const dropout_run run{first, length, from, where == destination::caches ? to : nullptr};
      loops().scale_kept(from, bits_of(run, buffer.data()), length, scale, to, where);
    });
  };
  for_each_tile(context, in.elements(), tile, [&] { output.finish(); });
}

constexpr std::string_view backward_name = "dropout_backward";

}  // namespace

void dropout_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                     float probability, const dropout_key& key, const execution_context& context) try {
  constexpr std::string_view function = "dropout_forward";
  check_context(function, context);
  check_float_pair(function, "x", x, "y", y, context.space);
  const dropout_constants constants = checked_constants(function, probability);
  const std::int64_t elements = x.elements();
  const std::size_t mask_bytes = plane_bytes(elements, 1);
  auto* plane = static_cast<std::uint8_t*>(mask.data);
  if (plane != nullptr) check_encoded(function, "mask", mask, mask_bytes);
  call_memory(function).reads("x", x).writes_in_place("y", y, "x").writes("mask", mask, mask_bytes);
  if (on_device(context)) return device::kernels().dropout_forward(x, y, mask, constants, key, context);
  if (plane != nullptr) {
    const auto used = static_cast<std::size_t>((elements + 7) / 8);
    std::memset(plane + used, 0, mask_bytes - used);
    add(mask.report->slot_bytes, mask_bytes);
  }
  apply(x, y, constants.scale, context, fetched_by::loops, [&](const dropout_run& run, std::uint8_t* buffer) {
    std::uint8_t* bits = plane != nullptr ? plane + run.first / 8 : buffer;
    draw_mask(key, constants.threshold, run, bits);
    return bits;
  });
} catch (...) {
  encoders::rethrow("dropout_forward");
}

void dropout_backward(const const_tensor_view& dy, const encoded_tensor& mask, const tensor_view& dx,
                      float probability, const execution_context& context) try {
  check_context(backward_name, context);
  check_float_pair(backward_name, "dy", dy, "dx", dx, context.space);
  check_kind(backward_name, "mask", mask, {.kind = encoding_kind::sign_mask});
  check_same_elements(backward_name, "mask", mask, "dy", dy);
  const dropout_constants constants = checked_constants(backward_name, probability);
  const std::size_t mask_bytes = plane_bytes(dy.elements(), 1);
  check_encoded(backward_name, "mask", mask.bytes, mask_bytes);
  call_memory(backward_name)
      .reads("dy", dy)
      .reads("mask", mask.bytes, mask_bytes)
      .writes_in_place("dx", dx, "dy");
  if (on_device(context)) return device::kernels().dropout_backward(dy, mask, dx, constants, context);
  const auto* plane = static_cast<const std::uint8_t*>(mask.bytes.data);
  apply(dy, dx, constants.scale, context, fetched_by::output,
        [&](const dropout_run& run, std::uint8_t*) { return plane + run.first / 8; });
} catch (...) {
  encoders::rethrow("dropout_backward");
}

void dropout_backward(const const_tensor_view& dy, const tensor_view& dx, float probability,
                      const dropout_key& key, const execution_context& context) try {
  check_context(backward_name, context);
  check_float_pair(backward_name, "dy", dy, "dx", dx, context.space);
  const dropout_constants constants = checked_constants(backward_name, probability);
  call_memory(backward_name).reads("dy", dy).writes_in_place("dx", dx, "dy");
  if (on_device(context)) return device::kernels().dropout_backward(dy, dx, constants, key, context);
  apply(dy, dx, constants.scale, context, fetched_by::loops,
        [&](const dropout_run& run, std::uint8_t* buffer) {
          draw_mask(key, constants.threshold, run, buffer);
          return buffer;
        });
} catch (...) {
  encoders::rethrow("dropout_backward");
}

}  // namespace stash
