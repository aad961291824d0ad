// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/einsum_copies.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stash_tf {

namespace {

using labels = std::vector<int>;  // of a tensor's dimensions

// In the order in which the kernel wants them.
enum class role { broadcast, batch, row, contracted, summed };

class einsum {
 public:
  // The letters by their first appearance, then the dimensions that an ellipsis stands for.
  bool parse(const std::string& equation, const std::vector<const tensor_size*>& operands,
             const tensor_size& result) {
    const std::size_t arrow = equation.find("->");
    if (arrow == std::string::npos) return false;
    for (const char c : equation)
      if (std::string_view(",.->").find(c) == std::string_view::npos && letters_.find(c) == std::string::npos)
        letters_ += c;
    std::size_t begin = 0;
    for (const tensor_size* x : operands) {
      if (begin > arrow) return false;
      const std::size_t end = std::min(arrow, equation.find(',', begin));
      operands_.emplace_back();
      if (!read(equation.substr(begin, end - begin), x->dims.size(), &operands_.back())) return false;
      begin = end + 1;
    }
    return begin > arrow && read(equation.substr(arrow + 2), result.dims.size(), &result_);
  }

  bool is_copied(std::size_t operand) const {
    const labels& all = operands_[operand];
    const auto sorted = [&](const std::array<int, 5>& places) {
      const auto key = [&](int label) {
        return std::pair(places[static_cast<std::size_t>(role_of(label))], label);
      };
      return std::is_sorted(all.begin(), all.end(), [&](int a, int b) { return key(a) < key(b); });
    };
    return all.size() > 1 && !sorted({0, 1, 2, 3, 4}) && !sorted({0, 1, 3, 2, 4});
  }

  // By how much its sum over dimensions of its own is smaller.
  std::int64_t shrinks_by(std::size_t operand, const tensor_size& x) const {
    std::int64_t times = 1;
    for (std::size_t k = 0; k < x.dims.size(); ++k)
      if (role_of(operands_[operand][k]) == role::summed) times *= x.dims[k];
    return std::max<std::int64_t>(1, times);
  }

  // What the product has in another order than the result: batches, then the rows of both operands.
  bool turns_result() const {
    labels made;
    for (const role kind : {role::broadcast, role::batch}) {
      labels some;
      for (const int label : result_)
        if (role_of(label) == kind) some.push_back(label);
      std::sort(some.begin(), some.end());
      made.insert(made.end(), some.begin(), some.end());
    }
    for (const labels& operand : operands_) {
      labels rows;
      for (const int label : operand)
        if (role_of(label) == role::row) rows.push_back(label);
      std::sort(rows.begin(), rows.end());
      made.insert(made.end(), rows.begin(), rows.end());
    }
    return result_.size() > 1 && made != result_;
  }

 private:
  bool read(const std::string& subscript, std::size_t rank, labels* found) const {
    const std::size_t dots = subscript.find("...");
    const std::size_t named = subscript.size() - (dots == std::string::npos ? 0 : 3);
    if (rank < named || (dots == std::string::npos && rank != named)) return false;
    for (std::size_t k = 0; k < subscript.size(); ++k) {
      if (k == dots) {
        for (std::size_t d = 0; d < rank - named; ++d)
          found->push_back(static_cast<int>(letters_.size() + d));
        k += 2;
        continue;
      }
      const int label = static_cast<int>(letters_.find(subscript[k]));
      if (has(*found, label)) return false;
      found->push_back(label);
    }
    return true;
  }

  static bool has(const labels& all, int label) {
    return std::find(all.begin(), all.end(), label) != all.end();
  }

  role role_of(int label) const {
    if (label >= static_cast<int>(letters_.size())) return role::broadcast;
    const bool shared = operands_.size() > 1 && has(operands_[0], label) && has(operands_[1], label);
    if (has(result_, label)) return shared ? role::batch : role::row;
    return shared ? role::contracted : role::summed;
  }

  std::string letters_;
  std::vector<labels> operands_;
  labels result_;
};

}  // namespace

std::int64_t einsum_workspace_bytes(const graph_view& graph, int node, const tensor_sizes& sizes) {
  std::vector<const tensor_size*> operands;
  for (const source& s : graph.inputs(node))
    if (!s.is_control()) operands.push_back(sizes.find(s));
  const tensor_size* result = sizes.find({node, 0});
  const auto& attr = graph.node(node).attr();
  const auto equation = attr.find("equation");
  if (result == nullptr || equation == attr.end() || operands.empty() || operands.size() > 2 ||
      std::count(operands.begin(), operands.end(), nullptr) > 0)
    return 0;
  einsum e;
  if (!e.parse(equation->second.s(), operands, *result)) return 0;
  std::int64_t held = 0;
  std::int64_t most = 0;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const std::int64_t bytes = operands[k]->bytes();
    const std::int64_t times = e.shrinks_by(k, *operands[k]);
    const std::int64_t copy = e.is_copied(k) ? bytes : 0;
    const std::int64_t sum = times > 1 ? bytes / times : 0;
    most = std::max(most, held + copy + sum);
    held += times > 1 ? sum : copy;
  }
  // Of one operand the sum, or the copy, is the result.
  const bool product = operands.size() > 1;
  const std::int64_t results = (product ? 1 : 0) + (e.turns_result() ? 1 : 0);
  most = std::max(most, held + results * result->bytes());
  return std::max<std::int64_t>(0, most - result->bytes());
}

}  // namespace stash_tf
