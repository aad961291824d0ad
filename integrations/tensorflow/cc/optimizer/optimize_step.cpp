// SPDX-License-Identifier: Apache-2.0
#include "optimizer/optimize_step.hpp"

#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "optimizer/analyse_step.hpp"
#include "optimizer/best_candidate.hpp"

namespace stash_tf {

namespace {

using tensorflow::GraphDef;
using tensorflow::grappler::Cluster;
using tensorflow::grappler::GrapplerItem;

absl::Status run_stages(const Cluster* cluster, const GrapplerItem& item, const tensor_sizes::named& earlier,
                        optimized_step* s) {
  absl::StatusOr<read_step> found = read(item, cluster, s->wishes, earlier);
  if (!found.ok()) return found.status();
  s->read = *std::move(found);
  const graph_view& graph = s->read->graph;
  if (s->read->sizes.too_large())
    return nothing_to_do(
        absl::StrCat("with a batch of ", s->wishes.batch,
                     " samples its tensors are larger than any memory: give the real batch"));

  s->analysis = analyse_step(*s->read, graph, s->read->sizes, s->wishes);
  if (const std::string why = why_left(graph, *s->analysis, s->wishes); !why.empty())
    return nothing_to_do(why);
  s->untouched = simulated_footprint(graph, graph, s->read->sizes, *s->analysis, {});
  s->split =
      candidate::with_split_sums(item.graph, *s->analysis, s->untouched->peak_bytes, {*s->read, s->wishes});

  const step& split = s->split->analysis;
  s->device = device_of(cluster, s->split->graph().node(split.device_node).device(), s->wishes);
  s->request = wishes_on(s->device, split.on_device, s->wishes);
  s->best = best_candidate(*s->split, s->untouched->unknown_lists, s->terms());
  s->decided = decide(*s->best, *s->untouched, *s->request);
  if (s->decided->becomes == fate::left) return nothing_to_do(s->decided->reason);
  s->finished =
      finish(item.graph, std::move(s->best->result.graph.graph), *s->best, *s->decided, *s->request);
  if (!s->finished.fault.empty()) throw std::runtime_error(s->finished.fault);
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<optimized_step> optimize_step(const Cluster* cluster, const GrapplerItem& item,
                                              settings wishes, const tensor_sizes::named& earlier) {
  auto s = std::make_unique<optimized_step>();
  s->wishes = std::move(wishes);
  try {
    s->status = run_stages(cluster, item, earlier, s.get());
  } catch (const std::exception& e) {
    s->failure = e.what();
    s->status = nothing_to_do(s->failure);
    if (s->wishes.budget_bytes == 0 || s->wishes.accepted) return s;
    s->refusal = absl::StrCat("no plan keeps the budget of ", s->wishes.budget_bytes,
                              " bytes, because planning failed: ", s->failure);
    absl::StatusOr<GraphDef> refused = refused_unplanned(item.graph, s->refusal);
    s->status = refused.status();
    if (refused.ok()) s->finished.graph = *std::move(refused);
  }
  return s;
}

}  // namespace stash_tf
