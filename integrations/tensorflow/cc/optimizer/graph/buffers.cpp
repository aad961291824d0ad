// SPDX-License-Identifier: Apache-2.0
#include "optimizer/graph/buffers.hpp"

namespace stash_tf {

int buffers::add(std::int64_t bytes, int holders, bool on_host) {
  all_.push_back({bytes, holders, on_host});
  (on_host ? host_ : live_) += bytes;
  return static_cast<int>(all_.size()) - 1;
}

int buffers::add_list(int holders) {
  all_.push_back({0, holders, false, true});
  return static_cast<int>(all_.size()) - 1;
}

void buffers::hold(int b, int times) {
  if (b >= 0) all_[at(b)].holders += times;
}

void buffers::release(int b) {
  if (b < 0 || --all_[at(b)].holders != 0) return;
  (all_[at(b)].on_host ? host_ : live_) -= all_[at(b)].bytes;
  std::vector<int> elements;
  elements.swap(all_[at(b)].elements);
  for (const int e : elements)
    leave(e);
}

void buffers::give_bytes(int b, std::int64_t bytes) {
  all_[at(b)].bytes = bytes;
  live_ += bytes;
}

void buffers::put(int list, std::size_t position, int element, double weight) {
  std::vector<int>& elements = all_[at(list)].elements;
  if (elements.size() <= position) elements.resize(position + 1, empty);
  const int old = elements[position];
  elements[position] = element;
  enter(element, weight);
  leave(old);
}

void buffers::append(int list, int element, double weight) {
  put(list, all_[at(list)].elements.size(), element, weight);
}

int buffers::pop(int list, int times) {
  std::vector<int>& elements = all_[at(list)].elements;
  if (elements.empty()) return none;
  const int last = elements.back();
  elements.pop_back();
  hold(last, times);
  leave(last);
  return last;
}

double buffers::weight(int b) const {
  if (bytes(b) == 0) return 1;
  return 1 + static_cast<double>(all_[at(b)].more_in_lists) / static_cast<double>(bytes(b));
}

void buffers::enter(int element, double weight) {
  if (element < 0) return;
  buffer& b = all_[at(element)];
  ++b.holders;
  if (++b.in_lists > 1 || weight <= 1) return;
  b.more_in_lists = static_cast<std::int64_t>((weight - 1) * static_cast<double>(b.bytes));
  live_ += b.more_in_lists;
}

void buffers::leave(int element) {
  if (element < 0) return;
  buffer& b = all_[at(element)];
  if (--b.in_lists == 0) {
    live_ -= b.more_in_lists;
    b.more_in_lists = 0;
  }
  release(element);
}

}  // namespace stash_tf
