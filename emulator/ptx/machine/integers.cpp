// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <type_traits>

#include "ptx/machine/lanewise.hpp"

namespace stash::ptx {
namespace {

__extension__ using unsigned_128 = unsigned __int128;
__extension__ using signed_128 = __int128;

/// Twice as many bits, signed or not.
template <class T>
struct wide;
template <>
struct wide<std::uint16_t> {
  using type = std::uint32_t;
};
template <>
struct wide<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct wide<std::uint32_t> {
  using type = std::uint64_t;
};
template <>
struct wide<std::int32_t> {
  using type = std::int64_t;
};

/// Arithmetic wraps: it is done without signs, in no less than 32 bits.
template <class T>
using wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
constexpr unsigned bits = 8 * sizeof(T);

template <class T>
form arithmetic(std::string_view op) {
  using U = wrapping<T>;
  if (op == "add") return form_of<[](T a, T b) { return static_cast<T>(U(a) + U(b)); }>();
  if (op == "sub") return form_of<[](T a, T b) { return static_cast<T>(U(a) - U(b)); }>();
  if (op == "mul.lo") return form_of<[](T a, T b) { return static_cast<T>(U(a) * U(b)); }>();
  if (op == "mad.lo") return form_of<[](T a, T b, T c) { return static_cast<T>(U(a) * U(b) + U(c)); }>();
  if (op == "min") return form_of<[](T a, T b) { return b < a ? b : a; }>();
  if (op == "max") return form_of<[](T a, T b) { return a < b ? b : a; }>();
  if (op == "neg") return form_of<[](T a) { return static_cast<T>(U(0) - U(a)); }>();
  if (op == "abs") return form_of<[](T a) { return a < 0 ? static_cast<T>(U(0) - U(a)) : a; }>();
  // What a device gives for a division by zero is not defined.
  if (op == "div") {
    return form_of<[](T a, T b) {
      if (b == 0) return static_cast<T>(~T(0));
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U(0) - U(a));
      return static_cast<T>(a / b);
    }>();
  }
  if (op == "rem") {
    return form_of<[](T a, T b) {
      if (b == 0) return a;
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T(0);
      return static_cast<T>(a % b);
    }>();
  }
  if (op == "shr") {
    return form_of<[](T a, std::uint32_t by) {
      if (by < bits<T>) return static_cast<T>(a >> by);
      return a < 0 ? static_cast<T>(-1) : T(0);
    }>();
  }
  if constexpr (sizeof(T) < 8) {
    using W = typename wide<T>::type;
    if (op == "mul.wide") return form_of<[](T a, T b) { return static_cast<W>(W(a) * W(b)); }>();
    if (op == "mul.hi") return form_of<[](T a, T b) { return static_cast<T>(W(a) * W(b) >> bits<T>); }>();
    if constexpr (sizeof(T) == 4) {
      using UW = std::uint64_t;
      if (op == "mad.wide")
        return form_of<[](T a, T b, W c) { return static_cast<W>(UW(W(a) * W(b)) + UW(c)); }>();
    }
  } else if (op == "mul.hi") {
    using W = std::conditional_t<std::is_signed_v<T>, signed_128, unsigned_128>;
    return form_of<[](T a, T b) { return static_cast<T>(W(a) * W(b) >> 64); }>();
  }
  return {};
}

template <class T>
form logic(std::string_view op) {
  if (op == "and") return form_of<[](T a, T b) { return static_cast<T>(a & b); }>();
  if (op == "or") return form_of<[](T a, T b) { return static_cast<T>(a | b); }>();
  if (op == "xor") return form_of<[](T a, T b) { return static_cast<T>(a ^ b); }>();
  if (op == "not") return form_of<[](T a) { return static_cast<T>(~a); }>();
  if (op == "shl") {
    return form_of<[](T a, std::uint32_t by) {
      return by < bits<T> ? static_cast<T>(wrapping<T>(a) << by) : T(0);
    }>();
  }
  return {};
}

/// Of predicates, which are words of bits.
template <auto F>
void run_predicates(warp& w, const instruction& i, std::uint32_t lanes) {
  std::uint32_t& to = *w.at<std::uint32_t>(i.operands[0]);
  const std::uint32_t a = *w.at<std::uint32_t>(i.operands[1]);
  const std::uint32_t b = i.count > 2 ? *w.at<std::uint32_t>(i.operands[2]) : 0;
  to = (to & ~lanes) | (F(a, b) & lanes);
}
using word = std::uint32_t;
form predicate_logic(std::string_view op) {
  if (op == "and") return {&run_predicates<[](word a, word b) { return a & b; }>, {0, 0, 0}};
  if (op == "or") return {&run_predicates<[](word a, word b) { return a | b; }>, {0, 0, 0}};
  if (op == "xor") return {&run_predicates<[](word a, word b) { return a ^ b; }>, {0, 0, 0}};
  if (op == "not") return {&run_predicates<[](word a, word) { return ~a; }>, {0, 0}};
  if (op == "mov") return {&run_predicates<[](word a, word) { return a; }>, {0, 0}};
  return {};
}

template <bool Larger>
word chosen_halves(word a, word b) {
  const auto choose = [](word x, word y) { return (x < y) == Larger ? y : x; };
  return choose(a & 0xffff, b & 0xffff) | choose(a >> 16, b >> 16) << 16;
}

}  // namespace

form integer_form(const opcode_words& opcode) {
  const std::string_view type = opcode.back();
  std::string op(opcode[0]);
  if (opcode.size() == 3) op.append(".").append(opcode[1]);
  if (opcode.size() > 3 || opcode.size() < 2) return {};
  if (type == "pred") return predicate_logic(op);
  if (type == "u16") return arithmetic<std::uint16_t>(op);
  if (type == "s16") return arithmetic<std::int16_t>(op);
  if (type == "u32") return arithmetic<std::uint32_t>(op);
  if (type == "s32") return arithmetic<std::int32_t>(op);
  if (type == "u64") return arithmetic<std::uint64_t>(op);
  if (type == "s64") return arithmetic<std::int64_t>(op);
  if (type == "b16") return logic<std::uint16_t>(op);
  if (type == "b32") return logic<std::uint32_t>(op);
  if (type == "b64") return logic<std::uint64_t>(op);
  if (type == "u16x2" && op == "min")
    return form_of<[](word a, word b) { return chosen_halves<false>(a, b); }>();
  if (type == "u16x2" && op == "max")
    return form_of<[](word a, word b) { return chosen_halves<true>(a, b); }>();
  return {};
}

}  // namespace stash::ptx
