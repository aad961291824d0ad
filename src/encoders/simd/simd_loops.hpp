// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The versions of the inner loops that were compiled with Highway and that this processor runs.

#include <span>

#include "encoders/format/run_loops.hpp"

namespace stash::encoders {

struct simd_target {
  const char* name = nullptr;  ///< Highway's, e.g. "AVX2"
  const run_loops* version = nullptr;
};

/// Best first; empty where none runs. Never allocates.
std::span<const simd_target> simd_targets() noexcept;

}  // namespace stash::encoders
