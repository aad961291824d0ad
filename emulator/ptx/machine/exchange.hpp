// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Instructions in which lanes of a warp tell each other something. The machine calls them when all lanes of
/// the mask, their last operand, have come.

#include "ptx/machine/lanewise.hpp"

namespace stash::ptx {

/// shfl.sync: result, a predicate (or no_result), value, lane or distance, bounds, mask.
form shuffle_form(std::string_view mode);
/// vote.sync: result, predicate, mask.
form vote_form(std::string_view mode);

/// Stands for a result that nobody wants.
inline constexpr std::uint32_t no_result = 0xffffffffU;

}  // namespace stash::ptx
