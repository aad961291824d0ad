// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a plan does with every tensor, in the words of the log.

#include <string>
#include <vector>

#include "optimizer/budget.hpp"
#include "optimizer/driver/log.hpp"

namespace stash_tf {

/// A record for every tensor that could be stored and every pooling that keeps its argmaxes. Bytes are those
/// of one sample where the batch is not known.
std::vector<logged_tensor> logged_choices(const step_context& context, const outcome& result);

/// Says in one sentence what becomes of the wish to move tensors to the host.
std::string word_on_swapping(const step_context& context, const outcome& result);

}  // namespace stash_tf
