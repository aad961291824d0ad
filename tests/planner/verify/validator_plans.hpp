// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// A small training graph and correct plans for it, written by hand for the tests of the validator: nothing
/// of the planner takes part in them.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan.hpp"

namespace stash::planner::testing {

/// Two branches after conv - relu - max_pool, joined by a concatenation:
///   s = relu(conv1(images)), p = max_pool(s)
///   c = conv2(p), b = relu(norm(c)), k[0, 8) = relu(conv3(b)), k[8, 16) = relu(conv4(p))
///   probabilities = softmax(dense(k))
/// The batch is 4.
graph make_test_graph();

/// A plan whose steps are added one by one. Buffers are named after what they hold: "k" is the dense buffer
/// of storage k, "k.enc" its encoded form, "k#2" and so on further dense buffers. finish() derives ranges of
/// steps from the use and places the buffers by first fit.
struct test_plan {
  plan p;
  std::map<std::string, buffer_id, std::less<>> names;

  explicit test_plan(policy chosen);

  storage_id storage_of(std::string_view name) const;
  op_id op_of(std::string_view name) const;
  stash_choice& choice(std::string_view storage) { return p.choices[storage_of(storage)]; }
  buffer& at(std::string_view name) { return p.buffers[names.find(name)->second]; }
  buffer_id id(const std::string& name);
  /// Index of the step that runs an op, or of the n-th step of a kind for a storage.
  std::size_t run_step(std::string_view op) const;
  std::size_t step_of(step_kind kind, std::string_view storage, int n = 0) const;
  step& run_of(std::string_view op) { return p.steps[run_step(op)]; }

  void choose(std::string_view storage, stash_kind kind, encoding stored = {}, double density = 1.0);
  void run(std::string_view op, const std::vector<std::string>& stash = {},
           const std::vector<std::string>& optional = {});
  void encode(std::string_view storage);
  void decode(std::string_view storage, const std::string& to);
  void recompute(std::string_view storage, std::string_view op, const std::vector<std::string>& from,
                 const std::string& to);
  void finish();
  /// Makes the reported sizes agree with the buffers again.
  void update_sizes();

  /// Two steps are swapped with the ranges of the buffers kept as they are.
  void swap_steps(std::size_t a, std::size_t b);
  /// The ranges of the buffers follow.
  void erase_step(std::size_t i);
  void duplicate_step(std::size_t i);
};

/// Everything raw.
test_plan make_plain_plan();
/// sign_mask, bitmap, window_index, recompute without a mask.
test_plan make_lossless_plan();
/// cast and bitmap with fp8 values, recompute over a decoded source with a mask, an overflow arena.
test_plan make_fp8_plan();

}  // namespace stash::planner::testing
