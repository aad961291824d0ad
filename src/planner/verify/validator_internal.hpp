// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The parts of the plan validator, shared by its source files and by nobody else: the planner must not
/// include this, and the validator includes nothing of the planner but the types of graphs and plans.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "encoders/message.hpp"
#include "planner/verify/validator.hpp"

namespace stash::planner::validation {

/// Sizes, and totals of storages or buffers, above these are taken for damage (docs/plan.md); below them the
/// arithmetic of the validator cannot overflow.
inline constexpr std::int64_t largest_size = std::int64_t{1} << 53;
inline constexpr std::int64_t largest_total = std::int64_t{1} << 60;

/// Bytes of the smallest buffer that holds `bytes`.
constexpr std::int64_t round_up(std::int64_t bytes) noexcept {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

class finding_list {
  // Ids are shown as numbers.
  template <class T>
  using shown = std::conditional_t<is_typed_id<T>, std::int32_t, T>;

 public:
  /// Strings among the arguments are names of the plan, which may be long.
  template <class... Args>
  void add(plan_fault fault, fmt::format_string<shown<Args>...> text, const Args&... args) {
    if (!full())
      list_.push_back({fault, fmt::format(fmt::runtime(fmt::string_view(text)), in_message(args)...)});
  }
  bool full() const noexcept { return list_.size() >= 100; }
  bool empty() const noexcept { return list_.empty(); }
  std::vector<plan_finding> take() { return std::move(list_); }

 private:
  template <class T>
  static const T& in_message(const T& value) noexcept {
    return value;
  }
  static std::string in_message(const std::string& name) { return shortened(name); }
  template <class Kind>
  static std::int32_t in_message(typed_id<Kind> id) noexcept {
    return id.number();
  }

  std::vector<plan_finding> list_;
};

/// Elements of the dense form. Needs check_references() to have found nothing, like everything below.
std::int64_t elements_of(const storage& s, std::int64_t batch) noexcept;

/// Smallest slot for the encoded form of `s`; nothing if the encoding has no meaning for it.
std::optional<std::int64_t> slot_bytes(const encoding& e, const storage& s, std::int64_t batch,
                                       double density);

/// The encoding that encoded buffers of a storage hold under this choice, if there is one.
std::optional<encoding> stored_form(const stash_choice& c) noexcept;

/// Bytes that a choice keeps of a storage, slot margin included; nothing if they have no meaning.
std::optional<std::int64_t> kept_bytes(const stash_choice& c, const storage& s, std::int64_t batch,
                                       double margin);

/// The alternative that the plan picks for an op; null if the op has none or the number is wrong.
const stash_alternative* chosen_alternative(const plan& p, op_id op) noexcept;

/// Who wrote a part of a storage last: an op, nobody, or whoever filled images and labels before step 0.
using writer_id = op_id;
inline constexpr writer_id nobody = no_id;
inline constexpr writer_id outside(-2);
using writer_list = std::vector<writer_id>;

/// The parts [begin, end) of a storage that an operand covers.
struct part_range {
  std::size_t begin = 0, end = 0;
  bool meets(const part_range& other) const noexcept { return begin < other.end && other.begin < end; }
};

/// What the graph's operands see if the ops run one by one. A storage is cut into *parts* at every channel
/// where some operand begins or ends; the state of a part is the last op that wrote it.
class graph_history {
 public:
  explicit graph_history(const graph& g);

  std::size_t part_count(storage_id s) const { return cuts_[s].size() - 1; }
  part_range parts(const tensor_ref& ref) const;
  bool covers_all(const tensor_ref& ref) const;
  /// State that inputs[i] of the op shows, part by part.
  const writer_list& input(op_id op, std::size_t i) const { return inputs_[op][i]; }
  /// State of outputs[i] before the op writes it.
  const writer_list& before_output(op_id op, std::size_t i) const { return outputs_[op][i]; }
  /// State of a whole storage after the last forward op.
  const writer_list& after_forward(storage_id s) const { return forward_[s]; }
  /// State before the first op.
  writer_list initial(const graph& g, storage_id s) const;

 private:
  id_vector<storage_id, std::vector<std::int64_t>> cuts_;  ///< first channel of each part, then the end
  id_vector<op_id, std::vector<writer_list>> inputs_, outputs_;
  id_vector<storage_id, writer_list> forward_;
};

/// Ids, slices and sizes of the graph: what the other checks need to be safe.
void check_references(const graph& g, finding_list& found);

/// The chosen alternatives read what docs/needs.md says, and the state that the forward op saw.
void check_alternatives(const plan& p, const graph_history& history, finding_list& found);

/// Ops in another order than planned: each once, and those that touch the same bytes, or bytes of a recipe,
/// in the order of the graph that was planned, unless all of them read. Needs check_graph().
void check_planned_order(const plan& p, finding_list& found);

/// Policy, needs and stored forms (docs/needs.md).
void check_choices(const plan& p, finding_list& found);

/// Alignment, sizes, ranges of steps, overlap.
void check_buffers(const plan& p, finding_list& found);

/// Runs the steps symbolically.
void check_steps(const plan& p, const graph_history& history, finding_list& found);

/// Reported sizes and the budget.
void check_totals(const plan& p, finding_list& found);
/// Bytes of maps that no plan of this graph, policy and rules gets below if it moves nothing to the host.
std::int64_t least_peak(const plan& p);

/// Bytes of everything of fixed size. A weight gradient counts until its update has run, if that is part of
/// the backward stage.
std::int64_t fixed_size_bytes(const graph& g);

/// Reported times and the bound on them (docs/planning.md). Returns the bound that the certificate proves, in
/// ms; 0 if the plan says nothing of times.
double check_bound(const plan& p, finding_list& found);

/// The predicted timeline, if there is one.
void check_times(const plan& p, finding_list& found);

}  // namespace stash::planner::validation
