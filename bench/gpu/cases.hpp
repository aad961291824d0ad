// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What is measured on a device: the encodings and layers of the table in bench/cases on the same generated
/// maps, and what others offer for the same purpose.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/maps.hpp"
#include "stash/encoding.hpp"

namespace stash::gpu {

/// Work ready to be timed. The functions own everything they work on and may be called any number of times.
struct prepared_case {
  std::function<void(void* stream)> before;  ///< enqueues what is not timed: reports that start anew
  std::function<void(void* stream)> run;     ///< enqueues what is timed
  std::function<void()> verify;              ///< throws if what ran went wrong
  std::uint64_t moved_bytes = 0;             ///< as in row
  std::uint64_t encoded_bytes = 0;
  std::uint64_t dense_bytes = 0;
};

struct measured_case {
  std::string name;  ///< "encode/bitmap"
  /// False for types that it does not take.
  std::function<bool(dtype)> takes;
  /// Throws what the calls throw: what the back end does not have yet is not run.
  std::function<prepared_case(const map_form&, map_source&)> prepare;
  bool has_copies = true;  ///< measured next to copies
  /// Of the map of any type, where the case has its own sizes: the first for smoke runs, the last for others.
  std::vector<std::int64_t> own_elements = {};
};

/// Every encoding and layer, and the four below.
std::vector<measured_case> stash_cases();
/// Max-pooling, alone and joined with ReLU, in two and in three dimensions.
std::vector<measured_case> pool_cases();
/// What is made of bitmaps and csr besides decoding them: their canonical form, and csr for libraries.
std::vector<measured_case> tile_cases();
/// All maps of a network's training step, one call after the other.
std::vector<measured_case> sequence_cases();
/// Many small maps in one call, and in a call each.
std::vector<measured_case> batch_cases();
/// Maps on their way to the host and back.
std::vector<measured_case> swap_cases();
/// Copies, naive kernels, and calls of libraries. Implemented where the device is.
std::vector<measured_case> baseline_cases();

/// Copies by a kernel of 16-byte loads and stores: the second yardstick. Sizes are multiples of 16.
void copy_by_kernel(void* to, const void* from, std::size_t bytes, void* stream);

/// Reads all of `from` through the second-level cache and writes nothing. `never` is a word of device memory
/// for the kernel to point at. Sizes are multiples of 16, and no word of `from` is 0xfffffffe.
void read_by_kernel(const void* from, std::size_t bytes, void* never, void* stream);

struct line {
  measured_case what;
  map_form form;

  /// "encode/bitmap/f32/iid_0.5/32MiB".
  std::string name() const;
};

enum class selection : std::uint8_t {
  smoke,     ///< everything once, at 64 KiB or a case's own least size: does it work
  readable,  ///< the most used cases, f32 and f16, at 256 MiB (emulated: 64 KiB); half of the values zero
  quick,     ///< all cases, f32 and f16, at 256 MiB; half of the values zero
  usual,     ///< quick, bf16 too; the most used cases on all inputs from 64 KiB to 1 GiB
  all,       ///< every case on everything
};

std::vector<line> lines_of(selection s, const std::vector<measured_case>& cases);

bool takes_floats(dtype type);
/// True if maps of the type are encoded so: no cast of 16 bits to 16.
bool can_encode(const encoding& e, dtype type);

}  // namespace stash::gpu
