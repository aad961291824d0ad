// SPDX-License-Identifier: Apache-2.0
#include "planner/search/option_facts.hpp"

#include <algorithm>

namespace stash::planner {

std::int64_t held_at(const item_option& o, joined_step step) {
  std::int64_t sum = 0;
  for (const held_bytes& h : o.held) {
    if (h.first <= step && step <= h.last) sum += h.bytes;
  }
  return sum;
}

std::int64_t held_or_moved_at(const item_option& o, joined_step step) {
  std::int64_t sum = held_at(o, step);
  for (const transfer& t : o.transfers) {
    if (t.released < step && step <= t.needed) sum += t.bytes;
  }
  return sum;
}

double held_area(const item_option& o) {
  double sum = 0.0;
  for (const held_bytes& h : o.held)
    sum += static_cast<double>(h.bytes) * (h.last - h.first + 1);
  return sum;
}

double work_of(const item_option& o) {
  double sum = 0.0;
  for (const added_work& w : o.work)
    sum += w.ms;
  return sum;
}

double link_ms(const item_option& o, const link_model& link) {
  double sum = 0.0;
  for (const transfer& t : o.transfers)
    sum += static_cast<double>(t.bytes) / std::min(link.out_rate, link.in_rate) + link.latency_ms;
  return sum;
}

}  // namespace stash::planner
