// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From the public views to what kernels take, and from run-time types to template arguments.

#include <bit>
#include <cstdint>

#include "common/each_group.hpp"
#include "common/elements.hpp"
#include "common/launches.hpp"
#include "encoders/format/convert.hpp"
#include "stash/encoding.hpp"

namespace stash::kernels {

/// A view that the host has checked.
inline device_tensor device_tensor_of(const const_tensor_view& view) {
  device_tensor t;
  t.data = const_cast<void*>(view.data);
  t.elements = static_cast<std::uint64_t>(view.elements());
  t.inner = static_cast<std::uint64_t>(view.dims.inner());
  t.pitch = static_cast<std::uint64_t>(view.pitch());
  const std::size_t size = size_of(view.type);
  const std::size_t alignment = size == 1 ? 8 : 16;
  const bool aligned = reinterpret_cast<std::uintptr_t>(view.data) % alignment == 0;
  t.vectors = aligned && (view.dense() || (t.inner % group_elements == 0 && t.pitch * size % alignment == 0));
  return t;
}

inline element_type element_type_of(dtype type) {
  if (type == dtype::f16) return {0x7c00, 0x7fff, false, 0x477fe000, 0x7e00};
  if (type == dtype::bf16) return {0x7f80, 0x7fff, true, 0x7f7f0000, 0x7fc0};
  return {};
}

/// A number rounded to an element type.
inline std::uint32_t bits_in(dtype type, float value) {
  constexpr auto to_zero = underflow_rule::to_zero;
  if (type == dtype::f16) return encoders::narrow<encoders::fp16_format, to_zero>(value);
  if (type == dtype::bf16) return encoders::narrow<encoders::bf16_format, to_zero>(value);
  return std::bit_cast<std::uint32_t>(value);
}

/// Calls body with a zero of the bits of a floating-point type.
template <class Body>
void with_element(dtype type, const Body& body) {
  if (type == dtype::f32) return body(std::uint32_t{});
  body(std::uint16_t{});
}

/// Runs a body of each_group.hpp over `groups` groups, alone or with others.
template <class Body>
void run_groups(const char* function, const execution_context& context, const Body& body,
                std::uint64_t groups) {
  launch_one<group_kernels<Body>>(function, context, body, blocks_for<Body>(groups));
}
template <class Body>
void run_groups(launches& to, const Body& body, std::uint64_t groups) {
  to.add<group_kernels<Body>>(body, blocks_for<Body>(groups));
}

constexpr std::uint64_t groups_of(std::uint64_t elements) {
  return (elements + group_elements - 1) / group_elements;
}

}  // namespace stash::kernels
