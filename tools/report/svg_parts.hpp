// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the pictures of the command line have in common.

#include <array>
#include <string>

namespace stash::tools {

inline constexpr std::array<const char*, 6> svg_colours = {"#444444", "#1f77b4", "#2ca02c",
                                                           "#d62728", "#9467bd", "#ff7f0e"};

/// The opening tag and a white ground; the caller appends "</svg>\n".
std::string svg_begin(double width, double height);

/// Where an axis ends that has to show `value`: the next round number. At least 1e-9.
double svg_axis_end(double value);

}  // namespace stash::tools
