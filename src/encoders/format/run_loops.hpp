// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The inner loops of the encoders, over one run of values that fits the first-level cache. They exist in
/// plain C++ and once for every instruction set that Highway offers; only loops() chooses.
/// All versions give the same bits.

#include <cstddef>
#include <cstdint>

#include "encoders/format/philox.hpp"
#include "stash/encoding.hpp"
#include "stash/execution.hpp"

namespace stash::encoders {

/// Most values in one run.
inline constexpr std::int64_t run_elements = tile_elements;

/// Buffers of a run start with a cache line. On a stack they would start anywhere, and vectors as wide as a
/// line would lie in two of them: a ReLU took up to 1.6 times as long by where the stack happened to be.
inline constexpr std::size_t run_alignment = 64;

/// How far ahead loops fetch, in bytes: a core that moves 30 GB/s moves some KiB in the time that memory
/// takes to answer.
inline constexpr std::ptrdiff_t prefetch_distance = 8192;

/// How far ahead of `at` a loop fetches, in bytes: not at all in a buffer of this thread's stack, which needs
/// no fetching and may lie within that distance of the stack's end. A processor that is asked for an address
/// where no memory is looks it up in the page tables every time: by where the stack happened to begin,
/// compaction took up to 2.5 times as long.
inline std::ptrdiff_t fetch_distance(const void* at) noexcept {
  constexpr std::uintptr_t reach = std::uintptr_t{128} << 10;  // of the stack that a range takes
  const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return reinterpret_cast<std::uintptr_t>(at) - frame < reach ? 0 : prefetch_distance;
}

/// Fetches a line into the second-level cache. Fetches into the first one wait in the same few buffers as the
/// loads and stores of the loop itself: with them pooling ran at two thirds of the speed. Any address may be
/// asked for. Always inline: g++ takes a function that only fetches for one without effects, and drops its
/// calls.
[[gnu::always_inline]] inline void fetch_line(const void* at) noexcept {
  __builtin_prefetch(at, 0, 2);
}
/// The same for a line that will be written in parts.
[[gnu::always_inline]] inline void fetch_line_to_write(const void* at) noexcept {
  __builtin_prefetch(at, 1, 2);
}

/// Values that expand() and expand_stored() may read and find_and_compact() may write, and columns that
/// find_and_list() may write, past the last one.
inline constexpr std::int64_t packed_slack = 16;

/// The taps [y_begin, y_end) x [x_begin, x_end) of a window that lie in x, and how x lies in memory.
struct window_taps {
  std::int64_t y_begin, y_end, x_begin, x_end;
  std::int64_t kernel_w;
  std::ptrdiff_t row_pitch, pixel_pitch;  ///< in elements
};

/// Taps [y_store, ...) x [x_store, ...) of a window are visited for the first time and are written, the
/// others are added to.
struct first_visits {
  std::int64_t y_store, x_store;

  constexpr bool contain(std::int64_t ky, std::int64_t kx) const noexcept {
    return ky >= y_store && kx >= x_store;
  }
};

struct nonzero_bits {
  std::uint32_t count;    ///< values other than +0
  bool any_not_positive;  ///< one of them is negative, -0 or NaN
};

/// What a maximum says about the tap that it comes from.
enum class argmax_bytes {
  none,
  taps,   ///< its number
  codes,  ///< that, or no_gradient_code where ReLU's gradient does not pass
};

/// The code of relu_pool for "no gradient" where codes have four bits.
inline constexpr std::uint8_t no_gradient_code = 15;

/// How far ahead in a row of a map: windows go through several rows at once, so it takes longer than
/// elsewhere until they come by there.
inline constexpr std::ptrdiff_t window_fetch_distance = prefetch_distance / 2 / sizeof(float);

/// Neighbouring windows that have the same taps.
struct window_row {
  std::int64_t windows;
  std::ptrdiff_t x_step, y_step;  ///< between their first taps and between their pooled values, in elements
  first_visits visits;
  std::ptrdiff_t fetch_distance = window_fetch_distance;  ///< how far ahead loops fetch, in elements
};

/// Where a loop writes: into the caches, or past them to memory, which other threads see after
/// finish_streams().
enum class destination : std::uint8_t { caches, memory };

/// Maps of this size are written past the caches, which would have lost their beginning by the time of their
/// end: what is written into a cache is read from memory first, a third of the traffic of a ReLU.
inline constexpr std::int64_t streamed_elements = std::int64_t{8} << 20;
constexpr bool is_large(std::int64_t elements) noexcept {
  return elements >= streamed_elements;
}

/// Where results go that are smaller than the map of so many elements that they are made from.
constexpr destination destination_of_smaller(std::int64_t elements) noexcept {
  return is_large(elements) ? destination::memory : destination::caches;
}

/// Where a map of so many elements goes. A core of an Intel server has few buffers for lines on their way,
/// and a store past the caches keeps one until memory has it: without the caller's threads, on a Cascade
/// Lake, ReLUs took 1.05 to 1.1 times as long with such stores, decoders up to 1.3 and backward pooling 1.4
/// times, while a Zen 4 was faster with them. Several cores wait for memory itself, which has less to do with
/// them.
destination destination_of(std::int64_t elements, const execution_context& context) noexcept;

/// y[c] = maximum over the window and, where asked for, taps[c] = its tap, of `channels` channels of each
/// window; all together at most run_elements, of which the taps lie densely. `x` points to the first tap of
/// the first window that lies in x.
using max_function = void (*)(const float* x, const window_taps& w, const window_row& row,
                              std::int64_t channels, float* y, std::uint8_t* taps, destination to);

/// A window over a pixel of dx: its gradients and the taps that they go to, channel by channel, and which
/// of its taps the pixel is. Taps are counted from 1, because keep() makes zeros of those where no gradient
/// passes; they are the bits of floats, for keep() to take them.
struct reaching_window {
  const float* gradient;
  const float* taps;
  std::int32_t tap;
};

/// Pixels of a row of dx in `steps` steps of `phases` neighbours. In step i, counts[p] windows reach the
/// neighbour p: those in `windows` after the ones of the neighbours before it, moved on by i windows.
struct gathered_pixels {
  const reaching_window* windows;
  const std::int64_t* counts;
  std::int64_t phases, steps;
  const float* fetched;  ///< read soon, moves by gradient_step with each step and need not exist
  std::ptrdiff_t gradient_step, taps_step;  ///< from window to window, in elements
  std::ptrdiff_t pixel_pitch, step_pitch;   ///< of dx, in elements
};

/// Every count lies in 1..run_elements, where nothing else is said.
struct run_loops {
  bool stores_lines;  ///< a vector is a line
  /// y = x > 0 or NaN ? x : +0; y may be x.
  void (*rectify)(const float* x, std::int64_t count, float* y, destination to);
  /// Bit i of `bits` = the gradient passes for values[i]; unused bits of the last byte are zero.
  void (*pass_bits)(const float* values, std::int64_t count, framework_rule rule, std::uint8_t* bits);
  /// rectify() and the pass_bits() of x in one go over memory; y may be x.
  void (*rectify_with_bits)(const float* x, std::int64_t count, framework_rule rule, float* y,
                            std::uint8_t* bits, destination to);
  /// to[i] = bit i ? from[i] : +0; `to` may be `from`.
  void (*keep)(const float* from, const std::uint8_t* bits, std::int64_t count, float* to, destination where);

  /// Bit i of `bits` = lower < values[i] < upper, or values[i] is NaN and the rule is pytorch's.
  void (*range_bits)(const float* values, std::int64_t count, float lower, float upper, framework_rule rule,
                     std::uint8_t* bits);
  /// y = x below lower: lower; above upper: upper; else x, NaN included; y may be x.
  void (*clip)(const float* x, std::int64_t count, float lower, float upper, float* y, destination to);
  /// to[i] = bit i ? from[i] : slope * from[i]; `to` may be `from`.
  void (*keep_or_scale)(const float* from, const std::uint8_t* bits, std::int64_t count, float slope,
                        float* to, destination where);
  /// pass_bits() of x by tensorflow's rule, and keep_or_scale() of x by them, in one go over memory; y may be
  /// x.
  void (*scale_with_bits)(const float* x, std::int64_t count, float slope, float* y, std::uint8_t* bits,
                          destination to);

  /// Bit i of `bits` = word i mod 4 of block first_block + i div 4 is at least `threshold`; unused bits of
  /// the last byte are zero. `from` and `to` are where values for these bits are read and written next: only
  /// fetches look at them. `to` is null where it is not to be fetched.
  void (*draw_bits)(const philox_stream& stream, std::uint64_t first_block, std::int64_t count,
                    std::uint32_t threshold, const float* from, const float* to, std::uint8_t* bits);
  /// to[i] = bit i ? scale * from[i] : +0; `to` may be `from`.
  void (*scale_kept)(const float* from, const std::uint8_t* bits, std::int64_t count, float scale, float* to,
                     destination where);

  /// Bit i of `bits` = values[i] is not +0.
  nonzero_bits (*find_nonzero)(const float* values, std::int64_t count, std::uint8_t* bits);
  /// How many of the first `count` bits are set.
  std::int64_t (*count_bits)(const std::uint8_t* bits, std::int64_t count);
  /// Writes the `kept` values whose bit is set, in order. Bits past the last value are not set.
  void (*compact)(const float* values, const std::uint8_t* bits, std::int64_t count, float* packed,
                  std::int64_t kept);
  /// Copies bytes, which may be 0, to memory that begins anywhere.
  void (*copy)(const std::uint8_t* from, std::int64_t bytes, std::uint8_t* to, destination where);
  /// find_nonzero() and compact() in one go over memory; up to packed_slack more values may be written.
  nonzero_bits (*find_and_compact)(const float* values, std::int64_t count, std::uint8_t* bits,
                                   float* packed);
  /// Packs the values that are not +0 and writes the column of each, its number in its row of
  /// csr_row_elements values, and for each row how many there are up to its end. Up to packed_slack more
  /// values and columns may be written.
  nonzero_bits (*find_and_list)(const float* values, std::int64_t count, float* packed, std::uint8_t* columns,
                                std::uint16_t* row_ends);
  /// Inverse of compact: +0 where the bit is not set.
  void (*expand)(const float* packed, const std::uint8_t* bits, std::int64_t count, float* values,
                 destination to);

  /// expand() of values that narrow() packed, of which up to packed_slack more are read. Where it returns
  /// false, `values` may be half written, and the values are to be widened first: it knows few formats,
  /// counts that are whole vectors, and no NaN, be it one of those past the last value.
  bool (*expand_stored)(const std::uint8_t* stored, value_format format, const std::uint8_t* bits,
                        std::int64_t count, float* values, destination to);

  /// True if each of `count` columns, which may be 0, is larger than the one before it.
  bool (*columns_rise)(const std::uint8_t* columns, std::int64_t count);
  /// What find_and_list() did to a row, back: sets exactly the bits of `count` columns, in any order,
  /// among the 256 bits of `bits`. count may be 0.
  void (*mark_columns)(const std::uint8_t* columns, std::int64_t count, std::uint8_t* bits);

  /// Packs values in a narrower format (not an MX one), and back. `stored` is aligned to the stored type,
  /// 4 bytes for fp10.
  void (*narrow)(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                 std::uint8_t* stored, destination to);
  void (*widen)(const std::uint8_t* stored, std::int64_t count, value_format format, float* values,
                destination to);
  /// Inverse of widening f16 or bf16: a NaN keeps its payload.
  void (*narrow_exactly)(const float* values, std::int64_t count, dtype type, std::uint16_t* out);
  /// The same for the MX formats; groups start at the first value.
  void (*narrow_mx)(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                    std::uint8_t* scales, std::uint8_t* elements);
  void (*widen_mx)(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                   value_format format, float* values, destination to);

  /// Maxima of windows: [rule][joined with ReLU][with taps].
  max_function maximum[2][2][2];
  /// The same for relu_pool, of windows of at most no_gradient_code taps: joined with ReLU, with codes
  /// instead of taps; [rule].
  max_function maximum_with_codes[2];
  /// Adds gradient[c] to the tap that taps[c] names and +0 to the other taps of each window; counts and
  /// steps are those of max_function, with the gradient for y. `dx` points to the first tap in x. Past the
  /// caches go taps that are visited once.
  void (*scatter)(const float* gradient, const std::uint8_t* taps, std::int64_t channels,
                  const window_taps& w, const window_row& row, float* dx, destination to);
  // These two are null where adding to dx in memory is as fast: with short vectors.
  /// listed[i] has the bits of the integer taps[i] + 1, as gather() reads them.
  void (*list_taps)(const std::uint8_t* taps, std::int64_t count, float* listed);
  /// dx[c] = the sum of gradient[c] of those windows that reach the pixel and whose taps[c] is the pixel's,
  /// in their order, beginning with +0, of `channels` channels of each pixel; `dx` points to the first pixel.
  void (*gather)(const gathered_pixels& pixels, std::int64_t channels, float* dx, destination to);
};

/// Plain C++.
extern const run_loops scalar_loops;

/// The version in use (stash/cpu.hpp).
const run_loops& loops() noexcept;
/// What this thread wrote to destination::memory becomes visible with its next release.
void finish_streams() noexcept;
inline void finish_streams(destination where) noexcept {
  if (where == destination::memory) finish_streams();
}
/// Throws error(invalid_argument) if STASH_CPU_TARGET names no target and none was set since.
void check_cpu_target(std::string_view function);

}  // namespace stash::encoders
