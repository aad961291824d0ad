// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the parts of the device back end offer each other. Arguments have been checked.

#include "common/host.hpp"
#include "conversions.hpp"
#include "stash/batch.hpp"
#include "tiles/tiles.hpp"

namespace stash::kernels {

void encode_mask(const encode_item& item, launches& to);
void decode_mask(const decode_item& item, launches& to);
void encode_raw(const encode_item& item, launches& to);
void decode_raw(const decode_item& item, launches& to);
void encode_cast(const encode_item& item, launches& to);
void decode_cast(const decode_item& item, launches& to);
void encode_tiled(const encode_item& item, const workspace_view& workspace, launches& to);
void decode_tiled(const decode_item& item, launches& to);

/// The planes of a cast of `elements` elements of `source`.
device_cast device_cast_of(const encoding& e, dtype source, std::uint64_t elements, const void* data);

/// A bitmap or csr of `dense`. `Encoded` is encoded_view or const_encoded_view.
template <class Encoded>
device_tiles device_tiles_of(const encoding& e, const const_tensor_view& dense, const Encoded& encoded) {
  const auto usable = [](std::uint64_t bytes) {
    constexpr std::uint64_t reach = std::uint64_t{1} << 34;  // of a table entry
    bytes = bytes / 16 * 16;
    return bytes < reach ? bytes : reach;
  };
  const auto pad16 = [](std::uint64_t bytes) { return (bytes + 15) / 16 * 16; };
  device_tiles job{};
  job.dense = device_tensor_of(dense);
  job.type = element_type_of(dense.type);
  job.conversion = conversion_of(e.values, e.underflow);
  job.code_bits = static_cast<unsigned>(8 * size_of(dense.type));
  with_code_size(e.values, [&](auto bits, auto scaled) {
    job.narrow = true;
    job.code_bits = bits;
    job.scaled = scaled;
  });
  job.data = static_cast<std::uint8_t*>(const_cast<void*>(static_cast<const void*>(encoded.data)));
  const std::uint64_t n = job.dense.elements;
  job.table_offset = e.kind == encoding_kind::csr ? pad16((n + csr_row_elements - 1) / csr_row_elements * 2)
                                                  : pad16((n + 7) / 8);
  job.fixed_bytes = job.table_offset + pad16((n + tile_elements - 1) / tile_elements * 4);
  const std::uint64_t slot = usable(encoded.bytes);
  job.slot_end = slot < job.fixed_bytes ? job.fixed_bytes : slot;
  if (encoded.overflow != nullptr) {
    job.arena = static_cast<std::uint8_t*>(encoded.overflow->data);
    job.arena_end = usable(encoded.overflow->bytes);
    job.claimed = encoded.overflow->claimed;
    job.host = static_cast<std::uint8_t*>(encoded.overflow->host_data);
    job.host_end = usable(encoded.overflow->host_bytes);
    job.host_claimed = encoded.overflow->host_claimed;
    job.overflows = true;
  }
  job.report = encoded.report;
  return job;
}

/// device_tiles::tiles(), on the host.
inline std::uint64_t tiles_of(std::uint64_t elements) {
  constexpr auto each = static_cast<std::uint64_t>(tile_elements);
  return (elements + each - 1) / each;
}

/// Blocks of the kernels of tiles_encode.hpp and tiles_decode.hpp.
inline std::uint64_t tile_blocks(std::uint64_t elements) {
  return (tiles_of(elements) + tile_warps - 1) / tile_warps;
}

}  // namespace stash::kernels
