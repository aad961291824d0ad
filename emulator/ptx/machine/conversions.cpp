// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "ptx/machine/lanewise.hpp"
#include "ptx/machine/numbers.hpp"

namespace stash::ptx {
namespace {

using word = std::uint32_t;
using half_word = std::uint16_t;

/// A register holds the value in its low bits, with zeros above, or signs.
template <class T>
using register_of =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, std::int16_t, half_word>, T>;

template <class To, class From>
form integers() {
  using R = register_of<To>;
  using S = std::make_unsigned_t<register_of<From>>;
  return form_of<[](S from) { return static_cast<R>(static_cast<To>(static_cast<From>(from))); }>();
}
template <class To>
form to_integer(std::string_view from) {
  if (from == "u8") return integers<To, std::uint8_t>();
  if (from == "s8") return integers<To, std::int8_t>();
  if (from == "u16") return integers<To, std::uint16_t>();
  if (from == "s16") return integers<To, std::int16_t>();
  if (from == "u32") return integers<To, std::uint32_t>();
  if (from == "s32") return integers<To, std::int32_t>();
  if (from == "u64") return integers<To, std::uint64_t>();
  if (from == "s64") return integers<To, std::int64_t>();
  return {};
}

word pair_of(word low, word high, unsigned bits) {
  return low | high << bits;
}
template <word Codes, unsigned Fraction, bool Infinite, bool Saturate>
struct narrow {
  static constexpr number_format format{Codes, Fraction, Infinite};
  /// The second operand goes into the low half.
  static word of_floats(float high, float low) {
    return pair_of(code_of(low, format, Saturate), code_of(high, format, Saturate), 1 + Codes + Fraction);
  }
  static half_word of_halves(word halves) {
    return static_cast<half_word>(pair_of(code_of(half_number(halves), format, Saturate),
                                          code_of(half_number(halves >> 16), format, Saturate), 8));
  }
  /// Exact.
  static word to_halves(half_word codes) {
    return pair_of(code_of(number_of(codes & 0xff, format), f16_format, false),
                   code_of(number_of(codes >> 8, format), f16_format, false), 16);
  }
};
using to_f16 = narrow<5, 10, true, false>;
using to_bf16 = narrow<8, 7, true, false>;
using to_e5m2 = narrow<5, 2, true, true>;
using to_e4m3 = narrow<4, 3, false, true>;

form to_float(const std::string& words) {
  if (words == "f32.f16")
    return form_of<[](half_word code) { return canonical(static_cast<float>(half_number(code))); }>();
  if (words == "rn.f16.f32")
    return form_of<[](float value) { return static_cast<half_word>(code_of(value, f16_format, false)); }>();
  if (words == "rn.bf16.f32")
    return form_of<[](float value) { return static_cast<half_word>(code_of(value, bf16_format, false)); }>();
  if (words == "rn.f16x2.f32") return form_of<[](float a, float b) { return to_f16::of_floats(a, b); }>();
  if (words == "rn.bf16x2.f32") return form_of<[](float a, float b) { return to_bf16::of_floats(a, b); }>();
  if (words == "rn.satfinite.e5m2x2.f32")
    return form_of<[](float a, float b) { return static_cast<half_word>(to_e5m2::of_floats(a, b)); }>();
  if (words == "rn.satfinite.e4m3x2.f32")
    return form_of<[](float a, float b) { return static_cast<half_word>(to_e4m3::of_floats(a, b)); }>();
  if (words == "rn.satfinite.e5m2x2.f16x2")
    return form_of<[](word halves) { return to_e5m2::of_halves(halves); }>();
  if (words == "rn.satfinite.e4m3x2.f16x2")
    return form_of<[](word halves) { return to_e4m3::of_halves(halves); }>();
  if (words == "rn.f16x2.e5m2x2") return form_of<[](half_word codes) { return to_e5m2::to_halves(codes); }>();
  if (words == "rn.f16x2.e4m3x2") return form_of<[](half_word codes) { return to_e4m3::to_halves(codes); }>();
  if (words == "rn.f32.u32") return form_of<[](word value) { return static_cast<float>(value); }>();
  if (words == "rn.f32.s32") return form_of<[](std::int32_t value) { return static_cast<float>(value); }>();
  return {};
}

}  // namespace

form conversion_form(const opcode_words& opcode) {
  if (opcode[0] != "cvt" || opcode.size() < 3) return {};
  if (opcode.size() == 3) {
    const std::string_view to = opcode[1], from = opcode[2];
    if (to == "u8") return to_integer<std::uint8_t>(from);
    if (to == "s8") return to_integer<std::int8_t>(from);
    if (to == "u16") return to_integer<std::uint16_t>(from);
    if (to == "s16") return to_integer<std::int16_t>(from);
    if (to == "u32") return to_integer<std::uint32_t>(from);
    if (to == "s32") return to_integer<std::int32_t>(from);
    if (to == "u64") return to_integer<std::uint64_t>(from);
    if (to == "s64") return to_integer<std::int64_t>(from);
  }
  std::string words;
  for (std::size_t n = 1; n < opcode.size(); ++n)
    words.append(n > 1 ? "." : "").append(opcode[n]);
  return to_float(words);
}

}  // namespace stash::ptx
