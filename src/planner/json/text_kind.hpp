// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a text is that another reader got, so that its refusal can say so.

#include <cstdint>
#include <string_view>

#include "stash/error.hpp"

namespace stash::planner {

enum class text_kind : std::uint8_t {
  unknown,
  trace,    ///< execution trace of PyTorch
  profile,  ///< Chrome trace, as Kineto writes
  graph,
  plan,
  machine,
  gz,
  tar,
  zip,
  bzip2,
  xz,
  zstd
};

/// Looks at the first bytes, or at the members of the outermost JSON object. Any bytes are safe; what is
/// damaged further on is known by what comes before.
text_kind kind_of(std::string_view text);

/// Whether it has to be unpacked to be read.
bool is_packed(text_kind kind) noexcept;

/// With an article: "a plan ('stash.plan')". Empty for `unknown`.
std::string_view description(text_kind kind) noexcept;

/// Throws error(bad_format) if the text is known to be of another kind than `expected`:
/// "function: text: expected ..., got ...".
void refuse_other_kind(text_kind expected, std::string_view function, std::string_view text);

/// What read() returns. If it throws error(bad_format), and the text is of another kind than `expected`, the
/// error says of which.
template <class Read>
auto read_as(text_kind expected, std::string_view function, std::string_view text, Read read) {
  try {
    return read();
  } catch (const error& e) {
    if (e.code() == errc::bad_format) refuse_other_kind(expected, function, text);
    throw;
  }
}

}  // namespace stash::planner
