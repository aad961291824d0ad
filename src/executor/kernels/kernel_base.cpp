// SPDX-License-Identifier: Apache-2.0
#include "executor/kernels/kernel_base.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::executor {
namespace {

std::int64_t elements_of(const kernel_setup& setup, const planner::tensor_ref& ref) {
  const planner::storage& s = setup.graph.at(ref.storage);
  std::int64_t count = setup.batch();
  for (const std::int64_t d : s.shape)
    count *= d;
  if (!ref.whole() && !s.shape.empty() && s.shape.back() > 0) count = count / s.shape.back() * ref.channels;
  return count;
}

// The dimensions of `map` with the pitch of `ref`.
sample_shape shape_like(const kernel_setup& setup, const planner::tensor_ref& ref,
                        const planner::tensor_ref& map) {
  sample_shape s = shape_of(setup, map);
  s.pitch = ref.whole() ? s.c : shape_of(setup, ref).pitch;
  return s;
}

}  // namespace

std::int64_t kernel_setup::batch() const noexcept {
  return (op.batch_end < 0 ? graph.batch : op.batch_end) - op.batch_begin;
}

sample_shape shape_of(const kernel_setup& setup, const planner::tensor_ref& ref) {
  const std::vector<std::int64_t>& dims = setup.graph.at(ref.storage).shape;
  if (dims.empty() || dims.size() > 3) {
    throw error(
        errc::invalid_argument,
        fmt::format("make_kernel: op '{}': expected storage '{}' with 1 to 3 "
                    "dimensions per sample, got {}",
                    shortened(setup.op.name), shortened(setup.graph.at(ref.storage).name), dims.size()));
  }
  sample_shape s;
  s.pitch = dims.back();
  s.c = ref.whole() ? dims.back() : ref.channels;
  if (dims.size() >= 2) s.w = dims[dims.size() - 2];
  if (dims.size() == 3) s.h = dims[0];
  return s;
}

sample_shape input_shape_of(const kernel_setup& setup, const planner::tensor_ref& ref) {
  if (!setup.op.forward_op.valid()) return shape_of(setup, ref);
  return shape_like(setup, ref, setup.graph.op_at(setup.op.forward_op).inputs.at(0));
}

sample_shape output_shape_of(const kernel_setup& setup, const planner::tensor_ref& ref) {
  if (!setup.op.forward_op.valid()) return shape_of(setup, ref);
  return shape_like(setup, ref, setup.graph.op_at(setup.op.forward_op).outputs.at(0));
}

std::int64_t workspace_layout::reserve(std::int64_t bytes) noexcept {
  const std::int64_t offset = bytes_;
  bytes_ += (bytes + 63) / 64 * 64;
  return offset;
}

kernel_base::kernel_base(const kernel_setup& setup)
    : name_(setup.op.name),
      threads_(setup.options.threads),
      rule_(setup.options.rule),
      batch_(setup.batch()),
      parameters_(setup.op.parameters.size()),
      parameters_written_(setup.op.parameters_written.size()),
      optional_outputs_(setup.op.optional_outputs.size()) {
  for (const planner::tensor_ref& ref : setup.op.inputs)
    inputs_.push_back(elements_of(setup, ref));
  for (const planner::tensor_ref& ref : setup.op.outputs)
    outputs_.push_back(elements_of(setup, ref));
  for (const planner::stash_alternative& alternative : setup.op.alternatives) {
    expected_form expected{alternative.form, {}};
    for (const planner::stash_read& read : alternative.reads) {
      expected.elements.push_back(
          elements_of(setup, !read.slice.storage.valid() ? planner::tensor_ref{read.storage} : read.slice));
    }
    forms_.push_back(std::move(expected));
  }
}

void kernel_base::fail(errc code, const std::string& what) const {
  throw error(code, fmt::format("op_kernel::run: op '{}': {}", shortened(name_), what));
}

void kernel_base::run(const kernel_operands& operands) {
  const auto check_count = [&](const char* list, std::size_t got, std::size_t expected) {
    if (got != expected)
      fail(errc::invalid_argument, fmt::format("expected {} {}, got {}", expected, list, got));
  };
  const auto check_elements = [&](const char* list, std::size_t i, std::int64_t got, std::int64_t expected) {
    if (got != expected) {
      fail(errc::invalid_argument,
           fmt::format("expected {} elements in {}[{}], got {}", expected, list, i, got));
    }
  };
  check_count("inputs", operands.inputs.size(), inputs_.size());
  check_count("outputs", operands.outputs.size(), outputs_.size());
  check_count("parameters", operands.parameters.size(), parameters_);
  check_count("parameters_written", operands.parameters_written.size(), parameters_written_);
  check_count("optional_outputs", operands.optional_outputs.size(), optional_outputs_);
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    check_elements("inputs", i, operands.inputs[i].elements(), inputs_[i]);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    check_elements("outputs", i, operands.outputs[i].elements(), outputs_[i]);
  }
  if (!forms_.empty()) {
    const auto chosen = std::find_if(forms_.begin(), forms_.end(),
                                     [&](const expected_form& f) { return f.form == operands.form; });
    if (chosen == forms_.end()) {
      fail(errc::invalid_argument, fmt::format("expected form '{}' or another of the op, got '{}'",
                                               forms_.front().form, operands.form));
    }
    check_count("stash operands", operands.stash.size(), chosen->elements.size());
    for (std::size_t i = 0; i < chosen->elements.size(); ++i) {
      if (operands.stash[i].dense)
        check_elements("stash", i, operands.stash[i].view.elements(), chosen->elements[i]);
    }
  }
  if (operands.workspace.bytes < static_cast<std::size_t>(workspace_.bytes()) ||
      reinterpret_cast<std::uintptr_t>(operands.workspace.data) % 64 != 0) {
    fail(errc::capacity_exceeded,
         fmt::format("expected a 64-byte aligned workspace of {} bytes, got {} bytes at {}",
                     workspace_.bytes(), operands.workspace.bytes, operands.workspace.data));
  }
  execute(operands);
}

const const_tensor_view& kernel_base::dense_stash(const kernel_operands& operands, std::size_t number) const {
  const stash_operand& operand = operands.stash.at(number);
  if (!operand.dense) {
    fail(errc::unsupported,
         fmt::format("expected dense values as stash[{}], got {}", number, to_string(operand.stored.how)));
  }
  return operand.view;
}

const encoded_tensor& kernel_base::encoded_stash(const kernel_operands& operands, std::size_t number,
                                                 encoding_kind kind) const {
  const stash_operand& operand = operands.stash.at(number);
  if (operand.dense || operand.stored.how.kind != kind) {
    fail(errc::unsupported,
         fmt::format("expected {} as stash[{}], got {}", to_string(encoding{.kind = kind}), number,
                     operand.dense ? "dense values" : to_string(operand.stored.how)));
  }
  return operand.stored;
}

encoded_view kernel_base::auxiliary(const kernel_operands& operands, std::size_t number,
                                    encoding_kind kind) const {
  if (number >= operands.optional_outputs.size() || !operands.optional_outputs[number].requested) return {};
  const auxiliary_operand& operand = operands.optional_outputs[number];
  if (operand.stored.kind != kind) {
    fail(errc::unsupported,
         fmt::format("expected {} as optional_outputs[{}], got {}", to_string(encoding{.kind = kind}), number,
                     to_string(operand.stored)));
  }
  return operand.bytes;
}

void copy_view(const const_tensor_view& from, const tensor_view& to, const execution_context& context) {
  for_each_chunk(context, from.elements(), from.dims.inner(), from.dense() && to.dense(),
                 [&](std::int64_t first, std::int64_t length) {
                   std::memcpy(element<float>(to, first), element<float>(from, first),
                               static_cast<std::size_t>(length) * sizeof(float));
                 });
}

}  // namespace stash::executor
