// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "models/map_blocks.hpp"
#include "models/planned.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

// A sub-layer ends with a projection and dropout; what it is added to is the caller's.
value attention(tape& t, const std::string& name, value x, const transformer_options& o) {
  const auto parts =
      t.split(name + "/split", dense(t, name + "/qkv", x, 3 * o.width), {o.width, o.width, o.width});
  value p = t.attention_scores(name + "/scores", parts[0], parts[1], o.heads);
  p = t.softmax(name + "/softmax", p);
  p = t.dropout(name + "/softmax/dropout", p, o.dropout);
  const value context = t.attention_context(name + "/context", p, parts[2]);
  return t.dropout(name + "/dropout", dense(t, name + "/projection", context, o.width), o.dropout);
}

value perceptron(tape& t, const std::string& name, value x, const transformer_options& o) {
  const value hidden = t.gelu(name + "/gelu", dense(t, name + "/fc1", x, 4 * o.width));
  return t.dropout(name + "/dropout", dense(t, name + "/fc2", hidden, o.width), o.dropout);
}

value layer_norm(tape& t, const std::string& name, value x) {
  return t.norm(name, x, norm_kind::layer);
}

value block_after_norms(tape& t, const std::string& name, value x, const transformer_options& o) {
  x = t.add(name + "/add1", x, attention(t, name + "/attention", layer_norm(t, name + "/norm1", x), o));
  return t.add(name + "/add2", x, perceptron(t, name + "/mlp", layer_norm(t, name + "/norm2", x), o));
}

void word_loss(tape& t, const std::string& name, value x, weight w, weight bias,
               const transformer_options& o) {
  const value labels = t.ids("labels", o.steps);
  if (o.loss_chunk > 0) return t.linear_softmax_cross_entropy(name, x, w, bias, labels, 0, o.loss_chunk);
  t.softmax_cross_entropy(name, t.linear("logits", {{x, w}}, bias), labels, 0);
}

transformer_options sized(std::int64_t vocabulary, std::int64_t positions, std::int64_t steps,
                          std::int64_t width, std::int64_t layers) {
  transformer_options o;
  o.vocabulary = vocabulary;
  o.positions = positions;
  o.steps = steps;
  o.width = width;
  o.layers = layers;
  o.heads = width / 64;
  return o;
}

}  // namespace

transformer_options bert_base() {
  return sized(30'522, 512, 128, 768, 12);
}

transformer_options bert_large() {
  return sized(30'522, 512, 128, 1024, 24);
}

transformer_options gpt2_small() {
  return sized(50'257, 1024, 1024, 768, 12);
}

transformer_options gpt2_medium() {
  return sized(50'257, 1024, 1024, 1024, 24);
}

tape bert(const char* name, const transformer_options& o) {
  tape t(name);
  const weight words = t.parameter("embedding/weight", {o.vocabulary, o.width});
  const weight positions = t.parameter("positions/weight", {o.positions, o.width});
  const weight segments = t.parameter("segments/weight", {2, o.width});
  value x = t.embedding("embedding", t.ids("words", o.steps), 0, o.steps, words);
  x = t.add("segments/add", x, t.embedding("segments", t.ids("segment_ids", o.steps), 0, o.steps, segments));
  x = t.add_positions("positions", x, positions);
  x = t.dropout("embedding/dropout", layer_norm(t, "embedding/norm", x), o.dropout);
  for (std::int64_t l = 1; l <= o.layers; ++l) {
    const std::string layer = fmt::format("layer{}", l);
    x = t.add(layer + "/add1", x, attention(t, layer + "/attention", x, o));
    x = layer_norm(t, layer + "/norm1", x);
    x = t.add(layer + "/add2", x, perceptron(t, layer + "/mlp", x, o));
    x = layer_norm(t, layer + "/norm2", x);
  }
  value pooled = t.tanh("pooler/tanh", dense(t, "pooler", t.first_row("pooler/row", x), o.width));
  pooled = t.dropout("pooler/dropout", pooled, o.dropout);
  t.softmax_cross_entropy("next_sentence/loss", dense(t, "next_sentence", pooled, 2), t.ids("is_next", 1), 0);
  x = t.gelu("words/gelu", dense(t, "words/transform", x, o.width));
  x = layer_norm(t, "words/norm", x);
  word_loss(t, "loss", x, words, t.parameter("words/bias", {o.vocabulary}), o);
  return t;
}

tape gpt2(const char* name, const transformer_options& o) {
  tape t(name);
  const weight words = t.parameter("embedding/weight", {o.vocabulary, o.width});
  const weight positions = t.parameter("positions/weight", {o.positions, o.width});
  value x = t.embedding("embedding", t.ids("words", o.steps), 0, o.steps, words);
  x = t.dropout("embedding/dropout", t.add_positions("positions", x, positions), o.dropout);
  for (std::int64_t l = 1; l <= o.layers; ++l)
    x = block_after_norms(t, fmt::format("layer{}", l), x, o);
  word_loss(t, "loss", layer_norm(t, "norm", x), words, {}, o);
  return t;
}

tape vit(const char* name, const vit_options& o) {
  if (o.patch < 1 || o.side < o.patch || o.side % o.patch != 0) {
    throw error(errc::invalid_argument,
                fmt::format("{}: side: expected a multiple of {}, got {}", name, o.patch, o.side));
  }
  transformer_options blocks;
  blocks.width = o.width;
  blocks.heads = o.heads;
  blocks.dropout = o.dropout;
  tape t(name);
  value x = t.image("input", {o.side, o.side, 3});
  x = conv_with_bias(t, "patches", x, o.width, o.patch, {.stride = o.patch});
  const std::int64_t rows = t.shape(x)[0] * t.shape(x)[1];
  x = t.class_token("token", t.reshape(x, {rows, o.width}), t.parameter("token/weight", {o.width}));
  x = t.add_positions("positions", x, t.parameter("positions/weight", {rows + 1, o.width}));
  x = t.dropout("positions/dropout", x, o.dropout);
  for (std::int64_t l = 1; l <= o.layers; ++l)
    x = block_after_norms(t, fmt::format("layer{}", l), x, blocks);
  class_loss(t, "classifier", t.first_row("row", layer_norm(t, "norm", x)), o.classes);
  return t;
}

}  // namespace stash::models
