// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Execution traces of PyTorch (docs/traces.md): reading one, and turning one iteration of it into a training
/// graph of generic ops. A trace is what a user records around some training steps; nothing here needs
/// PyTorch.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/graph/graph.hpp"

namespace stash::planner {

/// Element types as traces name them. `other` has a size and nothing else that is known of it.
enum class trace_type : std::uint8_t { f32, f16, bf16, f64, boolean, integer, other };

/// One mention of a tensor: a view of a storage. Storage ids are addresses, used again after a free.
struct trace_tensor {
  std::int64_t id = 0;
  std::int64_t storage = 0;
  std::int64_t offset = 0;  ///< in elements
  std::int64_t elements = 0;
  std::int64_t element_bytes = 0;
  std::int32_t device = 0;  ///< index into trace::devices
  trace_type type = trace_type::other;
  std::vector<std::int64_t> shape;

  /// Bytes from the start of the storage to the tensor's last element, if it is contiguous.
  std::int64_t extent() const noexcept { return elements == 0 ? 0 : (offset + elements) * element_bytes; }
};

/// An argument or result: the tensors in it (none, one or a list), or the JSON text of anything else.
struct trace_value {
  std::vector<trace_tensor> tensors;
  std::string text;  ///< empty if it is long
};

/// A call: an operator, or a label around others (iteration, autograd node, module).
struct trace_node {
  std::int64_t id = 0;      ///< in order of start
  std::int64_t parent = 0;  ///< its own id or one that is not there: a root
  std::int64_t sequence = -1;
  std::int64_t record_function = -1;  ///< rf_id, "External id" of the profiler
  std::int64_t thread = 0;
  std::string name;
  std::string schema;   ///< signature, as in "aten::relu_(Tensor(a!) self) -> Tensor(a!)"
  std::string backend;  ///< "triton" for kernels without a signature
  std::vector<trace_value> inputs;
  std::vector<trace_value> outputs;
  std::optional<double> seconds;  ///< set by join_times
};

/// What lies under one `ProfilerStep#number`: nodes with first_id <= id < end_id. Without such markers, the
/// whole trace is the only iteration and has the number 0.
struct trace_iteration {
  std::int64_t number = 0;
  std::int64_t first_id = 0;
  std::int64_t end_id = 0;
  bool complete = false;  ///< holds forward and backward work
};

struct trace {
  std::string schema;
  std::vector<std::string> devices;
  std::vector<trace_node> nodes;            ///< sorted by id, ids unique
  std::vector<trace_iteration> iterations;  ///< in order of time
};

/// Reads the text of an execution trace, schemas 1.0.1 to 1.1.x. Extra and missing commas and words like NaN
/// are let pass, unknown fields ignored. Any bytes are safe. Throws error(bad_format) with the byte, the node
/// or the field for everything else, and for nesting deeper than 64.
trace read_trace(std::string_view text);

struct trace_options {
  /// Number of the iteration (`ProfilerStep#number`); none: the middle one of those that are complete.
  std::optional<std::int64_t> iteration;
  /// Feature maps of fewer bytes are read as they are (need exact_value).
  std::int64_t least_feature_map = 65536;
  /// Device to plan, as in "cuda:0"; empty: the one whose tensors the iteration mentions most.
  std::string device;
  /// Share of non-zeros assumed after a ReLU.
  double relu_density = 0.5;
};

/// The training graph of one iteration: a generic op per primitive operator of the device, batch 1, sizes as
/// recorded. Passes check_graph. Throws error(invalid_argument) for an iteration or device that the trace
/// does not have, error(bad_format) if no iteration has a backward stage or sizes are beyond a graph's.
graph graph_of(const trace& t, const trace_options& options = {});

/// One operator call in a profile (Chrome trace of Kineto) with the time of all that it launched on a device;
/// where the profile holds no device work at all, with its own.
struct kernel_time {
  std::string name;
  std::int64_t record_function = -1;  ///< equals that of trace_node if both were recorded together
  double seconds = 0.0;
  bool external = false;  ///< the number is the profile's "External id", as it has no "Record function id"
};

/// Reads the operator calls of a profile. Lenient and safe as read_trace, and throws as it does.
std::vector<kernel_time> read_kineto(std::string_view text);

/// Of the primitive operators of an iteration, how many got a time.
struct joined_times {
  std::size_t operators = 0;
  std::size_t joined = 0;
  std::string why;  ///< where too few agreed: "expected ..., got ..."; else empty
};

/// Gives trace_node::seconds to the operators that graph_of(t, options) would take, where the profile has a
/// call of the same number and name. Profiles that were recorded at another time number their calls
/// differently: where fewer than half agree none is taken, because the time of another call is worse than
/// none. `joined` tells how many agreed in either case, `why` whether numbers were missing or others. Throws
/// as graph_of for wrong options.
joined_times join_times(trace& t, const std::vector<kernel_time>& times, const trace_options& options = {});

}  // namespace stash::planner
