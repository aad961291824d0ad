// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// General compressors and zfp with one interface, as baselines: one call compresses one dense f32 tensor.

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace stash::bench {

/// A tensor to compress, or to decompress into; `dims` slowest first.
struct dense_values {
  std::span<float> values;
  std::span<const std::int64_t> dims;
};

struct compressor {
  std::string name;
  bool lossless = true;
  /// Bytes that compress() may need.
  std::function<std::size_t(const dense_values&)> bound;
  /// Returns the bytes written. Throws error(internal) if the library reports a failure.
  std::function<std::size_t(const dense_values&, std::span<std::byte> to)> compress;
  std::function<void(std::span<const std::byte> from, const dense_values&)> decompress;
};

/// One thread each:
///   lz4             LZ4_compress_default
///   zstd_level_-1   one context for all calls
///   zfp_reversible, zfp_rate_8 (bits per value), zfp_accuracy_0.01 (largest absolute error)
///                   the tensor as it lies in memory, in up to four dimensions; zfp's own serial code
std::vector<compressor> compressors();

}  // namespace stash::bench
