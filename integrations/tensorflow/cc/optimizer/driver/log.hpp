// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the optimizer did, for reports (README.md, "Log and counters").

#include <cstdint>
#include <string>
#include <vector>

namespace stash_tf {

struct logged_tensor {
  std::string tensor, layer, op, type;
  std::int64_t elements = 0, elements_per_sample = 0;
  std::int64_t dense_bytes = 0, stored_bytes = 0;
  /// Of the loop that makes one of these in each of its iterations; 0: it is made once; -1: not known.
  std::int64_t iterations = 0;
  std::int64_t host_bytes = 0;  ///< of the stored bytes, those that go to the host and come back
  std::vector<std::string> needs;
  std::string choice, reason;
  std::vector<std::string> readers;
};

struct left_node {
  std::string node, op, reason;
};

struct logged_graph {
  std::string id;
  std::int64_t serial = 0;      ///< of all graphs of the process, from 1 on; log_graph() sets it
  std::int64_t generation = 0;  ///< of the settings
  int nodes = 0;
  bool rewritten = false;
  bool seeded = false;  ///< it draws random numbers from kernels that go on from call to call, with a seed
  std::string reason;
  std::string policy;
  std::int64_t batch = 0;
  bool batch_open = false;      ///< the graph leaves the batch to its inputs
  bool lists_in_loops = false;  ///< it has loops with lists of tensors whose size is not known
  /// How often its backward pass reads tensors whose size is not known before it runs, and one of them;
  /// predicted peaks count nothing for them.
  int unknown_sizes = 0;
  std::string unknown_size;
  bool counts_samples = false;  ///< counters of its ops tell how large that is
  std::int64_t budget_bytes = 0;
  std::int64_t predicted_peak_bytes = 0, predicted_plain_bytes = 0, smallest_budget_bytes = 0;
  std::int64_t predicted_host_bytes = 0;
  std::string machine;      ///< what moves were planned for; empty without the wish
  std::string swap;         ///< what became of the wish to move tensors to the host; empty without one
  std::string budget;       ///< that the data need more than an accepted budget; empty where they do not
  bool ordered = false;     ///< none of our kernels runs: ops wait for others or run again
  int recomputed_maps = 0;  ///< that the backward pass computes again
  int recomputed_ops = 0;   ///< that were copied for them
  std::int64_t recomputed_bytes = 0;        ///< of these maps
  int sums = 0;                             ///< of gradients, that are added up as they come
  int lists = 0;                            ///< of loops, whose elements are encoded or computed again
  int loops = 0;                            ///< of the backward pass, whose iterations run one by one
  std::vector<std::string> unknown_layers;  ///< that were to be kept, but are not in this graph
  double seconds = 0;
  std::vector<logged_tensor> tensors;
  std::vector<left_node> left;
};

/// Thread-safe; keeps the newest thousand graphs.
void log_graph(logged_graph graph);

}  // namespace stash_tf
