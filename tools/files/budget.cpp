// SPDX-License-Identifier: Apache-2.0
#include "files/budget.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "encoders/message.hpp"
#include "stash/error.hpp"

namespace stash::tools {

std::int64_t parse_budget(const std::string& text, std::int64_t baseline_total, const char* option) {
  const bool shares = baseline_total > 0;
  const auto refuse = [&]() -> std::int64_t {
    throw error(errc::invalid_argument,
                fmt::format("{}: expected bytes (123456){} a size (64MiB, 1.5GiB){}, got '{}'", option,
                            shares ? "," : " or", shares ? " or a share of the baseline (0.5, 50%)" : "",
                            shortened(text)));
  };
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (status != std::errc{} || !std::isfinite(value) || value <= 0) return refuse();
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const bool whole = std::string_view(text.data(), static_cast<std::size_t>(rest - text.data())).find('.') ==
                     std::string_view::npos;
  double bytes = value;
  if (unit == "KiB") {
    bytes = value * 1024;
  } else if (unit == "MiB") {
    bytes = value * 1024 * 1024;
  } else if (unit == "GiB") {
    bytes = value * 1024 * 1024 * 1024;
  } else if (unit == "%") {
    bytes = value / 100 * static_cast<double>(baseline_total);
  } else if (!unit.empty()) {
    return refuse();
  } else if (!whole) {
    bytes = value * static_cast<double>(baseline_total);
  }
  if (bytes < 1 || bytes > 9e18) return refuse();
  return static_cast<std::int64_t>(bytes);
}

}  // namespace stash::tools
