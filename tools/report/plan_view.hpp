// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What reports and viewer files read off a plan.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan.hpp"

namespace stash::tools {

enum class track : std::uint8_t { compute, copy_out, copy_in };

/// Where a step's time runs. Waits are moments of the compute track.
track track_of(planner::step_kind kind) noexcept;

/// forward, backward, encode, decode, recompute, copy, wait, update.
enum class activity : std::uint8_t { forward, backward, encode, decode, recompute, copy, wait, update };
activity activity_of(const planner::plan& p, const planner::step& s);
std::string_view to_string(activity a) noexcept;

/// "conv1", "encode conv1/y", "copy conv1/y out": for people.
std::string title_of(const planner::plan& p, const planner::step& s);

/// Moments of the compute track, in ms, at which the steps of a plan with a timeline begin or, copies, are
/// asked for; one more entry: the end of the training step.
std::vector<double> clock_of(const planner::plan& p);

/// Bytes of buffers alive at each step: of the map region, or of the host arena.
std::vector<std::int64_t> live_device_bytes(const planner::plan& p);
std::vector<std::int64_t> live_host_bytes(const planner::plan& p);

/// What lies outside the map region for the whole step: parameters and workspace.
std::int64_t static_bytes_of(const planner::plan& p) noexcept;

/// The buffers of the map region with their offsets and steps, as CSV (docs/layout.md).
std::string layout_csv(const planner::plan& p);

}  // namespace stash::tools
