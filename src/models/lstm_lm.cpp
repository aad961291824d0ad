// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <vector>

#include "models/planned.hpp"
#include "models/recurrent.hpp"
#include "stash/error.hpp"

namespace stash::models {

tape lstm_lm(const lstm_lm_options& o) {
  if (o.steps < 2 || o.layers < 1)
    throw error(errc::invalid_argument,
                fmt::format("models::lstm_lm: options: expected at least 2 steps and 1 layer, got {} and {}",
                            o.steps, o.layers));
  tape t("lstm_lm");
  const value words = t.ids("words", o.steps);
  const weight table = t.parameter("embedding/weight", {o.vocabulary, o.hidden});
  std::vector<lstm_layer> layers;
  for (std::int64_t l = 1; l <= o.layers; ++l)
    layers.emplace_back(t, fmt::format("lstm{}", l), std::vector{o.hidden}, o.hidden);
  std::vector<value> outputs;
  for (std::int64_t i = 0; i < o.steps; ++i) {
    value x = t.reshape(t.embedding(fmt::format("embedding[{}]", i), words, i, 1, table), {o.hidden});
    x = t.dropout(fmt::format("embedding[{}]/dropout", i), x, o.dropout);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const std::string name = fmt::format("lstm{}[{}]", l + 1, i);
      x = t.dropout(name + "/dropout", layers[l].step(t, name, {x}), o.dropout);
    }
    outputs.push_back(x);
  }
  const weight w = t.parameter("softmax/weight", {o.vocabulary, o.hidden});
  const weight b = t.parameter("softmax/bias", {o.vocabulary});
  sequence_loss(t, outputs, w, b, t.ids("labels", o.steps), o.loss_chunk);
  return t;
}

}  // namespace stash::models
