#include "codecs.hpp"
#include "convert.hpp"
#include "detail.hpp"

namespace stash::detail {

void encode_cast(const encoding& e, const const_tensor_view& input, std::uint8_t* stored,
                 const execution_context& context) {
  const auto width = static_cast<std::int64_t>(value_bytes(e.values));
  for_each_tile(context, input.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    float buffer[tile_elements];
    store_values(read_run(input, first, length, buffer), length, e.values, e.underflow,
                 stored + first * width);
  });
}

void decode_cast(const encoding& e, const std::uint8_t* stored, const tensor_view& output,
                 const execution_context& context) {
  const auto width = static_cast<std::int64_t>(value_bytes(e.values));
  for_each_tile(context, output.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    float buffer[tile_elements];
    float* values = write_target(output, first, buffer);
    load_values(stored + first * width, length, e.values, values);
    write_run(output, first, length, values);
  });
}

}  // namespace stash::detail
