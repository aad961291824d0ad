// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What public functions do besides their work.

#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace stash::encoders {

/// Inside a catch block around all that the public function does: error(out_of_memory) in place of
/// std::bad_alloc, and anything else as it is. There need not be any memory for it.
[[noreturn]] void rethrow(std::string_view function);

/// Runs body(state) with rounding to nearest, whatever the thread's mode; that is restored after it, with
/// its flags. Denormals stay as the mode has them. The body is called through a pointer, past which compilers
/// move no arithmetic.
void call_in_default_rounding(void (*body)(void* state), void* state);

/// The same in the mode of FE_DFL_ENV: denormals are numbers, too, and no exception traps.
void call_in_default_arithmetic(void (*body)(void* state), void* state);

/// What the body returns when `Call`, one of those above, runs it.
template <auto Call, class Body>
auto result_of(const Body& body) {
  using result = std::invoke_result_t<const Body&>;
  if constexpr (std::is_void_v<result>) {
    const Body* state = &body;
    Call([](void* b) { (**static_cast<const Body**>(b))(); }, &state);
  } else {
    std::optional<result> found;
    const auto keep = [&] { found.emplace(body()); };
    result_of<Call>(keep);
    return std::move(*found);
  }
}

template <class Body>
auto in_default_rounding(const Body& body) {
  return result_of<call_in_default_rounding>(body);
}

template <class Body>
auto in_default_arithmetic(const Body& body) {
  return result_of<call_in_default_arithmetic>(body);
}

}  // namespace stash::encoders
