// SPDX-License-Identifier: Apache-2.0
#include "kernels/pooling/pool_nan.hpp"

#include <limits>

namespace stash_tf {
namespace {

using tensorflow::Tensor;
using dims = std::vector<std::int64_t>;

template <class T>
void follow(const pool_layer& layer, const T* x, const dims& x_dims, T* y, const dims& y_dims,
            std::int64_t elements, const stash_execution_context& context) {
  const T lowest = Eigen::NumTraits<T>::lowest();
  const auto mend = [&](std::int64_t i) {
    T most = lowest;
    layer.for_each_tap(x_dims, y_dims, i, [&](std::int64_t offset) {
      const T value = x[offset];
      if (value > most) most = value;
    });
    y[i] = most;
  };
  auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (!(y[i] >= lowest)) mend(i);
    }
  };
  constexpr std::int64_t grain = 32768;
  context.parallel_for(
      context.user, elements, grain,
      [](void* state, std::int64_t begin, std::int64_t end) {
        (*static_cast<decltype(run)*>(state))(begin, end);
      },
      &run);
}

}  // namespace

void follow_host_nan_rule(const pool_layer& layer, const Tensor& x, const dims& x_dims, Tensor* y,
                          const dims& y_dims, const stash_execution_context& context) {
  const auto with = [&](auto type) {
    using T = decltype(type);
    follow<T>(layer, x.unaligned_flat<T>().data(), x_dims, y->unaligned_flat<T>().data(), y_dims,
              y->NumElements(), context);
  };
  switch (x.dtype()) {
    case tensorflow::DT_HALF:
      return with(Eigen::half());
    case tensorflow::DT_BFLOAT16:
      return with(Eigen::bfloat16());
    default:
      return with(float());
  }
}

}  // namespace stash_tf
