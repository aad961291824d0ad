// SPDX-License-Identifier: Apache-2.0
#include "encoders/detail.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/kind_codec.hpp"

namespace stash::encoders {
namespace {

// Rows are copied as bytes, so one form serves every element type.
struct byte_rows {
  std::int64_t inner;
  std::int64_t pitch;
  std::int64_t width;
};

byte_rows rows_of(const const_tensor_view& view) {
  const auto width = static_cast<std::int64_t>(size_of(view.type));
  return {view.dims.inner() * width, view.pitch() * width, width};
}

}  // namespace

void encode_raw(const const_tensor_view& input, std::uint8_t* bytes, const execution_context& context) {
  const byte_rows rows = rows_of(input);
  const auto* data = input.as<std::uint8_t>();
  for_each_tile(context, input.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    for_each_run(rows.inner, rows.pitch, first * rows.width, length * rows.width,
                 [&](std::int64_t offset, std::int64_t position, std::int64_t part) {
                   std::memcpy(bytes + first * rows.width + position, data + offset,
                               static_cast<std::size_t>(part));
                 });
  });
}

void decode_raw(const std::uint8_t* bytes, const tensor_view& output, const execution_context& context) {
  const byte_rows rows = rows_of(output);
  auto* data = output.as<std::uint8_t>();
  for_each_tile(context, output.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    for_each_run(rows.inner, rows.pitch, first * rows.width, length * rows.width,
                 [&](std::int64_t offset, std::int64_t position, std::int64_t part) {
                   std::memcpy(data + offset, bytes + first * rows.width + position,
                               static_cast<std::size_t>(part));
                 });
  });
}

namespace {

std::size_t raw_bytes(const encoding&, dtype source, std::int64_t elements) {
  return pad16(static_cast<std::size_t>(elements) * size_of(source));
}

void encode_all(const encode_item& item, const execution_context& context) {
  auto* const bytes = static_cast<std::uint8_t*>(item.output.data);
  encode_raw(item.input, bytes, context);
  clear_padding(bytes, static_cast<std::size_t>(item.input.elements()) * size_of(item.input.type));
}

void decode_all(const decode_item& item, const execution_context& context) {
  decode_raw(static_cast<const std::uint8_t*>(item.input.bytes.data), item.output, context);
}

std::size_t no_bytes(const encoding&, dtype, std::int64_t) {
  return 0;
}

}  // namespace

constinit const kind_codec raw_codec{.kind = encoding_kind::raw,
                                     .name = "raw",
                                     .content = kind_content::dense,
                                     .types = any_type,
                                     .check = no_parameters,
                                     .bytes_bound = raw_bytes,
                                     .lossless = always,
                                     .keeps_sign = always,
                                     .keeps_values = always,
                                     .encode = encode_all,
                                     .decode = decode_all};

constinit const kind_codec shape_only_codec{.kind = encoding_kind::shape_only,
                                            .name = "shape_only",
                                            .content = kind_content::nothing,
                                            .types = any_type,
                                            .check = no_parameters,
                                            .bytes_bound = no_bytes,
                                            .lossless = always,
                                            .keeps_sign = never,
                                            .keeps_values = never,
                                            .encode = nullptr,
                                            .decode = nullptr};

}  // namespace stash::encoders
