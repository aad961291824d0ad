// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The linear relaxation of a step_problem: options may be taken in shares, bytes on a link are
/// interchangeable. Its value is a lower bound on the time of every plan; its dual prices prove the bound
/// without a solver and say what a byte and a millisecond are worth at every step.
///
/// Transfers are in classes by size, since a small one takes more time for a byte: latency + bytes / rate.
/// Per step k: T (duration), H (bytes that belong to the device: held, released and not yet needed back), and
/// for each class S and F (bytes sent and fetched so far), A (bytes released so far), B (bytes needed so
/// far). Minimise sum T subject to, with the prices named as below,
///     held:      H_k - H_(k-1) = sum z dH_k      one:      sum over options z = 1
///     compute:   T_k >= ms_k + sum z work_k
///     out, in:   T_k >= sum over classes of ms_per_byte (S_k - S_(k-1)), the same for F
///     both_out, both_in: T_k >= out + (1/contention - 1) in, and the other way round
///     begin:     fixed_first + H_k - sum S_(k-1) + sum F_(k-1) <= limit
///     end:       fixed_last  + H_k - sum S_k     + sum F_k     <= limit
///     inner:     fixed       + H_k - sum S_k     + sum F_(k-1) <= limit
///     host:      sum S_k - sum F_k <= host bytes
/// and for each class
///     released:  A_k - A_(k-1) = sum z dA_k      needed:   B_k - B_(k-1) = sum z dB_k
///     sent:      S_k <= A_k                      fetched:  F_k <= S_k
///     deadline:  F_(k-1) >= B_k
/// S and F never fall, which needs no prices. Sources: docs/planning.md.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/time/problem.hpp"

namespace stash::planner {

/// The sizes by which transfers are in classes, ascending: class c holds those of at most limits[c] bytes
/// that are in no class before it, and the last class all others. Empty: one class, whose latency is not
/// counted.
using class_limits = std::vector<std::int64_t>;

/// The class of a transfer.
std::size_t class_of(const class_limits& limits, std::int64_t bytes) noexcept;

/// Classes that tell apart what the link's latency makes dear, where enough bytes could move in them; their
/// limits are sizes of transfers. Empty where there is no latency.
class_limits transfer_classes(const step_problem& p);

/// One price per step, in ms per unit of the row; an empty list stands for zeros. Prices of rows written with
/// <= are at most 0 when the row is written as above, those with >= at least 0.
struct class_prices {
  std::vector<double> released, needed, sent, fetched, deadline;
};
struct dual_prices {
  std::vector<double> held, host, compute, out, in, both_out, both_in, begin, end, inner;
  class_limits limits;
  std::vector<class_prices> classes;  ///< one per limit, but at least one where there is a link
};

/// Calls visit(name, list) for every row of prices. Names of a class after the first end with "/" and its
/// number.
template <class Prices, class Visit>
void for_each_price_row(Prices& d, Visit visit) {
  visit("held", d.held);
  visit("host", d.host);
  visit("compute", d.compute);
  visit("out", d.out);
  visit("in", d.in);
  visit("both_out", d.both_out);
  visit("both_in", d.both_in);
  visit("begin", d.begin);
  visit("end", d.end);
  visit("inner", d.inner);
  for (std::size_t c = 0; c < d.classes.size(); ++c) {
    const auto name = [c](const char* row) {
      std::string whole = row;
      if (c > 0) whole.append("/").append(std::to_string(c));
      return whole;
    };
    visit(name("released"), d.classes[c].released);
    visit(name("needed"), d.classes[c].needed);
    visit(name("sent"), d.classes[c].sent);
    visit(name("fetched"), d.classes[c].fetched);
    visit(name("deadline"), d.classes[c].deadline);
  }
}

struct relaxed {
  bool solved = false;      ///< an optimum was found
  bool infeasible = false;  ///< no shares fit the limit: no plan does either
  double ms = 0.0;          ///< the solver's value
  dual_prices prices;
  std::vector<std::vector<double>> shares;  ///< per item and option
};

/// Whether a solver was compiled in.
bool can_relax() noexcept;

/// Deterministic for one version of the solver. Without a solver, if it gives up, or if it was stopped:
/// solved == false. `stop` is asked now and then; true: it ends without a bound.
relaxed relax(const step_problem& p, const std::function<bool()>& stop = {});

/// What the planner asks the solver for at most: an eighth of the steps, not less than 1000 and not more than
/// 3500. Above it the time of a solution outgrows what it proves.
std::int32_t relaxed_steps(std::size_t steps) noexcept;

/// The same over at most `most_steps` steps, neighbours joined: proves a little less, in much less time.
/// Prices are those of p's own steps; ms is what they prove.
relaxed relax(const step_problem& p, std::int32_t most_steps, const std::function<bool()>& stop = {});

/// A lower bound on the time of every choice, from any prices: wrong prices give a low bound, never a wrong
/// one.
double bound_from(const step_problem& p, const dual_prices& prices);

/// Per item and option what it costs under the prices; the best option of every item is part of bound_from().
std::vector<std::vector<double>> priced_options(const step_problem& p, const dual_prices& prices);

/// ms per byte of a class in each direction: no transfer of the class takes less for a byte of its own. 0
/// where there is no link.
struct class_rate {
  double out_ms = 0.0, in_ms = 0.0;
};
std::vector<class_rate> class_rates(const step_problem& p, const class_limits& limits);

/// Sum of durations without any choice: the time that every plan takes at least.
double least_ms(const step_problem& p);

}  // namespace stash::planner
