// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "models/planned.hpp"
#include "stash/error.hpp"

namespace stash::models {
namespace {

// No matrix has a bias.
value project(tape& t, const std::string& name, value x, std::int64_t outputs) {
  return t.linear(name, {{x, t.parameter(name + "/weight", {outputs, t.shape(x).back()})}});
}

value attention(tape& t, const std::string& name, value x, const llama_options& o) {
  const std::int64_t key_width = o.width / o.heads * o.key_heads;
  const value q = t.rotary(name + "/q/rotary", project(t, name + "/q", x, o.width), o.heads);
  const value k = t.rotary(name + "/k/rotary", project(t, name + "/k", x, key_width), o.key_heads);
  const value v = project(t, name + "/v", x, key_width);
  const value p =
      t.softmax(name + "/softmax", t.attention_scores(name + "/scores", q, k, o.heads, o.key_heads));
  return project(t, name + "/projection", t.attention_context(name + "/context", p, v, o.key_heads), o.width);
}

value perceptron(tape& t, const std::string& name, value x, const llama_options& o) {
  const value gate = t.silu(name + "/silu", project(t, name + "/gate", x, o.feed_forward));
  const value up = project(t, name + "/up", x, o.feed_forward);
  return project(t, name + "/down", t.multiply(name + "/product", gate, up), o.width);
}

}  // namespace

tape llama(const char* name, const llama_options& o) {
  if (o.heads < 1 || o.width % o.heads != 0 || o.key_heads < 1 || o.heads % o.key_heads != 0) {
    throw error(
        errc::invalid_argument,
        fmt::format("{}: heads: expected ones that divide a width of {} and are a multiple of those of "
                    "keys, got {} and {}",
                    name, o.width, o.heads, o.key_heads));
  }
  tape t(name);
  const weight words = t.parameter("embedding/weight", {o.vocabulary, o.width});
  value x = t.embedding("embedding", t.ids("words", o.steps), 0, o.steps, words);
  for (std::int64_t l = 1; l <= o.layers; ++l) {
    const std::string layer = fmt::format("layer{}", l);
    value y = t.norm(layer + "/norm1", x, norm_kind::rms);
    x = t.add(layer + "/add1", x, attention(t, layer + "/attention", y, o));
    y = t.norm(layer + "/norm2", x, norm_kind::rms);
    x = t.add(layer + "/add2", x, perceptron(t, layer + "/mlp", y, o));
  }
  x = t.norm("norm", x, norm_kind::rms);
  const value labels = t.ids("labels", o.steps);
  if (o.loss_chunk > 0) {
    t.linear_softmax_cross_entropy("loss", x, words, {}, labels, 0, o.loss_chunk);
  } else {
    t.softmax_cross_entropy("loss", t.linear("logits", {{x, words}}), labels, 0);
  }
  return t;
}

}  // namespace stash::models
