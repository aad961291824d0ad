// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/lanewise.hpp"
#include "ptx/machine/numbers.hpp"

namespace stash::ptx {
namespace {

using word = std::uint32_t;

/// Of two numbers the smaller, -0 being below 0; of a number and a NaN the number.
float smaller(float a, float b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float larger(float a, float b) {
  return -smaller(-a, -b);
}

/// Towards which side a result is rounded that lies between two numbers.
enum class towards : std::uint8_t { lower, upper, zero };

/// a * b + c, rounded once. The product is exact in f64, and so is what its sum with c lacks.
template <towards Side>
float directed_fma(float a, float b, float c) {
  const double product = double{a} * b, sum = product + c;
  const auto nearest = static_cast<float>(sum);
  if (!std::isfinite(sum)) return canonical(nearest);
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (c - part);
  // Beyond all numbers the nearest one is infinity, and the rest as well.
  const double rest = (sum - nearest) + lost;
  const bool to_lower = Side == towards::lower || (Side == towards::zero && nearest > 0);
  if (rest < 0 && to_lower) return std::nextafter(nearest, -HUGE_VALF);
  const bool to_upper = Side == towards::upper || (Side == towards::zero && nearest < 0);
  if (rest > 0 && to_upper) return std::nextafter(nearest, HUGE_VALF);
  // Of opposite numbers, zeros among them.
  if (Side == towards::lower && sum == 0 && (std::signbit(product) || std::signbit(c))) return -0.0F;
  return nearest;
}

/// A function of numbers in both halves.
template <auto F>
word halves(word a, word b, word c) {
  return F(a & 0xffff, b & 0xffff, c & 0xffff) | F(a >> 16, b >> 16, c >> 16) << 16;
}
word fused_half(word a, word b, word c) {
  return fused_code(half_number(a), half_number(b), half_number(c), f16_format);
}
word fused_bfloat(word a, word b, word c) {
  return fused_code(bfloat_number(a), bfloat_number(b), bfloat_number(c), bf16_format);
}
/// Sums and products of f16 are exact in f64, so that they are rounded once.
word half_sum(word a, word b, word /*none*/) {
  return code_of(half_number(a) + half_number(b), f16_format, false);
}
word half_product(word a, word b, word /*none*/) {
  return code_of(half_number(a) * half_number(b), f16_format, false);
}

form f32_form(std::string_view op) {
  if (op == "add") return form_of<[](float a, float b) { return canonical(a + b); }>();
  if (op == "sub") return form_of<[](float a, float b) { return canonical(a - b); }>();
  if (op == "mul") return form_of<[](float a, float b) { return canonical(a * b); }>();
  if (op == "fma") return form_of<[](float a, float b, float c) { return canonical(std::fma(a, b, c)); }>();
  if (op == "div") return form_of<[](float a, float b) { return canonical(a / b); }>();
  if (op == "min") return form_of<[](float a, float b) { return smaller(a, b); }>();
  if (op == "max") return form_of<[](float a, float b) { return canonical(larger(a, b)); }>();
  if (op == "abs") return form_of<[](word a) { return a & 0x7fffffffU; }>();
  if (op == "neg") return form_of<[](word a) { return a ^ 0x80000000U; }>();
  return {};
}

}  // namespace

form float_form(const opcode_words& opcode) {
  const std::string_view op = opcode[0], type = opcode.back();
  if (op == "fma" && opcode.size() == 3 && type == "f32") {
    if (opcode[1] == "rm")
      return form_of<[](float a, float b, float c) { return directed_fma<towards::lower>(a, b, c); }>();
    if (opcode[1] == "rp")
      return form_of<[](float a, float b, float c) { return directed_fma<towards::upper>(a, b, c); }>();
    if (opcode[1] == "rz")
      return form_of<[](float a, float b, float c) { return directed_fma<towards::zero>(a, b, c); }>();
  }
  const bool rounded = op == "add" || op == "sub" || op == "mul" || op == "fma" || op == "div";
  // To nearest where there is a choice, which is also the default of all but fma and div.
  if (rounded ? opcode.size() != 3 || opcode[1] != "rn" : opcode.size() != 2) return {};
  if (type == "f32") return f32_form(op);
  if (type == "f16x2" && op == "fma")
    return form_of<[](word a, word b, word c) { return halves<fused_half>(a, b, c); }>();
  if (type == "bf16x2" && op == "fma")
    return form_of<[](word a, word b, word c) { return halves<fused_bfloat>(a, b, c); }>();
  if (type == "f16x2" && op == "add")
    return form_of<[](word a, word b) { return halves<half_sum>(a, b, 0); }>();
  if (type == "f16x2" && op == "mul")
    return form_of<[](word a, word b) { return halves<half_product>(a, b, 0); }>();
  return {};
}

}  // namespace stash::ptx
