#include <fmt/format.h>

#include "pool_loops.hpp"
#include "sign_source.hpp"
#include "stash/pool.hpp"

namespace stash {
namespace {

using namespace detail;

constexpr std::string_view backward_name = "relu_max_pool_backward";

/// Where the parts of relu_pool lie.
struct code_layout {
  int bits;                 ///< of a cell or code
  std::size_t first_plane;  ///< bytes
  std::size_t bytes;        ///< of both planes

  bool has_gradient_plane() const noexcept { return bytes != first_plane; }
};

code_layout checked_code_layout(std::string_view function, const pool_shape& s, std::int64_t elements) {
  constexpr std::int64_t most = no_gradient_code;
  if (s.cells() > most) {
    fail(errc::unsupported, function, "window", fmt::format("at most {} cells for relu_pool", most),
         fmt::format("{}", s.cells()));
  }
  const int bits = cell_bits(s.cells());
  const std::size_t first = plane_bytes(elements, bits);
  return {bits, first, bits == 2 ? first + plane_bytes(elements, 1) : first};
}

/// Winners and signs from relu_pool.
class code_source {
 public:
  code_source(const const_encoded_view& code, const code_layout& layout)
      : plane_(static_cast<const std::uint8_t*>(code.data)),
        gradient_(layout.has_gradient_plane() ? plane_ + layout.first_plane : nullptr),
        bits_(layout.bits) {}

  run_cells load(const pooled_run& run, run_buffers& buffers) noexcept {
    const std::int64_t count = run.count();
    const std::uint8_t* cells = unpack_cells(plane_, bits_, run.first, count, buffers.cells.data());
    if (gradient_ != nullptr) {
      return {cells, unpack_flags(gradient_, run.first, count, buffers.passes.data()), true};
    }
    std::uint8_t* passes = buffers.passes.data();
    for (std::int64_t i = 0; i < count; ++i)
      passes[i] = cells[i] != no_gradient_code;
    return {cells, passes, true};
  }

 private:
  const std::uint8_t* plane_;
  const std::uint8_t* gradient_;
  int bits_;
};

/// Winners from window_index, signs from an encoded pooled output.
class stash_source {
 public:
  stash_source(const index_source& index, const encoding& e, const const_encoded_view& stash,
               std::int64_t elements, framework_rule rule)
      : index_(index), encoding_(&e), stash_(&stash), elements_(elements), rule_(rule) {}

  run_cells load(const pooled_run& run, run_buffers& buffers) noexcept {
    run_cells winners = index_.load(run, buffers);
    std::uint8_t* passes = buffers.passes.data();
    std::int64_t done = 0;
    while (done < run.count()) {
      const std::int64_t at = (run.first + done) % tile_elements;
      const std::int64_t part = std::min(run.count() - done, tile_elements - at);
      read_tile((run.first + done) / tile_elements);
      std::memcpy(passes + done, flags_.data() + at, static_cast<std::size_t>(part));
      done += part;
    }
    winners.passes = passes;
    return winners;
  }

 private:
  /// Runs follow one another and are not cut like tiles, so the last tile is kept.
  void read_tile(std::int64_t tile) {
    if (tile == tile_) return;
    const std::int64_t length = std::min(tile_elements, elements_ - tile * tile_elements);
    std::uint8_t buffer[tile_elements / 8];
    spread_bits(read_pass_bits({*encoding_, *stash_, dtype::f32, elements_, rule_}, tile, length, buffer),
                length, flags_.data());
    tile_ = tile;
  }

  index_source index_;
  const encoding* encoding_;
  const const_encoded_view* stash_;
  std::int64_t elements_;
  framework_rule rule_;
  std::int64_t tile_ = -1;
  std::array<std::uint8_t, tile_elements> flags_;
};

/// Winners from window_index, signs from the dense pooled output.
class dense_source {
 public:
  dense_source(const pool_shape& s, const index_source& index, const const_tensor_view& y,
               framework_rule rule)
      : shape_(&s), index_(index), y_(y), rule_(rule) {}

  run_cells load(const pooled_run& run, run_buffers& buffers) noexcept {
    run_cells winners = index_.load(run, buffers);
    const float* from = y_.as<float>() + run.pixel(*shape_) * y_.pitch() + run.channel;
    for (std::int64_t p = 0; p < run.pixels; ++p, from += y_.pitch()) {
      pass_flags(from, run.channels, rule_, buffers.passes.data() + p * run.channels);
    }
    winners.passes = buffers.passes.data();
    return winners;
  }

 private:
  const pool_shape* shape_;
  index_source index_;
  const_tensor_view y_;
  framework_rule rule_;
};

pool_shape check_backward(const const_tensor_view& dy, const tensor_view& dx, const pool_window& window,
                          const execution_context& context) {
  check_context(backward_name, context);
  return check_pool(backward_name, "dx", dx, "dy", dy, window);
}

}  // namespace

void relu_max_pool_forward(const const_tensor_view& x, const tensor_view& y, const pool_window& window,
                           const encoded_view& code, const encoded_view& index, framework_rule rule,
                           const execution_context& context) {
  constexpr std::string_view function = "relu_max_pool_forward";
  check_context(function, context);
  check_rule(function, rule);
  const pool_shape s = check_pool(function, "x", x, "y", y, window);
  const std::int64_t elements = y.elements();
  pool_planes planes;
  code_layout layout{};
  if (code.data != nullptr) {
    layout = checked_code_layout(function, s, elements);
    check_encoded(function, "code", code, layout.bytes);
    planes.code = static_cast<std::uint8_t*>(code.data);
    planes.code_bits = layout.bits;
    if (layout.has_gradient_plane()) planes.gradient = planes.code + layout.first_plane;
  }
  if (index.data != nullptr) set_index_plane(function, index, s, elements, planes);
  pool_forward(true, s, x, y, planes, rule, context);
  if (code.data != nullptr) add(code.report->slot_bytes, layout.bytes);
  if (index.data != nullptr) add(index.report->slot_bytes, plane_bytes(elements, planes.index_bits));
}

void relu_max_pool_backward(const const_tensor_view& dy, const const_encoded_view& code,
                            const tensor_view& dx, const pool_window& window,
                            const execution_context& context) {
  const pool_shape s = check_backward(dy, dx, window, context);
  const code_layout layout = checked_code_layout(backward_name, s, dy.elements());
  check_encoded(backward_name, "code", code, layout.bytes);
  pool_backward(s, dy, code_source(code, layout), dx, code.report->status, context);
}

void relu_max_pool_backward(const const_tensor_view& dy, const const_encoded_view& index,
                            const encoding& y_encoding, const const_encoded_view& y_stash,
                            const tensor_view& dx, const pool_window& window, framework_rule rule,
                            const execution_context& context) {
  const pool_shape s = check_backward(dy, dx, window, context);
  check_rule(backward_name, rule);
  const index_source winners = checked_index_source(backward_name, index, s, dy.elements());
  check_sign_source(backward_name, {y_encoding, y_stash, dtype::f32, dy.elements(), rule});
  const stash_source source(winners, y_encoding, y_stash, dy.elements(), rule);
  pool_backward(s, dy, source, dx, index.report->status, context);
}

void relu_max_pool_backward(const const_tensor_view& dy, const const_encoded_view& index,
                            const const_tensor_view& y, const tensor_view& dx, const pool_window& window,
                            framework_rule rule, const execution_context& context) {
  const pool_shape s = check_backward(dy, dx, window, context);
  check_rule(backward_name, rule);
  check_same_shape(backward_name, "y", y, "dy", dy);
  const index_source winners = checked_index_source(backward_name, index, s, dy.elements());
  pool_backward(s, dy, dense_source(s, winners, y, rule), dx, index.report->status, context);
}

void relu_max_pool_backward(const const_tensor_view& dy, const const_tensor_view& x, const tensor_view& dx,
                            const pool_window& window, framework_rule rule,
                            const execution_context& context) {
  const pool_shape s = check_backward(dy, dx, window, context);
  check_rule(backward_name, rule);
  check_same_shape(backward_name, "x", x, "dx", dx);
  checked_index_bits(backward_name, s);
  std::uint32_t never_set = 0;
  pool_backward(s, dy, search_source(s, x, rule, true), dx, never_set, context);
}

}  // namespace stash
