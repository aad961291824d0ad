// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// Encoded bytes of unknown origin, as the decoder targets see them: which encoding they claim to be, of
/// which tensor, and how they lie in a slot and outside it.

#include <string>
#include <string_view>

#include "fuzz/target.hpp"
#include "stash/encoding.hpp"

namespace stash::fuzz {

/// The front of an input; every value is legal.
struct encoded_header {
  std::uint16_t elements = 0;  ///< rounded down to whole rows; above max_elements: modulo 256, so that most
                               ///< tensors are small
  std::uint16_t arena_bytes = 0;  ///< that many of the bytes after the header, from their end; the host
                                  ///< overflow is the same bytes
  std::uint8_t name = 0;          ///< modulo the number of names
  std::uint8_t type = 0;          ///< modulo 3: f32, f16, bf16
  std::uint8_t inner = 0;         ///< length of a row less 1
  std::uint8_t gap = 0;           ///< modulo 4: elements between rows; bit 2: no host overflow
  std::uint8_t target = 0;        ///< modulo the number of instruction sets
  std::uint8_t choices = 0;       ///< bit 0: keep_nonzero, 1: pytorch, 2: no arena; the rest by the target
  std::uint16_t report_flags = 0;
  std::uint32_t other = 0;  ///< by the target
  std::uint64_t checksum = 0;
};

inline constexpr std::int64_t max_elements = 2600;

/// An input made ready for calls. Not to be moved: the view points into it.
struct encoded_case {
  encoded_header header;
  encoding how;
  dtype type = dtype::f32;
  shape dims;
  std::int64_t pitch = 0;
  std::string target;  ///< name of the instruction set

  encoded_case(std::span<const std::uint8_t> input, std::span<const std::string> names);
  encoded_case(const encoded_case&) = delete;
  encoded_case& operator=(const encoded_case&) = delete;

  std::int64_t elements() const { return dims.elements(); }
  /// Bytes of a tensor with these rows and gaps.
  std::size_t tensor_bytes(dtype element) const;
  /// The encoded bytes; `report` is set to what came in with them.
  const_encoded_view view(encode_report& report) const;
  /// A tensor of this shape and pitch in `memory`.
  tensor_view tensor(const exact_buffer& memory, dtype element) const;
  /// True if everything between the rows still is `fill`.
  bool gaps_are(const exact_buffer& memory, dtype element, std::uint8_t fill) const;
  /// True if the rows are the same.
  bool same_rows(const exact_buffer& a, const exact_buffer& b, dtype element) const;

 private:
  exact_buffer slot_, arena_memory_;
  std::uint64_t claimed_ = 0;
  overflow_arena arena_;
};

/// Valid inputs for these names: several sizes and types, some of them with part of their tiles in an arena
/// or a host overflow.
std::vector<bytes> encoded_seeds(std::span<const std::string> names);

}  // namespace stash::fuzz
