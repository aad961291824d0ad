// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Many tensors in one call. A training step has dozens of small maps; each call costs the caller's thread
/// pool a start and a join, and a device a launch. These share one.

#include <span>

#include "stash/encoding.hpp"

namespace stash {

/// One encode() of a batch. The members mean what they mean there.
struct encode_item {
  encoding how{};
  const_tensor_view input{};
  encoded_view output{};
};

/// One decode() of a batch.
struct decode_item {
  encoded_tensor input{};
  tensor_view output{};
};

/// Workspace bytes for encode_batch(): the most that one of its items needs. Throws as workspace_bytes().
STASH_API std::size_t batch_workspace_bytes(std::span<const encode_item> items,
                                            const execution_context& context);

/// Does what encode() does for every item, in any order and at the same time; no output and no arena may
/// overlap an input, an output or a report of any item (error(invalid_argument)). Inputs, reports and arenas
/// may be shared; which tiles go to an arena then depends on the order.
/// All items are checked before the first byte is written; the message names the item.
///
/// On a device items of one encoding and element type share a launch, 32 at most: n of them are n / 32
/// launches, rounded up, wherever they stand among the others. Nothing is launched for an item without
/// elements. With context.canonical, bitmap and csr use one workspace one after another: every item is then
/// launched by itself.
STASH_API void encode_batch(std::span<const encode_item> items, const workspace_view& workspace,
                            const execution_context& context);

/// The same for decode(), whose items share launches with context.canonical, too.
STASH_API void decode_batch(std::span<const decode_item> items, const workspace_view& workspace,
                            const execution_context& context);

}  // namespace stash
