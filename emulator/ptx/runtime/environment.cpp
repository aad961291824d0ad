// SPDX-License-Identifier: Apache-2.0
#include "ptx/runtime/environment.hpp"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ptx/machine/machine.hpp"
#include "ptx/runtime/cuda_runtime.hpp"
#include "ptx/runtime/queues.hpp"

namespace stash::ptx {
namespace {

std::uint32_t number_of(const char* variable, std::uint32_t otherwise, std::uint32_t least) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const char* const end = text + std::strlen(text);
  std::uint32_t value = 0;
  const auto [stopped, problem] = std::from_chars(text, end, value);
  if (problem == std::errc{} && stopped == end && value >= least && value <= INT32_MAX) return value;
  std::fprintf(stderr, "%s: expected a number from %u to %d, got \"%s\"\n", variable, least, INT32_MAX, text);
  std::exit(EXIT_FAILURE);
}

nlohmann::ordered_json json_of(const named_counts& c) {
  return {{"kernel", c.kernel},
          {"launches", c.ran.launches},
          {"threads", c.ran.threads},
          {"warp_instructions", c.ran.warp_instructions},
          {"lane_instructions", c.ran.lane_instructions},
          {"global_loads", c.ran.global_loads},
          {"global_stores", c.ran.global_stores},
          {"load_sectors", c.ran.load_sectors},
          {"store_sectors", c.ran.store_sectors},
          {"shared_accesses", c.ran.shared_accesses},
          {"shared_passes", c.ran.shared_passes}};
}

/// Lines at which nothing ran are left out.
nlohmann::ordered_json json_of(const line_counts& c) {
  auto lines = nlohmann::ordered_json::array();
  for (std::size_t n = 0; n < c.ran.size(); ++n) {
    if (c.ran[n] != 0) lines.push_back({c.first_line + n, c.ran[n]});
  }
  return {{"kernel", c.kernel}, {"lines", lines}};
}

const char* file_of_counts() {
  return std::getenv("STASH_PTX_COUNTS");
}

void write_counts() {
  {
    // What nobody has waited for as well.
    const std::lock_guard lock(runtime_lock());
    finish_everything();
  }
  auto kernels = nlohmann::ordered_json::array(), lines = nlohmann::ordered_json::array();
  for (const named_counts& c : counts_so_far())
    kernels.push_back(json_of(c));
  for (const line_counts& c : lines_so_far())
    lines.push_back(json_of(c));
  std::ofstream file(file_of_counts());
  file << nlohmann::ordered_json{{"kernels", kernels}, {"lines", lines}}.dump() << '\n';
  if (!file.flush()) std::fprintf(stderr, "STASH_PTX_COUNTS: cannot write %s\n", file_of_counts());
}

}  // namespace

int multiprocessors() {
  static const auto count = static_cast<int>(number_of("STASH_PTX_MULTIPROCESSORS", 132, 1));
  return count;
}

bool streams_are_eager() {
  static const bool eager = [] {
    const char* const text = std::getenv("STASH_PTX_STREAMS");
    const std::string_view requested = text == nullptr ? "lazy" : text;
    if (requested == "eager" || requested == "lazy") return requested == "eager";
    std::fprintf(stderr, "STASH_PTX_STREAMS: expected lazy or eager, got \"%s\"\n", text);
    std::exit(EXIT_FAILURE);
  }();
  return eager;
}

void prepare_machine() {
  [[maybe_unused]] static const bool once = [] {
    schedule s;
    s.resident_blocks = number_of("STASH_PTX_BLOCKS", s.resident_blocks, 1);
    s.turn = number_of("STASH_PTX_TURN", s.turn, 0);
    s.seed = number_of("STASH_PTX_SEED", s.seed, 0);
    set_schedule(s);
    if (file_of_counts() == nullptr) return true;
    count_accesses(true);
    // What the counts are kept in is made first, and so goes last when the program ends.
    (void)counts_so_far();
    (void)lines_so_far();
    std::atexit(write_counts);
    return true;
  }();
}

}  // namespace stash::ptx
