// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Runs single ops of small hand-made graphs: owns their tensors (dense, or a channel slice of a wider map
/// whose other channels must stay untouched) and a workspace between guard bytes.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "executor/kernels/kernel.hpp"
#include "planner/graph/graph.hpp"

namespace stash::executor::testing {

/// Deterministic values, the same on every platform.
class generator {
 public:
  explicit generator(std::uint32_t seed) : state_(seed * 2654435761U + 1U) {}
  std::uint32_t bits() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ >> 8;
  }
  /// In [-1, 1), with 12 bits so that sums of products are nearly exact.
  float value() { return static_cast<float>(static_cast<int>(bits() % 4096U) - 2048) / 2048.0F; }

 private:
  std::uint32_t state_;
};

inline constexpr float untouched = -12345.0F;

/// Values of a batch: `channels` channels of a map that is `total` channels wide.
class tensor {
 public:
  tensor(std::int64_t n, std::vector<std::int64_t> sample, std::int64_t before = 0, std::int64_t after = 0)
      : before_(before), channels_(sample.back()), total_(before + sample.back() + after) {
    dims_.push_back(n);
    dims_.insert(dims_.end(), sample.begin(), sample.end());
    pixels_ = 1;
    for (std::size_t i = 0; i + 1 < dims_.size(); ++i)
      pixels_ *= dims_[i];
    data_.assign(static_cast<std::size_t>(pixels_ * total_), untouched);
  }

  std::int64_t size() const { return pixels_ * channels_; }
  float& operator[](std::int64_t i) { return data_[index(i)]; }
  float operator[](std::int64_t i) const { return data_[index(i)]; }

  tensor& fill(std::uint32_t seed, float scale = 1.0F) {
    generator random(seed);
    for (std::int64_t i = 0; i < size(); ++i)
      (*this)[i] = scale * random.value();
    return *this;
  }
  tensor& set(const std::vector<float>& values) {
    for (std::int64_t i = 0; i < size(); ++i)
      (*this)[i] = values[static_cast<std::size_t>(i)];
    return *this;
  }
  std::vector<float> values() const {
    std::vector<float> result;
    for (std::int64_t i = 0; i < size(); ++i)
      result.push_back((*this)[i]);
    return result;
  }

  tensor_view view() {
    return {data_.data() + before_, dtype::f32, memory_space::host,
            shape(std::span<const std::int64_t>(dims_)), total_ == channels_ ? 0 : total_};
  }
  /// Channels outside the slice keep the fill value.
  bool margins_untouched() const {
    for (std::int64_t p = 0; p < pixels_; ++p) {
      for (std::int64_t c = 0; c < total_; ++c) {
        const bool inside = c >= before_ && c < before_ + channels_;
        if (!inside && data_[static_cast<std::size_t>(p * total_ + c)] != untouched) return false;
      }
    }
    return true;
  }

  std::int64_t before() const { return before_; }
  std::int64_t channels() const { return channels_; }
  std::int64_t total() const { return total_; }
  const std::vector<std::int64_t>& dims() const { return dims_; }

 private:
  std::size_t index(std::int64_t i) const {
    return static_cast<std::size_t>(i / channels_ * total_ + before_ + i % channels_);
  }

  std::int64_t before_, channels_, total_, pixels_ = 0;
  std::vector<std::int64_t> dims_;
  std::vector<float> data_;
};

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> result(values.size());
  if (!values.empty()) std::memcpy(result.data(), values.data(), values.size() * sizeof(float));
  return result;
}
inline std::vector<std::uint32_t> bits_of(const tensor& t) {
  return bits_of(t.values());
}

/// Graph builder.
struct rig {
  explicit rig(std::int64_t batch) {
    graph.name = "rig";
    graph.batch = batch;
  }

  planner::storage_id storage(std::vector<std::int64_t> sample, dtype type = dtype::f32,
                              planner::storage_role role = planner::storage_role::feature_map) {
    planner::storage s;
    s.name = "s" + std::to_string(graph.storages.size());
    s.role = role;
    s.type = type;
    s.shape = std::move(sample);
    std::int64_t elements = 1;
    for (const std::int64_t d : s.shape)
      elements *= d;
    s.bytes_per_sample = elements * static_cast<std::int64_t>(size_of(type));
    graph.storages.push_back(std::move(s));
    return planner::storage_id(graph.storages.size() - 1);
  }
  /// A storage for the whole map that `t` views, and the reference to t's channels.
  planner::tensor_ref ref(const tensor& t) {
    std::vector<std::int64_t> sample(t.dims().begin() + 1, t.dims().end());
    sample.back() = t.total();
    const planner::storage_id id = storage(sample);
    if (t.total() == t.channels()) return {id, 0, 0};
    return {id, t.before(), t.channels()};
  }
  /// `count` fixed-size storages.
  std::vector<planner::storage_id> fixed(std::size_t count) {
    std::vector<planner::storage_id> ids;
    for (std::size_t i = 0; i < count; ++i) {
      ids.push_back(storage({1}, dtype::f32, planner::storage_role::weight));
      graph.storages.back().fixed_bytes = 4;
      graph.storages.back().bytes_per_sample = 0;
    }
    return ids;
  }
  planner::op& op(planner::op_kind kind, std::vector<planner::tensor_ref> inputs,
                  std::vector<planner::tensor_ref> outputs) {
    planner::op o;
    o.name = "op" + std::to_string(graph.ops.size());
    o.kind = kind;
    o.inputs = std::move(inputs);
    o.outputs = std::move(outputs);
    graph.ops.push_back(std::move(o));
    return graph.ops.back();
  }
  static planner::stash_read read(const planner::tensor_ref& slice,
                                  planner::need what = planner::need::value) {
    return {slice.storage, what, slice};
  }

  planner::graph graph;
};

inline stash_operand dense_stash(tensor& t) {
  stash_operand operand;
  operand.view = t.view();
  return operand;
}

/// Makes the kernel of the graph's last op and runs it between guard bytes. The workspace starts as NaN, so
/// that a value which is read before it was written shows. Returns the name of the implementation.
inline std::string run_last(const planner::graph& g, kernel_operands operands,
                            const kernel_options& options = {}) {
  const std::unique_ptr<op_kernel> kernel = make_kernel(g, planner::op_id(g.ops.size() - 1), options);
  constexpr std::size_t guard = 256;
  const auto bytes = static_cast<std::size_t>(kernel->workspace_bytes());
  std::vector<std::byte> memory(bytes + 2 * guard + 64, std::byte{0xA5});
  void* start = memory.data() + guard;
  std::size_t space = bytes + guard + 64;
  start = std::align(64, bytes + guard, start, space);
  auto* workspace = static_cast<std::byte*>(start);
  std::memset(workspace, 0xFF, bytes);
  operands.workspace = {workspace, bytes};
  kernel->run(operands);
  const std::byte* end = memory.data() + memory.size();
  for (const std::byte* p = memory.data(); p < end; p = p + 1 == workspace ? workspace + bytes : p + 1) {
    if (*p != std::byte{0xA5}) {
      ADD_FAILURE() << "byte " << p - workspace << " outside the workspace of " << bytes
                    << " bytes was written";
      break;
    }
  }
  return kernel->implementation();
}

/// sum(weights * values) in double.
inline double weighted_sum(const tensor& weights, const tensor& values) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(weights[i]) * static_cast<double>(values[i]);
  }
  return sum;
}

/// Central difference of objective() in the direction of `value`.
inline double central_difference(float& value, float step, const std::function<double()>& objective) {
  const float middle = value;
  value = middle + step;
  const double above = objective();
  value = middle - step;
  const double below = objective();
  value = middle;
  return (above - below) / (2.0 * static_cast<double>(step));
}

/// |got - expected| within `tolerance` times the larger of 1 and |expected|.
inline void expect_close(double got, double expected, double tolerance, const std::string& what) {
  EXPECT_NEAR(got, expected, tolerance * std::max(1.0, std::abs(expected))) << what;
}

}  // namespace stash::executor::testing
