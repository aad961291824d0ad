// SPDX-License-Identifier: Apache-2.0
#include "encoders/overlap_check.hpp"

#include <numeric>

#include <fmt/format.h>

#include "encoders/detail.hpp"

namespace stash::encoders {

extent extent_of_pitched(const const_tensor_view& view) noexcept {
  const std::size_t size = size_of(view.type);
  const std::int64_t inner = view.dims.inner();
  const std::int64_t pixels = view.elements() / inner;
  extent all = extent_of(view.data, static_cast<std::size_t>((pixels - 1) * view.pitch() + inner) * size);
  if (pixels == 1) return all;
  all.run = static_cast<std::size_t>(inner) * size;
  all.pitch = static_cast<std::size_t>(view.pitch()) * size;
  return all;
}

bool overlap(const extent& a, const extent& b) noexcept {
  if (!may_overlap(a, b)) return false;
  // Both repeat with this; a single run is as if it did.
  const std::size_t period = std::gcd(a.pitch, b.pitch);
  if (period == 0) return true;
  const std::size_t distance =
      b.begin >= a.begin ? (b.begin - a.begin) % period : (period - (a.begin - b.begin) % period) % period;
  return distance < a.run || distance + b.run > period;
}

void fail_overlap(std::string_view function, const memory_access& written, std::string_view prefix,
                  const memory_access& other, bool in_place) {
  const std::string name = fmt::format("{}{}{}", prefix, other.argument, other.member);
  const std::string expected = in_place
                                   ? fmt::format("{0} itself with its pitch, or memory apart from {0}", name)
                                   : fmt::format("memory apart from {}", name);
  fail(errc::invalid_argument, function, fmt::format("{}{}", written.argument, written.member), expected,
       fmt::format("{:#x} to {:#x}, which overlaps {:#x} to {:#x}", written.where.begin, written.where.end,
                   other.where.begin, other.where.end));
}

void call_memory::settle(const memory_access& p, const memory_access& before,
                         const char* in_place_with) const {
  const bool in_place = in_place_with != nullptr && std::string_view(before.argument) == in_place_with;
  if (in_place && p.where == before.where) return;
  if (p.how == use::read) fail_overlap(function_, before, "", p);
  fail_overlap(function_, p, "", before, in_place);
}

}  // namespace stash::encoders
