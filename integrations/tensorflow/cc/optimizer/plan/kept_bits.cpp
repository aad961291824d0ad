// SPDX-License-Identifier: Apache-2.0
#include "optimizer/plan/kept_bits.hpp"

#include <algorithm>
#include <cstdint>

#include "optimizer/graph/needs.hpp"
#include "stash/c_api.h"

namespace stash_tf {

namespace {

constexpr double fine_bits = 16;

// Not those of one value: fp10 puts three into a word.
double bits_of_format(const std::string& name) {
  constexpr std::int64_t values = 3 << 16;
  stash_encoding cast = STASH_INIT(stash_encoding);
  std::size_t bytes = 0;
  if (stash_parse_encoding(name.c_str(), &cast) != STASH_OK ||
      stash_encoded_bytes_bound(&cast, STASH_DTYPE_F32, values, &bytes) != STASH_OK)
    return fine_bits;
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(values);
}

}  // namespace

exactness exactness_of(const std::vector<std::string>& needs) {
  exactness wanted = exactness::none;
  for (const std::string& need : needs) {
    if (need == "value") wanted = std::max(wanted, exactness::value);
    if (need == "fine_value") wanted = std::max(wanted, exactness::fine);
    if (need == "exact_value") wanted = exactness::exact;
  }
  return wanted;
}

kept_bits::kept_bits(const settings& request) : lossy_(is_lossy(request)), narrowest_(fine_bits) {
  if (!lossy_) return;
  const std::vector<std::string> formats =
      request.policy == "auto" ? request.values : std::vector<std::string>{request.policy};
  for (const std::string& format : formats)
    narrowest_ = std::min(narrowest_, bits_of_format(format));
}

double kept_bits::of(const graph_view& graph, const stashed_block& b, exactness wanted) const {
  if (wanted == exactness::none) return 0;
  double bits = 8.0 * static_cast<double>(b.size.bytes()) /
                static_cast<double>(std::max<std::int64_t>(b.size.elements, 1));
  if (!b.exact_cast.empty()) bits = std::min(bits, fine_bits);
  if (lossy_ && wanted == exactness::fine) bits = std::min(bits, fine_bits);
  if (lossy_ && wanted == exactness::value) bits = std::min(bits, narrowest_);
  // One bit for each value says where the others are.
  return makes_zeros(graph, b.root.node) ? std::min(bits, 1 + b.density * bits) : bits;
}

}  // namespace stash_tf
