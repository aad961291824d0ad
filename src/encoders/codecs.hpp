#pragma once
/// \file
/// The encoders and decoders behind encode() and decode(). Arguments have been checked by the caller.

#include <cstdint>

#include "stash/encoding.hpp"

namespace stash::detail {

// --- sign_mask -------------------------------------------------------------------------------------------

/// flags[i] = 1 where the gradient passes for values[i] under `rule`, else 0.
void pass_flags(const float* values, std::int64_t count, framework_rule rule, std::uint8_t* flags) noexcept;

void encode_sign_mask(framework_rule rule, const const_tensor_view& input, std::uint8_t* plane,
                      const execution_context& context);
void decode_sign_mask(const std::uint8_t* plane, const tensor_view& output, const execution_context& context);

// --- cast ------------------------------------------------------------------------------------------------

void encode_cast(const encoding& e, const const_tensor_view& input, std::uint8_t* stored,
                 const execution_context& context);
void decode_cast(const encoding& e, const std::uint8_t* stored, const tensor_view& output,
                 const execution_context& context);

// --- raw -------------------------------------------------------------------------------------------------

void encode_raw(const const_tensor_view& input, std::uint8_t* bytes, const execution_context& context);
void decode_raw(const std::uint8_t* bytes, const tensor_view& output, const execution_context& context);

// --- bitmap ----------------------------------------------------------------------------------------------

/// Bytes of mask plane and tile table: where payloads start.
std::size_t bitmap_fixed_bytes(std::int64_t elements) noexcept;
std::size_t bitmap_bytes_bound(value_format values, std::int64_t elements) noexcept;
std::size_t bitmap_bytes_at_density(value_format values, std::int64_t elements, double density) noexcept;
std::size_t bitmap_bytes_exact(value_format values, const const_tensor_view& input,
                               const execution_context& context);

void encode_bitmap(const encoding& e, const const_tensor_view& input, const encoded_view& output,
                   const execution_context& context);
void decode_bitmap(const encoding& e, const const_encoded_view& input, const tensor_view& output,
                   const execution_context& context);

/// Decodes one tile of a bitmap of `elements` values into `values`; returns status bits. On an error all
/// `length` values are +0.
std::uint32_t decode_bitmap_tile(value_format format, const const_encoded_view& input, std::int64_t elements,
                                 std::int64_t tile, std::int64_t length, float* values) noexcept;

// --- checksum --------------------------------------------------------------------------------------------

/// Order-independent checksum of the element bits (docs/format.md, "Checksum").
std::uint64_t checksum(const const_tensor_view& view, const execution_context& context);

}  // namespace stash::detail
