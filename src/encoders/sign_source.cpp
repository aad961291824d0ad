#include "sign_source.hpp"

#include <fmt/format.h>

#include "bits.hpp"
#include "codecs.hpp"
#include "convert.hpp"
#include "detail.hpp"
#include "sign.hpp"

namespace stash::detail {
namespace {

/// The framework rule on narrow values: a test of the stored bits, since the order of magnitudes is theirs.
template <class Format>
void narrow_pass_bits(const std::uint8_t* stored, std::int64_t length, framework_rule rule,
                      std::uint8_t* bits) {
  using storage = typename Format::storage;
  const auto* values = reinterpret_cast<const storage*>(stored);
  // Above the largest magnitude that is not a NaN; where the format has no infinity, that is the NaN itself.
  constexpr std::int32_t last_number =
      Format::infinity != Format::largest_finite ? Format::infinity : Format::largest_finite;
  const bool nan_passes = rule == framework_rule::pytorch;
  std::uint8_t flags[tile_elements];
  fill_flags(values, length, flags, [nan_passes](storage value) {
    const bool nan = (value & Format::magnitude_mask) > last_number;
    const bool positive = (value != 0) & (value <= Format::magnitude_mask);
    return (nan & nan_passes) | (positive & !nan);
  });
  pack_flags(flags, length, bits);
}

/// A bitmap whose mask is not the sign mask: set bits pass if the stored value has no sign bit. The mask,
/// not the stored value, says "not zero", because a cast may have turned a small value into zero.
void bitmap_pass_bits(const encoding& e, const const_encoded_view& stash, std::int64_t elements,
                      framework_rule rule, std::int64_t tile, std::int64_t length, const std::uint8_t* mask,
                      std::uint8_t* bits) {
  float values[tile_elements];
  const auto bytes = static_cast<std::size_t>((length + 7) / 8);
  const std::uint32_t status = decode_bitmap_tile(e.values, stash, elements, tile, length, values);
  if (status != status_ok) {
    or_bits(stash.report->status, status);
    std::memset(bits, 0, bytes);
    return;
  }
  const bool nan_passes = rule == framework_rule::pytorch;
  std::uint8_t flags[tile_elements];
  fill_flags(values, length, flags, [nan_passes](float value) {
    const bool nan = is_nan(value);
    const bool no_sign = std::bit_cast<std::int32_t>(value) >= 0;
    return (nan & nan_passes) | (no_sign & !nan);
  });
  pack_flags(flags, length, bits);
  for (std::size_t i = 0; i < bytes; ++i)
    bits[i] &= mask[i];
}

}  // namespace

void check_sign_source(std::string_view function, const encoding& e, const const_encoded_view& stash,
                       std::int64_t elements) {
  if (e.kind == encoding_kind::bitmap) {
    check_arena(function, stash.overflow);
  } else if (e.kind == encoding_kind::cast) {
    if (e.underflow != underflow_rule::keep_nonzero) {
      fail(errc::invalid_argument, function, "encoding", "a cast with keep_nonzero, which keeps the sign",
           fmt::format("underflow rule {}", static_cast<unsigned>(e.underflow)));
    }
  } else if (e.kind != encoding_kind::sign_mask) {
    fail(errc::unsupported, function, "encoding", "sign_mask, bitmap or cast", to_string(e));
  }
  const std::size_t bound = encoded_bytes_bound(e, dtype::f32, elements);
  const bool bitmap = e.kind == encoding_kind::bitmap;
  check_encoded(function, "stash", stash, bitmap ? bitmap_fixed_bytes(elements) : bound);
}

const std::uint8_t* read_pass_bits(const encoding& e, const const_encoded_view& stash, std::int64_t elements,
                                   framework_rule rule, std::int64_t tile, std::int64_t length,
                                   std::uint8_t* buffer) {
  const auto* bytes = static_cast<const std::uint8_t*>(stash.data);
  if (e.kind == encoding_kind::cast) {
    const std::uint8_t* stored =
        bytes + tile * tile_elements * static_cast<std::int64_t>(value_bytes(e.values));
    if (e.values == value_format::fp16) {
      narrow_pass_bits<fp16_format>(stored, length, rule, buffer);
    } else {
      narrow_pass_bits<fp8_e4m3_format>(stored, length, rule, buffer);
    }
    return buffer;
  }
  const std::uint8_t* mask = bytes + tile * (tile_elements / 8);
  if (e.kind != encoding_kind::bitmap || (stash.report->flags & flag_mask_is_not_sign) == 0) return mask;
  bitmap_pass_bits(e, stash, elements, rule, tile, length, mask, buffer);
  return buffer;
}

}  // namespace stash::detail
