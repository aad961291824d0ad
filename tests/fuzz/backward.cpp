// SPDX-License-Identifier: Apache-2.0
// The backward calls of ReLU, leaky ReLU, clipping and dropout, from a stash of unknown origin.

#include <array>

#include "fuzz/encoded_case.hpp"
#include "stash/cpu.hpp"
#include "stash/dropout.hpp"
#include "stash/error.hpp"
#include "stash/relu.hpp"
#include "support/format_names.hpp"

namespace stash::fuzz {
namespace {

const std::vector<std::string> names =
    stash_test::names_of_all_values({"sign_mask", "range_mask", "bitmap", "csr", "raw"});

enum class layer : std::uint8_t { relu, leaky_relu, clip, dropout, count };

struct outcome {
  bool refused = false;
  std::uint32_t status = 0;
};

/// A gradient without zeros: position i holds i + 1, in its type some number.
bytes make_gradient(const encoded_case& c) {
  bytes gradient(c.tensor_bytes(c.type));
  for (std::size_t i = 0; i * 2 + 1 < gradient.size(); ++i) {
    gradient[i * 2] = static_cast<std::uint8_t>(i + 1);
    gradient[i * 2 + 1] = static_cast<std::uint8_t>(0x3c + i % 7);
  }
  return gradient;
}

outcome backward(layer which, const encoded_case& c, const const_tensor_view& dy, const tensor_view& dx) {
  encode_report report;
  const const_encoded_view stash = c.view(report);
  try {
    switch (which) {
      case layer::relu:
        relu_backward(dy, {c.how, dy.type, dy.dims, stash}, dx, c.how.rule, {});
        break;
      case layer::leaky_relu:
        leaky_relu_backward(dy, {c.how, dy.type, dy.dims, stash}, dx, 0.0F, {});
        break;
      case layer::clip:
        clip_backward(dy, {c.how, dy.type, dy.dims, stash}, dx, 0.5F, 6.0F, c.how.rule, {});
        break;
      case layer::dropout:
      case layer::count:
        dropout_backward(dy, {{.kind = encoding_kind::sign_mask}, dy.type, dy.dims, stash}, dx, 0.0F, {});
        break;
    }
  } catch (const error& e) {
    require(e.code() == errc::capacity_exceeded || e.code() == errc::invalid_argument ||
                e.code() == errc::unsupported,
            e.what());
    return {true, report.status};
  }
  return {false, report.status};
}

/// Every gradient passed as it is or became a zero.
bool passed_or_zero(const encoded_case& c, const exact_buffer& dy, const exact_buffer& dx) {
  const std::size_t size = size_of(c.type);
  for (std::int64_t i = 0; i < c.elements(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i / c.dims.inner() * c.pitch + i % c.dims.inner()) * size;
    const std::uint8_t* element = dx.data() + at;
    const bool passed = std::memcmp(element, dy.data() + at, size) == 0;
    // Scaled by zero, a negative gradient keeps its sign.
    const bool zero = std::all_of(element, element + size - 1, [](std::uint8_t byte) { return byte == 0; }) &&
                      (element[size - 1] & 0x7f) == 0;
    if (!passed && !zero) return false;
  }
  return true;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  const encoded_case c(input, names);
  const auto which = static_cast<layer>(c.header.other % static_cast<std::uint32_t>(layer::count));
  const dtype type = c.type;
  const exact_buffer dy(make_gradient(c));
  const exact_buffer plain(c.tensor_bytes(type), 0x00), fast(c.tensor_bytes(type), 0xff);
  set_cpu_target("scalar");
  const outcome first = backward(which, c, c.tensor(dy, type), c.tensor(plain, type));
  set_cpu_target(c.target);
  const outcome second = backward(which, c, c.tensor(dy, type), c.tensor(fast, type));
  require(first.refused == second.refused && first.status == second.status, "one outcome");
  if (first.refused) {
    require(fast.holds_only(0xff), "a refused call writes nothing");
    return;
  }
  require(c.same_rows(plain, fast, type), "one gradient");
  require(c.gaps_are(plain, type, 0x00) && c.gaps_are(fast, type, 0xff), "gaps between rows stay");
  require(passed_or_zero(c, dy, fast), "a gradient passes or is zero");
  const exact_buffer in_place(make_gradient(c));
  backward(which, c, c.tensor(in_place, type), c.tensor(in_place, type));
  require(c.same_rows(in_place, fast, type), "in place as out of place");
}

std::vector<bytes> seeds() {
  std::vector<bytes> all;
  for (const bytes& seed : encoded_seeds(names)) {
    std::span<const std::uint8_t> rest = seed;
    auto header = take<encoded_header>(rest);
    for (header.other = 0; header.other < static_cast<std::uint32_t>(layer::count); ++header.other)
      all.push_back(with_header(header, rest));
  }
  return all;
}

}  // namespace stash::fuzz
