#include "reproduce.hpp"

#include <fmt/format.h>

#include "executor/kernel.hpp"
#include "models/models.hpp"
#include "stash/error.hpp"

namespace stash::tools {

planner::graph network_graph(const std::string& name, const network_size& size, int threads) {
  const models::model_info& info = models::find(name);
  planner::graph g;
  if (info.make_graph != nullptr) {
    models::graph_parameters p = info.default_parameters;
    if (size.side > 0) p.side = size.side;
    if (size.steps > 0) p.steps = size.steps;
    g = info.make_graph(size.batch, p);
  } else {
    g = models::default_graph(info, size.batch);
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
  }
  return j;
}

}  // namespace stash::tools
