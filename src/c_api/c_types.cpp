// SPDX-License-Identifier: Apache-2.0
#include "c_api/c_types.hpp"

#include <fmt/format.h>

#include <bit>

namespace stash::c_api {
namespace {

/// make(), which knows its argument as `known` ("function: argument") and not which argument of which C
/// function that is.
template <class Make>
auto naming(std::string_view function, std::string_view argument, std::string_view known, const Make& make) {
  try {
    return make();
  } catch (const error& e) {
    const std::string_view text = e.what();
    if (!text.starts_with(known)) throw;
    throw error(e.code(), fmt::format("{}: {}{}", function, argument, text.substr(known.size())));
  }
}

}  // namespace

// NOLINTBEGIN(misc-redundant-expression)  the two structures are declared separately
static_assert(sizeof(stash_encode_report) == sizeof(encode_report) &&
              alignof(stash_encode_report) == alignof(encode_report));
static_assert(offsetof(stash_encode_report, flags) == offsetof(encode_report, flags) &&
              offsetof(stash_encode_report, nonzeros) == offsetof(encode_report, nonzeros) &&
              offsetof(stash_encode_report, slot_bytes) == offsetof(encode_report, slot_bytes) &&
              offsetof(stash_encode_report, overflow_bytes) == offsetof(encode_report, overflow_bytes) &&
              offsetof(stash_encode_report, checksum) == offsetof(encode_report, checksum));
// NOLINTEND(misc-redundant-expression)
static_assert(STASH_MAX_RANK == shape::max_rank);

encoding to_encoding(std::string_view function, const stash_encoding* e, std::string_view argument) {
  const stash_encoding c = read(function, argument, e);
  encoding result;
  result.kind = enumerator<encoding_kind>(function, {argument, "kind"}, c.kind);
  result.values = enumerator<value_format>(function, {argument, "values"}, c.values);
  result.underflow = enumerator<underflow_rule>(function, {argument, "underflow"}, c.underflow);
  result.rule = enumerator<framework_rule>(function, {argument, "rule"}, c.rule);
  if (c.window_taps < 0 || c.window_taps > 65535) {
    refuse(function, {argument, "window_taps"}, "0 to 65535", fmt::format("{}", c.window_taps));
  }
  result.window_taps = static_cast<std::uint16_t>(c.window_taps);
  // By their bits, since a thread may take denormals for zeros.
  const auto is_zero = [](float bound) { return (std::bit_cast<std::uint32_t>(bound) << 1) == 0; };
  if (!is_zero(c.lower) || !is_zero(c.upper)) {
    result.lower = c.lower;
    result.upper = c.upper;
  }
  return result;
}

stash_encoding from_encoding(const encoding& e) noexcept {
  stash_encoding c = STASH_INIT(stash_encoding);
  c.kind = static_cast<std::int32_t>(e.kind);
  c.values = static_cast<std::int32_t>(e.values);
  c.underflow = static_cast<std::int32_t>(e.underflow);
  c.rule = static_cast<std::int32_t>(e.rule);
  c.window_taps = e.window_taps;
  c.lower = e.lower;
  c.upper = e.upper;
  return c;
}

dtype to_dtype(std::string_view function, const argument_name& argument, std::int32_t type) {
  const auto result = enumerator<dtype>(function, argument, type);
  if (size_of(result) == 0) refuse(function, argument, "a type of the header", std::to_string(type));
  return result;
}

framework_rule to_rule(std::string_view function, std::int32_t rule) {
  return enumerator<framework_rule>(function, "rule", rule);
}

shape to_shape(std::string_view function, std::string_view argument, std::int32_t rank,
               const std::int64_t* dims) {
  if (rank < 0 || rank > STASH_MAX_RANK) {
    refuse(function, argument, fmt::format("0 to {} dimensions", STASH_MAX_RANK), std::to_string(rank));
  }
  return naming(function, argument, "shape: dims",
                [&] { return shape(std::span(dims, static_cast<std::size_t>(rank))); });
}

tensor_view to_view(std::string_view function, std::string_view argument, const stash_tensor_view* view) {
  const stash_tensor_view c = read(function, argument, view);
  return {c.data, to_dtype(function, {argument, "type"}, c.type),
          enumerator<memory_space>(function, {argument, "space"}, c.space),
          to_shape(function, argument, c.rank, c.dims), c.pixel_pitch};
}

pool_window to_window(std::string_view function, const stash_pool_window* window) {
  const stash_pool_window c = read(function, "window", window);
  const auto or_default = [](std::int32_t value, std::int32_t otherwise) {
    return value == 0 ? otherwise : value;
  };
  pool_window result;
  result.kernel_h = or_default(c.kernel_h, result.kernel_h);
  result.kernel_w = or_default(c.kernel_w, result.kernel_w);
  result.stride_h = or_default(c.stride_h, result.stride_h);
  result.stride_w = or_default(c.stride_w, result.stride_w);
  result.pad_top = c.pad_top;
  result.pad_left = c.pad_left;
  result.kernel_d = or_default(c.kernel_d, result.kernel_d);
  result.stride_d = or_default(c.stride_d, result.stride_d);
  result.pad_front = c.pad_front;
  result.dilation_h = or_default(c.dilation_h, result.dilation_h);
  result.dilation_w = or_default(c.dilation_w, result.dilation_w);
  result.dilation_d = or_default(c.dilation_d, result.dilation_d);
  result.layout = enumerator<pool_layout>(function, {"window", "layout"}, c.layout);
  return result;
}

execution_context to_context(std::string_view function, const stash_execution_context* context) {
  if (context == nullptr) return {};
  const stash_execution_context c = read(function, "context", context);
  if (c.canonical != 0 && c.canonical != 1) {
    refuse(function, "context.canonical", "0 or 1", std::to_string(c.canonical));
  }
  return {enumerator<memory_space>(function, {"context", "space"}, c.space), c.parallel_for, c.user, c.stream,
          c.canonical == 1};
}

workspace_view to_workspace(std::string_view function, const stash_workspace_view* workspace) {
  if (workspace == nullptr) return {};
  const stash_workspace_view c = read(function, "workspace", workspace);
  return {c.data, c.bytes};
}

std::unique_ptr<callback_memory> to_memory(std::string_view function, std::string_view argument,
                                           const stash_memory_callbacks* callbacks) {
  if (callbacks == nullptr) return nullptr;
  const stash_memory_callbacks c = read(function, argument, callbacks);
  const memory_callbacks converted{c.user, c.allocate, c.deallocate,
                                   enumerator<memory_space>(function, {argument, "space"}, c.space)};
  return naming(function, argument, "callback_memory: callbacks",
                [&] { return std::make_unique<callback_memory>(converted); });
}

encoded_argument::encoded_argument(std::string_view function, std::string_view argument,
                                   const stash_encoded_view* view) {
  const stash_encoded_view c = read(function, argument, view);
  data_ = c.data;
  bytes_ = c.bytes;
  report_ = to_report(c.report);
  if (c.overflow == nullptr) return;
  const stash_overflow_arena arena = read(function, {argument, "overflow"}, c.overflow);
  arena_ = {arena.data, arena.bytes, arena.claimed, arena.host_data, arena.host_bytes, arena.host_claimed};
  has_arena_ = true;
}

encoded_tensor_argument::encoded_tensor_argument(std::string_view function, std::string_view argument,
                                                 const stash_encoded_tensor* tensor) {
  const stash_encoded_tensor c = read(function, argument, tensor);
  const auto member = [&](const char* name) { return std::string(argument) + "." + name; };
  how_ = to_encoding(function, c.encoding, member("encoding"));
  type_ = to_dtype(function, {argument, "type"}, c.type);
  dims_ = to_shape(function, argument, c.rank, c.dims);
  bytes_ = encoded_argument(function, member("bytes"), c.bytes);
}

encode_report* to_report(stash_encode_report* report) noexcept {
  return reinterpret_cast<encode_report*>(report);
}

stash_encode_report* from_report(encode_report* report) noexcept {
  return reinterpret_cast<stash_encode_report*>(report);
}

}  // namespace stash::c_api
