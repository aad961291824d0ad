// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From exceptions to numbers: what every function of the C API runs inside.

#include <cstdint>
#include <span>
#include <string_view>

#include "stash/error.hpp"

namespace stash::c_api {

/// What an argument of a C++ function is called in C; the same where nothing is said.
struct renamed {
  std::string_view from, to{};
};

/// The C names of a function's arguments, where C++ has others. An argument that is not listed keeps its
/// name, but if there is an `owner`: then it is the name of a tensor, which the owner's handle is of.
struct argument_names {
  std::span<const renamed> known{};
  std::string_view owner{};
};

/// Inside a catch block: notes the text of the exception for this thread, and gives its number. The text
/// begins with the C function's name and its argument. Allocates nothing.
std::int32_t note_exception(const char* function, const argument_names& names) noexcept;

/// Runs body(function); STASH_OK, or the number of what it threw.
template <class Body>
std::int32_t guard(const char* function, const argument_names& names, const Body& body) noexcept {
  try {
    body(std::string_view(function));
    return static_cast<std::int32_t>(errc::ok);
  } catch (...) {
    return note_exception(function, names);
  }
}

template <class Body>
std::int32_t guard(const char* function, const Body& body) noexcept {
  return guard(function, argument_names{}, body);
}

}  // namespace stash::c_api
