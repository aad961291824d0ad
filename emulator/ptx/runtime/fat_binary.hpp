// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Fat binaries: what nvcc puts into a program for its devices, PTX among it.

#include <cstddef>
#include <span>
#include <string>

namespace stash::ptx {

/// The bytes of the fat binary that a program registers under `registered`.
/// Throws std::runtime_error if that is none.
std::span<const std::byte> fat_binary_of(const void* registered);

/// The PTX in it for the newest architecture up to `newest` (90 for sm_90); empty if there is none.
/// Throws std::runtime_error where it is malformed, or compressed in a way that is not known here.
std::string ptx_of(std::span<const std::byte> fat_binary, int newest);

}  // namespace stash::ptx
