// SPDX-License-Identifier: Apache-2.0
#include "reproduce/reproduce.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "encoders/message.hpp"
#include "executor/kernels/kernel.hpp"
#include "models/models.hpp"
#include "reproduce/reproduce_rows.hpp"
#include "stash/error.hpp"

namespace stash::tools {

planner::graph network_graph(const std::string& name, const network_size& size, int threads) {
  const models::model_info& info = models::find(name);
  planner::graph g;
  if (info.make_graph != nullptr) {
    models::graph_parameters p = info.default_parameters;
    if (size.side > 0) p.side = size.side;
    if (size.steps > 0) p.steps = size.steps;
    p.loss_chunk = size.loss_chunk;
    g = info.make_graph(size.batch, p);
  } else {
    planner::training_graph_options options;
    options.fused_update = size.fused_update;
    g = planner::make_training_graph(info.build(info.default_input, info.default_classes), size.batch,
                                     options);
  }
  static_cast<void>(executor::annotate_workspaces(g, {threads, framework_rule::tensorflow}));
  return g;
}

nlohmann::ordered_json to_json(const table_row& r) {
  nlohmann::ordered_json j{{"what", r.what},           {"published", r.published}, {"ours", r.ours},
                           {"figure", r.figure},       {"target", nullptr},        {"reached", nullptr},
                           {"simulated", r.simulated}, {"executed", "nothing"},    {"limit", r.limit},
                           {"verified", r.verified},   {"seconds", r.seconds}};
  if (r.has_target()) {
    j["target"] = r.target;
    j["reached"] = r.reached();
    if (r.goal) j["goal"] = true;
  }
  return j;
}

namespace {

struct table {
  const char* name;
  void (*make)(const reproduction&);
};
constexpr table tables[] = {
    {"gist", gist_table}, {"meng", meng_table}, {"lms", lms_table}, {"layrub", layrub_table}};

}  // namespace

void reproduce(const std::string& name, const reproduction& r) {
  const auto* const found =
      std::find_if(std::begin(tables), std::end(tables), [&](const table& t) { return t.name == name; });
  if (found == std::end(tables)) {
    std::vector<std::string> names;
    for (const table& t : tables)
      names.emplace_back(t.name);
    throw error(errc::invalid_argument, fmt::format("reproduce: table: expected one of {}, got '{}'",
                                                    fmt::join(names, ", "), shortened(name)));
  }
  if (r.add) found->make(r);
}

}  // namespace stash::tools
