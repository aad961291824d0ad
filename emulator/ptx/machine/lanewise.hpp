// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Instructions that do the same in every lane, made of functions of one lane: their types say how wide the
/// registers are.

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/machine/warp.hpp"

namespace stash::ptx {

/// An instruction as the decoder needs it: what does it, and the bytes of its operands' registers, results
/// first; 0 is a predicate.
struct form {
  handler run = nullptr;
  std::vector<std::uint8_t> widths{};
  std::int64_t immediate = 0;  ///< of the instruction
};

/// Opcode and modifiers: {"add", "rn", "f32"}.
using opcode_words = std::vector<std::string_view>;

/// Integers of all sizes, and bits.
form integer_form(const opcode_words& opcode);
/// f32, and pairs of f16 and bf16.
form float_form(const opcode_words& opcode);
/// setp, set and selp.
form comparison_form(const opcode_words& opcode);
form conversion_form(const opcode_words& opcode);
/// Words cut and put together: prmt, lop3, shf, bfi, popc and their kin.
form bits_form(const opcode_words& opcode);

template <class T>
T value_at(const std::byte* values, unsigned lane) noexcept {
  T value;
  std::memcpy(&value, values + lane * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void put_at(std::byte* values, unsigned lane, T value) noexcept {
  std::memcpy(values + lane * sizeof(T), &value, sizeof(T));
}

/// Calls work(lane) for the lanes given.
template <class Work>
void each_lane(std::uint32_t lanes, const Work& work) {
  if (lanes == all_lanes) {
    for (unsigned lane = 0; lane < warp_lanes; ++lane)
      work(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1)
      work(static_cast<unsigned>(std::countr_zero(lanes)));
  }
}

namespace detail {

template <auto F, class D, class... S, std::size_t... I>
void lanewise(warp& w, const instruction& i, std::uint32_t lanes, std::index_sequence<I...> /*indices*/) {
  std::byte* to = w.at<std::byte>(i.operands[0]);
  const std::array<const std::byte*, sizeof...(S)> from{w.at<std::byte>(i.operands[I + 1])...};
  each_lane(lanes, [&](unsigned lane) { put_at<D>(to, lane, F(value_at<S>(from[I], lane)...)); });
}
template <auto F, class D, class... S>
void run_lanewise(warp& w, const instruction& i, std::uint32_t lanes) {
  lanewise<F, D, S...>(w, i, lanes, std::index_sequence_for<S...>{});
}
template <auto F, class D, class... S>
form lanewise_form(D (* /*function*/)(S...)) {
  return {&run_lanewise<F, D, S...>, {sizeof(D), sizeof(S)...}};
}

template <auto F, class A, class B>
void run_comparison(warp& w, const instruction& i, std::uint32_t lanes) {
  const std::byte* a = w.at<std::byte>(i.operands[1]);
  const std::byte* b = w.at<std::byte>(i.operands[2]);
  std::uint32_t holds = 0;
  for (unsigned lane = 0; lane < warp_lanes; ++lane)
    holds |= (F(value_at<A>(a, lane), value_at<B>(b, lane)) ? 1U : 0U) << lane;
  std::uint32_t& to = *w.at<std::uint32_t>(i.operands[0]);
  to = (to & ~lanes) | (holds & lanes);
}
template <auto F, class A, class B>
form comparison_form(bool (* /*function*/)(A, B)) {
  return {&run_comparison<F, A, B>, {0, sizeof(A), sizeof(B)}};
}

}  // namespace detail

/// Of a function without state: D f(S...), or bool f(A, B) whose result is a predicate.
template <auto F>
form form_of() {
  return detail::lanewise_form<F>(+F);
}
template <auto F>
form predicate_form_of() {
  return detail::comparison_form<F>(+F);
}

}  // namespace stash::ptx
