// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the windows of a row chose, one window after the other, from everything that says it.

#include <cstdint>

#include "pool/pool_backward.hpp"

namespace stash::kernels {

/// No code of a byte.
inline constexpr std::uint32_t beyond_codes = 0x100;

/// Argmaxes of a row of windows, one after the other, in a channel of a sample.
template <class Bits, class Source>
class argmax_row {
 public:
  STASH_DEVICE argmax_row(const pool_job& job, const Source& source, const map_position<std::int32_t>&)
      : job_(job), source_(source) {}
  STASH_DEVICE argmaxes<1> next(const map_position<std::int32_t>& o) {
    return load_argmaxes<Bits, 1>(job_, source_, o);
  }

 private:
  const pool_job& job_;
  const Source& source_;
};

/// The same found again in x.
template <class Bits>
class argmax_row<Bits, searched_argmaxes> {
 public:
  STASH_DEVICE argmax_row(const pool_job& job, const searched_argmaxes& source,
                          const map_position<std::int32_t>&)
      : job_(job), source_(source) {}
  STASH_DEVICE argmaxes<1> next(const map_position<std::int32_t>& o) {
    maxima<1> best;
    const std::uint32_t first_tap = find_maximum<Bits>(job_, source_.x, source_.x_pitch, o, best);
    return argmaxes_of<Bits>(job_, source_, first_tap, best);
  }

 private:
  const pool_job& job_;
  const searched_argmaxes& source_;
};

/// The same from codes, of which only the first one's position is computed.
template <class Bits>
class argmax_row<Bits, encoded_argmaxes> {
 public:
  STASH_DEVICE argmax_row(const pool_job& job, const encoded_argmaxes& source,
                          const map_position<std::int32_t>& o)
      : job_(job),
        source_(source),
        none_(source.passing == pass_source::code ? no_gradient : beyond_codes),
        mask_((1U << source.bits) - 1) {
    const std::uint64_t bit = (o.pixel * job.channels + o.channel) * source.bits;
    at_ = source.taps + bit / 8;
    shift_ = static_cast<std::uint32_t>(bit % 8);
    step_ = static_cast<std::uint32_t>(job.channels) * source.bits;
  }
  STASH_DEVICE argmaxes<1> next(const map_position<std::int32_t>& o) {
    argmaxes<1> w;
    w.tap[0] = *at_;
    if (mask_ == 0xff) {
      at_ += job_.channels;
    } else {
      w.tap[0] = w.tap[0] >> shift_ & mask_;
      shift_ += step_;
      at_ += shift_ / 8;
      shift_ %= 8;
    }
    w.pass = w.tap[0] == none_ ? 0 : 1;
    if (source_.passing > pass_source::code) w.pass = passing_bits<Bits, 1>(job_, source_, o);
    return w;
  }

 private:
  const pool_job& job_;
  const encoded_argmaxes& source_;
  std::uint32_t none_, mask_;
  const std::uint8_t* at_;
  std::uint32_t shift_, step_;  ///< bits
};

}  // namespace stash::kernels
