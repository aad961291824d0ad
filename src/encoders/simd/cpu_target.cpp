// SPDX-License-Identifier: Apache-2.0
#include "stash/cpu.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>

#include <fmt/format.h>

#include "encoders/detail.hpp"
#include "encoders/format/run_loops.hpp"
#include "encoders/message.hpp"
#include "encoders/public_call.hpp"
#include "encoders/simd/simd_loops.hpp"

namespace stash {
namespace encoders {
namespace {

constexpr std::string_view scalar_name = "scalar";

/// Highway's names in lower case.
std::string lower_case(std::string_view name) {
  std::string result(name);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// Allocates nothing: the first call of any kind may end up here.
bool is_lower_case_of(std::string_view upper, std::string_view name) noexcept {
  return std::equal(
      upper.begin(), upper.end(), name.begin(), name.end(),
      [](unsigned char u, unsigned char c) { return static_cast<unsigned char>(std::tolower(u)) == c; });
}

const run_loops* find(std::string_view name) noexcept {
  if (name == scalar_name) return &scalar_loops;
  for (const simd_target& target : simd_targets()) {
    if (is_lower_case_of(target.name, name)) return target.version;
  }
  return nullptr;
}

std::string list_of_targets() {
  std::string list;
  for (const simd_target& target : simd_targets())
    list += lower_case(target.name) + ", ";
  return list + std::string(scalar_name);
}

struct first_choice {
  const run_loops* version;
  const char* unknown;  ///< what STASH_CPU_TARGET says, if that is no target
};

first_choice choose_first() noexcept {
  const char* requested = std::getenv("STASH_CPU_TARGET");
  const auto known = simd_targets();
  const run_loops* best = known.empty() ? &scalar_loops : known.front().version;
  if (requested == nullptr || *requested == '\0') return {best, nullptr};
  const run_loops* named = find(requested);
  if (named == nullptr) return {best, requested};
  return {named, nullptr};
}

const first_choice& first() noexcept {
  static const first_choice choice = choose_first();
  return choice;
}

std::atomic<const run_loops*>& chosen() noexcept {
  static std::atomic<const run_loops*> version{nullptr};
  return version;
}

}  // namespace

const run_loops& loops() noexcept {
  const run_loops* version = chosen().load(std::memory_order_acquire);
  return version != nullptr ? *version : *first().version;
}

void check_cpu_target(std::string_view function) {
  if (chosen().load(std::memory_order_acquire) != nullptr || first().unknown == nullptr) return;
  fail(errc::invalid_argument, function, "STASH_CPU_TARGET", "one of " + list_of_targets(),
       fmt::format("\"{}\"", shortened(first().unknown)));
}

}  // namespace encoders

std::vector<std::string> cpu_targets() try {
  std::vector<std::string> names;
  for (const encoders::simd_target& target : encoders::simd_targets())
    names.push_back(encoders::lower_case(target.name));
  names.emplace_back(encoders::scalar_name);
  return names;
} catch (...) {
  encoders::rethrow("cpu_targets");
}

std::string cpu_target() try {
  encoders::check_cpu_target("cpu_target");
  for (const encoders::simd_target& target : encoders::simd_targets()) {
    if (target.version == &encoders::loops()) return encoders::lower_case(target.name);
  }
  return std::string(encoders::scalar_name);
} catch (...) {
  encoders::rethrow("cpu_target");
}

void set_cpu_target(std::string_view name) try {
  const encoders::run_loops* version = encoders::find(name);
  if (version == nullptr) {
    encoders::fail(errc::invalid_argument, "set_cpu_target", "name", "one of " + encoders::list_of_targets(),
                   fmt::format("\"{}\"", shortened(name)));
  }
  encoders::chosen().store(version, std::memory_order_release);
} catch (...) {
  encoders::rethrow("set_cpu_target");
}

}  // namespace stash
