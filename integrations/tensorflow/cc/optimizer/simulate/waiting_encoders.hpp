// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Encoders of a simulated step whose decoders have all run, so that only readers of bits want their result.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "optimizer/graph/graph_view.hpp"
#include "optimizer/simulate/simulated_memory.hpp"

namespace stash_tf {

class waiting_encoders {
 public:
  /// Refers to both.
  waiting_encoders(const graph_view& graph, const simulated_memory& memory);

  /// A task is about to end.
  void end(task t);
  /// Those whose result is there yet.
  std::vector<int> kept_for_bits();

 private:
  const simulated_memory& memory_;
  std::vector<int> encoders_;      ///< with decoders
  std::map<int, int> number_;      ///< of an encoder among these
  std::set<int> decoded_;          ///< numbers of those whose decoders have run all
  std::map<int, int> decoding_;    ///< decoders that have not run, by encoder
  std::map<int, int> encoder_of_;  ///< by decoder, through the host or not
  std::map<int, int> run_of_;      ///< the iteration in which an encoder has run
};

}  // namespace stash_tf
