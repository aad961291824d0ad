// SPDX-License-Identifier: Apache-2.0
#include "encoders/format/bits.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/convert.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"

namespace stash::detail {

void encode_sign_mask(framework_rule rule, const const_tensor_view& input, std::uint8_t* plane,
                      const execution_context& context) {
  const run_loops& fast = loops();
  for_each_tile(context, input.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    if (input.type == dtype::u8) {
      alignas(run_alignment) std::uint8_t flags[tile_elements];
      alignas(run_alignment) std::uint8_t buffer[tile_elements];
      fill_flags(read_run(input, first, length, buffer), length, flags,
                 [](std::uint8_t v) { return v != 0; });
      pack_flags(flags, length, plane + first / 8);
    } else {
      alignas(run_alignment) float buffer[tile_elements];
      fast.pass_bits(read_values(input, first, length, buffer), length, rule, plane + first / 8);
    }
  });
}

void encode_range_mask(const encoding& e, const const_tensor_view& input, std::uint8_t* plane,
                       const execution_context& context) {
  const run_loops& fast = loops();
  const auto bounds = rounded_bounds(input.type, e.lower, e.upper);
  const float lower = bounds.first, upper = bounds.second;
  for_each_tile(context, input.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float buffer[tile_elements];
    fast.range_bits(read_values(input, first, length, buffer), length, lower, upper, e.rule,
                    plane + first / 8);
  });
}

namespace {

void decode_to_bytes(const std::uint8_t* plane, const tensor_view& output, const execution_context& context) {
  for_each_tile(context, output.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) std::uint8_t buffer[tile_elements];
    std::uint8_t* flags = write_target(output, first, buffer);
    spread_bits(plane + first / 8, length, flags);
    write_run(output, first, length, flags);
  });
}

void decode_to_floats(const std::uint8_t* plane, const tensor_view& output,
                      const execution_context& context) {
  const run_loops& fast = loops();
  const value_output values(output, rounding::exact, context);
  const std::int64_t elements = output.elements();
  parallel_for(context, tile_count(elements), tiles_of_range, [&](std::int64_t begin, std::int64_t end) {
    // On the stack, where loops do not fetch ahead of what they read.
    alignas(run_alignment) float ones[tile_elements];
    std::fill_n(ones, tile_elements, 1.0F);
    for (std::int64_t first = begin * tile_elements; begin < end; ++begin, first += tile_elements) {
      const std::int64_t length = std::min(tile_elements, elements - first);
      values.fill(first, length, [&](float* to, destination where) {
        fast.keep(ones, plane + first / 8, length, to, where);
      });
    }
    values.finish();
  });
}

/// Of 16 bits, in which 1 is `one`.
void decode_to_halves(const std::uint8_t* plane, std::uint16_t one, const tensor_view& output,
                      const execution_context& context) {
  for_each_tile(context, output.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) std::uint8_t flags[tile_elements];
    alignas(run_alignment) std::uint16_t buffer[tile_elements];
    spread_bits(plane + first / 8, length, flags);
    std::uint16_t* to = write_target(output, first, buffer);
    for (std::int64_t i = 0; i < length; ++i)
      to[i] = static_cast<std::uint16_t>(flags[i] * one);
    write_run(output, first, length, to);
  });
}

}  // namespace

void decode_mask(const std::uint8_t* plane, const tensor_view& output, const execution_context& context) {
  switch (output.type) {
    case dtype::f32:
      return decode_to_floats(plane, output, context);
    case dtype::f16:
      return decode_to_halves(plane, 0x3c00, output, context);
    case dtype::bf16:
      return decode_to_halves(plane, 0x3f80, output, context);
    default:
      return decode_to_bytes(plane, output, context);
  }
}

}  // namespace stash::detail
