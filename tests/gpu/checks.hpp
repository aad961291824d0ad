// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The checks by topic. Each compares a device with the CPU, and encodings with the reference of
/// docs/format.md as well.

#include <cstdint>
#include <vector>

#include "gpu/device_buffer.hpp"
#include "gpu/harness.hpp"

namespace stash::gpu {

struct check_setup {
  int tensors = 40;  ///< random inputs for each pair of encoding and type
  buffer_mode mode = buffer_mode::guarded;
  /// Of maps on which many blocks work at once: more than a thousand of 8,192 elements.
  std::int64_t crowded_elements = 1100 * 8192 + 77;
  std::int64_t large_elements = (std::int64_t{1} << 31) + 4099;  ///< of the large maps; 0: none
};

/// Random tensors in every encoding and from every type; overflowing slots; bytes that mean nothing.
std::vector<named_check> encoding_checks(const check_setup& setup);
/// Many blocks at once: tiles in order, slots that are full, and canonical bytes of both.
std::vector<named_check> crowded_checks(const check_setup& setup);
/// ReLU, leaky ReLU and clipping, forward and from every stash.
std::vector<named_check> layer_checks(const check_setup& setup);
/// Max-pooling, alone and with ReLU, forward and from everything that can be kept of it.
std::vector<named_check> pool_checks(const check_setup& setup);
/// Dropout from a key and from a mask.
std::vector<named_check> dropout_checks(const check_setup& setup);
/// Several streams at once, recorded graphs, batches.
std::vector<named_check> stream_checks(const check_setup& setup);
/// Calls on encoded bytes in recorded graphs, which are launched on several inputs.
std::vector<named_check> graph_checks(const check_setup& setup);
/// The same for layers.
std::vector<named_check> graph_layer_checks(const check_setup& setup);
/// Steps whose maps go to the host and come back, in streams and as graphs.
std::vector<named_check> swap_checks(const check_setup& setup);
/// Stashed tensors, size queries, the swapper, and the export of csr.
std::vector<named_check> handle_checks(const check_setup& setup);
/// Maps with more elements than 32 bits can count.
std::vector<named_check> large_checks(const check_setup& setup);
/// The same for casts, csr, ReLU and pooling: their beginning and end.
std::vector<named_check> large_call_checks(const check_setup& setup);

/// Calls that run in `stream` of the device, which may be null.
inline execution_context device_context(void* stream = nullptr) {
  return {memory_space::device, nullptr, nullptr, stream};
}

}  // namespace stash::gpu
