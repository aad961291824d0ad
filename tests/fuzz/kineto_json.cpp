// SPDX-License-Identifier: Apache-2.0
// The reader of profiles: any text gives times that are finite and not negative, or error(bad_format).

#include <cmath>

#include "fuzz/json_edits.hpp"
#include "planner/trace/profile_text.hpp"
#include "planner/trace/trace.hpp"
#include "stash/error.hpp"

namespace stash::fuzz {
namespace {

const std::vector<std::string>& documents() {
  static const std::vector<std::string> texts{planner::small_profile()};
  return texts;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  try {
    for (const planner::kernel_time& k : planner::read_kineto(edited_text(input, documents())))
      require(std::isfinite(k.seconds) && k.seconds >= 0.0, "a finite time of at least 0");
  } catch (const error& e) {
    require(e.code() == errc::bad_format, e.what());
  }
}

std::vector<bytes> seeds() {
  return document_seeds(documents());
}

}  // namespace stash::fuzz
