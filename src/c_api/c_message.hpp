// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Messages of C++ functions in the words of the C functions that called them.

#include <cstddef>
#include <span>
#include <string_view>

#include "c_api/guard.hpp"

namespace stash::c_api {

/// Writes the message of an error into `buffer`, cut to its size, with a zero at its end: "function:
/// argument: expected ...", where `message` has the names of a C++ function and of its arguments.
void write_c_message(std::span<char> buffer, std::string_view function, std::string_view message,
                     const argument_names& names) noexcept;

}  // namespace stash::c_api
