// SPDX-License-Identifier: Apache-2.0
#include "encoders/detail.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {
namespace {

/// Where the parts of a run lie. Without scales `scales` means nothing.
struct run_offsets {
  std::size_t scales, elements;
};

run_offsets offsets_of_run(const value_codec& codec, std::int64_t elements, std::int64_t first) noexcept {
  return {codec.scale_bytes(first), pad16(codec.scale_bytes(elements)) + codec.element_bytes(first)};
}

/// finish() runs on each thread after its runs.
template <class Body, class Finish>
void for_each_cast_run(const value_codec& codec, std::int64_t elements, const execution_context& context,
                       const Body& body, const Finish& finish) {
  const std::int64_t run = cast_run_elements(codec);
  parallel_for(context, (elements + run - 1) / run, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      body(r * run, std::min(run, elements - r * run));
    finish();
  });
}

}  // namespace

std::size_t cast_bytes(const value_codec& codec, std::int64_t elements) noexcept {
  return pad16(codec.scale_bytes(elements)) + pad16(codec.element_bytes(elements));
}

void encode_cast(const value_codec& codec, const const_tensor_view& input, std::uint8_t* stored,
                 const execution_context& context) {
  const std::int64_t elements = input.elements();
  const destination to = destination_of_smaller(elements);
  const auto store_run = [&](std::int64_t first, std::int64_t length) {
    alignas(run_alignment) float buffer[tile_elements];
    const run_offsets at = offsets_of_run(codec, elements, first);
    codec.store(read_values(input, first, length, buffer), length, stored + at.scales, stored + at.elements,
                to);
  };
  for_each_cast_run(codec, elements, context, store_run, [&] { finish_streams(to); });
  const std::size_t scales = codec.scale_bytes(elements);
  std::memset(stored + scales, 0, pad16(scales) - scales);
  pad_payload(stored + pad16(scales), codec.element_bytes(elements));
}

void load_cast_run(const value_codec& codec, const std::uint8_t* stored, std::int64_t elements,
                   std::int64_t first, std::int64_t length, float* values, destination to) noexcept {
  const run_offsets at = offsets_of_run(codec, elements, first);
  codec.load(stored + at.scales, stored + at.elements, length, values, to);
}

void decode_cast(const value_codec& codec, const std::uint8_t* stored, const tensor_view& output,
                 const execution_context& context) {
  const std::int64_t elements = output.elements();
  const value_output values(output, rounding::stored, context);
  const auto load_run = [&](std::int64_t first, std::int64_t length) {
    values.fill(first, length, [&](float* to, destination where) {
      load_cast_run(codec, stored, elements, first, length, to, where);
    });
  };
  for_each_cast_run(codec, elements, context, load_run, [&] { values.finish(); });
}

namespace {

value_codec codec_of_values(const encoding& e, dtype source) noexcept {
  return {e.values, e.underflow, source};
}

source_types wider_types(const encoding& e, dtype source) {
  if (value_bits(e.values, source) == 16) return {source == dtype::f32, "f32"};
  return any_float(e, source);
}

std::size_t all_bytes(const encoding& e, dtype source, std::int64_t elements) {
  return cast_bytes(codec_of_values(e, source), elements);
}

bool keeps_nonzero(const encoding& e) {
  return e.underflow == underflow_rule::keep_nonzero;
}

void write_cast(const encode_item& item, const execution_context& context) {
  encode_cast(codec_of_values(item.how, item.input.type), item.input,
              static_cast<std::uint8_t*>(item.output.data), context);
}

void read_cast(const decode_item& item, const execution_context& context) {
  decode_cast(codec_of_values(item.input.how, item.output.type),
              static_cast<const std::uint8_t*>(item.input.bytes.data), item.output, context);
}

}  // namespace

constinit const kind_codec cast_codec{.kind = encoding_kind::cast,
                                      .name = "",
                                      .content = kind_content::values,
                                      .types = wider_types,
                                      .check = check_underflow_rule,
                                      .bytes_bound = all_bytes,
                                      .lossless = never,
                                      .keeps_sign = keeps_nonzero,
                                      .keeps_values = never,
                                      .encode = write_cast,
                                      .decode = read_cast};

}  // namespace stash::encoders
