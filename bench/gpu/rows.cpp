// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/cases/timing.hpp"

namespace stash::gpu {
namespace {

double quotient(double a, double b) {
  return b > 0 ? a / b : 0;
}

nlohmann::ordered_json json_of(const sample& s) {
  return {{"median", s.median}, {"least", s.least}, {"most", s.most}, {"repetitions", s.repetitions}};
}

}  // namespace

sample sample_of(const std::vector<double>& seconds) {
  if (seconds.empty()) throw std::invalid_argument("sample_of: seconds: expected at least one, got none");
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  return {bench::median(seconds), *least, *most, static_cast<int>(seconds.size())};
}

double row::dense_bytes_per_second() const {
  return quotient(static_cast<double>(dense_bytes), time.median);
}

double row::moved_bytes_per_second() const {
  return quotient(static_cast<double>(moved_bytes), time.median);
}

double row::copy_share() const {
  return quotient(std::min(driver_copy.median, kernel_copy.median), time.median);
}

double row::ratio() const {
  return quotient(static_cast<double>(dense_bytes), static_cast<double>(encoded_bytes));
}

std::string heading_of_table() {
  return fmt::format("{:<58} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7}", "case", "us", "GB/s", "share", "MB moved",
                     "MB kept", "ratio");
}

std::string line_of(const row& r) {
  if (!r.why_not_run.empty()) return fmt::format("{:<58} not run: {}", r.name, r.why_not_run);
  std::string line =
      fmt::format("{:<58} {:>9.2f} {:>9.1f}", r.name, r.time.median * 1e6, r.dense_bytes_per_second() * 1e-9);
  line +=
      r.driver_copy.repetitions == 0 ? fmt::format(" {:>7}", "-") : fmt::format(" {:>7.3f}", r.copy_share());
  line += fmt::format(" {:>9.3f}", static_cast<double>(r.moved_bytes) * 1e-6);
  if (r.encoded_bytes == 0) return line + fmt::format(" {:>9} {:>7}", "-", "-");
  return line + fmt::format(" {:>9.3f} {:>7.2f}", static_cast<double>(r.encoded_bytes) * 1e-6, r.ratio());
}

nlohmann::ordered_json json_of(const std::vector<row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const row& r : rows) {
    if (!r.why_not_run.empty()) {
      list.push_back({{"name", r.name}, {"result", "not run"}, {"why", r.why_not_run}});
      continue;
    }
    nlohmann::ordered_json entry{{"name", r.name},
                                 {"dense_bytes", r.dense_bytes},
                                 {"moved_bytes", r.moved_bytes},
                                 {"seconds", json_of(r.time)},
                                 {"bytes_per_second", r.dense_bytes_per_second()},
                                 {"moved_bytes_per_second", r.moved_bytes_per_second()}};
    if (r.driver_copy.repetitions != 0) {
      entry["driver_copy_seconds"] = json_of(r.driver_copy);
      entry["kernel_copy_seconds"] = json_of(r.kernel_copy);
      entry["copy_share"] = r.copy_share();
    }
    if (r.encoded_bytes != 0) {
      entry["encoded_bytes"] = r.encoded_bytes;
      entry["ratio"] = r.ratio();
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace stash::gpu
