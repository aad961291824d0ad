#include "runtime/given_back.hpp"

#include <new>

#include "stash/error.hpp"

namespace stash::detail {

given_back::~given_back() {
  while (!parts_.empty())
    drop_first();
}

void given_back::add(std::size_t bytes, void* stream) noexcept {
  look();
  try {
    parts_.push_back({bytes, nullptr});
    try {
      parts_.back().behind = device::record_event(stream);
    } catch (...) {
      parts_.pop_back();
      throw;
    }
    bytes_ += bytes;
  } catch (const error&) {
    // Whoever asks the device next hears of it.
  } catch (const std::bad_alloc&) {
  }
}

void given_back::keep_within(std::size_t bytes, void* stream) {
  while (bytes_ > bytes) {
    device::wait_in_stream(stream, parts_.front().behind);
    drop_first();
  }
}

void given_back::look() noexcept {
  try {
    while (!parts_.empty() && device::reached(parts_.front().behind))
      drop_first();
  } catch (const error&) {
    // The same.
  }
}

void given_back::drop_first() noexcept {
  device::destroy_event(parts_.front().behind);
  bytes_ -= parts_.front().bytes;
  parts_.pop_front();
}

}  // namespace stash::detail
