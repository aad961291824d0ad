// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The encoders and decoders that encode() and decode() call. Arguments have been checked by the caller.

#include <cstdint>

#include "encoders/format/tile_container.hpp"
#include "encoders/format/value_codec.hpp"
#include "stash/encoding.hpp"

namespace stash::encoders {

/// Leaves zeros from byte `used` to the next multiple of 16.
void clear_padding(std::uint8_t* data, std::size_t used) noexcept;

// --- masks -----------------------------------------------------------------------------------------------

void encode_sign_mask(framework_rule rule, const const_tensor_view& input, std::uint8_t* plane,
                      const execution_context& context);
void encode_range_mask(const encoding& e, const const_tensor_view& input, std::uint8_t* plane,
                       const execution_context& context);
/// Either mask as bytes, 0 or 1, or as such numbers of a floating-point type.
void decode_mask(const std::uint8_t* plane, const tensor_view& output, const execution_context& context);

// --- cast ------------------------------------------------------------------------------------------------

/// Size of the whole encoded form: scales and elements are planes of their own.
std::size_t cast_bytes(const value_codec& codec, std::int64_t elements) noexcept;
void encode_cast(const value_codec& codec, const const_tensor_view& input, std::uint8_t* stored,
                 const execution_context& context);
void decode_cast(const value_codec& codec, const std::uint8_t* stored, const tensor_view& output,
                 const execution_context& context);
/// Values [first, first + length) of a cast of `elements` values; length <= run_elements, and `first` is a
/// multiple of what cast_run_elements() says, or in the caches of three where three values share a word.
void load_cast_run(const value_codec& codec, const std::uint8_t* stored, std::int64_t elements,
                   std::int64_t first, std::int64_t length, float* values,
                   destination to = destination::caches) noexcept;
/// Runs that start at whole bytes of what is stored: 1,024 values, or where three share a word a multiple of
/// three, which is one of the blocks of fp10's loops and of a cache line, too.
constexpr std::int64_t cast_run_elements(const value_codec& codec) noexcept {
  return in_words(codec.format) ? 960 : tile_elements;
}

// --- raw -------------------------------------------------------------------------------------------------

void encode_raw(const const_tensor_view& input, std::uint8_t* bytes, const execution_context& context);
void decode_raw(const std::uint8_t* bytes, const tensor_view& output, const execution_context& context);

// --- bitmap and csr --------------------------------------------------------------------------------------

void encode_bitmap(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                   const execution_context& context);
void encode_csr(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                const execution_context& context);
std::size_t csr_row_end_bytes(std::int64_t elements) noexcept;

// For decode_tile(), decode_presence() and count_tile() of tile_container.hpp; `values` or `present` may be
// null here.
tile_contents decode_bitmap_tile(const tile_layout& layout, const const_encoded_view& input,
                                 std::int64_t tile, float* values, std::uint8_t* present,
                                 destination to) noexcept;
tile_contents decode_csr_tile(const tile_layout& layout, const const_encoded_view& input, std::int64_t tile,
                              float* values, std::uint8_t* present) noexcept;
tile_contents count_bitmap_tile(const tile_layout& layout, const const_encoded_view& input,
                                std::int64_t tile) noexcept;
tile_contents count_csr_tile(const tile_layout& layout, const const_encoded_view& input,
                             std::int64_t tile) noexcept;

void encode_tiled(const tile_layout& layout, const const_tensor_view& input, const encoded_view& output,
                  const execution_context& context);
void decode_tiled(const tile_layout& layout, const const_encoded_view& input, const tensor_view& output,
                  const execution_context& context);
/// What the canonical form of a tensor takes.
struct tiled_size {
  std::size_t bytes = 0;
  std::uint64_t nonzeros = 0;
};
tiled_size measure_tiled(const tile_layout& layout, const const_tensor_view& input,
                         const execution_context& context);
/// canonicalise() for bitmap and csr.
void canonicalise_tiled(const tile_layout& layout, const const_encoded_view& input,
                        const encoded_view& output, const execution_context& context);

// --- checksum --------------------------------------------------------------------------------------------

/// Order-independent checksum of the element bits (docs/format.md, "Checksum").
std::uint64_t checksum(const const_tensor_view& view, const execution_context& context);
/// The part of elements [first, first + length), which lie densely at `values`.
std::uint64_t checksum_of_run(dtype type, const void* values, std::int64_t first,
                              std::int64_t length) noexcept;
/// The same of the tensor that bitmap or csr hold with source values.
std::uint64_t checksum_tiled(const tile_layout& layout, const const_encoded_view& input,
                             const execution_context& context);

}  // namespace stash::encoders
