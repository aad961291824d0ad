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

void decode_mask(const std::uint8_t* plane, const tensor_view& output, const execution_context& context) {
  for_each_tile(context, output.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) std::uint8_t buffer[tile_elements];
    std::uint8_t* flags = write_target(output, first, buffer);
    spread_bits(plane + first / 8, length, flags);
    write_run(output, first, length, flags);
  });
}

}  // namespace stash::detail
