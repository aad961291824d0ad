#include "stash/relu.hpp"

#include "bits.hpp"
#include "codecs.hpp"
#include "detail.hpp"
#include "sign.hpp"
#include "sign_source.hpp"

namespace stash {
namespace {

using namespace detail;

void rectify(const float* __restrict x, std::int64_t count, float* __restrict y) noexcept {
  // Positive or NaN is exactly what passes under the pytorch rule; selecting bits keeps a NaN's payload.
  for (std::int64_t i = 0; i < count; ++i)
    y[i] = passes<framework_rule::pytorch>(x[i]) ? x[i] : 0.0f;
}

void select(const float* __restrict dy, const std::uint8_t* __restrict flags, std::int64_t count,
            float* __restrict dx) noexcept {
  // Masking bits: a conditional would become a conditional load, which does not vectorise.
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(dy[i]) & (0u - flags[i]));
  }
}

/// As read_run, but never the memory that `target` is produced in: loops may then assume that their source
/// and target are apart, which also lets in-place calls vectorise.
const float* read_apart(const const_tensor_view& view, std::int64_t first, std::int64_t length,
                        const float* target, float* buffer) {
  const float* run = read_run(view, first, length, buffer);
  if (run != target) return run;
  std::memcpy(buffer, run, static_cast<std::size_t>(length) * sizeof(float));
  return buffer;
}

/// dx = flags ? dy : 0, with make_flags(tile, first, length, flags) giving the flags of a tile.
template <class MakeFlags>
void backward(const const_tensor_view& dy, const tensor_view& dx, const execution_context& context,
              const MakeFlags& make_flags) {
  for_each_tile(context, dx.elements(), [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    float in[tile_elements];
    float out[tile_elements];
    std::uint8_t flags[tile_elements];
    make_flags(tile, first, length, flags);
    float* target = write_target(dx, first, out);
    select(read_apart(dy, first, length, target, in), flags, length, target);
    write_run(dx, first, length, target);
  });
}

constexpr std::string_view backward_name = "relu_backward";

void check_backward(const const_tensor_view& dy, const tensor_view& dx, framework_rule rule,
                    const execution_context& context) {
  check_context(backward_name, context);
  check_rule(backward_name, rule);
  check_view(backward_name, "dy", dy, dtype::f32);
  check_view(backward_name, "dx", dx, dtype::f32);
  check_elements(backward_name, "dx", dx, dy.elements());
}

}  // namespace

void relu_forward(const const_tensor_view& x, const tensor_view& y, const encoded_view& mask,
                  framework_rule rule, const execution_context& context) {
  constexpr std::string_view function = "relu_forward";
  check_context(function, context);
  check_rule(function, rule);
  check_view(function, "x", x, dtype::f32);
  check_view(function, "y", y, dtype::f32);
  check_elements(function, "y", y, x.elements());
  const std::int64_t elements = x.elements();
  const std::size_t mask_bytes = plane_bytes(elements, 1);
  auto* plane = static_cast<std::uint8_t*>(mask.data);
  if (plane != nullptr) check_encoded(function, "mask", mask, mask_bytes);

  for_each_tile(context, elements, [&](std::int64_t, std::int64_t first, std::int64_t length) {
    float in[tile_elements];
    float out[tile_elements];
    float* target = write_target(y, first, out);
    rectify(read_apart(x, first, length, target, in), length, target);
    if (plane != nullptr) {
      std::uint8_t flags[tile_elements];
      pass_flags(target, length, rule, flags);
      pack_flags(flags, length, plane + first / 8);
    }
    write_run(y, first, length, target);
  });
  if (plane != nullptr) {
    const auto used = static_cast<std::size_t>((elements + 7) / 8);
    std::memset(plane + used, 0, mask_bytes - used);
    add(mask.report->slot_bytes, mask_bytes);
  }
}

void relu_backward(const const_tensor_view& dy, const encoding& e, const const_encoded_view& stash,
                   const tensor_view& dx, framework_rule rule, const execution_context& context) {
  check_backward(dy, dx, rule, context);
  const std::int64_t elements = dy.elements();
  check_sign_source(backward_name, e, stash, elements);
  backward(dy, dx, context, [&](std::int64_t tile, std::int64_t, std::int64_t length, std::uint8_t* flags) {
    read_pass_flags(e, stash, elements, rule, tile, length, flags);
  });
}

void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                   framework_rule rule, const execution_context& context) {
  check_backward(dy, dx, rule, context);
  check_view(backward_name, "y", y, dtype::f32);
  check_elements(backward_name, "y", y, dy.elements());
  backward(dy, dx, context, [&](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* flags) {
    float buffer[tile_elements];
    pass_flags(read_run(y, first, length, buffer), length, rule, flags);
  });
}

}  // namespace stash
