// SPDX-License-Identifier: Apache-2.0
#include "models/recurrent.hpp"

#include <fmt/format.h>

namespace stash::models {

lstm_layer::lstm_layer(tape& t, const std::string& name, const std::vector<std::int64_t>& widths,
                       std::int64_t hidden) {
  for (std::size_t i = 0; i < widths.size(); ++i)
    inputs_.push_back(t.parameter(fmt::format("{}/weight_x{}", name, i), {4 * hidden, widths[i]}));
  recurrent_ = t.parameter(name + "/weight_h", {4 * hidden, hidden});
  bias_ = t.parameter(name + "/bias", {4 * hidden});
}

value lstm_layer::step(tape& t, const std::string& name, const std::vector<value>& inputs) {
  std::vector<tape::term> terms;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) terms.push_back({inputs[i], inputs_[i]});
  }
  if (state.h) terms.push_back({state.h, recurrent_});
  state = t.lstm_cell(name, t.linear(name + "/gates", terms, bias_), state.c);
  return state.h;
}

void sequence_loss(tape& t, const std::vector<value>& outputs, weight w, weight bias, value labels,
                   std::int64_t chunk) {
  const auto steps = static_cast<std::int64_t>(outputs.size());
  const std::int64_t width = t.shape(outputs.front()).back();
  const value flat = t.concat("outputs", outputs);
  const value all = t.reshape(flat, {steps, width});
  if (chunk > 0) return t.linear_softmax_cross_entropy("loss", all, w, bias, labels, 0, chunk);
  t.softmax_cross_entropy("loss", t.linear("logits", {{all, w}}, bias), labels, 0);
}

}  // namespace stash::models
