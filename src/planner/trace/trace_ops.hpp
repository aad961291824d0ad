// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Which calls of a trace do the work: primitive operators, in the order in which they finish, with the
/// allocations and views among them. Internal to the reading of traces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "planner/trace/trace.hpp"

namespace stash::planner::traces {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

/// A parameter of a signature.
struct parameter {
  std::string_view name;
  bool mutated = false;  ///< "Tensor(a!)": the operator writes the argument
};

/// The parameters of "aten::add_(Tensor(a!) self, *, Scalar alpha=1) -> Tensor(a!)"; empty if it has no such
/// form.
std::vector<parameter> parameters_of(std::string_view schema);

enum class event_kind : std::uint8_t {
  allocation,  ///< of a storage without content
  view,        ///< names a storage again, or looks at it
  work,        ///< a primitive operator
};

struct trace_event {
  std::size_t node = 0;     ///< index into trace::nodes
  std::int64_t moment = 0;  ///< id of the last call inside
  event_kind kind = event_kind::view;
  op_stage stage = op_stage::forward;
  std::int64_t sequence = -1;  ///< of the autograd node that this belongs to
  bool loss = false;           ///< inside the loss function
};

/// What happens in an iteration, sorted by moment.
std::vector<trace_event> events_of(const trace& t, const trace_iteration& iteration, std::int32_t device);

/// Fills trace::iterations.
void find_iterations(trace& t);

/// The iteration and the device that options ask for. Throw as graph_of does.
const trace_iteration& iteration_of(const trace& t, const trace_options& options);
std::int32_t device_of(const trace& t, const trace_iteration& iteration, const trace_options& options);

/// Whether the tensor takes part: on the device and not empty.
inline bool counts(const trace_tensor& x, std::int32_t device) {
  return x.device == device && x.elements > 0 && x.element_bytes > 0;
}

/// Indices of the inputs that the call writes: by signature, else by the trailing underscore of its name.
std::vector<std::size_t> mutated_inputs(const trace_node& n, const std::vector<parameter>& parameters);

}  // namespace stash::planner::traces
