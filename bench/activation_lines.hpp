// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Encodings and general compressors on feature maps of trained networks.

#include <vector>

#include "bench/activations.hpp"

namespace stash::bench {

/// Registers, for all maps of a network together (and with `by_layer` for each map too), one line per method
/// and direction: activations/NETWORK/encode/METHOD and .../decode/METHOD, one thread, map after map. METHOD
/// `kept` (encode only) is each map in the form that the plan of its training run keeps, pooling included
/// where one op does both; it is left out if the plan computes maps again. In addition to the counters of
/// register_work():
///   lz4_speedup  speed compared with lz4 on the same maps, timed in turn
void register_activations(std::vector<network_activations> networks, bool by_layer);

}  // namespace stash::bench
