#include "convert.hpp"

#include <cstring>

#include "run_loops.hpp"

namespace stash::detail {

void store_values(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                  std::uint8_t* stored) noexcept {
  if (format == value_format::source) {
    std::memcpy(stored, values, static_cast<std::size_t>(count) * 4);
  } else {
    fastest_loops().narrow(values, count, format, underflow, stored);
  }
}

void load_values(const std::uint8_t* stored, std::int64_t count, value_format format,
                 float* values) noexcept {
  if (format == value_format::source) {
    std::memcpy(values, stored, static_cast<std::size_t>(count) * 4);
  } else {
    fastest_loops().widen(stored, count, format, values);
  }
}

}  // namespace stash::detail
