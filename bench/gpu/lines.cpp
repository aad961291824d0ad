// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
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
// What ReLUs leave lies between these shares of non-zeros. With the second, bitmaps alone are still worth it.
constexpr bench::map_input fewest_nonzeros{zero_pattern::independent, 0.2};
constexpr bench::map_input most_nonzeros{zero_pattern::independent, 0.6};
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

// Next to bitmaps: what takes longer the more values are not zero.
constexpr std::string_view also_sparse[] = {"encode/csr", "decode/csr", "baseline/cub_select",
                                            "baseline/cusparse_dense_to_csr"};

template <class Names>
bool is_any(std::string_view name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_most_used(std::string_view name) {
  return is_any(name, most_used);
}

void add(std::vector<line>& lines, const measured_case& c, const map_form& form) {
  if (c.takes(form.type)) lines.push_back({c, form});
}

bool is_bitmap(const measured_case& c) {
  return c.name.find("/bitmap") != std::string::npos;
}

std::int64_t own_bytes(std::int64_t elements, dtype type) {
  return elements * static_cast<std::int64_t>(size_of(type));
}

void add_everything(std::vector<line>& lines, const measured_case& c) {
  for (const dtype type : types) {
    const auto add_sizes = [&](const bench::map_input& input) {
      for (const std::int64_t own : c.own_elements)
        add(lines, c, {type, input, own_bytes(own, type)});
      for (const std::int64_t size : sizes) {
        if (c.own_elements.empty()) add(lines, c, {type, input, size});
      }
    };
    std::for_each(inputs.begin(), inputs.end(), add_sizes);
    if (is_bitmap(c) || is_any(c.name, also_sparse)) add_sizes(most_nonzeros);
  }
}

/// A map of the usual size, or of the least, of every type but, for quick runs, bf16.
void add_one_size(std::vector<line>& lines, const measured_case& c, const bench::map_input& input, bool least,
                  bool with_bf16) {
  for (const dtype type : types) {
    std::int64_t size = least ? sizes.front() : usual_size;
    if (!c.own_elements.empty())
      size = own_bytes(least ? c.own_elements.front() : c.own_elements.back(), type);
    if (with_bf16 || type != dtype::bf16) add(lines, c, {type, input, size});
  }
}

/// The most used bitmaps, csr, and what they are held against, at both ends of what ReLUs leave.
void add_densities(std::vector<line>& lines, const measured_case& c, bool with_bf16) {
  if (!(is_bitmap(c) && is_most_used(c.name)) && !is_any(c.name, also_sparse)) return;
  for (const bench::map_input& input : {fewest_nonzeros, most_nonzeros})
    add_one_size(lines, c, input, false, with_bf16);
}

}  // namespace

std::string line::name() const {
  return fmt::format("{}/{}/{}/{}", what.name, name_of(form.type), bench::to_string(form.zeros),
                     bench::size_name(form.bytes));
}

std::vector<line> lines_of(selection s, const std::vector<measured_case>& cases) {
  std::vector<line> lines;
  const bool with_bf16 = s != selection::quick && s != selection::readable;
  for (const measured_case& c : cases) {
    if (s == selection::all) {
      add_everything(lines, c);
    } else if (s != selection::readable || is_most_used(c.name)) {
      const bool least = s == selection::smoke || (s == selection::readable && is_emulated());
      add_one_size(lines, c, inputs.front(), least, with_bf16);
    }
  }
  if (s != selection::quick && s != selection::usual) return lines;
  // After the others, so that a run that is cut short has seen every case; sweeps last.
  for (const measured_case& c : cases)
    add_densities(lines, c, with_bf16);
  if (s == selection::quick) return lines;
  std::set<std::string> named;
  for (const line& l : lines)
    named.insert(l.name());
  std::vector<line> sweeps;
  for (const measured_case& c : cases) {
    if (is_most_used(c.name)) add_everything(sweeps, c);
  }
  std::copy_if(sweeps.begin(), sweeps.end(), std::back_inserter(lines),
               [&](const line& l) { return !named.contains(l.name()); });
  return lines;
}

}  // namespace stash::gpu
