// SPDX-License-Identifier: Apache-2.0
// Whether errors leave the library as the exceptions that it promises.

#include <exception>

#include "stash/encoding.hpp"
#include "stash/error.hpp"

bool throws_errors() {
  try {
    stash::parse_encoding("none of these");
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const stash::error*>(&e);
    return error != nullptr && error->code() == stash::errc::invalid_argument;
  }
  return false;
}
