// SPDX-License-Identifier: Apache-2.0
#include "bench/cases/cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "bench/cases/groups.hpp"

namespace stash::bench {
namespace {

constexpr std::int64_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30;
constexpr std::array usual_sizes = {64 * kib, 1 * mib, 64 * mib};
constexpr std::array large_sizes = {256 * mib, 1 * gib};
constexpr std::array<map_input, 5> inputs = {{{zero_pattern::independent, 0.5},
                                              {zero_pattern::independent, 0.2},
                                              {zero_pattern::independent, 0.05},
                                              {zero_pattern::dead_channels, 0.5},
                                              {zero_pattern::clustered, 0.5}}};

template <class Sizes>
void add_lines(std::vector<bench_line>& lines, const bench_case& c, const Sizes& sizes) {
  for (const map_input& input : inputs) {
    for (const std::int64_t bytes : sizes)
      lines.push_back({&c, input, bytes});
  }
}

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view b) { return name.starts_with(b); });
}

bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// bitmap_ and csr_ with each of ten value formats, three times: two formats stand for all.
bool rare(std::string_view name) {
  return starts_with_any(
             name, {"encode/bitmap_", "decode/bitmap_", "encode/csr_", "decode/csr_", "relu_backward/"}) &&
         !is_any(name,
                 {"encode/bitmap_fp16", "decode/bitmap_fp16", "encode/bitmap_fp8", "decode/bitmap_fp8",
                  "relu_backward/y", "relu_backward/sign_mask", "relu_backward/bitmap", "relu_backward/csr"});
}

}  // namespace

std::string size_name(std::int64_t bytes) {
  if (bytes >= gib && bytes % gib == 0) return fmt::format("{}GiB", bytes / gib);
  if (bytes >= mib && bytes % mib == 0) return fmt::format("{}MiB", bytes / mib);
  return fmt::format("{}KiB", bytes / kib);
}

std::string bench_line::name() const {
  return fmt::format("{}/{}/{}", what->name, to_string(input), size_name(bytes));
}

prepared_call bench_line::prepare(const execution_context& context) const {
  return what->prepare({bytes, input, context});
}

const std::vector<bench_case>& all_cases() {
  static const std::vector<bench_case> cases = [] {
    std::vector<bench_case> all;
    for (const auto group : {encode_cases, relu_cases, pool_cases, dropout_cases, batch_cases}) {
      std::vector<bench_case> part = group();
      std::move(part.begin(), part.end(), std::back_inserter(all));
    }
    return all;
  }();
  return cases;
}

std::vector<bench_line> all_lines(bool large) {
  std::vector<bench_line> lines;
  for (const bench_case& c : all_cases()) {
    if (large) {
      if (c.sizes.empty()) add_lines(lines, c, large_sizes);
    } else if (c.sizes.empty()) {
      add_lines(lines, c, usual_sizes);
    } else {
      add_lines(lines, c, c.sizes);
    }
  }
  return lines;
}

std::vector<bench_line> selected_lines() {
  std::vector<bench_line> lines;
  for (const bench_case& c : all_cases()) {
    if (is_any(c.name, {"encode/bitmap", "decode/bitmap", "encode/csr", "decode/csr"})) {
      add_lines(lines, c, usual_sizes);
    } else if (!rare(c.name)) {
      lines.push_back({&c, inputs.front(), c.sizes.empty() ? usual_sizes.back() : c.sizes.front()});
    }
  }
  return lines;
}

}  // namespace stash::bench
