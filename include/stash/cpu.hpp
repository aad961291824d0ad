// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which instruction set the CPU back end uses. The best one that the processor runs is chosen at the first
/// call; all give the same bits (but for the sign and payload of a NaN that a pooling's gradient sums from
/// several), so this is for tests, measurements and workarounds.
///
/// The environment variable STASH_CPU_TARGET chooses at the first call, by the same names. A name that this
/// processor or build does not have makes every call that computes throw error(invalid_argument), in the
/// text of which the variable stands for the argument, until set_cpu_target() has been called.

#include <string>
#include <string_view>
#include <vector>

#include "stash/visibility.h"

namespace stash {

/// Names for set_cpu_target(), best first; e.g. "avx2", "sse4", "ssse3", "scalar". "scalar" is plain C++ for
/// the instruction set that the library was compiled for, and always there.
STASH_API std::vector<std::string> cpu_targets();

/// Name of the target in use. Throws for a wrong STASH_CPU_TARGET.
STASH_API std::string cpu_target();

/// Uses this target from the next call on, in all threads. Calls that are running go on with what they
/// started with. Throws error(invalid_argument) for an unknown name; the target stays as it was.
STASH_API void set_cpu_target(std::string_view name);

}  // namespace stash
