// SPDX-License-Identifier: Apache-2.0
#include "stash/tensor_view.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "encoders/detail.hpp"
#include "encoders/public_call.hpp"

namespace stash {

shape::shape(std::initializer_list<std::int64_t> dims) try
    : shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {
} catch (...) {
  encoders::rethrow("shape");
}

shape::shape(std::span<const std::int64_t> dims) try {
  constexpr std::string_view function = "shape";
  if (dims.size() > max_rank) {
    encoders::fail(errc::invalid_argument, function, "dims", fmt::format("at most {} dimensions", max_rank),
                   fmt::format("{}", dims.size()));
  }
  std::int64_t product = 1;  // zeros count as one, so that elements() cannot overflow on its way to a zero
  for (const std::int64_t dim : dims) {
    if (dim < 0) {
      encoders::fail(errc::invalid_argument, function, "dims", "no negative dimension",
                     fmt::format("{}", dim));
    }
    // Not by a division, of which one per dimension was a good part of a call in C on a small map.
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(dim, 1), &product) ||
        product > encoders::max_elements) {
      encoders::fail(errc::invalid_argument, function, "dims", "at most 2^56 elements",
                     fmt::format("{}", fmt::join(dims, " x ")));
    }
    dims_[static_cast<std::size_t>(rank_++)] = dim;
  }
} catch (...) {
  encoders::rethrow("shape");
}

}  // namespace stash
