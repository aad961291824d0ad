// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Kernels as the machine runs them, made of their text.

#include <memory>
#include <string_view>

#include "ptx/machine/text.hpp"
#include "ptx/machine/warp.hpp"

namespace stash::ptx {

/// `outside` is what stands between entries: the target, and shared memory whose size a launch says. Throws
/// violation with the line that is not understood.
std::unique_ptr<kernel> decoded(const entry_text& entry, const std::vector<std::string_view>& outside);

}  // namespace stash::ptx
