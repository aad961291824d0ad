// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What an encoder or decoder has to say about the data it saw. The record lives in memory that the kernel
/// can write (device memory for device tensors); it is read asynchronously, never by the call itself.

#include <cstdint>

namespace stash {

/// Bits of encode_report::status. The caller zeroes the record before the first call; calls OR bits in.
/// With any bit set the output of the call is unspecified, but nothing outside its buffers was touched.
enum status_bits : std::uint32_t {
  status_ok = 0,
  status_capacity = 1,      ///< slot, arena and host overflow were too small: part was not stored
  status_corrupt = 2,       ///< encoded bytes contradict the descriptor
  status_verification = 4,  ///< STASH_VERIFY=1: the decoded tensor differs from the one that was encoded
};

/// Bits of encode_report::flags, set by encoders.
enum report_flags : std::uint32_t {
  /// A bitmap's set bits are not exactly the positive values (a negative value, -0 or NaN is among them);
  /// readers of the sign then look at the values. Clear: the mask plane is the sign mask.
  flag_mask_is_not_sign = 1,
  /// `checksum` is valid (STASH_VERIFY=1 and a lossless encoding).
  flag_has_checksum = 2,
};

/// One record per encoded tensor. 40 bytes, no padding; the caller zeroes it before encode().
struct encode_report {
  std::uint32_t status = 0;
  std::uint32_t flags = 0;
  std::uint64_t nonzeros = 0;    ///< exact count of elements whose bits are not all zero (sparse encodings);
                                 ///< counted in full even when the capacity did not suffice
  std::uint64_t slot_bytes = 0;  ///< bytes of the slot in use, mask and table included; on a device the whole
                                 ///< slot if a payload did not fit
  std::uint64_t overflow_bytes = 0;  ///< bytes that did not fit the slot and were claimed of the arena or the
                                     ///< host overflow
  std::uint64_t checksum = 0;        ///< order-independent checksum of the source bits
};
static_assert(sizeof(encode_report) == 40);

}  // namespace stash
