// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// From exceptions to numbers: what every function of the C door runs inside.

#include <cstdint>
#include <string_view>

#include "stash/error.hpp"

namespace stash::c_api {

/// Inside a catch block: notes the text of the exception for this thread, and gives its number. Allocates
/// nothing.
std::int32_t note_exception(const char* function) noexcept;

/// Runs body(function); STASH_OK, or the number of what it threw.
template <class Body>
std::int32_t guard(const char* function, const Body& body) noexcept {
  try {
    body(std::string_view(function));
    return static_cast<std::int32_t>(errc::ok);
  } catch (...) {
    return note_exception(function);
  }
}

}  // namespace stash::c_api
