#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "bench/cases/cases.hpp"
#include "bench/gpu/cases.hpp"

namespace stash::gpu {
namespace {

using bench::zero_pattern;

constexpr std::int64_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30;
constexpr std::array sizes = {64 * kib, 1 * mib, 32 * mib, 256 * mib, 1 * gib};
constexpr std::int64_t usual_size = 256 * mib;
constexpr std::array types = {dtype::f32, dtype::f16, dtype::bf16};
constexpr std::array<bench::map_input, 5> inputs = {{{zero_pattern::independent, 0.5},
                                                     {zero_pattern::independent, 0.2},
                                                     {zero_pattern::independent, 0.05},
                                                     {zero_pattern::dead_channels, 0.5},
                                                     {zero_pattern::clustered, 0.5}}};
// What networks are trained with most, and one case of each kind of kernel.
constexpr std::string_view most_used[] = {"baseline/driver_copy",
                                          "baseline/kernel_copy",
                                          "baseline/cub_select",
                                          "encode/sign_mask",
                                          "encode/bitmap",
                                          "decode/bitmap",
                                          "encode/csr",
                                          "decode/csr",
                                          "encode/fp8",
                                          "decode/fp8",
                                          "encode/bitmap_fp8",
                                          "decode/bitmap_fp8",
                                          "relu_forward/sign_mask",
                                          "relu_backward/bitmap",
                                          "relu_backward/sign_mask",
                                          "encode/mxfp4_e2m1",
                                          "max_pool_forward/window_index",
                                          "max_pool_backward/window_index"};

bool is_most_used(std::string_view name) {
  return std::find(std::begin(most_used), std::end(most_used), name) != std::end(most_used);
}

void add(std::vector<line>& lines, const measured_case& c, const map_form& form) {
  if (c.takes(form.type)) lines.push_back({c, form});
}

void add_everything(std::vector<line>& lines, const measured_case& c) {
  for (const dtype type : types) {
    for (const bench::map_input& input : inputs) {
      for (const std::int64_t size : sizes)
        add(lines, c, {type, input, size});
    }
  }
}

/// The one map that every case is measured on, of every type but, for quick runs, bf16.
void add_usual(std::vector<line>& lines, const measured_case& c, std::int64_t size, bool with_bf16) {
  for (const dtype type : types) {
    if (with_bf16 || type != dtype::bf16) add(lines, c, {type, inputs.front(), size});
  }
}

bool is_usual(const line& l) {
  return bench::to_string(l.form.zeros) == bench::to_string(inputs.front()) && l.form.bytes == usual_size;
}

}  // namespace

std::string line::name() const {
  return fmt::format("{}/{}/{}/{}", what.name, name_of(form.type), bench::to_string(form.zeros),
                     bench::size_name(form.bytes));
}

std::vector<line> lines_of(selection s, const std::vector<measured_case>& cases) {
  std::vector<line> lines;
  for (const measured_case& c : cases) {
    if (s == selection::all) {
      add_everything(lines, c);
    } else if (s == selection::readable) {
      if (is_most_used(c.name)) add_usual(lines, c, is_emulated() ? sizes.front() : usual_size, false);
    } else {
      add_usual(lines, c, s == selection::smoke ? sizes.front() : usual_size, s != selection::quick);
    }
  }
  if (s != selection::usual) return lines;
  // Last, so that a run that is cut short has seen every case.
  std::vector<line> sweeps;
  for (const measured_case& c : cases) {
    if (is_most_used(c.name)) add_everything(sweeps, c);
  }
  std::copy_if(sweeps.begin(), sweeps.end(), std::back_inserter(lines),
               [](const line& l) { return !is_usual(l); });
  return lines;
}

}  // namespace stash::gpu
