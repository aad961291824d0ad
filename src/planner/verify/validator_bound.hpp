// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The parts of the check of a plan's bounds on time (docs/planning.md, "Checking a bound") and memory,
/// shared by its source files and by nobody else. Nothing here comes from the planner but the types of graphs
/// and plans.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "planner/verify/validator_internal.hpp"

namespace stash::planner::validation {

/// Prices and sums of many of them. Certificates are untrusted: their terms may cancel almost entirely.
using sum_t = long double;

/// A cost that no configuration has.
inline constexpr double impossible = std::numeric_limits<double>::infinity();

/// With more ops no bound is looked at: ticks would not fit their type.
inline constexpr std::size_t most_ops = std::size_t{1} << 29;

/// Time is counted in ticks: 2t while op t runs, 2t + 1 between ops t and t + 1.
constexpr std::int32_t tick_of(op_id t) noexcept {
  return 2 * t.number();
}

// ---- validator_bound_model.cpp: how long things take ---------------------------------------------------

/// Times by the model of a machine, which it refers to.
class time_model {
 public:
  explicit time_model(const machine& m) noexcept : m_(m) {}
  virtual ~time_model() = default;

  /// Whether every number of the model can be worked with.
  virtual bool is_sane() const noexcept;
  /// ms of an op, without what the chosen alternative adds.
  virtual double op_time(const graph& g, const op& o) const = 0;
  /// ms that an alternative adds to its op.
  virtual double alternative_time(const stash_alternative& a) const = 0;
  /// ms of an encoder or a decoder that passes over so many dense and stored bytes.
  virtual double codec_time(encoding_kind kind, std::int64_t dense, std::int64_t stored) const = 0;
  /// Whether maps are cast or kept as they are, and nothing else, wherever that serves all readers.
  virtual bool casts_only() const noexcept = 0;

 protected:
  const machine& m_;
};

std::unique_ptr<const time_model> time_model_of(const machine& m);
/// Its two kinds.
std::unique_ptr<const time_model> roofline_times(const machine& m);
std::unique_ptr<const time_model> pinned_times(const machine& m);

/// For both: bytes of operands, and the products of a convolution or dense layer.
double bytes_of(const graph& g, const tensor_ref& ref);
double bytes_of(const graph& g, const std::vector<storage_id>& whole);
double bytes_of(const graph& g, const std::vector<tensor_ref>& refs);
double products(const graph& g, const op& o);

// ---- validator_bound_prices.cpp: what a certificate says -----------------------------------------------

/// A certificate read as prices of ticks. Prices of the wrong sign count as none.
class tick_prices {
 public:
  /// `fixed`: bytes per tick that no choice changes; `op_ms`: per tick. Reports what cannot be read at all.
  tick_prices(const bound_certificate& c, const machine& m, bool moves, double limit,
              const std::vector<double>& fixed, const std::vector<double>& op_ms, finding_list& found);

  bool readable() const noexcept { return readable_; }

  /// Of one byte that is on the device in the ticks [first, last], and while compute waits between them.
  sum_t hold(std::int32_t first, std::int32_t last) const;
  /// Of a form of so many bytes that may leave when tick `released` ends and must be back when tick `needed`
  /// begins, without hold() of the time that it is away. May be negative: it frees memory for others. A form
  /// may be counted in any class: in the one where it is dearest.
  sum_t move(std::int32_t released, std::int32_t needed, std::int64_t bytes) const;
  /// So many bytes of it count if a form is counted in this class: its other bytes move in no time.
  std::int64_t counted(std::int64_t bytes, std::size_t number) const;
  /// Of one ms of work of compute in this tick.
  double work(std::int32_t tick) const;

  std::size_t classes() const noexcept { return classes_.size(); }

  /// What the bound is in addition to the cost of all choices, if no more bytes than `movable` (per class)
  /// can move and a plan takes at most `longest_ms`.
  sum_t constant(const std::vector<double>& movable, double longest_ms) const;

  /// Sum of the sizes of all that is added up by the functions above, for `bytes` that are held or moved and
  /// `work_ms` of work: what rounding errors are a tiny share of.
  sum_t magnitude(double bytes, double work_ms, double longest_ms) const;

 private:
  double at(const std::vector<double>& list, std::size_t k) const { return k < list.size() ? list[k] : 0.0; }
  // Rows of a class of transfers, and their sums.
  struct class_rows {
    std::vector<double> sent, fetched, deadline;
    id_vector<std::int32_t, sum_t> released_sum,
        needed_sum;  // per tick: of a byte released after it, needed at it
  };

  bool cut_into_steps(std::size_t ticks) const;
  bool classes_rise() const;
  void read(const bound_certificate& c, finding_list& found);
  void spread();
  void spread_moves(class_rows& c);
  std::vector<double>* list_of(std::string_view name, int& sign);
  std::vector<double>* list_of_class(std::string_view name, int& sign);
  sum_t constant_of_step(std::size_t k, double& least_rate, sum_t& all_ms) const;
  sum_t latency_per_byte(std::size_t number) const;
  sum_t constant_of_class(std::size_t number, double movable) const;

  const std::vector<double>& fixed_;
  const std::vector<double>& op_ms_;
  const std::vector<std::int32_t> first_tick_;
  double limit_;
  bool readable_ = true, linked_ = false;
  double out_ms_per_byte_ = 0.0, in_ms_per_byte_ = 0.0, latency_ms_ = 0.0, shared_ = 0.0, host_bytes_ = 0.0;
  std::size_t steps_ = 0;
  const std::vector<std::int64_t> limits_;  ///< of the classes
  std::vector<class_rows> classes_;
  std::vector<double> host_, compute_, out_, in_, both_out_, both_in_, begin_, end_, inner_;
  std::vector<std::int32_t> fullest_;             ///< per step: the tick with most fixed bytes, -1 in a wait
  id_vector<std::int32_t, sum_t> held_, waited_;  ///< sums over ticks, and over the waits before them
  id_vector<std::int32_t, double> work_;          ///< per tick
};

// ---- validator_bound_forms.cpp: what is legal ----------------------------------------------------------

/// The place of a storage in its group of choices.
using local_storage = std::int32_t;

/// A way to keep a storage.
struct legal_form {
  stash_kind kind = stash_kind::none;
  encoding stored;
  std::int64_t kept = 0;               ///< rounded up to the alignment of buffers
  double overflow = 0.0;               ///< bytes of the overflow arena that are there for it
  bool gated = false;                  ///< its mask sets zeros in what is computed again
  const recipe* again = nullptr;       ///< by which it is computed again
  std::vector<local_storage> sources;  ///< its sources, counted as in the group of choices
  bool stores() const noexcept {
    return kind == stash_kind::encoded ||
           (kind == stash_kind::recompute && stored.kind != encoding_kind::shape_only);
  }
};

/// When a storage is an operand of ops.
struct dense_life {
  op_id first = no_id, last_forward = no_id, last = no_id;
};

/// What the forms of a recipe's sources have in common.
struct source_forms {
  bool values = true, fine_values = true, exact = true;
  void add(const legal_form& f);
};

/// How an op gets what it reads from a form.
enum class access : std::uint8_t { illegal, direct, decoded, recomputed };

/// Whether the policy allows values of this format. Where readers want 16 bits (need fine_value), fp16 stands
/// for the narrower formats that it allows.
bool policy_allows_values(const plan& p, value_format values);
bool stands_for_narrower(const plan& p, value_format values);
bool has_16_bits(value_format values);

/// The last of the rules whose pattern fits.
const tensor_rule* last_rule(const std::vector<tensor_rule>& rules, std::string_view name);
/// Whether the rules let this tensor be kept in a form: "raw", "recompute", "swap" or the name of an
/// encoding.
bool rules_allow(const std::vector<tensor_rule>& rules, std::string_view name, std::string_view form);

/// What choices there are, by graph, policy and the user's rules.
class legal_set {
 public:
  explicit legal_set(const plan& p);

  /// Whether kept forms may be on the host for a while.
  bool moves() const noexcept { return moves_; }
  /// Storages that some alternative reads; their choices are what a plan decides.
  bool stashed(storage_id s) const { return stashed_[s] != 0; }
  const dense_life& life(storage_id s) const { return lives_[s]; }
  /// Numbers of the recipes that compute the storage again from stashed ones.
  const std::vector<recipe_id>& recipes(storage_id s) const { return recipes_of_[s]; }
  /// Alternatives of the op that the policy allows.
  std::vector<std::int32_t> alternatives(op_id t) const;
  /// All forms that could serve somebody, `none` first. `casts_only`: as in time_model.
  /// `margin`: of slots, on top of the density.
  std::vector<legal_form> forms(storage_id id, bool casts_only, double margin) const;
  /// `sources`: of the recipe of a form that is computed again.
  static access read(const op& o, const stash_read& r, const legal_form& f, const source_forms& sources);
  /// Whether it may be on the host for a while if it is kept in so many bytes.
  bool movable(storage_id id, std::int64_t kept) const;

 private:
  bool allowed(const storage& s, std::string_view form) const {
    return rules_allow(p_.tensors, s.name, form);
  }
  bool value_format_allowed(storage_id s, value_format f) const;
  bool gates(const recipe& r) const;

  const plan& p_;
  const graph& g_;
  bool moves_ = false;
  id_vector<storage_id, char> stashed_, stays_, fine_, signs_, ranges_;
  id_vector<storage_id, dense_life> lives_;
  id_vector<storage_id, std::vector<recipe_id>> recipes_of_;
};

// ---- validator_configurations.cpp: all ways to keep storages that depend on each other ------------------

/// Storages and the ops that read them, both ascending.
struct choice_group {
  std::vector<storage_id> storages;
  std::vector<op_id> ops;
};
std::vector<choice_group> groups_of(const graph& g, const legal_set& legal);

/// One way to keep a group: the alternative that each op takes, and the form of each storage.
struct configuration {
  std::vector<std::int32_t> picked;
  id_vector<local_storage, const legal_form*> form;
};

source_forms sources_in(const configuration& x, const legal_form& f);

/// What there is to choose in a group. Storages and ops are counted as in the group; refers to the graph.
class group_choices {
 public:
  struct local_read {
    local_storage storage;
    const stash_read* read;
  };

  /// `casts_only`, `margin`: see legal_set::forms().
  group_choices(const graph& g, const legal_set& legal, const choice_group& c, bool casts_only,
                double margin);

  id_vector<local_storage, std::vector<local_storage>> sources;  ///< per storage: of all its recipes
  id_vector<local_storage, std::vector<legal_form>> forms;
  id_vector<std::int32_t, std::vector<std::int32_t>> alternatives;  ///< per op: those that are allowed
  std::vector<id_vector<std::int32_t, std::vector<local_read>>>
      reads;  ///< per op and alternative: those of the group

  /// Whether the form serves a read of the i-th op, if what it is computed from is there.
  bool may_serve(std::size_t i, const stash_read& r, const legal_form& f) const;
  /// How many configurations each() visits; any number above `most` if they are more than that.
  double configurations(double most) const;
  /// All configurations in which each form by itself may serve its reads, and nothing is kept that nobody
  /// reads. The visitor checks them with the forms of the sources.
  void each(const std::function<void(const configuration&)>& visit) const;

 private:
  template <class Visit>
  void each_pick(Visit visit) const;
  id_vector<local_storage, std::vector<const legal_form*>> possible(
      const std::vector<std::int32_t>& picked) const;

  std::vector<const op*> ops_;
};

// ---- validator_peak.cpp: bytes over time -----------------------------------------------------------------

/// Per tick, bytes of storages that no choice concerns: there from their first to their last use.
std::vector<std::int64_t> fixed_bytes(const graph& g, const legal_set& legal, std::size_t ticks);

// ---- validator_bound_groups.cpp: the cheapest configuration of storages that depend on each other -------

struct group_cost {
  double priced = 0.0;                       ///< no configuration costs less under the prices
  double work = 0.0;                         ///< nor adds less work, in ms
  double most_bytes = 0.0, most_work = 0.0;  ///< nor holds, moves and adds more
  std::vector<double> movable;               ///< bytes that can move, per class, at most
  bool exact = true;                         ///< all configurations were looked at
  bool legal = true;                         ///< there is one
};

/// `budget`: configurations that may still be looked at one by one; groups with more are bounded from below.
group_cost cheapest(const plan& p, const legal_set& legal, const tick_prices& prices, const choice_group& c,
                    std::int64_t& budget);

}  // namespace stash::planner::validation
