// SPDX-License-Identifier: Apache-2.0
#include "kernels/rounding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <mutex>

#include "tensorflow/core/framework/types.h"

namespace stash_tf {
namespace {

using tensorflow::Tensor;

constexpr std::int64_t chunk_elements = 1024;
constexpr std::int64_t run_elements = 16;  // together in memory: a cache line of f32
constexpr std::int64_t narrowest_row = 4;  // fewer values are small together by chance
constexpr std::int64_t chunks_of_a_thread = 64;
constexpr std::uint32_t first_executions = 4, thorough_period = 128;
constexpr std::size_t largest_element = 4;

struct chunk_buffer {
  alignas(16) std::array<std::byte, chunk_elements * largest_element> bytes;
  std::byte* data() { return bytes.data(); }
  static constexpr std::size_t size() { return chunk_elements * largest_element; }
};

enum class attention { none, sample, all };

/// Numbers without a pattern of their own: loops may run an encoder with a period.
std::uint32_t scattered(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}

attention attention_at(std::uint32_t execution) {
  if (execution % thorough_period == 0) return attention::all;
  return execution < first_executions || scattered(execution) % 16 == 0 ? attention::sample : attention::none;
}

/// What counts as a row: the last dimension, or several of them where it is a few values only.
std::int64_t row_of(const Tensor& x) {
  const std::int64_t last = x.dims() == 0 ? 1 : x.dim_size(x.dims() - 1);
  return last >= narrowest_row ? std::min(chunk_elements, last) : run_elements / last * last;
}

/// Values of a tensor, and how many of them are a row.
struct rows_taken {
  std::int64_t elements, row;
};

/// Runs of elements, one in each of 64 equal parts of the tensor, at places that `seed` says: whole rows
/// where they are short, else a part of one, which stands for it. All of the tensor if it is small.
rows_taken take_sample(const Tensor& x, std::size_t element, std::uint32_t seed, chunk_buffer* sample) {
  const std::int64_t n = x.NumElements(), row = row_of(x);
  const char* from = x.tensor_data().data();
  if (n <= chunk_elements) {
    std::memcpy(sample->data(), from, static_cast<std::size_t>(n) * element);
    return {n, row};
  }
  constexpr std::int64_t runs = chunk_elements / run_elements;
  const bool whole_rows = row <= run_elements;
  const std::int64_t run = whole_rows ? run_elements / row * row : run_elements;
  const std::int64_t part = n / runs;
  for (std::int64_t r = 0; r < runs; ++r) {
    const auto dice = static_cast<std::int64_t>(scattered(seed * 64 + static_cast<std::uint32_t>(r)));
    std::int64_t begin = part * r + dice % (part - run + 1);
    if (whole_rows) begin -= begin % row;
    std::memcpy(sample->data() + static_cast<std::size_t>(r * run) * element,
                from + static_cast<std::size_t>(begin) * element, static_cast<std::size_t>(run) * element);
  }
  return {runs * run, whole_rows ? row : run_elements};
}

/// What rounding takes from values: sums of squares, and the same for each row of them, as a share of the
/// row's.
struct losses {
  double values = 0, rounding = 0;
  double rows = 0, row_shares = 0;  ///< of rows that are not all zero, and at most 1 each

  void add(double row_values, double row_rounding) {
    values += row_values;
    rounding += row_rounding;
    if (row_values == 0) return;
    rows += 1;
    row_shares += std::min(1.0, row_rounding / row_values);
  }
  void add(const losses& more) {
    values += more.values;
    rounding += more.rounding;
    rows += more.rows;
    row_shares += more.row_shares;
  }
  /// Share of the squares, or the mean share of a row's where that is larger: small samples count as large
  /// ones do, because a norm that follows may bring all to one size.
  double share() const { return values == 0 ? 0 : std::max(rounding / values, row_shares / rows); }
};

template <class T>
void compare_row(const T* x, const T* y, std::int64_t n, losses* lost) {
  constexpr double largest = std::numeric_limits<double>::max();
  // Sums of their own, which do not wait for each other.
  constexpr std::int64_t sums = 8;
  double value_squares[sums] = {}, rounding_squares[sums] = {};
  const auto look = [&](std::int64_t i, std::int64_t k) {
    const auto original = static_cast<double>(x[i]), stored = static_cast<double>(y[i]);
    const bool counts = std::abs(original) <= largest;
    const double exact = counts ? original : 0.0;
    // An overflow to infinity loses all there is.
    const double read = counts && std::abs(stored) <= largest ? stored : 0.0;
    value_squares[k] += exact * exact;
    rounding_squares[k] += (read - exact) * (read - exact);
  };
  std::int64_t i = 0;
  for (; i + sums <= n; i += sums)
    for (std::int64_t k = 0; k < sums; ++k)
      look(i + k, k);
  for (; i < n; ++i)
    look(i, 0);
  for (std::int64_t k = 1; k < sums; ++k) {
    value_squares[0] += value_squares[k];
    rounding_squares[0] += rounding_squares[k];
  }
  lost->add(value_squares[0], rounding_squares[0]);
}

template <class T>
void compare(const std::byte* values, const std::byte* rounded, std::int64_t n, std::int64_t row,
             losses* lost) {
  const auto* x = reinterpret_cast<const T*>(values);
  const auto* y = reinterpret_cast<const T*>(rounded);
  for (std::int64_t i = 0; i < n; i += row)
    compare_row(x + i, y + i, std::min(row, n - i), lost);
}

/// Stores up to chunk_elements values, of rows of `row`, in the format and reads them back.
void look_at_chunk(const stash_encoding& cast, tensorflow::DataType type, const std::byte* values,
                   std::int64_t n, std::int64_t row, losses* lost) {
  chunk_buffer rounded, stored;
  const auto here = STASH_INIT(stash_execution_context);
  stash_encode_report report{};
  auto view = STASH_INIT(stash_encoded_view);
  view.data = stored.data();
  view.bytes = stored.size();
  view.report = &report;
  auto dense = STASH_INIT(stash_tensor_view);
  dense.data = const_cast<std::byte*>(values);
  dense.type = core_type(type);
  dense.space = STASH_SPACE_HOST;
  dense.rank = 1;
  dense.dims[0] = n;
  if (stash_encode(&cast, &dense, &view, nullptr, &here) != STASH_OK) return;
  dense.data = rounded.data();
  auto kept = STASH_INIT(stash_encoded_tensor);
  kept.encoding = &cast;
  kept.type = dense.type;
  kept.rank = 1;
  kept.dims[0] = n;
  kept.bytes = &view;
  if (stash_decode(&kept, &dense, nullptr, &here) != STASH_OK) return;
  switch (type) {
    case tensorflow::DT_HALF:
      return compare<Eigen::half>(values, rounded.data(), n, row, lost);
    case tensorflow::DT_BFLOAT16:
      return compare<tensorflow::bfloat16>(values, rounded.data(), n, row, lost);
    default:
      return compare<float>(values, rounded.data(), n, row, lost);
  }
}

losses look_at_all(const stash_encoding& cast, const Tensor& x, const core_context& core) {
  struct work {
    const stash_encoding& cast;
    const Tensor& x;
    std::int64_t row, chunk;
    std::mutex mutex;
    losses lost;  // guarded by mutex
  } all{cast, x, row_of(x), chunk_elements / row_of(x) * row_of(x), {}, {}};
  const auto some = [](void* state, std::int64_t begin, std::int64_t end) {
    auto& w = *static_cast<work*>(state);
    const auto element = static_cast<std::size_t>(tensorflow::DataTypeSize(w.x.dtype()));
    const auto* from = reinterpret_cast<const std::byte*>(w.x.tensor_data().data());
    losses lost;
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t first = chunk * w.chunk;
      look_at_chunk(w.cast, w.x.dtype(), from + static_cast<std::size_t>(first) * element,
                    std::min(w.chunk, w.x.NumElements() - first), w.row, &lost);
    }
    const std::lock_guard<std::mutex> lock(w.mutex);
    w.lost.add(lost);
  };
  const std::int64_t chunks = (x.NumElements() + all.chunk - 1) / all.chunk;
  core.get()->parallel_for(core.get()->user, chunks, chunks_of_a_thread, some, &all);
  return all.lost;
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
  // Kernels outlive a plan: whoever makes a new one wants to see early what there is.
  if (const std::uint32_t now = resets(); resets_.exchange(now, std::memory_order_relaxed) != now)
    executions_.store(0, std::memory_order_relaxed);
  const std::uint32_t execution = executions_.fetch_add(1, std::memory_order_relaxed);
  losses lost;
  switch (attention_at(execution)) {
    case attention::none:
      return;
    case attention::all:
      lost = look_at_all(encoding_, x, core);
      break;
    case attention::sample: {
      chunk_buffer sample;
      const auto element = static_cast<std::size_t>(tensorflow::DataTypeSize(x.dtype()));
      const rows_taken taken = take_sample(x, element, execution, &sample);
      look_at_chunk(encoding_, x.dtype(), sample.data(), taken.elements, taken.row, &lost);
      break;
    }
  }
  done->format = encoding_.values;
  done->rounding = std::sqrt(lost.share());
}

}  // namespace stash_tf
