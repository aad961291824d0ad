// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The outer loop of max pooling and what tells its backward pass (pool_backward.hpp) where maxima come from.
/// Both work on runs of at most run_elements pooled values whose taps wait as bytes on the stack.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "encoders/detail.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/format/tap_planes.hpp"
#include "encoders/format/values.hpp"
#include "encoders/pooling/pool_shape.hpp"

namespace stash::encoders {

inline window_taps clipped_window(const pool_shape& s, std::int64_t oy, std::int64_t ox,
                                  std::int64_t pitch) noexcept {
  return {s.rows.first_tap(oy),
          s.rows.last_tap(oy),
          s.columns.first_tap(ox),
          s.columns.last_tap(ox),
          s.columns.kernel,
          static_cast<std::ptrdiff_t>(s.columns.in * pitch),
          static_cast<std::ptrdiff_t>(pitch)};
}

/// Offset, in elements, of the first tap of a clipped window in a map of this pitch.
inline std::int64_t window_offset(const pool_shape& s, const window_taps& w, std::int64_t sample,
                                  std::int64_t oy, std::int64_t ox, std::int64_t pitch) noexcept {
  const std::int64_t row = sample * s.rows.in + s.rows.origin(oy) + w.y_begin;
  return (row * s.columns.in + s.columns.origin(ox) + w.x_begin) * pitch;
}

/// What windows (oy, ox) visit first when they are gone through in row-major order.
inline first_visits visits_of(const pool_shape& s, std::int64_t oy, std::int64_t ox) noexcept {
  return {oy == 0 ? 0 : s.rows.kernel - s.rows.stride, ox == 0 ? 0 : s.columns.kernel - s.columns.stride};
}

/// Window (oy, ox) and those after it, at most `most`, that have its taps and visit the same ones first.
/// The pitches are those of the map with the windows and of the pooled one.
inline window_row windows_like(const pool_shape& s, std::int64_t oy, std::int64_t ox, std::int64_t most,
                               std::int64_t pitch, std::int64_t pooled_pitch) noexcept {
  const pool_axis& columns = s.columns;
  const bool first_of_all = ox == 0 && columns.stride < columns.kernel;
  const bool whole = columns.first_tap(ox) == 0 && columns.last_tap(ox) == columns.kernel;
  const std::int64_t last_whole = (columns.in - columns.kernel + columns.pad) / columns.stride;
  window_row row{first_of_all || !whole ? 1 : std::min(most, last_whole - ox + 1), 0,
                 static_cast<std::ptrdiff_t>(pooled_pitch), visits_of(s, oy, ox)};
  // A stride that nobody takes may be as large as it likes.
  if (row.windows > 1) row.x_step = static_cast<std::ptrdiff_t>(columns.stride * pitch);
  // The rows that follow a row at its end are read already, up to those that the next windows below read
  // first.
  const std::int64_t row_elements = columns.in * pitch;
  const bool ends = columns.origin(ox) * pitch + window_fetch_distance >= row_elements;
  if (ends && oy + 1 < s.rows.out)
    row.fetch_distance += static_cast<std::ptrdiff_t>((s.rows.stride - 1) * row_elements);
  return row;
}

inline max_function maximum_for(framework_rule rule, bool relu, bool taps) noexcept {
  return loops().maximum[rule == framework_rule::pytorch ? 1 : 0][relu ? 1 : 0][taps ? 1 : 0];
}

inline max_function maximum_with_codes_for(framework_rule rule) noexcept {
  return loops().maximum_with_codes[rule == framework_rule::pytorch ? 1 : 0];
}

// --- forward ---------------------------------------------------------------------------------------------

/// Planes that forward fills; null ones are not filled.
struct pool_planes {
  std::uint8_t* index = nullptr;
  int index_bits = 2;
  std::uint8_t* code = nullptr;  ///< relu_pool: the plane of taps or four-bit codes
  int code_bits = 2;
  std::uint8_t* gradient = nullptr;  ///< relu_pool up to 4 taps: its second plane
};

/// Checks `index` and makes it one of the planes.
inline void set_index_plane(std::string_view function, const encoded_view& index, std::int64_t taps,
                            std::int64_t elements, pool_planes& planes) {
  planes.index_bits = checked_index_bits(function, taps);
  check_encoded(function, "index", index, plane_bytes(elements, planes.index_bits));
  planes.index = static_cast<std::uint8_t*>(index.data);
}

/// Collects the taps of one thread's range and writes them in groups that end at whole bytes of all planes.
class tap_stage {
 public:
  /// `first` is a multiple of group_elements; `y` receives the pooled values.
  tap_stage(const pool_planes& planes, const const_tensor_view& y, framework_rule rule, argmax_bytes holds,
            std::int64_t first)
      : planes_(planes), y_(y), rule_(rule), holds_(holds), first_(first) {}

  static constexpr std::int64_t group_elements = 32;

  /// Where the next `count` <= run_elements taps go.
  std::uint8_t* taps(std::int64_t count) noexcept {
    if (filled_ + count > capacity) write(filled_ / group_elements * group_elements);
    return taps_.data() + filled_;
  }
  /// To be called when the pooled values of these taps are in y.
  void advance(std::int64_t count) noexcept { filled_ += count; }

  /// Writes what is left; only the last range may end inside a group.
  void finish() noexcept {
    std::memset(taps_.data() + filled_, 0, group_elements);
    write(filled_);
  }

 private:
  static constexpr std::int64_t capacity = 2 * run_elements;

  void write(std::int64_t count) noexcept {
    if (planes_.index != nullptr) pack_taps(taps_.data(), count, planes_.index_bits, first_, planes_.index);
    if (planes_.code != nullptr && holds_ == argmax_bytes::codes) {
      pack_codes(taps_.data(), count, first_);
    } else if (planes_.code != nullptr) {
      write_codes(count);
    }
    first_ += count;
    filled_ -= count;
    std::memmove(taps_.data(), taps_.data() + count, static_cast<std::size_t>(filled_));
  }

  void pack_codes(const std::uint8_t* codes, std::int64_t count, std::int64_t first) const noexcept {
    pack_taps(codes, count, planes_.code_bits, first, planes_.code);
    if (planes_.gradient != nullptr) pack_gradients(codes, count, first, planes_.gradient);
  }

  void write_codes(std::int64_t count) noexcept {
    for (std::int64_t done = 0; done < count; done += run_elements)
      write_codes(done, std::min(run_elements, count - done));
  }

  void write_codes(std::int64_t at, std::int64_t count) noexcept {
    const std::int64_t first = first_ + at;
    alignas(run_alignment) float values[run_elements];
    std::uint8_t bits[run_elements / 8], passes[run_elements], codes[run_elements + group_elements];
    loops().pass_bits(read_values(y_, first, count, values), count, rule_, bits);
    spread_bits(bits, count, passes);
    select_codes(taps_.data() + at, passes, count, codes);
    std::memset(codes + count, 0, group_elements);
    pack_codes(codes, count, first);
  }

  pool_planes planes_;
  const_tensor_view y_;
  framework_rule rule_;
  argmax_bytes holds_;
  std::int64_t first_;
  std::int64_t filled_ = 0;
  alignas(run_alignment) std::array<std::uint8_t, capacity + group_elements> taps_;
};

/// As many whole pixels as fit in a run, or one.
inline std::int64_t pixels_of_run(const pool_shape& s) noexcept {
  return std::max<std::int64_t>(1, run_elements / s.channels);
}

/// Forward, joined with a ReLU or not.
inline void pool_forward(bool relu, const pool_shape& s, const const_tensor_view& x, const tensor_view& y,
                         const pool_planes& planes, framework_rule rule, const execution_context& context) {
  if (y.elements() == 0) return;
  const bool wants_taps = planes.index != nullptr || planes.code != nullptr;
  // Both planes at once need the taps themselves.
  const argmax_bytes holds = planes.index == nullptr && relu ? argmax_bytes::codes : argmax_bytes::taps;
  const max_function maximum = wants_taps && holds == argmax_bytes::codes
                                   ? maximum_with_codes_for(rule)
                                   : maximum_for(rule, relu, wants_taps);
  // Maps that are larger than the caches push y out of them, too, unless the taps need it once more.
  const bool reads_y = planes.code != nullptr && holds == argmax_bytes::taps;
  const destination where = reads_y ? destination::caches : destination_of_smaller(x.elements());
  if (planes.index != nullptr) clear_tail(planes.index, y.elements(), planes.index_bits);
  if (planes.code != nullptr) clear_tail(planes.code, y.elements(), planes.code_bits);
  if (planes.gradient != nullptr) clear_tail(planes.gradient, y.elements(), 1);
  // Ranges are cut between groups of pixels that fill whole bytes of every plane.
  const std::int64_t group = tap_stage::group_elements / std::gcd(tap_stage::group_elements, s.channels);
  const std::int64_t pixels = s.pooled_pixels();
  const std::int64_t grain = std::max<std::int64_t>(1, 32 * run_elements / (group * s.channels));
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    tap_stage stage(planes, y, rule, holds, begin * group * s.channels);
    const std::int64_t last = std::min(pixels, end * group);
    std::int64_t pixel = begin * group;
    std::int64_t ox = pixel % s.columns.out;
    std::int64_t oy = pixel / s.columns.out % s.rows.out;
    std::int64_t sample = pixel / s.columns.out / s.rows.out;
    const std::int64_t most = pixels_of_run(s);
    while (pixel < last) {
      const window_row row =
          windows_like(s, oy, ox, std::min({most, last - pixel, s.columns.out - ox}), x.pitch(), y.pitch());
      const window_taps w = clipped_window(s, oy, ox, x.pitch());
      const float* from = x.as<float>() + window_offset(s, w, sample, oy, ox, x.pitch());
      float* to = y.as<float>() + pixel * y.pitch();
      for (std::int64_t c = 0; c < s.channels; c += run_elements) {
        const std::int64_t count = std::min(run_elements, s.channels - c);
        std::uint8_t* taps = wants_taps ? stage.taps(row.windows * count) : nullptr;
        maximum(from + c, w, row, count, to + c, taps, where);
        if (wants_taps) stage.advance(row.windows * count);
      }
      pixel += row.windows;
      ox += row.windows;
      if (ox == s.columns.out) {
        ox = 0;
        if (++oy == s.rows.out) {
          oy = 0;
          ++sample;
        }
      }
    }
    if (wants_taps) stage.finish();
    finish_streams(where);
  };
  parallel_for(context, (pixels + group - 1) / group, grain, body);
}

// --- backward --------------------------------------------------------------------------------------------

/// Pooled values that are handled together: several whole pixels of one pooled row, or part of one pixel.
struct pooled_run {
  std::int64_t sample, oy, ox, channel;
  std::int64_t pixels, channels;  ///< channels of each pixel
  std::int64_t first;             ///< element of the pooled map
  std::int64_t oz = 0;            ///< where there is depth
  std::int64_t count() const noexcept { return pixels * channels; }
  std::int64_t pixel(const pool_shape& s) const noexcept {
    return (sample * s.rows.out + oy) * s.columns.out + ox;
  }
};

/// What a source of argmaxes says about a run.
struct run_taps {
  const std::uint8_t* taps;
  const std::uint8_t* passes = nullptr;  ///< bit by bit whether a gradient passes; null: every one does
  bool codes = false;                    ///< no_gradient_code in place of a tap: no gradient passes
};

struct run_buffers {
  alignas(run_alignment) std::array<std::uint8_t, run_elements + plane_slack> taps;
  alignas(run_alignment) std::array<std::uint8_t, run_elements + plane_slack> flags;
  std::array<std::uint8_t, run_elements / 8> passes;
  alignas(run_alignment) std::array<float, run_elements> values;
};

/// Argmaxes from a window_index plane.
class index_source {
 public:
  index_source(const const_encoded_view& index, int bits)
      : plane_(static_cast<const std::uint8_t*>(index.data)), bits_(bits) {}
  run_taps load(const pooled_run& run, run_buffers& buffers) noexcept {
    return {unpack_taps(plane_, bits_, run.first, run.count(), buffers.taps.data())};
  }

 private:
  const std::uint8_t* plane_;
  int bits_;
};

inline index_source checked_index_source(std::string_view function, const encoded_tensor& index,
                                         const pool_window& window, std::int64_t taps,
                                         const const_tensor_view& dy) {
  const int bits = checked_index_bits(function, taps);
  check_kind(function, "index", index, window_index_of(window));
  check_same_elements(function, "index", index, "dy", dy);
  check_encoded(function, "index", index.bytes, plane_bytes(dy.elements(), bits));
  return {index.bytes, bits};
}

/// Argmaxes from window_index, signs from the dense pooled output.
class dense_source {
 public:
  dense_source(const index_source& index, const const_tensor_view& y, framework_rule rule)
      : index_(index), y_(y), rule_(rule) {}
  run_taps load(const pooled_run& run, run_buffers& buffers) noexcept {
    run_taps argmaxes = index_.load(run, buffers);
    const float* values = read_values(y_, run.first, run.count(), buffers.values.data());
    constexpr auto line = static_cast<std::int64_t>(64 / sizeof(float));
    const auto ahead = fetch_distance(values) / static_cast<std::ptrdiff_t>(sizeof(float));
    for (std::int64_t i = 0; i < run.count(); i += line)
      fetch_line(values + i + ahead);
    loops().pass_bits(values, run.count(), rule_, buffers.passes.data());
    argmaxes.passes = buffers.passes.data();
    return argmaxes;
  }

 private:
  index_source index_;
  const_tensor_view y_;
  framework_rule rule_;
};

/// Argmaxes found again in the dense x.
class search_source {
 public:
  search_source(const pool_shape& s, const const_tensor_view& x, framework_rule rule, bool relu)
      : shape_(&s),
        x_(x),
        rule_(rule),
        relu_(relu),
        codes_(relu && s.rows.kernel * s.columns.kernel <= no_gradient_code),
        maximum_(codes_ ? maximum_with_codes_for(rule) : maximum_for(rule, relu, true)) {}
  run_taps load(const pooled_run& run, run_buffers& buffers) noexcept {
    for (std::int64_t p = 0; p < run.pixels;) {
      const window_row row =
          windows_like(*shape_, run.oy, run.ox + p, run.pixels - p, x_.pitch(), run.channels);
      const window_taps w = clipped_window(*shape_, run.oy, run.ox + p, x_.pitch());
      const float* from = x_.as<float>() + run.channel +
                          window_offset(*shape_, w, run.sample, run.oy, run.ox + p, x_.pitch());
      maximum_(from, w, row, run.channels, buffers.values.data() + p * run.channels,
               buffers.taps.data() + p * run.channels, destination::caches);
      p += row.windows;
    }
    if (codes_ || !relu_) return {buffers.taps.data(), nullptr, codes_};
    loops().pass_bits(buffers.values.data(), run.count(), rule_, buffers.passes.data());
    return {buffers.taps.data(), buffers.passes.data()};
  }

 private:
  const pool_shape* shape_;
  const_tensor_view x_;
  framework_rule rule_;
  bool relu_;
  bool codes_;  ///< no tap of these windows has the number of no_gradient_code
  max_function maximum_;
};

/// True if test(tap) is for one of these taps.
template <class Test>
bool any_tap(const std::uint8_t* taps, std::int64_t count, const Test& test) noexcept {
  std::uint8_t found = 0;
  for (std::int64_t i = 0; i < count; ++i)
    found |= static_cast<std::uint8_t>(test(taps[i]));
  return found != 0;
}

/// True if a tap of these `count` ones is none of a window of so many taps.
inline bool any_unknown(const run_taps& argmaxes, std::int64_t count, std::int64_t taps_in_window) noexcept {
  if (taps_in_window >= 256) return false;
  const auto limit = static_cast<std::uint8_t>(taps_in_window);
  const auto allowed = argmaxes.codes ? no_gradient_code : std::uint8_t{0};
  return any_tap(argmaxes.taps, count, [=](std::uint8_t tap) { return (tap >= limit) & (tap != allowed); });
}

/// True if one of these `count` taps, which are of the window, lies outside of its part `w`.
inline bool any_outside(const std::uint8_t* taps, std::int64_t count, const window_taps& w,
                        std::int64_t kernel_h) noexcept {
  if (w.y_end - w.y_begin == kernel_h && w.x_end - w.x_begin == w.kernel_w) return false;
  for (std::int64_t ky = 0; ky < kernel_h; ++ky) {
    for (std::int64_t kx = 0; kx < w.kernel_w; ++kx) {
      if (ky >= w.y_begin && ky < w.y_end && kx >= w.x_begin && kx < w.x_end) continue;
      const auto clipped = static_cast<std::uint8_t>(ky * w.kernel_w + kx);
      if (any_tap(taps, count, [clipped](std::uint8_t tap) { return tap == clipped; })) return true;
    }
  }
  return false;
}

/// True if an argmax of a run is none of its window's taps, or outside x.
inline bool any_wrong(const pool_shape& s, const pooled_run& run, const run_taps& argmaxes) noexcept {
  if (any_unknown(argmaxes, run.count(), s.taps())) return true;
  for (std::int64_t p = 0; p < run.pixels;) {
    const window_row row = windows_like(s, run.oy, run.ox + p, run.pixels - p, 1, 1);
    if (any_outside(argmaxes.taps + p * run.channels, row.windows * run.channels,
                    clipped_window(s, run.oy, run.ox + p, 1), s.rows.kernel))
      return true;
    p += row.windows;
  }
  return false;
}

}  // namespace stash::encoders
