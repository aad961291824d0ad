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

/// 2D U-Net (Ronneberger et al., 2015) on square images, padded: five resolutions, two convolutions with
/// batch norm and SiLU at each. One label per pixel.
struct unet2d_options {
  std::int64_t side = 256;  ///< a multiple of 16
  std::int64_t channels = 3;
  std::int64_t classes = 2;
  std::int64_t base_filters = 64;
};
tape unet2d(const unet2d_options& options);

/// Classifiers of square images of three channels.
struct image_options {
  std::int64_t side = 224;
  std::int64_t classes = 1000;
};
tape mobilenet_v2(const image_options& options);     ///< Sandler et al., 2018
tape efficientnet_b0(const image_options& options);  ///< Tan and Le, 2019
tape convnext_tiny(const image_options& options);    ///< Liu et al., 2022; the side is a multiple of 32

/// Vision transformer (Dosovitskiy et al., 2020): a class token, then one row per patch. B/16 is the default.
struct vit_options {
  std::int64_t side = 224;  ///< a multiple of `patch`
  std::int64_t patch = 16;
  std::int64_t classes = 1000;
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  double dropout = 0;
};
tape vit(const char* name, const vit_options& options);

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

/// Llama (Grattafiori et al., 2024): root-mean-square norms, rotary positions, groups of queries that share
/// keys and values, gated perceptrons, logits tied to the embedding. Llama 3.2 1B is the default.
struct llama_options {
  std::int64_t vocabulary = 128'256;
  std::int64_t width = 2048;
  std::int64_t layers = 16;
  std::int64_t heads = 32;
  std::int64_t key_heads = 8;  ///< of keys and of values
  std::int64_t feed_forward = 8192;
  std::int64_t steps = 1024;    ///< sequence length
  std::int64_t loss_chunk = 0;  ///< positions whose logits exist at once; 0: all
};
tape llama(const char* name, const llama_options& options);

}  // namespace stash::models
