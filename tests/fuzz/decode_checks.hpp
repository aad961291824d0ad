// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The body of the decoder targets.

#include "fuzz/encoded_case.hpp"

namespace stash::fuzz {

/// Decodes, brings into canonical form and, for csr, exports; what was given up as corrupt is the same for
/// every instruction set, and everything else is too.
void check_decoders(std::span<const std::uint8_t> input, std::span<const std::string> names);

}  // namespace stash::fuzz
