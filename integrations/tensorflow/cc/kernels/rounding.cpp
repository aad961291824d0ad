#include "kernels/rounding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "tensorflow/core/framework/types.h"

namespace stash_tf {
namespace {

using tensorflow::Tensor;

constexpr std::int64_t sample_elements = 1024;
constexpr std::int64_t run_elements = 16;  // together in memory: a cache line of f32
constexpr std::uint32_t first_executions = 4, period = 32;
constexpr std::size_t largest_element = 4;

using sample_bytes = std::array<std::byte, sample_elements * largest_element>;

/// Runs of elements evenly over the tensor, or all of it if it is small.
std::int64_t take_sample(const Tensor& x, std::size_t element, sample_bytes* sample) {
  const std::int64_t n = x.NumElements();
  const char* from = x.tensor_data().data();
  if (n <= sample_elements) {
    std::memcpy(sample->data(), from, static_cast<std::size_t>(n) * element);
    return n;
  }
  constexpr std::int64_t runs = sample_elements / run_elements;
  for (std::int64_t r = 0; r < runs; ++r) {
    // In two factors, as n * r may not fit.
    const std::int64_t last = n - run_elements;
    const std::int64_t begin = last / (runs - 1) * r + last % (runs - 1) * r / (runs - 1);
    std::memcpy(sample->data() + static_cast<std::size_t>(r * run_elements) * element,
                from + static_cast<std::size_t>(begin) * element, run_elements * element);
  }
  return sample_elements;
}

template <class T>
void compare(const sample_bytes& values, const sample_bytes& rounded, std::int64_t n, execution* done) {
  for (std::int64_t i = 0; i < n; ++i) {
    T x, y;
    std::memcpy(&x, values.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    std::memcpy(&y, rounded.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    const auto exact = static_cast<double>(x);
    if (!std::isfinite(exact)) continue;
    // An overflow to infinity loses all there is.
    const double error = std::isfinite(static_cast<double>(y)) ? static_cast<double>(y) - exact : exact;
    done->squares += exact * exact;
    done->rounding_squares += error * error;
  }
}

}  // namespace

rounding_probe::rounding_probe(const stash_encoding& encoding)
    : encoding_(encoding),
      rounds_(encoding.values != STASH_VALUES_SOURCE &&
              (encoding.kind == STASH_KIND_CAST || is_sparse(encoding))) {
  encoding_.kind = STASH_KIND_CAST;  // the values of a sparse form are rounded in the same way
}

void rounding_probe::look(const Tensor& x, const core_context& core, execution* done) {
  if (!rounds_ || x.NumElements() == 0) return;
  const std::uint32_t execution = executions_.fetch_add(1, std::memory_order_relaxed);
  if (execution >= first_executions && execution % period != 0) return;
  const auto element = static_cast<std::size_t>(tensorflow::DataTypeSize(x.dtype()));
  sample_bytes values, rounded;
  const std::int64_t n = take_sample(x, element, &values);

  sample_bytes stored;
  stash_encode_report report{};
  auto view = STASH_INIT(stash_encoded_view);
  view.data = stored.data();
  view.bytes = stored.size();
  view.report = &report;
  auto dense = STASH_INIT(stash_tensor_view);
  dense.data = values.data();
  dense.type = core_type(x.dtype());
  dense.space = STASH_SPACE_HOST;
  dense.rank = 1;
  dense.dims[0] = n;
  if (stash_encode(&encoding_, &dense, &view, nullptr, core.get()) != STASH_OK) return;
  dense.data = rounded.data();
  if (stash_decode(&encoding_, &view, &dense, nullptr, core.get()) != STASH_OK) return;
  switch (x.dtype()) {
    case tensorflow::DT_HALF:
      return compare<Eigen::half>(values, rounded, n, done);
    case tensorflow::DT_BFLOAT16:
      return compare<tensorflow::bfloat16>(values, rounded, n, done);
    default:
      return compare<float>(values, rounded, n, done);
  }
}

}  // namespace stash_tf
