// SPDX-License-Identifier: Apache-2.0
#include "encoders/format/value_codec.hpp"

#include <cstring>

#include "encoders/format/run_loops.hpp"
#include "encoders/format/values.hpp"

namespace stash::encoders {

void value_codec::store(const float* values, std::int64_t count, std::uint8_t* scales, std::uint8_t* elements,
                        destination to) const noexcept {
  if (format == value_format::source) {
    if (source == dtype::f32) {
      std::memcpy(elements, values, static_cast<std::size_t>(count) * sizeof(float));
    } else {
      narrow_exactly(source, values, count, reinterpret_cast<std::uint16_t*>(elements));
    }
  } else if (is_mx(format)) {
    loops().narrow_mx(values, count, format, underflow, scales, elements);
  } else {
    loops().narrow(values, count, format, underflow, elements, to);
  }
}

void value_codec::load(const std::uint8_t* scales, const std::uint8_t* elements, std::int64_t count,
                       float* values, destination to) const noexcept {
  if (format == value_format::source) {
    if (source == dtype::f32) {
      std::memcpy(values, elements, static_cast<std::size_t>(count) * sizeof(float));
    } else {
      widen_exactly(source, reinterpret_cast<const std::uint16_t*>(elements), count, values);
    }
  } else if (is_mx(format)) {
    loops().widen_mx(scales, elements, count, format, values, to);
  } else {
    loops().widen(elements, count, format, values, to);
  }
}

}  // namespace stash::encoders
