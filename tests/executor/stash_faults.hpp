// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Faults of lossy encoders, planted by rewriting encoded bytes right after they were written. Each fault is
/// one that a wrong kernel could have; the rest of the step runs as ever.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "executor/executor.hpp"
#include "stash/encoding.hpp"

namespace stash::executor::testing {

enum class stash_fault : std::uint8_t {
  none,            ///< rewrites the bytes as they should be: proves that the rewriting is right
  truncation,      ///< rounds towards zero
  scale,           ///< values 5 % too large
  dropped_values,  ///< 1 % of the values become zero
  sign_lost,       ///< casts under to_zero where keep_nonzero was asked for
};

namespace encoders {

inline std::size_t code_bytes(value_format f) {
  return f == value_format::fp16 ? 2 : 1;
}

/// The codes of a cast, one per value.
inline std::vector<std::uint16_t> narrow(const std::vector<float>& values, value_format f,
                                         underflow_rule rule) {
  const encoding cast{encoding_kind::cast, f, rule};
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(encoded_bytes_bound(cast, dtype::f32, n) + encoded_alignment);
  void* start = bytes.data();
  std::size_t space = bytes.size();
  std::align(encoded_alignment, bytes.size() - encoded_alignment, start, space);
  encode_report report;
  encode(cast, {values.data(), dtype::f32, memory_space::host, {n}, 0}, {start, space, nullptr, &report}, {},
         {});
  std::vector<std::uint16_t> codes(values.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::memcpy(&codes[i], static_cast<std::byte*>(start) + i * code_bytes(f), code_bytes(f));
  }
  return codes;
}

/// The value of a finite code.
inline double widen(std::uint32_t code, value_format f) {
  const int mantissa = f == value_format::fp16 ? 10 : 3, bias = f == value_format::fp16 ? 15 : 7;
  const int all = static_cast<int>(code), magnitude = all & (f == value_format::fp16 ? 0x7FFF : 0x7F);
  const int exponent = magnitude >> mantissa, fraction = magnitude & ((1 << mantissa) - 1);
  const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                     : std::ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
  return magnitude == all ? value : -value;
}

/// Puts codes[i] where docs/format.md places value i.
inline void rewrite(const encoding& e, const std::vector<std::uint16_t>& codes, std::span<std::byte> slot,
                    const overflow_arena* arena) {
  const std::size_t width = code_bytes(e.values), n = codes.size();
  const auto put = [&](std::byte* at, std::uint16_t code) { std::memcpy(at, &code, width); };
  if (e.kind == encoding_kind::cast) {
    for (std::size_t i = 0; i < n; ++i)
      put(slot.data() + i * width, codes[i]);
    return;
  }
  const std::size_t mask_bytes = ((n + 7) / 8 + 15) / 16 * 16;
  constexpr auto tile = static_cast<std::size_t>(tile_elements);
  for (std::size_t begin = 0; begin < n; begin += tile) {
    std::uint32_t entry = 0;
    std::memcpy(&entry, slot.data() + mask_bytes + begin / tile * 4, 4);
    std::byte* base = entry >> 30 == 0 ? slot.data() : static_cast<std::byte*>(arena->data);
    std::byte* at = base + std::size_t{entry & 0x3FFFFFFFU} * 16;
    for (std::size_t i = begin; i < std::min(n, begin + tile); ++i) {
      if ((slot[i / 8] >> (i % 8) & std::byte{1}) == std::byte{0}) continue;
      put(at, codes[i]);
      at += width;
    }
  }
}

inline std::vector<std::uint16_t> faulty_codes(stash_fault fault, const encoding& e,
                                               std::vector<float> values) {
  if (fault == stash_fault::scale) {
    for (float& v : values)
      v *= 1.05F;
  }
  if (fault == stash_fault::dropped_values) {
    // A hash of the index, so that the same values are missing in every run.
    for (std::size_t i = 0; i < values.size(); ++i) {
      if ((i * 0x9E3779B97F4A7C15U >> 40) % 100 == 0) values[i] = 0.0F;
    }
  }
  std::vector<std::uint16_t> codes =
      narrow(values, e.values, fault == stash_fault::sign_lost ? underflow_rule::to_zero : e.underflow);
  if (fault == stash_fault::truncation) {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      // One code less is the next value towards zero; the smallest one stays: losing it is another fault.
      const double magnitude = std::abs(widen(codes[i], e.values));
      if (magnitude > std::abs(static_cast<double>(values[i])) && widen(codes[i] - 1U, e.values) != 0)
        --codes[i];
    }
  }
  return codes;
}

}  // namespace encoders

/// Plants `fault` in every lossy stash that `e` encodes from now on.
inline void plant(executor& e, stash_fault fault) {
  e.after_step = [&e, fault](std::size_t index) {
    const planner::plan& p = e.current_plan();
    const planner::step& st = p.steps[index];
    if (st.kind != planner::step_kind::encode) return;
    const encoding& stored = p.choices[st.storage].stored;
    if (stored.values == value_format::source || stored.kind == encoding_kind::sign_mask) return;
    const auto* dense = reinterpret_cast<const float*>(e.buffer_bytes(st.inputs[0]).data());
    const std::int64_t n = p.network.at(st.storage).elements(p.network.batch);
    overflow_arena arena;
    for (const planner::buffer_id b : p.buffers.ids()) {
      if (p.buffers[b].form != planner::buffer_form::overflow) continue;
      arena.data = e.buffer_bytes(planner::buffer_id(b)).data();
    }
    encoders::rewrite(stored, encoders::faulty_codes(fault, stored, {dense, dense + n}),
                      e.buffer_bytes(st.outputs[0]), &arena);
  };
}

}  // namespace stash::executor::testing
