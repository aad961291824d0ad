// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A plan: for every stashed storage one choice, a list of steps, and byte offsets for every buffer. It holds
/// its graph, so that it can be run, verified and explained on its own (docs/plan.md).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/graph/byte_sizes.hpp"
#include "planner/graph/graph.hpp"
#include "planner/graph/machine.hpp"
#include "stash/encoding.hpp"

namespace stash::planner {

/// What may be done to a stash (docs/needs.md, "Policies").
enum class policy : std::uint8_t {
  none,       ///< nothing
  lossless,   ///< masks, codes, sparse forms, recompute
  fp16,       ///< lossless, and values in this format
  fp8,        ///< the same
  fp10,       ///< the same
  automatic,  ///< "auto": lossless and the formats of plan_options::values
  gist,       ///< Gist's rules: masks and codes, sparse forms after ReLU, reduced precision elsewhere
  swap_only,  ///< swap of dense maps alone (Meng et al., vDNN)
  lms,        ///< TFLMS: swap of dense maps, found by levels
  layrub,     ///< Layrub: reuse within layers, migration between them
};
std::string_view to_string(policy p) noexcept;
/// Throws error(invalid_argument) listing the known names.
policy parse_policy(std::string_view name);

/// Whether the planner may change the order of the ops.
enum class op_order : std::uint8_t {
  keep,    ///< the graph's own
  memory,  ///< another one where that needs less memory (docs/planning.md, "The order of ops")
};
std::string_view to_string(op_order order) noexcept;
/// Throws error(invalid_argument) listing the known names.
op_order parse_op_order(std::string_view name);

/// How a storage survives between its last forward and its backward uses.
enum class stash_kind : std::uint8_t {
  none,       ///< backward does not need it
  raw,        ///< the dense buffer stays
  encoded,    ///< `stored` holds it
  recompute,  ///< computed again from other storages by `recipe`; `stored` may add a mask
};
std::string_view to_string(stash_kind kind) noexcept;

struct stash_choice {
  stash_kind kind = stash_kind::none;
  encoding stored;                ///< kind encoded; recompute: sign_mask, range_mask or shape_only
  recipe_id recipe = no_id;       ///< kind recompute: number in graph::recipes
  std::int64_t bytes_before = 0;  ///< dense
  std::int64_t bytes_after = 0;   ///< kept bytes, slot margin included
  double density = 1.0;           ///< the density that the slot was sized for, before the margin
  bool swapped = false;           ///< what is kept goes to the host and comes back
  std::string reason;             ///< one sentence for explain
};

/// What a buffer holds.
enum class buffer_form : std::uint8_t {
  dense,     ///< the dense storage (forward value, gradient, decoded or recomputed value)
  encoded,   ///< stash_choice::stored
  overflow,  ///< the shared overflow arena; of no storage
  host,      ///< a swapped storage's kept form in host memory; the offset counts in the host arena
};

std::string_view to_string(buffer_form form) noexcept;

/// Place in the list of steps of a plan. Lifetimes are sums and ranges of these.
using step_number = std::int32_t;

/// A block of the map region of the arena, or (form host) of the host arena; steps [first_step, last_step]
/// may touch it, inclusive.
struct buffer {
  storage_id storage = no_id;
  buffer_form form = buffer_form::dense;
  std::int64_t bytes = 0;   ///< multiple of buffer_alignment
  std::int64_t offset = 0;  ///< multiple of buffer_alignment, from the start of the map region
  step_number first_step = 0;
  step_number last_step = 0;
};

using buffer_id = typed_id<buffer>;

enum class step_kind : std::uint8_t {
  run,        ///< execute an op
  encode,     ///< inputs {dense}, outputs {encoded}
  decode,     ///< inputs {encoded}, outputs {dense}
  recompute,  ///< op = one of a recipe's; inputs {its dense inputs[, for a norm the target's sign mask]},
              ///< outputs {its dense output}; in place if equal
  copy_out,   ///< begins to copy inputs {kept form} to outputs {host}
  wait_out,   ///< the same operands: the copy has ended, the device's bytes may be used for something else
  copy_in,    ///< begins to copy inputs {host} to outputs {kept form}
  wait_in,    ///< the same operands: the copy has ended, the kept form may be read
};
std::string_view to_string(step_kind kind) noexcept;

/// One entry of the step list. Buffers of operands are parallel to the op's own lists; none stands for
/// a storage outside the map region (parameters) or an optional output that the plan does not want.
struct step {
  step_kind kind = step_kind::run;
  op_id op = no_id;            ///< run, recompute
  storage_id storage = no_id;  ///< encode, decode; recompute: what the op makes
  std::vector<buffer_id> inputs;
  std::vector<buffer_id> outputs;
  std::vector<buffer_id> optional_outputs;
  std::vector<buffer_id> stash;  ///< parallel to the chosen alternative's reads
};

/// Sizes reported with a plan, in bytes. "batch" counts the batch-proportional part: everything in the map
/// region, slot margins and overflow arena included. "total" adds weights, their gradients, momentum,
/// statistics and workspace.
struct plan_sizes {
  std::int64_t baseline_peak = 0, baseline_peak_total = 0;
  std::int64_t planned_peak = 0, planned_peak_total = 0;
  std::int64_t wall = 0;  ///< W: largest sum of dense tensors of one op
  op_id wall_op = no_id;
  std::int64_t boundary = 0;         ///< bytes live while the first backward op runs
  std::int64_t bound = 0;            ///< no plan of this order and these encodings gets below (batch part)
  std::int64_t max_live = 0;         ///< of the planned buffers
  std::int64_t parameter_bytes = 0;  ///< persistent part
  std::int64_t workspace_bytes = 0;  ///< largest of one op
  std::int64_t host_bytes = 0;       ///< of the host arena
};

/// Times by the model of a machine, in ms. All 0 in plans that were made without one.
struct plan_times {
  std::string model;        ///< name of the machine
  double unplanned_ms = 0;  ///< of all ops, nothing encoded or moved
  double simulated_ms = 0;  ///< of this plan
  double bound_ms = 0;      ///< no plan of this order, these options and this budget takes less
  bool relaxed = false;  ///< the bound is that of the linear relaxation; false: the weaker sum of durations
  double update_ms = 0;  ///< of simulated_ms what the ops of the update stage take, after the last step
};

/// When a step runs by the same model, in ms from the begin of the training step. Compute stream: run,
/// encode, decode, recompute, and both waits, which last as long as compute stands still for them. copy_out
/// and copy_in: the whole copy, on the engine of their direction.
struct step_time {
  double begin_ms = 0, end_ms = 0;
};

/// What the user says of single tensors. The last rule that fits a storage's name counts.
struct tensor_rule {
  std::string pattern;  ///< storage name; * stands for any text
  /// Forms that are allowed: "raw", "recompute", "swap" or names of encodings; with `deny` those that are
  /// not.
  std::vector<std::string> forms;
  bool deny = false;
};

/// What proves plan_times::bound_ms: prices of the rows of the relaxation (planner/time/relaxation.hpp).
/// Anybody can compute the bound again from graph, machine, policy and these; wrong prices prove less, never
/// more.
struct bound_certificate {
  std::int64_t limit_bytes = 0;               ///< on the map region
  std::vector<std::int64_t> transfer_limits;  ///< sizes by which transfers are in classes
  std::vector<std::int32_t> first_tick;       ///< of every step of the relaxation, and the number of ticks
  struct row_prices {
    std::string row;                                    ///< as in dual_prices
    std::vector<std::pair<std::int32_t, double>> list;  ///< step and price, those that are not 0
    bool operator==(const row_prices&) const = default;
  };
  std::vector<row_prices> prices;
};

struct plan {
  static constexpr int format_version = 1;
  graph network;  ///< its ops in the order of the plan
  /// Per op its id in the graph that was planned; empty if the order was kept.
  id_vector<op_id, op_id> planned_op;
  policy chosen_policy = policy::none;
  std::vector<value_format> values;  ///< policies auto and gist: narrower formats that were allowed
  std::int64_t budget_bytes = 0;     ///< 0: none was given (the peak was minimised)
  int threads = 1;
  std::string machine;  ///< free text: processor and instruction set that workspaces were asked for
  id_vector<storage_id, stash_choice> choices;  ///< per storage
  id_vector<op_id, std::int32_t> alternative;   ///< per op; -1 where the op has none
  id_vector<buffer_id, buffer> buffers;
  id_vector<step_number, step> steps;
  double slot_margin = 0.0;
  std::int64_t overflow_bytes = 0;
  /// Groups of storages with so many combinations of choices that only some were tried.
  std::int32_t cut_groups = 0;
  plan_sizes sizes;
  plan_times times;
  std::optional<planner::machine> model;  ///< what times and bound were computed for
  bool swap = false;                      ///< whether kept forms were allowed to move
  std::int64_t smallest_swap = 0;         ///< bytes; smaller forms were not
  double overflow_share = 0.0;            ///< of sparse forms, set aside for overflow
  std::vector<tensor_rule> tensors;       ///< what the user said of single tensors
  bound_certificate certificate;          ///< empty without a relaxation
  id_vector<step_number, step_time>
      timeline;  ///< per step; empty in plans that were made without a machine model
  /// False: no buffer has an offset (all are 0), and the peaks are the largest sums of live bytes.
  bool laid_out = true;
};

struct plan_options {
  policy chosen_policy = policy::lossless;
  std::vector<value_format> values;  ///< policies auto and gist: narrower formats that are allowed
  std::vector<tensor_rule> tensors;
  std::int64_t budget_bytes = 0;  ///< on sizes.planned_peak_total; 0: minimise the peak
  std::string force;              ///< name of an encoding, or "recompute": used wherever it is legal
  double slot_margin = 0.04;      ///< share added to the expected payload of sparse slots
  double overflow_share = 0.01;   ///< overflow arena: share of the sum of sparse payloads
  int threads = 1;
  /// Order of the ops. The bounds of a plan hold for the order that it has.
  op_order order = op_order::keep;
  std::string machine;
  /// With a model the plan is the fastest found within the budget (0: the model's memory); without one it is
  /// the smallest, or within the budget the one with least codec work.
  std::optional<planner::machine> model;
  bool swap = false;  ///< kept forms may move to the host; needs a model with a link
  std::int64_t smallest_swap = std::int64_t{64} * 1024;  ///< bytes; smaller forms stay
  /// Policy swap_only: all maps that can move do (vDNN-all), not only as many as the memory asks for.
  bool swap_all = false;
  /// Simulations of the search for the fastest plan, of a network of 1000 steps; fewer of longer ones.
  std::int32_t evaluations = 12000;
  bool relax = true;  ///< use the linear relaxation: better plans and a bound, more time
  /// False: no offsets, for callers that place buffers themselves. The budget then holds for the largest sum
  /// of live bytes (plan::laid_out).
  bool lay_out = true;
  /// With a model: a refusal names the smallest budget for which a plan is found, to about 1 %, which takes
  /// the time of some plans. False: one that would do.
  bool smallest_budget = true;
  std::uint64_t seed = 1;      ///< of that search
  std::function<bool()> stop;  ///< asked now and then; true: go on with the best plan so far
};

/// Plans `g`. Throws error(infeasible_budget) that names the op, its tensors and the smallest budget that
/// would do; error(invalid_argument) for unknown or nowhere legal `force`.
plan make_plan(const graph& g, const plan_options& options);

/// Text for `stash explain`: per stashed storage the reader, the choice, the reason, bytes before and after.
std::string explain(const plan& p);

}  // namespace stash::planner
