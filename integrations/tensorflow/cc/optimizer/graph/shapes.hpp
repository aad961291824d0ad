// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How large tensors are, as far as the graph says it.

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "optimizer/graph/graph_view.hpp"
#include "tensorflow/core/grappler/grappler_item.h"

namespace stash_tf {

/// A tensor whose size is known, up to the number of samples.
struct tensor_size {
  tensorflow::DataType type = tensorflow::DT_INVALID;
  std::vector<std::int64_t> dims;  ///< with the batch in place of its symbol
  std::int64_t elements = 0;
  bool per_sample = false;  ///< one dimension or more are the unknown batch
  int batch_dims = 0;       ///< how many are
  int batch_dim = -1;       ///< the first of them
  bool is_odd = false;      ///< a dimension grows with the batch, but not as the batch does

  std::int64_t bytes() const;
  /// Whether it is the same for every batch.
  bool is_fixed() const { return batch_dims == 0 && !is_odd; }
  /// What the unknown batch multiplies its elements by, for a batch of so many samples.
  std::int64_t growth(std::int64_t batch) const;
  /// Elements of one sample; 0 where elements do not tell how many samples there are: of a tensor without the
  /// unknown batch, or with several.
  std::int64_t sample_elements(std::int64_t batch) const;
};

class tensor_sizes {
 public:
  /// `batch` stands for the unknown batch; 0: a nominal number.
  static absl::Status infer(const tensorflow::grappler::GrapplerItem& item, const graph_view& graph,
                            std::int64_t batch, tensor_sizes* result);

  /// What is known, by the names of nodes.
  using named = std::unordered_map<std::string, std::vector<tensor_size>>;
  named by_name(const graph_view& graph) const;
  /// Takes over what was known of nodes of the same name, with the same batch, where it is not known now.
  void fill_in(const graph_view& graph, const named& earlier);

  /// Of the only output of the node that comes after all that are known.
  void add(tensor_size s) { of_node_.push_back({std::move(s)}); }
  /// Of a copy of `node`, likewise.
  void add_like(int node) { of_node_.push_back(of_node_.at(at(node))); }
  /// Of a node of the graph whose output has become another one.
  void set(const source& tensor, tensor_size s);

  /// Null if not known, as of nodes that were added later.
  const tensor_size* find(const source& tensor) const;
  /// Whether it holds floating-point numbers, and the graph does not say how many.
  bool is_unknown_number(const source& tensor) const;
  /// Samples that sizes were computed with; `batch_known()` says whether that is more than a guess.
  std::int64_t batch() const { return batch_; }
  bool batch_known() const { return !batch_open_ || batch_is_set_; }
  /// Whether a tensor is larger than any memory with this batch: then its size is not known.
  bool too_large() const { return too_large_; }
  /// Whether the graph leaves the batch to its inputs.
  bool batch_open() const { return batch_open_; }

 private:
  bool has_unknown() const;

  std::vector<std::vector<tensor_size>> of_node_;  // elements below 0: not known
  std::int64_t batch_ = 0;
  bool batch_is_set_ = false;
  bool batch_open_ = false;
  bool too_large_ = false;
};

/// Bytes of one element, 0 for types without a fixed size.
std::int64_t element_bytes(tensorflow::DataType type);

}  // namespace stash_tf
