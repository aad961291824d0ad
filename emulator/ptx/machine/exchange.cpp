// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine/exchange.hpp"

namespace stash::ptx {
namespace {

using word = std::uint32_t;
enum class mode : std::uint8_t { up, down, xored, index };

/// As the description of shfl has it: the low half of `bounds` is the clamp, the high one cuts the warp into
/// segments.
template <mode Mode>
void run_shuffle(warp& w, const instruction& i, std::uint32_t lanes) {
  const std::byte* value = w.at<std::byte>(i.operands[2]);
  std::array<word, warp_lanes> brought;
  each_lane(all_lanes, [&](unsigned lane) { brought[lane] = value_at<word>(value, lane); });
  std::byte* to = i.operands[0].offset == no_result ? nullptr : w.at<std::byte>(i.operands[0]);
  word inside = 0;
  each_lane(lanes, [&](unsigned lane) {
    const word by = value_at<word>(w.at<std::byte>(i.operands[3]), lane) & 31;
    const word bounds = value_at<word>(w.at<std::byte>(i.operands[4]), lane);
    const word segment = bounds >> 8 & 31, clamp = bounds & 31;
    const auto least = static_cast<int>(lane & segment);
    const auto most = static_cast<int>((lane & segment) | (clamp & ~segment));
    int from = 0;
    bool there = false;
    switch (Mode) {
      case mode::up:
        from = static_cast<int>(lane - by);
        there = from >= most;
        break;
      case mode::down:
        from = static_cast<int>(lane + by);
        there = from <= most;
        break;
      case mode::xored:
        from = static_cast<int>(lane ^ by);
        there = from <= most;
        break;
      case mode::index:
        from = least | static_cast<int>(by & ~segment);
        there = from <= most;
        break;
    }
    if (!there) from = static_cast<int>(lane);
    if ((lanes >> from & 1) == 0)
      violate(w, i, lane, "asks lane " + std::to_string(from) + ", which is not there");
    if (to != nullptr) put_at(to, lane, brought[static_cast<unsigned>(from)]);
    if (there) inside |= 1U << lane;
  });
  if (i.operands[1].offset != no_result) {
    word& there = *w.at<word>(i.operands[1]);
    there = (there & ~lanes) | inside;
  }
}

void run_ballot(warp& w, const instruction& i, std::uint32_t lanes) {
  const word votes = *w.at<word>(i.operands[1]) & lanes;
  std::byte* to = w.at<std::byte>(i.operands[0]);
  each_lane(lanes, [&](unsigned lane) { put_at(to, lane, votes); });
}
template <bool All>
void run_vote(warp& w, const instruction& i, std::uint32_t lanes) {
  const word votes = *w.at<word>(i.operands[1]) & lanes;
  const bool result = All ? votes == lanes : votes != 0;
  word& to = *w.at<word>(i.operands[0]);
  to = (to & ~lanes) | (result ? lanes : 0);
}

}  // namespace

form shuffle_form(std::string_view mode_name) {
  std::vector<std::uint8_t> widths{4, 0, 4, 4, 4, 4};
  if (mode_name == "up") return {&run_shuffle<mode::up>, widths};
  if (mode_name == "down") return {&run_shuffle<mode::down>, widths};
  if (mode_name == "bfly") return {&run_shuffle<mode::xored>, widths};
  if (mode_name == "idx") return {&run_shuffle<mode::index>, widths};
  return {};
}

form vote_form(std::string_view mode_name) {
  if (mode_name == "ballot") return {&run_ballot, {4, 0, 4}};
  if (mode_name == "any") return {&run_vote<false>, {0, 0, 4}};
  if (mode_name == "all") return {&run_vote<true>, {0, 0, 4}};
  return {};
}

}  // namespace stash::ptx
