// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The memory of a simulated step: buffers, how often each is held, and how many bytes are alive. A list of
/// tensors is a buffer without bytes that holds others.

#include <cstdint>
#include <utility>
#include <vector>

#include "optimizer/graph/graph_view.hpp"

namespace stash_tf {

class buffers {
 public:
  static constexpr int none = -1;   ///< in place of a buffer: what costs nothing here
  static constexpr int empty = -2;  ///< an element of a list that nobody has written

  int add(std::int64_t bytes, int holders, bool on_host = false);
  /// Of no elements.
  int add_list(int holders);

  bool is_list(int b) const { return b >= 0 && all_[at(b)].is_list; }
  std::int64_t bytes(int b) const { return b < 0 ? 0 : all_[at(b)].bytes; }
  int holders(int b) const { return all_[at(b)].holders; }
  void hold(int b, int times);
  void release(int b);
  /// One that is held and takes nothing so far.
  void give_bytes(int b, std::int64_t bytes);

  const std::vector<int>& elements(int list) const { return all_[at(list)].elements; }
  /// Puts a buffer into a list in place of what was there. Within lists it counts as `weight` of its kind.
  void put(int list, std::size_t position, int element, double weight);
  void append(int list, int element, double weight);
  /// Of how many of its kind it stands for within lists.
  double weight(int b) const;
  /// Takes the last element out; the caller holds it then `times`.
  int pop(int list, int times);

  std::int64_t live_bytes() const { return live_; }
  std::int64_t host_bytes() const { return host_; }

 private:
  struct buffer {
    std::int64_t bytes = 0;
    int holders = 0;
    bool on_host = false;
    bool is_list = false;
    int in_lists = 0;
    std::int64_t more_in_lists = 0;  ///< bytes beyond its own while a list holds it
    std::vector<int> elements = {};
  };

  void enter(int element, double weight);
  void leave(int element);

  std::vector<buffer> all_;
  std::int64_t live_ = 0, host_ = 0;
};

}  // namespace stash_tf
