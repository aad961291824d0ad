// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// How large an encoded tensor turned out, asked without waiting. Encoders leave the figures in the report,
/// which lies where the kernel can write it; a query fetches them after the work that is enqueued in the
/// context's stream and says when they are there. Capacities of later steps are chosen from them.

#include <cstdint>
#include <memory>

#include "stash/encoding.hpp"

namespace stash {

/// What is known of an encoded tensor.
struct stored_size {
  std::uint64_t bytes = 0;           ///< in use of the slot; of fixed-size encodings all of it
  std::uint64_t overflow_bytes = 0;  ///< did not fit the slot: in the arena or the host overflow
  std::uint64_t nonzeros = 0;        ///< bitmap and csr: elements whose bits are not all zero; others: 0
  double density = 1.0;              ///< nonzeros / elements; 1 where nothing was counted, or for no elements
  std::uint32_t status = status_ok;  ///< status_bits of the report
};

/// Copies share what they wait for. On the host, calls are complete when they return, and so is every query;
/// on a device the report is copied to the host after the work of the stream. There the end of the last copy
/// of a query waits for that too if it has not happened yet.
class STASH_API size_query {
 public:
  size_query() noexcept = default;  ///< ready, nothing stored

  /// Asks for the size of `stored`, whose bytes are the view that its encoder was given. Throws
  /// error(invalid_argument) for a null report or views that encode() would refuse; on a device also
  /// error(out_of_memory) and error(device_failure).
  size_query(const encoded_tensor& stored, const execution_context& context);

  /// Counts what encoding exactly `input` would store, without storing it: encoded_bytes_exact() for callers
  /// on a device, who must not wait. The answer's bytes are those of the canonical form. Kernels (on the
  /// host, the call) read the tensor once and add to `report`, which the caller has zeroed and keeps in
  /// memory of the context's space until the answer is there. Nothing is counted, and the report is left
  /// alone, for encodings of fixed size. Throws as encoded_bytes_exact() does on the host,
  /// error(invalid_argument) for a null report, and on a device also error(out_of_memory) and
  /// error(device_failure).
  size_query(const encoding& e, const const_tensor_view& input, encode_report* report,
             const execution_context& context);

  /// True if wait() would not wait. Never blocks.
  bool ready() const noexcept;
  /// The figures, once they are there.
  stored_size wait() const;

 private:
  struct pending;

  stored_size size_;                  ///< on a device, without what the report says
  std::shared_ptr<pending> pending_;  ///< null: all is known
};

}  // namespace stash
