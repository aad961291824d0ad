// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <vector>

#include "models/planned.hpp"
#include "models/recurrent.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

// One stack of layers over a sequence of words; the first layer may have more inputs than the word.
class coder {
 public:
  coder(tape& t, std::string name, std::int64_t vocabulary, std::size_t first_inputs,
        const seq2seq_options& o)
      : name_(std::move(name)), hidden_(o.hidden), dropout_(o.dropout) {
    words_ = t.ids(name_ + "/words", o.steps);
    table_ = t.parameter(name_ + "/embedding/weight", {vocabulary, hidden_});
    for (std::int64_t l = 1; l <= o.layers; ++l) {
      const std::vector<std::int64_t> widths(l == 1 ? first_inputs : 1, hidden_);
      layers_.emplace_back(t, fmt::format("{}/lstm{}", name_, l), widths, hidden_);
    }
  }

  value step(tape& t, std::int64_t i, value fed_back = {}) {
    const std::string word = fmt::format("{}/embedding[{}]", name_, i);
    value x = t.reshape(t.embedding(word, words_, i, 1, table_), {hidden_});
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const std::string name = fmt::format("{}/lstm{}[{}]", name_, l + 1, i);
      x = t.dropout(name + "/dropout", x, dropout_);
      x = layers_[l].step(t, name, l == 0 && fed_back ? std::vector{x, fed_back} : std::vector{x});
    }
    return x;
  }

  void start_from(const coder& other) {
    for (std::size_t l = 0; l < layers_.size(); ++l)
      layers_[l].state = other.layers_[l].state;
  }

 private:
  std::string name_;
  std::int64_t hidden_;
  double dropout_;
  value words_;
  weight table_;
  std::vector<lstm_layer> layers_;
};

}  // namespace

tape seq2seq(const seq2seq_options& o) {
  if (o.steps < 2 || o.layers < 1)
    throw error(errc::invalid_argument,
                fmt::format("models::seq2seq: options: expected at least 2 steps and 1 layer, got {} and {}",
                            o.steps, o.layers));
  const std::int64_t n = o.hidden;
  tape t("seq2seq");
  coder encoder(t, "encoder", o.source_vocabulary, 1, o);
  coder decoder(t, "decoder", o.target_vocabulary, 2, o);
  std::vector<value> states;
  for (std::int64_t i = 0; i < o.steps; ++i)
    states.push_back(encoder.step(t, i));
  const value memory = t.reshape(t.concat("memory", states), {o.steps, n});
  const weight key_weight = t.parameter("attention/keys/weight", {n, n});
  const value keys = t.linear("attention/keys", {{memory, key_weight}});

  decoder.start_from(encoder);
  const weight query_weight = t.parameter("attention/query/weight", {n, n});
  const weight score_weight = t.parameter("attention/v", {n});
  const weight context_weight = t.parameter("attention/context/weight", {n, n});
  const weight state_weight = t.parameter("attention/state/weight", {n, n});
  std::vector<value> outputs;
  value fed_back{};
  for (std::int64_t i = 0; i < o.steps; ++i) {
    const auto name = [i](const char* what) { return fmt::format("attention/{}[{}]", what, i); };
    const value h = decoder.step(t, i, fed_back);
    const value query = t.linear(name("query"), {{h, query_weight}});
    value p = t.softmax(name("weights"), t.additive_scores(name("scores"), keys, query, score_weight));
    p = t.reshape(p, {1, 1, o.steps});
    const value context = t.reshape(t.attention_context(name("context"), p, memory), {n});
    fed_back =
        t.tanh(name("tanh"), t.linear(name("combined"), {{context, context_weight}, {h, state_weight}}));
    outputs.push_back(fed_back);
  }
  const weight w = t.parameter("softmax/weight", {o.target_vocabulary, n});
  sequence_loss(t, outputs, w, t.parameter("softmax/bias", {o.target_vocabulary}), t.ids("labels", o.steps),
                o.loss_chunk);
  return t;
}

}  // namespace stash::models
