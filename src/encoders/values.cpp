#include "values.hpp"

#include "convert.hpp"
#include "run_loops.hpp"

namespace stash::detail {
namespace {

void narrow_run(dtype type, rounding how, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  if (how == rounding::exact) {
    narrow_exactly(type, from, count, to);
  } else {
    round_values(type, from, count, to);
  }
}

}  // namespace

void widen_exactly(dtype type, const std::uint16_t* from, std::int64_t count, float* to) noexcept {
  loops().widen(reinterpret_cast<const std::uint8_t*>(from), count,
                type == dtype::f16 ? value_format::fp16 : value_format::bf16, to);
}

void narrow_exactly(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  loops().narrow_exactly(from, count, type, to);
}

void round_values(dtype type, const float* from, std::int64_t count, std::uint16_t* to) noexcept {
  loops().narrow(from, count, type == dtype::f16 ? value_format::fp16 : value_format::bf16,
                 underflow_rule::to_zero, reinterpret_cast<std::uint8_t*>(to));
}

const float* read_values(const const_tensor_view& view, std::int64_t first, std::int64_t length,
                         float* buffer) noexcept {
  if (view.type == dtype::f32) return read_run(view, first, length, buffer);
  std::uint16_t copy[run_elements];
  widen_exactly(view.type, read_run(view, first, length, copy), length, buffer);
  return buffer;
}

void write_values(const tensor_view& view, std::int64_t first, std::int64_t length, const float* values,
                  rounding how) noexcept {
  if (view.type == dtype::f32) return write_run(view, first, length, values);
  std::uint16_t copy[run_elements];
  std::uint16_t* target = write_target(view, first, copy);
  narrow_run(view.type, how, values, length, target);
  write_run(view, first, length, target);
}

}  // namespace stash::detail
