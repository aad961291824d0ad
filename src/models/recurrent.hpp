// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the recurrent networks share: LSTM layers step by step, and logits in chunks of time steps.

#include <cstdint>
#include <string>
#include <vector>

#include "models/tape.hpp"

namespace stash::models {

/// One LSTM layer with weights of its own for each of its inputs, for the state, and one bias.
class lstm_layer {
 public:
  /// `widths` of the inputs of a step.
  lstm_layer(tape& t, const std::string& name, const std::vector<std::int64_t>& widths, std::int64_t hidden);

  /// The next output. Inputs that are none (zero at the first step) are left out, and so is the state before
  /// the first step.
  value step(tape& t, const std::string& name, const std::vector<value>& inputs);

  tape::lstm_state state{};

 private:
  std::vector<weight> inputs_;
  weight recurrent_, bias_;
};

/// Mean cross-entropy of the outputs of all steps, {hidden} each. `chunk` 0: with all logits at once.
void sequence_loss(tape& t, const std::vector<value>& outputs, weight w, weight bias, value labels,
                   std::int64_t chunk);

}  // namespace stash::models
