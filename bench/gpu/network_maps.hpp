// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What a training step of a whole network keeps of its feature maps: one encoded form each. Knows no device.

#include <cstdint>
#include <string>
#include <vector>

#include "stash/encoding.hpp"
#include "stash/pool.hpp"

namespace stash::gpu {

struct kept_form {
  std::string node;  ///< the node whose output is kept; of a window_index the pooling
  encoding how;
  shape dims;    ///< of the map that the encoder reads; of a window_index what is pooled
  shape pooled;  ///< of a window_index: of the pooled map
  pool_window window;

  bool is_index() const { return how.kind == encoding_kind::window_index; }
  /// Values that the encoded form stands for.
  std::int64_t elements() const { return is_index() ? pooled.elements() : dims.elements(); }
};

/// Of ResNet-50 (models::resnet50) on images of side x side pixels, in the order of the forward pass:
///   sign_mask     outputs of ReLUs of which only the ReLU's gradient reads anything
///   bitmap        outputs of ReLUs that a convolution reads as well
///   window_index  of the pooling
///   fp8           what else a gradient reads the values of: inputs of norms, and the maps without zeros in
///                 front of a convolution or of the classifier
/// The images themselves are nobody's to encode. Throws what the network's builder throws.
std::vector<kept_form> resnet50_forms(std::int64_t images, std::int64_t side);

/// Elements of all maps that the encoders read.
std::int64_t elements_of(const std::vector<kept_form>& forms);

}  // namespace stash::gpu
