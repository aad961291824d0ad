// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Puts into the graph what was decided about lists of loops (encode_lists.hpp).

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optimizer/analyse/step.hpp"
#include "optimizer/graph/control_flow.hpp"
#include "optimizer/graph/graph_view.hpp"
#include "optimizer/graph/loops.hpp"
#include "optimizer/graph/shapes.hpp"
#include "optimizer/lists/list_recipes.hpp"
#include "optimizer/lists/loop_invariants.hpp"
#include "optimizer/plan/choices.hpp"
#include "optimizer/rewrite/unused_names.hpp"

namespace stash_tf {

/// Whether an encoding keeps a bit for each value and no values.
bool is_mask(const std::string& encoding);

/// Lists are numbered as step::lists. New nodes follow after those of the graph, and their sizes are added.
class list_rewriter {
 public:
  /// `result` holds a copy of the original.
  list_rewriter(const graph_view& graph, const step& analysis, const control_flow& flow, const loops& all,
                const std::vector<list_recipe>& again, const std::vector<block_choice>& chosen,
                tensor_sizes* sizes, tensorflow::GraphDef* result);

  /// The elements of a list in the form that was chosen for it.
  void encode(int k);

  /// What the recipe makes in place of the list, which stays empty.
  void compute_again(const list_recipe& r);

  /// What is the same in all iterations, computed before the loop and kept once.
  void keep_once(const loop_invariant& v);

  /// A list of which only shapes are asked, and these are known.
  void drop(int k);

 private:
  // A node of the loop's body, run once before it. A variable is read after whatever the loop waits for, and
  // before the loop begins, so that both read the same.
  void copy_before_loop(int i, const loop& body);

  // Nothing is put in or taken out.
  void empty(const listed_block& b);

  tensorflow::NodeDef* node(int i);

  static void changed(tensorflow::NodeDef* n);

  tensorflow::NodeDef made(const std::string& base_name, const char* op, int like);

  std::string add(tensorflow::NodeDef n, tensor_size size);

  std::string popped(const listed_block& b) const;

  // One encoder for all lists that get the same tensor in the same form.
  std::string encoded(const listed_block& b, const block_choice& choice);

  // The empty list, of bytes. The one that there is may begin other lists, too.
  const std::string& list_of_bytes(int begin);

  // What takes from a list: its elements are bytes, however many.
  void take_bytes(int pop);

  std::string any_shape(const source& shape, const tensorflow::NodeDef& list_op, int like);

  // A constant that all iterations of the loop of `like` read: it is made once, outside of the loop. In loops
  // within loops and on devices, each iteration makes it after `before`.
  std::string constant_of_loop(tensorflow::NodeDef constant, tensor_size size, int like, int before);

  void describe_enter(int loop, tensorflow::DataType type, tensorflow::NodeDef* enter) const;

  // The gradient that the reader meets whose turn comes first, also among those of what is computed again
  // from this list; -1: nothing says when that is.
  int gate_of(const listed_block& b) const;

  // The values of an element in the backward loop.
  std::string value_of(int k);

  // The shape of an element in the backward loop, as int64.
  const std::string& dims_of(int k);

  void serve(int k, const std::string& value);

  // Whoever asks for a shape would have the values decoded for it.
  void serve_shapes(int k);

  const std::string& narrow_dims_of(int k);

  // An empty tensor in place of one that nobody needs any more.
  std::string nothing(const listed_block& b);

  std::string input_of_copy(const source& s, const list_recipe& r, const std::map<int, std::string>& made);

  std::string copy_of_constant(int constant, int pop);

  void hold_back(int push);

  const graph_view& graph_;
  const step& step_;
  const control_flow& flow_;
  const loops& loops_;
  const std::vector<list_recipe>& again_;
  const std::vector<block_choice>& chosen_;
  tensor_sizes* sizes_;
  tensorflow::GraphDef* result_;
  unused_names names_;
  const std::vector<int> rank_;
  std::map<int, int> deciding_;                  // control_flow::deciding_variable, by loop
  std::map<int, int> like_;                      // lists of the same shape, by those that are computed again
  std::map<int, std::vector<int>> copied_from_;  // lists that are computed again, by those they are made of
  std::map<std::pair<source, std::string>, std::string> encoders_;
  std::map<int, std::string> once_;                           // copies before the loop, by node
  std::map<int, std::string> empty_;                          // by the list that it stands for
  std::map<int, std::string> decoders_, dims_, narrow_dims_;  // by list
  // By loop, device and dimensions.
  std::map<std::tuple<int, std::string, std::vector<std::int64_t>>, std::string> known_dims_;
  std::map<std::pair<int, bool>, std::string> any_shapes_;  // by the node of the shape that was given
};

}  // namespace stash_tf
