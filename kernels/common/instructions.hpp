// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Instructions that convert values, said twice: for a device, and in C++ for the emulator. They round to
/// nearest, ties to even, and know denormals. Of NaN they forget sign and payload, so the C++ does too:
/// whoever uses them has to add the sign, and tests show where it is missing.

#include <cmath>
#include <cstdint>

#include "common/simt.hpp"
#include "encoders/format/convert.hpp"

namespace stash::kernels {

/// Whether there are instructions for 8-bit formats.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
inline constexpr bool has_fp8_instructions = false;
#else
inline constexpr bool has_fp8_instructions = true;
#endif

#if defined(__CUDACC__)

/// A number, or the nearest one that has no larger magnitude than `largest`.
STASH_DEVICE float clamped(float number, float largest) {
  return fminf(fmaxf(number, -largest), largest);
}
STASH_DEVICE float half_to_float(std::uint16_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
/// Two at once.
STASH_DEVICE void halves_to_floats(std::uint32_t halves, float* values) {
  asm("{\n\t"
      ".reg .b16 lower, upper;\n\t"
      "mov.b32 {lower, upper}, %2;\n\t"
      "cvt.f32.f16 %0, lower;\n\t"
      "cvt.f32.f16 %1, upper;\n\t"
      "}"
      : "=f"(values[0]), "=f"(values[1])
      : "r"(halves));
}
/// Infinity beyond the largest number.
STASH_DEVICE std::uint16_t float_to_half(float value) {
  std::uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
/// The same for bf16.
STASH_DEVICE std::uint16_t float_to_bfloat(float value) {
#if __CUDA_ARCH__ >= 800
  std::uint16_t half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
#else
  const std::uint32_t bits = __float_as_uint(value);
  return value != value ? std::uint16_t{0x7fff}
                        : static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
#endif
}

/// Two at once, the first in the low half.
STASH_DEVICE std::uint32_t floats_to_halves(float first, float second) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t halves;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
  return halves;
#else
  return float_to_half(first) | std::uint32_t{float_to_half(second)} << 16;
#endif
}
STASH_DEVICE std::uint32_t floats_to_bfloats(float first, float second) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t halves;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
  return halves;
#else
  return float_to_bfloat(first) | std::uint32_t{float_to_bfloat(second)} << 16;
#endif
}

/// Bytes of {a, b}, a's lowest being number 0: one for each hexadecimal digit of `which`, the lowest first.
STASH_DEVICE std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t which) {
  return __byte_perm(a, b, which);
}
/// The same where it is known that no digit is above 7, which __byte_perm() sees to.
STASH_DEVICE std::uint32_t pick_bytes_at(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  std::uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(a), "r"(b), "r"(selectors));
  return picked;
}

/// The same with digits above 7: all bits of the byte 8 below are its highest one.
STASH_DEVICE std::uint32_t pick_bytes_or_signs(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  return pick_bytes_at(a, b, selectors);
}

/// Four bytes, each the highest bit of one of the word in all its bits: Digits, the first one the lowest, are
/// 8 plus the numbers of those.
template <unsigned Digits>
STASH_DEVICE std::uint32_t signs_of_bytes(std::uint32_t word) {
  std::uint32_t masks;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(masks) : "r"(word), "n"(Digits));
  return masks;
}
/// The highest bit of each half, in all its bits.
STASH_DEVICE std::uint32_t sign_masks(std::uint32_t halves) {
  return signs_of_bytes<0xbb99>(halves);
}
/// The same of each byte.
STASH_DEVICE std::uint32_t sign_masks_of_bytes(std::uint32_t bytes) {
  return signs_of_bytes<0xba98>(bytes);
}
/// The same of the two lower bytes, or of the two upper ones, in the positions of halves.
STASH_DEVICE std::uint32_t sign_masks_of_lower(std::uint32_t bytes) {
  return signs_of_bytes<0x9988>(bytes);
}
STASH_DEVICE std::uint32_t sign_masks_of_upper(std::uint32_t bytes) {
  return signs_of_bytes<0xbbaa>(bytes);
}
/// Bits of a where those of the mask are set, else of b.
STASH_DEVICE std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  std::uint32_t selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}
/// Of each half of two words the smaller, without signs, and the larger.
STASH_DEVICE std::uint32_t smaller_halves(std::uint32_t a, std::uint32_t b) {
  return __vminu2(a, b);
}
STASH_DEVICE std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
  return __vmaxu2(a, b);
}
/// All bits of the halves that are not zero as numbers, of f16 and bf16 alike.
STASH_DEVICE std::uint32_t nonzero_masks(std::uint32_t halves) {
  std::uint32_t masks;
  asm("set.neu.u32.f16x2 %0, %1, %2;" : "=r"(masks) : "r"(halves), "r"(0));
  return masks;
}
/// All bits of the halves of `a` that are above those of `b`, as numbers of f16: of bf16 as well, as long as
/// no magnitude is above that of f16's infinity.
STASH_DEVICE std::uint32_t greater_masks(std::uint32_t a, std::uint32_t b) {
  std::uint32_t masks;
  asm("set.gt.u32.f16x2 %0, %1, %2;" : "=r"(masks) : "r"(a), "r"(b));
  return masks;
}
/// All bits if `a` is above `b`, as f32.
STASH_DEVICE std::uint32_t greater_mask(std::uint32_t a, std::uint32_t b) {
  std::uint32_t mask;
  asm("set.gt.u32.f32 %0, %1, %2;" : "=r"(mask) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b)));
  return mask;
}
/// `noted`, whose halves become NaN of f16 where those of `halves` are, and nowhere else: sums of squares.
STASH_DEVICE std::uint32_t note_nan(std::uint32_t noted, std::uint32_t halves) {
  std::uint32_t sums;
  asm("fma.rn.f16x2 %0, %1, %1, %2;" : "=r"(sums) : "r"(halves), "r"(noted));
  return sums;
}
/// All bits of the halves of `a` that are those of `b`, as numbers of f16.
STASH_DEVICE std::uint32_t equal_masks(std::uint32_t a, std::uint32_t b) {
  std::uint32_t masks;
  asm("set.eq.u32.f16x2 %0, %1, %2;" : "=r"(masks) : "r"(a), "r"(b));
  return masks;
}
/// Products of f16, two at once.
STASH_DEVICE std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t products;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(products) : "r"(a), "r"(b));
  return products;
}
/// The same of bf16.
STASH_DEVICE std::uint32_t multiply_bfloats(std::uint32_t a, std::uint32_t b) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t products;
  // Adding -0 changes nothing.
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(products) : "r"(a), "r"(b), "r"(0x80008000));
  return products;
#else
  return floats_to_bfloats(__uint_as_float(a << 16) * __uint_as_float(b << 16),
                           __uint_as_float(a & 0xffff0000U) * __uint_as_float(b & 0xffff0000U));
#endif
}
/// Sums of f16, two at once. Rounded to f32 before, they would be the same.
STASH_DEVICE std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sums;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  return sums;
}
/// The same of bf16.
STASH_DEVICE std::uint32_t add_bfloats(std::uint32_t a, std::uint32_t b) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(0x3f803f80), "r"(b));
  return sums;
#else
  const auto upper = [](std::uint32_t word) { return __uint_as_float(word & 0xffff0000U); };
  return floats_to_bfloats(upper(a << 16) + upper(b << 16), upper(a) + upper(b));
#endif
}
/// Products of f16 and sums with them, two at once, rounded once.
STASH_DEVICE std::uint32_t multiply_add_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sums;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}
/// The same of bf16.
STASH_DEVICE std::uint32_t multiply_add_bfloats(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
#else
  // Rounded to odd: the last bit says whether there was more after it.
  const auto sum = [&](unsigned shift) {
    const auto number = [shift](std::uint32_t word) { return __uint_as_float(word << shift & 0xffff0000U); };
    const float x = number(a), y = number(b), z = number(c);
    const bool more = __fmaf_rd(x, y, z) != __fmaf_ru(x, y, z);
    return __uint_as_float(__float_as_uint(__fmaf_rz(x, y, z)) | (more ? 1U : 0U));
  };
  return floats_to_bfloats(sum(16), sum(0));
#endif
}
/// An address in shared memory after another one, by as many bytes as the products of the four bytes of two
/// words add up to.
template <class T>
STASH_DEVICE const T* offset_by(const T* address, std::uint32_t a, std::uint32_t b) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
  return static_cast<const T*>(__cvta_shared_to_generic(__dp4a(a, b, from)));
}

/// The same value, of which the compiler does not know it: what is made of it is made anew, and what was made
/// of it before is not held for that.
STASH_DEVICE std::uint32_t anew(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}
/// The same of an address in global memory.
template <class T>
STASH_DEVICE T* anew(T* from) {
  std::size_t address = __cvta_generic_to_global(from);
  asm volatile("" : "+l"(address));
  return static_cast<T*>(__cvta_global_to_generic(address));
}

/// A product of all its bits. Left to itself, the compiler holds a factor as two words through a loop.
STASH_DEVICE std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
  std::uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
}

/// Adds a value to a sum if two words are the same. A choice between the value and zero would cost one
/// instruction more.
STASH_DEVICE void add_if_same(float& sum, float value, std::uint32_t a, std::uint32_t b) {
  asm("{\n\t"
      ".reg .pred same;\n\t"
      "setp.eq.u32 same, %2, %3;\n\t"
      "@same add.rn.f32 %0, %0, %1;\n\t"
      "}"
      : "+f"(sum)
      : "f"(value), "r"(a), "r"(b));
}
/// The same if `other` is zero.
STASH_DEVICE void add_unless(float& sum, float value, std::uint32_t other) {
  add_if_same(sum, value, other, 0);
}
/// Adds values to two sums if the lower, or the upper, halves of two words are the same as numbers of f16.
STASH_DEVICE void add_if_equal(float& lower, float& upper, float to_lower, float to_upper, std::uint32_t a,
                               std::uint32_t b) {
  asm("{\n\t"
      ".reg .pred first, second;\n\t"
      "setp.eq.f16x2 first|second, %4, %5;\n\t"
      "@first add.rn.f32 %0, %0, %2;\n\t"
      "@second add.rn.f32 %1, %1, %3;\n\t"
      "}"
      : "+f"(lower), "+f"(upper)
      : "f"(to_lower), "f"(to_upper), "r"(a), "r"(b));
}

/// An address in shared memory where values are appended.
template <class T>
struct shared_cursor {
  std::uint32_t at;

  STASH_DEVICE explicit shared_cursor(T* to) : at(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))) {}
};
/// Appends a value if `there` is not zero. A branch would cost a copy of the address for every value.
template <class T>
STASH_DEVICE void append(shared_cursor<T>& to, std::uint32_t value, std::uint32_t there) {
  if constexpr (sizeof(T) == 4) {
    asm volatile(
        "{\n\t"
        ".reg .pred there;\n\t"
        "setp.ne.u32 there, %2, 0;\n\t"
        "@there st.shared.u32 [%0], %1;\n\t"
        "@there add.u32 %0, %0, 4;\n\t"
        "}"
        : "+r"(to.at)
        : "r"(value), "r"(there)
        : "memory");
  } else {
    static_assert(sizeof(T) == 2);
    asm volatile(
        "{\n\t"
        ".reg .pred there;\n\t"
        "setp.ne.u32 there, %2, 0;\n\t"
        "@there st.shared.u16 [%0], %1;\n\t"
        "@there add.u32 %0, %0, 2;\n\t"
        "}"
        : "+r"(to.at)
        : "r"(value), "r"(there)
        : "memory");
  }
}
/// The same, and a byte elsewhere.
template <class T>
STASH_DEVICE void append(shared_cursor<T>& to, std::uint32_t value, shared_cursor<std::uint8_t>& bytes,
                         std::uint32_t byte, std::uint32_t there) {
  if constexpr (sizeof(T) == 4) {
    asm volatile(
        "{\n\t"
        ".reg .pred there;\n\t"
        "setp.ne.u32 there, %4, 0;\n\t"
        "@there st.shared.u32 [%0], %2;\n\t"
        "@there add.u32 %0, %0, 4;\n\t"
        "@there st.shared.u8 [%1], %3;\n\t"
        "@there add.u32 %1, %1, 1;\n\t"
        "}"
        : "+r"(to.at), "+r"(bytes.at)
        : "r"(value), "r"(byte), "r"(there)
        : "memory");
  } else {
    static_assert(sizeof(T) == 2);
    asm volatile(
        "{\n\t"
        ".reg .pred there;\n\t"
        "setp.ne.u32 there, %4, 0;\n\t"
        "@there st.shared.u16 [%0], %2;\n\t"
        "@there add.u32 %0, %0, 2;\n\t"
        "@there st.shared.u8 [%1], %3;\n\t"
        "@there add.u32 %1, %1, 1;\n\t"
        "}"
        : "+r"(to.at), "+r"(bytes.at)
        : "r"(value), "r"(byte), "r"(there)
        : "memory");
  }
}

/// Stores four adjacent values in shared memory, if a number is below a limit, but for those whose word in
/// `selected` is zero. Branches would cost more than the stores.
STASH_DEVICE void store_selected(std::uint32_t* to, const std::uint32_t (&values)[4],
                                 const std::uint32_t (&selected)[4], std::uint32_t number,
                                 std::uint32_t limit) {
  asm volatile(
      "{\n\t"
      ".reg .pred any, there;\n\t"
      "setp.lt.u32 any, %9, %10;\n\t"
      "setp.ne.and.u32 there, %5, 0, any;\n\t"
      "@there st.shared.u32 [%0], %1;\n\t"
      "setp.ne.and.u32 there, %6, 0, any;\n\t"
      "@there st.shared.u32 [%0+4], %2;\n\t"
      "setp.ne.and.u32 there, %7, 0, any;\n\t"
      "@there st.shared.u32 [%0+8], %3;\n\t"
      "setp.ne.and.u32 there, %8, 0, any;\n\t"
      "@there st.shared.u32 [%0+12], %4;\n\t"
      "}" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3]), "r"(selected[0]), "r"(selected[1]),
      "r"(selected[2]), "r"(selected[3]), "r"(number), "r"(limit)
      : "memory");
}
/// The same of 16 bits, two to a word.
STASH_DEVICE void store_selected(std::uint16_t* to, const std::uint32_t (&values)[2],
                                 const std::uint32_t (&selected)[4], std::uint32_t number,
                                 std::uint32_t limit) {
  asm volatile(
      "{\n\t"
      ".reg .pred any, there;\n\t"
      ".reg .b16 lower, upper;\n\t"
      "setp.lt.u32 any, %7, %8;\n\t"
      "mov.b32 {lower, upper}, %1;\n\t"
      "setp.ne.and.u32 there, %3, 0, any;\n\t"
      "@there st.shared.u16 [%0], lower;\n\t"
      "setp.ne.and.u32 there, %4, 0, any;\n\t"
      "@there st.shared.u16 [%0+2], upper;\n\t"
      "mov.b32 {lower, upper}, %2;\n\t"
      "setp.ne.and.u32 there, %5, 0, any;\n\t"
      "@there st.shared.u16 [%0+4], lower;\n\t"
      "setp.ne.and.u32 there, %6, 0, any;\n\t"
      "@there st.shared.u16 [%0+6], upper;\n\t"
      "}" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
      "r"(values[0]), "r"(values[1]), "r"(selected[0]), "r"(selected[1]), "r"(selected[2]), "r"(selected[3]),
      "r"(number), "r"(limit)
      : "memory");
}

#if __CUDA_ARCH__ >= 890

/// Two f16, the first in the low half, as 8-bit codes; beyond the largest number that one.
STASH_DEVICE std::uint32_t halves_to_fp8(std::uint32_t halves, bool e5m2) {
  std::uint16_t codes;
  if (e5m2) {
    asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(codes) : "r"(halves));
  } else {
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(halves));
  }
  return codes;
}
STASH_DEVICE std::uint32_t floats_to_fp8(float first, float second, bool e5m2) {
  std::uint16_t codes;
  if (e5m2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  }
  return codes;
}
/// Four codes as two words of f16, exact.
STASH_DEVICE void fp8_to_halves(std::uint32_t codes, bool e5m2, std::uint32_t* halves) {
  if (e5m2) {
    asm("{\n\t"
        ".reg .b16 lower, upper;\n\t"
        "mov.b32 {lower, upper}, %2;\n\t"
        "cvt.rn.f16x2.e5m2x2 %0, lower;\n\t"
        "cvt.rn.f16x2.e5m2x2 %1, upper;\n\t"
        "}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(codes));
  } else {
    asm("{\n\t"
        ".reg .b16 lower, upper;\n\t"
        "mov.b32 {lower, upper}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, lower;\n\t"
        "cvt.rn.f16x2.e4m3x2 %1, upper;\n\t"
        "}"
        : "=r"(halves[0]), "=r"(halves[1])
        : "r"(codes));
  }
}

#else

// Never called: has_fp8_instructions is false.
STASH_DEVICE std::uint32_t halves_to_fp8(std::uint32_t, bool) {
  return 0;
}
STASH_DEVICE std::uint32_t floats_to_fp8(float, float, bool) {
  return 0;
}
STASH_DEVICE void fp8_to_halves(std::uint32_t, bool, std::uint32_t*) {}

#endif

#else

/// A number, or the nearest one that has no larger magnitude than `largest`.
STASH_DEVICE float clamped(float number, float largest) {
  return std::fmin(std::fmax(number, -largest), largest);
}
STASH_DEVICE float half_to_float(std::uint16_t half) {
  return (half & 0x7fff) > 0x7c00 ? as_float(0x7fffffffU) : encoders::widen<encoders::fp16_format>(half);
}
/// Two at once.
STASH_DEVICE void halves_to_floats(std::uint32_t halves, float* values) {
  values[0] = half_to_float(static_cast<std::uint16_t>(halves));
  values[1] = half_to_float(static_cast<std::uint16_t>(halves >> 16));
}
/// Infinity beyond the largest number.
STASH_DEVICE std::uint16_t float_to_half(float value) {
  if (value != value) return 0x7fff;
  const std::uint16_t code = encoders::narrow<encoders::fp16_format, underflow_rule::to_zero>(value);
  const bool beyond = !(std::fabs(value) < 65520.0F);
  return beyond ? static_cast<std::uint16_t>((code & 0x8000) | 0x7c00) : code;
}
/// The same for bf16.
STASH_DEVICE std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = as_bits(value);
  return value != value ? std::uint16_t{0x7fff}
                        : static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
}

/// Two at once, the first in the low half.
STASH_DEVICE std::uint32_t floats_to_halves(float first, float second) {
  return float_to_half(first) | std::uint32_t{float_to_half(second)} << 16;
}
STASH_DEVICE std::uint32_t floats_to_bfloats(float first, float second) {
  return float_to_bfloat(first) | std::uint32_t{float_to_bfloat(second)} << 16;
}

/// Bytes of {a, b}, a's lowest being number 0: one for each hexadecimal digit of `which`, the lowest first.
STASH_DEVICE std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t which) {
  const std::uint64_t all = a | std::uint64_t{b} << 32;
  std::uint32_t picked = 0;
  for (unsigned i = 0; i < 4; ++i)
    picked |= static_cast<std::uint32_t>(all >> (8 * (which >> (4 * i) & 7)) & 0xff) << (8 * i);
  return picked;
}
/// The same where it is known that no digit is above 7.
STASH_DEVICE std::uint32_t pick_bytes_at(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  return pick_bytes(a, b, selectors);
}
/// The same with digits above 7: all bits of the byte 8 below are its highest one.
STASH_DEVICE std::uint32_t pick_bytes_or_signs(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  std::uint32_t picked = pick_bytes(a, b, selectors);
  for (unsigned i = 0; i < 4; ++i) {
    if ((selectors >> (4 * i) & 8) == 0) continue;
    const std::uint32_t sign = picked >> (8 * i + 7) & 1, byte = 0xffU << (8 * i);
    picked = sign != 0 ? picked | byte : picked & ~byte;
  }
  return picked;
}

/// Four bytes, each the highest bit of one of the word in all its bits: Digits, the first one the lowest, are
/// 8 plus the numbers of those.
template <unsigned Digits>
STASH_DEVICE std::uint32_t signs_of_bytes(std::uint32_t word) {
  return pick_bytes((word >> 7 & 0x01010101U) * 0xffU, 0, Digits & 0x3333U);
}
/// The highest bit of each half, in all its bits.
STASH_DEVICE std::uint32_t sign_masks(std::uint32_t halves) {
  return (halves >> 15 & 0x00010001U) * 0xffffU;
}
/// The same of each byte.
STASH_DEVICE std::uint32_t sign_masks_of_bytes(std::uint32_t bytes) {
  return (bytes >> 7 & 0x01010101U) * 0xffU;
}
/// The same of the two lower bytes, or of the two upper ones, in the positions of halves.
STASH_DEVICE std::uint32_t sign_masks_of_lower(std::uint32_t bytes) {
  return pick_bytes(sign_masks_of_bytes(bytes), 0, 0x1100);
}
STASH_DEVICE std::uint32_t sign_masks_of_upper(std::uint32_t bytes) {
  return pick_bytes(sign_masks_of_bytes(bytes), 0, 0x3322);
}
/// Bits of a where those of the mask are set, else of b.
STASH_DEVICE std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return (a & mask) | (b & ~mask);
}
/// Of each half of two words the smaller, without signs, and the larger.
STASH_DEVICE std::uint32_t smaller_halves(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t low = (a & 0xffff) < (b & 0xffff) ? a : b, high = a >> 16 < b >> 16 ? a : b;
  return (low & 0xffff) | (high & 0xffff0000U);
}
STASH_DEVICE std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
  return ~smaller_halves(~a, ~b);
}
/// All bits of the halves that are not zero as numbers, of f16 and bf16 alike.
STASH_DEVICE std::uint32_t nonzero_masks(std::uint32_t halves) {
  return sign_masks((halves & 0x7fff7fffU) + 0x7fff7fffU);
}
/// All bits of the halves of `a` that are above those of `b`, as numbers of f16: of bf16 as well, as long as
/// no magnitude is above that of f16's infinity.
STASH_DEVICE std::uint32_t greater_masks(std::uint32_t a, std::uint32_t b) {
  const auto half = [](std::uint32_t word) { return half_to_float(static_cast<std::uint16_t>(word)); };
  return (half(a) > half(b) ? 0xffffU : 0) | (half(a >> 16) > half(b >> 16) ? 0xffff0000U : 0);
}
/// All bits if `a` is above `b`, as f32.
STASH_DEVICE std::uint32_t greater_mask(std::uint32_t a, std::uint32_t b) {
  return as_float(a) > as_float(b) ? 0xffffffffU : 0;
}
/// `noted`, whose halves become NaN of f16 where those of `halves` are, and nowhere else.
STASH_DEVICE std::uint32_t note_nan(std::uint32_t noted, std::uint32_t halves) {
  const bool low = (halves & 0x7fff) > 0x7c00, high = (halves >> 16 & 0x7fff) > 0x7c00;
  return noted | (low ? 0x7fffU : 0) | (high ? 0x7fff0000U : 0);
}
/// All bits of the halves of `a` that are those of `b`, as numbers of f16.
STASH_DEVICE std::uint32_t equal_masks(std::uint32_t a, std::uint32_t b) {
  const auto half = [](std::uint32_t word) { return half_to_float(static_cast<std::uint16_t>(word)); };
  return (half(a) == half(b) ? 0xffffU : 0) | (half(a >> 16) == half(b >> 16) ? 0xffff0000U : 0);
}
/// Products of f16, two at once.
STASH_DEVICE std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  return floats_to_halves(
      half_to_float(static_cast<std::uint16_t>(a)) * half_to_float(static_cast<std::uint16_t>(b)),
      half_to_float(static_cast<std::uint16_t>(a >> 16)) *
          half_to_float(static_cast<std::uint16_t>(b >> 16)));
}
/// The same of bf16.
STASH_DEVICE std::uint32_t multiply_bfloats(std::uint32_t a, std::uint32_t b) {
  const auto upper = [](std::uint32_t word) { return as_float(word & 0xffff0000U); };
  return floats_to_bfloats(upper(a << 16) * upper(b << 16), upper(a) * upper(b));
}
/// Sums of f16, two at once. Rounded to f32 before, they are the same.
STASH_DEVICE std::uint32_t add_halves(std::uint32_t a, std::uint32_t b) {
  return floats_to_halves(
      half_to_float(static_cast<std::uint16_t>(a)) + half_to_float(static_cast<std::uint16_t>(b)),
      half_to_float(static_cast<std::uint16_t>(a >> 16)) +
          half_to_float(static_cast<std::uint16_t>(b >> 16)));
}
/// The same of bf16.
STASH_DEVICE std::uint32_t add_bfloats(std::uint32_t a, std::uint32_t b) {
  const auto upper = [](std::uint32_t word) { return as_float(word & 0xffff0000U); };
  return floats_to_bfloats(upper(a << 16) + upper(b << 16), upper(a) + upper(b));
}
/// The sum of a product and a number, rounded to odd as f32: rounding it once more to 16 bits is as rounding
/// the sum.
STASH_DEVICE float odd_sum(float a, float b, float c) {
  const double product = double{a} * b, sum = product + c;
  const auto rounded = static_cast<float>(sum);
  if (!std::isfinite(rounded)) return rounded;
  // What the sum lacks is a number too.
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (c - part);
  const double rest = (sum - rounded) + lost;
  if (rest == 0 || (as_bits(rounded) & 1) != 0) return rounded;
  return std::nextafter(rounded, rest > 0 ? HUGE_VALF : -HUGE_VALF);
}
/// Products of f16 and sums with them, two at once, rounded once.
STASH_DEVICE std::uint32_t multiply_add_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto lower = [](std::uint32_t word) { return half_to_float(static_cast<std::uint16_t>(word)); };
  return floats_to_halves(odd_sum(lower(a), lower(b), lower(c)),
                          odd_sum(lower(a >> 16), lower(b >> 16), lower(c >> 16)));
}
/// The same of bf16.
STASH_DEVICE std::uint32_t multiply_add_bfloats(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto upper = [](std::uint32_t word) { return as_float(word & 0xffff0000U); };
  return floats_to_bfloats(odd_sum(upper(a << 16), upper(b << 16), upper(c << 16)),
                           odd_sum(upper(a), upper(b), upper(c)));
}
/// An address in shared memory after another one, by as many bytes as the products of the four bytes of two
/// words add up to.
template <class T>
STASH_DEVICE const T* offset_by(const T* address, std::uint32_t a, std::uint32_t b) {
  std::uint32_t bytes = 0;
  for (unsigned bit = 0; bit < 32; bit += 8)
    bytes += (a >> bit & 0xff) * (b >> bit & 0xff);
  return reinterpret_cast<const T*>(reinterpret_cast<const std::uint8_t*>(address) + bytes);
}

/// The same value.
STASH_DEVICE std::uint32_t anew(std::uint32_t value) {
  return value;
}
template <class T>
STASH_DEVICE T* anew(T* address) {
  return address;
}

/// A product of all its bits.
STASH_DEVICE std::uint64_t wide_product(std::uint32_t a, std::uint32_t b) {
  return std::uint64_t{a} * b;
}

/// Adds a value to a sum if two words are the same.
STASH_DEVICE void add_if_same(float& sum, float value, std::uint32_t a, std::uint32_t b) {
  if (a == b) sum += value;
}
/// The same if `other` is zero.
STASH_DEVICE void add_unless(float& sum, float value, std::uint32_t other) {
  add_if_same(sum, value, other, 0);
}
/// Adds values to two sums if the lower, or the upper, halves of two words are the same as numbers of f16.
STASH_DEVICE void add_if_equal(float& lower, float& upper, float to_lower, float to_upper, std::uint32_t a,
                               std::uint32_t b) {
  const std::uint32_t same = equal_masks(a, b);
  if ((same & 0xffff) != 0) lower += to_lower;
  if ((same >> 16) != 0) upper += to_upper;
}

/// An address in shared memory where values are appended.
template <class T>
struct shared_cursor {
  T* at;

  STASH_DEVICE explicit shared_cursor(T* to) : at(to) {}
};
/// Appends a value if `there` is not zero.
template <class T>
STASH_DEVICE void append(shared_cursor<T>& to, std::uint32_t value, std::uint32_t there) {
  if (there != 0) *to.at++ = static_cast<T>(value);
}
/// The same, and a byte elsewhere.
template <class T>
STASH_DEVICE void append(shared_cursor<T>& to, std::uint32_t value, shared_cursor<std::uint8_t>& bytes,
                         std::uint32_t byte, std::uint32_t there) {
  append(to, value, there);
  append(bytes, byte, there);
}

/// Stores four adjacent values, if a number is below a limit, but for those whose word in `selected` is zero.
template <class T, unsigned Words>
STASH_DEVICE void store_selected(T* to, const std::uint32_t (&values)[Words],
                                 const std::uint32_t (&selected)[4], std::uint32_t number,
                                 std::uint32_t limit) {
  constexpr unsigned per_word = 4 / Words, bits = 32 / per_word;
  static_assert(8 * sizeof(T) == bits);
  for (unsigned i = 0; number < limit && i < 4; ++i) {
    if (selected[i] != 0) to[i] = static_cast<T>(values[i / per_word] >> (bits * (i % per_word)));
  }
}

/// Two f16, the first in the low half, as 8-bit codes; beyond the largest number that one.
STASH_DEVICE std::uint32_t floats_to_fp8(float first, float second, bool e5m2) {
  const auto code = [e5m2](float value) -> std::uint32_t {
    if (value != value) return 0x7f;
    return e5m2 ? encoders::narrow<encoders::fp8_e5m2_format, underflow_rule::to_zero>(value)
                : encoders::narrow<encoders::fp8_e4m3_format, underflow_rule::to_zero>(value);
  };
  return code(first) | code(second) << 8;
}
STASH_DEVICE std::uint32_t halves_to_fp8(std::uint32_t halves, bool e5m2) {
  return floats_to_fp8(half_to_float(static_cast<std::uint16_t>(halves)),
                       half_to_float(static_cast<std::uint16_t>(halves >> 16)), e5m2);
}
/// Four codes as two words of f16, exact.
STASH_DEVICE void fp8_to_halves(std::uint32_t codes, bool e5m2, std::uint32_t* halves) {
  const auto half = [e5m2](std::uint32_t code) -> std::uint32_t {
    const auto byte = static_cast<std::uint8_t>(code);
    return float_to_half(e5m2 ? encoders::widen<encoders::fp8_e5m2_format>(byte)
                              : encoders::widen<encoders::fp8_e4m3_format>(byte));
  };
  halves[0] = half(codes) | half(codes >> 8) << 16;
  halves[1] = half(codes >> 16) | half(codes >> 24) << 16;
}

#endif

}  // namespace stash::kernels
