// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "encoders/device/backend.hpp"
#include "encoders/layers/sign_source.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/pooling/pool_backward.hpp"
#include "encoders/pooling/pool_general_backward.hpp"
#include "encoders/public_call.hpp"
#include "stash/pool.hpp"

namespace stash {
namespace {

using namespace encoders;

constexpr std::string_view backward_name = "relu_max_pool_backward";

/// Where the parts of relu_pool lie.
struct code_layout {
  int bits;                 ///< of a tap or code
  std::size_t first_plane;  ///< bytes
  std::size_t bytes;        ///< of both planes

  bool has_gradient_plane() const noexcept { return bytes != first_plane; }
};

code_layout checked_code_layout(std::string_view function, std::int64_t taps, std::int64_t elements) {
  constexpr std::int64_t most = no_gradient_code;
  if (taps > most) {
    fail(errc::unsupported, function, "window", fmt::format("at most {} taps for relu_pool", most),
         fmt::format("{}", taps));
  }
  const int bits = tap_bits(taps);
  const std::size_t first = plane_bytes(elements, bits);
  return {bits, first, bits == 2 ? first + plane_bytes(elements, 1) : first};
}

/// Argmaxes and signs from relu_pool.
class code_source {
 public:
  code_source(const const_encoded_view& code, const code_layout& layout)
      : plane_(static_cast<const std::uint8_t*>(code.data)),
        gradient_(layout.has_gradient_plane() ? plane_ + layout.first_plane : nullptr),
        bits_(layout.bits) {}

  run_taps load(const pooled_run& run, run_buffers& buffers) noexcept {
    const std::int64_t count = run.count();
    const std::uint8_t* taps = unpack_taps(plane_, bits_, run.first, count, buffers.taps.data());
    if (gradient_ == nullptr) return {taps, nullptr, true};
    const std::uint8_t* passes = unpack_flags(gradient_, run.first, count, buffers.flags.data());
    std::uint8_t* codes = buffers.taps.data() + (taps - buffers.taps.data());
    for (std::int64_t i = 0; i < count; ++i)
      codes[i] = static_cast<std::uint8_t>(codes[i] | ((passes[i] - 1) & no_gradient_code));
    return {codes, nullptr, true};
  }

 private:
  const std::uint8_t* plane_;
  const std::uint8_t* gradient_;
  int bits_;
};

/// Argmaxes from window_index, signs from an encoded pooled output.
class stash_source {
 public:
  stash_source(const index_source& index, const checked_stash& y) : index_(index), y_(&y) {}

  run_taps load(const pooled_run& run, run_buffers& buffers) noexcept {
    run_taps argmaxes = index_.load(run, buffers);
    std::int64_t done = 0;
    while (done < run.count()) {
      const std::int64_t at = (run.first + done) % tile_elements;
      const std::int64_t part = std::min(run.count() - done, tile_elements - at);
      read_tile((run.first + done) / tile_elements);
      std::memcpy(buffers.flags.data() + done, flags_.data() + at, static_cast<std::size_t>(part));
      done += part;
    }
    pack_flags(buffers.flags.data(), run.count(), buffers.passes.data());
    argmaxes.passes = buffers.passes.data();
    return argmaxes;
  }

 private:
  /// Runs are not cut like tiles, and most of them follow one another, so the last tile is kept.
  void read_tile(std::int64_t tile) {
    if (tile == tile_) return;
    const std::int64_t length = std::min(tile_elements, y_->elements - tile * tile_elements);
    std::uint8_t buffer[tile_elements / 8];
    spread_bits(read_pass_bits(*y_, tile, length, buffer), length, flags_.data());
    tile_ = tile;
  }

  index_source index_;
  const checked_stash* y_;
  std::int64_t tile_ = -1;
  std::array<std::uint8_t, tile_elements> flags_;
};

/// Checks the views, and runs body(shape, backward) with the shape and loops that the layout needs. On a
/// device `backward` is `by_device`, whatever source the body gives it.
template <class ByDevice, class Body>
void with_loops(const const_tensor_view& dy, const tensor_view& dx, const pool_window& window,
                const execution_context& context, const ByDevice& by_device, const Body& body) {
  check_context(backward_name, context);
  if (on_device(context)) {
    const general_shape s = check_general_pool(backward_name, "dx", dx, "dy", dy, window, context.space);
    body(s, [&](const auto&, std::uint32_t&) { by_device(); });
  } else if (is_general(window, dx)) {
    const general_shape s = check_general_pool(backward_name, "dx", dx, "dy", dy, window);
    body(s, [&](const auto& source, std::uint32_t& status) {
      general_pool_backward(s, dy, source, dx, status, context);
    });
  } else {
    const pool_shape s = check_pool(backward_name, "dx", dx, "dy", dy, window);
    body(s, [&](const auto& source, std::uint32_t& status) {
      pool_backward(s, dy, source, dx, status, context);
    });
  }
}

// What a shape's loops take to find argmaxes again.

search_source search_in(const pool_shape& s, const const_tensor_view& x, framework_rule rule) {
  return {s, x, rule, true};
}
general_search_source search_in(const general_shape& s, const const_tensor_view& x, framework_rule rule) {
  return {s, x, rule, true};
}

}  // namespace

void relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                           const encoded_view& code, const encoded_view& index, framework_rule rule,
                           const execution_context& context) try {
  constexpr std::string_view function = "relu_max_pool_forward";
  check_context(function, context);
  check_rule(function, rule);
  const std::int64_t elements = y.elements();
  pool_planes planes;
  code_layout layout{};
  const auto want_planes = [&](std::int64_t taps) {
    if (code.data != nullptr) {
      layout = checked_code_layout(function, taps, elements);
      check_encoded(function, "code", code, layout.bytes);
      planes.code = static_cast<std::uint8_t*>(code.data);
      planes.code_bits = layout.bits;
      if (layout.has_gradient_plane()) planes.gradient = planes.code + layout.first_plane;
    }
    if (index.data != nullptr) set_index_plane(function, index, taps, elements, planes);
    call_memory(function)
        .reads("x", x)
        .writes("y", y)
        .writes("code", code, layout.bytes)
        .writes("index", index, plane_bytes(elements, planes.index_bits));
  };
  if (on_device(context)) {
    want_planes(check_general_pool(function, "x", x, "y", y, window, context.space).taps());
    return device::kernels().relu_max_pool_forward(x, y, window, code, index, rule, context);
  }
  if (is_general(window, x)) {
    const general_shape s = check_general_pool(function, "x", x, "y", y, window);
    want_planes(s.taps());
    general_pool_forward(true, s, x, y, planes, rule, context);
  } else {
    const pool_shape s = check_pool(function, "x", x, "y", y, window);
    want_planes(s.taps());
    pool_forward(true, s, x, y, planes, rule, context);
  }
  if (code.data != nullptr) add(code.report->slot_bytes, layout.bytes);
  if (index.data != nullptr) add(index.report->slot_bytes, plane_bytes(elements, planes.index_bits));
} catch (...) {
  encoders::rethrow("relu_max_pool_forward");
}

void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& code, const tensor_view& dx,
                            const pool_window& window, const execution_context& context) try {
  const auto by_device = [&] { device::kernels().relu_max_pool_backward(dy, code, dx, window, context); };
  with_loops(dy, dx, window, context, by_device, [&](const auto& s, const auto& backward) {
    const code_layout layout = checked_code_layout(backward_name, s.taps(), dy.elements());
    check_kind(backward_name, "code", code, relu_pool_of(window));
    check_same_elements(backward_name, "code", code, "dy", dy);
    check_encoded(backward_name, "code", code.bytes, layout.bytes);
    call_memory(backward_name).reads("dy", dy).reads("code", code.bytes, layout.bytes).writes("dx", dx);
    backward(code_source(code.bytes, layout), code.bytes.report->status);
  });
} catch (...) {
  encoders::rethrow("relu_max_pool_backward");
}

void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index, const encoded_tensor& y,
                            const tensor_view& dx, const pool_window& window, framework_rule rule,
                            const execution_context& context) try {
  const auto by_device = [&] {
    device::kernels().relu_max_pool_backward(dy, index, y, dx, window, rule, context);
  };
  with_loops(dy, dx, window, context, by_device, [&](const auto& s, const auto& backward) {
    check_rule(backward_name, rule);
    const index_source argmaxes = checked_index_source(backward_name, index, window, s.taps(), dy);
    const checked_stash signs = check_sign_source(backward_name, "y", y, "dy", dy, rule, context.space);
    call_memory memory(backward_name);
    memory.reads("dy", dy).reads("index", index.bytes, plane_bytes(dy.elements(), tap_bits(s.taps())));
    add_stash(memory, "y", signs).writes("dx", dx);
    backward(stash_source(argmaxes, signs), index.bytes.report->status);
  });
} catch (...) {
  encoders::rethrow("relu_max_pool_backward");
}

void relu_max_pool_backward(const const_tensor_view& dy, const encoded_tensor& index,
                            const const_tensor_view& y, const tensor_view& dx, const pool_window& window,
                            framework_rule rule, const execution_context& context) try {
  const auto by_device = [&] {
    device::kernels().relu_max_pool_backward(dy, index, y, dx, window, rule, context);
  };
  with_loops(dy, dx, window, context, by_device, [&](const auto& s, const auto& backward) {
    check_rule(backward_name, rule);
    check_same_shape(backward_name, "y", y, "dy", dy, window, context.space);
    const index_source argmaxes = checked_index_source(backward_name, index, window, s.taps(), dy);
    call_memory(backward_name)
        .reads("dy", dy)
        .reads("index", index.bytes, plane_bytes(dy.elements(), tap_bits(s.taps())))
        .reads("y", y)
        .writes("dx", dx);
    backward(dense_source(argmaxes, y, rule), index.bytes.report->status);
  });
} catch (...) {
  encoders::rethrow("relu_max_pool_backward");
}

void relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                            const pool_window& window, framework_rule rule,
                            const execution_context& context) try {
  const auto by_device = [&] { device::kernels().relu_max_pool_backward(dy, x, dx, window, rule, context); };
  with_loops(dy, dx, window, context, by_device, [&](const auto& s, const auto& backward) {
    check_rule(backward_name, rule);
    check_same_shape(backward_name, "x", x, "dx", dx, window, context.space);
    checked_index_bits(backward_name, s.taps());
    call_memory(backward_name).reads("dy", dy).reads("x", x).writes("dx", dx);
    std::uint32_t never_set = 0;
    backward(search_in(s, x, rule), never_set);
  });
} catch (...) {
  encoders::rethrow("relu_max_pool_backward");
}

}  // namespace stash
