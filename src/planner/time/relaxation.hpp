// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The linear relaxation of a step_problem: options may be taken in shares, bytes on a link are
/// interchangeable. Its value is a lower bound on the time of every plan; its dual prices prove the bound
/// without a solver and say what a byte and a millisecond are worth at every step.
///
/// Per step k: T (duration), S and F (bytes sent and fetched so far), H (bytes that belong to the device:
/// held, released and not yet needed back), A (bytes released so far), B (bytes needed so far). Minimise sum
/// T subject to, with the prices named as below,
///     held:      H_k - H_(k-1) = sum z dH_k      released: A_k - A_(k-1) = sum z dA_k
///     needed:    B_k - B_(k-1) = sum z dB_k      one:      sum over options z = 1
///     sent:      S_k <= A_k                      fetched:  F_k <= S_k
///     deadline:  F_(k-1) >= B_k                  host:     S_k - F_k <= host bytes
///     compute:   T_k >= ms_k + sum z work_k      out, in:  T_k >= (S_k - S_(k-1)) / rate, the same for F
///     both_out, both_in: T_k >= out + (1/contention - 1) in, and the other way round
///     begin:     fixed_first + H_k - S_(k-1) + F_(k-1) <= limit
///     end:       fixed_last  + H_k - S_k     + F_k     <= limit
///     inner:     fixed       + H_k - S_k     + F_(k-1) <= limit
/// S and F never fall, which needs no prices. Sources: docs/planning.md.

#include <functional>
#include <vector>

#include "planner/time/problem.hpp"

namespace stash::planner {

/// One price per step (or per item, `one`), in ms per unit of the row; an empty list stands for zeros. Prices
/// of rows written with <= are at most 0 when the row is written as above, those with >= at least 0.
struct dual_prices {
  std::vector<double> held, released, needed, sent, fetched, deadline, host, compute, out, in, both_out,
      both_in, begin, end, inner;
};

/// Calls visit(name, list) for every row of prices.
template <class Prices, class Visit>
void for_each_price_row(Prices& d, Visit visit) {
  visit("held", d.held);
  visit("released", d.released);
  visit("needed", d.needed);
  visit("sent", d.sent);
  visit("fetched", d.fetched);
  visit("deadline", d.deadline);
  visit("host", d.host);
  visit("compute", d.compute);
  visit("out", d.out);
  visit("in", d.in);
  visit("both_out", d.both_out);
  visit("both_in", d.both_in);
  visit("begin", d.begin);
  visit("end", d.end);
  visit("inner", d.inner);
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

/// Sum of durations without any choice: the time that every plan takes at least.
double least_ms(const step_problem& p);

}  // namespace stash::planner
