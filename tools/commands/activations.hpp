// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Feature maps of a network as files, for measurements on data that generated maps only imitate.

#include <filesystem>
#include <string>
#include <vector>

#include "commands/training.hpp"

namespace stash::tools {

/// Makes a folder if there is none, and those above it; what it made goes with it where it is empty.
class made_folder {
 public:
  /// Throws error(io_failure) naming the folder.
  explicit made_folder(const std::string& path);
  ~made_folder();
  made_folder(const made_folder&) = delete;
  made_folder& operator=(const made_folder&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  ///< the innermost first
};

/// Runs one step without an update on the batch that would come next and writes what every ReLU puts out
/// (alone, after batch norm, joined with max-pooling: before and after the pooling) into the folder: raw
/// little-endian f32 in the order of memory, one file per map, and activations.json with network, batch,
/// steps, data and for each map
///   name, op, shape, file
///   kept          what the plan keeps of it for the backward pass: an encoding, raw, recompute or none
///   pooled_by     ReLUs whose output is pooled by the same op: [kernel_h, kernel_w, stride_h, stride_w,
///                 pad_top, pad_left]
///   pooled_shape  with pooled_by
/// Files of these names are replaced. Returns the number of maps. Throws failed_while_running if a file
/// cannot be written.
int write_activations(const std::string& folder, training_run& run, const training_options& options,
                      image_source& source);

}  // namespace stash::tools
