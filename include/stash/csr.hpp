// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Export of csr to the form that sparse libraries take.

#include "stash/encoding.hpp"

namespace stash {

/// Where csr_export32() writes. Rows are runs of csr_row_elements elements of the encoded tensor.
struct csr32_view {
  std::uint32_t* row_offsets = nullptr;  ///< ceil(elements / 256) + 1, from 0
  std::uint32_t* columns = nullptr;      ///< within the row: 0..255
  void* values = nullptr;                ///< of type `type`, in the columns' order
  dtype type = dtype::f32;               ///< type of the encoded tensor
  std::int64_t capacity = 0;             ///< entries that `columns` and `values` hold
};

/// Writes the conventional CSR form of an encoded csr tensor; narrow values are widened to its type, which
/// `output.type` names, too. The arrays must overlap neither the input nor each other.
/// Returns the count of non-zeros. Throws error(invalid_argument), error(capacity_exceeded) if
/// output.capacity is smaller than the count that the row ends tell (nothing is written then) or the count
/// exceeds 2^32 - 1, and error(corrupt_data) if row ends fall; tiles whose payload cannot be read set the
/// report's status and give zeros.
///
/// On a device nothing is known when the call returns: it returns -1, and the last row offset is the count.
/// What is thrown on the host is set in the report's status: status_capacity (row_offsets[0] is 2^32 - 1
/// then, columns and values are untouched), status_corrupt (a tile whose row ends fall counts as empty).
STASH_API std::int64_t csr_export32(const encoded_tensor& input, const csr32_view& output,
                                    const execution_context& context);

}  // namespace stash
