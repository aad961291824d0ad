// SPDX-License-Identifier: Apache-2.0
#include "encoders/format/values.hpp"

#include <bit>

#include "encoders/format/convert.hpp"
#include "encoders/format/run_loops.hpp"

namespace stash::encoders {
namespace {

void narrow_run(dtype type, rounding how, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  if (how == rounding::exact) {
    narrow_exactly(type, from, count, to);
  } else if (how == rounding::stored) {
    round_values(type, from, count, to);
  } else {
    round_results(type, from, count, to);
  }
}

}  // namespace

void widen_exactly(dtype type, const std::uint16_t* from, std::int64_t count, float* to) noexcept {
  loops().widen(reinterpret_cast<const std::uint8_t*>(from), count,
                type == dtype::f16 ? value_format::fp16 : value_format::bf16, to, destination::caches);
}

void narrow_exactly(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  loops().narrow_exactly(from, count, type, to);
}

void round_values(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  loops().narrow(from, count, type == dtype::f16 ? value_format::fp16 : value_format::bf16,
                 underflow_rule::to_zero, reinterpret_cast<std::uint8_t*>(to), destination::caches);
}

void round_results(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  round_values(type, from, count, to);
  // Numbers that are too large have become the largest one, which is rare: only then are they looked for.
  const std::uint16_t largest =
      type == dtype::f16 ? fp16_format::largest_finite : bf16_format::largest_finite;
  unsigned any = 0;
  for (std::int64_t i = 0; i < count; ++i)
    any |= (to[i] & 0x7fffU) == largest ? 1U : 0U;
  if (any == 0) return;
  // Halfway between the largest number and the one that would follow; ties go there, which is even.
  const std::int32_t too_large = type == dtype::f16 ? 0x477ff000 : 0x7f7f8000;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(from[i]) & f32_magnitude_mask;
    if ((to[i] & 0x7fffU) == largest && magnitude >= too_large) ++to[i];
  }
}

const float* read_values(const const_tensor_view& view, std::int64_t first, std::int64_t length,
                         float* buffer) noexcept {
  if (view.type == dtype::f32) return read_run(view, first, length, buffer);
  alignas(run_alignment) std::uint16_t copy[run_elements];
  widen_exactly(view.type, read_run(view, first, length, copy), length, buffer);
  return buffer;
}

void write_values(const tensor_view& view, std::int64_t first, std::int64_t length, const float* values,
                  rounding how) noexcept {
  if (view.type == dtype::f32) return write_run(view, first, length, values);
  alignas(run_alignment) std::uint16_t copy[run_elements];
  std::uint16_t* target = write_target(view, first, copy);
  narrow_run(view.type, how, values, length, target);
  write_run(view, first, length, target);
}

}  // namespace stash::encoders
