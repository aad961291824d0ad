// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Errors on the host side. Every public C++ function reports wrong arguments and failures by throwing
/// stash::error; its message has the form "function: argument: expected ..., got ...". The numbers below are
/// stable: they are never reused for another meaning and are shared with the C API.
///
/// Where memory runs out that is error(out_of_memory), too, never std::bad_alloc, and it takes no memory: its
/// message names the function if it has the space for that. What a caller's own function throws (a
/// memory_resource) comes out as it is, but for std::bad_alloc.
///
/// Failures that only the data can cause while a kernel runs (a slot that is too small, corrupt encoded
/// bytes) are not exceptions: they are bits of a status word, see status.hpp.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "stash/visibility.h"

namespace stash {

/// What went wrong. The numbers are stable.
enum class errc : std::int32_t {
  ok = 0,
  invalid_argument = 1,     ///< an argument breaks the function's contract
  unsupported = 2,          ///< the combination is legal but this back end does not offer it
  out_of_memory = 3,        ///< an allocation failed; nothing was changed
  capacity_exceeded = 4,    ///< a buffer of the caller is too small
  corrupt_data = 5,         ///< encoded bytes contradict their descriptor
  io_failure = 6,           ///< a file cannot be opened, read or written
  bad_format = 7,           ///< a file or text is not what it claims to be
  infeasible_budget = 8,    ///< no plan fits the memory budget
  verification_failed = 9,  ///< a plan or a decoded tensor failed its check
  interrupted = 10,         ///< stopped on request
  internal = 11,            ///< a defect of the library
  device_failure = 12,      ///< the device or its driver refused a call, or there is none
};

/// Stable lower-case name of a code, e.g. "invalid_argument". Never throws.
STASH_API std::string_view to_string(errc code) noexcept;

/// The exception type of the library.
class STASH_API error : public std::runtime_error {
 public:
  /// `message` is what() says.
  error(errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  errc code() const noexcept { return code_; }  ///< what went wrong

 private:
  errc code_;
};

}  // namespace stash
