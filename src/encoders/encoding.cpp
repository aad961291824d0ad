// SPDX-License-Identifier: Apache-2.0
#include "stash/encoding.hpp"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

#include "encoders/device/backend.hpp"
#include "encoders/encoding_checks.hpp"
#include "encoders/format/codecs.hpp"
#include "encoders/format/kind_codec.hpp"
#include "encoders/format/sign.hpp"
#include "encoders/format/values.hpp"
#include "encoders/overlap_check.hpp"
#include "encoders/public_call.hpp"

namespace stash {
namespace encoders {
namespace {

/// Checks the encoding by itself; returns its row.
const kind_codec& checked_codec(std::string_view function, const encoding& e) {
  check_known(function, e);
  const kind_codec& codec = codec_of(e.kind);
  codec.check(function, e);
  return codec;
}

/// Checks that `source`, the type of `argument`, can be encoded so.
const kind_codec& check_source(std::string_view function, std::string_view argument, const encoding& e,
                               dtype source) {
  const kind_codec& codec = checked_codec(function, e);
  const source_types types = codec.types(e, source);
  if (types.legal) return codec;
  fail(errc::invalid_argument, function, argument,
       fmt::format("a type that {} encodes ({})", to_string(e), types.words), type_name(source));
}

void check_count(std::string_view function, std::int64_t elements) {
  if (elements >= 0 && elements <= max_elements) return;
  fail(errc::invalid_argument, function, "elements", "0 to 2^56", fmt::format("{}", elements));
}

const kind_codec& check_kind_has_values(std::string_view function, std::string_view argument,
                                        const encoding& e, dtype source, bool shape_only_is_legal) {
  const kind_codec& codec = checked_codec(function, e);
  if (codec.content == kind_content::pool_codes ||
      (codec.content == kind_content::nothing && !shape_only_is_legal)) {
    fail(errc::unsupported, function, "encoding", "one of dense values", to_string(e));
  }
  return check_source(function, argument, e, source);
}

/// 0 to 1. By the bits: where denormals are zeros, negative ones would be in between.
bool is_share(double value) noexcept {
  const auto bits = std::bit_cast<std::int64_t>(value);
  constexpr auto negative_zero = std::numeric_limits<std::int64_t>::min();
  return (bits >= 0 && bits <= std::bit_cast<std::int64_t>(1.0)) || bits == negative_zero;
}

/// True if the views of an item, each as large as it says, lie apart. Arenas are not looked at.
template <class Encoded>
[[gnu::always_inline]] inline bool plainly_apart_from(const extent& dense, const Encoded& bytes) noexcept {
  const extent all[] = {dense, extent_of(bytes.data, bytes.bytes),
                        extent_of(bytes.report, sizeof(encode_report))};
  return bytes.overflow == nullptr && encoders::plainly_apart(all);
}
inline bool plainly_apart_of(const encode_item& item) noexcept {
  return plainly_apart_from(extent_of(item.input), item.output);
}
inline bool plainly_apart_of(const decode_item& item) noexcept {
  return plainly_apart_from(extent_of(item.output), item.input.bytes);
}

template <class Item>
void check_overlap(std::string_view function, const Item& item, void* workspace = nullptr,
                   std::size_t bytes = 0) {
  if (bytes == 0 && plainly_apart_of(item)) return;
  call_memory memory(function);
  accesses_of(
      item,
      use::written, [&memory](const memory_access& p) __attribute__((always_inline)) { memory.add(p); });
  memory.writes("workspace", workspace, bytes);
}

/// Whether encode() leaves a checksum, which decode() compares.
bool has_checksum(const encoding& e) {
  return codec_of(e.kind).keeps_values(e);
}

/// What encode() left for decode() goes on with copied bytes. It is not made again: of bytes that are damaged
/// it would say that they are right.
void pass_checksum_on(const encoded_tensor& input, const encoded_view& output,
                      const execution_context& context) {
  const encode_report& report = *input.bytes.report;
  if (!has_checksum(input.how) || (report.flags & flag_has_checksum) == 0) return;
  if (verification_enabled()) {
    const const_tensor_view raw{input.bytes.data, input.type, memory_space::host, shape{input.elements()}, 0};
    const std::uint64_t found =
        codec_of(input.how.kind).tiled()
            ? checksum_tiled(layout_of(input.how, input.type, input.elements()), input.bytes, context)
            : checksum(raw, context);
    if (found != report.checksum) or_bits(input.bytes.report->status, status_verification);
  }
  std::atomic_ref<std::uint64_t>(output.report->checksum).store(report.checksum, std::memory_order_relaxed);
  or_bits(output.report->flags, flag_has_checksum);
}

}  // namespace

bool is_tiled(encoding_kind kind) noexcept {
  const kind_codec* const codec = find_codec(kind);
  return codec != nullptr && codec->tiled();
}

std::size_t bytes_bound(const encoding& e, dtype source, std::int64_t elements) {
  return codec_of(e.kind).bytes_bound(e, source, elements);
}

std::size_t bytes_needed(const encoding& e, dtype source, std::int64_t elements) {
  const kind_codec& codec = codec_of(e.kind);
  if (codec.tiled() && elements != 0) return layout_of(e, source, elements).fixed_bytes();
  return codec.bytes_bound(e, source, elements);
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
  if (on_device(context)) return device::kernels().count(e, input, &report, context);
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
  if (codec_of(e.kind).tiled()) check_arena(function, "output", item.output.overflow, context.space);
  check_overlap(function, item);
}

void run_encode(const encode_item& item, const workspace_view& workspace, const execution_context& context) {
  // The bounds of a range_mask are rounded by the host.
  if (on_device(context)) {
    return in_default_rounding([&] { device::kernels().encode(item, workspace, context); });
  }
  const kind_codec& codec = codec_of(item.how.kind);
  const std::int64_t elements = item.input.elements();
  encode_report& report = *item.output.report;
  if (codec.encode != nullptr && elements != 0) codec.encode(item, context);
  if (!codec.tiled()) add(report.slot_bytes, codec.bytes_bound(item.how, item.input.type, elements));
  if (verification_enabled() && has_checksum(item.how)) {
    std::atomic_ref<std::uint64_t>(report.checksum)
        .store(checksum(item.input, context), std::memory_order_relaxed);
    or_bits(report.flags, flag_has_checksum);
  }
}

void check_same_elements(std::string_view function, std::string_view argument, const encoded_tensor& tensor,
                         std::string_view dense_name, const const_tensor_view& dense) {
  if (tensor.elements() != dense.elements()) {
    fail(errc::invalid_argument, function, argument,
         fmt::format("{} elements, as many as {} has", dense.elements(), dense_name),
         fmt::format("{}", tensor.elements()));
  }
  const kind_codec* const codec = find_codec(tensor.how.kind);
  const bool any = codec != nullptr && (codec->is_mask() || codec->content == kind_content::pool_codes);
  if (any || tensor.type == dense.type) return;
  fail(errc::invalid_argument, function, argument,
       fmt::format("a tensor of {}, as {} is", type_name(dense.type), dense_name), type_name(tensor.type));
}

void check_kind(std::string_view function, std::string_view argument, const encoded_tensor& tensor,
                const encoding& expected) {
  check_known(function, tensor.how);
  if (tensor.how.kind != expected.kind) {
    fail(errc::invalid_argument, function, argument, to_string(expected), to_string(tensor.how));
  }
  if (codec_of(expected.kind).content != kind_content::pool_codes ||
      tensor.how.window_taps == expected.window_taps)
    return;
  fail(errc::invalid_argument, function, argument,
       fmt::format("{} of {} taps, as the window has", to_string(expected), expected.window_taps),
       fmt::format("one of {} taps", tensor.how.window_taps));
}

void check_decode(std::string_view function, const decode_item& item, const execution_context& context) {
  const encoding& e = item.input.how;
  check_context(function, context);
  // A mask becomes what the caller asks for, whatever it was taken from.
  const kind_codec* const codec = find_codec(e.kind);
  const bool mask = codec != nullptr && codec->is_mask();
  const dtype source = mask ? dtype::f32 : item.output.type;
  check_kind_has_values(function, "output", e, source, false);
  if (mask && item.output.type != dtype::u8 && !is_float(item.output.type)) {
    fail(errc::invalid_argument, function, "output",
         fmt::format("a type that {} decodes to (u8, f32, f16 or bf16)", to_string(e)),
         type_name(item.output.type));
  }
  check_view(function, "output", item.output, item.output.type, context.space);
  check_same_elements(function, "input", item.input, "output", item.output);
  check_encoded(function, "input", item.input.bytes, bytes_needed(e, source, item.output.elements()));
  if (codec_of(e.kind).tiled()) check_arena(function, "input", item.input.bytes.overflow, context.space);
  check_overlap(function, item);
}

void run_decode(const decode_item& item, const execution_context& context) {
  if (on_device(context)) return device::kernels().decode(item, context);
  if (item.output.elements() == 0) return;
  codec_of(item.input.how.kind).decode(item, context);
  encode_report& report = *item.input.bytes.report;
  if (verification_enabled() && has_checksum(item.input.how) && (report.flags & flag_has_checksum) != 0 &&
      checksum(item.output, context) != report.checksum) {
    or_bits(report.status, status_verification);
  }
}

}  // namespace encoders

using namespace encoders;

bool is_lossless(const encoding& e) noexcept {
  const kind_codec* const codec = find_codec(e.kind);
  return codec != nullptr && codec->lossless(e);
}

std::size_t encoded_bytes_bound(const encoding& e, dtype source, std::int64_t elements) try {
  return checked_bytes_bound("encoded_bytes_bound", "source", e, source, elements);
} catch (...) {
  encoders::rethrow("encoded_bytes_bound");
}

std::size_t encoded_bytes_at_density(const encoding& e, dtype source, std::int64_t elements,
                                     double density) try {
  constexpr std::string_view function = "encoded_bytes_at_density";
  const std::size_t bound = checked_bytes_bound(function, "source", e, source, elements);
  if (!is_share(density)) {
    fail(errc::invalid_argument, function, "density", "0 to 1", fmt::format("{}", density));
  }
  if (!codec_of(e.kind).tiled()) return bound;
  return in_default_rounding([&] { return layout_of(e, source, elements).bytes_at_density(density); });
} catch (...) {
  encoders::rethrow("encoded_bytes_at_density");
}

std::size_t encoded_bytes_exact(const encoding& e, const const_tensor_view& input,
                                const execution_context& context) try {
  constexpr std::string_view function = "encoded_bytes_exact";
  if (on_device(context)) {
    fail(errc::unsupported, function, "context", "a host context (on a device a size_query counts)",
         "a device context");
  }
  check_count_input(function, e, input, context);
  if (codec_of(e.kind).tiled())
    return measure_tiled(layout_of(e, input.type, input.elements()), input, context).bytes;
  return bytes_bound(e, input.type, input.elements());
} catch (...) {
  encoders::rethrow("encoded_bytes_exact");
}

std::size_t workspace_bytes(const encoding& e, dtype source, std::int64_t elements,
                            const execution_context& context) try {
  checked_bytes_bound("workspace_bytes", "source", e, source, elements);
  if (!on_device(context) || !context.canonical || !codec_of(e.kind).tiled()) return 0;
  return canonical_workspace_bytes(elements);
} catch (...) {
  encoders::rethrow("workspace_bytes");
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
  encoders::rethrow("encode");
}

void decode(const encoded_tensor& input, const tensor_view& output, const workspace_view& /*workspace*/,
            const execution_context& context) try {
  const decode_item item{input, output};
  check_decode("decode", item, context);
  run_decode(item, context);
} catch (...) {
  encoders::rethrow("decode");
}

void canonicalise(const encoded_tensor& input, const encoded_view& output,
                  const execution_context& context) try {
  constexpr std::string_view function = "canonicalise";
  check_context(function, context);
  const kind_codec& codec = check_source(function, "input", input.how, input.type);
  const std::int64_t elements = input.elements();
  check_count(function, elements);
  const std::size_t needed = bytes_needed(input.how, input.type, elements);
  check_encoded(function, "input", input.bytes, needed);
  check_encoded(function, "output", output, needed);
  if (codec.tiled()) check_arena(function, "input", input.bytes.overflow, context.space);
  const std::size_t most = bytes_bound(input.how, input.type, elements);
  call_memory(function)
      .reads("input", input.bytes, most)
      .arena("input", codec.tiled() ? input.bytes.overflow : nullptr, use::read)
      .writes("output", output, most);
  if (codec.tiled()) {
    if (on_device(context)) return device::kernels().canonicalise(input, output, context);
    const encoded_view slot_only{output.data, output.bytes, nullptr, output.report};
    canonicalise_tiled(layout_of(input.how, input.type, elements), input.bytes, slot_only, context);
  } else if (on_device(context)) {
    if (needed != 0) {
      device::kernels().copy_encoded(input.bytes.data, output.data, needed, output.report, context);
    }
    return;
  } else if (needed != 0) {
    std::memcpy(output.data, input.bytes.data, needed);
    add(output.report->slot_bytes, needed);
  }
  pass_checksum_on(input, output, context);
} catch (...) {
  encoders::rethrow("canonicalise");
}

bool verification_enabled() noexcept {
  static const bool enabled = [] {
    const char* value = std::getenv("STASH_VERIFY");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return enabled;
}

}  // namespace stash
