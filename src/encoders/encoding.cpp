// SPDX-License-Identifier: Apache-2.0
#include "stash/encoding.hpp"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

#include "encoders/device/device.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/public_call.hpp"

namespace stash {
namespace detail {
namespace {

bool has_values(encoding_kind kind) noexcept {
  return kind == encoding_kind::bitmap || kind == encoding_kind::csr || kind == encoding_kind::cast;
}
bool tiled(encoding_kind kind) noexcept {
  return kind == encoding_kind::bitmap || kind == encoding_kind::csr;
}
bool is_mask(encoding_kind kind) noexcept {
  return kind == encoding_kind::sign_mask || kind == encoding_kind::range_mask;
}
bool is_pool_code(encoding_kind kind) noexcept {
  return kind == encoding_kind::window_index || kind == encoding_kind::relu_pool;
}

value_codec codec_of(const encoding& e, dtype source) noexcept {
  return {e.values, e.underflow, source};
}

/// Checks the encoding by itself.
void check_encoding(std::string_view function, const encoding& e) {
  check_known(function, e);
  if (has_values(e.kind) && e.underflow != underflow_rule::to_zero &&
      e.underflow != underflow_rule::keep_nonzero) {
    fail(errc::invalid_argument, function, "encoding", "a known underflow rule",
         fmt::format("{}", static_cast<unsigned>(e.underflow)));
  }
  if (is_mask(e.kind)) check_rule(function, e.rule, "encoding");
  if (e.kind == encoding_kind::range_mask && !is_below(e.lower, e.upper)) {
    fail(errc::invalid_argument, function, "encoding", "a lower bound below the upper one",
         fmt::format("{} and {}", e.lower, e.upper));
  }
  const int most_taps = e.kind == encoding_kind::relu_pool ? 15 : 256;
  if (is_pool_code(e.kind) && (e.window_taps < 1 || e.window_taps > most_taps)) {
    fail(errc::invalid_argument, function, "encoding", fmt::format("1 to {} window taps", most_taps),
         fmt::format("{}", e.window_taps));
  }
}

/// Checks that `source`, the type of `argument`, can be encoded so.
void check_source(std::string_view function, std::string_view argument, const encoding& e, dtype source) {
  check_encoding(function, e);
  std::string_view types = "f32, f16 or bf16";
  bool legal = is_float(source);
  if (e.kind == encoding_kind::sign_mask) {
    types = "f32, f16, bf16 or u8";
    legal = legal || source == dtype::u8;
  } else if (e.kind == encoding_kind::cast && value_bits(e.values, source) == 16) {
    types = "f32";
    legal = source == dtype::f32;
  } else if (!has_values(e.kind) && e.kind != encoding_kind::range_mask) {
    types = "a known type";
    legal = size_of(source) != 0;
  }
  if (legal) return;
  fail(errc::invalid_argument, function, argument,
       fmt::format("a type that {} encodes ({})", to_string(e), types), type_name(source));
}

void check_count(std::string_view function, std::int64_t elements) {
  if (elements >= 0 && elements <= max_elements) return;
  fail(errc::invalid_argument, function, "elements", "0 to 2^56", fmt::format("{}", elements));
}

void check_kind_has_values(std::string_view function, std::string_view argument, const encoding& e,
                           dtype source, bool shape_only_is_legal) {
  check_encoding(function, e);
  if (is_pool_code(e.kind) || (e.kind == encoding_kind::shape_only && !shape_only_is_legal)) {
    fail(errc::unsupported, function, "encoding", "one of dense values", to_string(e));
  }
  check_source(function, argument, e, source);
}

/// 0 to 1. By the bits: where denormals are zeros, negative ones would be in between.
bool is_share(double value) noexcept {
  const auto bits = std::bit_cast<std::int64_t>(value);
  constexpr auto negative_zero = std::numeric_limits<std::int64_t>::min();
  return (bits >= 0 && bits <= std::bit_cast<std::int64_t>(1.0)) || bits == negative_zero;
}

/// Leaves zeros between the last byte in use and the next multiple of 16.
void clear_padding(void* data, std::size_t used, std::size_t padded) {
  if (padded != used) std::memset(static_cast<std::uint8_t*>(data) + used, 0, padded - used);
}

template <class Item>
void check_overlap(std::string_view function, const Item& item, void* workspace = nullptr,
                   std::size_t bytes = 0) {
  call_memory memory(function);
  accesses_of(
      item,
      use::written, [&memory](const memory_access& p) __attribute__((always_inline)) { memory.add(p); });
  memory.writes("workspace", workspace, bytes);
}

bool is_lossless_value(const encoding& e) {
  return e.kind == encoding_kind::raw || (tiled(e.kind) && e.values == value_format::source);
}

/// What encode() left for decode() goes on with copied bytes. It is not made again: of bytes that are damaged
/// it would say that they are right.
void pass_checksum_on(const encoding& e, dtype source, std::int64_t elements, const const_encoded_view& input,
                      const encoded_view& output, const execution_context& context) {
  if (!is_lossless_value(e) || (input.report->flags & flag_has_checksum) == 0) return;
  const std::uint64_t expected = input.report->checksum;
  if (verification_enabled()) {
    const const_tensor_view raw{input.data, source, memory_space::host, shape{elements}, 0};
    const std::uint64_t found = tiled(e.kind) ? checksum_tiled(layout_of(e, source, elements), input, context)
                                              : checksum(raw, context);
    if (found != expected) or_bits(input.report->status, status_verification);
  }
  std::atomic_ref<std::uint64_t>(output.report->checksum).store(expected, std::memory_order_relaxed);
  or_bits(output.report->flags, flag_has_checksum);
}

}  // namespace

std::size_t bytes_bound(const encoding& e, dtype source, std::int64_t elements) {
  switch (e.kind) {
    case encoding_kind::raw:
      return pad16(static_cast<std::size_t>(elements) * size_of(source));
    case encoding_kind::shape_only:
      return 0;
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
      return plane_bytes(elements, 1);
    case encoding_kind::window_index:
      return plane_bytes(elements, e.window_taps <= 4 ? 2 : e.window_taps <= 16 ? 4 : 8);
    case encoding_kind::relu_pool:
      return e.window_taps <= 4 ? plane_bytes(elements, 2) + plane_bytes(elements, 1)
                                : plane_bytes(elements, 4);
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return layout_of(e, source, elements).bytes_bound();
    case encoding_kind::cast:
      return cast_bytes(codec_of(e, source), elements);
  }
  return 0;
}

std::size_t bytes_needed(const encoding& e, dtype source, std::int64_t elements) {
  if (tiled(e.kind) && elements != 0) return layout_of(e, source, elements).fixed_bytes();
  return bytes_bound(e, source, elements);
}

std::size_t checked_bytes_bound(std::string_view function, std::string_view argument, const encoding& e,
                                dtype source, std::int64_t elements) {
  check_source(function, argument, e, source);
  check_count(function, elements);
  return bytes_bound(e, source, elements);
}

void check_encode_input(std::string_view function, const encoding& e, const const_tensor_view& input,
                        const execution_context& context) {
  check_context(function, context);
  check_kind_has_values(function, "input", e, input.type, true);
  check_view(function, "input", input, input.type, context.space);
}

void check_count_input(std::string_view function, const encoding& e, const const_tensor_view& input,
                       const execution_context& context) {
  check_context(function, context);
  check_source(function, "input", e, input.type);
  check_view(function, "input", input, input.type, context.space);
}

void run_count(const encoding& e, const const_tensor_view& input, encode_report& report,
               const execution_context& context) {
  if (input.elements() == 0) return;
  if (on_device(context)) return device::count(e, input, &report, context);
  const tiled_size size = measure_tiled(layout_of(e, input.type, input.elements()), input, context);
  add(report.slot_bytes, size.bytes);
  add(report.nonzeros, size.nonzeros);
}

void check_workspace(std::string_view function, const workspace_view& workspace, std::size_t needed,
                     std::span<const encode_item> items) {
  if (needed == 0) return;
  if (workspace.bytes < needed) {
    fail(errc::capacity_exceeded, function, "workspace", fmt::format("at least {} bytes", needed),
         fmt::format("{}", workspace.bytes));
  }
  if (workspace.data == nullptr || reinterpret_cast<std::uintptr_t>(workspace.data) % 64 != 0) {
    fail(errc::invalid_argument, function, "workspace", "memory aligned to 64 bytes",
         fmt::format("{}", workspace.data));
  }
  for (const encode_item& item : items)
    check_overlap(function, item, workspace.data, needed);
}

void check_encode(std::string_view function, const encode_item& item, const execution_context& context) {
  const encoding& e = item.how;
  check_encode_input(function, e, item.input, context);
  check_encoded(function, "output", item.output, bytes_needed(e, item.input.type, item.input.elements()));
  if (tiled(e.kind)) check_arena(function, "output", item.output.overflow, context.space);
  check_overlap(function, item);
}

void run_encode(const encode_item& item, const workspace_view& workspace, const execution_context& context) {
  // The bounds of a range_mask are rounded by the host.
  if (on_device(context)) return in_default_rounding([&] { device::encode(item, workspace, context); });
  const encoding& e = item.how;
  const const_tensor_view& input = item.input;
  const std::int64_t elements = input.elements();
  auto* bytes = static_cast<std::uint8_t*>(item.output.data);
  const auto count = static_cast<std::size_t>(elements);
  encode_report& report = *item.output.report;
  if (tiled(e.kind)) {
    encode_tiled(layout_of(e, input.type, elements), input, item.output, context);
  } else {
    const std::size_t size = bytes_bound(e, input.type, elements);
    if (elements == 0 || e.kind == encoding_kind::shape_only) {
      // Nothing is stored.
    } else if (e.kind == encoding_kind::raw) {
      encode_raw(input, bytes, context);
      clear_padding(bytes, count * size_of(input.type), size);
    } else if (e.kind == encoding_kind::sign_mask) {
      encode_sign_mask(e.rule, input, bytes, context);
      clear_padding(bytes, (count + 7) / 8, size);
    } else if (e.kind == encoding_kind::range_mask) {
      encode_range_mask(e, input, bytes, context);
      clear_padding(bytes, (count + 7) / 8, size);
    } else {
      encode_cast(codec_of(e, input.type), input, bytes, context);
    }
    add(report.slot_bytes, size);
  }
  if (verification_enabled() && is_lossless_value(e)) {
    std::atomic_ref<std::uint64_t>(report.checksum)
        .store(checksum(input, context), std::memory_order_relaxed);
    or_bits(report.flags, flag_has_checksum);
  }
}

void check_decode(std::string_view function, const decode_item& item, const execution_context& context) {
  const encoding& e = item.how;
  check_context(function, context);
  // A mask becomes what the caller asks for, whatever it was taken from.
  const bool mask = is_mask(e.kind);
  const dtype source = mask ? dtype::f32 : item.output.type;
  check_kind_has_values(function, "output", e, source, false);
  if (mask && item.output.type != dtype::u8 && !is_float(item.output.type)) {
    fail(errc::invalid_argument, function, "output",
         fmt::format("a type that {} decodes to (u8, f32, f16 or bf16)", to_string(e)),
         type_name(item.output.type));
  }
  check_view(function, "output", item.output, item.output.type, context.space);
  check_encoded(function, "input", item.input, bytes_needed(e, source, item.output.elements()));
  if (tiled(e.kind)) check_arena(function, "input", item.input.overflow, context.space);
  check_overlap(function, item);
}

void run_decode(const decode_item& item, const execution_context& context) {
  if (on_device(context)) return device::decode(item, context);
  const encoding& e = item.how;
  const tensor_view& output = item.output;
  const auto* bytes = static_cast<const std::uint8_t*>(item.input.data);
  if (output.elements() == 0) return;
  if (tiled(e.kind)) {
    decode_tiled(layout_of(e, output.type, output.elements()), item.input, output, context);
  } else if (e.kind == encoding_kind::raw) {
    decode_raw(bytes, output, context);
  } else if (is_mask(e.kind)) {
    decode_mask(bytes, output, context);
  } else {
    decode_cast(codec_of(e, output.type), bytes, output, context);
  }
  encode_report& report = *item.input.report;
  if (verification_enabled() && is_lossless_value(e) && (report.flags & flag_has_checksum) != 0 &&
      checksum(output, context) != report.checksum) {
    or_bits(report.status, status_verification);
  }
}

}  // namespace detail

using namespace detail;

bool is_lossless(const encoding& e) noexcept {
  switch (e.kind) {
    case encoding_kind::raw:
    case encoding_kind::shape_only:
    case encoding_kind::sign_mask:
    case encoding_kind::range_mask:
    case encoding_kind::window_index:
    case encoding_kind::relu_pool:
      return true;
    case encoding_kind::bitmap:
    case encoding_kind::csr:
      return e.values == value_format::source;
    case encoding_kind::cast:
      return false;
  }
  return false;
}

std::size_t encoded_bytes_bound(const encoding& e, dtype source, std::int64_t elements) try {
  return checked_bytes_bound("encoded_bytes_bound", "source", e, source, elements);
} catch (...) {
  detail::rethrow("encoded_bytes_bound");
}

std::size_t encoded_bytes_at_density(const encoding& e, dtype source, std::int64_t elements,
                                     double density) try {
  constexpr std::string_view function = "encoded_bytes_at_density";
  const std::size_t bound = checked_bytes_bound(function, "source", e, source, elements);
  if (!is_share(density)) {
    fail(errc::invalid_argument, function, "density", "0 to 1", fmt::format("{}", density));
  }
  if (!tiled(e.kind)) return bound;
  return in_default_rounding([&] { return layout_of(e, source, elements).bytes_at_density(density); });
} catch (...) {
  detail::rethrow("encoded_bytes_at_density");
}

std::size_t encoded_bytes_exact(const encoding& e, const const_tensor_view& input,
                                const execution_context& context) try {
  constexpr std::string_view function = "encoded_bytes_exact";
  if (on_device(context)) {
    fail(errc::unsupported, function, "context", "a host context (on a device a size_query counts)",
         "a device context");
  }
  check_count_input(function, e, input, context);
  if (tiled(e.kind)) return measure_tiled(layout_of(e, input.type, input.elements()), input, context).bytes;
  return bytes_bound(e, input.type, input.elements());
} catch (...) {
  detail::rethrow("encoded_bytes_exact");
}

std::size_t workspace_bytes(const encoding& e, dtype source, std::int64_t elements,
                            const execution_context& context) try {
  checked_bytes_bound("workspace_bytes", "source", e, source, elements);
  if (!on_device(context) || !context.canonical || !tiled(e.kind)) return 0;
  return canonical_workspace_bytes(elements);
} catch (...) {
  detail::rethrow("workspace_bytes");
}

void encode(const encoding& e, const const_tensor_view& input, const encoded_view& output,
            const workspace_view& workspace, const execution_context& context) try {
  const encode_item item{e, input, output};
  check_encode("encode", item, context);
  if (on_device(context)) {
    check_workspace("encode", workspace, workspace_bytes(e, input.type, input.elements(), context),
                    std::span(&item, 1));
  }
  run_encode(item, workspace, context);
} catch (...) {
  detail::rethrow("encode");
}

void decode(const encoding& e, const const_encoded_view& input, const tensor_view& output,
            const workspace_view& /*workspace*/, const execution_context& context) try {
  const decode_item item{e, input, output};
  check_decode("decode", item, context);
  run_decode(item, context);
} catch (...) {
  detail::rethrow("decode");
}

void canonicalise(const encoding& e, dtype source, std::int64_t elements, const const_encoded_view& input,
                  const encoded_view& output, const execution_context& context) try {
  constexpr std::string_view function = "canonicalise";
  check_context(function, context);
  check_source(function, "source", e, source);
  check_count(function, elements);
  const std::size_t needed = bytes_needed(e, source, elements);
  check_encoded(function, "input", input, needed);
  check_encoded(function, "output", output, needed);
  if (tiled(e.kind)) check_arena(function, "input", input.overflow, context.space);
  const std::size_t most = bytes_bound(e, source, elements);
  call_memory(function)
      .reads("input", input, most)
      .arena("input", tiled(e.kind) ? input.overflow : nullptr, use::read)
      .writes("output", output, most);
  if (tiled(e.kind)) {
    if (on_device(context)) return device::canonicalise(e, source, elements, input, output, context);
    const encoded_view slot_only{output.data, output.bytes, nullptr, output.report};
    canonicalise_tiled(layout_of(e, source, elements), input, slot_only, context);
  } else if (on_device(context)) {
    if (needed != 0) device::copy_encoded(input.data, output.data, needed, output.report, context);
    return;
  } else if (needed != 0) {
    std::memcpy(output.data, input.data, needed);
    add(output.report->slot_bytes, needed);
  }
  pass_checksum_on(e, source, elements, input, output, context);
} catch (...) {
  detail::rethrow("canonicalise");
}

bool verification_enabled() noexcept {
  static const bool enabled = [] {
    const char* value = std::getenv("STASH_VERIFY");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return enabled;
}

}  // namespace stash
