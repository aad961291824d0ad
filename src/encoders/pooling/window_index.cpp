// SPDX-License-Identifier: Apache-2.0
// Between positions in planes of x and the codes of window_index.

#include <array>
#include <bit>

#include "encoders/device/backend.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/pooling/pool_general.hpp"
#include "encoders/public_call.hpp"
#include "stash/pool.hpp"

namespace stash {
namespace {

using namespace encoders;

/// A number from 1 to 2^56 that is divided by, without a division where that and the dividend are small.
class fixed_divisor {
 public:
  explicit fixed_divisor(std::int64_t value) noexcept
      : value_(static_cast<std::uint64_t>(value)), digits_(static_cast<int>(std::bit_width(value_ - 1))) {
    if (value_ < small) multiplier_ = ((small << digits_) + value_ - 1) / value_;
  }
  /// Of a number that is not negative.
  std::int64_t quotient(std::int64_t n) const noexcept {
    const auto number = static_cast<std::uint64_t>(n);
    // 2^(31 + digits) / value rounded up is too large by less than 2^digits / value: below 2^31 that is not
    // enough to reach the next quotient.
    if ((number | value_) < small) return static_cast<std::int64_t>(number * multiplier_ / small >> digits_);
    return static_cast<std::int64_t>(number / value_);
  }

 private:
  static constexpr std::uint64_t small = std::uint64_t{1} << 31;
  std::uint64_t value_;
  int digits_;
  std::uint64_t multiplier_ = 0;
};

/// Pooled values in a row of a tile, from the window (oz, oy, ox) on: channels of that one, or of windows in
/// a row, each with one channel.
struct window_run {
  std::int64_t oz, oy, ox;
  std::int64_t done, count;  ///< values of the tile before these, and these
  std::int64_t step;         ///< from window to window of x, 0 for channels
};

/// Calls body(run) for the runs of elements [first, first + length).
template <class Body>
void for_each_window_run(const general_shape& s, std::int64_t first, std::int64_t length, const Body& body) {
  std::int64_t channel = first % s.channels, pixel = first / s.channels;
  window_run run{0, 0, pixel % s.columns.out, 0, 0, s.channels == 1 ? s.columns.stride : 0};
  pixel /= s.columns.out;
  run.oy = pixel % s.rows.out;
  run.oz = pixel / s.rows.out % s.depth.out;
  for (; run.done < length; run.done += run.count, channel = 0) {
    const std::int64_t of_all = s.channels == 1 ? s.columns.out - run.ox : s.channels - channel;
    run.count = std::min(of_all, length - run.done);
    body(run);
    run.ox += s.channels == 1 ? run.count : 1;
    if (run.ox < s.columns.out) continue;
    run.ox = 0;
    if (++run.oy < s.rows.out) continue;
    run.oy = 0;
    if (++run.oz == s.depth.out) run.oz = 0;
  }
}

/// From positions to taps.
class tap_finder {
 public:
  explicit tap_finder(const general_shape& s) noexcept
      : shape_(&s),
        positions_(static_cast<std::uint64_t>(s.depth.in * s.rows.in * s.columns.in)),
        by_width_(s.columns.in),
        by_height_(s.rows.in) {}

  /// The taps of a run; true if one is none of its window's.
  bool find(const window_run& run, const std::int64_t* flat, std::uint8_t* taps) const noexcept {
    const general_axis &d = shape_->depth, &r = shape_->rows, &c = shape_->columns;
    const std::int64_t z_origin = d.origin(run.oz), y_origin = r.origin(run.oy);
    std::int64_t x_origin = c.origin(run.ox);
    bool wrong = false;
    for (std::int64_t i = 0; i < run.count; ++i, x_origin += run.step) {
      bool outside = static_cast<std::uint64_t>(flat[i]) >= positions_;
      const std::int64_t position = outside ? 0 : flat[i];
      const std::int64_t row = by_width_.quotient(position), x = position - row * c.in;
      const std::int64_t z = d.in == 1 ? 0 : by_height_.quotient(row), y = row - z * r.in;
      const std::int64_t kz = tap_of(d, z - z_origin, outside), ky = tap_of(r, y - y_origin, outside);
      const std::int64_t kx = tap_of(c, x - x_origin, outside);
      taps[i] = static_cast<std::uint8_t>(outside ? 0 : (kz * r.kernel + ky) * c.kernel + kx);
      wrong |= outside;
    }
    return wrong;
  }

 private:
  /// The tap at this distance from the window's tap 0. Where there is none, `outside` is set, and it is 0.
  static std::int64_t tap_of(const general_axis& axis, std::int64_t distance, bool& outside) noexcept {
    std::int64_t tap = distance;
    if (axis.dilation != 1) {
      tap = distance / axis.dilation;
      outside |= tap * axis.dilation != distance;
    }
    const bool found = tap >= 0 && tap < axis.kernel;
    outside |= !found;
    return found ? tap : 0;
  }

  const general_shape* shape_;
  std::uint64_t positions_;
  fixed_divisor by_width_, by_height_;
};

/// From taps, of which a window has at most 256, to positions.
class position_finder {
 public:
  explicit position_finder(const general_shape& s) noexcept
      : shape_(&s), known_(static_cast<std::size_t>(s.taps())) {
    std::size_t tap = 0;
    for (std::int64_t kz = 0; kz < s.depth.kernel; ++kz) {
      for (std::int64_t ky = 0; ky < s.rows.kernel; ++ky) {
        for (std::int64_t kx = 0; kx < s.columns.kernel; ++kx, ++tap)
          taps_[tap] = {kz, ky, kx * s.columns.dilation,
                        position(kz * s.depth.dilation, ky * s.rows.dilation, kx * s.columns.dilation)};
      }
    }
  }

  /// The positions of a run; true if a tap is none of its window's, or outside x.
  bool find(const window_run& run, const std::uint8_t* taps, std::int64_t* flat) const noexcept {
    const general_axis &d = shape_->depth, &r = shape_->rows, &c = shape_->columns;
    const std::int64_t z_begin = d.first_tap(run.oz), z_end = d.last_tap(run.oz);
    const std::int64_t y_begin = r.first_tap(run.oy), y_end = r.last_tap(run.oy);
    std::int64_t x_origin = c.origin(run.ox);
    std::uint64_t origin = position(d.origin(run.oz), r.origin(run.oy), x_origin);
    const auto in_x = [&](const tap_place& tap) {
      return (tap.z >= z_begin) & (tap.z < z_end) & (tap.y >= y_begin) & (tap.y < y_end) &
             (static_cast<std::uint64_t>(x_origin + tap.x) < static_cast<std::uint64_t>(c.in));
    };
    bool wrong = false;
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::size_t tap = taps[i];
      if (tap >= known_ || !in_x(taps_[tap])) {
        wrong = true;
        const std::int64_t x_begin = c.first_tap(run.step == 0 ? run.ox : run.ox + i);
        tap = static_cast<std::size_t>((z_begin * r.kernel + y_begin) * c.kernel + x_begin);
      }
      flat[i] = static_cast<std::int64_t>(origin + taps_[tap].distance);
      x_origin += run.step;
      origin += static_cast<std::uint64_t>(run.step);
    }
    return wrong;
  }

 private:
  struct tap_place {
    std::int64_t z, y;  ///< numbers
    std::int64_t x;     ///< distance from tap 0
    std::uint64_t distance;
  };

  /// Modulo 2^64: of places outside x, whose positions mean nothing, sums lead to places in x.
  std::uint64_t position(std::int64_t z, std::int64_t y, std::int64_t x) const noexcept {
    const auto height = static_cast<std::uint64_t>(shape_->rows.in);
    const auto width = static_cast<std::uint64_t>(shape_->columns.in);
    return (static_cast<std::uint64_t>(z) * height + static_cast<std::uint64_t>(y)) * width +
           static_cast<std::uint64_t>(x);
  }

  const general_shape* shape_;
  std::size_t known_;
  std::array<tap_place, 256> taps_;
};

/// The checks of both calls. `add_memory(memory, bytes of the index)` adds what the call reads and writes.
template <class Index, class AddMemory>
general_shape check_call(std::string_view function, const std::int64_t* flat, const shape& y, const shape& x,
                         const pool_window& window, const Index& index, const execution_context& context,
                         const AddMemory& add_memory) {
  check_context(function, context);
  const general_shape s = check_pool_shapes(function, "x", x, "y", y, window);
  const std::size_t bytes = plane_bytes(y.elements(), checked_index_bits(function, s.taps()));
  check_encoded(function, "index", index, bytes);
  if (y.elements() != 0) {
    if (flat == nullptr) fail(errc::invalid_argument, function, "flat", "data", "a null pointer");
    if (reinterpret_cast<std::uintptr_t>(flat) % alignof(std::int64_t) != 0)
      fail(errc::invalid_argument, function, "flat", "data aligned to 8 bytes", "other data");
  }
  call_memory memory(function);
  add_memory(memory, bytes);
  return s;
}

std::size_t flat_bytes(const shape& y) noexcept {
  return static_cast<std::size_t>(y.elements()) * sizeof(std::int64_t);
}

}  // namespace

void encode_window_index(const std::int64_t* flat, const shape& y, const shape& x, const pool_window& window,
                         const encoded_view& index, const execution_context& context) try {
  constexpr std::string_view function = "encode_window_index";
  const general_shape s =
      check_call(function, flat, y, x, window, index, context, [&](call_memory& memory, std::size_t bytes) {
        memory.add({extent_of(flat, flat_bytes(y)), use::read, "flat", ""}).writes("index", index, bytes);
      });
  const std::int64_t elements = y.elements();
  if (elements == 0) return;
  if (on_device(context)) return device::kernels().encode_window_index(flat, y, x, window, index, context);
  auto* const plane = static_cast<std::uint8_t*>(index.data);
  const int bits = tap_bits(s.taps());
  const tap_finder taps_of(s);
  clear_tail(plane, elements, bits);
  for_each_tile(context, elements, [&](std::int64_t, std::int64_t first, std::int64_t length) {
    constexpr std::int64_t slack = 4;
    alignas(run_alignment) std::array<std::uint8_t, tile_elements + slack> taps;
    bool wrong = false;
    for_each_window_run(s, first, length, [&](const window_run& run) {
      wrong |= taps_of.find(run, flat + first + run.done, taps.data() + run.done);
    });
    std::fill_n(taps.begin() + length, slack, std::uint8_t{0});
    pack_taps(taps.data(), length, bits, first, plane);
    if (wrong) or_bits(index.report->status, status_corrupt);
  });
  add(index.report->slot_bytes, plane_bytes(elements, bits));
} catch (...) {
  encoders::rethrow("encode_window_index");
}

void decode_window_index(const encoded_tensor& index, const shape& x, const pool_window& window,
                         std::int64_t* flat, const execution_context& context) try {
  constexpr std::string_view function = "decode_window_index";
  const shape& y = index.dims;
  const general_shape s = check_call(
      function, flat, y, x, window, index.bytes, context, [&](call_memory& memory, std::size_t bytes) {
        check_kind(function, "index", index, window_index_of(window));
        memory.reads("index", index.bytes, bytes).writes("flat", flat, flat_bytes(y));
      });
  const std::int64_t elements = y.elements();
  if (elements == 0) return;
  if (on_device(context)) return device::kernels().decode_window_index(index, x, window, flat, context);
  const auto* const plane = static_cast<const std::uint8_t*>(index.bytes.data);
  const int bits = tap_bits(s.taps());
  const position_finder positions_of(s);
  for_each_tile(context, elements, [&](std::int64_t, std::int64_t first, std::int64_t length) {
    alignas(run_alignment) std::array<std::uint8_t, tile_elements + plane_slack> buffer;
    const std::uint8_t* const taps = unpack_taps(plane, bits, first, length, buffer.data());
    bool wrong = false;
    for_each_window_run(s, first, length, [&](const window_run& run) {
      wrong |= positions_of.find(run, taps + run.done, flat + first + run.done);
    });
    if (wrong) or_bits(index.bytes.report->status, status_corrupt);
  });
} catch (...) {
  encoders::rethrow("decode_window_index");
}

}  // namespace stash
