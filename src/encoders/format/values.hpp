// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Tensors of f32, f16 and bf16 as runs of f32. Every 16-bit value has its exact f32, NaN payloads included,
/// so one set of inner loops serves all three types. Internal to the encoders module.

#include "encoders/detail.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {

constexpr bool is_float(dtype type) noexcept {
  return type == dtype::f32 || type == dtype::f16 || type == dtype::bf16;
}

/// `count` <= run_elements values of a dense run of `type` (f16, bf16) as f32, bit-exact.
void widen_exactly(dtype type, const std::uint16_t* from, std::int64_t count, float* to) noexcept;
/// Inverse for f32 values that widen_exactly() gave.
void narrow_exactly(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept;
/// Any f32 values rounded to nearest even, saturating: docs/format.md, "Narrow values", to_zero.
void round_values(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept;
/// The same, but numbers beyond the largest finite one become infinity: docs/format.md, "Results of
/// arithmetic".
void round_results(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept;

/// Elements [first, first + length), length <= run_elements, as one dense run of f32: inside the tensor if
/// it is dense f32, else in `buffer`.
const float* read_values(const const_tensor_view& view, std::int64_t first, std::int64_t length,
                         float* buffer) noexcept;

/// True if values are produced where they stay.
inline bool takes_values(const tensor_view& view) noexcept {
  return view.type == dtype::f32 && view.dense();
}

/// Where to produce f32 values of elements starting at `first`: inside a dense f32 tensor, else `buffer`,
/// from which write_values() then takes them.
inline float* value_target(const tensor_view& view, std::int64_t first, float* buffer) noexcept {
  return takes_values(view) ? view.as<float>() + first : buffer;
}

/// How f32 values become those of a 16-bit tensor: values that came from such a tensor; values that were
/// stored, by round_values(); results of arithmetic, by round_results().
enum class rounding : std::uint8_t { exact, stored, result };

/// Completes value_target(). `how` matters for 16-bit types.
void write_values(const tensor_view& view, std::int64_t first, std::int64_t length, const float* values,
                  rounding how) noexcept;

/// Who fetches lines of a large map before they are written through the caches, if anybody does.
enum class fetched_by : std::uint8_t { output, loops };

/// A whole tensor that is written run by run. Where vectors are lines, it is fetched for loops that do not do
/// so themselves: a Cascade Lake, which reads a line before it is written in any case, waited a tenth of the
/// time for that.
class value_output {
 public:
  value_output(const tensor_view& y, rounding how, const execution_context& context,
               fetched_by who = fetched_by::output)
      : y_(y),
        how_(how),
        where_(takes_values(y) ? destination_of(y.elements(), context) : destination::caches),
        fetches_(who == fetched_by::output && where_ == destination::caches && takes_values(y) &&
                 is_large(y.elements()) && loops().stores_lines) {}

  /// compute(to, where) writes the values of elements [first, first + length), length <= run_elements.
  template <class Compute>
  void fill(std::int64_t first, std::int64_t length, const Compute& compute) const {
    alignas(run_alignment) float buffer[run_elements];
    float* to = value_target(y_, first, buffer);
    if (fetches_) fetch_later_run(to, length);
    compute(to, where_);
    write_values(y_, first, length, to, how_);
  }
  /// After the runs of a thread.
  void finish() const noexcept { finish_streams(where_); }

 private:
  static void fetch_later_run(const float* to, std::int64_t length) noexcept {
    constexpr std::int64_t line = 64 / sizeof(float), distance = prefetch_distance / sizeof(float);
    for (std::int64_t i = 0; i < length; i += line)
      fetch_line_to_write(to + distance + i);
  }

  const tensor_view& y_;
  rounding how_;
  destination where_;
  bool fetches_;
};

}  // namespace stash::encoders
