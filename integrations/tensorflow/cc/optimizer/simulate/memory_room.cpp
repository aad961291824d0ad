// SPDX-License-Identifier: Apache-2.0
#include "optimizer/simulate/memory_room.hpp"

namespace stash_tf {

memory_room::memory_room(const std::vector<simulated_op>& ran, std::int64_t bound) {
  for (const simulated_op& op : ran) {
    if (at(op.node) >= position_.size()) position_.resize(at(op.node) + 1, -1);
    position_[at(op.node)] = static_cast<int>(free_.size());
    free_.push_back(bound - op.live);
  }
}

bool memory_room::take(int first, int last, std::int64_t bytes) {
  if (!knows(first) || !knows(last)) return false;
  const int begin = position(first) + 1;
  const int end = position(last);
  for (int k = begin; k < end; ++k)
    if (free_[at(k)] < bytes) return false;
  for (int k = begin; k < end; ++k)
    free_[at(k)] -= bytes;
  return true;
}

int memory_room::position(int node) const {
  return node >= 0 && at(node) < position_.size() ? position_[at(node)] : -1;
}

}  // namespace stash_tf
