// SPDX-License-Identifier: Apache-2.0
#include "encoders/detail.hpp"
#include "encoders/format/codecs.hpp"

namespace stash::detail {
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

}  // namespace stash::detail
