// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How fast this machine's convolutions are, for planning (docs/machines.md).

namespace stash::executor {

/// Floating-point operations per second (a multiplication with its addition counts as two) of a 3x3
/// convolution of 128 channels on 28x28 maps, batch 8: the median of as many runs as `seconds` allow, at
/// least three. Takes 7 MiB of memory in addition to the library's scratchpad. Throws what oneDNN throws, as
/// stash::error.
double convolution_rate(int threads, double seconds);

}  // namespace stash::executor
