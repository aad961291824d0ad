// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The storages of an iteration of a trace. A storage id is an address: every time that it is given out
/// again, another life of it begins. Internal to the reading of traces.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/trace/trace_ops.hpp"

namespace stash::planner::traces {

/// One block of memory from its allocation to its last use.
struct life {
  std::int64_t storage = 0;
  std::int64_t bytes = 0;
  std::int64_t element_bytes = 1;
  trace_type type = trace_type::other;
  bool outside = false;         ///< was there before the iteration
  std::int64_t created_in = 0;  ///< node that allocated it, unless outside
};

inline constexpr std::int32_t result_argument = -1;

/// What an operator does with a life through one argument.
struct life_access {
  std::int32_t life = 0;
  std::int32_t argument = result_argument;  ///< index of the input
  std::int64_t bytes = 0;                   ///< that the argument names
  bool read = false;
  bool write = false;
};

struct recorded_op {
  trace_event event;
  std::vector<life_access> accesses;
};

struct recorded_iteration {
  std::vector<life> lives;
  std::vector<recorded_op> ops;  ///< in order of time
};

recorded_iteration record_of(const trace& t, const trace_iteration& iteration, std::int32_t device);

/// The role that each life has in a training graph; none for what only the update uses.
struct life_role {
  bool used = false;
  storage_role role = storage_role::feature_map;
};
std::vector<life_role> roles_of(const trace& t, const recorded_iteration& r);

}  // namespace stash::planner::traces
