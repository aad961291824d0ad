// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "encoders/format/bits.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/convert.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {

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

namespace {

source_types floats_and_bytes(const encoding&, dtype source) {
  return {is_float(source) || source == dtype::u8, "f32, f16, bf16 or u8"};
}

std::size_t mask_bytes(const encoding&, dtype, std::int64_t elements) {
  return plane_bytes(elements, 1);
}

void check_mask(std::string_view function, const encoding& e) {
  check_rule(function, e.rule, "encoding");
}
void check_range(std::string_view function, const encoding& e) {
  check_mask(function, e);
  if (is_below(e.lower, e.upper)) return;
  fail(errc::invalid_argument, function, "encoding", "a lower bound below the upper one",
       fmt::format("{} and {}", e.lower, e.upper));
}

/// encode(plane) writes the bits.
template <class Encode>
void write_plane(const encode_item& item, const Encode& encode) {
  auto* const plane = static_cast<std::uint8_t*>(item.output.data);
  encode(plane);
  clear_padding(plane, (static_cast<std::size_t>(item.input.elements()) + 7) / 8);
}

void write_signs(const encode_item& item, const execution_context& context) {
  write_plane(item,
              [&](std::uint8_t* plane) { encode_sign_mask(item.how.rule, item.input, plane, context); });
}
void write_ranges(const encode_item& item, const execution_context& context) {
  write_plane(item, [&](std::uint8_t* plane) { encode_range_mask(item.how, item.input, plane, context); });
}

void read_mask(const decode_item& item, const execution_context& context) {
  decode_mask(static_cast<const std::uint8_t*>(item.input.bytes.data), item.output, context);
}

}  // namespace

constinit const kind_codec sign_mask_codec{.kind = encoding_kind::sign_mask,
                                           .name = "sign_mask",
                                           .content = kind_content::mask,
                                           .types = floats_and_bytes,
                                           .check = check_mask,
                                           .bytes_bound = mask_bytes,
                                           .lossless = always,
                                           .keeps_sign = always,
                                           .keeps_values = never,
                                           .encode = write_signs,
                                           .decode = read_mask};

constinit const kind_codec range_mask_codec{.kind = encoding_kind::range_mask,
                                            .name = "range_mask",
                                            .content = kind_content::mask,
                                            .types = any_float,
                                            .check = check_range,
                                            .bytes_bound = mask_bytes,
                                            .lossless = always,
                                            .keeps_sign = never,
                                            .keeps_values = never,
                                            .encode = write_ranges,
                                            .decode = read_mask};

}  // namespace stash::encoders
