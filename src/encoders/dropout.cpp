#include "stash/dropout.hpp"

#include <array>

#include <fmt/format.h>

#include "bits.hpp"
#include "detail.hpp"
#include "device.hpp"
#include "masked.hpp"
#include "philox.hpp"

namespace stash {
namespace {

using namespace detail;

dropout_constants checked_constants(std::string_view function, float probability) {
  if (!(probability >= 0 && probability < 1)) {
    fail(errc::invalid_argument, function, "probability", "at least 0 and below 1",
         fmt::format("{}", probability));
  }
  // Exact: a binary32 number below 1 times 2^32 is below 2^32 and fits binary64.
  const double p = static_cast<double>(probability);
  return {static_cast<std::uint32_t>(p * 4294967296.0), static_cast<float>(1.0 / (1.0 - p))};
}

constexpr std::uint32_t low_word(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high_word(std::uint64_t value) noexcept {
  return static_cast<std::uint32_t>(value >> 32);
}

/// flags[i] = keep(first + i); `first` and the room in `flags` are multiples of 4.
void keep_flags(const dropout_key& key, std::uint32_t threshold, std::int64_t first, std::int64_t count,
                std::uint8_t* flags) noexcept {
  const philox_key philox{low_word(key.seed), high_word(key.seed) ^ high_word(key.step)};
  for (std::int64_t i = 0; i < count; i += 4) {
    const auto block = static_cast<std::uint64_t>((first + i) / 4);
    const philox_counter words =
        philox4x32_10({low_word(block), high_word(block), key.layer, low_word(key.step)}, philox);
    for (std::size_t w = 0; w < 4; ++w)
      flags[i + static_cast<std::int64_t>(w)] = words[w] >= threshold ? 1 : 0;
  }
}

void check_tensors(std::string_view function, std::string_view in_name, const const_tensor_view& in,
                   std::string_view out_name, const tensor_view& out, const execution_context& context) {
  check_context(function, context);
  check_view(function, in_name, in, dtype::f32, context.space);
  check_view(function, out_name, out, dtype::f32, context.space);
  check_elements(function, out_name, out, in.elements());
}

/// out = flags ? in * scale : +0 with make_flags(first, length, flags) giving the flags of a tile.
template <class MakeFlags>
void apply(const const_tensor_view& in, const tensor_view& out, float scale, const execution_context& context,
           const MakeFlags& make_flags) {
  for_each_tile(context, in.elements(), [&](std::int64_t, std::int64_t first, std::int64_t length) {
    std::array<std::uint8_t, tile_elements> flags;
    std::array<float, tile_elements> in_buffer, out_buffer;
    make_flags(first, length, flags.data());
    const float* from = read_run(in, first, length, in_buffer.data());
    float* to = write_target(out, first, out_buffer.data());
    for (std::int64_t i = 0; i < length; ++i)
      to[i] = masked(from[i] * scale, flags[static_cast<std::size_t>(i)]);
    write_run(out, first, length, to);
  });
}

constexpr std::string_view backward_name = "dropout_backward";

}  // namespace

void dropout_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                     float probability, const dropout_key& key, const execution_context& context) {
  constexpr std::string_view function = "dropout_forward";
  check_tensors(function, "x", x, "y", y, context);
  const dropout_constants constants = checked_constants(function, probability);
  const std::int64_t elements = x.elements();
  const std::size_t mask_bytes = plane_bytes(elements, 1);
  auto* plane = static_cast<std::uint8_t*>(mask.data);
  if (plane != nullptr) check_encoded(function, "mask", mask, mask_bytes);
  if (on_device(context)) return device::dropout_forward(x, y, mask, constants, key, context);
  if (plane != nullptr) {
    const auto used = static_cast<std::size_t>((elements + 7) / 8);
    std::memset(plane + used, 0, mask_bytes - used);
    add(mask.report->slot_bytes, mask_bytes);
  }
  apply(x, y, constants.scale, context, [&](std::int64_t first, std::int64_t length, std::uint8_t* flags) {
    keep_flags(key, constants.threshold, first, length, flags);
    if (plane != nullptr) pack_flags(flags, length, plane + first / 8);
  });
}

void dropout_backward(const const_tensor_view& dy, const const_encoded_view& mask, const tensor_view& dx,
                      float probability, const execution_context& context) {
  check_tensors(backward_name, "dy", dy, "dx", dx, context);
  const dropout_constants constants = checked_constants(backward_name, probability);
  check_encoded(backward_name, "mask", mask, plane_bytes(dy.elements(), 1));
  if (on_device(context)) return device::dropout_backward(dy, mask, dx, constants, context);
  const auto* plane = static_cast<const std::uint8_t*>(mask.data);
  apply(dy, dx, constants.scale, context, [&](std::int64_t first, std::int64_t length, std::uint8_t* flags) {
    spread_bits(plane + first / 8, length, flags);
  });
}

void dropout_backward(const const_tensor_view& dy, const tensor_view& dx, float probability,
                      const dropout_key& key, const execution_context& context) {
  check_tensors(backward_name, "dy", dy, "dx", dx, context);
  const dropout_constants constants = checked_constants(backward_name, probability);
  if (on_device(context)) return device::dropout_backward(dy, dx, constants, key, context);
  apply(dy, dx, constants.scale, context, [&](std::int64_t first, std::int64_t length, std::uint8_t* flags) {
    keep_flags(key, constants.threshold, first, length, flags);
  });
}

}  // namespace stash
