// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Small pooling layers that take, between them, every pooling kernel of the device, if each is run forward
/// and backward from everything that can be kept of it, in f32 and in 16 bits. Knows no test framework.

#include <cstdint>
#include <vector>

#include "stash/pool.hpp"

namespace stash_test {

struct pool_form {
  const char* name;
  stash::pool_window window;
  stash::shape x, y;
};

/// Kernels differ by where channels are and whether they come in groups of eight, by size and distance of the
/// windows, by whether those cover x without a rest, and where channels come first by whether rows are whole
/// vectors of 16 bytes; any windows by the number of their taps and how far those are from each other.
inline std::vector<pool_form> pool_forms() {
  using stash::pool_window;
  const pool_window halves, overlapping{3, 3, 2, 2, 1, 1}, stride_1{3, 3, 1, 1, 1, 1};
  const pool_window small{2, 2, 1, 1};  // windows that have no kernels of their own
  const auto channels_first = [](pool_window w) {
    w.layout = stash::pool_layout::channels_first;
    return w;
  };
  pool_window deep;
  deep.kernel_d = deep.stride_d = 2;
  // Positions of windows with so large a stride have 64 bits. There is one row of them.
  const pool_window large_stride{2, 2, 1 << 29, 2};
  // Taps so far from each other that a thread has no space for the sums between them.
  pool_window far_taps = small;
  far_taps.dilation_h = 90;
  pool_window volume = small;
  volume.kernel_d = 3, volume.stride_d = volume.pad_front = 1;
  return {{"halves", halves, {2, 8, 8, 16}, {2, 4, 4, 16}},
          {"overlapping", overlapping, {2, 8, 8, 16}, {2, 4, 4, 16}},
          {"stride_1", stride_1, {2, 8, 8, 16}, {2, 8, 8, 16}},
          {"two_by_two_stride_1", small, {2, 8, 8, 16}, {2, 7, 7, 16}},
          {"three_channels", overlapping, {2, 8, 8, 3}, {2, 4, 4, 3}},
          {"large_stride", large_stride, {2, 5, 8, 3}, {2, 1, 4, 3}},
          {"far_taps", far_taps, {1, 92, 3, 3}, {1, 2, 2, 3}},
          {"volume_nchw", channels_first(volume), {2, 3, 4, 5, 6}, {2, 3, 4, 4, 5}},
          {"deep", deep, {2, 4, 8, 8, 8}, {2, 2, 4, 4, 8}},
          {"deep_nchw", channels_first(deep), {2, 3, 4, 4, 8}, {2, 3, 2, 2, 4}},
          {"halves_nchw", channels_first(halves), {2, 3, 8, 8}, {2, 3, 4, 4}},
          {"overlapping_nchw", channels_first(overlapping), {2, 3, 8, 8}, {2, 3, 4, 4}},
          {"unpadded_nchw", channels_first({3, 3, 2, 2}), {2, 3, 8, 8}, {2, 3, 4, 4}},
          {"stride_1_nchw", channels_first(stride_1), {2, 3, 8, 8}, {2, 3, 8, 8}},
          {"halves_of_odd_rows", channels_first(halves), {2, 3, 7, 7}, {2, 3, 3, 3}},
          {"overlapping_odd_rows", channels_first(overlapping), {2, 3, 7, 7}, {2, 3, 4, 4}},
          {"stride_1_odd_rows", channels_first(stride_1), {2, 3, 7, 7}, {2, 3, 7, 7}}};
}

/// The same of windows with more taps than relu_pool has codes for.
inline std::vector<pool_form> pool_forms_of_many_taps() {
  const stash::pool_window many{5, 5, 1, 1, 2, 2};
  stash::pool_window volume{3, 3, 2, 2, 1, 1};
  volume.kernel_d = 3, volume.stride_d = 2, volume.pad_front = 1;
  volume.layout = stash::pool_layout::channels_first;
  return {{"many_taps", many, {2, 8, 8, 16}, {2, 8, 8, 16}},
          {"many_taps_nchw", volume, {2, 3, 4, 5, 6}, {2, 3, 2, 3, 3}}};
}

}  // namespace stash_test
