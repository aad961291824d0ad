// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Networks of the literature that are planned and not run: each builder writes a tape. Shapes, parameter
/// counts and assumptions: docs/models.md. All throw error(invalid_argument) for sizes that do not fit.

#include <cstdint>

#include "models/tape.hpp"

namespace stash::models {

/// 3D U-Net (Cicek et al., 2016) on cubes: four resolutions, two convolutions with norm and ReLU at each, the
/// second of an encoder level doubles the channels. One label per voxel.
struct unet3d_options {
  std::int64_t side = 144;  ///< a multiple of 8
  std::int64_t modalities = 4;
  std::int64_t classes = 4;
  std::int64_t base_filters = 32;
};
tape unet3d(const unet3d_options& options);

/// LSTM language model (Zaremba et al., 2014; the large one is the default) with an embedding as wide as the
/// hidden state and dropout between layers.
struct lstm_lm_options {
  std::int64_t vocabulary = 10'000;
  std::int64_t hidden = 1500;
  std::int64_t layers = 2;
  std::int64_t steps = 35;
  double dropout = 0.65;
  std::int64_t loss_chunk = 0;  ///< time steps whose logits exist at once; 0: all
};
tape lstm_lm(const lstm_lm_options& options);

/// Encoder and decoder of LSTM layers with additive attention (Bahdanau et al., 2014), whose result is fed
/// into the next decoder step.
struct seq2seq_options {
  std::int64_t source_vocabulary = 17'191;
  std::int64_t target_vocabulary = 7'709;
  std::int64_t hidden = 512;  ///< of states, embeddings and attention
  std::int64_t layers = 2;    ///< of encoder and decoder each
  std::int64_t steps = 50;    ///< of source and target each
  double dropout = 0.2;
  std::int64_t loss_chunk = 0;  ///< time steps whose logits exist at once; 0: all
};
tape seq2seq(const seq2seq_options& options);

struct transformer_options {
  std::int64_t vocabulary = 0;
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t positions = 0;  ///< rows of the table of positions
  std::int64_t steps = 0;      ///< sequence length, at most `positions`
  double dropout = 0.1;
  std::int64_t loss_chunk = 0;  ///< positions whose logits exist at once; 0: all
};

/// BERT (Devlin et al., 2018) in pre-training: pooler with next-sentence classifier, and a head for masked
/// words, tied to the embedding, over all positions.
transformer_options bert_base();
transformer_options bert_large();
tape bert(const char* name, const transformer_options& options);

/// GPT-2 (Radford et al., 2019), logits tied to the embedding.
transformer_options gpt2_small();
transformer_options gpt2_medium();
tape gpt2(const char* name, const transformer_options& options);

}  // namespace stash::models
