#include "stash/relu.hpp"

#include "detail.hpp"
#include "run_loops.hpp"
#include "sign_source.hpp"

namespace stash {
namespace {

using namespace detail;

/// dx = bits ? dy : 0; make_bits(tile, first, length, buffer) returns the bits of a tile, in `buffer` if they
/// lie nowhere yet.
template <class MakeBits>
void backward(const const_tensor_view& dy, const tensor_view& dx, const execution_context& context,
              const MakeBits& make_bits) {
  const run_loops& loops = fastest_loops();
  for_each_tile(context, dx.elements(), [&](std::int64_t tile, std::int64_t first, std::int64_t length) {
    float in[tile_elements];
    float out[tile_elements];
    std::uint8_t buffer[tile_elements / 8];
    const std::uint8_t* bits = make_bits(tile, first, length, buffer);
    float* target = write_target(dx, first, out);
    loops.keep(read_run(dy, first, length, in), bits, length, target);
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

  const run_loops& loops = fastest_loops();
  for_each_tile(context, elements, [&](std::int64_t, std::int64_t first, std::int64_t length) {
    float in[tile_elements];
    float out[tile_elements];
    float* target = write_target(y, first, out);
    loops.rectify(read_run(x, first, length, in), length, target);
    if (plane != nullptr) loops.pass_bits(target, length, rule, plane + first / 8);
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
  backward(dy, dx, context, [&](std::int64_t tile, std::int64_t, std::int64_t length, std::uint8_t* buffer) {
    return read_pass_bits(e, stash, elements, rule, tile, length, buffer);
  });
}

void relu_backward(const const_tensor_view& dy, const const_tensor_view& y, const tensor_view& dx,
                   framework_rule rule, const execution_context& context) {
  check_backward(dy, dx, rule, context);
  check_view(backward_name, "y", y, dtype::f32);
  check_elements(backward_name, "y", y, dy.elements());
  const run_loops& loops = fastest_loops();
  backward(dy, dx, context, [&](std::int64_t, std::int64_t first, std::int64_t length, std::uint8_t* bits) {
    float buffer[tile_elements];
    loops.pass_bits(read_run(y, first, length, buffer), length, rule, bits);
    return bits;
  });
}

}  // namespace stash
