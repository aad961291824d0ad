// SPDX-License-Identifier: Apache-2.0
#include "optimizer/step_log.hpp"

#include <string>
#include <vector>

#include "optimizer/analyse/layer_names.hpp"
#include "optimizer/choice_log.hpp"

namespace stash_tf {

namespace {

void log_graph_as_read(const optimized_step& s, logged_graph* log) {
  log->batch_open = s.read->sizes.batch_open();
  log->batch = s.read->batch;
  if (!s.analysis) return;
  log->left = s.analysis->left;
  log->unknown_layers = unknown_layers(s.read->graph, s.wishes.keep);
  if (!s.untouched) return;
  log->lists_in_loops = s.untouched->unknown_lists;
  log->unknown_sizes = s.analysis->unknown_sizes;
  log->unknown_size = s.analysis->unknown_size;
}

// Of one sample where that is all one knows.
std::int64_t logged_bytes(const optimized_step& s, std::int64_t bytes) {
  const tensor_sizes& sizes = s.read->sizes;
  return sizes.batch_known() ? bytes : bytes / sizes.batch();
}

void log_plan(const optimized_step& s, logged_graph* log) {
  const candidate& best = *s.best;
  log->recomputed_maps = best.copies.maps + best.lists.recomputed;
  log->recomputed_ops = best.copies.ops + best.lists.ops;
  log->recomputed_bytes = best.copies.bytes + best.lists.recomputed_bytes;
  log->lists = best.lists.changed();
  log->loops = best.ordered.loops_held_back;
  log->predicted_peak_bytes = logged_bytes(s, best.peak());
  log->predicted_host_bytes = logged_bytes(s, best.result.simulated.host_bytes);
  const step_context context = best.context(s.terms());
  log->tensors = logged_choices(context, best.result);
  log->tensors.insert(log->tensors.end(), best.lists.tensors.begin(), best.lists.tensors.end());
  if (s.request->swap) log->swap = word_on_swapping(context, best.result);
}

void log_verdict(const optimized_step& s, logged_graph* log) {
  const candidate& best = *s.best;
  const verdict& decided = *s.decided;
  log->smallest_budget_bytes = decided.smallest_budget_bytes;
  log->budget = decided.over_accepted;
  log->reason = decided.reason;
  if (decided.becomes == fate::left || decided.becomes == fate::watched)
    log->predicted_peak_bytes = log->predicted_plain_bytes;
  log->ordered = decided.becomes == fate::changed && decided.lower && best.result.graph.stashes == 0 &&
                 best.lists.encoded == 0 && best.sums == 0;
  log->counts_samples = s.finished.counts_samples;
  if (decided.higher || !s.finished.fault.empty()) log->tensors.clear();
}

// Nothing of the plan runs.
void take_back(logged_graph* log) {
  log->sums = log->loops = log->recomputed_maps = log->recomputed_ops = 0;
  log->recomputed_bytes = 0;
}

}  // namespace

logged_graph log_of(const optimized_step& s) {
  logged_graph log;
  log.generation = s.wishes.generation;
  log.policy = s.wishes.policy;
  log.budget_bytes = s.wishes.budget_bytes;
  log.rewritten = s.status.ok();
  if (s.read) log_graph_as_read(s, &log);
  if (s.split) log.sums = s.split->sums;
  if (s.request) {
    log.predicted_plain_bytes = logged_bytes(s, s.untouched->peak_bytes);
    if (s.request->swap) log.machine = s.request->machine;
    if (s.wishes.swap && !s.request->swap)
      log.swap = "nothing moves to the host: the tensors of this step lie in its memory already";
  }
  if (s.best) log_plan(s, &log);
  if (s.decided) log_verdict(s, &log);
  if (!s.failure.empty()) {
    log.reason = s.refusal.empty() ? s.failure : s.refusal;
    log.predicted_peak_bytes = log.predicted_plain_bytes;
  }
  if (!log.rewritten) take_back(&log);
  if (!log.rewritten && log.reason.empty()) log.reason = std::string(s.status.message());
  return log;
}

}  // namespace stash_tf
