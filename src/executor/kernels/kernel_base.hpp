// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the CPU kernels share: checks of operands, layout of the workspace, loops over dense or pitched
/// views.

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "executor/kernels/kernel.hpp"
#include "stash/error.hpp"

namespace stash::executor {

struct kernel_setup {
  const planner::graph& graph;
  const planner::op& op;
  kernel_options options;

  /// Samples that the op works on.
  std::int64_t batch() const noexcept;
};

/// Shape of one sample of an operand; missing leading dimensions are 1.
struct sample_shape {
  std::int64_t h = 1, w = 1, c = 1;
  std::int64_t pitch = 1;  ///< of the storage: larger than c for a channel slice
  std::int64_t elements() const noexcept { return h * w * c; }
  bool dense() const noexcept { return pitch == c; }
};
/// Throws error(invalid_argument) for shapes of more than three dimensions.
sample_shape shape_of(const kernel_setup& setup, const planner::tensor_ref& ref);
/// The same for a ref that is, in a backward op, the first input or output of the forward op or the gradient
/// of that. A gradient that came down through a flattening lies in a storage with the flattened shape, so
/// the forward op says what its dimensions are.
sample_shape input_shape_of(const kernel_setup& setup, const planner::tensor_ref& ref);
sample_shape output_shape_of(const kernel_setup& setup, const planner::tensor_ref& ref);

/// Hands out 64-byte aligned regions of the workspace; the offsets are kept by the kernel.
class workspace_layout {
 public:
  std::int64_t reserve(std::int64_t bytes) noexcept;
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

/// Base of all kernels: run() checks that the operand lists fit the op (number, element counts, workspace)
/// and then calls execute().
class kernel_base : public op_kernel {
 public:
  explicit kernel_base(const kernel_setup& setup);
  kernel_base(const kernel_base&) = delete;
  kernel_base& operator=(const kernel_base&) = delete;

  std::int64_t workspace_bytes() const final { return workspace_.bytes(); }
  void run(const kernel_operands& operands) final;

 protected:
  virtual void execute(const kernel_operands& operands) = 0;

  execution_context context() const noexcept { return openmp_context(threads_); }
  int threads() const noexcept { return threads_; }
  std::int64_t batch() const noexcept { return batch_; }
  const std::string& name() const noexcept { return name_; }
  framework_rule rule() const noexcept { return rule_; }

  std::int64_t reserve(std::int64_t bytes) noexcept { return workspace_.reserve(bytes); }
  template <class T>
  static T* at(const kernel_operands& operands, std::int64_t offset) noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(operands.workspace.data) + offset);
  }

  /// The stash read with this number as dense values; error(unsupported) if it is encoded.
  const const_tensor_view& dense_stash(const kernel_operands& operands, std::size_t number) const;
  /// The encoded bytes of the read with this number, which must be of `kind`.
  const encoded_tensor& encoded_stash(const kernel_operands& operands, std::size_t number,
                                      encoding_kind kind) const;
  /// Destination of an auxiliary output, with null data where it is not requested; error(unsupported) if it
  /// is requested in another encoding.
  encoded_view auxiliary(const kernel_operands& operands, std::size_t number, encoding_kind kind) const;
  [[noreturn]] void fail(errc code, const std::string& what) const;

 private:
  struct expected_form {
    std::string form;
    std::vector<std::int64_t> elements;  ///< of each read
  };

  std::string name_;
  int threads_;
  framework_rule rule_;
  std::int64_t batch_;
  std::vector<std::int64_t> inputs_, outputs_;  ///< element counts
  std::size_t parameters_, parameters_written_, optional_outputs_;
  std::vector<expected_form> forms_;
  workspace_layout workspace_;
};

/// Calls body(begin, end) over [0, count) on the context's threads.
template <class Body>
void parallel_ranges(const execution_context& context, std::int64_t count, std::int64_t grain,
                     const Body& body) {
  if (count <= 0) return;
  const range_function call = [](void* state, std::int64_t begin, std::int64_t end) {
    (*static_cast<const Body*>(state))(begin, end);
  };
  context.parallel_for(context.user, count, grain, call, const_cast<Body*>(&body));
}

/// Elements of one chunk of an elementwise loop: small enough to balance, large enough to hide the call.
inline constexpr std::int64_t loop_grain = 16384;

/// Calls body(first, length) over chunks of `elements` elements that are contiguous in memory in every view:
/// chunks of the whole if all are dense (`flat`), rows of `inner` elements otherwise.
template <class Body>
void for_each_chunk(const execution_context& context, std::int64_t elements, std::int64_t inner, bool flat,
                    const Body& body) {
  if (flat) {
    parallel_ranges(context, elements, loop_grain,
                    [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
    return;
  }
  const std::int64_t grain = loop_grain / inner > 0 ? loop_grain / inner : 1;
  parallel_ranges(context, elements / inner, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      body(row * inner, inner);
  });
}

/// Address of an element of a view.
template <class T>
T* element(const tensor_view& view, std::int64_t i) noexcept {
  const std::int64_t inner = view.dims.inner();
  return static_cast<T*>(view.data) + (view.dense() ? i : i / inner * view.pitch() + i % inner);
}
template <class T>
const T* element(const const_tensor_view& view, std::int64_t i) noexcept {
  const std::int64_t inner = view.dims.inner();
  return static_cast<const T*>(view.data) + (view.dense() ? i : i / inner * view.pitch() + i % inner);
}

/// The same memory under (n, h, w, c); the view must have that many elements.
template <class View>
View as_image(const View& view, std::int64_t n, const sample_shape& s) {
  View result = view;
  result.dims = shape({n, s.h, s.w, s.c});
  result.pixel_pitch = view.dense() ? 0 : view.pitch();
  return result;
}

/// Samples [begin, begin + count) of an (n, h, w, c) view.
template <class View>
View samples(const View& view, std::int64_t begin, std::int64_t count) {
  View result = view;
  const auto stride = static_cast<std::size_t>(view.dims[1] * view.dims[2] * view.pitch());
  const auto bytes =
      static_cast<std::ptrdiff_t>(static_cast<std::size_t>(begin) * stride * size_of(view.type));
  if constexpr (std::is_same_v<View, tensor_view>) {
    result.data = static_cast<std::byte*>(view.data) + bytes;
  } else {
    result.data = static_cast<const std::byte*>(view.data) + bytes;
  }
  result.dims = shape({count, view.dims[1], view.dims[2], view.dims[3]});
  return result;
}

/// Dense view of f32 memory as (rows, columns).
inline tensor_view matrix(float* data, std::int64_t rows, std::int64_t columns, std::int64_t pitch = 0) {
  return {data, dtype::f32, memory_space::host, shape({rows, columns}), pitch};
}

/// to = from, f32, the same number of elements and the same inner length.
void copy_view(const const_tensor_view& from, const tensor_view& to, const execution_context& context);

}  // namespace stash::executor
