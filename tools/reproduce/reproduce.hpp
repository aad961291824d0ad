// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Tables of papers next to our plans (`stash reproduce`). Everything in them is planned and simulated;
/// nothing is executed.

#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/graph/machine.hpp"
#include "reproduce/growth.hpp"

namespace stash::tools {

struct table_row {
  std::string what;       ///< network, size, policy
  std::string published;  ///< figure of the paper, or "-"
  std::string ours;
  double figure = 0.0;                                       ///< the number in `ours` that a target is about
  double target = std::numeric_limits<double>::quiet_NaN();  ///< NaN: none
  bool at_most = false;                                      ///< target is an upper limit
  bool goal = false;                                         ///< target is one beyond what is asked for
  std::string simulated;                                     ///< what was simulated, on which machine
  std::string limit;                                         ///< what binds
  std::string verified;  ///< "yes": validate() found nothing; "-": no plan
  double seconds = 0.0;
  bool has_target() const { return target == target; }
  bool reached() const { return at_most ? figure <= target : figure >= target; }
};

struct reproduction {
  int threads = 1;
  std::int32_t evaluations = 6000;
  std::uint64_t seed = 1;
  double tolerance = 0.01;
  std::string only;  ///< rows whose text does not contain it are left out
  std::function<bool()> stop;
  std::function<void(const std::string&)> progress;
  std::function<void(const table_row&)> add;

  bool wants(const std::string& what) const { return only.empty() || what.find(only) != std::string::npos; }
  bool stopped() const { return stop && stop(); }
};

/// Makes the rows of one table, in order, until they are done or `stopped`; without `add` the name is only
/// checked. Throws error(invalid_argument) that lists the tables for another name.
void reproduce(const std::string& name, const reproduction& r);

nlohmann::ordered_json to_json(const table_row& row);

/// A graph of a network at a size, with the workspaces of this machine.
struct network_size {
  std::int64_t batch = 64;
  std::int64_t side = 0, steps = 0;  ///< 0: the network's own
  std::int64_t loss_chunk = 0;       ///< positions of a sequence whose logits exist at once; 0: all
  bool fused_update = false;         ///< networks of images: each layer's update in the backward pass
};
planner::graph network_graph(const std::string& name, const network_size& size, int threads);

}  // namespace stash::tools
