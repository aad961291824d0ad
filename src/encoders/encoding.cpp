#include "stash/encoding.hpp"

#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "codecs.hpp"
#include "convert.hpp"
#include "detail.hpp"

namespace stash {
namespace {

using namespace detail;

struct named_encoding {
  std::string_view name;
  encoding_kind kind;
  value_format values;
};

constexpr std::array names{
    named_encoding{"raw", encoding_kind::raw, value_format::source},
    named_encoding{"shape_only", encoding_kind::shape_only, value_format::source},
    named_encoding{"sign_mask", encoding_kind::sign_mask, value_format::source},
    named_encoding{"window_index", encoding_kind::window_index, value_format::source},
    named_encoding{"relu_pool", encoding_kind::relu_pool, value_format::source},
    named_encoding{"bitmap", encoding_kind::bitmap, value_format::source},
    named_encoding{"bitmap_fp16", encoding_kind::bitmap, value_format::fp16},
    named_encoding{"bitmap_fp8", encoding_kind::bitmap, value_format::fp8_e4m3},
    named_encoding{"fp16", encoding_kind::cast, value_format::fp16},
    named_encoding{"fp8", encoding_kind::cast, value_format::fp8_e4m3},
};

bool has_values(encoding_kind kind) {
  return kind == encoding_kind::bitmap || kind == encoding_kind::cast;
}

const named_encoding* find(const encoding& e) {
  for (const named_encoding& known : names) {
    if (known.kind == e.kind && (!has_values(e.kind) || known.values == e.values)) return &known;
  }
  return nullptr;
}

std::string list_of_names() {
  std::string list;
  for (const named_encoding& known : names)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", known.name);
  return list;
}

/// Checks the encoding by itself and returns its name.
std::string_view check_encoding(std::string_view function, const encoding& e) {
  const named_encoding* known = find(e);
  if (known == nullptr) {
    fail(errc::invalid_argument, function, "encoding", "one of " + list_of_names(),
         fmt::format("kind {} with value format {}", static_cast<unsigned>(e.kind),
                     static_cast<unsigned>(e.values)));
  }
  if (has_values(e.kind) && e.underflow != underflow_rule::to_zero &&
      e.underflow != underflow_rule::keep_nonzero) {
    fail(errc::invalid_argument, function, "encoding", "a known underflow rule",
         fmt::format("{}", static_cast<unsigned>(e.underflow)));
  }
  if (e.kind == encoding_kind::sign_mask) check_rule(function, e.rule);
  const int most_cells = e.kind == encoding_kind::relu_pool ? 15 : 256;
  if ((e.kind == encoding_kind::window_index || e.kind == encoding_kind::relu_pool) &&
      (e.window_cells < 1 || e.window_cells > most_cells)) {
    fail(errc::invalid_argument, function, "encoding", fmt::format("1 to {} window cells", most_cells),
         fmt::format("{}", e.window_cells));
  }
  return known->name;
}

/// Checks that `source` can be encoded so.
void check_source(std::string_view function, const encoding& e, dtype source) {
  const std::string_view name = check_encoding(function, e);
  const bool legal = has_values(e.kind)                   ? source == dtype::f32
                     : e.kind == encoding_kind::sign_mask ? source == dtype::f32 || source == dtype::u8
                                                          : size_of(source) != 0;
  if (!legal) {
    fail(errc::invalid_argument, function, "source",
         fmt::format("a type that {} encodes (f32{})", name,
                     e.kind == encoding_kind::sign_mask ? " or u8" : ""),
         fmt::format("dtype {}", static_cast<unsigned>(source)));
  }
}

void check_count(std::string_view function, std::int64_t elements) {
  if (elements >= 0 && elements <= max_elements) return;
  fail(errc::invalid_argument, function, "elements", "0 to 2^56", fmt::format("{}", elements));
}

std::size_t bytes_bound(const encoding& e, dtype source, std::int64_t elements) {
  switch (e.kind) {
    case encoding_kind::raw:
      return pad16(static_cast<std::size_t>(elements) * size_of(source));
    case encoding_kind::shape_only:
      return 0;
    case encoding_kind::sign_mask:
      return plane_bytes(elements, 1);
    case encoding_kind::window_index:
      return plane_bytes(elements, e.window_cells <= 4 ? 2 : e.window_cells <= 16 ? 4 : 8);
    case encoding_kind::relu_pool:
      return e.window_cells <= 4 ? plane_bytes(elements, 2) + plane_bytes(elements, 1)
                                 : plane_bytes(elements, 4);
    case encoding_kind::bitmap:
      return bitmap_bytes_bound(e.values, elements);
    case encoding_kind::cast:
      return pad16(static_cast<std::size_t>(elements) * value_bytes(e.values));
  }
  return 0;
}

/// What a buffer must hold at least: everything for encodings of fixed size, mask and table for a bitmap.
std::size_t bytes_needed(const encoding& e, dtype source, std::int64_t elements) {
  return e.kind == encoding_kind::bitmap ? bitmap_fixed_bytes(elements) : bytes_bound(e, source, elements);
}

void check_kind_has_values(std::string_view function, const encoding& e, dtype source,
                           bool shape_only_is_legal) {
  const std::string_view name = check_encoding(function, e);
  if (e.kind == encoding_kind::window_index || e.kind == encoding_kind::relu_pool ||
      (e.kind == encoding_kind::shape_only && !shape_only_is_legal)) {
    fail(errc::unsupported, function, "encoding", "one of dense values", name);
  }
  check_source(function, e, source);
  if (e.kind == encoding_kind::raw && size_of(source) == 2) {
    fail(errc::unsupported, function, "encoding", "raw of f32, u8 or s32", "a 16-bit type");
  }
}

/// Leaves zeros between the last byte in use and the next multiple of 16.
void clear_padding(void* data, std::size_t used, std::size_t padded) {
  if (padded != used) std::memset(static_cast<std::uint8_t*>(data) + used, 0, padded - used);
}

bool is_lossless_value(const encoding& e) {
  return e.kind != encoding_kind::sign_mask && is_lossless(e);
}

}  // namespace

bool is_lossless(const encoding& e) noexcept {
  return e.kind != encoding_kind::cast &&
         (e.kind != encoding_kind::bitmap || e.values == value_format::source);
}

std::string to_string(const encoding& e) {
  const named_encoding* known = find(e);
  if (known != nullptr) return std::string(known->name);
  fail(errc::invalid_argument, "to_string", "encoding", "one of " + list_of_names(),
       fmt::format("kind {} with value format {}", static_cast<unsigned>(e.kind),
                   static_cast<unsigned>(e.values)));
}

encoding parse_encoding(std::string_view name) {
  for (const named_encoding& known : names) {
    if (known.name == name) {
      encoding e;
      e.kind = known.kind;
      e.values = known.values;
      return e;
    }
  }
  fail(errc::invalid_argument, "parse_encoding", "name", "one of " + list_of_names(),
       fmt::format("\"{}\"", name));
}

std::size_t encoded_bytes_bound(const encoding& e, dtype source, std::int64_t elements) {
  constexpr std::string_view function = "encoded_bytes_bound";
  check_source(function, e, source);
  check_count(function, elements);
  return bytes_bound(e, source, elements);
}

std::size_t encoded_bytes_at_density(const encoding& e, dtype source, std::int64_t elements, double density) {
  constexpr std::string_view function = "encoded_bytes_at_density";
  check_source(function, e, source);
  check_count(function, elements);
  if (!(density >= 0 && density <= 1)) {
    fail(errc::invalid_argument, function, "density", "0 to 1", fmt::format("{}", density));
  }
  if (e.kind == encoding_kind::bitmap) return bitmap_bytes_at_density(e.values, elements, density);
  return bytes_bound(e, source, elements);
}

std::size_t encoded_bytes_exact(const encoding& e, const const_tensor_view& input,
                                const execution_context& context) {
  constexpr std::string_view function = "encoded_bytes_exact";
  check_context(function, context);
  check_source(function, e, input.type);
  check_view(function, "input", input, input.type);
  if (e.kind == encoding_kind::bitmap) return bitmap_bytes_exact(e.values, input, context);
  return bytes_bound(e, input.type, input.elements());
}

std::size_t workspace_bytes(const encoding& e, dtype source, std::int64_t elements) {
  constexpr std::string_view function = "workspace_bytes";
  check_source(function, e, source);
  check_count(function, elements);
  return 0;
}

void encode(const encoding& e, const const_tensor_view& input, const encoded_view& output,
            const workspace_view& /*workspace*/, const execution_context& context) {
  constexpr std::string_view function = "encode";
  check_context(function, context);
  check_kind_has_values(function, e, input.type, true);
  check_view(function, "input", input, input.type);
  const std::int64_t elements = input.elements();
  const std::size_t needed = bytes_needed(e, input.type, elements);
  check_encoded(function, "output", output, needed);

  auto* bytes = static_cast<std::uint8_t*>(output.data);
  const auto count = static_cast<std::size_t>(elements);
  if (e.kind == encoding_kind::bitmap) {
    check_arena(function, output.overflow);
    encode_bitmap(e, input, output, context);
  } else if (e.kind == encoding_kind::raw) {
    encode_raw(input, bytes, context);
    clear_padding(bytes, count * size_of(input.type), needed);
  } else if (e.kind == encoding_kind::sign_mask) {
    encode_sign_mask(e.rule, input, bytes, context);
    clear_padding(bytes, (count + 7) / 8, needed);
  } else if (e.kind == encoding_kind::cast) {
    encode_cast(e, input, bytes, context);
    clear_padding(bytes, count * value_bytes(e.values), needed);
  }
  encode_report& report = *output.report;
  if (e.kind != encoding_kind::bitmap) add(report.slot_bytes, needed);
  if (verification_enabled() && is_lossless_value(e) && e.kind != encoding_kind::shape_only) {
    std::atomic_ref<std::uint64_t>(report.checksum)
        .store(checksum(input, context), std::memory_order_relaxed);
    or_bits(report.flags, flag_has_checksum);
  }
}

void decode(const encoding& e, const const_encoded_view& input, const tensor_view& output,
            const workspace_view& /*workspace*/, const execution_context& context) {
  constexpr std::string_view function = "decode";
  check_context(function, context);
  const bool from_mask = e.kind == encoding_kind::sign_mask;
  check_kind_has_values(function, e, output.type, false);
  check_view(function, "output", output, from_mask ? dtype::u8 : output.type);
  check_encoded(function, "input", input, bytes_needed(e, output.type, output.elements()));

  const auto* bytes = static_cast<const std::uint8_t*>(input.data);
  if (e.kind == encoding_kind::bitmap) {
    check_arena(function, input.overflow);
    decode_bitmap(e, input, output, context);
  } else if (e.kind == encoding_kind::raw) {
    decode_raw(bytes, output, context);
  } else if (from_mask) {
    decode_sign_mask(bytes, output, context);
  } else {
    decode_cast(e, bytes, output, context);
  }
  encode_report& report = *input.report;
  if (verification_enabled() && is_lossless_value(e) && (report.flags & flag_has_checksum) != 0 &&
      checksum(output, context) != report.checksum) {
    or_bits(report.status, status_verification);
  }
}

bool verification_enabled() noexcept {
  static const bool enabled = [] {
    const char* value = std::getenv("STASH_VERIFY");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return enabled;
}

}  // namespace stash
