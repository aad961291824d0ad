#include "convert.hpp"

#include <cstring>

namespace stash::detail {
namespace {

template <class Format, underflow_rule Underflow>
void narrow_all(const float* __restrict values, std::int64_t count, std::uint8_t* stored) noexcept {
  auto* __restrict out = reinterpret_cast<typename Format::storage*>(stored);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = narrow<Format, Underflow>(values[i]);
}

template <class Format>
void narrow_all(const float* values, std::int64_t count, underflow_rule underflow,
                std::uint8_t* stored) noexcept {
  if (underflow == underflow_rule::keep_nonzero) {
    narrow_all<Format, underflow_rule::keep_nonzero>(values, count, stored);
  } else {
    narrow_all<Format, underflow_rule::to_zero>(values, count, stored);
  }
}

template <class Format>
void widen_all(const std::uint8_t* stored, std::int64_t count, float* __restrict values) noexcept {
  const auto* __restrict in = reinterpret_cast<const typename Format::storage*>(stored);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = widen<Format>(in[i]);
}

}  // namespace

void store_values(const float* values, std::int64_t count, value_format format, underflow_rule underflow,
                  std::uint8_t* stored) noexcept {
  switch (format) {
    case value_format::source:
      std::memcpy(stored, values, static_cast<std::size_t>(count) * 4);
      break;
    case value_format::fp16:
      narrow_all<fp16_format>(values, count, underflow, stored);
      break;
    case value_format::fp8_e4m3:
      narrow_all<fp8_e4m3_format>(values, count, underflow, stored);
      break;
  }
}

void load_values(const std::uint8_t* stored, std::int64_t count, value_format format,
                 float* values) noexcept {
  switch (format) {
    case value_format::source:
      std::memcpy(values, stored, static_cast<std::size_t>(count) * 4);
      break;
    case value_format::fp16:
      widen_all<fp16_format>(stored, count, values);
      break;
    case value_format::fp8_e4m3:
      widen_all<fp8_e4m3_format>(stored, count, values);
      break;
  }
}

}  // namespace stash::detail
