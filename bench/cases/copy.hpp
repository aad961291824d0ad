// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// The yardstick of every case: copying as many bytes as the case has to move.

#include <cstdint>
#include <functional>

#include "stash/execution.hpp"

namespace stash::bench {

/// A call that copies memory (std::memcpy, in chunks where the context has threads) such that what it reads
/// and what it writes together are `moved_bytes`. The call owns its two buffers; `context` must outlive it.
std::function<void()> copy_call(std::int64_t moved_bytes, const execution_context& context);

}  // namespace stash::bench
